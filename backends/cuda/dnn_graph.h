/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph of cuDNN's operations, written node by node, and the plans by which it can run.
 *
 * Tensors are named by the id that the function which makes them returns; it is also the id that a run
 * binds memory to. The first error sticks: from then on every function returns 0 and does nothing, and
 * dnn_plans tells it. Sums are in f32 throughout.
 */
#ifndef JM_CUDA_DNN_GRAPH_H
#define JM_CUDA_DNN_GRAPH_H

#include "library.h"

/* Memory of its own; a value between two operations; one number given with each run. */
enum dnn_kind { DNN_REAL, DNN_VIRTUAL, DNN_BY_VALUE };

/* In place of a GPU: its properties as cuDNN's JSON. Then plans can be built, but not run. */
int dnn_describe(struct cuda_dnn *d, const char *json, struct jm_err *err);
void dnn_forget(struct cuda_dnn *d); /* the description */
/* The last message of cuDNN, as a sentence behind `what`. */
int dnn_fail(const struct cuda_dnn *d, cudnnStatus_t status, const char *what, struct jm_err *err);

struct dnn_graph;
struct dnn_graph *dnn_graph_new(const struct cuda_dnn *d); /* NULL = out of memory */
void dnn_graph_free(struct dnn_graph *g);		   /* takes NULL; plans outlive it */

int64_t dnn_tensor(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, int rank,
	const int64_t *dim, const int64_t *stride);
/* Dims [B,C,Y,X], channels last; a filter is [K,C,R,S] likewise. */
int64_t dnn_image(
	struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, const int64_t dim[4]);
/* Dims [1,C,1,1]. */
int64_t dnn_channels(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, int64_t c);
/* Dims [1,1,1,1]. */
int64_t dnn_scalar(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type);

enum dnn_conv { DNN_CONV, DNN_DGRAD, DNN_WGRAD, DNN_CONV_COUNT };
struct dnn_window {
	int64_t stride[2], pad[2], dilation[2];
};
/* x, w, y are the image, the filter and the result of the forward direction, or their gradients. Groups
 * follow from the channels of w. add: to what the result holds. */
void dnn_conv(struct dnn_graph *g, enum dnn_conv which, const struct dnn_window *how, bool add,
	int64_t x, int64_t w, int64_t y);
/* y = mode(x), mode(x, b) or, of a gradient (dy, x), y = x's; t: the mask of a selection. Absent: 0.
 * axis: of an index, else -1. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int axis,
	int64_t x, int64_t b, int64_t t, int64_t y);
/* Of x per channel: its sum and the sum of its squares, f32. */
void dnn_stats(struct dnn_graph *g, int64_t x, int64_t sum, int64_t squares);
/* Of a batch norm: dgamma and dbeta, and the factors of dx = dy_scale dy + x_scale x + shift. */
struct dnn_norm_grad {
	int64_t dy, x, mean, rstd, gamma;
	int64_t dgamma, dbeta, dy_scale, x_scale, shift;
};
void dnn_norm_grad(struct dnn_graph *g, const struct dnn_norm_grad *t);
void dnn_matmul(struct dnn_graph *g, int64_t a, int64_t b, int64_t c);
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, int64_t x, int64_t y);
void dnn_reshape(struct dnn_graph *g, int64_t x, int64_t y);

/* ---- plans ------------------------------------------------------------------------------------- */

struct dnn_want {
	bool exact;	  /* f32 operands are multiplied as f32, not as tf32 */
	bool repeatable;  /* the same bits each time */
	bool ready;	  /* not compiled at run time */
	bool all;	  /* also what cuDNN names only where nothing else runs */
	size_t workspace; /* bytes, at most */
	const char *name; /* of this plan alone, where it still exists; NULL = any */
};

#define DNN_NAME 96
struct dnn_plan {
	cudnnBackendDescriptor_t descriptor;
	size_t workspace;
	bool compiled;	     /* at run time, by cuDNN itself */
	char name[DNN_NAME]; /* engine and knobs: the same for the same graph and version */
};

/* At most max plans, what cuDNN thinks fastest first; returns how many, 0 with a reason in err. */
int dnn_plans(struct dnn_graph *g, const struct dnn_want *want, struct dnn_plan *ret, int max,
	struct jm_err *err);
void dnn_plan_drop(const struct cuda_dnn *d, struct dnn_plan *plan);

/* A plan with its memory. */
struct dnn_run {
	cudnnBackendDescriptor_t plan, pack;
};
int dnn_bind(const struct cuda_dnn *d, const struct dnn_plan *plan, int n, const int64_t *id,
	void *const *data, void *workspace, struct dnn_run *ret, struct jm_err *err);
int dnn_run(const struct cuda_dnn *d, const struct dnn_run *run, struct jm_err *err);
void dnn_unbind(const struct cuda_dnn *d, struct dnn_run *run); /* the plan stays */

/* Inside: dnn_graph.c makes it, dnn_plan.c reads it. */
#define DNN_GRAPH_MAX 160
struct dnn_graph {
	const struct cuda_dnn *dnn;
	int n_all, n_ops;
	int64_t n_tensors;
	cudnnBackendDescriptor_t all[DNN_GRAPH_MAX], op[DNN_GRAPH_MAX], tensor[DNN_GRAPH_MAX];
	cudnnBackendDescriptor_t whole; /* NULL until the first plan is asked for */
	struct jm_err err;
};
cudnnBackendDescriptor_t dnn_make(struct dnn_graph *g, cudnnBackendDescriptorType_t type);
void dnn_set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *value);
void dnn_finish(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what);

#endif
