/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the cuDNN graph of each pattern by one function. */
#include "dnn_conv.h"

#include <string.h>

#define F32 CUDNN_DATA_FLOAT

const char *const dnn_pattern_names[] = {
#define X(name, text) text,
	DNN_PATTERNS(X)
#undef X
};

/* ---- parts ----------------------------------------------------------------------------------- */

/* max(0, scale x + shift) for each channel, between x and the convolution. */
static int64_t prologue(
	struct dnn_graph *g, const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	int64_t scaled = dnn_image(g, DNN_VIRTUAL, s->type, s->x);
	int64_t shifted = dnn_image(g, DNN_VIRTUAL, s->type, s->x);
	int64_t cut = dnn_image(g, DNN_VIRTUAL, s->type, s->x);

	ids->scale = dnn_channels(g, DNN_REAL, s->type, s->x[1]);
	ids->shift = dnn_channels(g, DNN_REAL, s->type, s->x[1]);
	dnn_pointwise(g, CUDNN_POINTWISE_MUL, F32, -1, ids->x, ids->scale, 0, scaled);
	dnn_pointwise(g, CUDNN_POINTWISE_ADD, F32, -1, scaled, ids->shift, 0, shifted);
	dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, F32, -1, shifted, 0, 0, cut);
	return cut;
}

static void statistics(
	struct dnn_graph *g, const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	ids->sum = dnn_channels(g, DNN_REAL, F32, s->y[1]);
	ids->squares = dnn_channels(g, DNN_REAL, F32, s->y[1]);
	dnn_stats(g, ids->y, ids->sum, ids->squares);
}

static void forward(struct dnn_graph *g, enum dnn_pattern pattern, const struct dnn_conv_shape *s,
	struct dnn_conv_ids *ids)
{
	int64_t x;

	ids->x = x = dnn_image(g, DNN_REAL, s->type, s->x);
	ids->w = dnn_image(g, DNN_REAL, s->type, s->w);
	ids->y = dnn_image(g, DNN_REAL, s->type, s->y);
	if (pattern == DNN_PATTERN_NORM_CONV_STATS)
		x = prologue(g, s, ids);
	dnn_conv(g, DNN_CONV, &s->window, s->add, x, ids->w, ids->y);
	if (pattern != DNN_PATTERN_CONV)
		statistics(g, s, ids);
}

/* The sums have no memory of their own, and are rounded once, behind the bias or the ReLU. An image
 * is added before the bias: cuDNN has no engine for the other order. */
static void forward_bias(struct dnn_graph *g, enum dnn_pattern pattern,
	const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	const bool relu = pattern == DNN_PATTERN_CONV_RELU;
	int64_t sums = dnn_image(g, DNN_VIRTUAL, F32, s->y), at = sums;
	int64_t moved = relu ? dnn_image(g, DNN_VIRTUAL, F32, s->y) : 0;

	ids->x = dnn_image(g, DNN_REAL, s->type, s->x);
	ids->w = dnn_image(g, DNN_REAL, s->type, s->w);
	ids->y = dnn_image(g, DNN_REAL, s->type, s->y);
	ids->bias = dnn_channels(g, DNN_REAL, s->type, s->y[1]);
	dnn_conv(g, DNN_CONV, &s->window, false, ids->x, ids->w, sums);
	if (pattern == DNN_PATTERN_CONV_ADD) {
		ids->image = dnn_image(g, DNN_REAL, s->type, s->y);
		at = dnn_image(g, DNN_VIRTUAL, F32, s->y);
		dnn_pointwise(g, CUDNN_POINTWISE_ADD, F32, -1, sums, ids->image, 0, at);
	}
	dnn_pointwise(g, CUDNN_POINTWISE_ADD, F32, -1, at, ids->bias, 0, relu ? moved : ids->y);
	if (relu)
		dnn_pointwise(g, CUDNN_POINTWISE_RELU_FWD, F32, -1, moved, 0, 0, ids->y);
}

/* The result of the norm before the convolution, recomputed from its input:
 * (image - mean) rstd gamma + beta. */
