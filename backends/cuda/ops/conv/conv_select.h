/* SPDX-License-Identifier: Apache-2.0 */
/* Which groups around a convolution this backend takes, with their layouts and scratch: select. */
#ifndef JM_CUDA_CONV_SELECT_H
#define JM_CUDA_CONV_SELECT_H

#include "conv_operands.h"
#include "backends/cuda/choose/conv_plan.h"

/* Nodes of the groups that begin with a convolution and go on. */
enum { CUDA_CONV_RELU = 2, CUDA_CONV_STATS = 3 };

/*
 * The scratch of a group holds, in this order: cuDNN's workspace; the folded image and filter, or
 * the filter's gradient; the sums of the bias gradient, or the bias in the images' type, or the
 * sums of a batch norm and its mean and variance.
 */
struct cuda_conv_scratch {
	size_t image, filter, bias, sums, bytes;
};

/* What a convolution is timed with beside cuDNN's engines, or DNN alone. */
enum cuda_conv_way {
	CUDA_CONV_DNN,
	CUDA_CONV_PRODUCT,
	CUDA_CONV_STEM,
	CUDA_CONV_FILTER,
	CUDA_CONV_SLIM,
	CUDA_CONV_WIDE,
	CUDA_CONV_DEPTHWISE
};
enum cuda_conv_way cuda_conv_way(const struct cuda_dev *dev, const struct jm_node *n);

/* The plans of a convolution that also adds its bias, in 16 bits; NULL = cuDNN has none, or other
 * ways are timed in its place. */
struct cuda_conv_plan *cuda_conv_bias_plan(struct cuda_dev *dev, const struct jm_node *n);

enum dnn_pattern cuda_conv_pattern_of(enum jm_op op, int nodes);
/* nodes: the number of nodes in the group, whose first one is the convolution. */
struct cuda_conv_key cuda_conv_key_of(const struct jm_node *n, int nodes);
/* workspace: bytes of cuDNN's plan. */
struct cuda_conv_scratch cuda_conv_scratch_of(const struct jm_node *n, int nodes, size_t workspace);
/* From the sums of x to those of squares, and so on: each begins at 16 bytes, as dnn_graph.c tells
 * cuDNN of all tensors. */
int64_t cuda_conv_sums_stride(const struct jm_tensor *y);

/* As `takes` and `choices` of cuda_op. */
int cuda_takes_conv(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);
int cuda_takes_conv_stats(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);
int cuda_takes_conv_relu(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);
int cuda_choices_conv(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err);
/* The last two nodes are the gradient of a ReLU and that of the filter before it; the first of
 * three is that of the pooling behind it. */
int cuda_takes_relu_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);
int cuda_choices_relu_grad(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err);
/* The scratch, in front of the convolution's, for the ReLU's gradient where only that reads it. */
size_t cuda_conv_opened_bytes(const struct jm_node *relu);

#endif
