/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, sums and dropout on own kernels: turns nodes into the kernels' arguments. */
#include <math.h>

#include "engine/graph/rng.h"
#include "layout.h"

/* ---- elementwise: any layout, including its padding (f(0) = 0) ------------------------------- */

/* The kind of an activation, of gates, or of the gradient of either. */
static enum cpu_act act_of(enum jm_op op)
{
	switch (op) {
	case JM_OP_RELU:
	case JM_OP_RELU_GRAD:
		return CPU_RELU;
	case JM_OP_SILU:
	case JM_OP_SILU_GRAD:
	case JM_OP_SWIGLU:
	case JM_OP_SWIGLU_GRAD:
		return CPU_SILU;
	case JM_OP_GELU_QUICK:
	case JM_OP_GELU_QUICK_GRAD:
		return CPU_GELU_QUICK;
	case JM_OP_GELU:
	case JM_OP_GELU_GRAD:
		return CPU_GELU;
	default:
		return CPU_GELU_ERF;
	}
}

static int run_act(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;

	(void)err;
	dev->kernels->acts->act(act_of(n->op), cpu_vec(n->in[0]), cpu_vec(n->out[0]),
		cpu_layout_elements(n->out[0]), jm_node_adds(n, 0), dev->threads);
	return 0;
}

static int run_act_grad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;

	(void)err;
	dev->kernels->acts->grad(act_of(n->op), cpu_vec(n->in[0]), cpu_vec(n->in[1]),
		cpu_vec(n->out[0]), cpu_layout_elements(n->out[0]), jm_node_adds(n, 0),
		dev->threads);
	return 0;
}

static int run_add(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;

	(void)err;
	dev->kernels->pointwise->add(cpu_vec(n->in[0]), cpu_vec(n->in[1]), cpu_vec(n->out[0]),
		cpu_layout_elements(n->out[0]), jm_node_adds(n, 0), dev->threads);
	return 0;
}

static int run_gated(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	bool back = n->op == JM_OP_SWIGLU_GRAD || n->op == JM_OP_GEGLU_GRAD;
	enum cpu_act act = act_of(n->op);
	const struct jm_tensor *y = back ? n->in[0] : n->out[0];
	struct cpu_gated p = {
		.rows = jm_tensor_rows(y),
		.width = jm_tensor_width(y),
		.x = cpu_vec(back ? n->in[1] : n->in[0]),
		.y = cpu_vec(y),
		.dx = cpu_vec(back ? n->out[0] : NULL),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	if (back)
		dev->kernels->acts->gated_grad(act, &p, dev->threads);
	else
		dev->kernels->acts->gated(act, &p, dev->threads);
	return 0;
}

static int run_dropout(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	const int32_t *now = n->in[1]->data;
	double p = n->attr.dropout.p;
	struct cpu_dropout how = {
		.seed = jm_rng(n->attr.dropout.seed, (uint64_t)now[0]),
		.below = (uint32_t)floor(p * 4294967296.0),
		.scale = (float)(1 / (1 - p)),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	dev->kernels->acts->dropout(cpu_vec(n->in[0]), cpu_vec(n->out[0]),
		jm_tensor_count(n->out[0]), &how, dev->threads);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_act[] = {
	{{JM_OP_GELU}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_GELU_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_ADD}, 1, NULL, NULL, NULL, run_add, NULL},
	{{JM_OP_RELU}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_SILU}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_GELU_QUICK}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_GELU_ERF}, 1, NULL, NULL, NULL, run_act, NULL},
	{{JM_OP_RELU_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_SILU_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_GELU_QUICK_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_GELU_ERF_GRAD}, 1, NULL, NULL, NULL, run_act_grad, NULL},
	{{JM_OP_SWIGLU}, 1, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_SWIGLU_GRAD}, 1, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_GEGLU}, 1, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_GEGLU_GRAD}, 1, NULL, NULL, NULL, run_gated, NULL},
	{{JM_OP_DROPOUT}, 1, NULL, NULL, NULL, run_dropout, NULL},
	{.n_nodes = 0},
};
