/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm, also with an add before, or a product after: turns nodes into arguments
 * of norm.cu and norm_grad.cu. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "ops_linear.h"
#include "op_rows.h"

static int no_sums(const struct jm_node *n, struct jm_err *err)
{
	if (!n->accumulate)
		return 0;
	return jm_err_set(
		err, JM_ENOSUP, "%s of backend cuda cannot add to its results.", jm_op_name(n->op));
}

static int not_known(const struct jm_node *n, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"Backend cuda has no %s of a width of %lld in these types (%s, %s).",
		jm_op_name(n->op), (long long)jm_tensor_width(n->in[0]),
		jm_dtype_name(n->in[0]->type), jm_dtype_name(n->out[0]->type));
}

/* ---- forward --------------------------------------------------------------------------------- */

static struct cuda_norm norm_of(const struct jm_node *n)
{
	bool centred = n->op == JM_OP_LAYERNORM;

	return (struct cuda_norm){
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[0]),
		.eps = (float)n->attr.norm.eps,
		.centred = centred,
		.x = cuda_vec(n->in[0]),
		.y = cuda_vec(n->out[0]),
		.gamma = cuda_data(n->in[1]),
		.beta = centred ? cuda_data(n->in[2]) : NULL,
		.mean = centred ? cuda_data(n->out[1]) : NULL,
		.rstd = cuda_data(n->out[1 + centred]),
	};
}

/* The add before the norm: its result is written only where another node reads it. */
static struct cuda_norm joined_of(const struct jm_node *add, const struct jm_node *n)
{
	struct cuda_norm p = norm_of(n);

	p.x = cuda_vec(add->in[0]);
	p.b = cuda_vec(add->in[1]);
	if (!add->out[0]->is_virtual)
		p.sum = cuda_vec(add->out[0]);
	return p;
}

static int takes_norm(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_norm p = norm_of(n);
	int code = no_sums(n, err);

	(void)dev;
	if (code)
		return code;
	return cuda_norm_knows(&p) ? 0 : not_known(n, err);
}

static int takes_joined(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *add = group->node[0], *n = group->node[1];
	struct cuda_norm p = joined_of(add, n);
	int code = no_sums(add, err);

	(void)dev;
	if (!code)
		code = no_sums(n, err);
	if (code)
		return code;
	p.b.data = &p; /* not NULL: present; the address is not used */
	if (add->out[0] != n->in[0] || add->out[0]->type != add->in[0]->type ||
		!cuda_norm_knows(&p))
		return not_known(n, err);
	return 0;
}

static int run_norm(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_norm p = exec->n_nodes > 1 ? joined_of(&exec->node[0], &exec->node[1])
					       : norm_of(&exec->node[0]);

	(void)err;
	cuda_norm(&p, dev->stream);
	return 0;
}

/* ---- backward -------------------------------------------------------------------------------- */

static struct cuda_norm_grad grad_of(const struct jm_node *n)
{
	bool centred = n->op == JM_OP_LAYERNORM_GRAD;

	return (struct cuda_norm_grad){
		.rows = jm_tensor_rows(n->in[0]),
		.width = jm_tensor_width(n->in[0]),
		.centred = centred,
		.dy = cuda_vec(n->in[0]),
		.x = cuda_vec(n->in[1]),
		.gamma = cuda_data(n->in[2]),
		.mean = centred ? cuda_data(n->in[3]) : NULL,
		.rstd = cuda_data(n->in[3 + centred]),
		.dx = cuda_vec(n->out[0]),
		.dgamma = cuda_data(n->out[1]),
		.dbeta = centred ? cuda_data(n->out[2]) : NULL,
		.add_dx = jm_node_adds(n, 0),
		.add_dgamma = jm_node_adds(n, 1),
		.add_dbeta = jm_node_adds(n, 2),
	};
}

/* The linear-wgrad that follows; NULL = the group has none. */
static const struct jm_node *wgrad_of(const struct jm_group *group)
{
	return group->n_nodes > 1 ? group->node[1] : NULL;
}

static int takes_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *wgrad = wgrad_of(group);
	struct cuda_norm_grad p = grad_of(n);
	float sums;

	p.sums = wgrad ? &sums : NULL; /* not NULL: present; the address is not used */
	if (n->out[0]->type != n->in[1]->type || !cuda_norm_grad_knows(&p))
		return not_known(n, err);
	return wgrad ? cuda_wgrad_takes(dev, wgrad, n->out[0], err) : 0;
}

static size_t scratch_grad(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct jm_node *n = group->node[0], *wgrad = wgrad_of(group);
	struct cuda_norm_grad p = grad_of(n);
	size_t vectors = (p.centred ? 2 : 1) + (wgrad ? 1 : 0);

	if (!n->out[1] && !n->out[2] && !wgrad)
		return 0;
	return (size_t)cuda_norm_grad_blocks(dev->prop.multiProcessorCount, &p) * vectors *
	       (size_t)p.width * sizeof(float);
}

static int run_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_norm_grad p = grad_of(&exec->node[0]);

	p.partial = exec->scratch;
	if (exec->n_nodes > 1) {
		p.sums = exec->node[1].out[1]->data;
		p.add_sums = jm_node_adds(&exec->node[1], 1);
	}
	p.blocks = cuda_norm_grad_blocks(dev->prop.multiProcessorCount, &p);
	cuda_norm_grad(&p, dev->stream);
	return exec->own ? cuda_wgrad_run(dev, exec->own, err) : 0;
}

const struct cuda_op cuda_ops_norm[] = {
	{{JM_OP_LAYERNORM}, 1, takes_norm, NULL, NULL, NULL, run_norm, NULL},
	{{JM_OP_RMSNORM}, 1, takes_norm, NULL, NULL, NULL, run_norm, NULL},
	{{JM_OP_ADD, JM_OP_LAYERNORM}, 2, takes_joined, NULL, NULL, NULL, run_norm, NULL},
	{{JM_OP_ADD, JM_OP_RMSNORM}, 2, takes_joined, NULL, NULL, NULL, run_norm, NULL},
	{{JM_OP_LAYERNORM_GRAD}, 1, takes_grad, NULL, scratch_grad, NULL, run_grad, NULL},
	{{JM_OP_RMSNORM_GRAD}, 1, takes_grad, NULL, scratch_grad, NULL, run_grad, NULL},
	{{JM_OP_LAYERNORM_GRAD, JM_OP_LINEAR_WGRAD}, 2, takes_grad, NULL, scratch_grad,
		cuda_wgrad_build, run_grad, cuda_wgrad_drop},
	{.n_nodes = 0},
};
