/* SPDX-License-Identifier: Apache-2.0 */
/* The update: flat slabs of parameters, gradients and moments; global norm and update over them. */
#include "optimizer.h"
#include "tensor.h"

#include <stdio.h>

#define OPS(...) ((struct jm_tensor *const[]){__VA_ARGS__})

bool jm_update_trains(const struct jm_cell *c)
{
	return c->t.class == JM_CLASS_PARAM && c->grad;
}

/* True if matrices and vectors share the slab of gradients, because their types are equal. */
static bool share_gradients(const struct jm_graph *g)
{
	return g->gradient == g->vector;
}

/* True if matrices and vectors have slabs and updates of their own, because types differ. */
static bool is_split(const struct jm_graph *g)
{
	return g->matrix != g->vector || !share_gradients(g);
}

/* Trained parameters in the order of the slabs. What two stages have is first, because random
 * rounding counts elements of the slab, and both must round alike. */
enum kind {
	TIED_MATRICES,
	CUT_MATRICES,
	WHOLE_MATRICES,
	CUT_VECTORS,
	WHOLE_VECTORS,
	SUMMED_VECTORS,
	KINDS
};

static bool is_kind(const struct jm_cell *c, enum kind kind)
{
	bool vector = kind >= CUT_VECTORS, cut = kind == CUT_MATRICES || kind == CUT_VECTORS;

	return jm_update_trains(c) && (c->t.rank == 1) == vector && !c->cut.n == !cut &&
	       c->summed == (kind == SUMMED_VECTORS) && c->tied == (kind == TIED_MATRICES);
}

/* Gives each parameter of the kind its place; returns the elements so far. first: of matrices, or
 * of vectors. */
static int64_t place(struct jm_graph *g, enum kind kind, int64_t n, int64_t first_of_rank)
{
	bool matrices = kind < CUT_VECTORS;
	int64_t first = is_split(g) ? first_of_rank : 0;
	int64_t first_grad = share_gradients(g) ? 0 : first_of_rank;
	size_t size = jm_dtype_bytes(matrices ? g->matrix : g->vector);
	size_t grad_size = jm_dtype_bytes(matrices ? g->gradient : g->vector);
	/* copies in a narrower type have the same places (keep_copies.c) */
	size_t narrow = jm_dtype_bytes(g->compute) < size ? jm_dtype_bytes(g->compute) : size;
	int64_t align =
		matrices ? JM_UPDATE_ALIGN / (int64_t)narrow : JM_UPDATE_VECTOR / (int64_t)size;

	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];

		if (!is_kind(c, kind))
			continue;
		c->slab_offset = (size_t)(n - first) * size;
		jm_graph_cell(g, c->grad)->slab_offset = (size_t)(n - first_grad) * grad_size;
		n += (jm_tensor_count(&c->t) + align - 1) / align * align;
	}
	return n;
}

/* The parameters of an update: matrices, vectors or both. */
enum part { ALL, MATRICES, VECTORS };

static bool is_of(const struct jm_cell *c, enum part part)
{
	return jm_update_trains(c) && (part == ALL || (c->t.rank > 1) == (part == MATRICES));
}

static void make_views(
	struct jm_graph *g, enum part part, struct jm_tensor *params, struct jm_tensor *grads)
{
	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];

		if (!is_of(c, part))
			continue;
		c->slab = params;
		jm_graph_cell(g, c->grad)->slab = grads;
	}
}

struct jm_tensor *jm_update_flat(
	struct jm_graph *g, enum jm_class class, enum jm_dtype type, int64_t n, const char *name)
{
	return jm_graph_tensor(g, class, type, 1, &n, name);
}

const char *const jm_update_names[] = {"adamw", "adam", "sgd", NULL};

/* "adamw.m", "adamw.m.vectors" */
struct jm_tensor *jm_update_state(struct jm_graph *g, enum jm_class class, enum jm_dtype type,
	enum jm_update kind, const char *what, int64_t n)
{
	char name[32];

	snprintf(name, sizeof(name), "%s.%s", jm_update_names[kind], what);
	return jm_update_flat(g, class, type, n, name);
}

