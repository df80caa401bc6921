/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sharded update: of several ranks each updates an equal share of the parameters and keeps the
 * moments of this share only (Rajbhandari et al., arXiv 1910.02054, stage 1).
 *
 * The slabs are divided into segments; of segment [from, from + n) rank r of W owns the r-th of W
 * equal parts. Tensors that hold own shares only (moments, sums of gradients) begin at element from
 * / W. A segment may begin and end inside a parameter. bucket.c inserts the transfers: the
 * gradients of a segment are reduce-scattered, the norms of the shares are gathered, then what the
 * update wrote is gathered. A matrix that only products read, as a copy in the compute type, is
 * gathered in this type: its copy persists, and the master of another rank's share is out of date
 * until jm_reduce_gather.
 *
 * A step begins with the tables of tokens, so that it would wait for them to be gathered. Where
 * this takes long (by_host), every rank updates these tables as a whole: their summed gradients are
 * gathered before the update. Ranks that share a model do not do this.
 *
 * Ranks that share a model (tensor_parallel.h, pipeline_parallel.h) divide the part that they have
 * with the ranks of other models that have the same part. What is cut, whole, or of two stages has
 * segments of its own, so that each share has it in one piece: a rank gives the norm of what no
 * other one counts, and only shares are summed over ranks and exchanged between stages.
 */
#include "shard_update.h"
#include "tensor.h"

#include <stdlib.h>

#define OPS(...) ((struct jm_tensor *const[]){__VA_ARGS__})

/* Order in the slabs: matrices and tables that are gathered as they are, vectors, matrices that are
 * gathered as copies. The first transfers after an update then serve the first nodes of the next
 * step. Of a model that ranks share, what is cut is in two pieces. */
enum region {
	TIED, /* of two stages */
	CUT,
	WHOLE,
	WHOLE_VECTORS,
	SUMMED_VECTORS,
	CUT_VECTORS,
	CUT_COPIED,
	WHOLE_COPIED,
	REGIONS
};
#define MATRICES WHOLE /* the last region of these */
#define VECTORS	 CUT_VECTORS

/* Parameters of elements [from, to), and what is kept of them. */
struct slab {
	int64_t from, to;
	struct jm_tensor *params, *kept[JM_KEPT_COUNT];
};

struct plan {
	struct jm_graph *g;
	struct jm_shard *s;
	const struct jm_adamw *how;
	bool *copied;	      /* [cell]: parameters that are gathered as copies */
	bool in_parts;	      /* ranks share a model */
	bool whole_matrices;  /* every rank updates all regions of matrices */
	int64_t end[REGIONS]; /* elements of the slabs up to the end of each region */
	struct slab slab[2];  /* that of vectors alone is absent unless their type is another one */
	/* of all gradients; or of those of matrices and of those of vectors */
	struct jm_tensor *grads[2], *own_grads[2];
	struct jm_tensor *copies;
	struct jm_tensor *norm, *now, *scale;
};

static int ranks(const struct plan *p)
{
	return jm_graph_ranks(p->g);
}

/* Segments have a multiple of these elements, so that every share is aligned in each type. */
static int64_t unit(const struct plan *p)
{
	return (int64_t)ranks(p) * JM_UPDATE_ALIGN / 2;
}

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

static bool makes_copy(const struct jm_node *n)
{
	return n->op == JM_OP_CAST && n->out[0]->class == JM_CLASS_COPY;
}

/* ---- which parameters are read as copies only ------------------------------------------------ */

static void find_copied(struct plan *p)
{
	struct jm_graph *g = p->g;

	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *c = g->cell[i];

		p->copied[i] = jm_update_trains(c) && c->t.rank == 2 && c->copy && !c->tied;
	}
	for (int k = 0; k < g->n_nodes; k++)
		for (int i = 0; i < g->node[k]->n_in; i++)
			if (g->node[k]->in[i] && !makes_copy(g->node[k]))
				p->copied[g->node[k]->in[i]->id] = false;
}

