/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <math.h>
#include <stdlib.h>

#include "engine/graph/rng.h"

const char *const jm_exchange_buffer_words[] = {"plain", "registered", "copy-engines", NULL};

#define PIECE	  ((size_t)1 << 20) /* values of a rank repeat after so many */
#define LOOKED_AT ((size_t)1 << 16) /* results are compared at both ends, so many each */

/* How many parts of n elements a rank sends and receives: 1, or one for each rank; and what a link
 * has to move for each byte of the larger array, in (W - 1)/W or, without `of_others`, in 1. */
static const struct shape {
	bool from_all, to_all;
	double moves;
	bool of_others;
} shapes[] = {
	[JM_ALL_REDUCE] = {false, false, 2, true},
	[JM_ALL_GATHER] = {false, true, 1, true},
	[JM_REDUCE_SCATTER] = {true, false, 1, true},
	[JM_BROADCAST] = {false, false, 1, false},
	[JM_ALL_TO_ALL] = {true, true, 1, true},
	[JM_SEND_RECEIVE] = {false, false, 1, false},
};

/* ---- values: whole sixty-fourths below 8, so that sums over ranks are exact ------------------ */

static float value(const struct jm_exchange *s, int rank, size_t i)
{
	uint64_t bits = jm_rng(jm_rng(s->work->seed, (uint64_t)rank), i % PIECE);

	return (float)((int)(bits & 1023) - 512) / 64;
}

