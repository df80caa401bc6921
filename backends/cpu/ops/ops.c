/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that run on own kernels: turns nodes into the kernels' arguments. */
#include <math.h>
#include <stdlib.h>

#include "backends/cpu/device/cpu.h"

#define NODE(exec)   (&(exec)->node[0])
#define KERNELS(dev) (dev)->kernels

/* ---- embed, rope ------------------------------------------------------------------------------------ */

static int run_embed(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_embed p = {
		.tokens = jm_tensor_count(n->in[0]),
		.seq = jm_tensor_width(n->in[0]),
		.width = jm_tensor_width(n->out[0]),
		.ids = n->in[0]->data,
		.table = cpu_vec(n->in[1]),
		.pos = cpu_vec(n->in[2]),
		.y = cpu_vec(n->out[0]),
		.accumulate = n->accumulate,
	};

	(void)err;
	KERNELS(dev)->rows->embed(&p, dev->threads);
	return 0;
}

static int run_embed_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_embed_grad p = {
		.tokens = jm_tensor_count(n->in[0]),
		.seq = jm_tensor_width(n->in[0]),
		.width = jm_tensor_width(n->out[0]),
		.rows = n->out[0]->dim[0],
		.positions = n->out[1] ? n->out[1]->dim[0] : 0,
		.ids = n->in[0]->data,
		.dy = cpu_vec(n->in[1]),
		.dtable = n->out[0]->data,
		.dpos = cpu_data(n->out[1]),
		.accumulate = n->accumulate,
	};

	(void)err;
	KERNELS(dev)->rows->embed_grad(&p, dev->threads);
	return 0;
}

/* exec->own holds cosines, then sines, [S,D/2] each. */
static int build_rope(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	int64_t seq = n->in[0]->dim[1], heads = n->attr.rope.heads + 2 * n->attr.rope.kv_heads;
	int64_t half = jm_tensor_width(n->in[0]) / heads / 2;
	float *table = malloc((size_t)(2 * seq * half) * sizeof *table);

	(void)dev;
	if (!table)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the angles of rope.");
	for (int64_t s = 0; s < seq; s++) {
		for (int64_t i = 0; i < half; i++) {
			double angle =
				(double)s * pow(n->attr.rope.theta, -(double)i / (double)half);
			table[s * half + i] = (float)cos(angle);
			table[(seq + s) * half + i] = (float)sin(angle);
		}
	}
	exec->own = table;
	return 0;
}

static int run_rope(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	int64_t turned = n->attr.rope.heads + n->attr.rope.kv_heads;
	int64_t seq = n->in[0]->dim[1], heads = turned + n->attr.rope.kv_heads;
	int64_t head = jm_tensor_width(n->in[0]) / heads;
	struct cpu_rope p = {
		.tokens = jm_tensor_rows(n->in[0]),
		.seq = seq,
		.turned = turned,
		.kept = n->attr.rope.kv_heads,
		.head = head,
		.x = cpu_vec(n->in[0]),
		.y = cpu_vec(n->out[0]),
		.cosine = exec->own,
		.sine = (const float *)exec->own + seq * (head / 2),
		.inverse = n->op == JM_OP_ROPE_GRAD,
		.accumulate = n->accumulate,
	};

	(void)err;
	KERNELS(dev)->rows->rope(&p, dev->threads);
	return 0;
}

static void drop_rope(struct cpu_exec *exec)
{
	free(exec->own);
	exec->own = NULL;
}

static int takes_rope(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	int64_t heads = n->attr.rope.heads + 2 * (int64_t)n->attr.rope.kv_heads;

	(void)dev;
	if (n->in[1])
		return jm_err_set(err, JM_ENOSUP,
			"The rope of backend cpu supports positions counted from 0 only, not given "
			"ones.");
	if (n->in[0]->rank != 3 || jm_tensor_width(n->in[0]) % (2 * heads))
		return jm_err_set(err, JM_ENOSUP,
			"The rope of backend cpu supports x[B,S,width] only, with heads of an even "
			"width.");
	return 0;
}

/* ---- attention ----------------------------------------------------------------------------------------- */

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

/* True if every element of the gradients is written: they are packed, or separate tensors without
 * gaps. */
static bool gradients_whole(const struct jm_node *n)
{
	int64_t rows = jm_tensor_rows(n->in[0]), depth = n->attr.attention.depth;
	int64_t q = rows * n->attr.attention.heads * depth,
		k = rows * n->attr.attention.kv_heads * depth;

	if (!n->out[0] || !n->out[1] || !n->out[2])
		return false;
	return jm_attention_is_packed(n) ||
	       (n->out[0] != n->out[1] && n->out[0] != n->out[2] && n->out[1] != n->out[2] &&
		       jm_tensor_count(n->out[0]) == q && jm_tensor_count(n->out[1]) == k &&
		       jm_tensor_count(n->out[2]) == k);
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
	if (grad && !gradients_whole(n))
		return jm_err_set(err, JM_ENOSUP,
			"attention-grad of backend cpu makes all three gradients, packed or each "
			"in a "
			"tensor without gaps.");
	if (n->in[grad ? 6 : 3] || n->attr.attention.keys != y->dim[1])
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cpu needs as many keys as queries, and no lengths.");
	return 0;
}

