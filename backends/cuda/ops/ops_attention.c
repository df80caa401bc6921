/* SPDX-License-Identifier: Apache-2.0 */
/* Attention that cuDNN does not run: turns nodes into the arguments of attention.cu. */
#include "backends/cuda/device/cuda.h"
#include "op_rows.h"

static struct cuda_heads heads_of(const struct jm_tensor *t, const struct jm_view *v)
{
	struct cuda_heads h = {cuda_vec(t), v->batch, v->row, v->head};

	if (h.data.data)
		h.data.data = (char *)h.data.data + (size_t)v->offset * jm_dtype_bytes(t->type);
	return h;
}

/* q, k and v are the first inputs of the op; in its gradient they follow dy. */
static struct cuda_attention attention_of(const struct jm_node *n)
{
	bool grad = n->op == JM_OP_ATTENTION_GRAD;
	const struct jm_tensor *y = grad ? n->in[0] : n->out[0];

	return (struct cuda_attention){
		.batch = y->dim[0],
		.seq = y->dim[1],
		.keys = n->attr.attention.keys,
		.heads = n->attr.attention.heads,
		.groups = n->attr.attention.kv_heads,
		.depth = (int)n->attr.attention.depth,
		.scale = (float)n->attr.attention.scale,
		.causal = n->attr.attention.causal,
		.accumulate = jm_node_adds(n, 0),
		.q = heads_of(n->in[grad], &n->attr.attention.q),
		.k = heads_of(n->in[grad + 1], &n->attr.attention.k),
		.v = heads_of(n->in[grad + 2], &n->attr.attention.v),
	};
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_attention p = attention_of(n);

	(void)dev;
	if (n->in[n->op == JM_OP_ATTENTION_GRAD ? 6 : 3] || (p.causal && p.keys != p.seq))
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cuda needs as many keys as queries if it is causal, "
			"and no lengths.");
	if (n->op == JM_OP_ATTENTION_GRAD && !jm_attention_grads_are_whole(n))
		return jm_err_set(err, JM_ENOSUP,
			"attention-grad of backend cuda makes all three gradients, packed or each "
			"in "
			"a tensor without gaps.");
	if (n->op == JM_OP_ATTENTION && n->accumulate)
		return jm_err_set(
			err, JM_ENOSUP, "Attention of backend cuda cannot add to its results.");
	if (n->accumulate && n->accumulate != 7)
		return jm_err_set(err, JM_ENOSUP,
			"attention-grad of backend cuda adds to all of its results or to none.");
	if (p.depth > CUDA_ATTENTION_WIDEST)
		return jm_err_set(err, JM_ENOSUP,
			"%s of backend cuda takes heads of a width of at most %d, not %d.",
			jm_op_name(n->op), CUDA_ATTENTION_WIDEST, p.depth);
	if (n->in[0]->type != n->out[0]->type)
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cuda needs all operands in one type.");
	return 0;
}

static int run_forward(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_attention p = attention_of(n);

	(void)err;
	p.y = cuda_vec(n->out[0]);
	p.lse = n->out[1]->data;
	cuda_attention(&p, dev->stream);
	return 0;
}

static size_t scratch_backward(struct cuda_dev *dev, const struct jm_group *group)
{
	(void)dev;
	return (size_t)jm_tensor_count(group->node[0]->in[5]) * sizeof(float);
}

static int run_backward(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_attention p = attention_of(n);

	(void)err;
	p.dy = cuda_vec(n->in[0]);
	p.y = cuda_vec(n->in[4]);
	p.lse = n->in[5]->data;
	p.dq = heads_of(n->out[0], &n->attr.attention.q);
	p.dk = heads_of(n->out[1], &n->attr.attention.k);
	p.dv = heads_of(n->out[2], &n->attr.attention.v);
	p.delta = exec->scratch;
	cuda_attention_grad(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_attention[] = {
	{{JM_OP_ATTENTION}, 1, takes, NULL, NULL, NULL, run_forward, NULL},
	{{JM_OP_ATTENTION_GRAD}, 1, takes, NULL, scratch_backward, NULL, run_backward, NULL},
	{.n_nodes = 0},
};
