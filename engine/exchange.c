/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transfers of a sharded update between two ranks whose devices can read each other's memory: each rank copies
 * from the other one's slabs what it lacks, by the copy engines, and adds it where a sum is wanted. Kernels of a
 * transport would occupy multiprocessors for as long as the transfer takes.
 *
 * A rank reads after both have met, which is a transfer of a few bytes on the third queue by the transport: what is
 * read was queued before that. It may be overwritten after the next meeting, and the slabs are written again only after
 * the norms of the shares were gathered, which all ranks start after they have read the gradients.
 */
#include "reduce.h"

#include <stdlib.h>

#include "backend_share.h"

#define ALLOCATIONS 3  /* of a program: its weights, its own memory, its arena */
#define MEETING	    16 /* bytes of a rank */

/* Where the other rank has a tensor. */
struct place {
	int allocation;
	size_t offset;
};

/* Of a segment. */
struct places {
	struct place grads, whole;
};

struct jm_exchange {
	struct jm_program *p;
	const struct jm_comm *comm;
	void *mapped[ALLOCATIONS];
	struct places *other; /* [segments] */
	char *meeting;	      /* [ranks][MEETING], in memory of the device */
};

static const struct jm_backend_share *share_of(const struct jm_program *p)
{
	return p->device->backend->share;
}

static void allocations_of(const struct jm_program *p, void *ret[ALLOCATIONS])
{
	ret[0] = p->weights->memory;
	ret[1] = p->memory;
	ret[2] = p->arena;
}

/* The allocation that begins closest before the tensor. */
static struct place place_of(const struct jm_program *p, const struct jm_tensor *t)
{
	void *begin[ALLOCATIONS];
	struct place best = {.offset = SIZE_MAX};

	allocations_of(p, begin);
	for (int i = 0; i < ALLOCATIONS; i++) {
		uintptr_t distance = (uintptr_t)t->data - (uintptr_t)begin[i];

		if (begin[i] && (uintptr_t)begin[i] <= (uintptr_t)t->data && distance < best.offset)
			best = (struct place){i, distance};
	}
	return best;
}

static int gather(
	const struct jm_comm *control, const void *from, void *to, size_t bytes, struct jm_err *err)
{
	struct jm_transfer t = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = from,
		.to = to,
		.count = bytes};

	return jm_comm_run(control, &t, err);
}

/* ---- opening: every rank comes to the same result ---------------------------------------------------------- */

static int tell_places(struct jm_exchange *x, const struct jm_comm *control, struct jm_err *err)
{
	const struct jm_shard *s = x->p->graph->shard;
	size_t n = (size_t)s->n;
	struct places *all = calloc(3 * n, sizeof(*all)), *own = all;
	int code;

	x->other = calloc(n, sizeof(*x->other));
	if (!all || !x->other) {
		free(all);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for sums over ranks.");
	}
	for (size_t i = 0; i < n; i++) {
		own[i].grads = place_of(x->p, s->segment[i].grads);
		own[i].whole = place_of(x->p, s->segment[i].whole);
	}
	code = gather(control, own, all + n, n * sizeof(*own), err);
	for (size_t i = 0; i < n && !code; i++)
		x->other[i] = all[n + (size_t)!control->rank * n + i];
	free(all);
	return code;
}

/* *ret_mapped: the memory of the other rank can be read. */
static int map_other(
	struct jm_exchange *x, const struct jm_comm *control, bool *ret_mapped, struct jm_err *err)
{
	struct jm_shared own[ALLOCATIONS] = {0}, all[2 * ALLOCATIONS];
	void *dev = x->p->device->dev, *begin[ALLOCATIONS];
	struct jm_err why = JM_ERR_INIT;
	int code = 0;

	allocations_of(x->p, begin);
	for (int i = 0; i < ALLOCATIONS && !code; i++)
		if (begin[i])
			code = share_of(x->p)->offer(dev, begin[i], &own[i], &why);
	*ret_mapped = !code;
	code = gather(control, own, all, sizeof(own), err);
	for (int i = 0; i < ALLOCATIONS && !code && *ret_mapped; i++)
		if (begin[i])
			*ret_mapped = !share_of(x->p)->map(
				dev, &all[!control->rank * ALLOCATIONS + i], &x->mapped[i], &why);
	return code;
}

