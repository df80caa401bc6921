/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a choice with the current layouts: its seconds, the reorders of operands in another
 * layout, and the additions by separate nodes. The estimate only serves to compare choices. */
#include "cost.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"

#include <math.h>

#define BYTES_PER_SECOND 1e10 /* of memory, if the device's rate is unknown */

bool jm_choice_is_open(const struct jm_program *p, const struct jm_tensor *t)
{
	const struct jm_cell *c = jm_graph_cell(p->graph, t);

	return t->class == JM_CLASS_COPY && c->origin && !c->read;
}

static double memory_seconds(const struct jm_program *p, double bytes)
{
	double rate = p->device->props.peak_bytes;

	return bytes / (rate > 0 ? rate : BYTES_PER_SECOND);
}

static double reorder_seconds(const struct jm_program *p, const struct jm_tensor *t)
{
	return jm_choice_is_open(p, t) ? 0 : memory_seconds(p, 2 * (double)t->bytes);
}

/* True for tensors that other code reads or writes, too, so that their layout is fixed. */
static bool is_settled(const struct jm_tensor *t)
{
	return t->class != JM_CLASS_ACT && t->class != JM_CLASS_COPY;
}

/* True if the results may have the layouts of this choice. */
static bool outputs_good(const struct jm_group *group, const struct jm_choice *c)
{
	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		for (int i = 0; i < n->n_out; i++) {
			const struct jm_tensor *t = n->out[i];
			bool fixed = t && (is_settled(t) || n->op == JM_OP_CAST ||
						  jm_node_adds(n, i) || jm_node_reads(n, t));

			if (fixed && !jm_layout_equal(&c->out[k][i], &t->layout))
				return false;
		}
	}
	return true;
}

static double cost_of_choice(
	const struct jm_program *p, const struct jm_group *group, const struct jm_choice *c)
{
	double cost = isnan(c->seconds) ? 0 : c->seconds;

	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (n->in[i] && !n->in[i]->is_virtual &&
				!jm_layout_equal(&n->in[i]->layout, &c->in[k][i]))
				cost += reorder_seconds(p, n->in[i]);
	}
	return outputs_good(group, c) ? cost : INFINITY;
}

/* The cost of a single node with the current layouts. */
static double cost_alone(const struct jm_program *p, const struct jm_group *group)
{
	double memory = memory_seconds(p, group->node[0]->bytes), least = INFINITY;
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	struct jm_device *d = p->device;
	int n = jm_device_select(d, group, choice, NULL);

	for (int i = 0; i < n; i++)
		least = fmin(least, cost_of_choice(p, group, &choice[i]) +
					    (isnan(choice[i].seconds) ? memory : 0));
	return isfinite(least) ? least : memory;
}

/* The cost of a refused group, whose nodes run one by one. */
static double cost_of_parts(const struct jm_program *p, const struct jm_group *group)
{
	struct jm_graph *g = p->graph;
	int first = group->node[0]->id;
	double cost = 0;

	jm_group_uncover(g, first, group->n_nodes);
	for (int k = 0; k < group->n_nodes; k++)
		cost += cost_alone(
			p, &(struct jm_group){
				   .n_nodes = 1, .node = {group->node[k]}, .fwd = group->fwd});
	jm_group_cover(g, first, first + group->n_nodes, p->uses);
	return cost;
}

/* The cost of separate add nodes: three passes each, and a reorder if the layouts differ. */
static double cost_of_adds(const struct jm_program *p, const struct jm_node *n,
	const struct jm_choice *c, unsigned apart)
{
	double cost = 0;

	for (int i = 0; i < n->n_out; i++) {
		const struct jm_tensor *sum = n->out[i];

		if (!sum || !(apart >> i & 1))
			continue;
		cost += memory_seconds(p, 3 * (double)sum->bytes);
		if (!jm_layout_equal(&c->out[0][i], &sum->layout))
			cost += reorder_seconds(p, sum);
	}
	return cost;
}

double jm_choice_cost(const struct jm_program *p, const struct jm_group *group,
	const struct jm_choice *c, unsigned apart)
{
	if (!c)
		return cost_of_parts(p, group);
	return cost_of_choice(p, group, c) + cost_of_adds(p, group->node[0], c, apart);
}
