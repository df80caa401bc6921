/* SPDX-License-Identifier: Apache-2.0 */
/* Places the transfers between ranks: each sum starts after the unit that completes a bucket; with
 * a sharded update each gather starts after the unit that updates a segment. */
#include "bucket.h"
#include "arena.h"
#include "engine/graph/op.h"
#include "engine/graph/optimizer.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Estimates for what hides behind what: bytes/s of an exchange in each direction, by NCCL over
 * links and by transport host (docs/gpu-scaling.md, Two GPUs), and the share of the peak at which
 * products run. */
#define LINK_RATE 150e9
#define HOST_RATE 30e9
#define PRODUCTS  0.6

/* An interval of the slabs of gradients. */
struct piece {
	int64_t from, to; /* elements; those of the first slab come first */
	int last;	  /* the unit that writes it last */
	bool sent;
};

struct buckets {
	struct jm_program *p;
	/* of all gradients, or of those of matrices and of those of vectors; NULL = none */
	struct jm_tensor *slab[2];
	struct piece *piece; /* by rising place, without gaps */
	int n;
	struct jm_unit **order; /* the old and the new units */
	int n_order;
};

bool jm_reduce_is_start(const struct jm_unit *u)
{
	enum jm_op op = u->group.node[0]->op;

	return op == JM_OP_ALL_REDUCE_START || op == JM_OP_REDUCE_SCATTER_START;
}

bool jm_reduce_is_gather(const struct jm_unit *u)
{
	return u->group.node[0]->op == JM_OP_ALL_GATHER_START;
}

bool jm_reduce_is_shared(const struct jm_node *n)
{
	return n->op >= JM_OP_SUM_RANKS && n->op <= JM_OP_SUM_ROWS;
}

bool jm_reduce_is_node(const struct jm_unit *u)
{
	return jm_op_is_exchange(u->group.node[0]->op);
}

static int by_place(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

/* Elements of the slabs before slab k. */
static int64_t first_of(const struct buckets *b, int k)
{
	return k ? jm_tensor_count(b->slab[0]) : 0;
}

/* The slab of the element: 0 or 1. */
static int slab_at(const struct buckets *b, int64_t place)
{
	return b->slab[1] && place >= first_of(b, 1);
}

/* The first element of a gradient among those of all slabs; -1 = it is none of a parameter. */
static int64_t place_of(const struct buckets *b, const struct jm_cell *c)
{
	for (int k = 0; k < 2; k++)
		if (c->slab && c->slab == b->slab[k])
			return first_of(b, k) +
			       (int64_t)(c->slab_offset / jm_dtype_bytes(b->slab[k]->type));
	return -1;
}

static size_t bytes_of(const struct buckets *b, const struct piece *first, const struct piece *last)
{
	size_t size = jm_dtype_bytes(b->slab[slab_at(b, first->from)]->type);

	return (size_t)(last->to - first->from) * size;
}

/* Finds the views of the slabs whose gradients micro-steps compute; padding belongs to the view
 * before it. */
static void find_pieces(struct buckets *b)
{
	const struct jm_graph *g = b->p->graph;
	int64_t all = first_of(b, 1) + (b->slab[1] ? jm_tensor_count(b->slab[1]) : 0);

	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *c = g->cell[i];
		int64_t from = place_of(b, c);

		if (from >= 0 && c->first >= 0 && c->first < b->p->n_micro)
			b->piece[b->n++] = (struct piece){.from = from, .last = -1};
	}
	qsort(b->piece, (size_t)b->n, sizeof(*b->piece), by_place);
	for (int i = 0; i < b->n; i++)
		b->piece[i].to = i + 1 < b->n ? b->piece[i + 1].from : all;
	if (b->n)
		b->piece[0].from = 0;
}

/* The last piece that begins at or before this place. */
static struct piece *piece_at(const struct buckets *b, int64_t place)
{
	int i = 0;

	while (i + 1 < b->n && b->piece[i + 1].from <= place)
		i++;
	return &b->piece[i];
}

