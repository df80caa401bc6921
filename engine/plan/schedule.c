/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedule: the order of execution. Recomputed nodes are placed directly before their first reader;
 * later, when every group and its bytes are known, groups change places where this frees memory
 * earlier.
 */
#include "schedule.h"
#include "arena.h"
#include "engine/graph/op.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW 12 /* parts that may be exchanged */

/* ---- nodes: a recomputed value comes directly before its first reader or that one's group --- */

struct order {
	struct jm_graph *g;
	struct jm_node **node;
	int n;
	bool *placed;		  /* [node] */
	struct jm_node **waiting; /* [node]: the wgrad that comes directly after it */
};

static void place(struct order *o, struct jm_node *n);

static void place_makers(struct order *o, const struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++) {
		struct jm_node *maker = n->in[i] ? jm_graph_cell(o->g, n->in[i])->producer : NULL;

		if (maker && maker->again && !o->placed[maker->id])
			place(o, maker);
	}
}

static void place(struct order *o, struct jm_node *n)
{
	o->placed[n->id] = true;
	place_makers(o, n);
	o->node[o->n++] = n;
}

/* The recomputed node whose result the gradient of a matrix or a filter reads; NULL = there is
 * none. */
static struct jm_node *again_of(const struct order *o, const struct jm_node *wgrad)
{
	bool is = wgrad->op == JM_OP_LINEAR_WGRAD || wgrad->op == JM_OP_CONV_WGRAD;
	struct jm_node *maker =
		is && wgrad->in[1] ? jm_graph_cell(o->g, wgrad->in[1])->producer : NULL;

	return maker && maker->again && !o->placed[maker->id] ? maker : NULL;
}

static bool has(struct jm_tensor *const *t, int n, const struct jm_tensor *one)
{
	for (int i = 0; i < n; i++)
		if (t[i] == one)
			return true;
	return false;
}

static bool may_swap(const struct jm_node *a, const struct jm_node *b)
{
	if (jm_op_is_border(a->op) || jm_op_is_border(b->op))
		return false;
	for (int i = 0; i < a->n_in; i++)
		if (a->in[i] && has(b->out, b->n_out, a->in[i]))
			return false;
	for (int i = 0; i < a->n_out; i++)
		if (a->out[i] &&
			(has(b->in, b->n_in, a->out[i]) || has(b->out, b->n_out, a->out[i])))
			return false;
	return true;
}

bool jm_unit_may_swap(const struct jm_unit *u, const struct jm_node *n)
{
	for (int k = 0; k < u->group.n_nodes; k++)
		if (!may_swap(u->group.node[k], n))
			return false;
	return true;
}

bool jm_unit_put_behind(struct jm_program *p, int at, int to)
{
	struct jm_unit *u = p->unit[at];

	for (int i = at + 1; i <= to; i++)
		if (!jm_unit_may_swap(p->unit[i], u->group.node[0]))
			return false;
	memmove(p->unit + at, p->unit + at + 1, (size_t)(to - at) * sizeof(struct jm_unit *));
	p->unit[to] = u;
	return true;
}

/* True if the wgrad, and the recomputed node whose result it reads, may come after the node
 * `grad`. Recomputed nodes have no place yet. */
static bool may_wait(const struct jm_graph *g, const struct jm_node *wgrad,
	const struct jm_node *again, const struct jm_node *grad)
{
	for (int k = wgrad->id + 1; k <= grad->id; k++)
		if (!g->node[k]->again &&
			(!may_swap(wgrad, g->node[k]) || !may_swap(again, g->node[k])))
			return false;
	return true;
}

/*
 * The gradient of a recomputed activation or norm that a wgrad reads: the wgrad waits for it, so
 * that both become a group, which reads their operand once (group.c). If a linear-wgrad would
 * otherwise join a group, which computes the gradient of its bias, it waits only if the node is to
 * be beside, and so does a conv-wgrad, unless it applies the norm itself.
 * NULL = it does not wait, because there is no such gradient, or a node in between changes or reads
 * what it uses.
 */
static struct jm_node *awaited(const struct order *o, const struct jm_node *wgrad)
{
	const struct jm_node *again = again_of(o, wgrad);
	enum jm_op grad = again ? jm_group_gradient(again->op) : JM_OP_COUNT;
	bool conv = wgrad->op == JM_OP_CONV_WGRAD;

	if (grad == JM_OP_COUNT || ((conv || wgrad->out[1]) && !again->beside) ||
		(conv && wgrad->attr.conv.groups > 1))
		return NULL;
	for (int k = wgrad->id + 1; k < o->g->n_nodes; k++) {
		struct jm_node *n = o->g->node[k];

		if (n->op == grad && n->in[1] == again->in[0])
			return o->waiting[k] || !may_wait(o->g, wgrad, again, n) ? NULL : n;
	}
	return NULL;
}

/* Places the node and, if a wgrad waits for it, the activation which that reads, and it; in
 * between the linear-wgrad that may join the group of the node and the activation. */
