/* SPDX-License-Identifier: Apache-2.0 */
/* Liveness: the first and last unit of each tensor, and the results that reuse the memory of an
 * operand. */
#include "liveness.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"

#include <stdlib.h>

static void touch(const struct jm_program *p, const struct jm_tensor *t, int at)
{
	struct jm_cell *c;

	if (!t || t->is_virtual)
		return;
	c = jm_graph_cell(p->graph, t);
	if (c->first < 0)
		c->first = at;
	c->last = at;
}

/* False for an operand that the gradient names, and in whose place it reads what the forward group
 * saved. */
static bool is_read(const struct jm_unit *u, int node, int operand)
{
	const struct jm_unit *fwd = (const struct jm_unit *)u->group.fwd;

	return !fwd || !fwd->saved || !(u->choice.unread[node] >> operand & 1);
}

static void touch_unit(const struct jm_program *p, int at)
{
	const struct jm_unit *u = p->unit[at];
	const struct jm_unit *fwd = (const struct jm_unit *)u->group.fwd;

	for (int k = 0; k < u->group.n_nodes; k++) {
		const struct jm_node *n = u->group.node[k];

		for (int i = 0; i < n->n_in; i++)
			if (is_read(u, k, i))
				touch(p, n->in[i], at);
		for (int i = 0; i < n->n_out; i++)
			touch(p, n->out[i], at);
	}
	if (u->awaited)
		touch(p, u->awaited->in[0], at);
	touch(p, u->scratch, at);
	touch(p, u->saved, at);
	if (fwd)
		touch(p, fwd->saved, at);
}

/* The cell whose memory t has. */
static struct jm_cell *root(const struct jm_program *p, struct jm_tensor *t)
{
	struct jm_cell *c = jm_graph_cell(p->graph, t);

	while (c->alias)
		c = jm_graph_cell(p->graph, c->alias);
	return c;
}

static bool operand_twice(const struct jm_program *p, const struct jm_node *n, int which)
{
	for (int i = 0; i < n->n_in; i++)
		if (i != which && n->in[i] && root(p, n->in[i]) == root(p, n->in[which]))
			return true;
	return false;
}

/* True if all elements of a result are at the places of the operand's. An image with its channels
 * last is a sequence of its pixels, unless a token or positions are added to it. */
static bool same_places(
	const struct jm_node *n, const struct jm_tensor *from, const struct jm_tensor *to)
{
	static const struct jm_layout last = {.rank = 4, .order = {0, 2, 3, 1}};
	bool grad = n->op == JM_OP_TOKENS_GRAD;

	if (!grad && n->op != JM_OP_TOKENS)
		return jm_layout_equal(&from->layout, &to->layout);
	return jm_layout_equal(&(grad ? to : from)->layout, &last) &&
	       !(grad ? from : to)->layout.rank && !n->in[1] && !n->in[2] && !n->out[1] &&
	       !n->out[2];
}

/* True for what another stage sends, maybe while results are still to be sent. */
bool jm_cell_is_received(const struct jm_cell *c)
{
	return c->producer && c->producer->op == JM_OP_STAGE_IN;
}

/* True if the result may have the memory of the operand once that has no later reader: the planner
 * places both. */
static bool is_replaceable(
	const struct jm_program *p, const struct jm_node *n, const struct jm_over *over, int at)
{
	struct jm_tensor *from = n->in[over->from];
	const struct jm_tensor *to = over->to;

	return from != to && from->class == JM_CLASS_ACT && to->class == JM_CLASS_ACT &&
	       !from->is_virtual && !to->is_virtual && from->bytes == to->bytes &&
	       from->type == to->type && same_places(n, from, to) &&
	       jm_graph_cell(p->graph, to)->first == at && !jm_cell_is_received(root(p, from)) &&
	       !operand_twice(p, n, over->from);
}

/* True if a unit writes what has the memory of this root. */
static bool is_written(const struct jm_program *p, const struct jm_cell *memory, int from, int to)
{
	for (int i = from; i <= to; i++)
		for (int k = 0; k < p->unit[i]->group.n_nodes; k++) {
			const struct jm_node *n = p->unit[i]->group.node[k];

			for (int j = 0; j < n->n_out; j++)
				if (n->out[j] && root(p, n->out[j]) == memory)
					return true;
		}
	return false;
}

/* True for a result that is its operand in another form, if the operand is read later, too, and no
 * unit writes the memory of either while the result is alive. */
static bool may_view(
	const struct jm_program *p, const struct jm_node *n, const struct jm_over *over, int at)
{
	const struct jm_cell *from = root(p, n->in[over->from]), *to = root(p, over->to);

	if (n->op != JM_OP_TOKENS && n->op != JM_OP_TOKENS_GRAD)
		return false;
	return is_replaceable(p, n, over, at) && from->last > at &&
	       !is_written(p, from, at + 1, to->last) && !is_written(p, to, at + 1, to->last);
}

