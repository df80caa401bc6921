/* SPDX-License-Identifier: Apache-2.0 */
#include "whole_tensor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "engine/graph/shard_update.h"
#include "engine/graph/tensor.h"
#include "engine/graph/tensor_parallel.h"
#include "weights_stream.h"

#define PIECE ((size_t)16 << 20) /* bytes on the host at once */
#define END   (-1)		 /* in place of an item's number */

static size_t size_of(const struct jm_whole_item *item)
{
	return jm_dtype_bytes(item->t.type);
}

int64_t jm_whole_count(const struct jm_whole *w, int i)
{
	return jm_cell_count(w->p->graph, w->item[i].cell);
}

size_t jm_whole_bytes(const struct jm_whole *w, int i)
{
	return (size_t)jm_whole_count(w, i) * size_of(&w->item[i]);
}

int64_t jm_whole_piece(const struct jm_whole *w, int i)
{
	const struct jm_whole_item *item = &w->item[i];
	int64_t all = jm_whole_count(w, i), most = (int64_t)(PIECE / size_of(item));

	bool pieces = item->cell->t.data && !item->cell->cut.n && !item->t.layout.rank;

	return pieces && most < all ? most : all;
}

/* Each rank has a share of what is kept. */
static bool is_sharded(const struct jm_whole *w, const struct jm_whole_item *item)
{
	return item->kept && w->p->graph->shard;
}

/* n elements of t from `first` on; all of one that does not lie plain, or that others have. */
static struct jm_tensor range_of(const struct jm_tensor *t, int64_t first, int64_t n)
{
	struct jm_tensor range = *t;
	size_t size = jm_dtype_bytes(t->type);

	if (t->layout.rank || !t->data)
		return range;
	range.data = (char *)t->data + (size_t)first * size;
	range.bytes = (size_t)n * size;
	return range;
}

/* Copies between a part of rank tp_rank and the whole. */
static void copy(const struct jm_graph *g, const struct jm_cell *c, int tp_rank, size_t size,
	char *part, char *whole, bool to_whole)
{
	int64_t n = jm_tensor_count(&c->t), at, run;

	for (int64_t i = 0; i < n; i += run) {
		char *own, *all;

		run = jm_cell_stretch(g, c, tp_rank, i, &at);
		own = part + (size_t)i * size;
		all = whole + (size_t)at * size;
		memcpy(to_whole ? all : own, to_whole ? own : all, (size_t)run * size);
	}
}

