/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twins: nodes that make once more what an earlier node of the step made, for who reads it late. They
 * stand behind the gradients until schedule.c brings each right before its first reader.
 */
#include "twin.h"

#include <stdio.h>

#include "op.h"

struct jm_tensor *jm_twin_tensor(struct jm_graph *g, struct jm_tensor *t)
{
	struct jm_tensor *twin = jm_graph_tensor(g, t->class, t->type, t->rank, t->dim, "");

	if (!twin)
		return NULL;
	snprintf(twin->name, sizeof(twin->name), "%.40s.again", t->name);
	jm_graph_cell(g, twin)->origin = jm_graph_cell(g, t)->origin;
	jm_graph_cell(g, t)->kept = true;
	return twin;
}

struct jm_node *jm_twin_node(
	struct jm_graph *g, const struct jm_node *n, struct jm_tensor *const *out)
{
	struct jm_node *twin = jm_graph_node(g, n->op, n->in, out);

	if (!twin)
		return NULL;
	twin->attr = n->attr;
	twin->again = true;
	jm_node_cost(twin);
	return twin;
}
