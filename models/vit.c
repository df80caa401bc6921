/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vision transformer (Dosovitskiy et al., arXiv 2010.11929) as torchvision has it: patches by a
 * convolution, a class token in front, learned positions, layer norm before each part, exact GELU.
 * Start values: LeCun et al. for the patches, Glorot and Bengio for the rest, as torchvision but for the
 * head, which is zero there: here every gradient is alive from the first step on.
 */
#include "engine/model.h"

#include <stdio.h>

#define EPS 1e-6

#define PAPER "arXiv 2010.11929, pytorch/vision torchvision/models/vision_transformer.py"

static const struct jm_option options[] = {JM_DIM_LAYERS, JM_DIM_HIDDEN, JM_DIM_HEADS, JM_DIM_FFN,
	JM_DIM_IMAGE, JM_DIM_PATCH, JM_DIM_CLASSES, {0}};

static const struct jm_preset presets[] = {
	{"vit-b16", "ViT-B/16",
		"layers=12 hidden=768 heads=12 ffn=3072 image=224 patch=16 classes=1000", 86567656,
		PAPER, "train"},
	{"vit-l16", "ViT-L/16",
		"layers=24 hidden=1024 heads=16 ffn=4096 image=224 patch=16 classes=1000",
		304326632, PAPER, "train"},
	{0},
};

struct dims {
	int64_t layers, hidden, ffn, image, patch, classes;
	int heads;
};

static struct dims dims_of(const struct jm_values *v)
{
	return (struct dims){
		.layers = jm_dim(v, "layers"),
		.hidden = jm_dim(v, "hidden"),
		.heads = (int)jm_dim(v, "heads"),
		.ffn = jm_dim(v, "ffn"),
		.image = jm_dim(v, "image"),
		.patch = jm_dim(v, "patch"),
		.classes = jm_dim(v, "classes"),
	};
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

	if (d.hidden % d.heads)
		return jm_err_set(err, JM_ERANGE,
			"%d heads do not divide a hidden width of %lld; change --heads or "
			"--hidden.",
			d.heads, (long long)d.hidden);
	if (d.image % d.patch)
		return jm_err_set(err, JM_ERANGE,
			"Patches of %lld pixels do not divide an image of %lld; change --patch or "
			"--image.",
			(long long)d.patch, (long long)d.image);
	*ret = 1;
	return 0;
}

static struct jm_tensor *norm(
	struct jm_graph *g, struct jm_tensor *x, int64_t width, const char *name)
{
	char gamma[32], beta[32];

	snprintf(gamma, sizeof(gamma), "%s.weight", name);
	snprintf(beta, sizeof(beta), "%s.bias", name);
	return jm_graph_layernorm(g, x, jm_graph_vector(g, gamma, JM_INIT_ONE, width),
		jm_graph_vector(g, beta, JM_INIT_ZERO, width), EPS);
}

/* ends: into the residual stream */
static struct jm_tensor *linear(struct jm_graph *g, struct jm_tensor *x, int64_t from, int64_t to,
	bool ends, const char *name)
{
	char weight[32], bias[32];
	struct jm_tensor *w;

	snprintf(weight, sizeof(weight), "%s.weight", name);
	snprintf(bias, sizeof(bias), "%s.bias", name);
	w = jm_graph_matrix(g, weight, JM_INIT_XAVIER_UNIFORM, to, from);
	return jm_graph_linear(g, x, ends ? jm_graph_ends_block(g, w) : w,
		jm_graph_vector(g, bias, JM_INIT_ZERO, to));
}

static struct jm_tensor *attention(struct jm_graph *g, struct jm_tensor *x, const struct dims *d)
{
	struct jm_tensor *h = norm(g, x, d->hidden, "ln_1");

	h = linear(g, h, d->hidden, 3 * d->hidden, false, "attn.qkv");
	h = jm_graph_attention(g, h, d->heads, d->heads, false);
	return linear(g, h, d->hidden, d->hidden, true, "attn.out");
}

static struct jm_tensor *feed_forward(struct jm_graph *g, struct jm_tensor *x, const struct dims *d)
{
	struct jm_tensor *h = norm(g, x, d->hidden, "ln_2");

	h = linear(g, h, d->hidden, d->ffn, false, "mlp.in");
	h = jm_graph_gelu_erf(g, h);
	return linear(g, h, d->ffn, d->hidden, true, "mlp.out");
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

	return jm_graph_tokens(g, x, jm_graph_vector(g, "class", JM_INIT_ZERO, d->hidden),
		jm_graph_table(g, "positions.weight", side * side + 1, d->hidden));
}

static int vit_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct dims d = dims_of(v);
	const int64_t pixels[] = {batch, 3, d.image, d.image};
	struct jm_tensor *image = jm_graph_input(g, "image", g->compute, 4, pixels);
	struct jm_tensor *target = jm_graph_input(g, "target", JM_I32, 1, &batch);
	struct jm_tensor *x = jm_graph_dropout(g, embed(g, &d, image), g->dropout);

	(void)err;
	(void)seq;
	for (int64_t i = 0; i < d.layers; i++) {
		jm_graph_scope(g, "h%lld.", (long long)i);
		x = jm_graph_add(g, x, jm_graph_dropout(g, attention(g, x, &d), g->dropout));
		x = jm_graph_add(g, x, jm_graph_dropout(g, feed_forward(g, x, &d), g->dropout));
	}
	jm_graph_scope(g, "%s", "");
	x = norm(g, jm_graph_first(g, x), d.hidden, "ln_f"); /* the others are read by nobody */
	x = linear(g, x, d.hidden, d.classes, false, "head");
	*ret_loss = jm_graph_softmax_xent(g, x, target);
	return 0;
}

const struct jm_model jm_model_vit = {
	.name = "vit",
	.summary = "vision transformer for images",
	.item = "image",
	.feed = JM_FEED_IMAGES,
	.options = options,
	.presets = presets,
	.complete = vit_complete,
	.default_seq = vit_default_seq,
	.build = vit_build,
};
