/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions in a row without norms, then three linear layers: AlexNet (Krizhevsky, arXiv
 * 1404.5997) and VGG (Simonyan and Zisserman, arXiv 1409.1556) as torchvision has them, with its
 * names of parameters. The first linear layer is a convolution whose window is the whole image,
 * which has the same products and the same order of weights. Start values: He et al., arXiv
 * 1502.01852, by fan-out; linear layers normal, 0.01. torchvision's VGG has these, too, its AlexNet
 * those of PyTorch's layers.
 */
#include "images.h"
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"

#include <stdio.h>

#define LINEAR_STD 0.01
#define DEEP	   8 /* layers of AlexNet */
#define ALEXNET	   "arXiv 1404.5997, pytorch/vision torchvision/models/alexnet.py"
#define VGG	   "arXiv 1409.1556, pytorch/vision torchvision/models/vgg.py"

static const struct jm_option options[] = {
	JM_MODEL_INT(struct jm_images, layers, "layers", 4000,
		"convolutions and linear layers: 8 (AlexNet), 11, 13, 16 or 19 (VGG)"),
	JM_MODEL_INT(struct jm_images, hidden, "hidden", 10000000,
		"channels after the first convolution"),
	JM_MODEL_INT(struct jm_images, ffn, "ffn", 100000000,
		"width of the two linear layers before the last one"),
	JM_IMAGES_OPTIONS,
	{0},
};

#define DIMS(layers) "layers=" layers " hidden=64 ffn=4096 image=224 classes=1000"
static const struct jm_preset presets[] = {
	{"alexnet", "AlexNet", DIMS("8"), 61100840, ALEXNET, "train"},
	{"vgg11", "VGG-11", DIMS("11"), 132863336, VGG, "train"},
	{"vgg13", "VGG-13", DIMS("13"), 133047848, VGG, "train"},
	{"vgg16", "VGG-16", DIMS("16"), 138357544, VGG, "train"},
	{"vgg19", "VGG-19", DIMS("19"), 143667240, VGG, "train"},
	{0},
};

/* A digit is a convolution with so many times `hidden` channels, P a maximum over windows with
 * stride 2. */
static const struct depth {
	int64_t layers;
	const char *parts;
	int pool; /* the window of P */
	int side; /* the linear layers see side x side pixels */
} depths[] = {
	{DEEP, "1P3P644P", 3, 6},
	{11, "1P2P44P88P88P", 2, 7},
	{13, "11P22P44P88P88P", 2, 7},
	{16, "11P22P444P888P888P", 2, 7},
	{19, "11P22P4444P8888P8888P", 2, 7},
};

/* Windows of AlexNet's convolutions; all others are 3 x 3. */
static const struct window {
	int size, stride, pad;
} first_windows[] = {{11, 4, 2}, {5, 1, 2}};

static const struct depth *depth_of(const struct jm_images *dims)
{
	for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++)
		if (depths[i].layers == dims->layers)
			return &depths[i];
	return NULL;
}

static int convnet_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	static const struct jm_images_dim dims[] = {
		{"hidden", 64}, {"ffn", 4096}, {"image", 224}, {"classes", 1000}, {0}};

	(void)seq;
	return jm_images_complete(v, dims, err);
}

static struct window window_of(const struct depth *d, int index)
{
	return d->layers == DEEP && index < 2 ? first_windows[index] : (struct window){3, 1, 1};
}

/* Height of the image behind all convolutions; below 1 = too small. */
static int64_t side_of(const struct depth *d, int64_t image)
{
	int index = 0;

	for (const char *part = d->parts; *part && image > 0; part++) {
		struct window w =
			*part == 'P' ? (struct window){d->pool, 2, 0} : window_of(d, index++);

		image = image + 2 * w.pad < w.size ? 0
						   : (image + 2 * w.pad - w.size) / w.stride + 1;
	}
	return image;
}

static int convnet_default_seq(const struct jm_values *v, int64_t *ret, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	const struct depth *d = depth_of(&dims);
	int64_t side;

	if (!d)
		return jm_err_set(err, JM_ERANGE,
			"There is no AlexNet or VGG of %lld layers; use 8, 11, 13, 16 or 19.",
			(long long)dims.layers);
	side = side_of(d, dims.image);
	if (side < 1 || side % d->side)
		return jm_err_set(err, JM_ERANGE,
			"Of an image of %lld pixels the convolutions leave %lld x %lld, of which "
			"the linear layers need a multiple of %d; give --image 224 or 448.",
			(long long)dims.image, (long long)side, (long long)side, d->side);
	*ret = 1;
	return 0;
}

/* With bias and ReLU. */
static struct jm_tensor *conv(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w,
	const char *name, const struct window *how)
{
	char bias[32];

	if (!w)
		return NULL;
	snprintf(bias, sizeof(bias), "%s.bias", name);
	x = jm_graph_conv(g, x, w, jm_graph_vector(g, bias, JM_INIT_ZERO, w->dim[0]),
		&(struct jm_window){.stride = how->stride, .pad = how->pad});
	return x ? jm_graph_relu(g, x) : NULL;
}