static void place_next(struct order *o, struct jm_node *n)
{
	struct jm_node *waiting = o->waiting[n->id];
	const struct jm_node *joins = waiting ? jm_group_wgrad(o->g, n->id) : NULL;

	place(o, n);
	if (joins && may_swap(waiting, joins)) {
		place_makers(o, waiting);
		place(o, o->g->node[joins->id]);
	}
	if (waiting)
		place(o, waiting);
}

/* The copy of a filter that is made between an image that grows, or a norm, and the convolution of
 * that image, which become a group; NULL = there is none. */
static struct jm_node *copy_behind(const struct jm_graph *g, int k)
{
	struct jm_node *next = k + 1 < g->n_nodes ? g->node[k + 1] : NULL;

	const struct jm_node *n = g->node[k];
	bool joins = n->op == JM_OP_UPSAMPLE ||
		     ((n->op == JM_OP_BN_APPLY || n->op == JM_OP_RELU) && n->beside);

	return joins && next && next->op == JM_OP_CAST && next->out[0]->class == JM_CLASS_COPY &&
			       !next->again
		       ? next
		       : NULL;
}

static int order_nodes(struct order *o, struct jm_err *err)
{
	struct jm_graph *g = o->g;

	for (int k = 0; k < g->n_nodes; k++) {
		const struct jm_node *wgrad = jm_group_wgrad(g, k);
		struct jm_node *n = g->node[k], *grad = awaited(o, n), *copy = copy_behind(g, k);

		if (n->again || o->placed[k])
			continue;
		if (copy)
			place(o, copy);
		if (wgrad && !awaited(o, wgrad))
			place_makers(o, wgrad);
		if (grad)
			o->waiting[grad->id] = n;
		else
			place_next(o, n);
	}
	if (o->n < g->n_nodes)
		return jm_err_set(err, JM_EBUG,
			"A node is recomputed but never read; this is a defect in rematerialize.c "
			"or recompute.c.");
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
		.placed = calloc((size_t)g->n_nodes + 1, sizeof(bool)),
		.waiting = calloc((size_t)g->n_nodes + 1, sizeof(struct jm_node *))};
	int code = JM_ENOMEM;

	if (o.node && o.placed && o.waiting)
		code = order_nodes(&o, err);
	else
		jm_err_set(err, code, "Out of memory for the order of nodes.");
	free(o.node);
	free(o.placed);
	free(o.waiting);
	return code;
}

/* ---- units: those that free most memory come first ------------------------------------------- */

/* A unit and the copies and recomputed values before it that are made for it; they stay
 * together. */
struct part {
	int first, n;	      /* units, in the order declared */
	int touch, n_touches; /* in parts.touch */
	bool after[WINDOW];   /* [j]: must stay after the part j before it */
	bool border;	      /* of a part of a stage: nothing is moved across it */
	bool placed;
};

struct touch {
	int cell;
	bool writes;
};

struct parts {
	const struct jm_program *p;
	struct part *part;
	int n;
	struct touch *touch;
	int n_touches, cap_touches;
	int *uses;  /* [cell]: unplaced parts that use it */
	bool *live; /* [cell] */
};

/* True if the unit serves one reader only, with which it moves. */
static bool goes_along(const struct jm_unit *u)
{
	const struct jm_node *n = u->group.node[0];

	return u->group.n_nodes == 1 &&
	       (n->again || (n->op == JM_OP_QUANTIZE && n->out[0]->class == JM_CLASS_COPY) ||
		       (n->op == JM_OP_CAST && (n->out[0]->class == JM_CLASS_COPY ||
						       n->in[0]->type == n->out[0]->type)));
}

static bool add_touch(struct parts *s, struct part *part, const struct jm_tensor *t, bool writes)
{
	struct touch *more;

	if (!t || t->is_virtual)
		return true;
	for (int i = 0; i < part->n_touches; i++)
		if (s->touch[part->touch + i].cell == t->id) {
			s->touch[part->touch + i].writes |= writes;
			return true;
		}
	if (s->n_touches == s->cap_touches) {
		s->cap_touches = s->cap_touches ? 2 * s->cap_touches : 1024;
		more = realloc(s->touch, (size_t)s->cap_touches * sizeof(*more));
		if (!more)
			return false;
		s->touch = more;
	}
	s->touch[s->n_touches++] = (struct touch){t->id, writes};
	part->n_touches++;
	s->uses[t->id]++;
	return true;
}

static bool add_unit(struct parts *s, struct part *part, const struct jm_unit *u)
{
	const struct jm_unit *fwd = (const struct jm_unit *)u->group.fwd;
	bool good = add_touch(s, part, u->saved, true) &&
		    add_touch(s, part, fwd ? fwd->saved : NULL, false);

	for (int k = 0; k < u->group.n_nodes; k++) {
		const struct jm_node *n = u->group.node[k];

		for (int i = 0; i < n->n_in; i++)
			good = good && add_touch(s, part, n->in[i], false);
		for (int i = 0; i < n->n_out; i++)
			good = good && add_touch(s, part, n->out[i], true);
	}
	part->n++;
	return good;
}

