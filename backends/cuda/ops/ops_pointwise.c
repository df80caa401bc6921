/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise ops: turns nodes into the arguments of pointwise.cu. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/layouts.h"
#include "ops_quantize.h"
#include "op_rows.h"
#include "ops_linear.h"

/* Operands that share a layout, as bits. The step number, which dropout reads, has none. */
#define ALL_IN	3u
#define ALL_OUT 1u

static enum cuda_map map_of(enum jm_op op)
{
	switch (op) {
	case JM_OP_GELU:
		return CUDA_GELU;
	case JM_OP_GELU_ERF:
		return CUDA_GELU_ERF;
	case JM_OP_GELU_QUICK:
		return CUDA_GELU_QUICK;
	case JM_OP_SILU:
		return CUDA_SILU;
	case JM_OP_RELU:
		return CUDA_RELU;
	case JM_OP_GELU_GRAD:
		return CUDA_GELU_GRAD;
	case JM_OP_GELU_ERF_GRAD:
		return CUDA_GELU_ERF_GRAD;
	case JM_OP_GELU_QUICK_GRAD:
		return CUDA_GELU_QUICK_GRAD;
	case JM_OP_SILU_GRAD:
		return CUDA_SILU_GRAD;
	case JM_OP_RELU_GRAD:
		return CUDA_RELU_GRAD;
	case JM_OP_ADD:
		return CUDA_ADD;
	default:
		return CUDA_CAST;
	}
}

static struct cuda_pointwise args_of(const struct jm_node *n)
{
	return (struct cuda_pointwise){
		.map = map_of(n->op),
		.n = jm_tensor_count(n->out[0]),
		.a = cuda_vec(n->in[0]),
		.b = cuda_vec(n->n_in > 1 ? n->in[1] : NULL),
		.y = cuda_vec(n->out[0]),
		.accumulate = jm_node_adds(n, 0),
	};
}

static int mixed(const struct jm_node *n, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"Backend cuda has no %s of these types: %s to %s; use another --precision.",
		jm_op_name(n->op), jm_dtype_name(n->in[0]->type), jm_dtype_name(n->out[0]->type));
}

static int takes_map(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_pointwise p = args_of(n);

	(void)dev;
	p.b.data = n->n_in > 1 ? &p : NULL; /* not NULL: present; the address is not used */
	return cuda_pointwise_knows(&p) ? 0 : mixed(n, err);
}

static int choices_map(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	(void)dev;
	(void)err;
	return cuda_choices_follow(group->node[0], ALL_IN, ALL_OUT, choice);
}

static int run_map(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_pointwise p = args_of(&exec->node[0]);

	(void)err;
	cuda_pointwise(&p, dev->stream);
	return 0;
}

/* ---- cast ------------------------------------------------------------------------------------ */

static bool strides_known(const struct jm_tensor *t)
{
	return cuda_is_dense(&t->layout) || cuda_row_stride(t) || cuda_is_tall(t);
}

static int takes_cast(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool number = n->in[0]->type != JM_I32 && n->out[0]->type != JM_I32 &&
		      !cuda_is_f8(n->in[0]) && !cuda_is_f8(n->out[0]);
	struct cuda_pointwise p = args_of(n);

	(void)dev;
	if (!number || !cuda_pointwise_knows(&p))
		return mixed(n, err);
	if (strides_known(n->in[0]) && strides_known(n->out[0]))
		return 0;
	return jm_err_set(err, JM_ENOSUP, "Backend cuda does not support layouts in blocks.");
}

static int choices_cast(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	(void)err;
	choice->in[0][0] = n->in[0]->layout;
	choice->out[0][0] = n->out[0]->layout;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* The stride of each dim in elements. */
static void strides_of(const struct jm_tensor *t, int64_t *ret)
{
	int64_t step = 1;

	for (int i = t->rank - 1; i >= 0; i--) {
		int dim = t->layout.rank ? t->layout.order[i] : i;

		ret[dim] = step;
		step *= t->layout.n_blocks == 1 && i == t->rank - 1 ? cuda_row_stride(t)
								    : t->dim[dim];
	}
}

static struct cuda_reorder reorder_of(const struct jm_node *n)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0];
	int64_t from[JM_DIMS] = {0}, to[JM_DIMS] = {0};
	struct cuda_reorder p = {.rank = x->rank,
		.x = cuda_vec(x),
		.y = cuda_vec(y),
		.accumulate = jm_node_adds(n, 0)};

	strides_of(x, from);
	strides_of(y, to);
	for (int i = 0; i < x->rank; i++) {
		int dim = y->layout.rank ? y->layout.order[i] : i;

		p.dim[i] = x->dim[dim];
		p.x_stride[i] = from[dim];
		p.y_stride[i] = to[dim];
	}
	return p;
}

