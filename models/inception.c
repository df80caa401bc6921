/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inception v3 (Szegedy et al., arXiv 1512.00567) as torchvision has it, with its names of
 * parameters: blocks of branches whose results are put side by side, and a second classifier in the
 * middle of the network, whose loss is added in training. Start values: normal, 0.1, cut at two
 * standard deviations as in the authors' code; torchvision cuts at 2.
 */
#include "images.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"

#include <stdio.h>
#include <string.h>

#define EPS		1e-3
#define STD		0.1
#define STD_AUXILIARY	0.001 /* of the second classifier's linear layer */
#define SMALLEST	75    /* pixels: of which the last block has one */
#define SMALLEST_MIDDLE 17    /* pixels in the middle, of which the second classifier has one */
#define MIDDLE		"Mixed_6e"
#define AUXILIARY	"0.4"

/* What other networks for images do not have. */
struct own {
	double auxiliary;
};

static const struct jm_option options[] = {
	JM_MODEL_INT(struct jm_images, hidden, "hidden", 10000000,
		"channels after the first convolution, an even number; the other widths are in "
		"proportion"),
	JM_IMAGES_OPTIONS,
	JM_MODEL_REAL(struct own, auxiliary, "auxiliary", 0, 100,
		"factor of the loss of the classifier in the middle; 0 = the network has none"),
	{0},
};

static const struct jm_preset presets[] = {
	{"inception3", "Inception v3", "hidden=32 image=299 classes=1000 auxiliary=" AUXILIARY,
		27161264, "arXiv 1512.00567, pytorch/vision torchvision/models/inception.py",
		"train"},
	{0},
};

/* SAME: the result has the size of the image. INSIDE: windows lie inside the image. HALVES: so,
 * with stride 2. */
enum fit { SAME, INSIDE, HALVES };

/* A convolution with a norm and ReLU. */
struct layer {
	const char *name; /* NULL ends a list */
	int rows, columns;
	int to; /* halves of `hidden`; 0: the width of the block */
	enum fit fit;
};

/* A pooling, then layers, after a mean one of 1 x 1. fork: the last two read the same image, and
 * their results are put side by side. */
struct branch {
	enum { NO_POOL, MEAN, MOST } pool;
	bool fork;
	struct layer layer[6];
};

static const struct jm_window halved = {.stride = 2}; /* the image of a max pooling */

#define BRANCHES 4 /* of a block; the last ones may be empty */

static const struct layer stem[] = {{"Conv2d_1a_3x3", 3, 3, 2, HALVES},
	{"Conv2d_2a_3x3", 3, 3, 2, INSIDE}, {"Conv2d_2b_3x3", 3, 3, 4, SAME}, {0}};
static const struct layer after_stem[] = {
	{"Conv2d_3b_1x1", 1, 1, 5, SAME}, {"Conv2d_4a_3x3", 3, 3, 12, INSIDE}, {0}};

static const struct branch of_5[BRANCHES] = {
	{.layer = {{"branch1x1", 1, 1, 4, SAME}}},
	{.layer = {{"branch5x5_1", 1, 1, 3, SAME}, {"branch5x5_2", 5, 5, 4, SAME}}},
	{.layer = {{"branch3x3dbl_1", 1, 1, 4, SAME}, {"branch3x3dbl_2", 3, 3, 6, SAME},
		 {"branch3x3dbl_3", 3, 3, 6, SAME}}},
	{.pool = MEAN, .layer = {{"branch_pool", 1, 1, 0, SAME}}},
};
static const struct branch to_6[BRANCHES] = {
	{.layer = {{"branch3x3", 3, 3, 24, HALVES}}},
	{.layer = {{"branch3x3dbl_1", 1, 1, 4, SAME}, {"branch3x3dbl_2", 3, 3, 6, SAME},
		 {"branch3x3dbl_3", 3, 3, 6, HALVES}}},
	{.pool = MOST},
};
static const struct branch of_6[BRANCHES] = {
	{.layer = {{"branch1x1", 1, 1, 12, SAME}}},
	{.layer = {{"branch7x7_1", 1, 1, 0, SAME}, {"branch7x7_2", 1, 7, 0, SAME},
		 {"branch7x7_3", 7, 1, 12, SAME}}},
	{.layer = {{"branch7x7dbl_1", 1, 1, 0, SAME}, {"branch7x7dbl_2", 7, 1, 0, SAME},
		 {"branch7x7dbl_3", 1, 7, 0, SAME}, {"branch7x7dbl_4", 7, 1, 0, SAME},
		 {"branch7x7dbl_5", 1, 7, 12, SAME}}},
	{.pool = MEAN, .layer = {{"branch_pool", 1, 1, 12, SAME}}},
};
static const struct branch to_7[BRANCHES] = {
	{.layer = {{"branch3x3_1", 1, 1, 12, SAME}, {"branch3x3_2", 3, 3, 20, HALVES}}},
	{.layer = {{"branch7x7x3_1", 1, 1, 12, SAME}, {"branch7x7x3_2", 1, 7, 12, SAME},
		 {"branch7x7x3_3", 7, 1, 12, SAME}, {"branch7x7x3_4", 3, 3, 12, HALVES}}},
	{.pool = MOST},
};
static const struct branch of_7[BRANCHES] = {
	{.layer = {{"branch1x1", 1, 1, 20, SAME}}},
	{.fork = true,
		.layer = {{"branch3x3_1", 1, 1, 24, SAME}, {"branch3x3_2a", 1, 3, 24, SAME},
			{"branch3x3_2b", 3, 1, 24, SAME}}},
	{.fork = true,
		.layer = {{"branch3x3dbl_1", 1, 1, 28, SAME}, {"branch3x3dbl_2", 3, 3, 24, SAME},
			{"branch3x3dbl_3a", 1, 3, 24, SAME}, {"branch3x3dbl_3b", 3, 1, 24, SAME}}},
	{.pool = MEAN, .layer = {{"branch_pool", 1, 1, 12, SAME}}},
};

