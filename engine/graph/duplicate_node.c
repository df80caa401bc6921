/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that recompute the result of an earlier node of the step, for later readers. They follow
 * the gradients until schedule.c moves each directly before its first reader.
 */
#include "duplicate_node.h"
#include "op.h"

#include <stdio.h>
#include <stdlib.h>

struct jm_tensor *jm_duplicate_tensor(struct jm_graph *g, struct jm_tensor *t)
{
	struct jm_tensor *duplicate = jm_graph_tensor(g, t->class, t->type, t->rank, t->dim, "");

	if (!duplicate)
		return NULL;
	snprintf(duplicate->name, sizeof(duplicate->name), "%.150s.again", t->name);
	jm_graph_cell(g, duplicate)->origin = jm_graph_cell(g, t)->origin;
	jm_graph_cell(g, t)->kept = true;
	return duplicate;
}

struct jm_node *jm_duplicate_node(
	struct jm_graph *g, const struct jm_node *n, struct jm_tensor *const *out)
{
	struct jm_node *duplicate = jm_graph_node(g, n->op, n->in, out);

	if (!duplicate)
		return NULL;
	duplicate->attr = n->attr;
	duplicate->again = true;
	jm_node_cost(duplicate);
	return duplicate;
}

bool jm_reads_find(struct jm_reads *reads, const struct jm_graph *g)
{
	*reads = (struct jm_reads){.n_nodes = g->n_nodes,
		.last = malloc(((size_t)g->n_cells + 1) * sizeof(int)),
		.before = malloc(((size_t)g->n_nodes * JM_NODE_IN + 1) * sizeof(int))};
	if (!reads->last || !reads->before)
		return false;
	for (int i = 0; i < g->n_cells; i++)
		reads->last[i] = -1;
	for (int k = g->n_forward; k < g->n_nodes; k++)
		for (int i = 0; i < g->node[k]->n_in; i++) {
			const struct jm_tensor *t = g->node[k]->in[i];
			int r = k * JM_NODE_IN + i;

			if (!t)
				continue;
			reads->before[r] = reads->last[t->id];
			reads->last[t->id] = r;
		}
	return true;
}

static void rename_operand(
	struct jm_node *n, int i, const struct jm_tensor *from, struct jm_tensor *to)
{
	if (n->in[i] == from)
		n->in[i] = to;
}

void jm_rename_reads(
	const struct jm_graph *g, int first, const struct jm_tensor *from, struct jm_tensor *to)
{
	for (int k = first; k < g->n_nodes; k++)
		for (int i = 0; i < g->node[k]->n_in; i++)
			rename_operand(g->node[k], i, from, to);
}

void jm_reads_rename(const struct jm_reads *reads, const struct jm_graph *g,
	const struct jm_tensor *from, struct jm_tensor *to)
{
	for (int r = reads->last[from->id]; r >= 0; r = reads->before[r])
		rename_operand(g->node[r / JM_NODE_IN], r % JM_NODE_IN, from, to);
	jm_rename_reads(g, reads->n_nodes, from, to);
}

void jm_reads_free(struct jm_reads *reads)
{
	free(reads->last);
	free(reads->before);
}
