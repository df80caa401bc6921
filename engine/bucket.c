/* SPDX-License-Identifier: Apache-2.0 */
/* Places the starts of sums over ranks: each after the unit that completes a bucket. */
#include "reduce.h"

#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "tensor.h"

/* An interval of the slab of gradients. */
struct piece {
	size_t from, to; /* bytes */
	int last;	 /* the unit that writes it last */
	bool sent;
};

struct buckets {
	struct jm_program *p;
	struct jm_tensor *slab;
	struct piece *piece; /* by rising offset, without gaps */
	int n;
	struct jm_unit **order; /* the old and the new units */
	int n_order;
};

bool jm_reduce_is_start(const struct jm_unit *u)
{
	return u->group.node[0]->op == JM_OP_ALL_REDUCE_START;
}

bool jm_reduce_is_node(const struct jm_unit *u)
{
	return jm_reduce_is_start(u) || u->group.node[0]->op == JM_OP_ALL_REDUCE_WAIT;
}

static int by_place(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

/* Finds the views of the slab whose gradients micro-steps compute; padding belongs to the view
 * before it. */
static void find_pieces(struct buckets *b)
{
	const struct jm_graph *g = b->p->graph;

	for (int i = 0; i < g->n_cells; i++) {
		const struct jm_cell *c = g->cell[i];

		if (c->slab == b->slab && c->first >= 0 && c->first < b->p->n_micro)
			b->piece[b->n++] = (struct piece){.from = c->slab_offset, .last = -1};
	}
	qsort(b->piece, (size_t)b->n, sizeof(*b->piece), by_place);
	for (int i = 0; i < b->n; i++)
		b->piece[i].to = i + 1 < b->n ? b->piece[i + 1].from : b->slab->bytes;
	if (b->n)
		b->piece[0].from = 0;
}

/* The last piece that begins at or before this offset. */
static struct piece *piece_at(const struct buckets *b, size_t place)
{
	int i = 0;

	while (i + 1 < b->n && b->piece[i + 1].from <= place)
		i++;
	return &b->piece[i];
}

static void find_last_writes(const struct buckets *b)
{
	for (int i = 0; i < b->p->n_micro; i++) {
		const struct jm_group *group = &b->p->unit[i]->group;

		for (int k = 0; k < group->n_nodes; k++)
			for (int o = 0; o < group->node[k]->n_out; o++) {
				struct jm_tensor *t = group->node[k]->out[o];
				const struct jm_cell *c = t ? jm_graph_cell(b->p->graph, t) : NULL;

				if (c && c->slab == b->slab)
					piece_at(b, c->slab_offset)->last = i;
			}
	}
}

static struct jm_unit *new_unit(
	struct buckets *b, enum jm_op op, struct jm_tensor *t, struct jm_err *err)
{
	struct jm_graph *g = b->p->graph;
	struct jm_unit *u = calloc(1, sizeof(*u));
	struct jm_node *node = jm_graph_node(g, op, &t, &t);

	if (!u || !node) {
		free(u);
		jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
		return NULL;
	}
	node->bytes = (double)t->bytes;
	u->group.n_nodes = 1;
	u->group.node[0] = node;
	u->choice.flops_executed = 0;
	b->order[b->n_order++] = u;
	return u;
}

/* Adds the node that starts the sum of pieces i to k - 1. */
static int add_start(struct buckets *b, int i, int k, struct jm_err *err)
{
	struct jm_graph *g = b->p->graph;
	size_t from = b->piece[i].from, bytes = b->piece[k - 1].to - from;
	int64_t n = (int64_t)(bytes / jm_dtype_bytes(b->slab->type));
	struct jm_tensor *view =
		jm_graph_tensor(g, JM_CLASS_GRAD, b->slab->type, 1, &n, "slab.gradients.bucket");

	if (!view)
		return jm_err_set(err, g->err.code, "%s", g->err.text);
	jm_graph_cell(g, view)->slab = b->slab;
	jm_graph_cell(g, view)->slab_offset = from;
	for (int j = i; j < k; j++)
		b->piece[j].sent = true;
	return new_unit(b, JM_OP_ALL_REDUCE_START, view, err) ? 0 : err->code;
}

/* Starts, after unit `at`, the sums of intervals of complete pieces with at least `least` bytes. */
static int add_starts(struct buckets *b, int at, size_t least, struct jm_err *err)
{
	int code = 0;

	for (int i = 0, k; i < b->n && !code; i = k) {
		for (k = i; k < b->n && !b->piece[k].sent && b->piece[k].last <= at; k++)
			;
		if (k > i && b->piece[k - 1].to - b->piece[i].from >= least)
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

/* Every unit is put into the new order, also after an error, so that the program frees it. */
static int insert(struct buckets *b, struct jm_err *err)
{
	struct jm_program *p = b->p;
	size_t least = p->graph->bucket_bytes ? p->graph->bucket_bytes : JM_BUCKET_BYTES;
	int code = 0, n_micro = p->n_micro, last = last_write(b);

	for (int i = 0; i < p->n_units; i++) {
		if (i == n_micro) {
			p->n_micro = b->n_order;
			if (!code && !new_unit(b, JM_OP_ALL_REDUCE_WAIT, b->slab, err))
				code = err->code;
		}
		b->order[b->n_order++] = p->unit[i];
		if (!code && i < n_micro && i <= last)
			code = add_starts(b, i, i < last ? least : 1, err);
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
	int code;

	find_pieces(b);
	find_last_writes(b);
	b->order = calloc((size_t)b->p->n_units + (size_t)b->n + 1, sizeof(struct jm_unit *));
	if (!b->order)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	code = insert(b, err);
	take_order(b);
	return code ? code : jm_program_places(b->p, err);
}

int jm_program_add_reduction(struct jm_program *p, struct jm_err *err)
{
	struct buckets b = {.p = p, .slab = jm_graph_find(p->graph, "slab.gradients")};
	int code;

	if (jm_graph_ranks(p->graph) < 2 || !b.slab || p->n_micro == p->n_units)
		return 0;
	b.piece = calloc((size_t)p->graph->n_cells + 1, sizeof(*b.piece));
	if (!b.piece)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	code = add(&b, err);
	free(b.piece);
	return code;
}

/* ---- what ranks have in common ------------------------------------------------------------------------------ */

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

	for (int i = 0; i < p->n_units; i++)
		if (jm_reduce_is_start(p->unit[i]))
			digest = add_cell(
				digest, jm_graph_cell(g, p->unit[i]->group.node[0]->out[0]));
	for (int i = 0; i < g->n_cells && digest; i++)
		if (g->cell[i]->slab && g->cell[i]->t.class == JM_CLASS_PARAM)
			digest = add_cell(digest, g->cell[i]);
	return digest;
}
