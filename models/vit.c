/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vision transformer (Dosovitskiy et al., arXiv 2010.11929) as torchvision has it: patches by a
 * convolution, a class token in front, learned positions, layer norm before each part, exact GELU.
 * Start values: LeCun et al. for the patches, Glorot and Bengio for the rest, as torchvision but
 * for the head, which is zero there: here every gradient is alive from the first step on.
 */
#include "engine/graph/model.h"
#include "images.h"
#include "transformer.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"

#define EPS 1e-6

#define PAPER "arXiv 2010.11929, pytorch/vision torchvision/models/vision_transformer.py"

struct dims {
	int64_t layers, hidden, ffn, image, patch, classes;
	int heads;
};

static const struct jm_option options[] = {
	JM_MODEL_INT(struct dims, layers, "layers", 4000, "blocks of the network"),
	JM_MODEL_INT(struct dims, hidden, "hidden", 10000000, "width of the residual stream"),
	JM_MODEL_INT(struct dims, heads, "heads", 100000, "attention heads"),
	JM_MODEL_INT(struct dims, ffn, "ffn", 100000000, "inner width of the feed-forward part"),
	JM_MODEL_INT(
		struct dims, image, "image", 100000, "height and width of an image, in pixels"),
	JM_MODEL_INT(struct dims, patch, "patch", 100000, "height and width of a patch, in pixels"),
	JM_MODEL_INT(struct dims, classes, "classes", 100000000, "number of image classes"),
	{0},
};

static const struct jm_preset presets[] = {
	{"vit-b16", "ViT-B/16",
		"layers=12 hidden=768 heads=12 ffn=3072 image=224 patch=16 classes=1000", 86567656,
		PAPER, "train"},
	{"vit-l16", "ViT-L/16",
		"layers=24 hidden=1024 heads=16 ffn=4096 image=224 patch=16 classes=1000",
		304326632, PAPER, "train"},
	{0},
};

static struct dims dims_of(const struct jm_values *v)
{
	struct dims d = {0};

	JM_FILL(v, &d);
	return d;
}

static int vit_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_dim_default(v, "image", 224, err);

	(void)seq;
	if (!code)
		code = jm_dim_default(v, "patch", 16, err);
	if (!code)
		code = jm_dim_default(v, "classes", 1000, err);
	if (!code && jm_values_text(v, "hidden"))
		code = jm_dim_default(v, "ffn", 4 * jm_dim(v, "hidden"), err);
	return code;
}

static int vit_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	struct dims d = dims_of(v);
	int code = jm_transformer_check(d.hidden, d.heads, false, err);

	if (code)
		return code;
	if (d.image % d.patch)
		return jm_err_set(err, JM_ERANGE,
			"Patches of %lld pixels do not divide an image of %lld; change --patch or "
			"--image.",
			(long long)d.patch, (long long)d.image);
	*ret = 1;
	return 0;
}

/* [B, 3, image, image] -> [B, 1 + patches, hidden] */
static struct jm_tensor *embed(struct jm_graph *g, const struct dims *d, struct jm_tensor *image)
{
	int64_t side = d->image / d->patch;
	struct jm_tensor *w = jm_graph_filter(
		g, "patches.weight", JM_INIT_LECUN_NORMAL, d->hidden, 3, d->patch, d->patch);
	struct jm_tensor *x = jm_graph_conv(g, image, w,
		jm_graph_vector(g, "patches.bias", JM_INIT_ZERO, d->hidden),
		&(struct jm_window){.stride = (int)d->patch});
	struct jm_tensor *first = jm_graph_vector(g, "class", JM_INIT_ZERO, d->hidden);

	return jm_graph_tokens(
		g, x, first, jm_graph_table(g, "positions.weight", side * side + 1, d->hidden));
}

static int vit_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct dims d = dims_of(v);
	struct jm_tensor *target, *image = jm_images_input(g, batch, d.image, &target);
	struct jm_tensor *x = jm_graph_dropout(g, embed(g, &d, image), g->dropout);

	(void)err;
	(void)seq;
	x = jm_transformer_blocks(g, x,
		&(struct jm_transformer){.layers = d.layers,
			.hidden = d.hidden,
			.ffn = d.ffn,
			.heads = d.heads,
			.eps = EPS,
			.init = JM_INIT_XAVIER_UNIFORM,
			.activation = jm_graph_gelu_erf});
	x = jm_graph_first(g, x); /* no node reads the others */
	x = jm_transformer_norm(g, x, d.hidden, EPS, "ln_f");
	x = jm_transformer_linear(g, x, d.hidden, d.classes, JM_INIT_XAVIER_UNIFORM, "head");
	*ret_loss = jm_graph_softmax_xent(g, x, target);
	return 0;
}

static const struct jm_weight_name of_timm[] = {
	{.own = "class", .file = "cls_token", .ones = 2},
	{.own = "positions.weight", .file = "pos_embed", .ones = 1},
	{.own = "patches.*", .file = "patch_embed.proj.*"},
	{.own = "h*.ln_1.*", .file = "blocks.*.norm1.*"},
	{.own = "h*.attn.qkv.*", .file = "blocks.*.attn.qkv.*"},
	{.own = "h*.attn.out.*", .file = "blocks.*.attn.proj.*"},
	{.own = "h*.ln_2.*", .file = "blocks.*.norm2.*"},
	{.own = "h*.mlp.in.*", .file = "blocks.*.mlp.fc1.*"},
	{.own = "h*.mlp.out.*", .file = "blocks.*.mlp.fc2.*"},
	{.own = "ln_f.*", .file = "norm.*"},
	{0},
};

#define BLOCK "encoder.layers.encoder_layer_*."
static const struct jm_weight_name of_torchvision[] = {
	{.own = "class", .file = "class_token", .ones = 2},
	{.own = "positions.weight", .file = "encoder.pos_embedding", .ones = 1},
	{.own = "patches.*", .file = "conv_proj.*"},
	{.own = "h*.ln_1.*", .file = BLOCK "ln_1.*"},
	{.own = "h*.attn.qkv.*", .file = BLOCK "self_attention.in_proj_*"},
	{.own = "h*.attn.out.*", .file = BLOCK "self_attention.out_proj.*"},
	{.own = "h*.ln_2.*", .file = BLOCK "ln_2.*"},
	{.own = "h*.mlp.in.*", .file = BLOCK "mlp.0.*"},
	{.own = "h*.mlp.out.*", .file = BLOCK "mlp.3.*"},
	{.own = "ln_f.*", .file = "encoder.ln.*"},
	{.own = "head.*", .file = "heads.head.*"},
	{0},
};

static const struct jm_weight_names weights[] = {
	{.of = "timm", .name = of_timm}, {.of = "torchvision", .name = of_torchvision}, {0}};

const struct jm_model jm_model_vit = {
	.name = "vit",
	.summary = "vision transformer for images",
	.item = "image",
	.inputs = jm_images_inputs,
	.wants_top1 = true,
	.options = options,
	.presets = presets,
	.weights = weights,
	.top = "head.*",
	.complete = vit_complete,
	.default_seq = vit_default_seq,
	.build = vit_build,
};
