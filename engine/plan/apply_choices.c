/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the choices of layout_search.c to the groups. A refused group is split; if a sum into an
 * output is refused, the node writes a separate tensor, which an add node adds. Where layouts
 * differ, a cast node is inserted; a parameter's compute copy takes the layout that its first
 * reader needs.
 */
#include "apply_choices.h"
#include "cost.h"
#include "engine/graph/op.h"
#include "engine/graph/tensor.h"
#include "layout_search.h"
#include "param_layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* advice: the choice for these nodes; NULL = the cheapest with the current layouts */
static int settle(struct jm_program *p, struct jm_node *const *node, int n,
	const struct jm_advice *advice, struct jm_err *err);

static struct jm_node *node_of(const struct jm_program *p, const struct jm_unit *u, int i)
{
	return p->graph->node[u->group.node[i]->id];
}

static struct jm_unit *unit_of_node(const struct jm_program *p, const struct jm_node *n)
{
	return n && n->id < p->cap_unit_of ? p->unit_of[n->id] : NULL;
}

/* Sets unit_of for each node of the unit; false = out of memory. */
static bool note_unit(struct jm_program *p, struct jm_unit *u)
{
	int cap = 2 * p->graph->n_nodes;

	if (p->cap_unit_of < p->graph->n_nodes) {
		struct jm_unit **more = realloc(p->unit_of, (size_t)cap * sizeof(*more));

		if (!more)
			return false;
		memset(more + p->cap_unit_of, 0, (size_t)(cap - p->cap_unit_of) * sizeof(*more));
		p->unit_of = more;
		p->cap_unit_of = cap;
	}
	for (int k = 0; k < u->group.n_nodes; k++)
		p->unit_of[u->group.node[k]->id] = u;
	return true;
}

/* The forward unit of the nodes: the first that saves something for them, else the first. */
static struct jm_unit *forward_unit(const struct jm_program *p, struct jm_node *const *node, int n)
{
	struct jm_unit *first = NULL;

	for (int i = 0; i < n; i++) {
		struct jm_unit *u = unit_of_node(p, node[i]->fwd);

		if (u && u->saved)
			return u;
		first = first ? first : u;
	}
	return first;
}

static struct jm_unit *unit_new(const struct jm_program *p, struct jm_node *const *node, int n)
{
	struct jm_unit *u = calloc(1, sizeof(*u));
	struct jm_unit *fwd = forward_unit(p, node, n);

	if (!u)
		return NULL;
	u->group.n_nodes = n;
	for (int i = 0; i < n; i++)
		u->group.node[i] = node[i];
	u->group.fwd = fwd ? &fwd->group : NULL;
	return u;
}

static int push(struct jm_program *p, struct jm_unit *u, struct jm_err *err)
{
	if (p->n_units == p->cap_units) {
		int cap = p->cap_units ? 2 * p->cap_units : 64;
		struct jm_unit **more = realloc(p->unit, (size_t)cap * sizeof(*more));

		if (!more) {
			free(u);
			return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
		}
		p->unit = more;
		p->cap_units = cap;
	}
	if (!note_unit(p, u)) {
		free(u);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	}
	u->position = p->n_units;
	p->unit[p->n_units++] = u;
	return 0;
}

/* ---- choices --------------------------------------------------------------------------------- */

static const struct jm_choice *cheapest(
	const struct jm_program *p, const struct jm_unit *u, const struct jm_choice *choice, int n)
{
	const struct jm_choice *best = NULL;
	double least = INFINITY;

	for (int i = 0; i < n; i++) {
		double cost = jm_choice_cost(p, &u->group, &choice[i], 0);

		if (cost < least) {
			least = cost;
			best = &choice[i];
		}
	}
	return best;
}

/* Sets the unit's choice: the advised one or the cheapest; false = the backend refused. */
static bool choose(
	struct jm_program *p, struct jm_unit *u, const struct jm_advice *advice, struct jm_err *why)
{
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	const struct jm_choice *best = advice && advice->chosen ? &advice->choice : NULL;
	int n;

	if (!best) {
		n = jm_device_select(p->device, &u->group, choice, why);
		best = cheapest(p, u, choice, n);
	}
	if (best)
		u->choice = *best;
	return best;
}

static struct jm_tensor *extra(
	struct jm_program *p, enum jm_class class, size_t bytes, const char *name)
{
	int64_t n = (int64_t)(bytes + 3) / 4;

	return bytes ? jm_graph_tensor(p->graph, class, JM_I32, 1, &n, name) : NULL;
}

