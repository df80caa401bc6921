/* SPDX-License-Identifier: Apache-2.0 */
/* A program: planned, built, run. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "tensor.h"

static void sum_up(struct jm_program *p)
{
	for (int i = 0; i < p->n_units; i++) {
		const struct jm_unit *u = p->unit[i];
		double executed = 0, times = jm_program_times(p, i);

		for (int k = 0; k < u->group.n_nodes; k++) {
			p->flops_model += times * u->group.node[k]->flops_model;
			executed += u->group.node[k]->flops_executed;
			p->bytes += times * u->group.node[k]->bytes;
		}
		p->flops_executed +=
			times *
			(u->choice.flops_executed > 0 ? u->choice.flops_executed : executed);
	}
}

int jm_program_plan(
	struct jm_graph *g, struct jm_device *device, struct jm_program **ret, struct jm_err *err)
{
	struct jm_program *p = calloc(1, sizeof(*p));
	int code;

	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	p->graph = g;
	p->device = device;
	code = jm_graph_schedule(g, err);
	if (!code)
		code = jm_program_apply_choices(p, err);
	if (!code)
		code = jm_program_hoist_copies(p, err);
	if (!code)
		code = jm_program_schedule(p, err);
	if (code) {
		jm_program_free(p);
		return code;
	}
	sum_up(p);
	*ret = p;
	return 0;
}

static int allocate(struct jm_program *p, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	size_t have = d->props.memory_bytes;
	char lacks[48] = "cannot give as much now";

	if (!have || p->peak_bytes <= have)
		p->memory = d->backend->alloc(d->dev, p->peak_bytes);
	if (p->memory)
		return 0;
	if (have && p->peak_bytes > have)
		snprintf(lacks, sizeof(lacks), "has %.2f GB", (double)have / 1e9);
	return jm_err_set(err, JM_ENOMEM,
		"The program needs %.2f GB (%.2f GB stay, %.2f GB of activations and scratch) and "
		"device "
		"%s %s; take a smaller batch, sequence or model.",
		(double)p->peak_bytes / 1e9, (double)p->persistent_bytes / 1e9,
		(double)p->arena_bytes / 1e9, d->backend->name, lacks);
}

/* Its first unit; ret_to: the one behind its last. */
static int find_span(const struct jm_program *p, enum jm_span span, int *ret_to)
{
	const int end[] = {0, p->n_once, p->n_micro, p->n_units};

	*ret_to = end[span + 1];
	return end[span];
}

static int capture(struct jm_program *p, enum jm_span span, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	int to, code, from = find_span(p, span, &to);
	void **exec;

	if (!d->backend->capture || from == to)
		return 0;
	exec = calloc((size_t)(to - from), sizeof(*exec));
	if (!exec)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a program.");
	for (int i = from; i < to; i++)
		exec[i - from] = p->unit[i]->exec;
	code = d->backend->capture(d->dev, exec, to - from, &p->captured[span], err);
	free(exec);
	return code;
}

int jm_program_build(struct jm_program *p, struct jm_err *err)
{
	int code = allocate(p, err);

	for (int i = 0; i < p->graph->n_cells && !code; i++) {
		struct jm_cell *c = p->graph->cell[i];

		if (c->first >= 0 || c->slab)
			c->t.data = p->memory + c->offset;
	}
	for (int i = 0; i < p->n_units && !code; i++) {
		struct jm_unit *u = p->unit[i];

		u->group.scratch = u->scratch ? u->scratch->data : NULL;
		u->group.saved = u->saved ? u->saved->data : NULL;
		code = p->device->backend->build(
			p->device->dev, &u->group, &u->choice, &u->exec, err);
	}
	for (enum jm_span span = 0; span < JM_SPAN_COUNT && !code; span++)
		code = capture(p, span, err);
	return code;
}

static int run_span(struct jm_program *p, enum jm_span span, struct jm_err *err)
{
	const struct jm_device *d = p->device;
	int to, code = 0, from = find_span(p, span, &to);

	if (p->profile)
		return jm_profile_run(p, from, to, err);
	if (p->captured[span])
		return jm_device_run(d, p->captured[span], err);
	for (int i = from; i < to && !code; i++)
		code = jm_device_run(d, p->unit[i]->exec, err);
	return code;
}

int jm_program_begin(struct jm_program *p, struct jm_err *err)
{
	const struct jm_tensor *slab = jm_graph_find(p->graph, "slab.gradients");
	int code = 0;

	if (slab && jm_program_micro_steps(p) > 1)
		code = jm_device_fill(p->device, JM_QUEUE_COMPUTE, slab->data, 0, slab->bytes, err);
	return code ? code : run_span(p, JM_SPAN_ONCE, err);
}

int jm_program_micro(struct jm_program *p, struct jm_err *err)
{
	return run_span(p, JM_SPAN_MICRO, err);
}

int jm_program_update(struct jm_program *p, struct jm_err *err)
{
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
	for (int i = 0; i < JM_SPAN_COUNT; i++)
		p->device->backend->drop(p->device->dev, p->captured[i]);
	for (int i = 0; i < p->n_units; i++) {
		p->device->backend->drop(p->device->dev, p->unit[i]->exec);
		free(p->unit[i]);
	}
	p->device->backend->release(p->device->dev, p->memory);
	jm_profile_free(p->profile);
	free(p->unit);
	free(p);
}

/* ---- reading and writing -------------------------------------------------------------------------------- */

/* The next index, row-major. */
static void step_index(const struct jm_tensor *t, int64_t *index)
{
	for (int i = t->rank - 1; i >= 0; i--) {
		if (++index[i] < t->dim[i])
			return;
		index[i] = 0;
	}
}

/* All elements from plain memory to the tensor's layout, or back. */
static void reorder(const struct jm_tensor *t, void *to, const void *from, bool to_layout)
{
	int64_t index[JM_DIMS] = {0}, n = jm_tensor_count(t);
	size_t each = jm_dtype_bytes(t->type);

	for (int64_t i = 0; i < n; i++, step_index(t, index)) {
		size_t plain = (size_t)i * each;
		size_t there = (size_t)jm_layout_offset(t, &t->layout, index) * each;

		memcpy((char *)to + (to_layout ? there : plain),
			(const char *)from + (to_layout ? plain : there), each);
	}
}

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
	if (room)
		reorder(t, room, from, true);
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
		reorder(t, to, room, false);
	free(room);
	return code;
}