static bool is_table(const struct jm_graph *g, const struct jm_tensor *t)
{
	for (int k = 0; k < g->n_nodes; k++)
		if (g->node[k]->op == JM_OP_EMBED && g->node[k]->in[1] == t)
			return true;
	return false;
}

/* Then the region MATRICES is little more than tables, unless nothing is gathered as copies. */
static bool has_tables(const struct plan *p)
{
	bool copies = false, tables = false;

	for (int i = 0; i < p->g->n_cells; i++) {
		copies = copies || p->copied[i];
		tables = tables ||
			 (jm_update_trains(p->g->cell[i]) && is_table(p->g, &p->g->cell[i]->t));
	}
	return copies && tables;
}

/* The copy that stands for this one: the first copy of a parameter that is gathered as such; else t
 * itself. */
static struct jm_tensor *lasting(const struct plan *p, struct jm_tensor *t)
{
	const struct jm_cell *c = t ? jm_graph_cell(p->g, t) : NULL;

	if (!t || !c->origin || c->origin->id == t->id || !p->copied[c->origin->id])
		return t;
	return jm_graph_cell(p->g, c->origin)->copy;
}

/* Removes the nodes that make these copies in each step. */
static void drop_casts(struct plan *p)
{
	struct jm_graph *g = p->g;
	int kept = 0, forward = g->n_forward;

	for (int k = 0; k < g->n_nodes; k++) {
		struct jm_node *n = g->node[k];

		if (makes_copy(n) && p->copied[n->in[0]->id]) {
			forward -= k < g->n_forward;
			free(n);
			continue;
		}
		for (int i = 0; i < n->n_in; i++)
			n->in[i] = lasting(p, n->in[i]);
		n->id = kept;
		g->node[kept++] = n;
	}
	g->n_nodes = kept;
	g->n_forward = forward;
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static enum region region_of(const struct plan *p, const struct jm_cell *c)
{
	bool cut = c->cut.n;

	if (p->copied[c->t.id])
		return cut ? CUT_COPIED : WHOLE_COPIED;
	if (c->t.rank > 1)
		return c->tied ? TIED : cut ? CUT : WHOLE;
	return cut ? CUT_VECTORS : c->summed ? SUMMED_VECTORS : WHOLE_VECTORS;
}

static bool is_in(const struct plan *p, const struct jm_cell *c, enum region region)
{
	return jm_update_trains(c) && region_of(p, c) == region;
}

static int64_t start_of(const struct plan *p, enum region region)
{
	return region ? p->end[region - 1] : 0;
}

/* True if gradients of matrices and vectors have slabs of their own, because types differ. */
static bool is_split(const struct jm_graph *g)
{
	return g->gradient != g->vector;
}

/* Gives each parameter of the region its place; returns the elements so far. */
static int64_t place(const struct plan *p, enum region region, int64_t n)
{
	struct jm_graph *g = p->g;
	bool vectors = region > MATRICES && region <= VECTORS;
	size_t size = jm_dtype_bytes(vectors ? g->vector : g->gradient);
	int64_t first = vectors && is_split(g) ? p->end[MATRICES] : 0;

	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];

		if (!is_in(p, c, region))
			continue;
		jm_graph_cell(g, c->grad)->slab_offset = (size_t)(n - first) * size;
		n += round_up(jm_tensor_count(&c->t), JM_UPDATE_ALIGN / 2);
	}
	return n;
}

static void place_all(struct plan *p)
{
	for (enum region r = 0; r < REGIONS; r++)
		p->end[r] = round_up(place(p, r, start_of(p, r)), unit(p));
}

/* The place of the moments of elements from `from` on; that of the end is the number of moments. */
static int64_t state_at(const struct plan *p, int64_t from)
{
	int64_t whole = p->whole_matrices ? p->end[MATRICES] : 0;

	return from < whole ? from : whole + (from - whole) / ranks(p);
}

