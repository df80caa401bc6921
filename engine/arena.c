/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena: one stretch of memory. What stays between steps comes first; behind it every other tensor
 * gets the lowest place that nothing alive at the same time holds, the largest tensors first.
 */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN ((size_t)64)

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static bool stays(const struct jm_tensor *t)
{
	return t->class == JM_CLASS_PARAM || t->class == JM_CLASS_GRAD ||
	       t->class == JM_CLASS_OPT || t->class == JM_CLASS_STATE ||
	       t->class == JM_CLASS_INPUT || t->class == JM_CLASS_SCALAR;
}

static bool has_memory(const struct jm_cell *c)
{
	return c->first >= 0 && !c->alias && !c->slab && !c->t.is_virtual;
}

static size_t place_staying(struct jm_program *p)
{
	size_t end = 0;

	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (!has_memory(c) || !stays(&c->t))
			continue;
		c->offset = end;
		end += aligned(c->t.bytes);
		p->class_bytes[c->t.class] += c->t.bytes;
	}
	return end;
}

static int larger_first(const void *a, const void *b)
{
	const struct jm_cell *x = *(struct jm_cell *const *)a, *y = *(struct jm_cell *const *)b;

	if (x->t.bytes != y->t.bytes)
		return x->t.bytes < y->t.bytes ? 1 : -1;
	return x->t.id - y->t.id;
}

/* placed: by rising offset. Returns the lowest offset with room beside all that live at the same time. */
static size_t find_place(
	const struct jm_cell *c, struct jm_cell *const *placed, int n, size_t start)
{
	size_t at = start;

	for (int i = 0; i < n; i++) {
		const struct jm_cell *o = placed[i];

		if (o->last < c->first || c->last < o->first)
			continue;
		if (at + aligned(c->t.bytes) <= o->offset)
			break;
		if (o->offset + aligned(o->t.bytes) > at)
			at = o->offset + aligned(o->t.bytes);
	}
	return at;
}

static void insert(struct jm_cell *c, struct jm_cell **placed, int n)
{
	int i = n;

	for (; i > 0 && placed[i - 1]->offset > c->offset; i--)
		placed[i] = placed[i - 1];
	placed[i] = c;
}

static int collect(struct jm_program *p, struct jm_cell **moving)
{
	int n = 0;

	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (!has_memory(c) || stays(&c->t))
			continue;
		moving[n++] = c;
		p->class_bytes[c->t.class] += c->t.bytes;
	}
	qsort(moving, (size_t)n, sizeof(*moving), larger_first);
	return n;
}

static size_t place_moving(struct jm_program *p, struct jm_cell **moving, struct jm_cell **placed)
{
	size_t start = p->persistent_bytes, end = start;
	int n = collect(p, moving);

	for (int i = 0; i < n; i++) {
		struct jm_cell *c = moving[i];

		c->offset = find_place(c, placed, i, start);
		insert(c, placed, i);
		if (c->offset + aligned(c->t.bytes) > end)
			end = c->offset + aligned(c->t.bytes);
	}
	return end;
}

static void place_views(struct jm_program *p)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (c->slab)
			c->offset = jm_graph_cell(p->graph, c->slab)->offset + c->slab_offset;
		else if (c->alias)
			c->offset = jm_graph_cell(p->graph, c->alias)->offset;
	}
}

bool jm_program_is_live(const struct jm_cell *c, int unit)
{
	return has_memory(c) && !stays(&c->t) && c->first <= unit && unit <= c->last;
}

size_t jm_program_live(const struct jm_program *p, int *ret_unit)
{
	size_t most = 0;

	*ret_unit = 0;
	for (int u = 0; u < p->n_units; u++) {
		size_t sum = 0;

		for (int i = 0; i < p->graph->n_cells; i++)
			if (jm_program_is_live(p->graph->cell[i], u))
				sum += aligned(p->graph->cell[i]->t.bytes);
		if (sum > most) {
			most = sum;
			*ret_unit = u;
		}
	}
	return most;
}

int jm_program_arena(struct jm_program *p, struct jm_err *err)
{
	size_t n = (size_t)p->graph->n_cells + 1;
	struct jm_cell **room = calloc(2 * n, sizeof(*room));

	if (!room)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a plan of %zu tensors.", n);
	memset(p->class_bytes, 0, sizeof(p->class_bytes));
	p->persistent_bytes = place_staying(p);
	p->peak_bytes = place_moving(p, room, room + n);
	p->arena_bytes = p->peak_bytes - p->persistent_bytes;
	place_views(p);
	free(room);
	return 0;
}
