/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a cuDNN graph. */
#include "dnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;
#define ATTR(name) CUDNN_ATTR_##name
#define F32	   CUDNN_DATA_FLOAT
/* The alignment of every tensor in bytes. */
#define ALIGNMENT 16

/* ---- errors, and a GPU that is only described ------------------------------------------------ */

int dnn_fail(const struct cuda_dnn *d, cudnnStatus_t status, const char *what, struct jm_err *err)
{
	char text[512] = "";

	d->call.cudnnGetLastErrorString(text, sizeof text);
	text[strcspn(text, "\n")] = '\0';
	return jm_err_set(err, status == CUDNN_STATUS_ALLOC_FAILED ? JM_ENOMEM : JM_ENOSUP,
		"%s: %s%s%.300s.", what, d->call.cudnnGetErrorString(status), *text ? ", " : "",
		text);
}

int dnn_describe(struct cuda_dnn *d, const char *json, struct jm_err *err)
{
	cudnnStatus_t s = d->call.cudnnBackendCreateDescriptor(
		CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->device);

	if (!s)
		s = d->call.cudnnBackendSetAttribute(d->device,
			CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
			(int64_t)strlen(json), json);
	if (!s)
		s = d->call.cudnnBackendFinalize(d->device);
	return s ? dnn_fail(d, s, "cuDNN does not accept this description of a GPU", err) : 0;
}