static void place_over(const struct jm_program *p, int at)
{
	const struct jm_unit *u = p->unit[at];
	const struct jm_node *n = u->group.node[0];
	int last = u->wait ? u->wait->position : at;
	struct jm_over over[2];
	int some = jm_group_replaces(&u->group, over);

	for (int i = 0; i < some; i++) {
		struct jm_cell *c = jm_graph_cell(p->graph, over[i].to);
		struct jm_cell *r = root(p, n->in[over[i].from]);

		if (!(is_replaceable(p, n, &over[i], at) && r->last == last) &&
			!may_view(p, n, &over[i], at))
			continue;
		c->alias = &r->t;
		r->last = c->last > r->last ? c->last : r->last;
	}
}

static bool is_gradient_view(const struct jm_cell *c)
{
	return c->t.class == JM_CLASS_GRAD && c->slab && c->made_for;
}

static int by_place(const void *a, const void *b)
{
	const struct jm_cell *x = *(struct jm_cell *const *)a, *y = *(struct jm_cell *const *)b;

	if (x->slab != y->slab)
		return x->slab->id - y->slab->id;
	return (x->slab_offset > y->slab_offset) - (x->slab_offset < y->slab_offset);
}

static size_t end_of(const struct jm_cell *view)
{
	return view->slab_offset + view->t.bytes;
}

/* Adds bytes `from` to `to` of a slab; false = there are too many gaps. */
static bool add_gap(struct jm_program *p, const struct jm_tensor *slab, size_t from, size_t to)
{
	if (from >= to)
		return true;
	if (p->n_gaps == JM_GAPS_MOST)
		return false;
	p->gap[p->n_gaps++] = (struct jm_gap){slab, from, to - from};
	return true;
}

/* True if views and gaps are all of the slabs. */
static bool fill_slabs(const struct jm_program *p)
{
	size_t slabs = 0, parts = 0;

	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (is_gradient_view(c))
			parts += c->first >= 0 ? c->t.bytes : 0;
		else if (c->t.class == JM_CLASS_GRAD && !c->slab)
			slabs += c->t.bytes;
	}
	for (int i = 0; i < p->n_gaps; i++)
		parts += p->gap[i].bytes;
	return slabs == parts;
}

/* Finds what the views leave free of the slabs of gradients; false = too many gaps. */
static bool find_gaps(struct jm_program *p, struct jm_cell **view)
{
	int n = 0;

	p->n_gaps = 0;
	for (int i = 0; i < p->graph->n_cells; i++)
		if (is_gradient_view(p->graph->cell[i]) && p->graph->cell[i]->first >= 0)
			view[n++] = p->graph->cell[i];
	qsort(view, (size_t)n, sizeof(*view), by_place);
	for (int i = 0; i < n; i++) {
		const struct jm_tensor *slab = view[i]->slab;
		bool begins = !i || view[i - 1]->slab != slab;
		bool ends = i + 1 == n || view[i + 1]->slab != slab;

		if (!add_gap(p, slab, begins ? 0 : end_of(view[i - 1]), view[i]->slab_offset) ||
			(ends && !add_gap(p, slab, end_of(view[i]), slab->bytes)))
			return false;
	}
	return fill_slabs(p);
}

/*
 * Gradients that are not summed over micro-steps or ranks live from their first unit to the end of
 * the step, so that they can be read after it; before their first unit other tensors may use their
 * memory. Gaps between them stay zero, as the update reads slabs whole.
 */
static bool live_gradients(struct jm_program *p)
{
	struct jm_cell **view = calloc((size_t)p->graph->n_cells + 1, sizeof(struct jm_cell *));

	if (!view)
		return false;
	p->gradients_move = jm_program_micro_steps(p) == 1 && jm_graph_ranks(p->graph) == 1 &&
			    jm_graph_pp(p->graph) == 1 && find_gaps(p, view);
	free(view);
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		c->own_life = p->gradients_move && c->t.class == JM_CLASS_GRAD;
		if (c->own_life && c->first >= 0)
			c->last = p->n_units - 1;
	}
	if (!p->gradients_move)
		p->n_gaps = 0;
	return true;
}

/* A slab that no unit names lives through its views; slabs persist, so one unit is enough. */
static void live_slabs(const struct jm_program *p)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (c->slab && c->first >= 0 && jm_graph_cell(p->graph, c->slab)->first < 0)
			touch(p, c->slab, c->first);
	}
}

bool jm_program_liveness(struct jm_program *p)
{
	for (int i = 0; i < p->n_units; i++)
		touch_unit(p, i);
	live_slabs(p);
	if (!live_gradients(p))
		return false;
	for (int i = 0; i < p->n_units; i++)
		place_over(p, i);
	return true;
}
