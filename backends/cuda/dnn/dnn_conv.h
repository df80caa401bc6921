/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, and the ops that can be fused with them, as graphs for cuDNN. */
#ifndef JM_CUDA_DNN_CONV_H
#define JM_CUDA_DNN_CONV_H

#include <string.h>

#include "dnn_graph.h"

/* [B,C,Y,X], [K,C/g,R,S], [B,K,P,Q]: all with channels last. */
struct dnn_conv_shape {
	int64_t x[4], w[4], y[4];
	struct dnn_window window;
	cudnnDataType_t type; /* of images and filters */
	bool add;	      /* true: the result is added to y, or to x for conv-dgrad */
};

static inline bool dnn_conv_shape_equal(
	const struct dnn_conv_shape *a, const struct dnn_conv_shape *b)
{
	return !memcmp(a->x, b->x, sizeof a->x) && !memcmp(a->w, b->w, sizeof a->w) &&
	       !memcmp(a->y, b->y, sizeof a->y) &&
	       !memcmp(a->window.stride, b->window.stride, sizeof a->window.stride) &&
	       !memcmp(a->window.pad, b->window.pad, sizeof a->window.pad) &&
	       !memcmp(a->window.more, b->window.more, sizeof a->window.more) &&
	       !memcmp(a->window.dilation, b->window.dilation, sizeof a->window.dilation) &&
	       a->type == b->type && a->add == b->add;
}

#define DNN_PATTERNS(X)                                                                            \
	X(CONV, "conv")                                                                            \
	X(CONV_STATS, "conv + statistics")                                                         \
	X(NORM_CONV_STATS, "scale, shift, ReLU + conv + statistics")                               \
	X(DGRAD, "conv-dgrad")                                                                     \
	X(DGRAD_RELU, "conv-dgrad + ReLU gradient")                                                \
	X(DGRAD_NORM, "conv-dgrad + ReLU gradient + batch norm gradient")                          \
	X(WGRAD, "conv-wgrad")                                                                     \
	X(WGRAD_F32, "conv-wgrad, result in f32")                                                  \
	X(NORM_WGRAD, "scale, shift, ReLU + conv-wgrad")                                           \
	X(CONV_RELU, "conv + bias, ReLU")                                                          \
	X(CONV_BIAS, "conv + bias")                                                                \
	X(CONV_ADD, "conv + image, bias")
enum dnn_pattern {
#define X(name, text) DNN_PATTERN_##name,
	DNN_PATTERNS(X)
#undef X
		DNN_PATTERN_COUNT
};
extern const char *const dnn_pattern_names[];

/* The ids of a pattern's operands; 0 = the pattern has none. */
struct dnn_conv_ids {
	int64_t x, w, y;      /* of the convolution */
	int64_t scale, shift; /* per channel of x, before the ReLU; in the images' type */
	int64_t sum, squares; /* per channel of y, f32 */
	int64_t bias;	      /* per channel of y, in the images' type: no engine takes it in f32 */
	int64_t image; /* what the gradients of the ReLU and of the norm read; what is added */
	int64_t beta;  /* of that norm; f32, like all vectors per channel of the gradients */
	struct dnn_norm_grad
		/* of the gradient of that norm, whose dy is the result of the ReLU's gradient */
		norm;
};

/* NULL = out of memory. If cuDNN does not support the graph, dnn_plans returns the error. */
struct dnn_graph *dnn_conv_graph(const struct cuda_dnn *d, enum dnn_pattern pattern,
	const struct dnn_conv_shape *shape, struct dnn_conv_ids *ret);

#endif
