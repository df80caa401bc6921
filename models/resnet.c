/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Residual networks (He et al., arXiv 1512.03385) as torchvision has them: "v1.5", where the stride
 * of a bottleneck is in its 3 x 3 convolution. Names of parameters are torchvision's.
 * Start values too: He et al., arXiv 1502.01852, by fan-out.
 */
#include "images.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"

#include <stdio.h>
#include <string.h>

#define EPS	       1e-5
#define STAGES	       4
#define SMALLEST       32 /* pixels: the product of all strides */
#define SMALLEST_CIFAR 8

#define PAPER "arXiv 1512.03385, pytorch/vision torchvision/models/resnet.py"

static const char *const stems[] = {"imagenet", "cifar", NULL};

/* What other networks for images do not have. */
struct own {
	enum { IMAGENET, CIFAR } stem; /* in the order of stems */
};

static const struct jm_option options[] = {
	JM_MODEL_INT(struct jm_images, layers, "layers", 4000,
		"convolutions on the longest path, and the last layer: 18, 34, 50, 101 or 152, and "
		"10 or 14 for tests"),
	JM_MODEL_INT(struct jm_images, hidden, "hidden", 10000000,
		"channels after the first convolution"),
	JM_IMAGES_OPTIONS,
	{.name = "stem",
		JM_BIND(JM_CHOICE, struct own, stem),
		.choices = stems,
		.help = "imagenet (7 x 7 with stride 2, then a maximum) or cifar (3 x 3 with "
			"stride 1, "
			"for images of 32 pixels)"},
	{0},
};

#define DIMS(layers) "layers=" layers " hidden=64 image=224 classes=1000"
static const struct jm_preset presets[] = {
	{"resnet18", "ResNet-18", DIMS("18"), 11689512, PAPER, "train"},
	{"resnet34", "ResNet-34", DIMS("34"), 21797672, PAPER, "train"},
	{"resnet50", "ResNet-50 v1.5", DIMS("50"), 25557032, PAPER, "train"},
	{"resnet101", "ResNet-101 v1.5", DIMS("101"), 44549160, PAPER, "train"},
	{"resnet152", "ResNet-152 v1.5", DIMS("152"), 60192808, PAPER, "train"},
	{0},
};

/* Blocks of each stage by the number of layers. The two smallest are for tests. */
static const struct depth {
	int64_t layers;
	int widen; /* 4: bottlenecks, whose results are four times as wide; 1: basic blocks */
	int blocks[STAGES];
} depths[] = {
	{10, 1, {1, 1, 1, 1}},
	{14, 4, {1, 1, 1, 1}},
	{18, 1, {2, 2, 2, 2}},
	{34, 1, {3, 4, 6, 3}},
	{50, 4, {3, 4, 6, 3}},
	{101, 4, {3, 4, 23, 3}},
	{152, 4, {3, 8, 36, 3}},
};

static const struct depth *depth_of(const struct jm_images *dims)
{
	for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++)
		if (depths[i].layers == dims->layers)
			return &depths[i];
	return NULL;
}

static int resnet_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	static const struct jm_images_dim dims[] = {
		{"hidden", 64}, {"image", 224}, {"classes", 1000}, {0}};
	int code = jm_images_complete(v, dims, err);

	(void)seq;
	return code || jm_values_text(v, "stem") ? code : jm_values_set(v, "stem", stems[0], err);
}

static bool is_cifar(const struct jm_values *v)
{
	struct own own = {0};

	JM_FILL(v, &own);
	return own.stem == CIFAR;
}

static int resnet_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	int smallest = is_cifar(v) ? SMALLEST_CIFAR : SMALLEST;

	if (!depth_of(&dims))
		return jm_err_set(err, JM_ERANGE,
			"There is no ResNet of %lld layers; use 10, 14, 18, 34, 50, 101 or 152.",
			(long long)dims.layers);
	if (dims.image < smallest)
		return jm_err_set(err, JM_ERANGE,
			"An image of %lld pixels is too small for the strides of a ResNet; give "
			"--image %d or more.",
			(long long)dims.image, smallest);
	*ret = 1;
	return 0;
}

