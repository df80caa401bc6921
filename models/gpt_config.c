/* SPDX-License-Identifier: Apache-2.0 */
#include "gpt_config.h"
#include "network_config.h"
#include "engine/graph/model.h"

#include <math.h>
#include <string.h>

#include "base/text/json.h"

static int check_kind(const struct jm_config_reader *r, const json_t *config)
{
	static const struct {
		const char *key;
		bool known;
	} flags[] = {{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false},
		{"add_cross_attention", false}, {"tie_word_embeddings", true}};
	int code = jm_config_check_word(r, config, "model_type", "gpt2");

	if (!code)
		code = jm_config_check_word(r, config, "activation_function", "gelu_new");
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags) && !code; i++)
		code = jm_config_check_flag(r, config, flags[i].key, flags[i].known);
	return code ? code : jm_config_check_plain(r, config);
}

int jm_gpt_config(const char *file, const json_t *config, struct jm_values *ret, struct jm_err *err)
{
	static const struct jm_config_key keys[] = {{"n_layer", "layers", NAN},
		{"n_embd", "hidden", NAN}, {"n_head", "heads", NAN}, {"vocab_size", "vocab", NAN},
		{"n_positions", "context", NAN}, {"layer_norm_epsilon", "norm-eps", 1e-5}, {0}};
	const struct jm_config_reader r = {"gpt", file, ret, err};
	int code = check_kind(&r, config);

	if (!code)
		code = jm_config_take(&r, config, keys);
	if (!code)
		code = jm_config_take(&r, config,
			(const struct jm_config_key[]){
				{"n_inner", "ffn", 4 * jm_values_number(ret, "hidden")}, {0}});
	return code ? code : jm_values_set(ret, "positions", "learned", err);
}

json_t *jm_gpt_make_config(const struct jm_values *dims)
{
	json_t *json;

	if (strcmp(jm_values_text(dims, "positions"), "learned") != 0)
		return json_null();
	json = json_pack("{s:[s], s:s, s:s}", "architectures", "GPT2LMHeadModel", "model_type",
		"gpt2", "activation_function", "gelu_new");
	jm_json_set_int(&json, "n_layer", jm_dim(dims, "layers"));
	jm_json_set_int(&json, "n_embd", jm_dim(dims, "hidden"));
	jm_json_set_int(&json, "n_head", jm_dim(dims, "heads"));
	jm_json_set_int(&json, "n_inner", jm_dim(dims, "ffn"));
	jm_json_set_int(&json, "vocab_size", jm_dim(dims, "vocab"));
	jm_json_set_int(&json, "n_positions", jm_dim(dims, "context"));
	jm_json_set_number(&json, "layer_norm_epsilon", jm_values_number(dims, "norm-eps"));
	jm_json_set_bool(&json, "tie_word_embeddings", true);
	return json;
}
