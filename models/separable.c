/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Xception (Chollet, arXiv 1610.02357) as timm has it: convolutions of each channel alone, each
 * followed by one of 1 x 1, in residual blocks. Names of parameters are timm's. Start values: He et
 * al., arXiv 1502.01852, by fan-out.
 */
#include "images.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"

#include <stdio.h>

#define EPS	 1e-5
#define SMALLEST 32 /* pixels: the product of all strides */
#define QUARTERS 4  /* of `hidden`, in which widths are given */

static const struct jm_option options[] = {
	JM_MODEL_INT(struct jm_images, layers, "layers", 4000,
		"blocks of one width, between those with a stride"),
	JM_MODEL_INT(struct jm_images, hidden, "hidden", 10000000,
		"channels after the first convolution, a multiple of 4; the other widths are in "
		"proportion"),
	JM_IMAGES_OPTIONS,
	{0},
};

static const struct jm_preset presets[] = {
	{"xception", "Xception", "layers=8 hidden=32 image=299 classes=1000", 22855952,
		"arXiv 1610.02357, huggingface/pytorch-image-models timm/models/xception.py",
		"train"},
	{0},
};

/* Widths in quarters of `hidden`. */
struct block {
	int to;	     /* channels of the result */
	int repeats; /* separable convolutions */
	int stride;  /* 2: ends in a maximum over windows of 3 x 3 */
	bool relu;   /* begins with a ReLU */
	bool late;   /* only the last convolution changes the width */
};
static const struct block entry[] = {
	{16, 2, 2, false, false}, {32, 2, 2, true, false}, {91, 2, 2, true, false}};
static const struct block middle = {91, 3, 1, true, false};
static const struct block leaving = {128, 2, 2, true, true};
static const int tail[] = {192, 256};

static int separable_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	static const struct jm_images_dim dims[] = {
		{"hidden", 32}, {"image", 299}, {"classes", 1000}, {0}};

	(void)seq;
	return jm_images_complete(v, dims, err);
}

static int separable_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);

	if (dims.hidden % QUARTERS)
		return jm_err_set(err, JM_ERANGE,
			"The widths of an Xception are in quarters of --hidden; give a multiple of "
			"4 in place of %lld.",
			(long long)dims.hidden);
	if (dims.image < SMALLEST)
		return jm_err_set(err, JM_ERANGE,
			"An image of %lld pixels is too small for the strides of an Xception; give "
			"--image %d or more.",
			(long long)dims.image, SMALLEST);
	*ret = 1;
	return 0;
}

/* A convolution without bias; groups: 1, or the channels of x. */
static struct jm_tensor *conv(struct jm_graph *g, struct jm_tensor *x, int64_t to, int size,
	const struct jm_window *how, const char *name)
{
	char weight[JM_NAME_BYTES];
	int64_t each;

	if (!x)
		return NULL;
	each = x->dim[1] / (how->groups ? how->groups : 1);
	snprintf(weight, sizeof(weight), "%s.weight", name);
	return jm_graph_conv(g, x,
		jm_graph_filter(g, weight, JM_INIT_HE_NORMAL, to, each, size, size), NULL, how);
}

/* Windows of 3 x 3 over each channel, then all channels of a pixel. */
static struct jm_tensor *separable(
	struct jm_graph *g, struct jm_tensor *x, int64_t to, const char *name)
{
	char part[40];

	if (!x)
		return NULL;
	snprintf(part, sizeof(part), "%s.conv1", name);
	x = conv(g, x, x->dim[1], 3, &(struct jm_window){.pad = 1, .groups = (int)x->dim[1]}, part);
	snprintf(part, sizeof(part), "%s.pointwise", name);
	return conv(g, x, to, 1, &(struct jm_window){0}, part);
}

/* `--zero-gamma` is for the norm behind the last convolution, not for that of the shortcut. */
static void mark_end(struct jm_graph *g, struct jm_tensor *norm, struct jm_tensor *shortcut)
{
	if (!norm || !shortcut)
		return;
	jm_graph_cell(g, jm_graph_cell(g, shortcut)->producer->in[3])->ends_block = false;
	jm_graph_ends_block(g, jm_graph_cell(g, norm)->producer->in[3]);
}

