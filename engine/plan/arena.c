/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena. Offsets are continuous over three regions of memory: the weights, other tensors that
 * persist between steps, and the arena, in which every other tensor gets the lowest free offset
 * during its lifetime, the largest tensors first.
 */
#include "arena.h"
#include "hoist_copies.h"
#include "liveness.h"
#include "arena_places.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN ((size_t)64)
/* Of tensors that are not small: kernels of GPUs are up to 40 % slower where rows of 128 bytes
 * begin in the middle of a line, and steps 1.5 % where those of filters do. */
#define BLOCK ((size_t)512)
#define SMALL ((size_t)4096)

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t in_blocks(size_t n)
{
	return (n + BLOCK - 1) / BLOCK * BLOCK;
}

/* The place of a tensor of the arena; the small ones come last. */
static size_t room_of(size_t bytes)
{
	return bytes < SMALL ? aligned(bytes) : in_blocks(bytes);
}

/* Holds these bytes, and the rest of the blocks in which they begin and end. */
static bool hold(struct jm_places *held, size_t from, size_t to, int first, int last)
{
	return jm_places_add(
		held, &(struct jm_place){from / BLOCK * BLOCK, in_blocks(to), first, last});
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

/* True if the tensor, or the slab of which it is a view, persists between steps. */
static bool stays_here(const struct jm_cell *c)
{
	return stays(&c->t) && !c->own_life;
}

/* Places the persistent tensors that are weights, or the other persistent tensors; returns the end
 * of the last block. */
static size_t place_staying(struct jm_program *p, bool weights, size_t end)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (!has_memory(c) || !stays_here(c) || jm_weights_is_one(c->t.class) != weights)
			continue;
		if (c->t.bytes >= SMALL)
			end = in_blocks(end);
		c->offset = end;
		end += aligned(c->t.bytes);
		p->class_bytes[c->t.class] += c->t.bytes;
	}
	return in_blocks(end);
}

/* Takes the places that the weights have assigned already. */
static int find_weights(struct jm_program *p, struct jm_err *err)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];
		const struct jm_weight *w;

		if (!has_memory(c) || !stays_here(c) || !jm_weights_is_one(c->t.class))
			continue;
		w = jm_weights_find(p->weights, c->t.name);
		if (!w || w->t.type != c->t.type || w->t.bytes != c->t.bytes)
			return jm_err_set(err, JM_EBUG,
				"The program needs %s of %zu bytes, and the weights that it shares "
				"%s.",
				c->t.name, c->t.bytes, w ? "have another one" : "have none");
		c->offset = w->offset;
		p->class_bytes[c->t.class] += c->t.bytes;
	}
	return 0;
}

static int place_weights(struct jm_program *p, struct jm_err *err)
{
	if (!p->is_first) {
		p->weight_bytes = p->weights->bytes;
		return find_weights(p, err);
	}
	p->weight_bytes = place_staying(p, true, 0);
	return 0;
}

static int larger_first(const void *a, const void *b)
{
	const struct jm_cell *x = *(struct jm_cell *const *)a, *y = *(struct jm_cell *const *)b;

	if (x->t.bytes != y->t.bytes)
		return x->t.bytes < y->t.bytes ? 1 : -1;
	return x->t.id - y->t.id;
}

static int collect(struct jm_program *p, struct jm_cell **moving)
{
	int n = 0;

	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (!has_memory(c) ||
			stays(&c->t)) /* slabs of gradients have their places already */
			continue;
		moving[n++] = c;
		p->class_bytes[c->t.class] += c->t.bytes;
	}
	qsort(moving, (size_t)n, sizeof(*moving), larger_first);
	return n;
}

/* Nothing else is placed in the gaps of the slabs. */
static bool hold_gaps(const struct jm_program *p, struct jm_places *held)
{
	for (int i = 0; i < p->n_gaps; i++) {
		const struct jm_gap *gap = &p->gap[i];
		size_t from = jm_graph_cell(p->graph, gap->slab)->offset + gap->from;

		if (!hold(held, from, from + gap->bytes, 0, p->n_units - 1))
			return false;
	}
	return true;
}

/* The slabs of gradients are at the start of the arena, where each of their views holds its
 * place. */
static bool place_gradients(struct jm_program *p, struct jm_places *held)
{
	size_t end = p->persistent_bytes;

	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (!has_memory(c) || !c->own_life)
			continue;
		c->offset = end;
		end += in_blocks(c->t.bytes);
		p->class_bytes[c->t.class] += c->t.bytes;
	}
	p->peak_bytes = end;
	for (int i = 0; i < p->graph->n_cells; i++) {
		const struct jm_cell *c = p->graph->cell[i];
		size_t from =
			c->slab ? jm_graph_cell(p->graph, c->slab)->offset + c->slab_offset : 0;

		if (c->slab && c->own_life &&
			!hold(held, from, from + c->t.bytes, c->first, c->last))
			return false;
	}
	return hold_gaps(p, held);
}

/* ---- the slots of a stage -------------------------------------------------------------------- */

