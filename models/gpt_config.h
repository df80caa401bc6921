/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of a GPT-2 from the config.json of a folder as Hugging Face lays it out. */
#ifndef JM_GPT_CONFIG_H
#define JM_GPT_CONFIG_H

#include <jansson.h>

#include "base/option.h"

/* Writes all options of model gpt from the keys of transformers.GPT2Config; as jm_llama_config. */
int jm_gpt_config(
	const char *file, const json_t *config, struct jm_values *ret, struct jm_err *err);

/* The same file of such a network, without torch_dtype; null with rotary positions, which GPT-2
 * does not have; NULL = out of memory. */
json_t *jm_gpt_make_config(const struct jm_values *dims);

#endif