/* True if both use a tensor that one of them writes, or one is a border. */
static bool conflict(const struct parts *s, const struct part *a, const struct part *b)
{
	if (a->border || b->border)
		return true;
	for (int i = 0; i < a->n_touches; i++)
		for (int k = 0; k < b->n_touches; k++) {
			const struct touch *x = &s->touch[a->touch + i],
					   *y = &s->touch[b->touch + k];

			if (x->cell == y->cell && (x->writes || y->writes))
				return true;
		}
	return false;
}

static bool find_parts(struct parts *s, int from, int to)
{
	bool good = true;

	for (int i = from; i < to && good;) {
		struct part *part = &s->part[s->n++];

		*part = (struct part){.first = i, .touch = s->n_touches};
		while (i + 1 < to && good && goes_along(s->p->unit[i]))
			good = add_unit(s, part, s->p->unit[i++]);
		part->border = jm_op_is_border(s->p->unit[i]->group.node[0]->op);
		good = good && add_unit(s, part, s->p->unit[i++]);
		for (int j = 1; j < WINDOW && j < s->n; j++)
			part->after[j] = conflict(s, part, part - j);
	}
	return good;
}

static bool moves(const struct jm_tensor *t)
{
	return t->class == JM_CLASS_ACT || t->class == JM_CLASS_COPY || t->class == JM_CLASS_SAVED;
}

/* The growth of live bytes by the part. */
static double growth(const struct parts *s, const struct part *part)
{
	double bytes = 0;

	for (int i = 0; i < part->n_touches; i++) {
		int cell = s->touch[part->touch + i].cell;
		const struct jm_tensor *t = &s->p->graph->cell[cell]->t;

		if (!moves(t))
			continue;
		if (!s->live[cell])
			bytes += (double)t->bytes;
		if (s->uses[cell] == 1)
			bytes -= (double)t->bytes;
	}
	return bytes;
}

/* True if all parts that it must follow are placed. first: the first part that is not placed. */
static bool is_ready(const struct parts *s, int first, int at)
{
	for (int j = 1; j <= at - first; j++)
		if (s->part[at].after[j] && !s->part[at - j].placed)
			return false;
	return true;
}

static struct part *next_part(struct parts *s, int first)
{
	struct part *best = NULL;
	double least = 0;

	for (int at = first; at < s->n && at < first + WINDOW; at++) {
		double bytes;

		if (s->part[at].placed || !is_ready(s, first, at))
			continue;
		bytes = growth(s, &s->part[at]);
		if (!best || bytes < least) {
			best = &s->part[at];
			least = bytes;
		}
	}
	return best;
}

static void place_part(struct parts *s, struct part *part)
{
	part->placed = true;
	for (int i = 0; i < part->n_touches; i++) {
		int cell = s->touch[part->touch + i].cell;

		s->live[cell] = true;
		s->uses[cell]--;
	}
}

static void order_units(struct parts *s, struct jm_unit **order)
{
	int n = s->part[0].first;

	for (int first = 0; first < s->n;) {
		struct part *part = next_part(s, first);

		place_part(s, part);
		memcpy(order + n, s->p->unit + part->first, (size_t)part->n * sizeof(*order));
		n += part->n;
		while (first < s->n && s->part[first].placed)
			first++;
	}
}

static void set_order(struct jm_program *p, struct jm_unit *const *order)
{
	memcpy(p->unit, order, (size_t)p->n_units * sizeof(*order));
	for (int i = 0; i < p->n_units; i++)
		p->unit[i]->position = i;
}

/* order: in: as declared; out: the new order */
static int find_order(const struct jm_program *p, struct jm_unit **order, struct jm_err *err)
{
	size_t cells = (size_t)p->graph->n_cells + 1;
	struct parts s = {.p = p,
		.part = calloc((size_t)p->n_units + 1, sizeof(struct part)),
		.uses = calloc(cells, sizeof(int)),
		.live = calloc(cells, sizeof(bool))};
	bool good = s.part && s.uses && s.live && find_parts(&s, p->n_once, p->n_micro);

	if (good && s.n)
		order_units(&s, order);
	free(s.part);
	free(s.touch);
	free(s.uses);
	free(s.live);
	return good ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the order of a program.");
}

int jm_program_schedule(struct jm_program *p, struct jm_err *err)
{
	size_t n = (size_t)p->n_units, declared = 0;
	struct jm_unit **order = calloc(2 * n + 1, sizeof(*order));
	int code = order ? jm_program_places(p, err) : JM_ENOMEM;

	if (!order)
		return jm_err_set(err, code, "Out of memory for the order of a program.");
	declared = p->peak_bytes;
	memcpy(order, p->unit, n * sizeof(*order));
	memcpy(order + n, p->unit, n * sizeof(*order));
	if (!code)
		code = find_order(p, order, err);
	if (!code && memcmp(order, order + n, n * sizeof(*order)) != 0) {
		set_order(p, order);
		code = jm_program_places(p, err);
		if (!code && p->peak_bytes >= declared) {
			set_order(p, order + n);
			code = jm_program_places(p, err);
		}
	}
	free(order);
	return code;
}