/* Declares the memory that the choice requests. */
static void take_memory(struct jm_program *p, struct jm_unit *u)
{
	u->scratch = extra(p, JM_CLASS_SCRATCH, u->choice.scratch, "scratch");
	u->saved = extra(p, JM_CLASS_SAVED, u->choice.saved, "saved");
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The copies of a tensor that does not change in a step, by layout; else NULL. */
static struct jm_tensor *find_copy(
	const struct jm_program *p, const struct jm_tensor *t, const struct jm_layout *layout)
{
	const struct jm_cell *c = jm_graph_cell(p->graph, t);

	for (struct jm_tensor *k = c->copy; k; k = jm_graph_cell(p->graph, k)->copy)
		if (k->type == t->type && jm_layout_equal(&k->layout, layout))
			return k;
	return NULL;
}

/* A new tensor like t in that layout, and the unit that fills it. */
static struct jm_tensor *add_reorder(struct jm_program *p, struct jm_tensor *t,
	const struct jm_layout *layout, struct jm_err *err)
{
	struct jm_graph *g = p->graph;
	bool constant = t->class == JM_CLASS_PARAM || t->class == JM_CLASS_COPY;
	struct jm_tensor *to = jm_graph_tensor(
		g, constant ? JM_CLASS_COPY : JM_CLASS_ACT, t->type, t->rank, t->dim, "reorder");
	struct jm_node *n;

	if (!to)
		return NULL;
	snprintf(to->name, sizeof(to->name), "%.150s.reorder", t->name);
	to->layout = *layout;
	to->bytes = jm_layout_bytes(to, layout);
	n = jm_graph_node(g, JM_OP_CAST, &t, &to);
	if (!n || settle(p, &n, 1, NULL, err))
		return NULL;
	if (constant) {
		jm_graph_cell(g, to)->copy = jm_graph_cell(g, t)->copy;
		jm_graph_cell(g, t)->copy = to;
	}
	return to;
}

/* Selects the unit that makes the copy again, for this layout; false = refused, nothing changed. */
static bool remake(struct jm_program *p, struct jm_tensor *t, const struct jm_layout *layout)
{
	struct jm_unit *u = unit_of_node(p, jm_graph_cell(p->graph, t)->producer);
	struct jm_layout before = t->layout;

	t->layout = *layout;
	t->bytes = jm_layout_bytes(t, layout);
	if (choose(p, u, NULL, NULL)) {
		take_memory(p, u);
		jm_node_cost(node_of(p, u, 0));
		return true;
	}
	t->layout = before;
	t->bytes = jm_layout_bytes(t, &before);
	return false;
}

/* Converts operand i of the node to the layout. */
static int bring(struct jm_program *p, struct jm_node *n, int i, const struct jm_layout *layout,
	struct jm_err *err)
{
	struct jm_tensor *t = n->in[i], *to = NULL;

	if (jm_layout_equal(&t->layout, layout))
		return 0;
	if (jm_choice_is_open(p, t) && remake(p, t, layout))
		return 0;
	/* with one micro-step a node that is computed again gets its own copy, so that the first
	 * copy need not be kept */
	if (!n->again || jm_program_micro_steps(p) > 1)
		to = find_copy(p, t, layout);
	if (!to)
		to = add_reorder(p, t, layout, err);
	if (!to)
		return jm_err_set(err, p->graph->err.code ? p->graph->err.code : JM_ENOSUP,
			"%s cannot be converted to the layout that %s needs. %s", t->name,
			jm_op_name(n->op), p->graph->err.text);
	n->in[i] = to;
	return 0;
}

/* ---- units of nodes -------------------------------------------------------------------------- */

/* Puts the choice into effect: converts operands, sets the layouts of results, requests extra
 * memory. */
static int adopt(struct jm_program *p, struct jm_unit *u, struct jm_err *err)
{
	int code = 0;

	for (int k = 0; k < u->group.n_nodes; k++) {
		struct jm_node *n = node_of(p, u, k);

		for (int i = 0; i < n->n_in && !code; i++) {
			if (!n->in[i] || n->in[i]->is_virtual)
				continue;
			code = bring(p, n, i, &u->choice.in[k][i], err);
			jm_graph_cell(p->graph, n->in[i])->read = true;
		}
		for (int i = 0; i < n->n_out; i++) {
			if (!n->out[i])
				continue;
			n->out[i]->layout = u->choice.out[k][i];
			n->out[i]->bytes = jm_layout_bytes(n->out[i], &n->out[i]->layout);
		}
		jm_node_cost(n);
	}
	take_memory(p, u);
	return code;
}

/* Bits: the results that are gradients of parameters in the compute type. */
static unsigned narrow_gradients(const struct jm_node *n)
{
	unsigned bits = 0;

	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->class == JM_CLASS_GRAD &&
			jm_dtype_bytes(n->out[i]->type) < jm_dtype_bytes(JM_F32))
			bits |= 1U << i;
	return bits;
}

/* Writes result i to a separate tensor, and adds the node that transfers it to its destination.
 * as: its type there, if another */
