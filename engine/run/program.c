/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, builds and runs a program. */
#include "program.h"
#include "base/text/number.h"
#include "engine/graph/tensor.h"
#include "engine/graph/tensor_parallel.h"
#include "engine/plan/apply_choices.h"
#include "engine/plan/bucket.h"
#include "engine/plan/hide_sums.h"
#include "engine/plan/hoist_copies.h"
#include "engine/plan/keep_copies.h"
#include "engine/plan/schedule.h"
#include "pipeline.h"
#include "profile.h"
#include "reduce.h"
#include "units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void sum_up(struct jm_program *p)
{
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];
		double executed = 0, times = jm_program_times(p, i);

		for (int k = 0; k < u->group.n_nodes; k++) {
			p->flops_model += times * jm_node_model_share(p->graph, u->group.node[k]) *
					  u->group.node[k]->flops_model;
			executed += u->group.node[k]->flops_executed;
		}
		p->bytes += times * jm_group_bytes(&u->group);
		p->flops_executed +=
			times *
			(u->choice.flops_executed > 0 ? u->choice.flops_executed : executed);
	}
}

/* Declares the weights as in this first program. */
static int declare_weights(struct jm_program *p, struct jm_err *err)
{
	int code = 0;

	p->weights->bytes = p->weight_bytes;
	for (int i = 0; i < p->graph->n_cells && !code; i++) {
		const struct jm_cell *c = p->graph->cell[i];

		if (jm_weights_is_one(c->t.class) && !c->own_life && (c->first >= 0 || c->slab))
			code = jm_weights_add(p->weights, &c->t, c->offset, err);
	}
	return code;
}

/* Takes the layouts that the first program has chosen. */
static void take_layouts(struct jm_program *p)
{
	for (int i = 0; i < p->graph->n_cells; i++) {
		struct jm_tensor *t = &p->graph->cell[i]->t;
		const struct jm_weight *w =
			jm_weights_is_one(t->class) ? jm_weights_find(p->weights, t->name) : NULL;

		if (!w)
			continue;
		t->layout = w->t.layout;
		t->bytes = jm_layout_bytes(t, &t->layout);
	}
}

static int plan_stage(struct jm_program *p, struct jm_err *err)
{
	const struct jm_graph *g = p->graph;
	int slots[JM_CHUNKS_MOST], code;

	if (jm_graph_pp(g) < 2 || g->evaluate) /* forward only: in the order of the units */
		return 0;
	p->stage.pipe =
		(struct jm_pipe){jm_graph_pp(g), jm_graph_chunks(g), jm_program_micro_steps(p)};
	code = jm_pipe_turns(
		&p->stage.pipe, g->stage, &p->stage.turn, &p->stage.n_turns, slots, err);
	for (int i = 0; i < p->stage.pipe.chunks && !code; i++)
		p->stage.chunk[i].slots = slots[i];
	return code;
}

static int plan(struct jm_program *p, struct jm_err *err)
{
	int code = jm_graph_schedule(p->graph, err);

	if (!code)
		code = plan_stage(p, err);
	if (!p->is_first)
		take_layouts(p);
	if (!code)
		code = jm_program_apply_choices(p, err);
	if (!code)
		code = jm_program_keep_copies(p, err);
	if (!code)
		code = jm_program_hoist_copies(p, err);
	if (!code)
		code = jm_program_schedule(p, err);
	if (!code)
		code = jm_program_add_reduction(p, err);
	if (!code)
		code = jm_program_hide_sums(p, err);
	if (!code && p->is_first)
		code = declare_weights(p, err);
	if (!code && p->arena_bytes > p->weights->arena_bytes)
		p->weights->arena_bytes = p->arena_bytes;
	if (!code)
		sum_up(p);
	return code;
}

/* Takes over one use of the weights; NULL = out of memory. */
static int plan_with(struct jm_graph *g, struct jm_device *device, struct jm_weights *weights,
	struct jm_program **ret, struct jm_err *err)
{
	struct jm_program *p = calloc(1, sizeof(*p));
	int code;

	if (!p || !weights) {
		jm_weights_free(weights);
		free(p);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	}
	p->graph = g;
	p->device = device;
	p->weights = weights;
	p->is_first = !weights->n;
	p->copied = -1;
	code = plan(p, err);
	if (code)
		jm_program_free(p);
	else
		*ret = p;
	return code;
}

