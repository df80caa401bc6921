/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts of parameters: a filter gets the layout in which the backend writes its gradient, if
 * this saves reorders in every step. A parameter and its gradient always have the same dense layout
 * at their place in the slabs, so that code that processes slabs element by element (norm,
 * optimizer, sums over ranks) does not depend on it. A filter without a gradient, because it is
 * frozen, gets the layout in which convolutions read it. The host writes and reads them plain
 * (program.c).
 */
#include "param_layout.h"
#include "cost.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"

#include <math.h>

static bool makes_copy(const struct jm_node *n)
{
	return n->op == JM_OP_CAST && n->out[0]->class == JM_CLASS_COPY;
}

static bool names(const struct jm_node *n, const struct jm_tensor *t)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] == t)
			return true;
	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] == t)
			return true;
	return false;
}

/* The node that makes the gradient, if it is a convolution's and only convolutions and copies name
 * the parameter; NULL = the parameter stays plain. */
static struct jm_node *find_wgrad(const struct jm_graph *g, const struct jm_cell *c)
{
	struct jm_node *wgrad = NULL;

	for (int k = 0; k < g->n_nodes; k++) {
		struct jm_node *n = g->node[k];
		bool reads = names(n, &c->t), writes = names(n, c->grad);

		if (reads && n->op != JM_OP_CONV && n->op != JM_OP_CONV_DGRAD && !makes_copy(n))
			return NULL;
		if (!writes)
			continue;
		if (n->op != JM_OP_CONV_WGRAD || wgrad)
			return NULL;
		wgrad = n;
	}
	return wgrad;
}

static void lay(struct jm_tensor *t, const struct jm_layout *layout)
{
	t->layout = *layout;
	t->bytes = jm_layout_bytes(t, layout);
}

static bool is_dense(const struct jm_tensor *t, const struct jm_layout *layout)
{
	return jm_layout_bytes(t, layout) == (size_t)jm_tensor_count(t) * jm_dtype_bytes(t->type);
}

/* Seconds of the cheapest way to run the node with the current layouts; infinite = none. What it
 * adds to is not considered: that tensor has no layout yet. */
static double cheapest(const struct jm_program *p, struct jm_node *n)
{
	struct jm_group group = {.n_nodes = 1, .node = {n}};
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	unsigned sums = n->accumulate;
	double least = INFINITY;
	int n_choices;

	n->accumulate = 0;
	n_choices = p->device->backend->select(p->device->dev, &group, choice, NULL);
	for (int i = 0; i < n_choices; i++)
		least = fmin(least, jm_choice_cost(p, &group, &choice[i], 0));
	n->accumulate = sums;
	return least;
}

/*
 * The same with a gradient of any layout and, if necessary, in the type of the operands, including
 * its reorder to the parameter's layout. ret (may be NULL): the layout of the gradient in the first
 * choice.
 */
static double cheapest_wgrad(const struct jm_program *p, struct jm_node *n, enum jm_dtype type,
	struct jm_layout *ret, int *ret_n)
{
	struct jm_tensor *whole = n->out[0], part = *whole;
	struct jm_group group = {.n_nodes = 1, .node = {n}};
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	unsigned sums = n->accumulate;
	double least = INFINITY;
	int n_choices;

	part.class = JM_CLASS_ACT;
	part.type = type;
	part.bytes = jm_layout_bytes(&part, &part.layout);
	n->out[0] = &part;
	n->accumulate = 0;
	n_choices = p->device->backend->select(p->device->dev, &group, choice, NULL);
	for (int i = 0; i < n_choices; i++) {
		least = fmin(least, jm_choice_cost(p, &group, &choice[i], 1));
		if (ret)
			ret[(*ret_n)++] = choice[i].out[0][0];
	}
	n->out[0] = whole;
	n->accumulate = sums;
	return least;
}

