/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, RMS norm, dropout and optimizers that run on our own kernels: from nodes to arguments. */
#include <math.h>

#include "engine/rng.h"
#include "layout.h"

#define NODE(exec)   (&(exec)->node[0])
#define KERNELS(dev) (dev)->kernels

static bool bit(const struct jm_node *node, int i)
{
	return node->accumulate >> i & 1;
}

/* ---- elementwise: whatever the layout, the padding included (f(0) = 0) ---------------------------------- */

static enum cpu_act act_of(enum jm_op op)
{
	switch (op) {
	case JM_OP_RELU:
	case JM_OP_RELU_GRAD:
		return CPU_RELU;
	case JM_OP_SILU:
	case JM_OP_SILU_GRAD:
		return CPU_SILU;
	default:
		return CPU_GELU_ERF;
	}
}

static int run_act(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);

	(void)err;
	KERNELS(dev)->acts->act(act_of(n->op), cpu_vec(n->in[0]), cpu_vec(n->out[0]),
		cpu_layout_elements(n->out[0]), bit(n, 0), dev->threads);
	return 0;
}

static int run_act_grad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);

	(void)err;
	KERNELS(dev)->acts->grad(act_of(n->op), cpu_vec(n->in[0]), cpu_vec(n->in[1]),
		cpu_vec(n->out[0]), cpu_layout_elements(n->out[0]), bit(n, 0), dev->threads);
	return 0;
}

static int run_add(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);

	(void)err;
	KERNELS(dev)->pointwise->add(cpu_vec(n->in[0]), cpu_vec(n->in[1]), cpu_vec(n->out[0]),
		cpu_layout_elements(n->out[0]), bit(n, 0), dev->threads);
	return 0;
}

static int run_swiglu(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	bool back = n->op == JM_OP_SWIGLU_GRAD;
	const struct jm_tensor *y = back ? n->in[0] : n->out[0];
	struct cpu_swiglu p = {
		.rows = jm_tensor_rows(y),
		.width = jm_tensor_width(y),
		.x = cpu_vec(back ? n->in[1] : n->in[0]),
		.y = cpu_vec(y),
		.dx = cpu_vec(back ? n->out[0] : NULL),
		.accumulate = bit(n, 0),
	};

	(void)err;
	if (back)
		KERNELS(dev)->acts->swiglu_grad(&p, dev->threads);
	else
		KERNELS(dev)->acts->swiglu(&p, dev->threads);
	return 0;
}

static int run_dropout(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	const int32_t *now = n->in[1]->data;
	double p = n->attr.dropout.p;
	struct cpu_dropout how = {
		.seed = jm_rng(n->attr.dropout.seed, (uint64_t)now[0]),
		.below = (uint32_t)floor(p * 4294967296.0),
		.scale = (float)(1 / (1 - p)),
		.accumulate = bit(n, 0),
	};

	(void)err;
	KERNELS(dev)->acts->dropout(cpu_vec(n->in[0]), cpu_vec(n->out[0]),
		jm_tensor_count(n->out[0]), &how, dev->threads);
	return 0;
}

/* ---- RMS norm --------------------------------------------------------------------------------------------- */

static size_t scratch_rmsnorm(const struct cpu_dev *dev, const struct jm_node *n)
{
	return KERNELS(dev)->rmsnorms->scratch(
		jm_tensor_width(n->in[0]), n->op == JM_OP_RMSNORM_GRAD, dev->threads);
}

static struct cpu_layernorm rmsnorm_of(const struct jm_node *n, void *scratch)
{
	return (struct cpu_layernorm){
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[0]),
		.eps = n->attr.norm.eps,
		.x = cpu_vec(n->in[0]),
		.y = cpu_vec(n->out[0]),
		.gamma = n->in[1]->data,
		.rstd = n->out[1]->data,
		.accumulate = n->accumulate,
		.scratch = scratch,
	};
}

static int run_rmsnorm(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	struct cpu_layernorm p = rmsnorm_of(NODE(exec), exec->scratch);

	(void)err;
	KERNELS(dev)->rmsnorms->layernorm(&p, dev->threads);
	return 0;
}

