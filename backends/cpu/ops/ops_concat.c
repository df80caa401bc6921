/* SPDX-License-Identifier: Apache-2.0 */
/* concat and split: copies pieces of memory that lie side by side in the whole tensor. */
#include "layout.h"

static int takes(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	const struct jm_tensor *whole = n->op == JM_OP_CONCAT ? n->out[0] : n->in[0];
	struct jm_tensor *const *part = n->op == JM_OP_CONCAT ? n->in : n->out;

	(void)dev;
	if (n->accumulate)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cpu cannot add to its output.",
			jm_op_name(n->op));
	for (int i = 0; i < JM_PARTS; i++)
		if (part[i] && part[i]->type != whole->type)
			return jm_err_set(err, JM_ENOSUP,
				"%s of backend cpu needs all its operands in one type.",
				jm_op_name(n->op));
	return 0;
}

/* The bytes of a piece of the whole tensor that belong to parts before part i. */
static size_t bytes_before(const struct jm_node *n, int i, size_t piece)
{
	int64_t before = 0, all = 0;

	for (int k = 0; k < JM_PARTS; k++) {
		before += k < i ? n->attr.concat.size[k] : 0;
		all += n->attr.concat.size[k];
	}
	return piece / (size_t)all * (size_t)before;
}

static int run(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	bool join = n->op == JM_OP_CONCAT;
	const struct jm_tensor *whole = join ? n->out[0] : n->in[0];
	struct jm_tensor *const *part = join ? n->in : n->out;
	int64_t pieces = jm_tensor_pieces(whole, n->attr.concat.axis);
	size_t all = whole->bytes / (size_t)pieces;

	(void)err;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
	for (int64_t k = 0; k < pieces * JM_PARTS; k++) {
		int64_t at = k / JM_PARTS;
		int i = (int)(k % JM_PARTS);
		size_t begin = bytes_before(n, i, all), each = bytes_before(n, i + 1, all) - begin;
		char *from = (char *)whole->data + (size_t)at * all + begin;
		char *to = part[i] ? (char *)part[i]->data + (size_t)at * each : NULL;

		if (to)
			memcpy(join ? from : to, join ? to : from, each);
	}
	return 0;
}

const struct cpu_op cpu_ops_concat[] = {
	{{JM_OP_CONCAT}, 1, takes, NULL, NULL, run, NULL},
	{{JM_OP_SPLIT}, 1, takes, NULL, NULL, run, NULL},
	{.n_nodes = 0},
};