static const struct block {
	const char *name;
	const struct branch *branch;
	int width; /* halves of `hidden` */
} blocks[] = {
	{"Mixed_5b", of_5, 2},
	{"Mixed_5c", of_5, 4},
	{"Mixed_5d", of_5, 4}, /* 35 x 35 */
	{"Mixed_6a", to_6, 0},
	{"Mixed_6b", of_6, 8},
	{"Mixed_6c", of_6, 10}, /* 17 x 17 */
	{"Mixed_6d", of_6, 10},
	{MIDDLE, of_6, 12},
	{"Mixed_7a", to_7, 0}, /* 8 x 8 */
	{"Mixed_7b", of_7, 0},
	{"Mixed_7c", of_7, 0},
	{0},
};

static int inception_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	static const struct jm_images_dim dims[] = {{"image", 299}, {"classes", 1000}, {0}};
	int code;

	(void)seq;
	code = jm_values_text(v, "auxiliary") ? 0 : jm_values_set(v, "auxiliary", AUXILIARY, err);
	return code ? code : jm_images_complete(v, dims, err);
}

static double auxiliary(const struct jm_values *v)
{
	struct own own = {0};

	JM_FILL(v, &own);
	return own.auxiliary;
}

/* Height of the image in the middle. */
static int64_t middle_of(int64_t image)
{
	image = (image - 1) / 2 - 2; /* HALVES, INSIDE */
	image = (image - 1) / 2 - 2; /* a pooling, INSIDE */
	image = (image - 1) / 2;
	return (image - 1) / 2;
}

static int inception_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	int64_t image = dims.image;

	if (dims.hidden % 2)
		return jm_err_set(err, JM_ERANGE,
			"The widths of an Inception are in halves of --hidden; give an even number "
			"in place of %lld.",
			(long long)dims.hidden);
	if (image < SMALLEST)
		return jm_err_set(err, JM_ERANGE,
			"An image of %lld pixels is too small for the strides of an Inception; "
			"give --image %d or more.",
			(long long)image, SMALLEST);
	if (auxiliary(v) > 0 && middle_of(image) < SMALLEST_MIDDLE)
		return jm_err_set(err, JM_ERANGE,
			"An image of %lld pixels is too small for the classifier in the middle of "
			"the network; give --image 299 or --auxiliary 0.",
			(long long)image);
	*ret = 1;
	return 0;
}

static struct jm_tensor *cut(struct jm_graph *g, struct jm_tensor *weight, double std)
{
	if (weight)
		jm_graph_cell(g, weight)->init_std = std;
	return weight;
}

static struct jm_tensor *convolve(
	struct jm_graph *g, struct jm_tensor *x, const struct layer *l, int64_t to)
{
	char weight[40];
	struct jm_tensor *w;

	if (!x)
		return NULL;
	snprintf(weight, sizeof(weight), "%s.conv.weight", l->name);
	w = cut(g,
		jm_graph_filter(
			g, weight, JM_INIT_TRUNC_NORMAL, to, x->dim[1], l->rows, l->columns),
		STD);
	return w ? jm_graph_conv(g, x, w, NULL,
			   &(struct jm_window){
				   .stride = l->fit == HALVES ? 2 : 1, .same = l->fit == SAME})
		 : NULL;
}

/* The norm and ReLU of the layer. */
static struct jm_tensor *finish(struct jm_graph *g, struct jm_tensor *x, const struct layer *l)
{
	char norm[40];

	snprintf(norm, sizeof(norm), "%s.bn", l->name);
	return x ? jm_graph_batchnorm(g, x, NULL, true, EPS, norm) : NULL;
}

static struct jm_tensor *apply(
	struct jm_graph *g, struct jm_tensor *x, const struct layer *l, int width, int64_t half)
{
	return finish(g, convolve(g, x, l, (l->to ? l->to : width) * half), l);
}

/*
 * A mean of 3 x 3 pixels, then a layer of 1 x 1. Its convolution, which has no bias, comes first
 * and leaves fewer channels: the results are the same, since both are linear and the zeros around
 * the image count in the mean.
 */