int jm_program_plan(
	struct jm_graph *g, struct jm_device *device, struct jm_program **ret, struct jm_err *err)
{
	return plan_with(g, device, jm_weights_new(device), ret, err);
}

int jm_program_plan_beside(struct jm_graph *g, const struct jm_program *other,
	struct jm_program **ret, struct jm_err *err)
{
	return plan_with(g, other->device, jm_weights_share(other->weights), ret, err);
}

size_t jm_program_peak_beside(const struct jm_program *p, const struct jm_program *other)
{
	size_t arena = p->arena_bytes > other->arena_bytes ? p->arena_bytes : other->arena_bytes;

	return p->persistent_bytes + (other->persistent_bytes - other->weight_bytes) + arena;
}

/* Allocates memory if any is needed and there is none yet. */
static bool take(const struct jm_device *d, size_t bytes, char **ret)
{
	if (bytes && !*ret)
		*ret = d->backend->alloc(d->dev, bytes);
	return *ret || !bytes;
}

static bool take_arena(struct jm_program *p)
{
	struct jm_weights *w = p->weights;

	if (!w->arena && take(p->device, w->arena_bytes, &w->arena))
		w->arena_allocated = w->arena ? w->arena_bytes : 0;
	p->has_arena = p->arena_bytes > w->arena_allocated;
	if (p->has_arena)
		return take(p->device, p->arena_bytes, &p->arena);
	p->arena = w->arena;
	return true;
}

static int allocate(struct jm_program *p, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	size_t have = d->props.memory_bytes;
	bool fits = !have || p->peak_bytes <= have;
	char lacks[48] = "cannot allocate that much now";

	if (fits && take(d, p->weights->bytes, &p->weights->memory) &&
		take(d, p->persistent_bytes - p->weight_bytes, &p->memory) && take_arena(p))
		return 0;
	if (fits && d->backend->sync(d->dev, err)) /* the device has failed */
		return err->code;
	if (!fits)
		snprintf(lacks, sizeof(lacks), "has %.*f GB", JM_GB(have));
	return jm_room_refuse(jm_device_room(d), (double)p->peak_bytes, err,
		"The program needs %.*f GB (%.*f GB kept between steps, %.*f GB of activations and "
		"scratch), but device %s %s; use a smaller batch, sequence or model.",
		JM_GB(p->peak_bytes), JM_GB(p->persistent_bytes), JM_GB(p->arena_bytes),
		d->backend->name, lacks);
}

/* The address of a cell from its offset. */
static void *address(const struct jm_program *p, size_t offset)
{
	if (offset < p->weight_bytes)
		return p->weights->memory + offset;
	if (offset < p->persistent_bytes)
		return p->memory + (offset - p->weight_bytes);
	return p->arena + (offset - p->persistent_bytes);
}

int jm_program_build(struct jm_program *p, struct jm_err *err)
{
	int code = allocate(p, err);

	for (int i = 0; i < p->graph->n_cells && !code; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (c->first >= 0 || c->slab)
			c->t.data = address(p, c->offset);
	}
	p->gradients[0] = jm_graph_find(p->graph, "slab.gradients");
	p->gradients[1] = jm_graph_find(p->graph, "slab.gradients.vectors");
	if (!code)
		code = jm_units_stretches(p, err);
	for (int i = 0; i < p->n_units; i++) {
		struct jm_unit *u = p->unit[i];

		u->group.scratch = u->scratch ? u->scratch->data : NULL;
		u->group.saved = u->saved ? u->saved->data : NULL;
	}
	if (!code && p->stage.pipe.stages)
		return jm_pipeline_build(p, err);
	return code ? code : jm_units_build(p, NULL, 0, p->n_units, err);
}

static int run_span(struct jm_program *p, enum jm_span span, struct jm_err *err)
{
	int to, from = jm_units_span(p, span, &to);

	return jm_units_run(p, from, to, err);
}

