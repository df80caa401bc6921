/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear and its gradients for few channels and many rows in f32, for which cuBLASLt reads its
 * operands at a small share of the rate of memory; gelu-erf after it, its gradient after
 * linear-dgrad, and a sum before gelu-erf are part of the kernel.
 */
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/narrow.h"
#include "op_rows.h"

static bool is_plain_f32(const struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] && n->in[i]->type != JM_F32)
			return false;
	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->type != JM_F32)
			return false;
	return true;
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool grad = n->op == JM_OP_LINEAR_WGRAD;
	int64_t to = jm_tensor_width(grad ? n->in[1] : n->out[0]);

	(void)dev;
	if (n->math != JM_MATH_F32 || !is_plain_f32(n) ||
		!cuda_narrow_knows(jm_tensor_rows(n->in[0]), jm_tensor_width(n->in[0]), to))
		return cuda_no_types(n, err);
	return 0;
}

/* ---- products -------------------------------------------------------------------------------- */

/* linear, or linear-dgrad, then what follows in the group: add, gelu-erf, its gradient. */
static struct cuda_narrow product_of(const struct jm_node *n, int n_nodes)
{
	const struct jm_node *last = &n[n_nodes - 1];
	const bool forward = n->op == JM_OP_LINEAR;
	struct cuda_narrow p = {
		.rows = jm_tensor_rows(n->in[0]),
		.from = (int)jm_tensor_width(n->in[0]),
		.to = (int)jm_tensor_width(n->out[0]),
		.x = n->in[0]->data,
		.m = n->in[1]->data,
		.bias = forward ? cuda_data(n->in[2]) : NULL,
		.turned = forward,
		.y = n->out[0]->is_virtual ? NULL : n->out[0]->data,
		.accumulate = jm_node_adds(n, 0),
	};

	if (n_nodes == 1)
		return p;
	if (last->op == JM_OP_GELU_ERF_GRAD) {
		p.y = last->out[0]->data;
		p.open = last->in[1]->data;
		return p;
	}
	p.gelu = last->out[0]->data;
	if (n_nodes == 3) {
		const struct jm_node *sum = &n[1];

		p.add = sum->in[sum->in[0] == n->out[0]]->data;
		p.y = sum->out[0]->is_virtual ? NULL : sum->out[0]->data;
	}
	return p;
}

static int run_product(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct cuda_narrow p = product_of(exec->node, exec->n_nodes);

	(void)err;
	cuda_narrow(&p, dev->prop.multiProcessorCount, dev->stream);
	return 0;
}

static int takes_gelu(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *act = group->node[1];

	if (n->accumulate || act->accumulate || act->in[0] != n->out[0] || !is_plain_f32(act))
		return cuda_no_types(n, err);
	return takes(dev, group, err);
}

static int takes_gelu_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	return n->out[0]->is_virtual ? takes_gelu(dev, group, err) : cuda_no_types(n, err);
}

static int takes_add_gelu(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *sum = group->node[1], *act = group->node[2];
	const struct jm_tensor *y = n->out[0];

	if (n->accumulate || sum->accumulate || act->accumulate || !y->is_virtual ||
		(sum->in[0] == y) == (sum->in[1] == y) || act->in[0] != sum->out[0] ||
		!is_plain_f32(sum) || !is_plain_f32(act))
		return cuda_no_types(n, err);
	return takes(dev, group, err);
}

/* ---- gradients of weights -------------------------------------------------------------------- */

static int parts_of(const struct cuda_dev *dev, const struct jm_node *n)
{
	return cuda_narrow_grad_parts(dev->prop.multiProcessorCount, jm_tensor_rows(n->in[0]),
		(int)jm_tensor_width(n->in[1]), (int)jm_tensor_width(n->in[0]));
}

static size_t scratch_grad(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct jm_node *n = group->node[0];
	int64_t each = jm_tensor_width(n->in[0]) * (jm_tensor_width(n->in[1]) + 1);

	return (size_t)(parts_of(dev, n) * each) * sizeof(float);
}

/* parts, and their memory */
static struct cuda_narrow_grad grad_of(const struct jm_node *n, int parts, void *partial)
{
	return (struct cuda_narrow_grad){
		.rows = jm_tensor_rows(n->in[0]),
		.from = (int)jm_tensor_width(n->in[1]),
		.to = (int)jm_tensor_width(n->in[0]),
		.dy = n->in[0]->data,
		.x = n->in[1]->data,
		.dw = n->out[0]->data,
		.db = cuda_data(n->out[1]),
		.add_dw = jm_node_adds(n, 0),
		.add_db = n->out[1] && jm_node_adds(n, 1),
		.parts = parts,
		.partial = partial,
	};
}

static int run_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct cuda_narrow_grad p = grad_of(n, parts_of(dev, n), exec->scratch);

	(void)err;
	cuda_narrow_grad(&p, dev->stream);
	return 0;
}

/* ---- two layers with gelu-erf between -------------------------------------------------------- */

/* Of n nodes; bit k of `inner`: the first result of node k is not stored. */
static int takes_layers(
	const struct jm_group *group, int n, unsigned inner, int64_t to, struct jm_err *err)
{
	const struct jm_node *const *node = group->node;
	bool fits = cuda_hidden_knows(jm_tensor_rows(node[0]->in[0]),
		jm_tensor_width(node[0]->in[0]), jm_tensor_width(node[0]->out[0]), to);

	for (int k = 0; k < n && fits; k++) {
		bool is_inner = inner >> k & 1;

		fits = is_plain_f32(node[k]) && node[k]->math == JM_MATH_F32 &&
		       node[k]->out[0]->is_virtual == is_inner &&
		       !(is_inner && node[k]->accumulate);
	}
	return fits ? 0 : cuda_no_types(node[0], err);
}