static struct jm_node *set_apart(
	struct jm_graph *g, struct jm_node *n, int i, const enum jm_dtype *as)
{
	struct jm_tensor *whole = n->out[i], *part;
	enum jm_dtype type = as ? *as : whole->type;

	part = jm_graph_tensor(g, JM_CLASS_ACT, type, whole->rank, whole->dim, "part");
	n->out[i] = part;
	if (jm_node_adds(n, i))
		return jm_graph_node(g, JM_OP_ADD, (struct jm_tensor *[]){whole, part},
			(struct jm_tensor *[]){whole});
	return jm_graph_node(g, JM_OP_CAST, &part, &whole);
}

/* Bits: the results that are written to separate tensors, and which of these tensors have another
 * type. */
struct apart {
	unsigned results, other;
	enum jm_dtype as;
};

/* The node writes these results to separate tensors, and a separate node transfers each to its
 * destination. */
static int settle_apart(struct jm_program *p, struct jm_node *n, const struct apart *how,
	const struct jm_advice *advice, struct jm_err *err)
{
	struct jm_advice rest;
	struct jm_graph *g = p->graph;
	struct jm_tensor *whole[JM_NODE_OUT];
	struct jm_node *home[JM_NODE_OUT];
	int n_homes = 0, code;

	memcpy(whole, n->out, sizeof(whole));
	for (int i = 0; i < n->n_out; i++) {
		int before = 0;

		if (!n->out[i] || !(how->results >> i & 1))
			continue;
		while (whole[before] != whole[i])
			before++;
		if (before < i) /* two results are views of one tensor */
			n->out[i] = n->out[before];
		else
			home[n_homes++] = set_apart(g, n, i, how->other >> i & 1 ? &how->as : NULL);
	}
	if (g->err.code)
		return jm_err_set(err, g->err.code, "%s", g->err.text);
	n->accumulate &= ~how->results;
	if (advice) {
		rest = *advice;
		rest.apart = 0;
	}
	code = settle(p, &n, 1, advice ? &rest : NULL, err);
	for (int i = 0; i < n_homes && !code; i++)
		code = settle(p, &home[i], 1, NULL, err);
	return code;
}

/* A sum of two types, whose second operand is rounded to the type of the first before: so are sums
 * of gradients that are written apart, where the backend does not add two types. */
static int round_before(struct jm_program *p, struct jm_node *sum, struct jm_err *err)
{
	struct jm_graph *g = p->graph;
	struct jm_tensor *from = sum->in[1], *to;
	struct jm_node *cast;
	int code;

	to = jm_graph_tensor(g, JM_CLASS_ACT, sum->in[0]->type, from->rank, from->dim, "rounded");
	cast = jm_graph_node(g, JM_OP_CAST, &from, &to);
	if (g->err.code)
		return jm_err_set(err, g->err.code, "%s", g->err.text);
	sum->in[1] = to;
	code = settle(p, &cast, 1, NULL, err);
	return code ? code : settle(p, &sum, 1, NULL, err);
}

/* Handles a refusal with its reason. JM_EVERSION, of a library that the device needs, is kept. */
static int refused(struct jm_program *p, struct jm_node *const *node, int n,
	const struct jm_err *why, struct jm_err *err)
{
	struct apart how = {
		node[0]->accumulate | narrow_gradients(node[0]), narrow_gradients(node[0]), JM_F32};
	int code = 0, first;

	if (n == 1 && node[0]->op == JM_OP_ADD && node[0]->in[0]->type != node[0]->in[1]->type)
		return round_before(p, node[0], err);
	if (!how.results && jm_node_narrows(node[0]))
		how = (struct apart){1, 1, node[0]->in[0]->type};
	if (n == 1 && how.results)
		return settle_apart(p, node[0], &how, NULL, err);
	if (n == 1)
		return jm_err_set(err, why->code == JM_EVERSION ? JM_EVERSION : JM_ENOSUP,
			"Device %s cannot run %s (%s): %s", p->device->backend->name,
			jm_op_name(node[0]->op), node[0]->out[0]->name,
			*why->text ? why->text : "it gave no reason.");
	first = node[0]->id;
	jm_group_uncover(p->graph, first, n);
	for (int i = 0, k; i < n && !code; i += k) {
		k = jm_group_cover(p->graph, first + i, first + n - (i == 0), p->uses);
		code = settle(p, node + i, k, NULL, err);
	}
	return code;
}

/* Makes one unit of the nodes, or several if the backend refuses one. */
static int settle(struct jm_program *p, struct jm_node *const *node, int n,
	const struct jm_advice *advice, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	struct jm_unit *u;
	int code;

	if (advice && advice->apart)
		return settle_apart(p, node[0],
			&(struct apart){advice->apart, advice->narrow, node[0]->in[0]->type},
			advice, err);
	u = unit_new(p, node, n);
	if (!u)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	if (!choose(p, u, advice, &why)) {
		free(u);
		return refused(p, node, n, &why, err);
	}
	code = adopt(p, u, err);
	if (code) {
		free(u);
		return code;
	}
	return push(p, u, err);
}