/* Makes the kept copies if parameters were written since. */
static int refresh(struct jm_program *p, struct jm_err *err)
{
	int code = 0;

	if (p->n_kept && p->copied != p->weights->written)
		code = run_span(p, JM_SPAN_KEPT, err);
	if (!code)
		p->copied = p->weights->written;
	return code;
}

/* Gradients that micro-steps add to; or what lies between those that a step writes, where other
 * programs write too. */
static int clear_gradients(const struct jm_program *p, struct jm_err *err)
{
	int code = 0;

	for (int i = 0; i < 2 && !code && jm_program_micro_steps(p) > 1; i++) {
		const struct jm_tensor *slab = p->gradients[i];

		if (slab)
			code = jm_device_fill(
				p->device, JM_QUEUE_COMPUTE, slab->data, 0, slab->bytes, err);
	}
	for (int i = 0; i < p->n_gaps && !code; i++)
		code = jm_device_fill(p->device, JM_QUEUE_COMPUTE,
			(char *)p->gap[i].slab->data + p->gap[i].from, 0, p->gap[i].bytes, err);
	return code;
}

int jm_program_begin(struct jm_program *p, struct jm_err *err)
{
	int code;

	jm_profile_begin(p);
	code = refresh(p, err);
	p->micro_now = 0;
	if (!code)
		code = clear_gradients(p, err);
	return code ? code : run_span(p, JM_SPAN_ONCE, err);
}

int jm_program_micro(struct jm_program *p, struct jm_err *err)
{
	p->micro_now++;
	return run_span(p, JM_SPAN_MICRO, err);
}

int jm_program_update(struct jm_program *p, struct jm_err *err)
{
	if (!p->n_kept) /* another program of these weights may keep copies */
		p->weights->written++;
	return run_span(p, JM_SPAN_UPDATE, err);
}

int jm_program_run(struct jm_program *p, struct jm_err *err)
{
	int code = jm_program_begin(p, err);

	if (!code)
		code = jm_program_micro(p, err);
	if (!code)
		code = jm_program_update(p, err);
	return code ? code : jm_device_sync(p->device, err);
}

void jm_program_free(struct jm_program *p)
{
	if (!p)
		return;
	jm_reduce_close(p);
	jm_pipeline_free(p);
	free(p->stage.turn);
	for (int i = 0; i < p->n_stretches; i++)
		p->device->backend->drop(p->device->dev, p->stretch[i].captured);
	free(p->stretch);
	for (int i = 0; i < p->n_units; i++) {
		p->device->backend->drop(p->device->dev, p->unit[i]->exec);
		free(p->unit[i]);
	}
	p->device->backend->release(p->device->dev, p->memory);
	if (p->has_arena)
		p->device->backend->release(p->device->dev, p->arena);
	jm_weights_free(p->weights);
	jm_profile_free(p->profile);
	free(p->unit);
	free(p);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void *room_for(const struct jm_tensor *t, struct jm_err *err)
{
	void *room = calloc(1, t->bytes);

	if (!room)
		jm_err_set(err, JM_ENOMEM, "Out of memory for the values of %s.", t->name);
	return room;
}

static int copy(struct jm_program *p, void *to, const void *from, size_t bytes, enum jm_copy kind,
	struct jm_err *err)
{
	int code = jm_device_copy(p->device, JM_QUEUE_COMPUTE, to, from, bytes, kind, err);

	return code ? code : jm_device_sync(p->device, err);
}

int jm_program_write(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err)
{
	void *room = t->layout.rank ? room_for(t, err) : NULL;
	int code;

	if (t->layout.rank && !room)
		return JM_ENOMEM;
	p->weights->written += t->class == JM_CLASS_PARAM;
	if (room)
		jm_tensor_reorder(t, room, from, true);
	code = copy(p, t->data, room ? room : from, t->bytes, JM_TO_DEVICE, err);
	free(room);
	return code;
}

int jm_program_read(struct jm_program *p, const struct jm_tensor *t, void *to, struct jm_err *err)
{
	void *room = t->layout.rank ? room_for(t, err) : NULL;
	int code;

	if (t->layout.rank && !room)
		return JM_ENOMEM;
	code = copy(p, room ? room : to, t->data, t->bytes, JM_TO_HOST, err);
	if (room && !code)
		jm_tensor_reorder(t, to, room, false);
	free(room);
	return code;
}