static void find_last_writes(const struct buckets *b)
{
	for (int i = 0; i < b->n; i++)
		b->piece[i].last = -1;
	for (int i = 0; i < b->p->n_micro; i++) {
		const struct jm_group *group = &b->p->unit[i]->group;

		for (int k = 0; k < group->n_nodes; k++)
			for (int o = 0; o < group->node[k]->n_out; o++) {
				struct jm_tensor *t = group->node[k]->out[o];
				const struct jm_cell *c = t ? jm_graph_cell(b->p->graph, t) : NULL;
				int64_t place = c ? place_of(b, c) : -1;

				if (place >= 0)
					piece_at(b, place)->last = i;
			}
	}
}

static int new_unit(struct buckets *b, enum jm_op op, struct jm_tensor *from, struct jm_tensor *to,
	struct jm_err *err)
{
	struct jm_graph *g = b->p->graph;
	struct jm_unit *u = calloc(1, sizeof(*u));
	struct jm_node *node = jm_graph_node(g, op, &from, &to);

	if (!u || !node) {
		free(u);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	}
	node->bytes = (double)(from->bytes > to->bytes ? from->bytes : to->bytes);
	u->group.n_nodes = 1;
	u->group.node[0] = node;
	u->choice.flops_executed = 0;
	b->order[b->n_order++] = u;
	return 0;
}

/* Adds the node that starts the sum of pieces i to k - 1. */
static int add_start(struct buckets *b, int i, int k, struct jm_err *err)
{
	struct jm_graph *g = b->p->graph;
	int64_t from = b->piece[i].from, n = b->piece[k - 1].to - from;
	int at = slab_at(b, from);
	enum jm_dtype type = b->slab[at]->type;
	struct jm_tensor *view =
		jm_graph_tensor(g, JM_CLASS_GRAD, type, 1, &n, "slab.gradients.bucket");

	if (!view)
		return jm_err_set(err, g->err.code, "%s", g->err.text);
	jm_graph_cell(g, view)->slab = b->slab[at];
	jm_graph_cell(g, view)->slab_offset =
		(size_t)(from - first_of(b, at)) * jm_dtype_bytes(type);
	for (int j = i; j < k; j++)
		b->piece[j].sent = true;
	return new_unit(b, JM_OP_ALL_REDUCE_START, view, view, err);
}

/* Starts, after unit `at`, the sums of intervals of complete pieces with at least `least` bytes. */
static int add_starts(struct buckets *b, int at, size_t least, struct jm_err *err)
{
	int code = 0;

	for (int i = 0, k; i < b->n && !code; i = k) {
		int slab = slab_at(b, b->piece[i].from);

		for (k = i; k < b->n && !b->piece[k].sent && b->piece[k].last <= at &&
			    slab_at(b, b->piece[k].from) == slab;
			k++)
			;
		if (k > i && bytes_of(b, &b->piece[i], &b->piece[k - 1]) >= least)
			code = add_start(b, i, k, err);
		if (k == i)
			k++;
	}
	return code;
}

/* The last unit that writes a gradient: the incomplete bucket starts there. */
static int last_write(const struct buckets *b)
{
	int last = 0;

	for (int i = 0; i < b->n; i++)
		if (b->piece[i].last > last)
			last = b->piece[i].last;
	return last;
}

/* ---- a sharded update ------------------------------------------------------------------------ */

/* The last unit that writes a gradient of the segment. */
static int completed_by(const struct buckets *b, const struct jm_segment *s)
{
	int last = -1;

	for (int i = 0; i < b->n; i++)
		if (b->piece[i].from < s->from + s->n && b->piece[i].to > s->from &&
			b->piece[i].last > last)
			last = b->piece[i].last;
	return last < 0 ? last_write(b) : last;
}

static int add_scatters(struct buckets *b, int at, struct jm_err *err)
{
	const struct jm_shard *s = b->p->graph->shard;
	int code = 0;

	for (int i = s->n - 1; i >= 0 && !code; i--) {
		const struct jm_segment *one = &s->segment[i];

		if (completed_by(b, one) != at)
			continue;
		code = new_unit(b, JM_OP_REDUCE_SCATTER_START, one->grads, one->own_grads, err);
		if (!code && one->is_whole)
			code = new_unit(b, JM_OP_ALL_GATHER_START, one->own_grads, one->grads, err);
	}
	return code;
}

