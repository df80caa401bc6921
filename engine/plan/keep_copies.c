/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keep copies: the update also writes the copies of matrices in the compute type, so that no step
 * has to make them again. The copies then persist between steps, in a slab beside those of the
 * optimizer, and are made separately only after a parameter was written in another way. This pays
 * on devices with memory of their own, whose copies have the layout of their parameters.
 */
#include "keep_copies.h"
#include "engine/graph/duplicate_node.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"

#include <stdlib.h>

#define LEAST_USED 0.9 /* share of the slab that copies have to fill */

/* The elements of the slab of parameters that have copies. */
struct span {
	int64_t from, to, used;
	enum jm_dtype type;
};

static struct jm_node *node_of(const struct jm_program *p, const struct jm_unit *u)
{
	return p->graph->node[u->group.node[0]->id];
}

static int64_t first_of(const struct jm_program *p, const struct jm_tensor *param)
{
	return (int64_t)(jm_graph_cell(p->graph, param)->slab_offset / jm_dtype_bytes(param->type));
}

/* True if both have the same elements at the same places, without padding. */
static bool lie_alike(const struct jm_tensor *a, const struct jm_tensor *b)
{
	return jm_layout_equal(&a->layout, &b->layout) &&
	       jm_layout_bytes(a, &a->layout) ==
		       (size_t)jm_tensor_count(a) * jm_dtype_bytes(a->type);
}

/* True if the unit makes a copy, in the layout of the parameter, of one that lies in this slab. */
static bool copies_from(
	const struct jm_program *p, const struct jm_unit *u, const struct jm_tensor *slab)
{
	const struct jm_node *n = u->group.node[0];
	const struct jm_tensor *y = n->out[0];

	return u->group.n_nodes == 1 && n->op == JM_OP_CAST && y->class == JM_CLASS_COPY &&
	       n->in[0]->class == JM_CLASS_PARAM && jm_dtype_bytes(y->type) == 2 &&
	       lie_alike(n->in[0], y) && jm_graph_cell(p->graph, n->in[0])->slab == slab;
}

static void widen(struct span *s, const struct jm_program *p, const struct jm_node *n)
{
	int64_t from = first_of(p, n->in[0]), to = from + jm_tensor_count(n->in[0]);

	if (!s->used || from < s->from)
		s->from = from;
	if (to > s->to)
		s->to = to;
	s->used += to - from;
	s->type = n->out[0]->type;
}

static struct span find_span(const struct jm_program *p, const struct jm_tensor *slab)
{
	struct span s = {0};

	for (int i = 0; i < p->n_micro; i++)
		if (copies_from(p, p->unit[i], slab) && !node_of(p, p->unit[i])->again)
			widen(&s, p, node_of(p, p->unit[i]));
	return s;
}

static bool can_write_copies(const struct jm_unit *u)
{
	const struct jm_node *n = u->group.node[0];
	bool adam = n->op == JM_OP_ADAMW || n->op == JM_OP_ADAM;

	return adam && u->group.n_nodes == 1 && n->out[0]->type == JM_F32;
}

/* The update whose parameters have copies: of matrices and vectors apart, that of the matrices;
 * NULL = there is none. */
static struct jm_unit *find_update(const struct jm_program *p, struct span *ret)
{
	for (int i = p->n_micro; i < p->n_units; i++) {
		if (!can_write_copies(p->unit[i]))
			continue;
		*ret = find_span(p, p->unit[i]->group.node[0]->out[0]);
		if (ret->used)
			return p->unit[i];
	}
	return NULL;
}

/* Gives the update the slab of copies; false: the backend refuses, and nothing has changed. */
static bool extend_update(
	struct jm_program *p, struct jm_unit *u, struct jm_tensor *copies, int64_t from)
{
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	struct jm_node *n = node_of(p, u);

	n->out[3] = copies;
	n->attr.adamw.copy_first = from;
	if (p->device->backend->select(p->device->dev, &u->group, choice, NULL) > 0 &&
		!choice[0].scratch && !choice[0].saved) {
		u->choice = choice[0];
		jm_node_cost(n);
		return true;
	}
	n->out[3] = NULL;
	return false;
}

/* The kept copy of the parameter. */
static struct jm_tensor *kept_of(const struct jm_program *p, const struct jm_tensor *param, int n)
{
	for (int i = 0; i < n; i++)
		if (p->unit[i]->group.node[0]->in[0] == param)
			return p->unit[i]->group.node[0]->out[0];
	return NULL;
}

/* Moves the units that make the kept copies to the front; returns their number. */
static int move_to_front(struct jm_program *p, const struct jm_tensor *slab, struct jm_unit **room)
{
	int n = 0, n_rest = 0;

	for (int i = 0; i < p->n_units; i++)
		if (i < p->n_micro && copies_from(p, p->unit[i], slab) &&
			!node_of(p, p->unit[i])->again)
			p->unit[n++] = p->unit[i];
		else
			room[n_rest++] = p->unit[i];
	for (int i = 0; i < n_rest; i++)
		p->unit[n + i] = room[i];
	return n;
}

/* Removes the units that make a kept copy again. */
static void drop_duplicates(struct jm_program *p, const struct jm_tensor *slab)
{
	int n = p->n_kept, n_micro = p->n_micro;

	for (int i = p->n_kept; i < p->n_units; i++) {
		struct jm_unit *u = p->unit[i];
		const struct jm_node *node = u->group.node[0];

		if (i < n_micro && copies_from(p, u, slab)) {
			jm_rename_reads(
				p->graph, 0, node->out[0], kept_of(p, node->in[0], p->n_kept));
			free(u);
			p->n_micro--;
		} else {
			p->unit[n++] = u;
		}
	}
	p->n_units = n;
}

static void place_copies(struct jm_program *p, struct jm_tensor *copies, int64_t from)
{
	for (int i = 0; i < p->n_kept; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];
		struct jm_cell *c = jm_graph_cell(p->graph, n->out[0]);

		c->slab = copies;
		c->slab_offset =
			(size_t)(first_of(p, n->in[0]) - from) * jm_dtype_bytes(copies->type);
	}
}

static int keep(struct jm_program *p, struct jm_unit *u, const struct span *s, struct jm_err *err)
{
	const struct jm_tensor *slab = node_of(p, u)->out[0];
	struct jm_unit **room = calloc((size_t)p->n_units + 1, sizeof(*room));
	struct jm_tensor *copies = jm_graph_tensor(p->graph, JM_CLASS_OPT, s->type, 1,
		(const int64_t[]){s->to - s->from}, "update.copies");

	if (!room || !copies) {
		free(room);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the order of a program.");
	}
	if (extend_update(p, u, copies, s->from)) {
		p->n_kept = p->n_once = move_to_front(p, slab, room);
		drop_duplicates(p, slab);
		place_copies(p, copies, s->from);
		for (int i = 0; i < p->n_units; i++)
			p->unit[i]->position = i;
	}
	free(room);
	return 0;
}

int jm_program_keep_copies(struct jm_program *p, struct jm_err *err)
{
	struct jm_unit *u;
	struct span s;

	if (!p->is_first || p->device->props.host_memory || jm_graph_ranks(p->graph) > 1)
		return 0;
	u = find_update(p, &s);
	if (!u || (double)s.used < LEAST_USED * (double)(s.to - s.from))
		return 0;
	return keep(p, u, &s, err);
}