/* True if the elements are row-major without gaps. */
static bool in_order(const struct jm_tensor *t)
{
	return !t->layout.rank || cuda_is_tall(t);
}

static int cast_in_order(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *y = exec->node[0].out[0];
	size_t filled = (size_t)jm_tensor_count(y) * jm_dtype_bytes(y->type);

	if (y->bytes > filled)
		cudaMemsetAsync((char *)y->data + filled, 0, y->bytes - filled, dev->stream);
	return run_map(dev, exec, err);
}

static int run_cast(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_reorder p;

	if (in_order(n->in[0]) && in_order(n->out[0]))
		return cast_in_order(dev, exec, err);
	if (jm_layout_equal(&n->in[0]->layout, &n->out[0]->layout) && !n->in[0]->layout.n_blocks)
		return run_map(dev, exec, err);
	p = reorder_of(n);
	if (n->out[0]->layout.n_blocks && !p.accumulate)
		cudaMemsetAsync(p.y.data, 0, n->out[0]->bytes, dev->stream);
	cuda_reorder(&p, dev->stream);
	return 0;
}

/* ---- gated units, dropout -------------------------------------------------------------------- */

static int takes_alike(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool two = n->op == JM_OP_SWIGLU_GRAD || n->op == JM_OP_GEGLU_GRAD;

	(void)dev;
	if (n->in[0]->type == n->out[0]->type && (!two || n->in[1]->type == n->in[0]->type))
		return 0;
	return mixed(n, err);
}

static int run_gated(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	bool grad = n->op == JM_OP_SWIGLU_GRAD || n->op == JM_OP_GEGLU_GRAD;
	struct cuda_gated p = {
		.gelu = n->op == JM_OP_GEGLU || n->op == JM_OP_GEGLU_GRAD,
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[grad]) / 2,
		.x = cuda_vec(n->in[grad]),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	if (grad) {
		p.dy = cuda_vec(n->in[0]);
		p.dx = cuda_vec(n->out[0]);
	} else {
		p.y = cuda_vec(n->out[0]);
	}
	cuda_gated(&p, dev->stream);
	return 0;
}

/* A gradient, and the activation itself from the same operand; all layouts are plain. */
static int takes_again(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *grad = group->node[0], *again = group->node[1];

	if (again->accumulate || again->out[0]->type != grad->in[1]->type)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda cannot run this %s with its gradient.",
			jm_op_name(again->op));
	return grad->op == JM_OP_GELU_ERF_GRAD ? takes_map(dev, group, err)
					       : takes_alike(dev, group, err);
}

/* ---- the gradient of geglu, which also adds up that of the bias of the linear before it ------ */

/* With or without geglu itself between the gradient and the linear-wgrad. */
static int takes_geglu_sums(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *grad = group->node[0], *wgrad = group->node[group->n_nodes - 1];
	int code = (group->n_nodes > 2 ? takes_again : takes_alike)(dev, group, err);

	if (!code && (grad->accumulate || jm_tensor_width(grad->in[0]) % 8))
		code = mixed(grad, err);
	return code ? code : cuda_wgrad_takes(dev, wgrad, grad->out[0], err);
}

static int parts_of(const struct cuda_dev *dev, const struct jm_tensor *dy)
{
	return cuda_gated_parts(
		dev->prop.multiProcessorCount, jm_tensor_rows(dy), jm_tensor_width(dy));
}

static size_t scratch_geglu_sums(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct jm_tensor *dy = group->node[0]->in[0];

	return (size_t)parts_of(dev, dy) * 2 * (size_t)jm_tensor_width(dy) * sizeof(float);
}

