/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph of cuDNN's operations, which is made node by node, and the plans by which it can be run.
 *
 * The function that makes a tensor returns its id, to which a run binds memory. After the first
 * error every function returns 0 and does nothing, and dnn_plans returns that error. All sums are
 * in f32.
 */
#ifndef JM_CUDA_DNN_GRAPH_H
#define JM_CUDA_DNN_GRAPH_H

#include "joulemark.h"
#include "backends/cuda/device/math_calls.h"

/* REAL: the tensor has memory; VIRTUAL: a value between two operations; BY_VALUE: one number that
 * is given with each run. */
enum dnn_kind { DNN_REAL, DNN_VIRTUAL, DNN_BY_VALUE };

/* Replaces a GPU by a description in cuDNN's JSON. Plans can then be built, but not run. */
int dnn_describe(struct cuda_dnn *d, const char *json, struct jm_err *err);
void dnn_forget(struct cuda_dnn *d); /* drops the description */
/* Makes an error of `what` and the last message of cuDNN. */
int dnn_fail(const struct cuda_dnn *d, cudnnStatus_t status, const char *what, struct jm_err *err);

struct dnn_graph;
struct dnn_graph *dnn_graph_new(const struct cuda_dnn *d); /* NULL = out of memory */
void dnn_graph_free(struct dnn_graph *g);		   /* takes NULL; plans stay valid */

int64_t dnn_tensor(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, int rank,
	const int64_t *dim, const int64_t *stride);
/* A tensor of dims [B,C,Y,X] with channels last; a filter is [K,C,R,S]. */
int64_t dnn_image(
	struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, const int64_t dim[4]);
/* A tensor of dims [1,C,1,1]. */
int64_t dnn_channels(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, int64_t c);
/* A tensor of dims [1,1,1,1]. */
int64_t dnn_scalar(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type);

enum dnn_conv { DNN_CONV, DNN_DGRAD, DNN_WGRAD, DNN_CONV_COUNT };
struct dnn_window {
	int64_t stride[2], pad[2], dilation[2];
	int64_t more[2]; /* padding below and to the right in addition to pad */
};
/* x, w, y are the image, the filter and the result of the forward direction, or their gradients.
 * The number of groups follows from the channels of w. add: the convolution is added to its
 * result. */
void dnn_conv(struct dnn_graph *g, enum dnn_conv which, const struct dnn_window *how, bool add,
	int64_t x, int64_t w, int64_t y);
/* y = mode(x) or mode(x, b); for a gradient x is dy, b is x and y is dx. t: the mask of a
 * selection. An absent operand is 0. axis: the dim of an index, else -1. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int axis,
	int64_t x, int64_t b, int64_t t, int64_t y);
/* For each channel of x, its sum and the sum of its squares, in f32. */
void dnn_stats(struct dnn_graph *g, int64_t x, int64_t sum, int64_t squares);
/* The gradient of a batch norm: dgamma, dbeta and the factors of dx = dy_scale dy + x_scale x +
 * shift. */
struct dnn_norm_grad {
	int64_t dy, x, mean, rstd, gamma;
	int64_t dgamma, dbeta, dy_scale, x_scale, shift;
};
void dnn_norm_grad(struct dnn_graph *g, const struct dnn_norm_grad *t);
void dnn_matmul(struct dnn_graph *g, int64_t a, int64_t b, int64_t c);
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, int64_t x, int64_t y);
void dnn_reshape(struct dnn_graph *g, int64_t x, int64_t y);

/* ---- plans ----------------------------------------------------------------------------------- */

struct dnn_want {
	bool exact;	  /* f32 operands are multiplied as f32, not as tf32 */
	bool repeatable;  /* every run gives the same bits */
	bool ready;	  /* not compiled at run time */
	bool all;	  /* includes the engines that cuDNN lists as a fallback only */
	bool preferred;	  /* none of these, also where there is no other */
	size_t workspace; /* bytes, at most */
	int64_t refused;  /* an engine that is not used; 0 = none */
	const char *name; /* only the plan with this name, if it still exists; NULL = any */
};

#define DNN_NAME 96
struct dnn_plan {
	cudnnBackendDescriptor_t descriptor;
	size_t workspace;
	bool compiled; /* at run time, by cuDNN itself */
	/* engine and knobs, the same for the same graph and version of cuDNN */
	char name[DNN_NAME];
};

/* A plan bound to its memory. */
struct dnn_run {
	cudnnBackendDescriptor_t plan, pack;
};

/* Internal: dnn_graph.c makes the struct, dnn_plan.c reads it. */
#define DNN_GRAPH_MAX 160
struct dnn_graph {
	const struct cuda_dnn *dnn;
	int n_all, n_ops;
	int64_t n_tensors;
	cudnnBackendDescriptor_t all[DNN_GRAPH_MAX], op[DNN_GRAPH_MAX], tensor[DNN_GRAPH_MAX];
	cudnnBackendDescriptor_t whole; /* NULL until the first call of dnn_plans */
	struct jm_err err;
};
cudnnBackendDescriptor_t dnn_make(struct dnn_graph *g, cudnnBackendDescriptorType_t type);
void dnn_set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *value);
void dnn_finish(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what);

#endif
