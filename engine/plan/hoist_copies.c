/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hoist copies: a step of several micro-steps makes the copies of its parameters once, before the
 * first micro-step. Parameters change only in the update, so the copies stay valid; they live
 * through all micro-steps.
 */
#include "hoist_copies.h"

#include <stdlib.h>

static bool makes_copy(const struct jm_unit *u)
{
	const struct jm_node *n = u->group.node[0];

	return u->group.n_nodes == 1 && (n->op == JM_OP_CAST || n->op == JM_OP_QUANTIZE) &&
	       n->out[0]->class == JM_CLASS_COPY;
}

int jm_program_hoist_copies(struct jm_program *p, struct jm_err *err)
{
	struct jm_unit **order;
	int n = 0;

	if (jm_program_micro_steps(p) < 2)
		return 0;
	order = calloc((size_t)p->cap_units + 1, sizeof(*order));
	if (!order)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the order of a program.");
	for (int i = 0; i < p->n_units; i++)
		if (makes_copy(p->unit[i]))
			order[n++] = p->unit[i];
	p->n_once = n;
	for (int i = 0; i < p->n_units; i++)
		if (!makes_copy(p->unit[i]))
			order[n++] = p->unit[i];
	free(p->unit);
	p->unit = order;
	for (int i = 0; i < n; i++)
		order[i]->position = i;
	return 0;
}

static void keep(const struct jm_program *p, const struct jm_tensor *t)
{
	struct jm_cell *c = jm_graph_cell(p->graph, t);

	if (c->last < p->n_micro - 1)
		c->last = p->n_micro - 1;
}

void jm_program_keep_hoisted(struct jm_program *p)
{
	for (int i = 0; i < p->n_once; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		for (int k = 0; k < n->n_out; k++)
			if (n->out[k] && n->out[k]->class == JM_CLASS_COPY)
				keep(p, n->out[k]);
	}
}
