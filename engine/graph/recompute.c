/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recompute: less memory for more work. Results that only their own block reads are not kept for
 * its gradients; their nodes run once more directly before these, from the results that other
 * blocks read and that are kept in any case (Chen et al., arXiv 1604.06174, with a block as the
 * segment). Random numbers are counters and kernels repeat their bits, so the results are the same
 * to the last bit.
 */
#include "recompute.h"
#include "duplicate_node.h"

#include <stdlib.h>

struct again {
	struct jm_graph *g;
	int n_cells, n_nodes; /* before the pass */
	bool *outside;	      /* [cell]: it is read outside its block and therefore kept */
	/* [cell]: a gradient needs it, directly or to recompute another one */
	bool *needed;
	struct jm_tensor **duplicate;  /* [cell]: the same values, computed again */
	struct jm_node **duplicate_of; /* [forward node] */
};

static int block_of(const struct again *a, const struct jm_node *n)
{
	return n->out[0] ? jm_graph_cell(a->g, n->out[0])->block : 0;
}

static bool is_forward(const struct again *a, const struct jm_tensor *t)
{
	const struct jm_cell *c = jm_graph_cell(a->g, t);

	return c->producer && c->producer->id < a->g->n_forward;
}

/* A result of a block that is not needed elsewhere. */
static bool is_inner(const struct again *a, const struct jm_tensor *t)
{
	return t &&
	       (t->class == JM_CLASS_ACT ||
		       (t->class == JM_CLASS_COPY && jm_duplicates_copies(a->g))) &&
	       jm_graph_cell(a->g, t)->block && is_forward(a, t) && !a->outside[t->id];
}

static void find_outside(struct again *a)
{
	for (int k = 0; k < a->g->n_forward; k++) {
		const struct jm_node *n = a->g->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (n->in[i] && jm_graph_cell(a->g, n->in[i])->block != block_of(a, n))
				a->outside[n->in[i]->id] = true;
	}
}

static void find_needed(struct again *a)
{
	for (int k = a->g->n_forward; k < a->n_nodes; k++) {
		const struct jm_node *n = a->g->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (is_inner(a, n->in[i]))
				a->needed[n->in[i]->id] = true;
	}
}

static bool makes_needed(const struct again *a, const struct jm_node *n)
{
	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] && a->needed[n->out[i]->id])
			return true;
	return false;
}

/* Marks, from the last node to the first, the operands of nodes whose results are needed. */
static void find_operands(struct again *a)
{
	for (int k = a->g->n_forward - 1; k >= 0; k--) {
		const struct jm_node *n = a->g->node[k];

		if (!makes_needed(a, n))
			continue;
		for (int i = 0; i < n->n_in; i++)
			if (is_inner(a, n->in[i]))
				a->needed[n->in[i]->id] = true;
	}
}

static struct jm_tensor *duplicate_tensor(struct again *a, struct jm_tensor *t)
{
	struct jm_tensor *duplicate;

	if (!t || t->class == JM_CLASS_STATE) /* running statistics are updated only once */
		return NULL;
	duplicate = jm_duplicate_tensor(a->g, t);
	if (is_inner(a, t))
		a->duplicate[t->id] = duplicate;
	return duplicate;
}

static void take_duplicates(const struct again *a, struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] && n->in[i]->id < a->n_cells && a->duplicate[n->in[i]->id])
			n->in[i] = a->duplicate[n->in[i]->id];
	if (n->fwd && n->fwd->id < a->g->n_forward && a->duplicate_of[n->fwd->id])
		n->fwd = a->duplicate_of[n->fwd->id];
}

static void make_duplicate(struct again *a, const struct jm_node *n)
{
	struct jm_tensor *out[JM_NODE_OUT] = {0};
	struct jm_node *duplicate;

	for (int i = 0; i < n->n_out; i++)
		out[i] = duplicate_tensor(a, n->out[i]);
	duplicate = jm_duplicate_node(a->g, n, out);
	if (!duplicate)
		return;
	take_duplicates(a, duplicate);
	a->duplicate_of[n->id] = duplicate;
}

static void make_duplicates(struct again *a)
{
	for (int k = 0; k < a->g->n_forward; k++)
		if (makes_needed(a, a->g->node[k]))
			make_duplicate(a, a->g->node[k]);
	for (int k = a->g->n_forward; k < a->n_nodes; k++)
		take_duplicates(a, a->g->node[k]);
}

static void run_pass(struct again *a)
{
	find_outside(a);
	find_needed(a);
	find_operands(a);
	make_duplicates(a);
}

int jm_graph_recompute(struct jm_graph *g, struct jm_err *err)
{
	size_t cells = (size_t)g->n_cells + 1, nodes = (size_t)g->n_nodes + 1;
	struct again a = {.g = g,
		.n_cells = g->n_cells,
		.n_nodes = g->n_nodes,
		.outside = calloc(cells, sizeof(bool)),
		.needed = calloc(cells, sizeof(bool)),
		.duplicate = calloc(cells, sizeof(struct jm_tensor *)),
		.duplicate_of = calloc(nodes, sizeof(struct jm_node *))};

	if (a.outside && a.needed && a.duplicate && a.duplicate_of)
		run_pass(&a);
	else
		jm_err_set(&g->err, JM_ENOMEM, "Out of memory for recomputation.");
	free(a.outside);
	free(a.needed);
	free(a.duplicate);
	free(a.duplicate_of);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}