/* The sum of x, behind a convolution with a norm, and of the maxima of y. */
static struct jm_tensor *join(struct jm_graph *g, const struct block *b, struct jm_tensor *x,
	struct jm_tensor *y, int64_t to)
{
	const struct jm_window how = {.stride = b->stride, .pad = 1};
	struct jm_tensor *most = y ? jm_graph_maxpool(g, y, 3, &how) : NULL, *sum;

	x = conv(g, x, to, 1, &(struct jm_window){.stride = b->stride}, "skip");
	if (!x || !most)
		return NULL;
	sum = jm_graph_batchnorm(g, x, most, false, EPS, "skipbn");
	mark_end(g, y, sum);
	return sum;
}

/* A norm takes the ReLU behind it; without a stride the last one adds the shortcut. */
static struct jm_tensor *block(
	struct jm_graph *g, struct jm_tensor *x, const struct block *b, int64_t quarter)
{
	struct jm_tensor *y = x && b->relu ? jm_graph_relu(g, x) : x;

	for (int i = 0; i < b->repeats && y; i++) {
		bool last = i == b->repeats - 1;
		int at = 3 * i + b->relu; /* timm numbers the ReLU, too */
		char name[24];

		snprintf(name, sizeof(name), "rep.%d", at);
		y = separable(g, y, b->late && !last ? y->dim[1] : b->to * quarter, name);
		if (!y)
			return NULL;
		snprintf(name, sizeof(name), "rep.%d", at + 1);
		y = jm_graph_batchnorm(g, y, last && b->stride == 1 ? x : NULL, !last, EPS, name);
	}
	return b->stride == 1 ? y : join(g, b, x, y, b->to * quarter);
}

static struct jm_tensor *blocks(
	struct jm_graph *g, struct jm_tensor *x, int64_t layers, int64_t quarter)
{
	const int n = (int)(sizeof(entry) / sizeof(*entry));

	for (int i = 0; i < n + layers + 1; i++) {
		jm_graph_scope(g, "block%d.", i + 1);
		x = block(g, x, i < n ? &entry[i] : i < n + layers ? &middle : &leaving, quarter);
	}
	jm_graph_scope(g, "%s", "");
	return x;
}

static struct jm_tensor *normed(struct jm_graph *g, struct jm_tensor *x, const char *name)
{
	return x ? jm_graph_batchnorm(g, x, NULL, true, EPS, name) : NULL;
}

/* [B, 3, Y, X] -> [B, 64 hidden] */
static struct jm_tensor *network(
	struct jm_graph *g, struct jm_tensor *x, int64_t hidden, int64_t layers)
{
	x = conv(g, x, hidden, 3, &(struct jm_window){.stride = 2}, "conv1");
	x = normed(g, x, "bn1");
	x = conv(g, x, 2 * hidden, 3, &(struct jm_window){0}, "conv2");
	x = blocks(g, normed(g, x, "bn2"), layers, hidden / QUARTERS);
	x = normed(g, separable(g, x, tail[0] * hidden / QUARTERS, "conv3"), "bn3");
	x = normed(g, separable(g, x, tail[1] * hidden / QUARTERS, "conv4"), "bn4");
	return x ? jm_graph_gap(g, x) : NULL;
}

static int separable_build(struct jm_graph *g, const struct jm_values *v, int64_t batch,
	int64_t seq, struct jm_tensor **ret_loss, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	struct jm_tensor *target, *x = jm_images_input(g, batch, dims.image, &target);

	(void)err;
	(void)seq;
	x = network(g, x, dims.hidden, dims.layers);
	*ret_loss = jm_images_classify(g, x, dims.classes, target);
	return 0;
}

/* timm's are those of the graph. */
static const struct jm_weight_names weights[] = {{.of = "timm"}, {0}};

const struct jm_model jm_model_separable = {
	.name = "separable",
	.summary = "Xception: separable convolutions in residual blocks, for images",
	.item = "image",
	.inputs = jm_images_inputs,
	.wants_top1 = true,
	.options = options,
	.presets = presets,
	.weights = weights,
	.top = "fc.*",
	.complete = separable_complete,
	.default_seq = separable_default_seq,
	.build = separable_build,
};
