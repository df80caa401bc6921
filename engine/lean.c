/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lean: the results of norms and activations, which cost one pass over memory, are not kept for the
 * gradients but made again right before their first reader there, from operands that gradients keep
 * anyway. Less memory than keeping all, more passes over it; recompute.c goes further.
 */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>

#include "op.h"

struct lean {
	struct jm_graph *g;
	int n_cells, n_nodes;	 /* before the pass */
	int *first, *last;	 /* [cell]: nodes of gradients that read it; -1 = none */
	struct jm_node **twin;	 /* [node of gradients]: what is made again right before it */
	struct jm_node **behind; /* [twin]: the next one at the same place */
};

/* What may be made again cheaply, and its results do not enter sums that go on. */
static bool is_cheap(const struct jm_node *n)
{
	switch (n->op) {
	case JM_OP_LAYERNORM:
	case JM_OP_RMSNORM:
	case JM_OP_GELU:
	case JM_OP_GELU_ERF:
	case JM_OP_SILU:
	case JM_OP_SWIGLU:
		return true;
	case JM_OP_BN_APPLY:
		return !n->in[5];
	default:
		return false;
	}
}

static void find_readers(struct lean *l)
{
	for (int i = 0; i < l->n_cells; i++)
		l->first[i] = l->last[i] = -1;
	for (int k = l->g->n_forward; k < l->n_nodes; k++)
		for (int i = 0; i < l->g->node[k]->n_in; i++) {
			const struct jm_tensor *t = l->g->node[k]->in[i];

			if (!t)
				continue;
			if (l->first[t->id] < 0)
				l->first[t->id] = k;
			l->last[t->id] = k;
		}
}

/* Every operand is there at node k of the gradients: it stays, or they read it then or later. */
static bool operands_there(const struct lean *l, const struct jm_node *n, int k)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] && n->in[i]->class == JM_CLASS_ACT && l->last[n->in[i]->id] < k)
			return false;
	return true;
}

/* An operand that is itself made again may come too late. */
static bool operands_kept(const struct lean *l, const struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++) {
		const struct jm_node *maker =
			n->in[i] ? jm_graph_cell(l->g, n->in[i])->producer : NULL;

		if (maker && maker->id < l->g->n_forward && is_cheap(maker) &&
			maker->out[0] == n->in[i])
			return false;
	}
	return true;
}

static void rename_reads(const struct lean *l, const struct jm_tensor *from, struct jm_tensor *to)
{
	for (int k = l->g->n_forward; k < l->n_nodes; k++)
		for (int i = 0; i < l->g->node[k]->n_in; i++)
			if (l->g->node[k]->in[i] == from)
				l->g->node[k]->in[i] = to;
}

/* The same node with results of its own; of these only the first is read. */
static struct jm_node *make_twin(struct lean *l, const struct jm_node *n)
{
	struct jm_tensor *out[JM_NODE_OUT] = {0};
	struct jm_node *twin;

	for (int i = 0; i < n->n_out; i++) {
		const struct jm_tensor *t = n->out[i];

		if (!t)
			continue;
		out[i] = jm_graph_tensor(l->g, JM_CLASS_ACT, t->type, t->rank, t->dim, "");
		if (!out[i])
			return NULL;
		snprintf(out[i]->name, sizeof(out[i]->name), "%.40s.again", t->name);
	}
	twin = jm_graph_node(l->g, n->op, n->in, out);
	if (!twin)
		return NULL;
	twin->attr = n->attr;
	twin->again = true;
	jm_node_cost(twin);
	jm_graph_cell(l->g, n->out[0])->kept = true; /* the same bits both times */
	return twin;
}

static void make_twins(struct lean *l)
{
	for (int f = 0; f < l->g->n_forward && !l->g->err.code; f++) {
		const struct jm_node *n = l->g->node[f];
		int k = is_cheap(n) ? l->first[n->out[0]->id] : -1;
		struct jm_node *twin;

		if (k < 0 || !operands_there(l, n, k) || !operands_kept(l, n))
			continue;
		twin = make_twin(l, n);
		if (!twin)
			return;
		l->behind[twin->id - l->n_nodes] = l->twin[k];
		l->twin[k] = twin;
		rename_reads(l, n->out[0], twin->out[0]);
	}
}

static int reorder(struct lean *l)
{
	struct jm_graph *g = l->g;
	struct jm_node **order = calloc((size_t)g->cap_nodes, sizeof(*order));
	int n = 0, twins = l->n_nodes;

	if (!order)
		return JM_ENOMEM;
	for (int k = 0; k < l->n_nodes; k++) {
		for (struct jm_node *t = l->twin[k]; t; t = l->behind[t->id - twins])
			order[n++] = t;
		order[n++] = g->node[k];
	}
	free(g->node);
	g->node = order;
	for (int k = 0; k < n; k++)
		order[k]->id = k;
	return 0;
}

int jm_graph_lean(struct jm_graph *g, struct jm_err *err)
{
	size_t cells = (size_t)g->n_cells + 1, nodes = (size_t)g->n_nodes + 1;
	struct lean l = {.g = g,
		.n_cells = g->n_cells,
		.n_nodes = g->n_nodes,
		.first = calloc(cells, sizeof(int)),
		.last = calloc(cells, sizeof(int)),
		.twin = calloc(nodes, sizeof(struct jm_node *)),
		.behind = calloc(nodes, sizeof(struct jm_node *))};
	int code = JM_ENOMEM;

	if (l.first && l.last && l.twin && l.behind) {
		find_readers(&l);
		make_twins(&l);
		code = g->err.code ? g->err.code : reorder(&l);
	}
	free(l.first);
	free(l.last);
	free(l.twin);
	free(l.behind);
	if (!code)
		return 0;
	return jm_err_set(
		err, code, "%s", g->err.code ? g->err.text : "Out of memory for a lean graph.");
}
