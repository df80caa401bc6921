/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout search: finds the combination of the backend's choices for all groups with the lowest
 * cost, reorders included. Dynamic programming over the groups in their order: a way is the list of
 * choices so far. Of all ways with the same layouts of the tensors that are read later, only the
 * cheapest is kept. The search is exact if there are at most WAYS such states, as along a chain.
 * The choices of a group depend on the layouts of its operands, so the backend is called once per
 * state.
 */
#include "layout_search.h"
#include "cost.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WAYS	8
#define LAYOUTS 255

/* The last choice of a way, and those before it. */
struct step {
	struct step *before, *next; /* next: in the list of all steps, to free them */
	struct jm_choice choice;
	unsigned apart;
	bool chosen, narrow;
};

struct way {
	double cost;
	uint8_t *layout; /* [cell]: its number in search.layouts; 0 = plain */
	struct step *last;
};

/* The choices that the backend offers in a state. */
struct answer {
	int n;
	struct jm_choice choice[JM_CHOICE_MAX];
};

#define NAMED (JM_GROUP_MAX * (JM_NODE_IN + JM_NODE_OUT + 1))

struct search {
	struct jm_program *p;
	struct jm_advice *advice;
	int *last_use;			/* [cell]: the last group that names it */
	struct jm_tensor *named[NAMED]; /* by the current group */
	int n_named;
	struct way way[2][WAYS], spare;
	int n_ways[2], now;	  /* way[now] before the group, way[!now] after it */
	uint8_t *given;		  /* [cell]: number of its layout before the search */
	struct answer *answer[3]; /* [as it is, apart, narrow][way before the group] */
	struct jm_layout layouts[LAYOUTS];
	int n_layouts;
	struct step *steps;
};

/* ---- the tensors a group names --------------------------------------------------------------- */

static void name(struct search *s, struct jm_tensor *const *t, int n)
{
	for (int i = 0; i < n; i++)
		if (t[i])
			s->named[s->n_named++] = t[i];
}

/* Lists operands, results and, for a gradient, the first operand of the forward node, whose layout
 * is a hint. */
static void name_tensors(struct search *s, int at)
{
	const struct jm_group *group = &s->advice[at].group;

	s->n_named = 0;
	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		name(s, n->in, n->n_in);
		name(s, n->out, n->n_out);
		if (n->fwd)
			name(s, n->fwd->in, 1);
	}
}

static void find_last_uses(struct search *s, int n)
{
	for (int at = 0; at < n; at++) {
		name_tensors(s, at);
		for (int i = 0; i < s->n_named; i++)
			s->last_use[s->named[i]->id] = at;
	}
}

static void set_layout(struct jm_tensor *t, const struct jm_layout *layout)
{
	t->layout = *layout;
	t->bytes = jm_layout_bytes(t, layout);
}

/* Sets the tensors' layouts to those of this way. */
static void show(struct search *s, const struct way *way)
{
	for (int i = 0; i < s->n_named; i++)
		set_layout(s->named[i], &s->layouts[way->layout[s->named[i]->id]]);
}

/* True if two ways have the same layouts for the current group. */
static bool look_the_same(const struct search *s, const struct way *a, const struct way *b)
{
	for (int i = 0; i < s->n_named; i++)
		if (a->layout[s->named[i]->id] != b->layout[s->named[i]->id])
			return false;
	return true;
}

/* Marks operands as read, as apply_choices.c does; the node that makes a copy does not read it. */
static void note_reads(struct search *s, int at)
{
	const struct jm_group *group = &s->advice[at].group;

	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (n->in[i])
				jm_graph_cell(s->p->graph, n->in[i])->read = true;
	}
}

/* Resets the layouts of tensors without further readers, so that they do not distinguish ways. */
static void forget(struct search *s, int at)
{
	for (int i = 0; i < s->n_named; i++)
		if (s->last_use[s->named[i]->id] == at)
			s->spare.layout[s->named[i]->id] = 0;
}

/* The number of the layout; -1 = there are too many layouts. */
static int number_of(struct search *s, const struct jm_layout *layout)
{
	for (int i = 0; i < s->n_layouts; i++)
		if (jm_layout_equal(&s->layouts[i], layout))
			return i;
	if (s->n_layouts == LAYOUTS)
		return -1;
	s->layouts[s->n_layouts] = *layout;
	return s->n_layouts++;
}

/* ---- from the ways before a group to those after it ------------------------------------------ */