static void set_sgd(
	struct jm_node *update, const struct jm_adamw *how, int64_t n_decay, int64_t first)
{
	update->attr.sgd.momentum = how->momentum;
	update->attr.sgd.nesterov = how->nesterov;
	update->attr.sgd.weight_decay = how->weight_decay;
	update->attr.sgd.clip = how->clip;
	update->attr.sgd.n_decay = n_decay;
	update->attr.sgd.first = first;
}

static void set_adamw(
	struct jm_node *update, const struct jm_adamw *how, int64_t n_decay, int64_t first)
{
	update->attr.adamw.beta1 = how->beta1;
	update->attr.adamw.beta2 = how->beta2;
	update->attr.adamw.eps = how->eps;
	update->attr.adamw.weight_decay = how->weight_decay;
	update->attr.adamw.clip = how->clip;
	update->attr.adamw.n_decay = n_decay;
	update->attr.adamw.first = first;
}

struct jm_node *jm_update_node(struct jm_graph *g, const struct jm_adamw *how,
	struct jm_tensor *const in[4], struct jm_tensor *const out[4], int64_t n_decay,
	int64_t first)
{
	static const enum jm_op ops[] = {JM_OP_ADAMW, JM_OP_ADAM, JM_OP_SGD};
	struct jm_node *update = jm_graph_node(g, ops[how->kind], in, out);

	if (update && how->kind == JM_UPDATE_SGD)
		set_sgd(update, how, n_decay, first);
	else if (update)
		set_adamw(update, how, n_decay, first);
	return update;
}

/* The values that the updates of all parts share. */
struct update {
	const struct jm_adamw *how;
	/* all gradients; or those of matrices and those of vectors */
	struct jm_tensor *grads, *rest;
	struct jm_tensor *norm, *now, *scale;
	int64_t end[KINDS]; /* elements up to the end of each kind */
};

/* n gradients from element `from` on, as a tensor; ret_slab: the slab that contains it. */
static struct jm_tensor *grads_of(struct jm_graph *g, const struct update *u, enum part part,
	int64_t from, int64_t n, struct jm_tensor **ret_slab)
{
	struct jm_tensor *view;

	*ret_slab = part == VECTORS && u->rest ? u->rest : u->grads;
	if (!*ret_slab || n == jm_tensor_count(*ret_slab))
		return *ret_slab;
	view = jm_update_flat(g, JM_CLASS_GRAD, g->vector, n, "slab.gradients.part");
	if (!view)
		return NULL;
	jm_graph_cell(g, view)->slab = *ret_slab;
	jm_graph_cell(g, view)->slab_offset = (size_t)from * jm_dtype_bytes(g->vector);
	return view;
}

bool jm_update_wants(const struct jm_adamw *how, enum jm_kept what)
{
	return what == JM_KEPT_M || (what == JM_KEPT_V && how->kind != JM_UPDATE_SGD) ||
	       (what == JM_KEPT_MEAN && how->average > 0);
}

void jm_update_mean_node(struct jm_graph *g, const struct jm_adamw *how,
	struct jm_tensor *const in[3], struct jm_tensor *const out[1])
{
	struct jm_node *n = jm_graph_node(g, JM_OP_AVERAGE, in, out);

	if (!n)
		return;
	n->attr.average.at = how->kind == JM_UPDATE_SGD ? 1 : 3;
	g->n_update++;
}

static void append_update(struct jm_graph *g, const struct update *u, enum part part, int64_t from,
	int64_t n, int64_t n_decay)
{
	enum jm_dtype type = part == MATRICES ? g->matrix : g->vector;
	enum jm_update kind = u->how->kind;
	bool sgd = kind == JM_UPDATE_SGD, second = part == VECTORS;
	struct jm_tensor *p = jm_update_flat(
		g, JM_CLASS_PARAM, type, n, second ? "slab.parameters.vectors" : "slab.parameters");
	struct jm_tensor *slab, *d = grads_of(g, u, part, from, n, &slab);
	struct jm_tensor *m =
		jm_update_state(g, JM_CLASS_OPT, type, kind, second ? "m.vectors" : "m", n);
	struct jm_tensor *v =
		sgd ? NULL
		    : jm_update_state(g, JM_CLASS_OPT, type, kind, second ? "v.vectors" : "v", n);

	if (g->err.code)
		return;
	make_views(g, part, p, slab);
	jm_update_node(
		g, u->how, OPS(d, u->norm, u->now, u->scale), OPS(p, m, v, NULL), n_decay, 0);
	g->n_update++;
	if (u->how->average > 0)
		jm_update_mean_node(g, u->how, OPS(p, u->now, u->norm),
			OPS(jm_update_state(g, JM_CLASS_OPT, g->vector, kind,
				second ? "average.vectors" : "average", n)));
}