/* The sum over all nodes that name the parameter or its gradient, with their current layouts. */
static double cost(const struct jm_program *p, const struct jm_cell *c, struct jm_node *wgrad)
{
	double sum = cheapest_wgrad(p, wgrad, c->grad->type, NULL, NULL);

	if (!isfinite(sum) && jm_node_narrows(wgrad))
		sum = cheapest_wgrad(p, wgrad, wgrad->in[0]->type, NULL, NULL);
	for (int k = 0; k < p->graph->n_nodes && isfinite(sum); k++)
		if (names(p->graph->node[k], &c->t))
			sum += cheapest(p, p->graph->node[k]);
	return sum;
}

/* True if the gradient can get this layout, from the node itself or from another one after it. */
static bool works(const struct jm_program *p, struct jm_node *wgrad)
{
	return isfinite(cheapest(p, wgrad)) || jm_node_narrows(wgrad);
}

static void choose(const struct jm_program *p, struct jm_cell *c, struct jm_node *wgrad)
{
	struct jm_layout layout[2 * JM_CHOICE_MAX], best = c->t.layout;
	int n = 0;
	double least;

	cheapest_wgrad(p, wgrad, c->grad->type, layout, &n);
	if (jm_node_narrows(wgrad))
		cheapest_wgrad(p, wgrad, wgrad->in[0]->type, layout, &n);
	least = cost(p, c, wgrad);
	for (int i = 0; i < n; i++) {
		double seconds;

		if (!is_dense(&c->t, &layout[i]))
			continue;
		lay(&c->t, &layout[i]);
		lay(c->grad, &layout[i]);
		seconds = works(p, wgrad) ? cost(p, c, wgrad) : INFINITY;
		if (seconds < least) {
			least = seconds;
			best = layout[i];
		}
	}
	lay(&c->t, &best);
	lay(c->grad, &best);
}

/* ---- filters without a gradient -------------------------------------------------------------- */

static bool is_read_by_convs(const struct jm_graph *g, const struct jm_tensor *t)
{
	for (int k = 0; k < g->n_nodes; k++) {
		const struct jm_node *n = g->node[k];

		if (names(n, t) && n->op != JM_OP_CONV && n->op != JM_OP_CONV_DGRAD)
			return false;
	}
	return true;
}

/* Of all nodes that read it, with its current layout. */
static double cost_of_reads(const struct jm_program *p, const struct jm_tensor *t)
{
	double sum = 0;

	for (int k = 0; k < p->graph->n_nodes && isfinite(sum); k++)
		if (names(p->graph->node[k], t))
			sum += cheapest(p, p->graph->node[k]);
	return sum;
}

/* The layouts in which the first convolution that reads it would have it; returns how many. */
static int asked_layouts(
	const struct jm_program *p, const struct jm_tensor *t, struct jm_layout *ret)
{
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	struct jm_group group = {.n_nodes = 1};
	int n;

	for (int k = 0; k < p->graph->n_nodes && !group.node[0]; k++)
		if (p->graph->node[k]->op == JM_OP_CONV && p->graph->node[k]->in[1] == t)
			group.node[0] = p->graph->node[k];
	if (!group.node[0])
		return 0;
	n = p->device->backend->select(p->device->dev, &group, choice, NULL);
	for (int i = 0; i < n; i++)
		ret[i] = choice[i].in[0][1];
	return n;
}

static void choose_for_reads(const struct jm_program *p, struct jm_tensor *t)
{
	struct jm_layout layout[JM_CHOICE_MAX], best = t->layout;
	int n = is_read_by_convs(p->graph, t) ? asked_layouts(p, t, layout) : 0;
	double least = n ? cost_of_reads(p, t) : 0;

	for (int i = 0; i < n; i++) {
		double seconds;

		if (!is_dense(t, &layout[i]))
			continue;
		lay(t, &layout[i]);
		seconds = cost_of_reads(p, t);
		if (seconds < least) {
			least = seconds;
			best = layout[i];
		}
	}
	lay(t, &best);
}

void jm_program_lay_parameters(struct jm_program *p)
{
	const struct jm_graph *g = p->graph;

	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];
		struct jm_node *wgrad;

		if (c->t.class != JM_CLASS_PARAM || c->t.rank != 4)
			continue;
		wgrad = c->grad ? find_wgrad(g, c) : NULL;
		if (wgrad)
			choose(p, c, wgrad);
		else if (c->frozen)
			choose_for_reads(p, &c->t);
	}
}