/* choice NULL: the backend refused the group, and apply_choices.c has to handle it. apart: as bits,
 * the results of a single node that separate nodes transfer to their destinations, since the
 * backend cannot add there or (narrow) cannot write the first in its type. */
struct move {
	const struct jm_choice *choice;
	unsigned apart;
	bool narrow;
};

/* Sets the tensor's layout from now on; false = there are too many layouts. */
static bool lay(struct search *s, const struct jm_tensor *t, const struct jm_layout *layout)
{
	int number = number_of(s, layout);

	if (number >= 0)
		s->spare.layout[t->id] = (uint8_t)number;
	return number >= 0;
}

/* The spare way becomes the state after the move. */
static bool leave(struct search *s, int at, const struct way *from, const struct move *m)
{
	const struct jm_group *group = &s->advice[at].group;
	bool good = true;

	memcpy(s->spare.layout, from->layout, (size_t)s->p->graph->n_cells);
	for (int k = 0; m->choice && k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (n->in[i] && jm_choice_is_open(s->p, n->in[i]))
				good &= lay(s, n->in[i], &m->choice->in[k][i]);
		for (int i = 0; i < n->n_out; i++)
			if (n->out[i] && !((n->accumulate | m->apart) >> i & 1))
				good &= lay(s, n->out[i], &m->choice->out[k][i]);
	}
	forget(s, at);
	return good;
}

/* The place of the spare way: that of one with the same state or of the most expensive; NULL =
 * none. */
static struct way *place_for(struct search *s)
{
	struct way *way = s->way[!s->now], *dearest = way;
	int *n = &s->n_ways[!s->now];

	for (int i = 0; i < *n; i++) {
		if (!memcmp(way[i].layout, s->spare.layout, (size_t)s->p->graph->n_cells))
			return s->spare.cost < way[i].cost ? &way[i] : NULL;
		if (way[i].cost > dearest->cost)
			dearest = &way[i];
	}
	if (*n < WAYS)
		return &way[(*n)++];
	return s->spare.cost < dearest->cost ? dearest : NULL;
}

/* Makes a move. 1 = it is possible, although perhaps not kept; 0 = it is not possible. */
static int go_on(
	struct search *s, int at, const struct way *from, const struct move *m, struct jm_err *err)
{
	struct way *to;
	struct step *step;
	uint8_t *layout;

	s->spare.cost =
		from->cost + jm_choice_cost(s->p, &s->advice[at].group, m->choice, m->apart);
	if (!isfinite(s->spare.cost) || !leave(s, at, from, m))
		return 0;
	to = place_for(s);
	if (!to)
		return 1;
	step = calloc(1, sizeof(*step));
	if (!step)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the choices of a program.");
	*step = (struct step){.before = from->last,
		.next = s->steps,
		.chosen = m->choice,
		.apart = m->apart,
		.narrow = m->narrow};
	if (m->choice)
		step->choice = *m->choice;
	s->steps = step;
	layout = to->layout;
	*to = (struct way){s->spare.cost, s->spare.layout, step};
	s->spare.layout = layout;
	return 1;
}

/* The choices that the backend offers after way number `way`; ways with the same layouts share one
 * answer. */
static const struct answer *ask(struct search *s, int at, int way, int kind)
{
	const struct way *ways = s->way[s->now];
	struct answer *a = &s->answer[kind][way];
	struct jm_device *d = s->p->device;

	for (int i = 0; i < way; i++)
		if (look_the_same(s, &ways[i], &ways[way])) {
			*a = s->answer[kind][i];
			return a;
		}
	memset(a, 0, sizeof(*a));
	a->n = jm_device_select(d, &s->advice[at].group, a->choice, NULL);
	return a;
}

/* Returns the number of possible moves; negative = an error. */
static int try_choices(
	struct search *s, int at, int way, unsigned apart, bool narrow, struct jm_err *err)
{
	const struct answer *a = ask(s, at, way, narrow ? 2 : apart != 0);
	int moves = 0;

	for (int i = 0; i < a->n; i++) {
		int code = go_on(s, at, &s->way[s->now][way],
			&(struct move){&a->choice[i], apart, narrow}, err);

		if (code < 0)
			return code;
		moves += code;
	}
	return moves;
}

/* Tries the group with the first result in the type of the operands. apart: bits of results,
 * including the first */
static int try_narrow(
	struct search *s, int at, int way, struct jm_node *n, unsigned apart, struct jm_err *err)
{
	unsigned sums = n->accumulate;
	struct jm_tensor *whole = n->out[0], part = *whole;
	int moves;