void dnn_forget(struct cuda_dnn *d)
{
	if (d->device)
		d->call.cudnnBackendDestroyDescriptor(d->device);
	d->device = NULL;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

struct dnn_graph *dnn_graph_new(const struct cuda_dnn *d)
{
	struct dnn_graph *g = calloc(1, sizeof *g);

	if (g) {
		g->dnn = d;
		g->err = (struct jm_err)JM_ERR_INIT;
	}
	return g;
}

void dnn_graph_free(struct dnn_graph *g)
{
	if (!g)
		return;
	for (int i = g->n_all; i > 0; i--)
		g->dnn->call.cudnnBackendDestroyDescriptor(g->all[i - 1]);
	free(g);
}

descriptor dnn_make(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
	descriptor d = NULL;
	cudnnStatus_t s;

	if (g->err.code)
		return NULL;
	if (g->n_all == DNN_GRAPH_MAX) {
		jm_err_set(&g->err, JM_EBUG, "A graph for cuDNN has more than %d descriptors.",
			DNN_GRAPH_MAX);
		return NULL;
	}
	s = g->dnn->call.cudnnBackendCreateDescriptor(type, &d);
	if (s)
		dnn_fail(g->dnn, s, "cuDNN makes no descriptor", &g->err);
	else
		g->all[g->n_all++] = d;
	return d;
}

void dnn_set(struct dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
	cudnnStatus_t s;

	if (g->err.code)
		return;
	s = g->dnn->call.cudnnBackendSetAttribute(d, name, type, n, value);
	if (s)
		dnn_fail(g->dnn, s, "cuDNN refuses an attribute of a graph", &g->err);
}

void dnn_finish(struct dnn_graph *g, descriptor d, const char *what)
{
	cudnnStatus_t s;
	char text[64];

	if (g->err.code)
		return;
	s = g->dnn->call.cudnnBackendFinalize(d);
	snprintf(text, sizeof text, "cuDNN refuses a %s", what);
	if (s)
		dnn_fail(g->dnn, s, text, &g->err);
}

static void set_type(
	struct dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
	dnn_set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void set_int(
	struct dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, int64_t value)
{
	dnn_set(g, d, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_one(
	struct dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
	dnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* A tensor as an operand; id 0: absent. */
static void set_tensor(
	struct dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, int64_t id)
{
	if (id > 0 && id <= g->n_tensors)
		set_one(g, d, name, g->tensor[id - 1]);
}

static void add_op(struct dnn_graph *g, descriptor d, const char *what)
{
	dnn_finish(g, d, what);
	if (!g->err.code)
		g->op[g->n_ops++] = d;
}

/* ---- tensors --------------------------------------------------------------------------------- */

int64_t dnn_tensor(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, int rank,
	const int64_t *dim, const int64_t *stride)
{
	descriptor d = dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	bool is_virtual = kind == DNN_VIRTUAL, by_value = kind == DNN_BY_VALUE;

	set_type(g, d, ATTR(TENSOR_DATA_TYPE), type);
	dnn_set(g, d, ATTR(TENSOR_DIMENSIONS), CUDNN_TYPE_INT64, rank, dim);
	dnn_set(g, d, ATTR(TENSOR_STRIDES), CUDNN_TYPE_INT64, rank, stride);
	set_int(g, d, ATTR(TENSOR_UNIQUE_ID), g->n_tensors + 1);
	set_int(g, d, ATTR(TENSOR_BYTE_ALIGNMENT), ALIGNMENT);
	dnn_set(g, d, ATTR(TENSOR_IS_VIRTUAL), CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
	if (by_value)
		dnn_set(g, d, ATTR(TENSOR_IS_BY_VALUE), CUDNN_TYPE_BOOLEAN, 1, &by_value);
	dnn_finish(g, d, "tensor");
	if (g->err.code)
		return 0;
	g->tensor[g->n_tensors++] = d;
	return g->n_tensors;
}

int64_t dnn_image(
	struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, const int64_t dim[4])
{
	const int64_t c = dim[1], y = dim[2], x = dim[3], stride[4] = {c * y * x, 1, x * c, c};

	return dnn_tensor(g, kind, type, 4, dim, stride);
}

int64_t dnn_channels(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type, int64_t c)
{
	const int64_t dim[4] = {1, c, 1, 1};

	return dnn_image(g, kind, type, dim);
}

int64_t dnn_scalar(struct dnn_graph *g, enum dnn_kind kind, cudnnDataType_t type)
{
	return dnn_channels(g, kind, type, 1);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static const struct {
	cudnnBackendDescriptorType_t type;
	cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
} conv_ops[DNN_CONV_COUNT] = {
	[DNN_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
		ATTR(OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
		ATTR(OPERATION_CONVOLUTION_FORWARD_X), ATTR(OPERATION_CONVOLUTION_FORWARD_W),
		ATTR(OPERATION_CONVOLUTION_FORWARD_Y), ATTR(OPERATION_CONVOLUTION_FORWARD_ALPHA),
		ATTR(OPERATION_CONVOLUTION_FORWARD_BETA)},
	[DNN_DGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
		ATTR(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
		ATTR(OPERATION_CONVOLUTION_BWD_DATA_DX), ATTR(OPERATION_CONVOLUTION_BWD_DATA_W),
		ATTR(OPERATION_CONVOLUTION_BWD_DATA_DY), ATTR(OPERATION_CONVOLUTION_BWD_DATA_ALPHA),
		ATTR(OPERATION_CONVOLUTION_BWD_DATA_BETA)},
	[DNN_WGRAD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
		ATTR(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
		ATTR(OPERATION_CONVOLUTION_BWD_FILTER_X), ATTR(OPERATION_CONVOLUTION_BWD_FILTER_DW),
		ATTR(OPERATION_CONVOLUTION_BWD_FILTER_DY),
		ATTR(OPERATION_CONVOLUTION_BWD_FILTER_ALPHA),
		ATTR(OPERATION_CONVOLUTION_BWD_FILTER_BETA)},
};

static descriptor window(struct dnn_graph *g, const struct dnn_window *how)
{
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int64_t pad_end[] = {how->pad[0] + how->more[0], how->pad[1] + how->more[1]};
	descriptor d = dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

	set_type(g, d, ATTR(CONVOLUTION_COMP_TYPE), F32);
	dnn_set(g, d, ATTR(CONVOLUTION_CONV_MODE), CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set_int(g, d, ATTR(CONVOLUTION_SPATIAL_DIMS), 2);
	dnn_set(g, d, ATTR(CONVOLUTION_PRE_PADDINGS), CUDNN_TYPE_INT64, 2, how->pad);
	dnn_set(g, d, ATTR(CONVOLUTION_POST_PADDINGS), CUDNN_TYPE_INT64, 2, pad_end);
	dnn_set(g, d, ATTR(CONVOLUTION_FILTER_STRIDES), CUDNN_TYPE_INT64, 2, how->stride);
	dnn_set(g, d, ATTR(CONVOLUTION_DILATIONS), CUDNN_TYPE_INT64, 2, how->dilation);
	dnn_finish(g, d, "window of a convolution");
	return d;
}

void dnn_conv(struct dnn_graph *g, enum dnn_conv which, const struct dnn_window *how, bool add,
	int64_t x, int64_t w, int64_t y)
{
	const float one = 1, old = add;
	descriptor moves = window(g, how), d = dnn_make(g, conv_ops[which].type);

	set_one(g, d, conv_ops[which].how, moves);
	set_tensor(g, d, conv_ops[which].x, x);
	set_tensor(g, d, conv_ops[which].w, w);
	set_tensor(g, d, conv_ops[which].y, y);
	dnn_set(g, d, conv_ops[which].alpha, CUDNN_TYPE_FLOAT, 1, &one);
	dnn_set(g, d, conv_ops[which].beta, CUDNN_TYPE_FLOAT, 1, &old);
	add_op(g, d, "convolution");
}

/* ---- the other operations -------------------------------------------------------------------- */

static bool is_gradient(cudnnPointwiseMode_t mode)
{
	return mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
}

void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int axis,
	int64_t x, int64_t b, int64_t t, int64_t y)
{
	descriptor how = dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), d;

	dnn_set(g, how, ATTR(POINTWISE_MODE), CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(g, how, ATTR(POINTWISE_MATH_PREC), math);
	if (axis >= 0)
		set_int(g, how, ATTR(POINTWISE_AXIS), axis);
	if (mode == CUDNN_POINTWISE_RELU_FWD) /* a NaN may not become 0 */
		dnn_set(g, how, ATTR(POINTWISE_NAN_PROPAGATION), CUDNN_TYPE_NAN_PROPOGATION, 1,
			&(cudnnNanPropagation_t){CUDNN_PROPAGATE_NAN});
	dnn_finish(g, how, "pointwise mode");
	d = dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_one(g, d, ATTR(OPERATION_POINTWISE_PW_DESCRIPTOR), how);
	if (is_gradient(mode)) {
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_DYDESC), x);
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_XDESC), b);
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_DXDESC), y);
	} else {
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_XDESC), x);
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_BDESC), b);
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_TDESC), t);
		set_tensor(g, d, ATTR(OPERATION_POINTWISE_YDESC), y);
	}
	add_op(g, d, "pointwise operation");
}