static void make_slab(struct plan *p, int64_t from, int64_t to, enum jm_dtype type,
	const char *const name[JM_KEPT_COUNT])
{
	struct slab *s = &p->slab[p->slab[0].to > 0];
	int64_t n_state = state_at(p, to) - state_at(p, from);

	if (from == to)
		return;
	*s = (struct slab){.from = from, .to = to};
	s->params = jm_update_flat(p->g, JM_CLASS_PARAM, type, to - from, name[0]);
	for (enum jm_kept k = JM_KEPT_M; k < JM_KEPT_COUNT; k++)
		if (jm_update_wants(p->how, k))
			s->kept[k] = jm_update_state(p->g, JM_CLASS_OPT,
				k == JM_KEPT_MEAN ? p->g->vector : type, p->how->kind, name[k],
				n_state);
}

/* Gradients of n elements, the first n_first of them of matrices, and this rank's sums. */
static void make_gradients(struct plan *p, int64_t n_first, int64_t n)
{
	struct jm_graph *g = p->g;
	int64_t of[] = {n_first, n - n_first};

	for (int k = 0, to = 0; k < 2; k++) {
		enum jm_dtype type = k ? g->vector : g->gradient;

		if (!of[k])
			continue;
		p->grads[to] = jm_update_flat(g, JM_CLASS_GRAD, type, of[k],
			to ? "slab.gradients.vectors" : "slab.gradients");
		p->own_grads[to] = jm_update_flat(g, JM_CLASS_GRAD, type, of[k] / ranks(p),
			to ? "shard.gradients.vectors" : "shard.gradients");
		to++;
	}
	p->s->n_matrices = of[1] ? n_first : 0;
}

/* Masters of one type have one slab; without them matrices and vectors have one each. */
static void make_slabs(struct plan *p)
{
	static const char *const all[] = {"slab.parameters", "m", "v", "average"};
	static const char *const vectors[] = {
		"slab.parameters.vectors", "m.vectors", "v.vectors", "average.vectors"};
	struct jm_graph *g = p->g;
	int64_t n = p->end[REGIONS - 1], n_copied = n - p->end[VECTORS];
	int64_t n_first = g->matrix == g->vector ? n : p->end[MATRICES];

	make_gradients(p, is_split(g) ? p->end[MATRICES] : n, n);
	make_slab(p, 0, n_first, g->matrix, all);
	make_slab(p, n_first, n, g->vector, vectors);
	if (n_copied)
		p->copies = jm_update_flat(g, JM_CLASS_PARAM, g->compute, n_copied, "slab.copies");
}

static const struct slab *slab_at(const struct plan *p, int64_t from)
{
	return &p->slab[from >= p->slab[0].to];
}

/* The place of the parameter among the elements of all slabs. */
static int64_t place_of(const struct jm_graph *g, const struct jm_cell *c)
{
	size_t at = jm_graph_cell(g, c->grad)->slab_offset / jm_dtype_bytes(c->grad->type);

	return (int64_t)at + (c->t.rank > 1 ? 0 : g->shard->n_matrices);
}

/* The slab of the gradients of element `from` of all: 0 or 1; *ret: the place in it. */
static int grads_at(const struct plan *p, int64_t from, int64_t *ret)
{
	int64_t first = p->s->n_matrices;
	int slab = first && from >= first;

	*ret = slab ? from - first : from;
	return slab;
}

/* The copy becomes a tensor that persists, with its place in the slab of copies. */
static void keep_copy(const struct plan *p, const struct jm_cell *c)
{
	struct jm_cell *copy = jm_graph_cell(p->g, c->copy);
	int64_t first = p->end[VECTORS];

	copy->t.class = JM_CLASS_PARAM;
	copy->needs_grad = false;
	copy->producer = NULL;
	copy->slab = p->copies;
	copy->slab_offset = (size_t)(place_of(p->g, c) - first) * jm_dtype_bytes(copy->t.type);
}

