/* SPDX-License-Identifier: Apache-2.0 */
/* What all readers of a config.json of transformers share: numbers, and what is refused. */
#ifndef JM_NETWORK_CONFIG_H
#define JM_NETWORK_CONFIG_H

#include <jansson.h>

#include "base/option.h"

struct jm_config_reader {
	const char *model;
	const char *file; /* for errors */
	struct jm_values *ret;
	struct jm_err *err;
};

struct jm_config_key {
	const char *key, *option;
	double fallback; /* of a key that is missing or null; NAN = it must be there */
};

/* Sets the options of all keys, terminated by key NULL. JM_EFORMAT: a key is missing, or its option
 * has no such value. */
int jm_config_take(
	const struct jm_config_reader *r, const json_t *from, const struct jm_config_key *keys);
/* JM_ENOSUP: the file has a value that the model does not compute. */
int jm_config_refuse(
	const struct jm_config_reader *r, const char *key, const char *value, const char *known);
/* As jm_config_refuse, unless the value is the known one or absent. */
int jm_config_check_word(
	const struct jm_config_reader *r, const json_t *config, const char *key, const char *known);
int jm_config_check_flag(
	const struct jm_config_reader *r, const json_t *config, const char *key, bool known);
/* As jm_config_refuse, if the weights are quantized. */
int jm_config_check_plain(const struct jm_config_reader *r, const json_t *config);

#endif
