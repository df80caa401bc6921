/* SPDX-License-Identifier: Apache-2.0 */
/* Attention that cuDNN does not run: turns nodes into the arguments of attention.cu. */
#include "backends/cuda/device/cuda.h"
#include "op_rows.h"

/* qkv, which packs the three views, is input 0 of the op and input 1 of its gradient. */
static struct cuda_attention attention_of(const struct jm_node *n)
{
	const struct jm_tensor *qkv = n->in[n->op == JM_OP_ATTENTION_GRAD];
	int heads = n->attr.attention.heads, groups = n->attr.attention.kv_heads;

	return (struct cuda_attention){
		.batch = qkv->dim[0],
		.seq = qkv->dim[1],
		.heads = heads,
		.groups = groups,
		.depth = (int)(jm_tensor_width(qkv) / (heads + 2 * (int64_t)groups)),
		.scale = (float)n->attr.attention.scale,
		.causal = n->attr.attention.causal,
		.accumulate = jm_node_adds(n, 0),
		.qkv = cuda_vec(qkv),
	};
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_attention p = attention_of(n);

	(void)dev;
	if (!jm_attention_is_packed(n))
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cuda needs queries, keys and values packed in one "
			"tensor.");
	if (n->op == JM_OP_ATTENTION && n->accumulate)
		return jm_err_set(
			err, JM_ENOSUP, "Attention of backend cuda cannot add to its results.");
	if (n->accumulate && n->accumulate != 7)
		return jm_err_set(err, JM_ENOSUP,
			"attention-grad of backend cuda adds to all of its results or to none.");
	if (p.depth > CUDA_ATTENTION_WIDEST)
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cuda takes heads of a width of at most %d, not %d.",
			CUDA_ATTENTION_WIDEST, p.depth);
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
	p.dqkv = cuda_vec(n->out[0]);
	p.delta = exec->scratch;
	cuda_attention_grad(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_attention[] = {
	{{JM_OP_ATTENTION}, 1, takes, NULL, NULL, NULL, run_forward, NULL},
	{{JM_OP_ATTENTION_GRAD}, 1, takes, NULL, scratch_backward, NULL, run_backward, NULL},
	{.n_nodes = 0},
};
