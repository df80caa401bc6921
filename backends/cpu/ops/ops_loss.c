/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy on own kernels: turns nodes into the kernels' arguments. */
#include "backends/cpu/device/cpu.h"

static size_t scratch_xent(const struct cpu_dev *dev, const struct jm_node *n)
{
	return dev->kernels->losses->scratch(
		jm_tensor_rows(n->in[0]), jm_tensor_width(n->in[0]), dev->threads);
}

/* The rows that count, at least 1. */
static int64_t counted(const struct jm_node *n)
{
	const int32_t *target = n->in[1]->data;
	int64_t rows = jm_tensor_rows(n->in[0]), all = 0;

	if (!n->attr.xent.ignores)
		return rows;
	for (int64_t r = 0; r < rows; r++)
		all += target[r] >= 0;
	return all ? all : 1;
}

static int run_xent(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	double each = n->attr.xent.weight / (double)counted(n);
	struct cpu_xent p = {
		.rows = jm_tensor_rows(n->in[0]),
		.classes = n->attr.xent.classes ? n->attr.xent.classes : jm_tensor_width(n->in[0]),
		.stride = jm_tensor_width(n->in[0]),
		.scale = each * n->attr.xent.scale * cpu_scale(n->in[2], 0),
		.each = each,
		.logits = cpu_vec(n->in[0]),
		.dlogits = cpu_vec(n->out[1]),
		.targets = n->in[1]->data,
		.loss = n->out[0]->data,
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	dev->kernels->losses->xent(&p, dev->threads);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_loss[] = {
	{{JM_OP_SOFTMAX_XENT}, 1, NULL, scratch_xent, NULL, run_xent, NULL},
	{.n_nodes = 0},
};
