/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: which neighbouring nodes are offered to the backend as one. */
#include "program.h"

#include <stddef.h>

/* Two ops in a row, where the second reads result `out` of the first. Largest covers come first. */
static const struct {
	enum jm_op first, second;
	int out;
} covers[] = {
	{JM_OP_LINEAR, JM_OP_GELU, 0},
	{JM_OP_ADD, JM_OP_LAYERNORM, 0},
	{JM_OP_NORM, JM_OP_ADAMW, 0},
	{JM_OP_LAYERNORM_GRAD, JM_OP_CAST, 0},
};

static bool reads(const struct jm_node *n, const struct jm_tensor *t)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] == t)
			return true;
	return false;
}

/* Operands of nodes i .. i + n - 1 that name t. */
static int uses_inside(const struct jm_graph *g, int i, int n, const struct jm_tensor *t)
{
	int uses = 0;

	for (int k = i; k < i + n; k++) {
		for (int j = 0; j < g->node[k]->n_in; j++)
			uses += g->node[k]->in[j] == t;
		for (int j = 0; j < g->node[k]->n_out; j++)
			uses += g->node[k]->out[j] == t;
	}
	return uses;
}

static void mark_virtual(struct jm_graph *g, int i, int n, const int *uses)
{
	for (int k = i; k < i + n; k++)
		for (int j = 0; j < g->node[k]->n_out; j++) {
			struct jm_tensor *t = g->node[k]->out[j];

			/* A result that nobody reads is still somebody's operand: not inside. */
			if (t && t->class == JM_CLASS_ACT && k + 1 < i + n &&
				!jm_graph_cell(g, t)->kept && reads(g->node[k + 1], t))
				t->is_virtual = uses_inside(g, i, n, t) == uses[t->id];
		}
}

int jm_group_cover(struct jm_graph *g, int i, int n_nodes, const int *uses)
{
	const struct jm_node *first = g->node[i];
	const struct jm_node *second = i + 1 < n_nodes ? g->node[i + 1] : NULL;

	for (size_t k = 0; second && k < sizeof(covers) / sizeof(*covers); k++)
		if (covers[k].first == first->op && covers[k].second == second->op &&
			reads(second, first->out[covers[k].out])) {
			mark_virtual(g, i, 2, uses);
			return 2;
		}
	return 1;
}

void jm_group_uncover(struct jm_graph *g, int i, int n)
{
	for (int k = i; k < i + n; k++)
		for (int j = 0; j < g->node[k]->n_out; j++)
			if (g->node[k]->out[j])
				g->node[k]->out[j]->is_virtual = false;
}
