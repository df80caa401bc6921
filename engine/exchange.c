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
#include <string.h>

#include "backend_share.h"

#define MEETING 16 /* bytes of a rank */

/* Where a rank has tensors of a segment: bytes from the beginning of its weights. */
struct places {
	size_t grads, whole;
};

struct jm_exchange {
	struct jm_program *p;
	const struct jm_comm *comm;
	void *mapped;	      /* the weights of the other rank */
	struct places *other; /* [segments] */
	char *meeting;	      /* [ranks][MEETING], in memory of the device */
};

static const struct jm_backend_share *share_of(const struct jm_program *p)
{
	return p->device->backend->share;
}

static size_t place_of(const struct jm_program *p, const struct jm_tensor *t)
{
	return (size_t)((const char *)t->data - p->weights->memory);
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
	struct places *own = calloc(3 * n, sizeof(*own)), *all = own + n;
	int code;

	x->other = calloc(n, sizeof(*x->other));
	if (!own || !x->other) {
		free(own);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for sums over ranks.");
	}
	for (size_t i = 0; i < n; i++) {
		own[i].grads = place_of(x->p, s->segment[i].grads);
		own[i].whole = place_of(x->p, s->segment[i].whole);
	}
	code = gather(control, own, all, n * sizeof(*own), err);
	if (!code)
		memcpy(x->other, all + (control->rank ? 0 : n), n * sizeof(*own));
	free(own);
	return code;
}

/* *ret_mapped: the weights of the other rank can be read. */
static int map_other(
	struct jm_exchange *x, const struct jm_comm *control, bool *ret_mapped, struct jm_err *err)
{
	const struct jm_backend_share *share = share_of(x->p);
	struct jm_shared own = {{0}}, all[2];
	void *dev = x->p->device->dev;
	struct jm_err why = JM_ERR_INIT;
	bool offered = !share->offer(dev, x->p->weights->memory, &own, &why);
	int code = gather(control, &own, all, sizeof(own), err);

	*ret_mapped = !code && offered && !share->map(dev, &all[!control->rank], &x->mapped, &why);
	return code;
}

static int meet_other(struct jm_exchange *x, const struct jm_comm *control, bool *ret_possible,
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
	code = meet_other(x, control, &possible, err);
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
	if (x->mapped)
		share_of(x->p)->unmap(x->p->device->dev, x->mapped);
	x->p->device->backend->release(x->p->device->dev, x->meeting);
	free(x->other);
	free(x);
}

/* ---- transfers, on the third queue -------------------------------------------------------------------------- */

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
		code = copy(x, s->own_grads->data,
			(const char *)x->mapped + x->other[segment].grads + offset, bytes, err);
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
	return copy(x, (char *)s->whole->data + offset,
		(const char *)x->mapped + x->other[segment].whole + offset, bytes, err);
}
