/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN, with channels last. Plans are looked up when they are asked for, which tells
 * the workspace, and kept by shape; the fastest is found by timing when the first group of the shape is
 * built. A filter's gradient comes from cuDNN in the type of the images with channels last, and is added
 * to or copied into its place from there.
 */
#include <math.h>
#include <stdlib.h>

#include "conv_plan.h"
#include "image.h"

/* Scratch of a group: cuDNN's workspace, then the filter's gradient, then sums of the bias' gradient. */
struct conv_scratch {
	size_t filter, bias, bytes;
};

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

static enum dnn_pattern pattern_of(enum jm_op op)
{
	return op == JM_OP_CONV		? DNN_PATTERN_CONV
	       : op == JM_OP_CONV_DGRAD ? DNN_PATTERN_DGRAD
					: DNN_PATTERN_WGRAD;
}

/* Image, filter and result of the forward direction, or their gradients. */
struct operands {
	const struct jm_tensor *x, *w, *y, *bias;
};

static struct operands operands_of(const struct jm_node *n)
{
	if (n->op == JM_OP_CONV)
		return (struct operands){n->in[0], n->in[1], n->out[0], n->in[2]};
	if (n->op == JM_OP_CONV_DGRAD)
		return (struct operands){n->out[0], n->in[1], n->in[0], NULL};
	return (struct operands){n->in[1], n->out[0], n->in[0], n->out[1]};
}

static struct cuda_conv_key key_of(const struct jm_node *n)
{
	struct operands o = operands_of(n);
	struct cuda_conv_key key;

	memset(&key, 0, sizeof key); /* compared by memcmp */
	key.pattern = pattern_of(n->op);
	memcpy(key.shape.x, o.x->dim, sizeof key.shape.x);
	memcpy(key.shape.w, o.w->dim, sizeof key.shape.w);
	memcpy(key.shape.y, o.y->dim, sizeof key.shape.y);
	for (int i = 0; i < 2; i++) {
		key.shape.window.stride[i] = n->attr.conv.stride[i];
		key.shape.window.pad[i] = n->attr.conv.pad[i];
		key.shape.window.dilation[i] = n->attr.conv.dilation[i];
	}
	key.shape.type = o.x->type == JM_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
	key.exact = o.x->type == JM_F32;
	return key;
}

static struct conv_scratch scratch_of(const struct jm_node *n, size_t workspace)
{
	struct operands o = operands_of(n);
	struct conv_scratch s = {.filter = aligned(workspace)};

	s.bias = s.filter;
	if (n->op == JM_OP_CONV_WGRAD)
		s.bias += aligned((size_t)jm_tensor_count(o.w) * jm_dtype_bytes(o.x->type));
	s.bytes = s.bias;
	if (n->op == JM_OP_CONV_WGRAD && o.bias)
		s.bytes += cuda_bn_scratch(o.bias->dim[0]);
	return s;
}

/* ---- select ------------------------------------------------------------------------------------------------- */

static int takes_conv(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct operands o = operands_of(n);
	struct cuda_conv_key key = key_of(n);

	if (n->op != JM_OP_CONV_WGRAD && n->accumulate)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cuda cannot add to its output.",
			jm_op_name(n->op));
	if (o.x->type != o.y->type || (n->op != JM_OP_CONV_WGRAD && o.w->type != o.x->type))
		return jm_err_set(err, JM_ENOSUP,
			"%s of backend cuda wants images and filter in one type.",
			jm_op_name(n->op));
	return cuda_conv_plan(dev, &key, err) ? 0 : err->code;
}

static int choices_conv(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_conv_key key = key_of(n);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);

	if (!plan)
		return 0;
	for (int i = 0; i < 2; i++)
		choice->in[0][i] = cuda_layout_last;
	/* a gradient lies as its parameter does; channels last is what costs nothing */
	if (n->op != JM_OP_CONV_WGRAD || n->out[0]->class == JM_CLASS_ACT ||
		jm_layout_equal(&n->out[0]->layout, &cuda_layout_last))
		choice->out[0][0] = cuda_layout_last;
	choice->scratch = scratch_of(n, plan->workspace).bytes;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* ---- build and run ----------------------------------------------------------------------------------------------- */

static void drop_conv(struct cuda_dev *dev, struct cuda_exec *exec)
{
	if (exec->own)
		dnn_unbind(&dev->dnn, exec->own);
	free(exec->own);
}

static int build_conv(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct operands o = operands_of(n);
	struct cuda_conv_key key = key_of(n);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	int code = plan ? cuda_conv_tune(dev, plan, err) : err->code;
	char *scratch = exec->scratch;
	size_t filter;

	if (code)
		return code;
	filter = scratch_of(n, plan->workspace).filter;
	exec->own = calloc(1, sizeof(struct dnn_run));
	if (!exec->own)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	return dnn_bind(&dev->dnn, &plan->plan[plan->best], 3,
		(const int64_t[]){plan->ids.x, plan->ids.w, plan->ids.y},
		(void *const[]){o.x->data, n->op == JM_OP_CONV_WGRAD ? scratch + filter : o.w->data,
			o.y->data},
		scratch, exec->own, err);
}

static int run_conv(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *y = exec->node[0].out[0], *bias = exec->node[0].in[2];
	int code = dnn_run(&dev->dnn, exec->own, err);

	if (!code && exec->node[0].op == JM_OP_CONV && bias)
		cuda_bias_add(cuda_vec(y), bias->data, y->dim[0] * y->dim[2] * y->dim[3], y->dim[1],
			dev->stream);
	return code;
}

static int run_wgrad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *dy = n->in[0], *dw = n->out[0], *dbias = n->out[1];
	/* the bias' sums end the scratch, the filter's gradient is before them */
	size_t behind = scratch_of(n, 0).bytes;
	char *filter = (char *)exec->scratch + exec->scratch_bytes - behind;
	bool last = dw->layout.rank; /* then it lies as cuDNN leaves it */
	struct cuda_filter p = {
		.k = dw->dim[0],
		.c = last ? 1 : dw->dim[1],
		.window = dw->dim[2] * dw->dim[3] * (last ? dw->dim[1] : 1),
		.from = {filter, dy->type == JM_BF16},
		.dw = dw->data,
		.accumulate = cuda_adds(n, 0),
	};
	int code = dnn_run(&dev->dnn, exec->own, err);

	if (code)
		return code;
	cuda_filter_grad(&p, dev->stream);
	if (dbias)
		cuda_bias_grad(cuda_vec(dy), dbias->data, dy->dim[0] * dy->dim[2] * dy->dim[3],
			dy->dim[1], cuda_adds(n, 1), filter + scratch_of(n, 0).bias, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_conv[] = {
	{{JM_OP_CONV}, 1, takes_conv, choices_conv, NULL, build_conv, run_conv, drop_conv},
	{{JM_OP_CONV_DGRAD}, 1, takes_conv, choices_conv, NULL, build_conv, run_conv, drop_conv},
	{{JM_OP_CONV_WGRAD}, 1, takes_conv, choices_conv, NULL, build_conv, run_wgrad, drop_conv},
	{.n_nodes = 0},
};