static void make_views(const struct plan *p)
{
	struct jm_graph *g = p->g;

	for (int i = 0; i < g->n_cells; i++) {
		struct jm_cell *c = g->cell[i];
		const struct slab *s;
		int64_t at;

		if (!jm_update_trains(c))
			continue;
		s = slab_at(p, place_of(p->g, c));
		c->slab = s->params;
		c->slab_offset = (size_t)(place_of(p->g, c) - s->from) * jm_dtype_bytes(c->t.type);
		jm_graph_cell(g, c->grad)->slab = p->grads[grads_at(p, place_of(g, c), &at)];
		if (p->copied[i])
			keep_copy(p, c);
	}
}

/* Elements from, from + n of a slab. */
static struct jm_tensor *view(
	const struct plan *p, struct jm_tensor *slab, int64_t from, int64_t n, const char *name)
{
	struct jm_tensor *t = slab ? jm_update_flat(p->g, slab->class, slab->type, n, name) : NULL;

	if (!t)
		return NULL;
	jm_graph_cell(p->g, t)->slab = slab;
	jm_graph_cell(p->g, t)->slab_offset = (size_t)from * jm_dtype_bytes(slab->type);
	return t;
}

/* ---- segments -------------------------------------------------------------------------------- */

static void add_segment(struct plan *p, int64_t from, int64_t to, bool vectors)
{
	struct jm_shard *s = p->s;
	int cap = s->cap ? 2 * s->cap : 32;
	struct jm_segment *more = s->segment;

	if (s->n == s->cap)
		more = realloc(s->segment, (size_t)cap * sizeof(*more));
	if (!more) {
		jm_err_set(&p->g->err, JM_ENOMEM, "Out of memory for the update of several ranks.");
		return;
	}
	s->segment = more;
	s->cap = s->n == s->cap ? cap : s->cap;
	s->segment[s->n++] = (struct jm_segment){.from = from, .n = to - from, .vectors = vectors};
}

/* True if the rest of the region, n elements, joins the segment before it. before: the segments of
 * the regions before. */
static bool joins(const struct plan *p, enum region region, int before, int64_t n)
{
	size_t given = p->g->bucket_bytes, least = given ? given : JM_BUCKET_BYTES;
	size_t size = jm_dtype_bytes(p->g->vector);
	const struct jm_segment *last = p->s->n ? &p->s->segment[p->s->n - 1] : NULL;

	if (!last || (size_t)n * size >= least / 2)
		return false;
	return p->s->n > before ||
	       (region == WHOLE_VECTORS && !p->in_parts && p->g->matrix == p->g->vector &&
		       !p->whole_matrices && (size_t)last->n * size < least);
}

/*
 * Divides a region: a segment ends after the first parameter with which it has enough bytes, or up
 * to a unit before that; a small rest joins the segment before it. Vectors have a segment of their
 * own, because the backward pass completes them last, unless all matrices before them are few.
 * Unless the size is given, each segment has twice the bytes of the one before: there are few
 * transfers, and the first segments, whose gradients are complete last and whose parameters are
 * read first, are small.
 */