/* The segment with matrices that is completed last of those which are complete before unit `end`;
 * NULL = none. */
static const struct jm_segment *last_before(const struct buckets *b, int end)
{
	const struct jm_shard *s = b->p->graph->shard;
	const struct jm_segment *last = NULL;

	for (int i = 0; i < s->n; i++)
		if (!s->segment[i].vectors && completed_by(b, &s->segment[i]) < end &&
			(!last || completed_by(b, &s->segment[i]) > completed_by(b, last)))
			last = &s->segment[i];
	return last;
}

static bool lies_in(const struct buckets *b, const struct jm_tensor *t, const struct jm_segment *s)
{
	int64_t at = place_of(b, jm_graph_cell(b->p->graph, t));

	return at >= 0 && at < s->from + s->n && s->from < at + jm_tensor_count(t);
}

/* True if the unit is a single node that writes only gradients of parameters, among them one of
 * `s`. */
static bool completes_part(
	const struct buckets *b, const struct jm_unit *u, const struct jm_segment *s)
{
	const struct jm_node *n = u->group.node[0];
	bool found = false;

	if (u->group.n_nodes > 1 || u->saved)
		return false;
	for (int i = 0; i < n->n_out; i++) {
		if (n->out[i] && place_of(b, jm_graph_cell(b->p->graph, n->out[i])) < 0)
			return false;
		found = found || (n->out[i] && lies_in(b, n->out[i], s));
	}
	return found;
}

/* The time in which a rank exchanges the gradients of the segment. */
static double transfer_seconds(const struct jm_graph *g, const struct jm_segment *s)
{
	double rate = g->by_host ? HOST_RATE : LINK_RATE, ranks = jm_graph_ranks(g);
	double bytes = (double)s->grads->bytes * (ranks - 1) / ranks;

	return bytes * (g->rounds_sums ? 0.5 : 1) * (s->is_whole ? 2 : 1) / rate;
}

double jm_reduce_shared_seconds(const struct jm_graph *g, const struct jm_node *n)
{
	double whole = (double)(n->op == JM_OP_SUM_ROWS ? n->in[0] : n->out[0])->bytes;

	return whole * (g->tp - 1) / g->tp * (n->op == JM_OP_SUM_RANKS ? 2 : 1) / LINK_RATE;
}

/* The peak of a processor was measured when it was opened, and each rank saw another one; plans
 * must be the same. */
static bool measures_peak(const struct jm_device *d)
{
	return d->props.host_memory && !jm_device_is_async(d);
}

double jm_reduce_product_seconds(
	const struct jm_graph *g, const struct jm_device *d, const struct jm_node *n)
{
	double peak = jm_device_peak(d, n->in[0]->type, g->math);

	return peak > 0 && !measures_peak(d) ? n->flops_executed / (PRODUCTS * peak) : INFINITY;
}

static bool is_product(const struct jm_node *n)
{
	return n->op == JM_OP_LINEAR || n->op == JM_OP_LINEAR_DGRAD || n->op == JM_OP_LINEAR_WGRAD;
}

bool jm_reduce_fits_host(const struct jm_graph *g, const struct jm_device *d)
{
	double exchange = 0, products = 0, ranks = jm_graph_ranks(g);

	for (int i = 0; g->shard && i < g->shard->n; i++) {
		const struct jm_segment *s = &g->shard->segment[i];

		exchange += transfer_seconds(g, s);
		if (!s->is_whole)
			exchange += (double)s->updated->bytes * (ranks - 1) / HOST_RATE;
	}
	for (int i = 0; i < g->n_nodes; i++)
		if (is_product(g->node[i]))
			products += jm_reduce_product_seconds(g, d, g->node[i]);
	products *= jm_graph_micro_steps(g);
	return d->backend->lanes && isfinite(products) && 4 * exchange <= products;
}

/* Puts the units before *to that compute the segment's gradients behind it; returns the time that
 * they take. A unit that completes parts of two segments may be there already. */