/* Adds slabs for n elements, of which the first n_matrices belong to matrices. */
static void add_gradients(struct jm_graph *g, struct update *u, int64_t n_matrices, int64_t n)
{
	bool split = !share_gradients(g) && n_matrices && n > n_matrices;
	int64_t n_first = split ? n_matrices : n;

	u->grads = jm_update_flat(
		g, JM_CLASS_GRAD, n_matrices ? g->gradient : g->vector, n_first, "slab.gradients");
	if (split)
		u->rest = jm_update_flat(
			g, JM_CLASS_GRAD, g->vector, n - n_first, "slab.gradients.vectors");
}

/* ---- the global norm ------------------------------------------------------------------------- */

/* The gradients of these kinds; NULL = there are none. */
static struct jm_tensor *grads_of_kinds(
	struct jm_graph *g, const struct update *u, enum kind kind, enum kind last)
{
	bool vectors = kind >= CUT_VECTORS;
	int64_t from = kind ? u->end[kind - 1] : 0, n = u->end[last] - from;
	struct jm_tensor *slab = vectors && u->rest ? u->rest : u->grads, *view;

	if (!n)
		return NULL;
	from -= vectors && u->rest ? u->end[WHOLE_MATRICES] : 0;
	view = jm_update_flat(g, JM_CLASS_GRAD, slab->type, n, "slab.gradients.kind");
	if (!view)
		return NULL;
	jm_graph_cell(g, view)->slab = slab;
	jm_graph_cell(g, view)->slab_offset = (size_t)from * jm_dtype_bytes(slab->type);
	return view;
}

static void add_norm(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *more, struct jm_tensor *to)
{
	jm_graph_node(g, JM_OP_NORM, OPS(x, more), OPS(to));
	g->n_update++;
}

static struct jm_tensor *one(struct jm_graph *g, const char *name)
{
	return jm_update_flat(g, JM_CLASS_ACT, g->vector, 1, name);
}

/* With sequence parallel each rank has the gradients of norms over its rows. */
static void sum_gradients(struct jm_graph *g, struct jm_tensor *grads)
{
	if (!grads)
		return;
	jm_graph_node(g, JM_OP_SUM_RANKS, OPS(grads), OPS(grads));
	g->n_update++;
}

/* The table that both the first and the last stage have: each adds the gradient of the other. */
static void sum_tied(struct jm_graph *g, struct jm_tensor *grads)
{
	struct jm_tensor *other;

	if (!grads)
		return;
	other = jm_update_flat(g, JM_CLASS_ACT, grads->type, grads->dim[0], "grad.other");
	jm_graph_node(g, JM_OP_STAGE_SWAP, OPS(grads), OPS(other));
	jm_graph_node(g, JM_OP_ADD, OPS(grads, other), OPS(grads));
	g->n_update += 2;
}

void jm_update_sum_parts(struct jm_graph *g, struct jm_tensor *summed, struct jm_tensor *tied)
{
	sum_gradients(g, summed);
	sum_tied(g, tied);
}

void jm_update_from_first(struct jm_graph *g, struct jm_tensor *grads)
{
	if (!grads || jm_graph_tp(g) == 1 || jm_graph_ranks(g) < 3)
		return;
	jm_graph_node(g, JM_OP_FROM_FIRST, OPS(grads), OPS(grads));
	g->n_update++;
}

/* Makes gradients the same on all ranks that share the model, or a stage of it, where the parameter
 * is whole on each. */
