/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that recompute the result of an earlier node of the step, for later readers. They follow
 * the gradients until schedule.c moves each directly before its first reader.
 */
#include "duplicate_node.h"
#include "op.h"

#include <stdio.h>

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