static struct jm_tensor *features(
	struct jm_graph *g, const struct depth *d, int64_t hidden, struct jm_tensor *x)
{
	int index = 0, module = 0;

	for (const char *part = d->parts; *part && x; part++) {
		struct window w = window_of(d, index);
		char name[24], weight[32];

		if (*part == 'P') {
			x = jm_graph_maxpool(g, x, d->pool, &(struct jm_window){.stride = 2});
			module++;
			continue;
		}
		snprintf(name, sizeof(name), "features.%d", module);
		snprintf(weight, sizeof(weight), "%s.weight", name);
		x = conv(g, x,
			jm_graph_filter(g, weight, JM_INIT_HE_NORMAL, (*part - '0') * hidden,
				x->dim[1], w.size, w.size),
			name, &w);
		index++;
		module += 2; /* torchvision numbers the ReLU, too */
	}
	return x;
}

static struct jm_tensor *linear(struct jm_graph *g, struct jm_tensor *x, int64_t to, int number)
{
	char weight[40], bias[40];
	struct jm_tensor *w;

	if (!x)
		return NULL;
	snprintf(weight, sizeof(weight), "classifier.%d.weight", number);
	snprintf(bias, sizeof(bias), "classifier.%d.bias", number);
	w = jm_graph_matrix(g, weight, JM_INIT_NORMAL, to, x->dim[1]);
	if (!w)
		return NULL;
	jm_graph_cell(g, w)->init_std = LINEAR_STD;
	return jm_graph_linear(g, x, w, jm_graph_vector(g, bias, JM_INIT_ZERO, to));
}

/* [B, C, side, side] -> [B, to]; a larger image is first averaged. */
static struct jm_tensor *first_linear(
	struct jm_graph *g, const struct depth *d, int64_t to, int number, struct jm_tensor *x)
{
	char name[24], weight[32];
	struct jm_tensor *w;
	int times;

	if (!x)
		return NULL;
	times = (int)(x->dim[2] / d->side);
	if (times > 1)
		x = jm_graph_avgpool(g, x, times, &(struct jm_window){.stride = times}, true);
	if (d->layers == DEEP && x)
		x = jm_graph_dropout(g, x, g->dropout);
	snprintf(name, sizeof(name), "classifier.%d", number);
	snprintf(weight, sizeof(weight), "%s.weight", name);
	w = x ? jm_graph_filter(g, weight, JM_INIT_NORMAL, to, x->dim[1], d->side, d->side) : NULL;
	if (w)
		jm_graph_cell(g, w)->init_std = LINEAR_STD;
	x = conv(g, x, w, name, &(struct window){d->side, 1, 0});
	return x ? jm_graph_gap(g, x) : NULL;
}

/* VGG's dropouts are behind the first two linear layers, AlexNet's in front of them; torchvision
 * numbers them, too. */
static struct jm_tensor *classify(struct jm_graph *g, const struct depth *d,
	const struct jm_images *dims, struct jm_tensor *x)
{
	int64_t ffn = dims->ffn;
	int first = d->layers == DEEP;

	x = first_linear(g, d, ffn, first, x);
	x = x ? linear(g, jm_graph_dropout(g, x, g->dropout), ffn, first + 3) : NULL;
	x = x ? jm_graph_relu(g, x) : NULL;
	if (!first && x)
		x = jm_graph_dropout(g, x, g->dropout);
	return linear(g, x, dims->classes, 6);
}

static int convnet_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	const struct jm_images dims = jm_images_dims(v);
	const struct depth *d = depth_of(&dims);
	struct jm_tensor *target, *x = jm_images_input(g, batch, dims.image, &target);

	(void)err;
	(void)seq;
	x = classify(g, d, &dims, features(g, d, dims.hidden, x));
	if (x)
		*ret_loss = jm_graph_softmax_xent(g, x, target);
	return 0;
}

static const struct jm_weight_name of_torchvision[] = {
	{.own = "classifier.0.weight", .file = "classifier.0.weight", .flat = true},
	{.own = "classifier.1.weight", .file = "classifier.1.weight", .flat = true},
	{0},
};

static const struct jm_weight_names weights[] = {
	{.of = "torchvision", .name = of_torchvision}, {0}};

const struct jm_model jm_model_convnet = {
	.name = "convnet",
	.summary = "AlexNet or VGG, for images",
	.item = "image",
	.inputs = jm_images_inputs,
	.wants_top1 = true,
	.options = options,
	.presets = presets,
	.weights = weights,
	.top = "classifier.6.*",
	.complete = convnet_complete,
	.default_seq = convnet_default_seq,
	.build = convnet_build,
};