void dnn_stats(struct dnn_graph *g, int64_t x, int64_t sum, int64_t squares)
{
	const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
	descriptor d = dnn_make(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);

	dnn_set(g, d, ATTR(OPERATION_GENSTATS_MODE), CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
	set_type(g, d, ATTR(OPERATION_GENSTATS_MATH_PREC), F32);
	set_tensor(g, d, ATTR(OPERATION_GENSTATS_XDESC), x);
	set_tensor(g, d, ATTR(OPERATION_GENSTATS_SUMDESC), sum);
	set_tensor(g, d, ATTR(OPERATION_GENSTATS_SQSUMDESC), squares);
	add_op(g, d, "sum of statistics");
}

void dnn_norm_grad(struct dnn_graph *g, const struct dnn_norm_grad *t)
{
	descriptor d = dnn_make(g, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);

	set_type(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_MATH_PREC), F32);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_MEAN_DESC), t->mean);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC), t->rstd);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC), t->gamma);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_X_DESC), t->x);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_DY_DESC), t->dy);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC), t->dgamma);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC), t->dbeta);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC), t->dy_scale);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC), t->x_scale);
	set_tensor(g, d, ATTR(OPERATION_BN_BWD_WEIGHTS_EQ_BIAS), t->shift);
	add_op(g, d, "gradient of a batch norm");
}

void dnn_matmul(struct dnn_graph *g, int64_t a, int64_t b, int64_t c)
{
	descriptor how = dnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), d;

	set_type(g, how, ATTR(MATMUL_COMP_TYPE), F32);
	dnn_finish(g, how, "type of a product");
	d = dnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	set_one(g, d, ATTR(OPERATION_MATMUL_DESC), how);
	set_tensor(g, d, ATTR(OPERATION_MATMUL_ADESC), a);
	set_tensor(g, d, ATTR(OPERATION_MATMUL_BDESC), b);
	set_tensor(g, d, ATTR(OPERATION_MATMUL_CDESC), c);
	add_op(g, d, "product");
}

void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, int64_t x, int64_t y)
{
	descriptor how = dnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), d;

	set_type(g, how, ATTR(REDUCTION_COMP_TYPE), F32);
	dnn_set(g, how, ATTR(REDUCTION_OPERATOR), CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
	dnn_finish(g, how, "kind of reduction");
	d = dnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	set_one(g, d, ATTR(OPERATION_REDUCTION_DESC), how);
	set_tensor(g, d, ATTR(OPERATION_REDUCTION_XDESC), x);
	set_tensor(g, d, ATTR(OPERATION_REDUCTION_YDESC), y);
	add_op(g, d, "reduction");
}

void dnn_reshape(struct dnn_graph *g, int64_t x, int64_t y)
{
	descriptor d = dnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

	set_tensor(g, d, ATTR(OPERATION_RESHAPE_XDESC), x);
	set_tensor(g, d, ATTR(OPERATION_RESHAPE_YDESC), y);
	add_op(g, d, "reshape");
}