static int open(struct jm_exchange *x, const struct jm_comm *control, bool *ret_possible,
	struct jm_err *err)
{
	bool mapped;
	double without = 0;
	int code = map_other(x, control, &mapped, err);

	if (!code)
		code = tell_places(x, control, err);
	x->meeting = x->p->device->backend->alloc(x->p->device->dev, 2 * (size_t)MEETING);
	without = !mapped || !x->meeting;
	if (!code)
		code = jm_comm_sum(control, &without, 1, err);
	*ret_possible = without == 0;
	return code;
}

/* True on all ranks or on none. */
static bool may(
	const struct jm_program *p, const struct jm_comm *comm, const struct jm_comm *control)
{
	return control && p->graph->shard && p->graph->vector == JM_F32 && comm->world == 2 &&
	       !comm->transport->host_memory && share_of(p);
}

int jm_exchange_open(struct jm_program *p, const struct jm_comm *comm,
	const struct jm_comm *control, struct jm_exchange **ret, struct jm_err *err)
{
	struct jm_exchange *x;
	bool possible = false;
	int code;

	*ret = NULL;
	if (!may(p, comm, control))
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for sums over ranks.");
	x->p = p;
	x->comm = comm;
	code = open(x, control, &possible, err);
	if (code || !possible)
		jm_exchange_close(x);
	else
		*ret = x;
	return code;
}

void jm_exchange_close(struct jm_exchange *x)
{
	if (!x)
		return;
	for (int i = 0; i < ALLOCATIONS; i++)
		if (x->mapped[i])
			share_of(x->p)->unmap(x->p->device->dev, x->mapped[i]);
	x->p->device->backend->release(x->p->device->dev, x->meeting);
	free(x->other);
	free(x);
}

/* ---- transfers, on the third queue -------------------------------------------------------------------------- */

static const char *at(const struct jm_exchange *x, struct place place)
{
	return (const char *)x->mapped[place.allocation] + place.offset;
}

static int meet(const struct jm_exchange *x, void *stream, struct jm_err *err)
{
	const struct jm_transfer t = {.kind = JM_ALL_GATHER,
		.type = JM_COMM_BYTE,
		.from = x->meeting + x->comm->rank * MEETING,
		.to = x->meeting,
		.count = MEETING,
		.stream = stream};

	return x->comm->transport->start(x->comm->state, &t, err);
}

static int copy(
	const struct jm_exchange *x, void *to, const void *from, size_t bytes, struct jm_err *err)
{
	return jm_device_copy(x->p->device, JM_QUEUE_COMM, to, from, bytes, JM_ON_DEVICE, err);
}

int jm_exchange_sum(const struct jm_exchange *x, int segment, void *stream, struct jm_err *err)
{
	const struct jm_segment *s = &x->p->graph->shard->segment[segment];
	size_t bytes = s->own_grads->bytes, offset = (size_t)x->comm->rank * bytes;
	int code = meet(x, stream, err);

	if (!code)
		code = copy(
			x, s->own_grads->data, at(x, x->other[segment].grads) + offset, bytes, err);
	if (!code)
		code = share_of(x->p)->add(x->p->device->dev, JM_QUEUE_COMM, s->own_grads->data,
			(const char *)s->grads->data + offset, bytes / sizeof(float), err);
	return code;
}

int jm_exchange_gather(const struct jm_exchange *x, int segment, void *stream, struct jm_err *err)
{
	const struct jm_segment *s = &x->p->graph->shard->segment[segment];
	size_t bytes = s->updated->bytes, offset = (size_t)!x->comm->rank * bytes;
	int code = meet(x, stream, err);

	if (code)
		return code;
	return copy(x, (char *)s->whole->data + offset, at(x, x->other[segment].whole) + offset,
		bytes, err);
}
