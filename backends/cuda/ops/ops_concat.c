/* SPDX-License-Identifier: Apache-2.0 */
/* concat and split: turns nodes into the arguments of pointwise.cu. */
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/layouts.h"
#include "op_rows.h"

#define PARTS ((1u << JM_PARTS) - 1) /* operands, as bits */

static const struct jm_tensor *whole_of(const struct jm_node *n)
{
	return n->op == JM_OP_CONCAT ? n->out[0] : n->in[0];
}

static struct jm_tensor *const *parts_of(const struct jm_node *n)
{
	return n->op == JM_OP_CONCAT ? n->in : n->out;
}

static int takes_parts(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	for (int i = 0; i < JM_PARTS; i++)
		if (parts_of(n)[i] && parts_of(n)[i]->type != whole_of(n)->type)
			return cuda_no_types(n, err);
	return 0;
}

static int choices_parts(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool join = n->op == JM_OP_CONCAT;

	(void)dev;
	(void)err;
	return cuda_choices_follow(n, join ? PARTS : 1, join ? 1 : PARTS, choice);
}

static int run_parts(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *whole = whole_of(n);
	int axis = n->attr.concat.axis;
	bool split = n->op == JM_OP_SPLIT;
	struct cuda_concat p = {
		.pieces = jm_tensor_pieces(whole, axis),
		.whole = cuda_vec(whole),
		.split = split,
		.accumulate = split || !n->accumulate ? n->accumulate : PARTS,
	};

	(void)err;
	p.row = jm_tensor_count(whole) / p.pieces;
	for (int64_t first = 0; p.n < JM_PARTS && n->attr.concat.size[p.n]; p.n++) {
		p.first[p.n] = first;
		p.width[p.n] = p.row / whole->dim[axis] * n->attr.concat.size[p.n];
		p.part[p.n] = cuda_vec(parts_of(n)[p.n]);
		first += p.width[p.n];
	}
	cuda_concat(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_concat[] = {
	{{JM_OP_CONCAT}, 1, takes_parts, choices_parts, NULL, NULL, run_parts, NULL},
	{{JM_OP_SPLIT}, 1, takes_parts, choices_parts, NULL, NULL, run_parts, NULL},
	{.n_nodes = 0},
};