static int takes_hidden(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *second = group->node[2];

	(void)dev;
	if (group->node[1]->in[0] != group->node[0]->out[0] ||
		second->in[0] != group->node[1]->out[0] || second->accumulate)
		return cuda_no_types(second, err);
	return takes_layers(group, 3, 3, jm_tensor_width(second->out[0]), err);
}

static int takes_hidden_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const unsigned inner = group->n_nodes == 8 ? 0x5b : 0x1b;
	const struct jm_node *first = group->node[0];
	const int64_t to = jm_tensor_width(group->node[2]->in[0]);
	const int code = takes_layers(group, group->n_nodes, inner, to, err);

	if (code)
		return code;
	return cuda_hidden_grad_shared((int)jm_tensor_width(first->in[0]),
		       (int)jm_tensor_width(first->out[0]),
		       (int)to) <= dev->prop.sharedMemPerBlockOptin
		       ? 0
		       : cuda_no_types(first, err);
}

/* first: the linear before gelu; weights of the second: out, bias. */
static struct cuda_hidden layers_of(
	const struct jm_node *first, const struct jm_tensor *out, const struct jm_tensor *bias)
{
	return (struct cuda_hidden){
		.rows = jm_tensor_rows(first->in[0]),
		.from = (int)jm_tensor_width(first->in[0]),
		.hidden = (int)jm_tensor_width(first->out[0]),
		.to = (int)out->dim[0],
		.x = first->in[0]->data,
		.in = first->in[1]->data,
		.in_bias = cuda_data(first->in[2]),
		.out = out->data,
		.out_bias = cuda_data(bias),
	};
}

static int run_hidden(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *second = &exec->node[2];
	struct cuda_hidden p = layers_of(&exec->node[0], second->in[1], second->in[2]);

	(void)err;
	p.y = second->out[0]->data;
	cuda_hidden(&p, dev->prop.multiProcessorCount, dev->stream);
	return 0;
}

/* Floats of a part of both layers' gradients. */
static int64_t part_of(const struct jm_node *wgrad)
{
	return jm_tensor_width(wgrad->in[0]) * (jm_tensor_width(wgrad->in[1]) + 1);
}

static int hidden_parts(const struct cuda_dev *dev, const struct jm_node *n)
{
	return cuda_hidden_parts(dev->prop.multiProcessorCount, jm_tensor_rows(n->in[0]));
}

static size_t scratch_hidden(struct cuda_dev *dev, const struct jm_group *group)
{
	int64_t each = part_of(group->node[2]) + part_of(group->node[5]);

	return (size_t)(hidden_parts(dev, group->node[0]) * each) * sizeof(float);
}

static int run_hidden_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node, *last = &n[exec->n_nodes - 1];
	int parts = hidden_parts(dev, n);
	float *partial = exec->scratch;
	const struct cuda_hidden_grad p = {
		.layers = layers_of(n, n[3].in[1], NULL),
		.in = grad_of(&n[5], parts, partial),
		.out = grad_of(&n[2], parts, partial + parts * part_of(&n[5])),
		.dx = last->out[0]->data,
		.add_dx = jm_node_adds(last, 0),
		.open = exec->n_nodes == 8 ? last->in[1]->data : NULL,
	};

	(void)err;
	cuda_hidden_grad(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_narrow_linear[] = {
	{{JM_OP_LINEAR, JM_OP_GELU_ERF, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD, JM_OP_GELU_ERF_GRAD,
		 JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD, JM_OP_GELU_ERF_GRAD},
		8, takes_hidden_grad, NULL, scratch_hidden, NULL, run_hidden_grad, NULL},
	{{JM_OP_LINEAR, JM_OP_GELU_ERF, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD, JM_OP_GELU_ERF_GRAD,
		 JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD},
		7, takes_hidden_grad, NULL, scratch_hidden, NULL, run_hidden_grad, NULL},
	{{JM_OP_LINEAR, JM_OP_GELU_ERF, JM_OP_LINEAR}, 3, takes_hidden, NULL, NULL, NULL,
		run_hidden, NULL},
	{{JM_OP_LINEAR, JM_OP_ADD, JM_OP_GELU_ERF}, 3, takes_add_gelu, NULL, NULL, NULL,
		run_product, NULL},
	{{JM_OP_LINEAR, JM_OP_GELU_ERF}, 2, takes_gelu, NULL, NULL, NULL, run_product, NULL},
	{{JM_OP_LINEAR_DGRAD, JM_OP_GELU_ERF_GRAD}, 2, takes_gelu_grad, NULL, NULL, NULL,
		run_product, NULL},
	{{JM_OP_LINEAR}, 1, takes, NULL, NULL, NULL, run_product, NULL},
	{{JM_OP_LINEAR_DGRAD}, 1, takes, NULL, NULL, NULL, run_product, NULL},
	{{JM_OP_LINEAR_WGRAD}, 1, takes, NULL, scratch_grad, NULL, run_grad, NULL},
	{.n_nodes = 0},
};
