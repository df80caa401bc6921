/* SPDX-License-Identifier: Apache-2.0 */
#include "network_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set(const struct jm_config_reader *r, const char *option, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.15g", value);
	if (strtod(text, NULL) != value)
		snprintf(text, sizeof(text), "%.17g", value);
	return jm_values_set(r->ret, option, text, r->err);
}

static int take(
	const struct jm_config_reader *r, const json_t *from, const struct jm_config_key *key)
{
	const json_t *value = json_object_get(from, key->key);
	const struct jm_option *row = jm_values_get(r->ret, key->option)->option;
	double number = json_is_number(value) ? json_number_value(value) : key->fallback;

	if (value && !json_is_number(value) && !json_is_null(value))
		number = NAN;
	if (number >= row->min && number <= row->max &&
		(row->type != JM_INT || number == floor(number)))
		return set(r, key->option, number);
	if (value && !json_is_null(value))
		return jm_err_set(r->err, JM_EFORMAT,
			"%s is damaged: '%s' is no number from %g to %g; fetch it again.", r->file,
			key->key, row->min, row->max);
	return jm_err_set(r->err, JM_EFORMAT,
		"%s has no '%s', which model %s needs; fetch it again, or name the dimensions by "
		"options and the weights by their file.",
		r->file, key->key, r->model);
}

int jm_config_take(
	const struct jm_config_reader *r, const json_t *from, const struct jm_config_key *keys)
{
	int code = 0;

	for (int i = 0; keys[i].key && !code; i++)
		code = take(r, from, &keys[i]);
	return code;
}

int jm_config_refuse(
	const struct jm_config_reader *r, const char *key, const char *value, const char *known)
{
	return jm_err_set(r->err, JM_ENOSUP,
		"%s says %s is %.60s, and model %s computes %s only; take other weights.", r->file,
		key, value, r->model, known);
}

int jm_config_check_word(
	const struct jm_config_reader *r, const json_t *config, const char *key, const char *known)
{
	const json_t *value = json_object_get(config, key);

	if (!value || json_is_null(value) ||
		(json_is_string(value) && !strcmp(json_string_value(value), known)))
		return 0;
	return jm_config_refuse(
		r, key, json_is_string(value) ? json_string_value(value) : "no text", known);
}

int jm_config_check_flag(
	const struct jm_config_reader *r, const json_t *config, const char *key, bool known)
{
	const json_t *value = json_object_get(config, key);

	if (!json_is_boolean(value) || json_is_true(value) == known)
		return 0;
	return jm_config_refuse(r, key, known ? "false" : "true", known ? "true" : "false");
}

int jm_config_check_plain(const struct jm_config_reader *r, const json_t *config)
{
	if (!json_is_object(json_object_get(config, "quantization_config")))
		return 0;
	return jm_config_refuse(
		r, "quantization_config", "given", "weights that are not quantized");
}