static double put_behind_all(const struct buckets *b, const struct jm_segment *s, int *to)
{
	struct jm_program *p = b->p;
	double seconds = 0;

	for (int i = *to - 1; i >= p->n_once; i--) {
		const struct jm_unit *u = p->unit[i];

		if (!completes_part(b, u, s) || !jm_unit_put_behind(p, i, *to))
			continue;
		seconds += jm_reduce_product_seconds(p->graph, p->device, u->group.node[0]);
		--*to;
	}
	return seconds;
}

/*
 * If the segment that is completed last is larger than those completed before it (that of a table
 * of tokens), units that compute gradients of smaller ones change places with what completes the
 * larger one: those of the smallest, and of further ones until they take as long as the exchange of
 * all these gradients. It is then hidden behind them, and only the smallest exchange begins after
 * the backward pass.
 */
static void put_off(struct buckets *b)
{
	const struct jm_segment *large = last_before(b, b->p->n_micro), *s, *next;
	double hidden = 0, needed;
	int end, to;

	if (!large)
		return;
	to = completed_by(b, large);
	needed = transfer_seconds(b->p->graph, large);
	for (s = last_before(b, to); s && s->n < large->n && hidden < needed; s = next) {
		end = completed_by(b, s);
		next = last_before(b, end < to ? end : to);
		needed += transfer_seconds(b->p->graph, s);
		hidden += put_behind_all(b, s, &to);
		find_last_writes(b);
	}
}

static bool contains(const struct jm_unit *u, const struct jm_node *n)
{
	for (int k = 0; k < u->group.n_nodes; k++)
		if (u->group.node[k] == n)
			return true;
	return false;
}

/* True if the unit reads a part of the segment. */
static bool reads(const struct buckets *b, const struct jm_unit *u, const struct jm_segment *s)
{
	const struct jm_cell *whole = jm_graph_cell(b->p->graph, s->whole);

	for (int k = 0; k < u->group.n_nodes; k++)
		for (int i = 0; i < u->group.node[k]->n_in; i++) {
			const struct jm_tensor *t = u->group.node[k]->in[i];
			const struct jm_cell *c = t ? jm_graph_cell(b->p->graph, t) : NULL;

			if (c && c->slab == whole->slab &&
				c->slab_offset < whole->slab_offset + whole->t.bytes &&
				whole->slab_offset < c->slab_offset + c->t.bytes)
				return true;
		}
	return false;
}

static void find_readers(const struct buckets *b)
{
	struct jm_shard *s = b->p->graph->shard;

	for (int i = 0; i < s->n; i++) {
		s->segment[i].reader = 0;
		while (s->segment[i].reader < b->p->n_micro - 1 &&
			!reads(b, b->p->unit[s->segment[i].reader], &s->segment[i]))
			s->segment[i].reader++;
	}
}

/* What unit `at` is the first to read must have been gathered. */
static int add_waits(struct buckets *b, int at, struct jm_err *err)
{
	const struct jm_shard *s = b->p->graph->shard;
	int code = 0;

	for (int i = 0; i < s->n && !code; i++)
		if (s->segment[i].reader == at && !s->segment[i].is_whole)
			code = new_unit(b, JM_OP_ALL_REDUCE_WAIT, s->segment[i].whole,
				s->segment[i].whole, err);
	return code;
}

/* The transfers after a unit of the update. */
static int add_gathers(struct buckets *b, const struct jm_unit *u, struct jm_err *err)
{
	const struct jm_graph *g = b->p->graph;
	const struct jm_shard *s = g->shard;
	int code = 0;

	if (contains(u, jm_graph_cell(g, s->own_norm)->producer)) {
		code = new_unit(b, JM_OP_ALL_GATHER_START, s->own_norm, s->norms, err);
		if (!code)
			code = new_unit(b, JM_OP_ALL_REDUCE_WAIT, s->norms, s->norms, err);
	}
	for (int i = 0; i < s->n && !code; i++)
		if (contains(u, s->segment[i].last) && !s->segment[i].is_whole)
			code = new_unit(b, JM_OP_ALL_GATHER_START, s->segment[i].updated,
				s->segment[i].whole, err);
	return code;
}

/* ---- the new order --------------------------------------------------------------------------- */

