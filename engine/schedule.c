/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule: the order of running. */
#include "program.h"

#include <stdlib.h>

/* ---- nodes: what is made again comes right before who reads it first ----------------------------------- */

struct order {
	struct jm_graph *g;
	struct jm_node **node;
	int n;
	bool *placed; /* [node] */
};

static void place(struct order *o, struct jm_node *n)
{
	o->placed[n->id] = true;
	for (int i = 0; i < n->n_in; i++) {
		struct jm_node *maker = n->in[i] ? jm_graph_cell(o->g, n->in[i])->producer : NULL;

		if (maker && maker->again && !o->placed[maker->id])
			place(o, maker);
	}
	o->node[o->n++] = n;
}

static int order_nodes(struct order *o, struct jm_err *err)
{
	struct jm_graph *g = o->g;

	for (int k = 0; k < g->n_nodes; k++)
		if (!g->node[k]->again)
			place(o, g->node[k]);
	if (o->n < g->n_nodes)
		return jm_err_set(err, JM_EBUG,
			"A node is made again and nobody reads it: lean.c or recompute.c must be "
			"mended.");
	for (int k = 0; k < o->n; k++) {
		g->node[k] = o->node[k];
		g->node[k]->id = k;
	}
	return 0;
}

int jm_graph_schedule(struct jm_graph *g, struct jm_err *err)
{
	struct order o = {.g = g,
		.node = calloc((size_t)g->n_nodes + 1, sizeof(struct jm_node *)),
		.placed = calloc((size_t)g->n_nodes + 1, sizeof(bool))};
	int code = JM_ENOMEM;

	if (o.node && o.placed)
		code = order_nodes(&o, err);
	else
		jm_err_set(err, code, "Out of memory for the order of nodes.");
	free(o.node);
	free(o.placed);
	return code;
}