static int takes_add_rmsnorm(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	if (n[0].accumulate || n[0].out[0]->is_virtual || n[0].out[0] != n[1].in[0])
		return jm_err_set(
			err, JM_ENOSUP, "Only a sum that is kept is joined with its RMS norm.");
	return 0;
}

static int run_add_rmsnorm(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *sum = &exec->node[0];
	struct cpu_layernorm p = rmsnorm_of(&exec->node[1], exec->scratch);

	(void)err;
	p.x = cpu_vec(sum->in[0]);
	p.z = cpu_vec(sum->in[1]);
	p.sum = cpu_vec(sum->out[0]);
	KERNELS(dev)->rmsnorms->layernorm(&p, dev->threads);
	return 0;
}

static int run_rmsnorm_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_layernorm_grad p = {
		.rows = jm_tensor_rows(n->in[1]),
		.width = jm_tensor_width(n->in[1]),
		.dy = cpu_vec(n->in[0]),
		.x = cpu_vec(n->in[1]),
		.dx = cpu_vec(n->out[0]),
		.gamma = n->in[2]->data,
		.rstd = n->in[3]->data,
		.dgamma = n->out[1]->data,
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	KERNELS(dev)->rmsnorms->layernorm_grad(&p, dev->threads);
	return 0;
}

/* ---- optimizers ------------------------------------------------------------------------------------------- */

static int run_adam(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_adamw a = {
		.n = jm_tensor_count(n->in[0]),
		.n_decay = n->attr.adamw.n_decay,
		.g = n->in[0]->data,
		.norm = cpu_data(n->in[1]),
		.now = n->in[2]->data,
		.p = n->out[0]->data,
		.m = n->out[1]->data,
		.v = n->out[2]->data,
		.beta1 = n->attr.adamw.beta1,
		.beta2 = n->attr.adamw.beta2,
		.eps = n->attr.adamw.eps,
		.weight_decay = n->attr.adamw.weight_decay,
		.clip = n->attr.adamw.clip,
		.unscale = cpu_scale(n->in[3], 1),
		.bf16 = n->out[0]->type == JM_BF16,
	};

	(void)err;
	KERNELS(dev)->sgds->adam(&a, dev->threads);
	return 0;
}

static int run_sgd(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_sgd a = {
		.n = jm_tensor_count(n->in[0]),
		.n_decay = n->attr.sgd.n_decay,
		.g = n->in[0]->data,
		.norm = cpu_data(n->in[1]),
		.now = n->in[2]->data,
		.p = n->out[0]->data,
		.m = n->out[1]->data,
		.momentum = n->attr.sgd.momentum,
		.weight_decay = n->attr.sgd.weight_decay,
		.clip = n->attr.sgd.clip,
		.unscale = cpu_scale(n->in[3], 1),
		.nesterov = n->attr.sgd.nesterov,
		.bf16 = n->out[0]->type == JM_BF16,
	};

	(void)err;
	KERNELS(dev)->sgds->sgd(&a, dev->threads);
	return 0;
}

/* ---- the table -------------------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_more[] = {
	{{JM_OP_ADD}, 1, NULL, NULL, NULL, run_add, NULL},
	{{JM_OP_RELU}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_SILU}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_GELU_ERF}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_RELU_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_SILU_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_GELU_ERF_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_SWIGLU}, 1, NULL, NULL, NULL, run_swiglu, NULL},
	{{JM_OP_SWIGLU_GRAD}, 1, NULL, NULL, NULL, run_swiglu, NULL},
	{{JM_OP_DROPOUT}, 1, NULL, NULL, NULL, run_dropout, NULL},
	{{JM_OP_RMSNORM}, 1, NULL, scratch_rmsnorm, NULL, run_rmsnorm, NULL},
	{{JM_OP_RMSNORM_GRAD}, 1, NULL, scratch_rmsnorm, NULL, run_rmsnorm_grad, NULL},
	{{JM_OP_ADD, JM_OP_RMSNORM}, 2, takes_add_rmsnorm, scratch_rmsnorm, NULL, run_add_rmsnorm,
		NULL},
	{{JM_OP_ADAM}, 1, NULL, NULL, NULL, run_adam, NULL},
	{{JM_OP_SGD}, 1, NULL, NULL, NULL, run_sgd, NULL},
	{.n_nodes = 0},
};