static void make_equal(struct jm_graph *g, const struct update *u)
{
	struct jm_tensor *tied = grads_of_kinds(g, u, TIED_MATRICES, TIED_MATRICES);

	jm_update_sum_parts(g, grads_of_kinds(g, u, SUMMED_VECTORS, SUMMED_VECTORS), tied);
	jm_update_from_first(g, tied);
	jm_update_from_first(g, grads_of_kinds(g, u, WHOLE_MATRICES, WHOLE_MATRICES));
	jm_update_from_first(g, grads_of_kinds(g, u, WHOLE_VECTORS, WHOLE_VECTORS));
}

/* The norm of both, as a scalar; NULL = there are none. matrices may have another type. */
static struct jm_tensor *norm_of(
	struct jm_graph *g, struct jm_tensor *matrices, struct jm_tensor *vectors, const char *name)
{
	struct jm_tensor *norm;

	if (!matrices && !vectors)
		return NULL;
	norm = one(g, name);
	add_norm(g, matrices ? matrices : vectors, matrices ? vectors : NULL, norm);
	return norm;
}

/* Of a model that several ranks share: the norms of the parts that each has are gathered; gradients
 * of whole parameters, the same on all of them, count once. */
static void norm_of_parts(struct jm_graph *g, const struct update *u)
{
	struct jm_tensor *own, *whole, *all = NULL;

	make_equal(g, u);
	own = norm_of(g, grads_of_kinds(g, u, CUT_MATRICES, CUT_MATRICES),
		grads_of_kinds(g, u, CUT_VECTORS, CUT_VECTORS), "grad.norm.own");
	whole = norm_of(g, grads_of_kinds(g, u, WHOLE_MATRICES, WHOLE_MATRICES),
		grads_of_kinds(g, u, WHOLE_VECTORS, SUMMED_VECTORS), "grad.norm.whole");
	if (own) {
		all = jm_update_flat(g, JM_CLASS_ACT, g->vector, g->tp, "grad.norms");
		jm_graph_node(g, JM_OP_WHOLE_ROWS, OPS(own), OPS(all));
		g->n_update++;
	}
	add_norm(g, all ? all : whole, all ? whole : NULL, u->norm);
}

void jm_update_join_norms(struct jm_graph *g, struct jm_tensor *own, struct jm_tensor *norm)
{
	bool stages = jm_graph_pp(g) > 1;
	struct jm_tensor *norms = jm_update_flat(
		g, JM_CLASS_ACT, g->vector, jm_graph_tp(g) * jm_graph_pp(g), "grad.norms");

	jm_graph_node(g, stages ? JM_OP_STAGE_NORMS : JM_OP_WHOLE_ROWS, OPS(own), OPS(norms));
	g->n_update++;
	add_norm(g, norms, NULL, norm);
}

