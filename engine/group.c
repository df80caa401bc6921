/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: finds neighbouring nodes that are offered to the backend together. */
#include "program.h"

#include <stddef.h>

#define COVER_MAX 4

/* Covers: sequences of ops, each of which reads a result of an earlier one; a recomputed swiglu shares the operand of
 * its gradient. Larger covers come first. */
static const struct {
	int n;
	enum jm_op op[COVER_MAX];
} covers[] = {
	{4, {JM_OP_LINEAR, JM_OP_SOFTMAX_XENT, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD}},
	{4, {JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}},
	{3, {JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}},
	{3, {JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE}},
	{3, {JM_OP_LAYERNORM_GRAD, JM_OP_CAST, JM_OP_LINEAR_WGRAD}},
	{3, {JM_OP_RMSNORM_GRAD, JM_OP_CAST, JM_OP_LINEAR_WGRAD}},
	{2, {JM_OP_ROPE_GRAD, JM_OP_LINEAR_WGRAD}},
	{2, {JM_OP_LINEAR, JM_OP_GELU}},
	{2, {JM_OP_LINEAR, JM_OP_GELU_ERF}},
	{2, {JM_OP_LINEAR, JM_OP_SILU}},
	{2, {JM_OP_LINEAR, JM_OP_SWIGLU}},
	{2, {JM_OP_LINEAR_DGRAD, JM_OP_GELU_GRAD}},
	{2, {JM_OP_LINEAR_DGRAD, JM_OP_GELU_ERF_GRAD}},
	{2, {JM_OP_CONV_DGRAD, JM_OP_BN_GRAD}},
	{2, {JM_OP_CONV, JM_OP_RELU}},
	{2, {JM_OP_BN_STATS, JM_OP_BN_FINALIZE}},
	{2, {JM_OP_BN_APPLY, JM_OP_BN_APPLY}},
	{2, {JM_OP_BN_GRAD, JM_OP_BN_GRAD}},
	{2, {JM_OP_MAXPOOL_GRAD, JM_OP_BN_GRAD}},
	{2, {JM_OP_BN_APPLY, JM_OP_CONV}},
	{2, {JM_OP_ADD, JM_OP_LAYERNORM}},
	{2, {JM_OP_ADD, JM_OP_RMSNORM}},
	{2, {JM_OP_NORM, JM_OP_ADAMW}},
	{2, {JM_OP_NORM, JM_OP_ADAM}},
	{2, {JM_OP_NORM, JM_OP_SGD}},
	{2, {JM_OP_LAYERNORM_GRAD, JM_OP_CAST}},
	{2, {JM_OP_RMSNORM_GRAD, JM_OP_CAST}},
	{2, {JM_OP_SWIGLU_GRAD, JM_OP_SWIGLU}},
};

static bool reads(const struct jm_node *n, const struct jm_tensor *t)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] == t)
			return true;
	return false;
}

/* The number of operands of nodes i .. i + n - 1 that name t. */
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

static void mark_internal(struct jm_graph *g, int i, int n, const int *uses)
{
	for (int k = i; k < i + n; k++)
		for (int j = 0; j < g->node[k]->n_out; j++) {
			struct jm_tensor *t = g->node[k]->out[j];

			/* A result that no node reads may still be an operand outside: it is not
			 * internal. */
			if (t && t->class == JM_CLASS_ACT && k + 1 < i + n &&
				!jm_graph_cell(g, t)->kept && reads(g->node[k + 1], t)) {
				t->is_virtual = uses_inside(g, i, n, t) == uses[t->id];
				t->is_last = g->node[k]->accumulate >> j & 1 &&
					     !uses_inside(g, i + n, g->n_nodes - i - n, t);
			}
		}
}

/* True if node k is a swiglu that is recomputed from the operand of its gradient, node k - 1. */
static bool shares_operand(const struct jm_graph *g, int k)
{
	const struct jm_node *n = g->node[k], *grad = g->node[k - 1];

	return n->again && n->op == JM_OP_SWIGLU && grad->op == JM_OP_SWIGLU_GRAD &&
	       n->in[0] == grad->in[1];
}

/* True if node k reads a result of nodes i to k - 1, or shares an operand. */
static bool follows(const struct jm_graph *g, int i, int k)
{
	for (int b = i; b < k; b++)
		for (int o = 0; o < g->node[b]->n_out; o++)
			if (g->node[b]->out[o] && reads(g->node[k], g->node[b]->out[o]))
				return true;
	return shares_operand(g, k);
}

/* True if nodes k and k + 1 are gradients of two norms that were added: both run as one, rather than the first of them
 * with the node before it. */
static bool begins_pair(const struct jm_graph *g, int k)
{
	const struct jm_node *n = g->node[k];

	return n->op == JM_OP_BN_GRAD && n->out[3] && k + 1 < g->n_nodes &&
	       g->node[k + 1]->op == JM_OP_BN_GRAD && reads(g->node[k + 1], n->out[3]);
}

static bool matches(const struct jm_graph *g, int i, int end, size_t cover)
{
	int n = covers[cover].n;

	if (i + n > end || (n > 1 && begins_pair(g, i + n - 1)))
		return false;
	for (int k = 0; k < n; k++)
		if (g->node[i + k]->op != covers[cover].op[k] || (k && !follows(g, i, i + k)))
			return false;
	return true;
}

int jm_group_cover(struct jm_graph *g, int i, int end, const int *uses)
{
	for (size_t k = 0; k < sizeof(covers) / sizeof(*covers); k++)
		if (matches(g, i, end, k)) {
			mark_internal(g, i, covers[k].n, uses);
			return covers[k].n;
		}
	return 1;
}

void jm_group_uncover(struct jm_graph *g, int i, int n)
{
	for (int k = i; k < i + n; k++)
		for (int j = 0; j < g->node[k]->n_out; j++)
			if (g->node[k]->out[j])
				g->node[k]->out[j]->is_virtual = g->node[k]->out[j]->is_last =
					false;
}
