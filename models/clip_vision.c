/* SPDX-License-Identifier: Apache-2.0 */
/* A vision transformer without biases of the patches, with a norm before the first block. */
#include "clip_vision.h"
#include "clip_names.h"
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/layer_image.h"

#define EPS 1e-5

int jm_clip_vision_check(const struct jm_clip_vision *how, struct jm_err *err)
{
	if (how->image % how->patch)
		return jm_err_set(err, JM_ERANGE,
			"Patches of %lld pixels do not divide an image of %lld; change --patch or "
			"--image.",
			(long long)how->patch, (long long)how->image);
	if (how->hidden % how->heads)
		return jm_err_set(err, JM_ERANGE,
			"%d heads do not divide a width of %lld of the image encoder; change "
			"--vision-heads or --vision-hidden.",
			how->heads, (long long)how->hidden);
	return 0;
}

/* [B,3,image,image] -> [B,1 + patches,hidden] */
static struct jm_tensor *embed(
	struct jm_graph *g, const struct jm_clip_vision *how, struct jm_tensor *image)
{
	int64_t side = how->image / how->patch;
	struct jm_tensor *w = jm_graph_filter(
		g, "patches.weight", JM_INIT_NORMAL, how->hidden, 3, how->patch, how->patch);
	struct jm_tensor *x =
		jm_graph_conv(g, image, w, NULL, &(struct jm_window){.stride = (int)how->patch});
	struct jm_tensor *first = jm_graph_vector(g, "class", JM_INIT_NORMAL, how->hidden);

	return jm_graph_tokens(
		g, x, first, jm_graph_table(g, "positions.weight", side * side + 1, how->hidden));
}

struct jm_tensor *jm_clip_vision(struct jm_graph *g, const char *prefix,
	const struct jm_clip_vision *how, struct jm_tensor *image)
{
	struct jm_tensor *x;

	jm_graph_part(g, prefix);
	x = jm_transformer_norm(g, embed(g, how, image), how->hidden, EPS, "ln_pre");
	x = jm_transformer_blocks(g, x,
		&(struct jm_transformer){.layers = how->layers,
			.hidden = how->hidden,
			.ffn = how->ffn,
			.heads = how->heads,
			.eps = EPS,
			.init = JM_INIT_NORMAL,
			.activation = jm_graph_gelu_quick});
	x = jm_graph_behind_first(g, x);
	jm_graph_part(g, "");
	return x;
}

#define EMBEDDINGS "vision_model.embeddings."
const struct jm_weight_name jm_clip_vision_names[] = {
	{.own = "class", .file = EMBEDDINGS "class_embedding"},
	{.own = "patches.weight", .file = EMBEDDINGS "patch_embedding.weight"},
	{.own = "positions.weight", .file = EMBEDDINGS "position_embedding.weight"},
	{.own = "ln_pre.*", .file = "vision_model.pre_layrnorm.*"}, /* as it is written there */
	JM_CLIP_BLOCKS("vision_model."),
	{0},
};
