/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of a LLaMA from the config.json of a folder as Hugging Face lays it out. */
#ifndef JM_LLAMA_CONFIG_H
#define JM_LLAMA_CONFIG_H

#include <jansson.h>

#include "base/option.h"

/*
 * Writes all options of model llama from the keys of transformers.LlamaConfig, with its defaults.
 * file: for errors. JM_EFORMAT: a key is missing, or has no such value. JM_ENOSUP: the file
 * describes what this model does not compute.
 */
int jm_llama_config(
	const char *file, const json_t *config, struct jm_values *ret, struct jm_err *err);

/* The same file of such a network, without torch_dtype; NULL = out of memory. */
json_t *jm_llama_make_config(const struct jm_values *dims);

#endif
