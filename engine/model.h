/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a model: one file = one network, written only in engine ops. */
#ifndef JM_MODEL_H
#define JM_MODEL_H

#include "option.h"

struct jm_model {
	const char *name;
	const char *summary;
};

extern const struct jm_model *const jm_models[]; /* NULL-terminated, generated */

#endif