void jm_whole_part(const struct jm_graph *g, const struct jm_cell *c, size_t size,
	const void *whole, void *ret)
{
	copy(g, c, g->tp_rank, size, ret, (char *)whole, false);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_own(const struct jm_whole *w, const struct jm_shard_run *run)
{
	return run->rank == w->p->graph->rank || run->segment->is_whole;
}

bool jm_whole_has(const struct jm_whole *w, int i, int64_t first, int64_t n)
{
	const struct jm_whole_item *item = &w->item[i];
	bool known = !item->cell->cut.n && !item->t.layout.rank; /* where its elements are */

	if (!item->cell->t.data || !is_sharded(w, item) || !known)
		return item->cell->t.data;
	for (int64_t end = first + n; first < end;) {
		struct jm_shard_run run = jm_shard_run(w->p->graph, item->cell, first);

		if (is_own(w, &run))
			return true;
		first += run.n;
	}
	return false;
}

/* The runs of the item's elements [first, first + n), in the order of the layout, of which this
 * rank keeps values. */
static int write_runs(const struct jm_whole *w, const struct jm_whole_item *item, int64_t first,
	int64_t n, const char *from, struct jm_err *err)
{
	size_t size = size_of(item);
	int code = 0;

	for (int64_t i = 0, count; i < n && !code; i += count) {
		struct jm_shard_run run = jm_shard_run(w->p->graph, item->cell, first + i);
		struct jm_tensor range;

		count = MIN(run.n, n - i);
		if (!is_own(w, &run))
			continue;
		range = range_of(run.segment->kept[item->kept], run.at, count);
		code = jm_program_write(w->p, &range, from + (size_t)i * size, err);
	}
	return code;
}

/* The copy of a parameter that persists (shard_update.c) has its values, rounded. */
static int write_copy(const struct jm_whole *w, const struct jm_whole_item *item, int64_t first,
	int64_t n, const void *from, struct jm_err *err)
{
	struct jm_tensor *copy = item->kept ? NULL : item->cell->copy, range;
	void *rounded;
	int code;

	if (!copy || copy->class != JM_CLASS_PARAM)
		return 0;
	rounded = malloc((size_t)n * jm_dtype_bytes(copy->type) + 1);
	if (!rounded)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", copy->name);
	jm_weights_convert(item->t.type, from, n, copy->type, rounded);
	range = range_of(copy, first, n);
	code = jm_program_write(w->p, &range, rounded, err);
	free(rounded);
	return code;
}

/* Elements of this rank's part, plain. */
static int write_part(const struct jm_whole *w, const struct jm_whole_item *item, int64_t first,
	int64_t n, const void *from, struct jm_err *err)
{
	struct jm_tensor range = range_of(&item->t, first, n);
	void *laid = NULL;
	int code;

	if (!is_sharded(w, item)) {
		code = jm_program_write(w->p, &range, from, err);
		return code ? code : write_copy(w, item, first, n, from, err);
	}
	if (!item->t.layout.rank)
		return write_runs(w, item, first, n, from, err);
	laid = malloc(item->t.bytes);
	if (!laid)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", item->t.name);
	jm_tensor_reorder(&item->t, laid, from, true);
	code = write_runs(w, item, first, n, laid, err);
	free(laid);
	return code;
}

int jm_whole_write(const struct jm_whole *w, int i, int64_t first, int64_t n, const void *from,
	struct jm_err *err)
{
	const struct jm_whole_item *item = &w->item[i];
	void *own;
	int code;

	if (!item->cell->t.data)
		return 0;
	if (!item->cell->cut.n)
		return write_part(w, item, first, n, from, err);
	own = malloc((size_t)jm_tensor_count(&item->t) * size_of(item) + 1);
	if (!own)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", item->t.name);
	jm_whole_part(w->p->graph, item->cell, size_of(item), from, own);
	code = write_part(w, item, 0, jm_tensor_count(&item->t), own, err);
	free(own);
	return code;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What is read at once: elements of an item. */
struct piece {
	int64_t item, first, n;
};

/* The first rank that has the item. Others that have parts of it, or shares of these, follow. */
static int find_holder(
	const struct jm_whole *w, const struct jm_whole_item *item, int *ret, struct jm_err *err)
{
	char has[JM_RANKS_MOST], own = item->cell->t.data != NULL;
	const struct jm_transfer t = {
		.kind = JM_ALL_GATHER, .type = JM_COMM_BYTE, .from = &own, .to = has, .count = 1};
	int code = jm_comm_run(w->comm, &t, err);

	for (int r = item->rank; r < w->comm->world && !code; r++)
		if (has[r]) {
			*ret = r;
			return 0;
		}
	return code ? code : jm_err_set(err, JM_EBUG, "No rank has tensor %s.", item->t.name);
}

/* From memory of one rank to that of another one, which calls it, too. */
static int move(
	const struct jm_whole *w, int from, int to, void *data, size_t bytes, struct jm_err *err)
{
	int rank = w->comm->rank;
	const struct jm_transfer t = {.kind = JM_SEND_RECEIVE,
		.type = JM_COMM_BYTE,
		.from = data,
		.to = data,
		.count = bytes,
		.to_rank = rank == from ? to : -1,
		.from_rank = rank == to ? from : -1};

	return from == to || (rank != from && rank != to) ? 0 : jm_comm_run(w->comm, &t, err);
}

/* The shares of ranks to the holder, in the order of the layout; data: room for all on each. */
static int join_shares(const struct jm_whole *w, const struct jm_whole_item *item, int holder,
	const struct piece *p, char *data, struct jm_err *err)
{
	const struct jm_graph *g = w->p->graph;
	size_t size = size_of(item);
	int code = 0;

	for (int64_t i = 0, count; i < p->n && !code; i += count) {
		struct jm_shard_run run = jm_shard_run(g, item->cell, p->first + i);
		int from = holder + run.rank * jm_graph_tp(g);
		char *here = data + (size_t)i * size;

		count = MIN(run.n, p->n - i);
		if (w->comm->rank == from) {
			struct jm_tensor range =
				range_of(run.segment->kept[item->kept], run.at, count);

			code = jm_program_read(w->p, &range, here, err);
		}
		if (!code)
			code = move(w, from, holder, here, (size_t)count * size, err);
	}
	return code;
}

/* Is this rank one of those whose shares make the part of the holder? */
static bool has_share(const struct jm_whole *w, const struct jm_whole_item *item, int holder)
{
	const struct jm_graph *g = w->p->graph;
	int tp = jm_graph_tp(g), behind = w->comm->rank - holder;

	return is_sharded(w, item) && behind >= 0 && behind % tp == 0 &&
	       behind / tp < jm_graph_ranks(g);
}

/* All of a part that lies otherwise on the device. */
static int read_laid(const struct jm_whole *w, const struct jm_whole_item *item, int holder,
	void *ret, struct jm_err *err)
{
	const struct piece all = {.n = jm_tensor_count(&item->t)};
	void *laid = malloc(item->t.bytes);
	int code;

	if (!laid)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", item->t.name);
	code = join_shares(w, item, holder, &all, laid, err);
	if (!code)
		jm_tensor_reorder(&item->t, ret, laid, false);
	free(laid);
	return code;
}

/* Elements of the holder's part into its memory, plain. */
static int read_part(const struct jm_whole *w, const struct jm_whole_item *item, int holder,
	const struct piece *p, void *ret, struct jm_err *err)
{
	bool laid = item->t.layout.rank;
	struct jm_tensor range = range_of(&item->t, p->first, p->n);

	if (has_share(w, item, holder))
		return laid ? read_laid(w, item, holder, ret, err)
			    : join_shares(w, item, holder, p, ret, err);
	return w->comm->rank == holder ? jm_program_read(w->p, &range, ret, err) : 0;
}

/* whole: NULL = on other ranks. */
static int collect(const struct jm_whole *w, const struct piece *p, void *whole, struct jm_err *err)
{
	const struct jm_whole_item *item = &w->item[p->item];
	const struct jm_graph *g = w->p->graph;
	bool cut = item->cell->cut.n, direct = whole && !cut;
	struct piece own = *p;
	int first = 0, code = find_holder(w, item, &first, err);
	char *part;

	if (cut)
		own.n = jm_tensor_count(&item->t);
	part = code ? NULL : direct ? whole : malloc((size_t)own.n * size_of(item) + 1);
	if (!part)
		return code ? code
			    : jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", item->t.name);
	for (int r = 0; r < (cut ? jm_graph_tp(g) : 1) && !code; r++) {
		code = read_part(w, item, first + r, &own, part, err);
		if (!code)
			code = move(w, first + r, 0, part, (size_t)own.n * size_of(item), err);
		if (!code && whole && cut)
			copy(g, item->cell, r, size_of(item), part, whole, true);
	}
	if (!direct)
		free(part);
	return code;
}

int jm_whole_read(
	const struct jm_whole *w, int i, int64_t first, int64_t n, void *ret, struct jm_err *err)
{
	struct piece p = {i, first, n};
	struct jm_tensor range = range_of(&w->item[i].t, first, n);
	int code;

	if (!w->comm)
		return jm_program_read(w->p, &range, ret, err);
	code = jm_comm_from_first(w->comm, &p, sizeof(p), err);
	return code ? code : collect(w, &p, ret, err);
}

int jm_whole_answer(const struct jm_whole *w, struct jm_err *err)
{
	struct piece p = {.item = END};
	int code = jm_comm_from_first(w->comm, &p, sizeof(p), err);

	while (!code && p.item != END) {
		code = collect(w, &p, NULL, err);
		if (!code)
			code = jm_comm_from_first(w->comm, &p, sizeof(p), err);
	}
	return code;
}

int jm_whole_end(const struct jm_whole *w, struct jm_err *err)
{
	struct piece end = {.item = END};

	return w->comm ? jm_comm_from_first(w->comm, &end, sizeof(end), err) : 0;
}