static size_t scratch_attention(const struct cpu_dev *dev, const struct jm_node *n)
{
	struct cpu_attention a = attention_of(n);

	return KERNELS(dev)->attentions->scratch(&a, n->op == JM_OP_ATTENTION_GRAD, dev->threads);
}

static int run_attention(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_attention a = attention_of(n);

	(void)err;
	a.y = cpu_vec(n->out[0]);
	a.lse = n->out[1]->data;
	a.scratch = exec->scratch;
	KERNELS(dev)->attentions->attention(&a, dev->threads);
	return 0;
}

static int run_attention_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cpu_attention a = attention_of(n);

	(void)err;
	a.dy = cpu_vec(n->in[0]);
	a.y = cpu_vec(n->in[4]);
	a.lse = n->in[5]->data;
	a.dq = cpu_vec(n->out[0]);
	a.dk = cpu_vec(n->out[1]);
	a.dv = cpu_vec(n->out[2]);
	a.scratch = exec->scratch;
	KERNELS(dev)->attentions->attention_grad(&a, dev->threads);
	return 0;
}

/* ---- loss ------------------------------------------------------------------------------------------------ */

static size_t scratch_xent(const struct cpu_dev *dev, const struct jm_node *n)
{
	return KERNELS(dev)->losses->scratch(
		jm_tensor_rows(n->in[0]), jm_tensor_width(n->in[0]), dev->threads);
}

static int run_xent(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	int64_t rows = jm_tensor_rows(n->in[0]);
	struct cpu_xent p = {
		.rows = rows,
		.classes = n->attr.xent.classes ? n->attr.xent.classes : jm_tensor_width(n->in[0]),
		.stride = jm_tensor_width(n->in[0]),
		.scale = n->attr.xent.scale * cpu_scale(n->in[2], 0) / (double)rows,
		.logits = cpu_vec(n->in[0]),
		.dlogits = cpu_vec(n->out[1]),
		.targets = n->in[1]->data,
		.loss = n->out[0]->data,
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	KERNELS(dev)->losses->xent(&p, dev->threads);
	return 0;
}

/* ---- the table -------------------------------------------------------------------------------------------- */

static const struct cpu_op own[] = {
	{{JM_OP_EMBED}, 1, NULL, NULL, NULL, run_embed, NULL},
	{{JM_OP_EMBED_GRAD}, 1, NULL, NULL, NULL, run_embed_grad, NULL},
	{{JM_OP_ROPE}, 1, takes_rope, NULL, build_rope, run_rope, drop_rope},
	{{JM_OP_ROPE_GRAD}, 1, takes_rope, NULL, build_rope, run_rope, drop_rope},
	{{JM_OP_ATTENTION}, 1, takes_attention, scratch_attention, NULL, run_attention, NULL},
	{{JM_OP_ATTENTION_GRAD}, 1, takes_attention, scratch_attention, NULL, run_attention_grad,
		NULL},
	{{JM_OP_SOFTMAX_XENT}, 1, NULL, scratch_xent, NULL, run_xent, NULL},
	{.n_nodes = 0},
};

static const struct cpu_op *const by_onednn[] = {&cpu_op_linear, &cpu_op_linear_dgrad,
	&cpu_op_linear_wgrad, &cpu_op_conv, &cpu_op_conv_dgrad, &cpu_op_conv_wgrad, &cpu_op_cast};

static bool covers(const struct cpu_op *op, const struct jm_node *const *node, int n)
{
	if (op->n_nodes != n)
		return false;
	for (int i = 0; i < n; i++) {
		if (op->cover[i] != node[i]->op)
			return false;
	}
	return true;
}

static const struct cpu_op *find_in(
	const struct cpu_op *table, const struct jm_node *const *node, int n)
{
	for (; table->n_nodes; table++)
		if (covers(table, node, n))
			return table;
	return NULL;
}

const struct cpu_op *cpu_op_find(const struct jm_node *const *node, int n)
{
	const struct cpu_op *const tables[] = {cpu_ops_image, cpu_ops_act, cpu_ops_norm,
		cpu_ops_quantize, cpu_ops_tokens, cpu_ops_update, own};
	const struct cpu_op *found = NULL;

	for (size_t i = 0; i < sizeof by_onednn / sizeof *by_onednn; i++) {
		if (covers(by_onednn[i], node, n))
			return by_onednn[i];
	}
	for (size_t i = 0; !found && i < sizeof tables / sizeof *tables; i++)
		found = find_in(tables[i], node, n);
	return found;
}
