/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm, alone, with the add before or the cast after: turns nodes into the
 * kernels' arguments. */
#include "backends/cpu/device/cpu.h"

/* True for layer norm (x, gamma, beta; y, mean, rstd), false for RMS norm (x, gamma; y, rstd). */
static bool centred(const struct jm_node *n)
{
	return n->op == JM_OP_LAYERNORM || n->op == JM_OP_LAYERNORM_GRAD;
}

static bool backward(const struct jm_node *n)
{
	return n->op == JM_OP_LAYERNORM_GRAD || n->op == JM_OP_RMSNORM_GRAD;
}

static size_t scratch(const struct cpu_dev *dev, const struct jm_node *n)
{
	return dev->kernels->norms->scratch(jm_tensor_width(n->in[0]), backward(n), dev->threads);
}

/* sum: the node before it, or NULL. */
static void norm(const struct cpu_dev *dev, const struct jm_node *n, const struct jm_node *sum,
	void *scratch)
{
	struct cpu_norm p = {
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[0]),
		.eps = n->attr.norm.eps,
		.x = cpu_vec(sum ? sum->in[0] : n->in[0]),
		.z = cpu_vec(sum ? sum->in[1] : NULL),
		.sum = cpu_vec(sum ? sum->out[0] : NULL),
		.y = cpu_vec(n->out[0]),
		.gamma = n->in[1]->data,
		.beta = centred(n) ? cpu_data(n->in[2]) : NULL,
		.mean = centred(n) ? n->out[1]->data : NULL,
		.rstd = n->out[centred(n) ? 2 : 1]->data,
		.accumulate = n->accumulate,
		.scratch = scratch,
	};

	dev->kernels->norms->norm(&p, dev->threads);
}

static int run_norm(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	(void)err;
	norm(dev, &exec->node[0], NULL, exec->scratch);
	return 0;
}

static int run_sum(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	(void)err;
	norm(dev, &exec->node[1], &exec->node[0], exec->scratch);
	return 0;
}

static int takes_norm(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	if (n->accumulate & ~1u)
		return jm_err_set(
			err, JM_ENOSUP, "A norm of backend cpu cannot add to its statistics.");
	return 0;
}

static int takes_sum(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	if (n[0].accumulate || n[0].out[0]->is_virtual || n[0].out[0] != n[1].in[0])
		return jm_err_set(
			err, JM_ENOSUP, "Only a sum that is kept is fused with its norm.");
	return takes_norm(dev, &n[1], err);
}

/* Runs the gradient, alone or with the cast of dx, in which case dx need not be stored. */
static int run_grad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_node *cast = exec->op->n_nodes > 1 ? &exec->node[1] : NULL;
	struct cpu_norm_grad p = {
		.rows = jm_tensor_rows(n->in[1]),
		.width = jm_tensor_width(n->in[1]),
		.dy = cpu_vec(n->in[0]),
		.x = cpu_vec(n->in[1]),
		.dx = cpu_vec(cast && n->out[0]->is_virtual ? NULL : n->out[0]),
		.copy = cpu_vec(cast ? cast->out[0] : NULL),
		.gamma = n->in[2]->data,
		.mean = centred(n) ? n->in[3]->data : NULL,
		.rstd = n->in[centred(n) ? 4 : 3]->data,
		.dgamma = cpu_data(n->out[1]),
		.dbeta = centred(n) ? cpu_data(n->out[2]) : NULL,
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	dev->kernels->norms->grad(&p, dev->threads);
	return 0;
}

static int takes_cast(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	if (n[0].out[0] != n[1].in[0] || n[0].out[0]->type != JM_F32 || n[1].accumulate ||
		(jm_node_adds(&n[0], 0) && n[0].out[0]->is_virtual))
		return jm_err_set(err, JM_ENOSUP,
			"Only an f32 gradient of a norm's input is cast together with it.");
	return 0;
}

const struct cpu_op cpu_ops_norm[] = {
	{{JM_OP_LAYERNORM}, 1, takes_norm, scratch, NULL, run_norm, NULL},
	{{JM_OP_RMSNORM}, 1, takes_norm, scratch, NULL, run_norm, NULL},
	{{JM_OP_ADD, JM_OP_LAYERNORM}, 2, takes_sum, scratch, NULL, run_sum, NULL},
	{{JM_OP_ADD, JM_OP_RMSNORM}, 2, takes_sum, scratch, NULL, run_sum, NULL},
	{{JM_OP_LAYERNORM_GRAD}, 1, NULL, scratch, NULL, run_grad, NULL},
	{{JM_OP_RMSNORM_GRAD}, 1, NULL, scratch, NULL, run_grad, NULL},
	{{JM_OP_LAYERNORM_GRAD, JM_OP_CAST}, 2, takes_cast, scratch, NULL, run_grad, NULL},
	{{JM_OP_RMSNORM_GRAD, JM_OP_CAST}, 2, takes_cast, scratch, NULL, run_grad, NULL},
	{.n_nodes = 0},
};
