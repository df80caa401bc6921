/* SPDX-License-Identifier: Apache-2.0 */
#include "llama_config.h"
#include "llama_dims.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

struct reader {
	const char *file;
	struct jm_values *ret;
	struct jm_err *err;
};

static int set(const struct reader *r, const char *option, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.15g", value);
	if (strtod(text, NULL) != value)
		snprintf(text, sizeof(text), "%.17g", value);
	return jm_values_set(r->ret, option, text, r->err);
}

/* fallback: of a key that is missing or null; NAN = it must be there. */
static int take(const struct reader *r, const json_t *from, const char *key, const char *option,
	double fallback)
{
	const json_t *value = json_object_get(from, key);
	const struct jm_option *row = jm_values_get(r->ret, option)->option;
	double number = json_is_number(value) ? json_number_value(value) : fallback;

	if (value && !json_is_number(value) && !json_is_null(value))
		number = NAN;
	if (number >= row->min && number <= row->max &&
		(row->type != JM_INT || number == floor(number)))
		return set(r, option, number);
	if (value && !json_is_null(value))
		return jm_err_set(r->err, JM_EFORMAT,
			"%s is damaged: '%s' is no number from %g to %g; fetch it again.", r->file,
			key, row->min, row->max);
	return jm_err_set(r->err, JM_EFORMAT,
		"%s has no '%s', which a LLaMA needs; fetch it again, or name the dimensions by "
		"options and the weights by their file.",
		r->file, key);
}

/* ---- what must be as this model has it ------------------------------------------------------- */

static int refuse(const struct reader *r, const char *key, const char *value, const char *known)
{
	return jm_err_set(r->err, JM_ENOSUP,
		"%s says %s is %.60s, and model llama computes %s only; take other weights.",
		r->file, key, value, known);
}

/* A key that is absent is as it must be. */
static int check_word(
	const struct reader *r, const json_t *config, const char *key, const char *known)
{
	const json_t *value = json_object_get(config, key);

	if (!value || json_is_null(value) ||
		(json_is_string(value) && !strcmp(json_string_value(value), known)))
		return 0;
	return refuse(r, key, json_is_string(value) ? json_string_value(value) : "no text", known);
}

static int check_false(const struct reader *r, const json_t *config, const char *key)
{
	return json_is_true(json_object_get(config, key)) ? refuse(r, key, "true", "false") : 0;
}

static int check_kind(const struct reader *r, const json_t *config)
{
	int code = check_word(r, config, "model_type", "llama");

	if (!code)
		code = check_word(r, config, "hidden_act", "silu");
	if (!code)
		code = check_false(r, config, "attention_bias");
	if (!code)
		code = check_false(r, config, "mlp_bias");
	if (!code && json_is_object(json_object_get(config, "quantization_config")))
		code = refuse(r, "quantization_config", "given", "weights that are not quantized");
	return code;
}

/* ---- rotary positions ------------------------------------------------------------------------ */

static int take_scaling(const struct reader *r, const json_t *scaling)
{
	int code = take(r, scaling, "factor", "rope-factor", NAN);

	if (!code)
		code = take(r, scaling, "low_freq_factor", "rope-low", NAN);
	if (!code)
		code = take(r, scaling, "high_freq_factor", "rope-high", NAN);
	if (!code)
		code = take(r, scaling, "original_max_position_embeddings", "rope-context", NAN);
	return code;
}

/* rope_theta and rope_scaling; from transformers 5 on all is in rope_parameters. */
static int take_rotary(const struct reader *r, const json_t *config)
{
	const json_t *parameters = json_object_get(config, "rope_parameters");
	const json_t *scaling = json_object_get(config, "rope_scaling");
	const char *type;
	int code = take(
		r, json_is_object(parameters) ? parameters : config, "rope_theta", "theta", 10000);

	if (code)
		return code;
	if (json_is_object(parameters))
		scaling = parameters;
	type = jm_json_text(scaling, json_object_get(scaling, "rope_type") ? "rope_type" : "type");
	if (!json_is_object(scaling) || !strcmp(type, "default"))
		return 0;
	if (strcmp(type, "llama3") != 0)
		return refuse(r, "the type of rope_scaling", type, "llama3");
	return take_scaling(r, scaling);
}

int jm_llama_config(
	const char *file, const json_t *config, struct jm_values *ret, struct jm_err *err)
{
	static const struct {
		const char *key, *option;
		double fallback;
	} keys[] = {{"num_hidden_layers", "layers", NAN}, {"hidden_size", "hidden", NAN},
		{"num_attention_heads", "heads", NAN}, {"intermediate_size", "ffn", NAN},
		{"vocab_size", "vocab", NAN}, {"max_position_embeddings", "context", 2048},
		{"rms_norm_eps", "norm-eps", 1e-6}};
	const struct reader r = {file, ret, err};
	bool tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
	int code = check_kind(&r, config);

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !code; i++)
		code = take(&r, config, keys[i].key, keys[i].option, keys[i].fallback);
	if (!code)
		code = take(&r, config, "num_key_value_heads", "kv-heads",
			jm_values_number(ret, "heads"));
	if (!code)
		code = take(&r, config, "head_dim", "head-width",
			floor(jm_values_number(ret, "hidden") / jm_values_number(ret, "heads")));
	if (!code)
		code = take_rotary(&r, config);
	return code ? code : jm_values_set(ret, "tied", tied ? "yes" : "no", err);
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *make_scaling(const struct jm_rotary *r)
{
	if (!(r->factor > 1))
		return json_null();
	return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", r->factor,
		"low_freq_factor", r->low, "high_freq_factor", r->high,
		"original_max_position_embeddings", (json_int_t)r->context);
}

json_t *jm_llama_make_config(const struct jm_values *dims)
{
	const struct jm_llama d = jm_llama_dims(dims);
	json_t *json = json_pack("{s:[s], s:s, s:s, s:b, s:b}", "architectures", "LlamaForCausalLM",
		"model_type", "llama", "hidden_act", "silu", "attention_bias", 0, "mlp_bias", 0);

	jm_json_set_int(&json, "num_hidden_layers", d.layers);
	jm_json_set_int(&json, "hidden_size", d.hidden);
	jm_json_set_int(&json, "num_attention_heads", d.heads);
	jm_json_set_int(&json, "num_key_value_heads", d.kv_heads);
	jm_json_set_int(&json, "head_dim", d.head);
	jm_json_set_int(&json, "intermediate_size", d.ffn);
	jm_json_set_int(&json, "vocab_size", d.vocab);
	jm_json_set_int(&json, "max_position_embeddings", d.context);
	jm_json_set_number(&json, "rms_norm_eps", d.eps);
	jm_json_set_number(&json, "rope_theta", d.rotary.theta);
	jm_json_set(&json, "rope_scaling", make_scaling(&d.rotary));
	jm_json_set_bool(&json, "tie_word_embeddings", d.tied == JM_LLAMA_TIED);
	return json;
}