/* Finds the parts of the stage in the order of the units. */
static void find_parts(struct jm_program *p)
{
	struct jm_stage *s = &p->stage;
	int n = 0, last = 2 * s->pipe.chunks - 1;

	memset(s->in, 0, sizeof(s->in));
	memset(s->out, 0, sizeof(s->out));
	for (int i = 0; i < p->n_micro && s->pipe.stages; i++) {
		const struct jm_node *node = p->unit[i]->group.node[0];

		if (node->op == JM_OP_STAGE_IN)
			s->in[n] = node->out[0];
		if (node->op != JM_OP_STAGE_OUT)
			continue;
		if (node->in[0]->class != JM_CLASS_SCALAR) /* the loss is sent to no stage */
			s->out[n] = node->in[0];
		s->end[n] = i + 1;
		n += n < last;
	}
	s->end[n] = p->n_micro;
}

/* The part of a micro-step in which unit `at` is; -1 = before all. */
static int part_of(const struct jm_program *p, int at)
{
	int k = 0;

	if (at < p->n_once)
		return -1;
	while (k < 2 * p->stage.pipe.chunks - 1 && at >= p->stage.end[k])
		k++;
	return k;
}

/* The chunk for whose micro-steps the tensor is kept from one part to another; -1 = it is not. */
static int chunk_of(const struct jm_program *p, const struct jm_cell *c)
{
	int chunks = p->stage.pipe.chunks, first, last;

	if (!p->stage.pipe.stages)
		return -1;
	first = part_of(p, c->first);
	last = part_of(p, c->last < p->n_micro ? c->last : p->n_micro - 1);
	if (first < 0 || (first == last && !jm_cell_is_received(c)))
		return -1;
	return first < chunks ? first : 2 * chunks - 1 - first;
}

/* Places the slots of each chunk, the largest tensors first; returns the end of all. */
static size_t place_slots(struct jm_program *p, struct jm_cell **moving, int n, size_t start)
{
	for (int k = 0; k < p->stage.pipe.chunks && p->stage.pipe.stages; k++) {
		struct jm_stage_slots *chunk = &p->stage.chunk[k];

		chunk->from = start;
		chunk->bytes = 0;
		for (int i = 0; i < n; i++)
			if (chunk_of(p, moving[i]) == k) {
				moving[i]->offset = start + chunk->bytes;
				chunk->bytes += room_of(moving[i]->t.bytes);
			}
		chunk->bytes = in_blocks(chunk->bytes);
		start += (size_t)chunk->slots * chunk->bytes;
	}
	return start;
}

/* Sets the peak; false = out of memory. */
static bool place_moving(
	struct jm_program *p, struct jm_cell **moving, int n, struct jm_places *held)
{
	size_t start;

	if (!place_gradients(p, held))
		return false;
	start = place_slots(p, moving, n, p->persistent_bytes);
	if (start > p->peak_bytes)
		p->peak_bytes = start;
	for (int i = 0; i < n; i++) {
		struct jm_cell *c = moving[i];
		size_t bytes = room_of(c->t.bytes);

		if (chunk_of(p, c) >= 0)
			continue;
		c->offset = jm_places_find(held, start, bytes, c->first, c->last);
		if (!jm_places_add(held,
			    &(struct jm_place){c->offset, c->offset + bytes, c->first, c->last}))
			return false;
		if (c->offset + aligned(c->t.bytes) > p->peak_bytes)
			p->peak_bytes = c->offset + aligned(c->t.bytes);
	}
	p->arena_bytes = p->peak_bytes - p->persistent_bytes;
	return true;
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
	bool moves = c->slab ? c->own_life : has_memory(c) && !stays(&c->t);

	return moves && c->first <= unit && unit <= c->last;
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

static int place_rest(struct jm_program *p, struct jm_err *err)
{
	struct jm_cell **moving = calloc((size_t)p->graph->n_cells + 1, sizeof(*moving));
	struct jm_places held = {0};
	bool good = moving && place_moving(p, moving, collect(p, moving), &held);

	jm_places_done(&held);
	free(moving);
	return good ? 0
		    : jm_err_set(err, JM_ENOMEM, "Out of memory for a plan of %d tensors.",
			      p->graph->n_cells);
}

static int place_all(struct jm_program *p, struct jm_err *err)
{
	int code;

	memset(p->class_bytes, 0, sizeof(p->class_bytes));
	code = place_weights(p, err);
	if (code)
		return code;
	p->persistent_bytes = place_staying(p, false, p->weight_bytes);
	code = place_rest(p, err);
	if (!code)
		place_views(p);
	return code;
}

int jm_program_places(struct jm_program *p, struct jm_err *err)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_cell *c = p->graph->cell[i];

		c->first = c->last = -1;
		c->alias = NULL;
	}
	if (!jm_program_liveness(p))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a plan of %d tensors.",
			p->graph->n_cells);
	jm_program_keep_hoisted(p);
	find_parts(p);
	return place_all(p, err);
}