/* ---- all groups ------------------------------------------------------------------------------ */

static void count_use(struct jm_uses *uses, const struct jm_tensor *t, int node)
{
	if (t) {
		uses->count[t->id]++;
		uses->last[t->id] = node;
	}
}

/* positions: the backend saves positions of maxima, so that the gradient of a max pooling does not
 * read the image that was pooled (liveness.c). */
static void count_uses(const struct jm_graph *g, bool positions, struct jm_uses *uses)
{
	uses->n_nodes = g->n_nodes;
	for (int k = 0; k < g->n_nodes; k++) {
		const struct jm_node *n = g->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (!positions || n->op != JM_OP_MAXPOOL_GRAD || i != 1)
				count_use(uses, n->in[i], k);
		for (int i = 0; i < n->n_out; i++)
			count_use(uses, n->out[i], k);
	}
}

/* Finds the largest cover from node `first` on that the backend accepts, or a single node. */
static int take_cover(struct jm_program *p, int first, int end, struct jm_group *group)
{
	struct jm_choice choice[JM_CHOICE_MAX];
	struct jm_graph *g = p->graph;
	int n;

	for (n = jm_group_cover(g, first, end, p->uses); n > 1;
		n = jm_group_cover(g, first, first + n - 1, p->uses)) {
		group->n_nodes = n;
		for (int k = 0; k < n; k++)
			group->node[k] = g->node[first + k];
		memset(choice, 0, sizeof(choice));
		if (jm_device_select(p->device, group, choice, NULL) > 0)
			return n;
		jm_group_uncover(g, first, n);
	}
	group->n_nodes = 1;
	group->node[0] = g->node[first];
	return 1;
}

/* group_of: [node]: the group of the node, a hint for gradients. Returns the number of groups. */
static int cover_all(struct jm_program *p, struct jm_advice *advice, int *group_of)
{
	struct jm_graph *g = p->graph;
	int n_groups = 0, update = g->n_nodes - g->n_update;

	for (int i = 0, n; i < g->n_nodes; i += n, n_groups++) {
		struct jm_group *group = &advice[n_groups].group;
		const struct jm_node *fwd = NULL;

		n = take_cover(p, i, i < update ? update : g->n_nodes, group);
		for (int k = 0; k < n; k++) {
			group_of[i + k] = n_groups;
			fwd = fwd ? fwd : g->node[i + k]->fwd;
		}
		group->fwd = fwd ? &advice[group_of[fwd->id]].group : NULL;
	}
	return n_groups;
}

static int settle_all(
	struct jm_program *p, const struct jm_advice *advice, int n, struct jm_err *err)
{
	int update = p->graph->n_nodes - p->graph->n_update, code = 0;

	p->n_micro = -1;
	for (int i = 0; i < n && !code; i++) {
		struct jm_node *node[JM_GROUP_MAX]; /* a copy: g->node moves when nodes are added */
		const struct jm_group *group = &advice[i].group;
		int first = group->node[0]->id;

		if (first == update)
			p->n_micro = p->n_units;
		memcpy(node, &p->graph->node[first], (size_t)group->n_nodes * sizeof(*node));
		code = settle(p, node, group->n_nodes, &advice[i], err);
	}
	if (p->n_micro < 0)
		p->n_micro = p->n_units;
	return code;
}

int jm_program_apply_choices(struct jm_program *p, struct jm_err *err)
{
	struct jm_graph *g = p->graph;
	struct jm_advice *advice = calloc((size_t)g->n_nodes + 1, sizeof(*advice));
	struct jm_uses uses = {.count = calloc((size_t)g->n_cells + 1, sizeof(int)),
		.last = calloc((size_t)g->n_cells + 1, sizeof(int))};
	int *group_of = calloc((size_t)g->n_nodes + 1, sizeof(*group_of));
	int n, code = JM_ENOMEM;

	if (advice && uses.count && uses.last && group_of) {
		count_uses(g, !p->device->props.host_memory, &uses);
		p->uses = &uses;
		if (p->is_first)
			jm_program_lay_parameters(p);
		n = cover_all(p, advice, group_of);
		code = jm_program_search_layouts(p, advice, n, err);
		if (!code)
			code = settle_all(p, advice, n, err);
		p->uses = NULL;
	} else {
		jm_err_set(err, code, "Out of memory for a program.");
	}
	free(p->unit_of);
	p->unit_of = NULL;
	p->cap_unit_of = 0;
	free(advice);
	free(uses.count);
	free(uses.last);
	free(group_of);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : code;
}