/* Of a model in stages: each rank gives the norm of what no other one counts. */
static void norm_of_stages(struct jm_graph *g, const struct update *u)
{
	enum kind first = g->stage ? CUT_MATRICES : TIED_MATRICES;
	bool all = !g->tp_rank; /* of ranks that share the stage, the first has what is whole */
	struct jm_tensor *own;

	make_equal(g, u);
	own = norm_of(g,
		all ? grads_of_kinds(g, u, first, WHOLE_MATRICES)
		    : grads_of_kinds(g, u, CUT_MATRICES, CUT_MATRICES),
		grads_of_kinds(g, u, CUT_VECTORS, all ? SUMMED_VECTORS : CUT_VECTORS),
		"grad.norm.own");
	if (!own && !g->err.code)
		jm_err_set(&g->err, JM_ENOSUP,
			"Stage %d has no parameters of its own that are trained; omit --pp.",
			g->stage);
	jm_update_join_norms(g, own, u->norm);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void place_all(struct jm_graph *g, int64_t *end)
{
	for (enum kind k = 0; k < KINDS; k++)
		end[k] = place(g, k, k ? end[k - 1] : 0, k < CUT_VECTORS ? 0 : end[WHOLE_MATRICES]);
}

int64_t jm_update_numbers(const struct jm_graph *g, const struct jm_adamw *how)
{
	bool rounds = g->matrix != g->vector; /* by the number of the step */

	return (how->kind == JM_UPDATE_SGD ? 1 : 3) + (how->average > 0) + rounds;
}

int jm_graph_adamw(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err)
{
	bool split = is_split(g);
	int64_t n_decay, n;
	struct update u = {.how = how, .scale = jm_graph_find(g, "loss.scale")};

	place_all(g, u.end);
	n_decay = u.end[WHOLE_MATRICES];
	n = u.end[SUMMED_VECTORS];
	if (!n)
		return jm_err_set(err, JM_EBUG,
			"Nothing can be trained, because no parameter has a gradient.");
	add_gradients(g, &u, n_decay, n);
	u.now = jm_update_state(
		g, JM_CLASS_INPUT, g->vector, how->kind, "now", jm_update_numbers(g, how));
	u.norm = jm_update_flat(g, JM_CLASS_SCALAR, g->vector, 1, "grad.norm");
	if (g->err.code)
		return jm_err_set(err, g->err.code, "%s", g->err.text);
	g->n_update = 0;
	if (jm_graph_pp(g) > 1)
		norm_of_stages(g, &u);
	else if (jm_graph_tp(g) > 1)
		norm_of_parts(g, &u);
	else
		add_norm(g, u.grads, u.rest, u.norm);
	if (!split)
		append_update(g, &u, ALL, 0, n, n_decay);
	if (split && n_decay)
		append_update(g, &u, MATRICES, 0, n_decay, n_decay);
	if (split && n > n_decay)
		append_update(g, &u, VECTORS, n_decay, n - n_decay, 0);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}

/* ---- what it keeps --------------------------------------------------------------------------- */

/* The newest node that updates the slab, or any; NULL = none. */
static const struct jm_node *update_of(const struct jm_graph *g, const struct jm_tensor *slab)
{
	for (int i = g->n_nodes - 1; i >= 0; i--) {
		enum jm_op op = g->node[i]->op;

		if ((op == JM_OP_ADAMW || op == JM_OP_ADAM || op == JM_OP_SGD) &&
			(!slab || g->node[i]->out[0] == slab))
			return g->node[i];
	}
	return NULL;
}

static const struct jm_tensor *mean_of(const struct jm_graph *g, const struct jm_tensor *slab)
{
	for (int i = g->n_nodes - 1; i >= 0; i--)
		if (g->node[i]->op == JM_OP_AVERAGE && (!slab || g->node[i]->in[0] == slab))
			return g->node[i]->out[0];
	return NULL;
}

/* Of the slab, or of any; NULL = it is not kept. */
static const struct jm_tensor *kept_of(
	const struct jm_graph *g, const struct jm_tensor *slab, enum jm_kept what)
{
	const struct jm_node *update = update_of(g, slab);

	return what == JM_KEPT_MEAN ? mean_of(g, slab) : update ? update->out[what] : NULL;
}

bool jm_update_keeps(const struct jm_graph *g, enum jm_kept what, char *ret_name)
{
	static const char *const names[] = {NULL, "m", "v", "average"};
	const struct jm_node *update = update_of(g, NULL);
	enum jm_update kind = JM_UPDATE_ADAMW;

	if (!kept_of(g, NULL, what))
		return false;
	if (update->op != JM_OP_ADAMW)
		kind = update->op == JM_OP_ADAM ? JM_UPDATE_ADAM : JM_UPDATE_SGD;
	if (ret_name)
		snprintf(ret_name, JM_NAME_BYTES, "%s.%s", jm_update_names[kind], names[what]);
	return true;
}

struct jm_tensor jm_update_kept(
	const struct jm_graph *g, const struct jm_cell *c, enum jm_kept what)
{
	size_t element = c->slab_offset / jm_dtype_bytes(c->t.type);
	const struct jm_tensor *slab = c->t.data && !g->shard ? kept_of(g, c->slab, what) : NULL;
	struct jm_tensor view = c->t;

	view.class = JM_CLASS_OPT;
	view.type = what == JM_KEPT_MEAN ? g->vector : c->t.type;
	view.bytes = jm_layout_bytes(&view, &view.layout);
	view.data = slab ? (char *)slab->data + element * jm_dtype_bytes(slab->type) : NULL;
	return view;
}
