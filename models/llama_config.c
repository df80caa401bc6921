/* SPDX-License-Identifier: Apache-2.0 */
#include "llama_config.h"
#include "llama_dims.h"
#include "network_config.h"

#include <math.h>
#include <string.h>

#include "base/text/json.h"

static int check_kind(const struct jm_config_reader *r, const json_t *config)
{
	int code = jm_config_check_word(r, config, "model_type", "llama");

	if (!code)
		code = jm_config_check_word(r, config, "hidden_act", "silu");
	if (!code)
		code = jm_config_check_flag(r, config, "attention_bias", false);
	if (!code)
		code = jm_config_check_flag(r, config, "mlp_bias", false);
	return code ? code : jm_config_check_plain(r, config);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* ---- rotary positions ------------------------------------------------------------------------ */

static int take_scaling(const struct jm_config_reader *r, const json_t *scaling)
{
	static const struct jm_config_key keys[] = {{"factor", "rope-factor", NAN},
		{"low_freq_factor", "rope-low", NAN}, {"high_freq_factor", "rope-high", NAN},
		{"original_max_position_embeddings", "rope-context", NAN}, {0}};

	return jm_config_take(r, scaling, keys);
}

/* rope_theta and rope_scaling; from transformers 5 on all is in rope_parameters. */
static int take_rotary(const struct jm_config_reader *r, const json_t *config)
{
	static const struct jm_config_key theta[] = {{"rope_theta", "theta", 10000}, {0}};
	const json_t *parameters = json_object_get(config, "rope_parameters");
	const json_t *scaling = json_object_get(config, "rope_scaling");
	const char *type;
	int code = jm_config_take(r, json_is_object(parameters) ? parameters : config, theta);

	if (code)
		return code;
	if (json_is_object(parameters))
		scaling = parameters;
	type = jm_json_text(scaling, json_object_get(scaling, "rope_type") ? "rope_type" : "type");
	if (!json_is_object(scaling) || !strcmp(type, "default"))
		return 0;
	if (strcmp(type, "llama3") != 0)
		return jm_config_refuse(r, "the type of rope_scaling", type, "llama3");
	return take_scaling(r, scaling);
}

/* Which others give where they are missing. */
static int take_heads(const struct jm_config_reader *r, const json_t *config)
{
	const double heads = jm_values_number(r->ret, "heads");
	const struct jm_config_key keys[] = {{"num_key_value_heads", "kv-heads", heads},
		{"head_dim", "head-width", floor(jm_values_number(r->ret, "hidden") / heads)}, {0}};

	return jm_config_take(r, config, keys);
}

int jm_llama_config(
	const char *file, const json_t *config, struct jm_values *ret, struct jm_err *err)
{
	static const struct jm_config_key keys[] = {{"num_hidden_layers", "layers", NAN},
		{"hidden_size", "hidden", NAN}, {"num_attention_heads", "heads", NAN},
		{"intermediate_size", "ffn", NAN}, {"vocab_size", "vocab", NAN},
		{"max_position_embeddings", "context", 2048}, {"rms_norm_eps", "norm-eps", 1e-6},
		{0}};
	const struct jm_config_reader r = {"llama", file, ret, err};
	bool tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
	int code = check_kind(&r, config);

	if (!code)
		code = jm_config_take(&r, config, keys);
	if (!code)
		code = take_heads(&r, config);
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
