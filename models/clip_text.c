/* SPDX-License-Identifier: Apache-2.0 */
#include "clip_text.h"
#include "clip_names.h"
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
const struct jm_weight_name jm_clip_text_names[] = {
	{.own = "tokens.weight", .file = MODEL "embeddings.token_embedding.weight"},
	{.own = "positions.weight", .file = MODEL "embeddings.position_embedding.weight"},
	JM_CLIP_BLOCKS(MODEL),
	{.own = "ln_f.*", .file = MODEL "final_layer_norm.*"},
	{0},
};
