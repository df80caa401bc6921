/* SPDX-License-Identifier: Apache-2.0 */
#include "clip_text.h"
#include "transformer.h"
#include "engine/graph/layer.h"

#define EPS 1e-5

struct jm_tensor *jm_clip_text(struct jm_graph *g, const char *prefix,
	const struct jm_clip_text *how, struct jm_tensor *ids)
{
	struct jm_tensor *table, *x;

	jm_graph_part(g, prefix);
	table = jm_graph_table(g, "tokens.weight", how->vocab, how->hidden);
	x = jm_graph_embed(
		g, ids, table, jm_graph_table(g, "positions.weight", how->context, how->hidden));
	x = jm_transformer_blocks(g, x,
		&(struct jm_transformer){.layers = how->layers,
			.hidden = how->hidden,
			.ffn = how->ffn,
			.heads = how->heads,
			.causal = true,
			.eps = EPS,
			.init = JM_INIT_NORMAL,
			.activation = how->activation});
	x = jm_transformer_norm(g, x, how->hidden, EPS, "ln_f");
	jm_graph_part(g, "");
	return x;
}

#define MODEL "text_model."
#define LAYER MODEL "encoder.layers.*."
const struct jm_weight_name jm_clip_text_names[] = {
	{.own = "tokens.weight", .file = MODEL "embeddings.token_embedding.weight"},
	{.own = "positions.weight", .file = MODEL "embeddings.position_embedding.weight"},
	{.own = "h*.ln_1.*", .file = LAYER "layer_norm1.*"},
	{.own = "h*.attn.qkv.*", .file = LAYER "self_attn.q_proj.*"},
	{.own = "h*.attn.qkv.*", .file = LAYER "self_attn.k_proj.*"},
	{.own = "h*.attn.qkv.*", .file = LAYER "self_attn.v_proj.*"},
	{.own = "h*.attn.out.*", .file = LAYER "self_attn.out_proj.*"},
	{.own = "h*.ln_2.*", .file = LAYER "layer_norm2.*"},
	{.own = "h*.mlp.in.*", .file = LAYER "mlp.fc1.*"},
	{.own = "h*.mlp.out.*", .file = LAYER "mlp.fc2.*"},
	{.own = "ln_f.*", .file = MODEL "final_layer_norm.*"},
	{0},
};
