/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings and rotary positions on own kernels: turns nodes into the kernels' arguments. */
#include <math.h>
#include <stdlib.h>

#include "backends/cpu/device/cpu.h"

static int run_embed(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
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
	dev->kernels->rows->embed(&p, dev->threads);
	return 0;
}

static int run_embed_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
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
	dev->kernels->rows->embed_grad(&p, dev->threads);
	return 0;
}

/* exec->own holds cosines, then sines, [S,D/2] each. */
static int build_rope(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	int64_t seq = n->in[0]->dim[1], heads = n->attr.rope.heads + 2 * n->attr.rope.kv_heads;
	int64_t half = jm_tensor_width(n->in[0]) / heads / 2;
	float *table = malloc((size_t)(2 * seq * half) * sizeof *table);

	(void)dev;
	if (!table)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the angles of rope.");
	for (int64_t s = 0; s < seq; s++) {
		for (int64_t i = 0; i < half; i++) {
			double angle =
				(double)s * jm_rotary_speed(&n->attr.rope.rotary, i, 2 * half);
			table[s * half + i] = (float)cos(angle);
			table[(seq + s) * half + i] = (float)sin(angle);
		}
	}
	exec->own = table;
	return 0;
}

static int run_rope(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
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
	dev->kernels->rows->rope(&p, dev->threads);
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

/* ---- the table ------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_embed[] = {
	{{JM_OP_EMBED}, 1, NULL, NULL, NULL, run_embed, NULL},
	{{JM_OP_EMBED_GRAD}, 1, NULL, NULL, NULL, run_embed_grad, NULL},
	{{JM_OP_ROPE}, 1, takes_rope, NULL, build_rope, run_rope, drop_rope},
	{{JM_OP_ROPE_GRAD}, 1, takes_rope, NULL, build_rope, run_rope, drop_rope},
	{.n_nodes = 0},
};
