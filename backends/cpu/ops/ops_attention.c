/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on own kernels: turns nodes into the kernels' arguments. */
#include "backends/cpu/device/cpu.h"

static struct cpu_view view_of(const struct jm_view *v)
{
	return (struct cpu_view){v->offset, v->batch, v->row, v->head};
}

/* q, k and v are the first inputs of the op; in its gradient they follow dy. */
static struct cpu_attention attention_of(const struct jm_node *n)
{
	bool grad = n->op == JM_OP_ATTENTION_GRAD;
	const struct jm_tensor *y = grad ? n->in[0] : n->out[0];

	return (struct cpu_attention){
		.batch = y->dim[0],
		.seq = y->dim[1],
		.keys = n->attr.attention.keys,
		.heads = n->attr.attention.heads,
		.groups = n->attr.attention.kv_heads,
		.head = n->attr.attention.depth,
		.scale = n->attr.attention.scale,
		.causal = n->attr.attention.causal,
		.q = cpu_vec(n->in[grad]),
		.k = cpu_vec(n->in[grad + 1]),
		.v = cpu_vec(n->in[grad + 2]),
		.q_view = view_of(&n->attr.attention.q),
		.k_view = view_of(&n->attr.attention.k),
		.v_view = view_of(&n->attr.attention.v),
		.accumulate = n->accumulate,
	};
}

static int takes_attention(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	bool grad = n->op == JM_OP_ATTENTION_GRAD;
	const struct jm_tensor *y = grad ? n->in[0] : n->out[0];

	(void)dev;
	if (!grad && n->accumulate)
		return jm_err_set(
			err, JM_ENOSUP, "Attention of backend cpu cannot add to its output.");
	if (grad && n->accumulate && n->accumulate != 7)
		return jm_err_set(err, JM_ENOSUP,
			"attention-grad of backend cpu adds to all of its results or to none.");
	if (grad && !jm_attention_grads_are_whole(n))
		return jm_err_set(err, JM_ENOSUP,
			"attention-grad of backend cpu makes all three gradients, packed or each "
			"in a "
			"tensor without gaps.");
	if (n->in[grad ? 6 : 3] ||
		(n->attr.attention.causal && n->attr.attention.keys != y->dim[1]))
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cpu needs as many keys as queries if it is causal, "
			"and no lengths.");
	return 0;
}

static size_t scratch_attention(const struct cpu_dev *dev, const struct jm_node *n)
{
	struct cpu_attention a = attention_of(n);

	return dev->kernels->attentions->scratch(&a, n->op == JM_OP_ATTENTION_GRAD, dev->threads);
}

static int run_attention(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_attention a = attention_of(n);

	(void)err;
	a.y = cpu_vec(n->out[0]);
	a.lse = n->out[1]->data;
	a.scratch = exec->scratch;
	dev->kernels->attentions->attention(&a, dev->threads);
	return 0;
}

static int run_attention_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_attention a = attention_of(n);

	(void)err;
	a.dy = cpu_vec(n->in[0]);
	a.y = cpu_vec(n->in[4]);
	a.lse = n->in[5]->data;
	a.dq = cpu_vec(n->out[0]);
	a.dk = cpu_vec(n->out[1]);
	a.dv = cpu_vec(n->out[2]);
	a.scratch = exec->scratch;
	dev->kernels->attentions->attention_grad(&a, dev->threads);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_attention[] = {
	{{JM_OP_ATTENTION}, 1, takes_attention, scratch_attention, NULL, run_attention, NULL},
	{{JM_OP_ATTENTION_GRAD}, 1, takes_attention, scratch_attention, NULL, run_attention_grad,
		NULL},
	{.n_nodes = 0},
};