	part.type = n->in[0]->type;
	part.class = JM_CLASS_ACT;
	set_layout(&part, &(struct jm_layout){0});
	n->out[0] = &part;
	n->accumulate &= ~apart;
	moves = try_choices(s, at, way, apart, true, err);
	n->out[0] = whole;
	n->accumulate = sums;
	return moves;
}

static int extend(struct search *s, int at, int way, struct jm_err *err)
{
	const struct jm_group *group = &s->advice[at].group;
	struct jm_node *n = s->p->graph->node[group->node[0]->id];
	unsigned sums = n->accumulate;
	int moves;

	show(s, &s->way[s->now][way]);
	moves = try_choices(s, at, way, 0, false, err);
	if (!moves && sums && group->n_nodes == 1) {
		n->accumulate = 0;
		moves = try_choices(s, at, way, sums, false, err);
		n->accumulate = sums;
	}
	if (!moves && group->n_nodes == 1 && jm_node_narrows(n))
		moves = try_narrow(s, at, way, n, 1, err);
	if (!moves && sums & ~1U && group->n_nodes == 1 && jm_node_narrows(n))
		moves = try_narrow(s, at, way, n, sums | 1, err);
	if (!moves)
		moves = go_on(s, at, &s->way[s->now][way], &(struct move){NULL, 0, false}, err);
	return moves < 0 ? moves : 0;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Makes the first way, with the layouts of the graph. */
static int start(struct search *s, struct jm_err *err)
{
	const struct jm_graph *g = s->p->graph;

	for (int i = 0; i < g->n_cells; i++) {
		int number = number_of(s, &g->cell[i]->t.layout);

		if (number < 0)
			return jm_err_set(err, JM_ENOSUP,
				"The tensors of a graph are given in more than %d layouts.",
				LAYOUTS);
		s->given[i] = (uint8_t)number;
	}
	memcpy(s->way[0][0].layout, s->given, (size_t)g->n_cells);
	return 0;
}

static int walk(struct search *s, int n, struct jm_err *err)
{
	int code = 0;

	find_last_uses(s, n);
	for (int at = 0; at < n && !code; at++) {
		name_tensors(s, at);
		s->n_ways[!s->now] = 0;
		for (int i = 0; i < s->n_ways[s->now] && !code; i++)
			code = extend(s, at, i, err);
		note_reads(s, at);
		s->now = !s->now;
	}
	return code;
}

/* After the last group no tensor is read any more, so only one way is left. */
static void take_choices(struct search *s, int n)
{
	for (const struct step *step = s->way[s->now][0].last; step; step = step->before) {
		struct jm_advice *a = &s->advice[--n];

		a->choice = step->choice;
		a->chosen = step->chosen;
		a->apart = step->apart;
		a->narrow = step->narrow;
	}
}

/* Restores the layouts and marks. */
static void clean_up(struct search *s)
{
	struct jm_graph *g = s->p->graph;

	for (int i = 0; i < g->n_cells; i++) {
		set_layout(&g->cell[i]->t, &s->layouts[s->given[i]]);
		g->cell[i]->read = false;
	}
	for (struct step *step = s->steps, *next; step; step = next) {
		next = step->next;
		free(step);
	}
}

int jm_program_search_layouts(
	struct jm_program *p, struct jm_advice *advice, int n, struct jm_err *err)
{
	size_t cells = (size_t)p->graph->n_cells + 1;
	struct search s = {.p = p, .advice = advice, .n_layouts = 1, .n_ways = {1}};
	uint8_t *room = calloc(2 * WAYS + 2, cells);
	struct answer *answers = calloc(3 * (size_t)WAYS, sizeof(*answers));
	int code = JM_ENOMEM;

	s.last_use = calloc(cells, sizeof(*s.last_use));
	if (room && answers && s.last_use) {
		for (int i = 0; i < 2 * WAYS; i++)
			s.way[i / WAYS][i % WAYS].layout = room + (size_t)i * cells;
		s.spare.layout = room + 2 * WAYS * cells;
		s.given = room + (2 * WAYS + 1) * cells;
		s.answer[0] = answers;
		s.answer[1] = answers + WAYS;
		s.answer[2] = answers + 2 * (size_t)WAYS;
		code = start(&s, err);
		if (!code) {
			code = walk(&s, n, err);
			if (!code)
				take_choices(&s, n);
			clean_up(&s);
		}
	} else {
		jm_err_set(err, code, "Out of memory for the choices of a program.");
	}
	free(room);
	free(answers);
	free(s.last_use);
	return code;
}