static void divide(struct plan *p, enum region region)
{
	size_t given = p->g->bucket_bytes, least = given ? given : JM_BUCKET_BYTES;
	size_t size = jm_dtype_bytes(p->g->vector);
	int64_t from = start_of(p, region), to = p->end[region];
	bool vectors = region > MATRICES && region <= VECTORS;
	int before = p->s->n;

	for (int i = 0; i < p->g->n_cells; i++) {
		const struct jm_cell *c = p->g->cell[i];
		int64_t end;

		if (!is_in(p, c, region))
			continue;
		end = place_of(p->g, c) + jm_tensor_count(&c->t);
		end = end / unit(p) * unit(p);
		if (end <= from || (size_t)(end - from) * size < least)
			continue;
		add_segment(p, from, end, vectors);
		from = end;
		least = given ? least : 2 * least;
	}
	if (from < to && joins(p, region, before, to - from))
		p->s->segment[p->s->n - 1].n += to - from;
	else if (from < to)
		add_segment(p, from, to, vectors);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Elements of the share [from, from + n) that decay: matrices, not vectors. */
static int64_t decaying(const struct plan *p, int64_t from, int64_t n)
{
	int64_t until = p->end[MATRICES] - from;

	if (from >= p->end[VECTORS])
		return n;
	return until < 0 ? 0 : until < n ? until : n;
}

static void add_nodes(const struct plan *p, struct jm_segment *s)
{
	struct jm_graph *g = p->g;
	const struct slab *slab = slab_at(p, s->from);
	int64_t own = s->n / ranks(p), from = s->from + g->rank * own;
	int64_t state = state_at(p, s->from) - state_at(p, slab->from);
	int64_t copied = p->end[VECTORS], first = s->is_whole ? s->from : from, at;
	int of = grads_at(p, s->from, &at);
	bool copies = s->from >= copied, writes = copies && p->how->kind != JM_UPDATE_SGD;
	int64_t n;

	s->grads = view(p, p->grads[of], at, s->n, "slab.gradients.segment");
	s->own_grads = view(p, p->own_grads[of], at / ranks(p), own, "shard.gradients.segment");
	s->params = s->whole =
		view(p, slab->params, s->from - slab->from, s->n, "slab.parameters.segment");
	s->masters = s->updated =
		view(p, slab->params, from - slab->from, own, "slab.parameters.share");
	if (s->is_whole)
		s->masters = s->updated = s->params;
	if (copies) {
		s->whole = view(p, p->copies, s->from - copied, s->n, "slab.copies.segment");
		s->updated = view(p, p->copies, from - copied, own, "slab.copies.share");
	}
	n = s->is_whole ? s->n : own;
	for (enum jm_kept k = JM_KEPT_M; k < JM_KEPT_COUNT; k++)
		s->kept[k] = view(p, slab->kept[k], state, n, "shard.kept");
	s->last = jm_update_node(g, p->how,
		OPS(s->is_whole ? s->grads : s->own_grads, p->norm, p->now, p->scale),
		OPS(s->masters, s->kept[JM_KEPT_M], s->kept[JM_KEPT_V], writes ? s->updated : NULL),
		decaying(p, first, n), first - slab->from);
	g->n_update++;
	if (!copies || writes)
		return;
	s->last = jm_graph_node(g, JM_OP_CAST, OPS(s->masters), OPS(s->updated));
	g->n_update++;
}

/* The own share of the sums of gradients of these regions; NULL = there are none. Ranks that share
 * a model have one slab of gradients. */
static struct jm_tensor *own_grads_of(const struct plan *p, enum region first, enum region last)
{
	int64_t from = start_of(p, first) / ranks(p), n = p->end[last] / ranks(p) - from;

	return n ? view(p, p->own_grads[0], from, n, "shard.gradients.kind") : NULL;
}

/* Of the own share, what no other rank of the model counts. */
static void add_own_norm(const struct plan *p)
{
	struct jm_tensor *x = p->own_grads[0], *more = p->own_grads[1];

	if (p->g->tp_rank) {
		x = own_grads_of(p, CUT, CUT);
		more = own_grads_of(p, CUT_VECTORS, CUT_COPIED);
	} else if (p->g->stage) {
		x = own_grads_of(p, TIED + 1, REGIONS - 1);
	}
	jm_graph_node(p->g, JM_OP_NORM, OPS(x ? x : more, x ? more : NULL), OPS(p->s->own_norm));
}

/* Makes gradients the same on all ranks that share the model, or a stage of it, where the parameter
 * is whole on each. */
static void make_equal(const struct plan *p)
{
	struct jm_tensor *tied = own_grads_of(p, TIED, TIED);

	jm_update_sum_parts(p->g, own_grads_of(p, SUMMED_VECTORS, SUMMED_VECTORS), tied);
	jm_update_from_first(p->g, tied);
	jm_update_from_first(p->g, own_grads_of(p, WHOLE, WHOLE_VECTORS));
	jm_update_from_first(p->g, own_grads_of(p, WHOLE_COPIED, WHOLE_COPIED));
}

/* The norm of all gradients is that of the norms of the shares, and then of the ranks that share
 * the model. */
static void add_norm(struct plan *p)
{
	struct jm_graph *g = p->g;
	struct jm_tensor *of_part;

	p->norm = of_part = jm_update_flat(g, JM_CLASS_SCALAR, g->vector, 1, "grad.norm");
	p->s->own_norm = jm_update_flat(g, JM_CLASS_SCALAR, g->vector, 1, "shard.norm");
	p->s->norms = jm_update_flat(g, JM_CLASS_SCALAR, g->vector, ranks(p), "shard.norms");
	g->n_update = 2;
	if (p->in_parts) {
		of_part = jm_update_flat(g, JM_CLASS_ACT, g->vector, 1, "grad.norm.own");
		make_equal(p);
	}
	add_own_norm(p);
	jm_graph_node(g, JM_OP_NORM, OPS(p->s->norms, NULL), OPS(of_part));
	if (p->in_parts)
		jm_update_join_norms(g, of_part, p->norm);
}

static void add_all_nodes(struct plan *p)
{
	/* those that are gathered come first, so that the others hide this */
	for (int whole = 0; whole < 2; whole++)
		for (int i = 0; i < p->s->n && !p->g->err.code; i++)
			if (p->s->segment[i].is_whole == whole)
				add_nodes(p, &p->s->segment[i]);
	/* beside the transfers of what was updated */
	for (int i = 0; i < p->s->n && p->how->average > 0 && !p->g->err.code; i++) {
		const struct jm_segment *s = &p->s->segment[i];

		jm_update_mean_node(
			p->g, p->how, OPS(s->masters, p->now, p->norm), OPS(s->kept[JM_KEPT_MEAN]));
	}
}

static void append(struct plan *p)
{
	p->in_parts = jm_graph_tp(p->g) * jm_graph_pp(p->g) > 1;
	find_copied(p);
	p->whole_matrices = p->g->by_host && has_tables(p) && !p->in_parts;
	drop_casts(p);
	place_all(p);
	make_slabs(p);
	make_views(p);
	p->scale = jm_graph_find(p->g, "loss.scale");
	p->now = jm_update_state(p->g, JM_CLASS_INPUT, p->g->vector, p->how->kind, "now",
		jm_update_numbers(p->g, p->how));
	add_norm(p);
	for (enum region region = 0; region < REGIONS; region++)
		divide(p, region);
	for (int i = 0; i < p->s->n; i++)
		p->s->segment[i].is_whole =
			p->whole_matrices && p->s->segment[i].from < p->end[MATRICES];
	add_all_nodes(p);
}

static bool trains_any(const struct jm_graph *g)
{
	for (int i = 0; i < g->n_cells; i++)
		if (jm_update_trains(g->cell[i]))
			return true;
	return false;
}

int jm_graph_shard_update(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err)
{
	struct plan p = {.g = g, .how = how, .s = g->shard = calloc(1, sizeof(*g->shard))};

	if (!trains_any(g))
		return jm_err_set(err, JM_EBUG,
			"Nothing can be trained, because no parameter has a gradient.");
	p.copied = calloc((size_t)g->n_cells + 1, sizeof(*p.copied));
	if (p.s && p.copied)
		append(&p);
	else
		jm_err_set(&g->err, JM_ENOMEM, "Out of memory for the update of several ranks.");
	free(p.copied);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}

struct jm_shard_run jm_shard_run(const struct jm_graph *g, const struct jm_cell *c, int64_t first)
{
	int64_t place = place_of(g, c), at = place + first;
	const struct jm_segment *s = g->shard->segment;
	struct jm_shard_run run;
	int64_t each, left = place + jm_tensor_count(&c->t) - at;

	while (at >= s->from + s->n)
		s++;
	each = s->is_whole ? s->n : s->n / jm_graph_ranks(g);
	run = (struct jm_shard_run){
		.segment = s, .rank = (int)((at - s->from) / each), .at = (at - s->from) % each};
	run.n = each - run.at < left ? each - run.at : left;
	return run;
}