/* A convolution without bias. */
static struct jm_tensor *conv(
	struct jm_graph *g, struct jm_tensor *x, int64_t to, int size, int stride, const char *name)
{
	char weight[JM_NAME_BYTES];

	if (!x)
		return NULL;
	snprintf(weight, sizeof(weight), "%s.weight", name);
	return jm_graph_conv(g, x,
		jm_graph_filter(g, weight, JM_INIT_HE_NORMAL, to, x->dim[1], size, size), NULL,
		&(struct jm_window){.stride = stride, .pad = size / 2});
}

static struct jm_tensor *basic(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *shortcut,
	int64_t width, int stride)
{
	struct jm_tensor *y = conv(g, x, width, 3, stride, "conv1");

	y = jm_graph_batchnorm(g, y, NULL, true, EPS, "bn1");
	y = conv(g, y, width, 3, 1, "conv2");
	return jm_graph_batchnorm(g, y, shortcut, true, EPS, "bn2");
}

static struct jm_tensor *bottleneck(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *shortcut, int64_t width, int stride)
{
	struct jm_tensor *y = conv(g, x, width, 1, 1, "conv1");

	y = jm_graph_batchnorm(g, y, NULL, true, EPS, "bn1");
	y = conv(g, y, width, 3, stride, "conv2");
	y = jm_graph_batchnorm(g, y, NULL, true, EPS, "bn2");
	y = conv(g, y, 4 * width, 1, 1, "conv3");
	return jm_graph_batchnorm(g, y, shortcut, true, EPS, "bn3");
}

static struct jm_tensor *block(
	struct jm_graph *g, struct jm_tensor *x, int widen, int64_t width, int stride)
{
	struct jm_tensor *shortcut = x;

	if (!x)
		return NULL;
	if (stride > 1 || x->dim[1] != width * widen) {
		shortcut = conv(g, x, width * widen, 1, stride, "downsample.0");
		shortcut = jm_graph_batchnorm(g, shortcut, NULL, false, EPS, "downsample.1");
	}
	return widen > 1 ? bottleneck(g, x, shortcut, width, stride)
			 : basic(g, x, shortcut, width, stride);
}

static struct jm_tensor *network(struct jm_graph *g, const struct depth *depth, int64_t width,
	bool cifar, struct jm_tensor *image)
{
	struct jm_tensor *x = conv(g, image, width, cifar ? 3 : 7, cifar ? 1 : 2, "conv1");

	x = jm_graph_batchnorm(g, x, NULL, true, EPS, "bn1");
	if (!cifar)
		x = jm_graph_maxpool(g, x, 3, &(struct jm_window){.stride = 2, .pad = 1});
	for (int s = 0; s < STAGES; s++)
		for (int b = 0; b < depth->blocks[s]; b++) {
			jm_graph_scope(g, "layer%d.%d.", s + 1, b);
			x = block(g, x, depth->widen, width << s, s && !b ? 2 : 1);
		}
	jm_graph_scope(g, "%s", "");
	return jm_graph_gap(g, x);
}

static int resnet_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	struct jm_tensor *target, *x = jm_images_input(g, batch, dims.image, &target);

	(void)err;
	(void)seq;
	x = network(g, depth_of(&dims), dims.hidden, is_cifar(v), x);
	*ret_loss = jm_images_classify(g, x, dims.classes, target);
	return 0;
}

/* torchvision's are those of the graph. */
static const struct jm_weight_names weights[] = {{.of = "torchvision"}, {0}};

const struct jm_model jm_model_resnet = {
	.name = "resnet",
	.summary = "residual network for images",
	.item = "image",
	.inputs = jm_images_inputs,
	.wants_top1 = true,
	.options = options,
	.presets = presets,
	.weights = weights,
	.top = "fc.*",
	.complete = resnet_complete,
	.default_seq = resnet_default_seq,
	.build = resnet_build,
};
