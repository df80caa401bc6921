/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of a network from the folder that has its weights. */
#ifndef JM_WEIGHTS_CONFIG_H
#define JM_WEIGHTS_CONFIG_H

#include "engine/graph/model.h"

/*
 * As jm_model_dims; if `from` is a folder with a config.json that the model reads, the dimensions
 * that are not given are those of the file. from: NULL = nothing is read. JM_EUSAGE: the preset has
 * another value than the file, but for the context.
 */
int jm_weights_dims(const struct jm_model *model, const struct jm_preset *preset, const char *from,
	const struct jm_values *given, struct jm_values *ret, struct jm_err *err);

#endif