static float expected(const struct jm_exchange *s, size_t i)
{
	float sum = 0;

	int world = s->work->world, rank = s->work->rank;

	if (s->kind == JM_ALL_GATHER)
		return value(s, (int)(i / s->n), i % s->n);
	if (s->kind == JM_ALL_TO_ALL)
		return value(s, (int)(i / s->n), (size_t)rank * s->n + i % s->n);
	if (s->kind == JM_BROADCAST)
		return value(s, 0, i);
	if (s->kind == JM_SEND_RECEIVE)
		return value(s, (rank + world - 1) % world, i);
	if (s->kind == JM_REDUCE_SCATTER)
		i += (size_t)rank * s->n;
	for (int r = 0; r < world; r++)
		sum += value(s, r, i);
	return sum;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int take_windows(struct jm_exchange *s, struct jm_err *err)
{
	const struct jm_comm *comm = jm_gang_comm(&s->gang);
	void *from = NULL, *to = NULL;
	int code = comm->transport->window(comm->state, s->n_from * sizeof(float), &from, err);

	if (!code)
		code = comm->transport->window(comm->state, s->n_to * sizeof(float), &to, err);
	s->from = from;
	s->to = to;
	return code;
}

static int take_memory(struct jm_exchange *s, struct jm_err *err)
{
	const struct jm_device *d = s->device;

	if (s->windows)
		return take_windows(s, err);

	s->from = d->backend->alloc(d->dev, s->n_from * sizeof(float));
	s->to = d->backend->alloc(d->dev, s->n_to * sizeof(float));
	if (s->from && s->to)
		return 0;
	return jm_err_set(err, JM_ENOMEM,
		"%.3g GB per rank and the buffers of the transfer do not fit on %.70s; give a "
		"smaller --size.",
		(double)s->bytes / 1e9, d->props.name);
}

static int fill(struct jm_exchange *s, struct jm_err *err)
{
	size_t most = s->n_from < PIECE ? s->n_from : PIECE;
	const struct jm_device *d = s->device;
	float *piece = jm_device_pinned_alloc(d, most * sizeof(float));
	int code = 0;

	if (!piece)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for values.");
	for (size_t i = 0; i < most; i++)
		piece[i] = value(s, s->work->rank, i);
	for (size_t at = 0; at < s->n_from && !code; at += most)
		code = jm_device_copy(d, JM_QUEUE_COPY, s->from + at, piece,
			(s->n_from - at < most ? s->n_from - at : most) * sizeof(float),
			JM_TO_DEVICE, err);
	if (!code)
		code = jm_device_sync(d, err);
	jm_device_pinned_release(d, piece);
	return code;
}

int jm_exchange_open(struct jm_exchange *s, struct jm_work *work, struct jm_device *d,
	const struct jm_exchange_way *way, struct jm_err *err)
{
	const struct jm_gang_way gang = {.transport = way->transport,
		.limits = {.min_ctas = way->min_ctas,
			.max_ctas = way->max_ctas,
			.copy_engines = way->buffers == JM_COPY_ENGINES}};
	int code;

	if (jm_work_world(work) < 2)
		return jm_err_set(err, JM_EUSAGE,
			"A transfer needs at least two ranks; give --ranks 2 or more.");
	s->work = work;
	s->device = d;
	if (way->max_ctas && way->min_ctas > way->max_ctas)
		return jm_err_set(err, JM_EUSAGE, "--min-ctas %d is above --max-ctas %d.",
			way->min_ctas, way->max_ctas);
	code = jm_gang_open(&s->gang, work, d, &gang, err);
	s->windows = way->buffers != JM_PLAIN;
	if (code || !s->windows || jm_gang_comm(&s->gang)->transport->windows)
		return code;
	return jm_err_set(err, JM_ENOSUP,
		"Transport %s registers no memory; omit --buffers, or use --transport nccl.",
		jm_gang_comm(&s->gang)->transport->name);
}

int jm_exchange_fill(
	struct jm_exchange *s, enum jm_transfer_kind kind, double size, struct jm_err *err)
{
	const struct shape *shape = &shapes[kind];
	size_t world = (size_t)jm_work_world(s->work);
	size_t parts = shape->from_all || shape->to_all ? world : 1;
	int code;

	s->kind = kind;
	s->n = (size_t)ceil(size * 1e9 / sizeof(float) / (double)parts);
	s->n_from = s->n * (shape->from_all ? world : 1);
	s->n_to = s->n * (shape->to_all ? world : 1);
	s->bytes = s->n * parts * sizeof(float);
	code = take_memory(s, err);
	return code ? code : fill(s, err);
}

static void release(const struct jm_exchange *s, void *memory)
{
	const struct jm_comm *comm = jm_gang_comm(&s->gang);

	if (!s->windows)
		s->device->backend->release(s->device->dev, memory);
	else if (memory)
		comm->transport->window_free(comm->state, memory);
}

bool jm_exchange_close(struct jm_exchange *s)
{
	const struct jm_device *d = s->device;

	if (!d)
		return true;
	if (!jm_gang_leave(&s->gang))
		return false;
	jm_device_sync(d, NULL);
	release(s, s->from);
	release(s, s->to);
	jm_gang_close(&s->gang);
	return true;
}

/* ---- transfers ------------------------------------------------------------------------------- */

int jm_exchange_start(struct jm_exchange *s, int times, void *stream, struct jm_err *err)
{
	const struct jm_comm *comm = jm_gang_comm(&s->gang);
	const struct jm_transfer t = {.kind = s->kind,
		.type = JM_COMM_F32,
		.from = s->from,
		.to = s->to,
		.count = s->n,
		.to_rank = (s->work->rank + 1) % s->work->world,
		.from_rank = (s->work->rank + s->work->world - 1) % s->work->world,
		.stream = stream};
	int code = 0;

	for (int i = 0; i < times && !code; i++)
		code = comm->transport->start(comm->state, &t, err);
	if (!code && comm->transport->wait)
		code = comm->transport->wait(comm->state, err);
	return code;
}

double jm_exchange_bus_factor(const struct jm_exchange *s)
{
	double world = s->work->world;
	const struct shape *shape = &shapes[s->kind];

	return shape->moves * (shape->of_others ? (world - 1) / world : 1);
}

/* Elements `at` to at + n of the result. */
static int compare(
	const struct jm_exchange *s, float *room, size_t at, size_t n, struct jm_err *err)
{
	const struct jm_device *d = s->device;
	int code = jm_device_copy(
		d, JM_QUEUE_COPY, room, s->to + at, n * sizeof(float), JM_TO_HOST, err);

	if (!code)
		code = jm_device_sync(d, err);
	for (size_t i = 0; i < n && !code; i++)
		if (room[i] != expected(s, at + i)) /* exact */
			code = jm_err_set(err, JM_ERANGE,
				"Element %zu that rank %d received is %g, but it should be %g; the "
				"link or the library is faulty.",
				at + i, s->work->rank, (double)room[i],
				(double)expected(s, at + i));
	return code;
}

int jm_exchange_verify(const struct jm_exchange *s, struct jm_err *err)
{
	size_t all = s->n_to, n = all < LOOKED_AT ? all : LOOKED_AT;
	float *room = jm_device_pinned_alloc(s->device, n * sizeof(float));
	int code;

	if (!room)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for results.");
	code = compare(s, room, 0, n, err);
	if (!code)
		code = compare(s, room, all - n, n, err);
	jm_device_pinned_release(s->device, room);
	return code ? code : jm_gang_meet(&s->gang, s->device, err);
}