static struct jm_tensor *apply_to_mean(
	struct jm_graph *g, struct jm_tensor *x, const struct layer *l, int width, int64_t half)
{
	x = convolve(g, x, l, (l->to ? l->to : width) * half);
	if (x)
		x = jm_graph_avgpool(g, x, 3, &(struct jm_window){.stride = 1, .pad = 1}, true);
	return finish(g, x, l);
}

static struct jm_tensor *apply_all(
	struct jm_graph *g, struct jm_tensor *x, const struct layer *l, int64_t half)
{
	for (; l->name; l++)
		x = apply(g, x, l, 0, half);
	return x;
}

static struct jm_tensor *branch(
	struct jm_graph *g, struct jm_tensor *x, const struct branch *b, int width, int64_t half)
{
	const struct layer *l = b->layer;

	if (b->pool == MEAN)
		return apply_to_mean(g, x, l, width, half);
	if (b->pool == MOST)
		x = jm_graph_maxpool(g, x, 3, &halved);
	for (; l->name && !(b->fork && !l[2].name); l++)
		x = apply(g, x, l, width, half);
	if (!b->fork)
		return x;
	return jm_graph_concat(g, 2,
		(struct jm_tensor *[]){
			apply(g, x, l, width, half), apply(g, x, l + 1, width, half)},
		1);
}

static struct jm_tensor *block(
	struct jm_graph *g, struct jm_tensor *x, const struct block *b, int64_t half)
{
	struct jm_tensor *part[BRANCHES];
	int n = 0;

	if (!x)
		return NULL;
	jm_graph_scope(g, "%s.", b->name);
	for (; n < BRANCHES && (b->branch[n].pool || b->branch[n].layer[0].name); n++)
		part[n] = branch(g, x, &b->branch[n], b->width, half);
	x = jm_graph_concat(g, n, part, 1);
	jm_graph_scope(g, "%s", "");
	return x;
}

/* [B, C] -> [B, classes] */
static struct jm_tensor *classify(
	struct jm_graph *g, struct jm_tensor *x, int64_t classes, double std)
{
	struct jm_tensor *w =
		x ? jm_graph_matrix(g, "fc.weight", JM_INIT_TRUNC_NORMAL, classes, x->dim[1])
		  : NULL;

	if (!w)
		return NULL;
	return jm_graph_linear(
		g, x, cut(g, w, std), jm_graph_vector(g, "fc.bias", JM_INIT_ZERO, classes));
}

/* The logits of the classifier in the middle. */
static struct jm_tensor *second(
	struct jm_graph *g, struct jm_tensor *x, int64_t classes, int64_t half)
{
	static const struct layer layers[] = {
		{"conv0", 1, 1, 8, SAME}, {"conv1", 5, 5, 48, INSIDE}, {0}};

	if (!x)
		return NULL;
	jm_graph_scope(g, "%s", "AuxLogits.");
	x = apply_all(
		g, jm_graph_avgpool(g, x, 5, &(struct jm_window){.stride = 3}, true), layers, half);
	x = classify(g, x ? jm_graph_gap(g, x) : NULL, classes, STD_AUXILIARY);
	jm_graph_scope(g, "%s", "");
	return x;
}

static int inception_build(struct jm_graph *g, const struct jm_values *v, int64_t batch,
	int64_t seq, struct jm_tensor **ret_loss, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	const int64_t half = dims.hidden / 2, classes = dims.classes;
	struct jm_tensor *target, *x = jm_images_input(g, batch, dims.image, &target);
	struct jm_tensor *middle = NULL;

	(void)err;
	(void)seq;
	x = apply_all(g, x, stem, half);
	x = x ? apply_all(g, jm_graph_maxpool(g, x, 3, &halved), after_stem, half) : NULL;
	x = x ? jm_graph_maxpool(g, x, 3, &halved) : NULL;
	for (const struct block *b = blocks; b->name; b++) {
		x = block(g, x, b, half);
		if (!strcmp(b->name, MIDDLE) && auxiliary(v) > 0 && !g->evaluate)
			middle = second(g, x, classes, half);
	}
	x = x ? jm_graph_dropout(g, jm_graph_gap(g, x), g->dropout) : NULL;
	x = classify(g, x, classes, STD);
	if (!x)
		return 0;
	*ret_loss = jm_graph_softmax_xent(g, x, target);
	if (middle)
		*ret_loss = jm_graph_softmax_xent_add(g, *ret_loss, auxiliary(v), middle, target);
	return 0;
}

/* torchvision's are those of the graph. */
static const struct jm_weight_names weights[] = {{.of = "torchvision"}, {0}};

const struct jm_model jm_model_inception = {
	.name = "inception",
	.summary = "Inception v3: branches of windows of several sizes, for images",
	.item = "image",
	.inputs = jm_images_inputs,
	.wants_top1 = true,
	.options = options,
	.presets = presets,
	.weights = weights,
	.top = "*fc.*",
	.least_batch = 2, /* the auxiliary head norms one pixel of an image */
	.complete = inception_complete,
	.default_seq = inception_default_seq,
	.build = inception_build,
};