static int64_t normed(struct dnn_graph *g, const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	struct dnn_norm_grad *n = &ids->norm;
	int64_t *const of[] = {&n->mean, &n->rstd, &n->gamma, &ids->beta};
	static const cudnnPointwiseMode_t modes[] = {
		CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_ADD};
	int64_t at = ids->image;

	for (int i = 0; i < 4; i++) {
		int64_t next = dnn_image(g, DNN_VIRTUAL, F32, s->x);

		*of[i] = dnn_channels(g, DNN_REAL, F32, s->x[1]);
		dnn_pointwise(g, modes[i], F32, -1, at, *of[i], 0, next);
		at = next;
	}
	return at;
}

static void norm_sums(struct dnn_graph *g, const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	struct dnn_norm_grad *n = &ids->norm;
	int64_t *const results[] = {&n->dgamma, &n->dbeta, &n->dy_scale, &n->x_scale, &n->shift};

	for (int i = 0; i < 5; i++)
		*results[i] = dnn_channels(g, DNN_REAL, F32, s->x[1]);
	n->x = ids->image;
	dnn_norm_grad(g, n);
}

static void data_gradient(struct dnn_graph *g, enum dnn_pattern pattern,
	const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	bool alone = pattern == DNN_PATTERN_DGRAD;
	int64_t dx = dnn_image(g, alone ? DNN_REAL : DNN_VIRTUAL, alone ? s->type : F32, s->x);

	ids->w = dnn_image(g, DNN_REAL, s->type, s->w);
	ids->y = dnn_image(g, DNN_REAL, s->type, s->y);
	dnn_conv(g, DNN_DGRAD, &s->window, s->add, dx, ids->w, ids->y);
	ids->x = dx;
	if (alone)
		return;
	ids->x = ids->norm.dy = dnn_image(g, DNN_REAL, s->type, s->x);
	ids->image = dnn_image(g, DNN_REAL, s->type, s->x);
	dnn_pointwise(g, CUDNN_POINTWISE_RELU_BWD, F32, -1, dx,
		pattern == DNN_PATTERN_DGRAD_NORM ? normed(g, s, ids) : ids->image, 0, ids->x);
	if (pattern == DNN_PATTERN_DGRAD_NORM)
		norm_sums(g, s, ids);
}

static void filter_gradient(struct dnn_graph *g, enum dnn_pattern pattern,
	const struct dnn_conv_shape *s, struct dnn_conv_ids *ids)
{
	int64_t x;

	ids->x = x = dnn_image(g, DNN_REAL, s->type, s->x);
	ids->y = dnn_image(g, DNN_REAL, s->type, s->y);
	ids->w = dnn_image(g, DNN_REAL, pattern == DNN_PATTERN_WGRAD_F32 ? F32 : s->type, s->w);
	if (pattern == DNN_PATTERN_NORM_WGRAD)
		x = prologue(g, s, ids);
	dnn_conv(g, DNN_WGRAD, &s->window, false, x, ids->w, ids->y);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void (*const makers[])(struct dnn_graph *, enum dnn_pattern, const struct dnn_conv_shape *,
	struct dnn_conv_ids *) = {
	[DNN_PATTERN_CONV] = forward,
	[DNN_PATTERN_CONV_STATS] = forward,
	[DNN_PATTERN_NORM_CONV_STATS] = forward,
	[DNN_PATTERN_DGRAD] = data_gradient,
	[DNN_PATTERN_DGRAD_RELU] = data_gradient,
	[DNN_PATTERN_DGRAD_NORM] = data_gradient,
	[DNN_PATTERN_WGRAD] = filter_gradient,
	[DNN_PATTERN_WGRAD_F32] = filter_gradient,
	[DNN_PATTERN_NORM_WGRAD] = filter_gradient,
	[DNN_PATTERN_CONV_RELU] = forward_bias,
	[DNN_PATTERN_CONV_BIAS] = forward_bias,
	[DNN_PATTERN_CONV_ADD] = forward_bias,
};

struct dnn_graph *dnn_conv_graph(const struct cuda_dnn *d, enum dnn_pattern pattern,
	const struct dnn_conv_shape *shape, struct dnn_conv_ids *ret)
{
	struct dnn_graph *g = dnn_graph_new(d);

	*ret = (struct dnn_conv_ids){0};
	if (g)
		makers[pattern](g, pattern, shape, ret);
	return g;
}