/* The transfers after unit `at`; last: the last unit that writes a gradient. */
static int add_after(struct buckets *b, int at, int n_micro, int last, struct jm_err *err)
{
	const struct jm_graph *g = b->p->graph;
	size_t least = g->bucket_bytes ? g->bucket_bytes : JM_BUCKET_BYTES;

	if (g->shard && at >= n_micro)
		return add_gathers(b, b->p->unit[at], err);
	if (g->shard)
		return add_scatters(b, at, err);
	return at < n_micro && at <= last ? add_starts(b, at, at < last ? least : 1, err) : 0;
}

/* Every unit is put into the new order, also after an error, so that the program frees it. */
static int insert(struct buckets *b, struct jm_err *err)
{
	struct jm_program *p = b->p;
	int code = 0, n_micro = p->n_micro, n_once = p->n_once, last = last_write(b);

	for (int i = 0; i < p->n_units; i++) {
		if (!code && p->graph->shard && i < n_micro)
			code = add_waits(b, i, err);
		if (i == n_once - 1)
			p->n_once = b->n_order + 1;
		if (i == n_micro) {
			p->n_micro = b->n_order;
			if (!code)
				code = new_unit(
					b, JM_OP_ALL_REDUCE_WAIT, b->slab[0], b->slab[0], err);
		}
		b->order[b->n_order++] = p->unit[i];
		if (!code)
			code = add_after(b, i, n_micro, last, err);
	}
	return code;
}

static void take_order(struct buckets *b)
{
	struct jm_program *p = b->p;

	free(p->unit);
	p->unit = b->order;
	p->n_units = p->cap_units = b->n_order;
	for (int i = 0; i < p->n_units; i++)
		p->unit[i]->position = i;
}

static int add(struct buckets *b, struct jm_err *err)
{
	size_t n;
	int code;

	find_pieces(b);
	find_last_writes(b);
	if (b->p->graph->shard) {
		put_off(b);
		find_readers(b);
	}
	n = (size_t)b->p->n_units + (size_t)b->n + 1;
	if (b->p->graph->shard) /* of each segment a scatter, a gather and a wait; the norms */
		n += 3 * (size_t)b->p->graph->shard->n + 2;
	b->order = calloc(n, sizeof(struct jm_unit *));
	if (!b->order)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	code = insert(b, err);
	take_order(b);
	return code ? code : jm_program_places(b->p, err);
}

int jm_program_add_reduction(struct jm_program *p, struct jm_err *err)
{
	struct buckets b = {.p = p,
		.slab = {jm_graph_find(p->graph, "slab.gradients"),
			jm_graph_find(p->graph, "slab.gradients.vectors")}};
	int code;

	if (jm_graph_ranks(p->graph) < 2 || !b.slab[0] || p->n_micro == p->n_units)
		return 0;
	b.piece = calloc((size_t)p->graph->n_cells + 1, sizeof(*b.piece));
	if (!b.piece)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	code = add(&b, err);
	free(b.piece);
	return code;
}

/* ---- what ranks have in common --------------------------------------------------------------- */

static uint64_t add_cell(uint64_t digest, const struct jm_cell *c)
{
	const struct jm_layout *l = &c->t.layout;

	digest = jm_rng(jm_rng(digest, c->slab_offset), c->t.bytes);
	for (int i = 0; i < l->rank; i++)
		digest = jm_rng(digest, (uint64_t)l->order[i]);
	for (int i = 0; i < l->n_blocks; i++)
		digest = jm_rng(jm_rng(digest, (uint64_t)l->block_dim[i]), (uint64_t)l->block[i]);
	return digest;
}

uint64_t jm_reduce_digest(const struct jm_program *p)
{
	const struct jm_graph *g = p->graph;
	uint64_t digest = 0;

	for (int i = 0; i < p->n_units; i++) {
		const struct jm_node *n = p->unit[i]->group.node[0];

		if (jm_reduce_is_start(p->unit[i]) || jm_reduce_is_shared(n))
			digest = add_cell(jm_rng(digest, n->op), jm_graph_cell(g, n->in[0]));
	}
	for (int i = 0; i < g->n_cells && digest; i++)
		if (jm_update_trains(g->cell[i]))
			digest = add_cell(digest, g->cell[i]);
	return digest;
}
