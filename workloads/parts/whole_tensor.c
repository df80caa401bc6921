/* SPDX-License-Identifier: Apache-2.0 */
#include "whole_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "engine/graph/tensor.h"
#include "engine/graph/tensor_parallel.h"

#define END (-1) /* in place of an item's number */

static size_t part_bytes(const struct jm_whole_item *item)
{
	return (size_t)jm_tensor_count(&item->t) * jm_dtype_bytes(item->t.type);
}

size_t jm_whole_bytes(const struct jm_whole *w, int i)
{
	const struct jm_whole_item *item = &w->item[i];

	return (size_t)jm_cell_count(w->p->graph, item->cell) * jm_dtype_bytes(item->t.type);
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

int jm_whole_write(struct jm_program *p, const struct jm_cell *c, struct jm_tensor *t,
	const void *whole, struct jm_err *err)
{
	size_t size = jm_dtype_bytes(t->type);
	void *own;
	int code;

	if (!t->data)
		return 0;
	own = malloc((size_t)jm_tensor_count(t) * size + 1);
	if (!own)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", t->name);
	jm_whole_part(p->graph, c, size, whole, own);
	code = jm_program_write(p, t, own, err);
	free(own);
	return code;
}

/* ---- between ranks --------------------------------------------------------------------------- */

/* The first rank that has the item; those that have other parts of it follow. */
static int find_holder(
	const struct jm_whole *w, const struct jm_whole_item *item, int *ret, struct jm_err *err)
{
	char has[JM_RANKS_MOST], own = item->t.data != NULL;
	const struct jm_transfer t = {
		.kind = JM_ALL_GATHER, .type = JM_COMM_BYTE, .from = &own, .to = has, .count = 1};
	int code = jm_comm_run(w->comm, &t, err);

	for (int r = 0; r < w->comm->world && !code; r++)
		if (has[r]) {
			*ret = r;
			return 0;
		}
	return code ? code : jm_err_set(err, JM_EBUG, "No rank has tensor %s.", item->t.name);
}

/* The part of rank `from` to rank 0; part: room for it. */
static int send_part(const struct jm_whole *w, const struct jm_whole_item *item, int from,
	void *part, struct jm_err *err)
{
	int rank = w->comm->rank, code = 0;
	const struct jm_transfer t = {.kind = JM_SEND_RECEIVE,
		.type = JM_COMM_BYTE,
		.from = part,
		.to = part,
		.count = part_bytes(item),
		.to_rank = rank == from ? 0 : -1,
		.from_rank = rank == from ? -1 : from};

	if (rank == from)
		code = jm_program_read(w->p, &item->t, part, err);
	return code || !from ? code : jm_comm_run(w->comm, &t, err);
}

/* whole: NULL = on other ranks. */
static int collect(
	const struct jm_whole *w, const struct jm_whole_item *item, void *whole, struct jm_err *err)
{
	const struct jm_graph *g = w->p->graph;
	int first = 0, n = item->cell->cut.n ? jm_graph_tp(g) : 1;
	int code = find_holder(w, item, &first, err);
	void *part = code ? NULL : malloc(part_bytes(item) + 1);

	if (!part)
		return code ? code
			    : jm_err_set(err, JM_ENOMEM, "Out of memory for %s.", item->t.name);
	for (int r = 0; r < n && !code; r++) {
		if (w->comm->rank && w->comm->rank != first + r)
			continue;
		code = send_part(w, item, first + r, part, err);
		if (!code && whole)
			copy(g, item->cell, r, jm_dtype_bytes(item->t.type), part, whole, true);
	}
	free(part);
	return code;
}

int jm_whole_read(const struct jm_whole *w, int i, void *ret, struct jm_err *err)
{
	int code;

	if (!w->comm)
		return jm_program_read(w->p, &w->item[i].t, ret, err);
	code = jm_comm_from_first(w->comm, &i, sizeof(i), err);
	return code ? code : collect(w, &w->item[i], ret, err);
}

int jm_whole_answer(const struct jm_whole *w, struct jm_err *err)
{
	int i = END, code = jm_comm_from_first(w->comm, &i, sizeof(i), err);

	while (!code && i != END) {
		code = collect(w, &w->item[i], NULL, err);
		if (!code)
			code = jm_comm_from_first(w->comm, &i, sizeof(i), err);
	}
	return code;
}

int jm_whole_end(const struct jm_whole *w, struct jm_err *err)
{
	int end = END;

	return w->comm ? jm_comm_from_first(w->comm, &end, sizeof(end), err) : 0;
}