static int run_geglu_sums(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *grad = &exec->node[0], *wgrad = &exec->node[exec->n_nodes - 1];
	const struct cuda_gated p = {
		.gelu = true,
		.y = cuda_vec(exec->n_nodes > 2 ? exec->node[1].out[0] : NULL),
		.rows = jm_tensor_rows(grad->in[0]),
		.width = jm_tensor_width(grad->in[0]),
		.x = cuda_vec(grad->in[1]),
		.dy = cuda_vec(grad->in[0]),
		.dx = cuda_vec(grad->out[0]),
		.sums = wgrad->out[1]->data,
		.add_sums = jm_node_adds(wgrad, 1),
		.parts = parts_of(dev, grad->in[0]),
		.partial = exec->scratch,
	};

	cuda_gated(&p, dev->stream);
	return cuda_wgrad_run(dev, exec->own, err);
}

/* ---- an activation with its gradient --------------------------------------------------------- */

static int run_again(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_pointwise p = args_of(&exec->node[0]);

	(void)err;
	p.again = cuda_vec(exec->node[1].out[0]);
	cuda_pointwise(&p, dev->stream);
	return 0;
}

static int run_gated_again(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *grad = &exec->node[0];
	struct cuda_gated p = {
		.gelu = grad->op == JM_OP_GEGLU_GRAD,
		.rows = jm_tensor_rows(grad->in[0]),
		.width = jm_tensor_width(grad->in[0]),
		.x = cuda_vec(grad->in[1]),
		.dy = cuda_vec(grad->in[0]),
		.dx = cuda_vec(grad->out[0]),
		.y = cuda_vec(exec->node[1].out[0]),
		.accumulate = jm_node_adds(grad, 0),
	};

	(void)err;
	cuda_gated(&p, dev->stream);
	return 0;
}

static int run_dropout(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	double p = n->attr.dropout.p;
	struct cuda_dropout args = {
		.n = jm_tensor_count(n->in[0]),
		.x = cuda_vec(n->in[0]),
		.y = cuda_vec(n->out[0]),
		.now = n->in[1]->data,
		.seed = n->attr.dropout.seed,
		.least = (uint64_t)(p * 0x1p32),
		.scale = (float)(1 / (1 - p)),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	cuda_dropout(&args, dev->stream);
	return 0;
}

#define MAP(op)                                                                                    \
	{                                                                                          \
		{op}, 1, takes_map, choices_map, NULL, NULL, run_map, NULL                         \
	}

#define AGAIN(grad, op, run)                                                                       \
	{                                                                                          \
		{grad, op}, 2, takes_again, NULL, NULL, NULL, run, NULL                            \
	}

const struct cuda_op cuda_ops_pointwise[] = {
	MAP(JM_OP_GELU),
	MAP(JM_OP_GELU_GRAD),
	MAP(JM_OP_GELU_ERF),
	MAP(JM_OP_GELU_ERF_GRAD),
	MAP(JM_OP_GELU_QUICK),
	MAP(JM_OP_GELU_QUICK_GRAD),
	MAP(JM_OP_SILU),
	MAP(JM_OP_SILU_GRAD),
	MAP(JM_OP_RELU),
	MAP(JM_OP_RELU_GRAD),
	MAP(JM_OP_ADD),
	{{JM_OP_CAST}, 1, takes_cast, choices_cast, NULL, NULL, run_cast, NULL},
	{{JM_OP_SWIGLU}, 1, takes_alike, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_SWIGLU_GRAD}, 1, takes_alike, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_GEGLU}, 1, takes_alike, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_GEGLU_GRAD}, 1, takes_alike, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_GEGLU_GRAD, JM_OP_LINEAR_WGRAD}, 2, takes_geglu_sums, NULL, scratch_geglu_sums,
		cuda_wgrad_build, run_geglu_sums, cuda_wgrad_drop},
	{{JM_OP_GEGLU_GRAD, JM_OP_GEGLU, JM_OP_LINEAR_WGRAD}, 3, takes_geglu_sums, NULL,
		scratch_geglu_sums, cuda_wgrad_build, run_geglu_sums, cuda_wgrad_drop},
	AGAIN(JM_OP_GELU_ERF_GRAD, JM_OP_GELU_ERF, run_again),
	AGAIN(JM_OP_SWIGLU_GRAD, JM_OP_SWIGLU, run_gated_again),
	AGAIN(JM_OP_GEGLU_GRAD, JM_OP_GEGLU, run_gated_again),
	{{JM_OP_DROPOUT}, 1, takes_alike, NULL, NULL, NULL, run_dropout, NULL},
	{.n_nodes = 0},
};
