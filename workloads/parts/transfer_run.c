/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of f32 between the devices of ranks. As nccl-tests (NVIDIA, doc/PERFORMANCE.md) count:
 * the size is that of the larger of the arrays that a rank sends and receives, and the bus
 * bandwidth is size / time times what a ring has to move for each byte (`shapes`), so that it can
 * be compared with the speed of the links.
 */
#include "transfer_run.h"
#include "engine/device/backend_find.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/graph/rng.h"
#include "gang.h"
#include "work_device.h"

#define TRANSFERS 16		    /* per step */
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

struct transfer {
	struct jm_work *work;
	struct jm_device device;
	struct jm_gang gang;
	enum jm_transfer_kind kind;
	const char *transport;
	double size;	     /* GB of the larger array, as it was asked for */
	size_t n;	     /* elements of a part */
	size_t n_from, n_to; /* of the arrays */
	size_t bytes;	     /* of the larger one */
	float *from, *to;    /* of the device */
	struct jm_event began, done;
	double seconds; /* of the steps so far, on the device */
	long steps;
};

const struct jm_option jm_transfer_options[] = {
	{.name = "size",
		JM_BIND(JM_REAL, struct transfer, size),
		.min = 1e-9,
		.max = 1e6,
		.fallback = "0.25",
		.help = "GB of the array that each rank sends or receives, whichever is larger"},
	{.name = "ranks",
		.type = JM_INT,
		.min = 2,
		.max = JM_RANKS_MOST,
		.help = "processes that take part, 2 or more; --device names one device for all, "
			"or "
			"one for each"},
	JM_GANG_TRANSPORT(struct transfer, transport, "", "nccl"),
	{0},
};

int jm_transfer_check(const char *device, const char *precision, struct jm_err *err)
{
	(void)precision;
	return jm_device_check(device, err);
}

/* ---- values: whole sixty-fourths below 8, so that sums over ranks are exact ------------------ */

static float value(const struct transfer *s, int rank, size_t i)
{
	uint64_t bits = jm_rng(jm_rng(s->work->seed, (uint64_t)rank), i % PIECE);

	return (float)((int)(bits & 1023) - 512) / 64;
}

static float expected(const struct transfer *s, size_t i)
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

/* ---- setup ----------------------------------------------------------------------------------- */

void jm_transfer_teardown(void *state)
{
	struct transfer *s = state;
	const struct jm_device *d;

	if (!s)
		return;
	d = &s->device;
	if (d->backend) {
		if (!jm_gang_leave(&s->gang))
			return;
		jm_device_sync(d, NULL);
		jm_event_drop(&s->began);
		jm_event_drop(&s->done);
		d->backend->release(d->dev, s->from);
		d->backend->release(d->dev, s->to);
	}
	jm_gang_close(&s->gang);
	jm_device_close(&s->device);
	free(s);
}

static int fill(struct transfer *s, struct jm_err *err)
{
	size_t most = s->n_from < PIECE ? s->n_from : PIECE;
	const struct jm_device *d = &s->device;
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

static int take_memory(struct transfer *s, struct jm_err *err)
{
	const struct jm_device *d = &s->device;
	int code;

	s->from = d->backend->alloc(d->dev, s->n_from * sizeof(float));
	s->to = d->backend->alloc(d->dev, s->n_to * sizeof(float));
	if (!s->from || !s->to)
		return jm_err_set(err, JM_ENOMEM,
			"%.3g GB per rank and the buffers of the transfer do not fit on %.70s; "
			"give a smaller --size.",
			(double)s->bytes / 1e9, d->props.name);
	code = jm_event_new(d, &s->began, err);
	return code ? code : jm_event_new(d, &s->done, err);
}

static int prepare(struct transfer *s, struct jm_err *err)
{
	struct jm_work *work = s->work;
	const struct shape *shape = &shapes[s->kind];
	size_t world = (size_t)jm_work_world(work);
	size_t parts = shape->from_all || shape->to_all ? world : 1;
	int code;

	if (jm_work_world(work) < 2)
		return jm_err_set(err, JM_EUSAGE,
			"A transfer needs at least two ranks; give --ranks 2 or more.");
	s->n = (size_t)ceil(s->size * 1e9 / sizeof(float) / (double)parts);
	s->n_from = s->n * (shape->from_all ? world : 1);
	s->n_to = s->n * (shape->to_all ? world : 1);
	s->bytes = s->n * parts * sizeof(float);
	code = jm_work_device_open(work, 1, &s->device, err);
	if (!code)
		code = jm_gang_open(&s->gang, work, &s->device,
			&(struct jm_gang_way){.transport = s->transport}, err);
	if (!code)
		code = take_memory(s, err);
	if (!code)
		code = fill(s, err);
	if (code)
		return code;
	work->n_devices = jm_gang_devices(work);
	snprintf(work->detail, sizeof(work->detail),
		"%d transfers of %.4g GB per step, by %s between %d ranks, on %.70s", TRANSFERS,
		(double)s->bytes / 1e9, jm_gang_comm(&s->gang)->transport->name, work->world,
		s->device.props.name);
	return 0;
}

int jm_transfer_setup(
	struct jm_work *work, enum jm_transfer_kind kind, void **ret_state, struct jm_err *err)
{
	struct transfer *s = calloc(1, sizeof(*s));

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a transfer.");
	JM_FILL(work->options, s);
	s->work = work;
	s->kind = kind;
	*ret_state = s;
	return prepare(s, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int transfer_all(struct transfer *s, void *stream, struct jm_err *err)
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

	for (int i = 0; i < TRANSFERS && !code; i++)
		code = comm->transport->start(comm->state, &t, err);
	if (!code && comm->transport->wait)
		code = comm->transport->wait(comm->state, err);
	return code;
}

static int run(struct transfer *s, double *ret_seconds, struct jm_err *err)
{
	const struct jm_device *d = &s->device;
	bool queued = d->backend->stream;
	enum jm_queue queue = queued ? JM_QUEUE_COMM : JM_QUEUE_COMPUTE;
	void *stream = NULL;
	int code = queued ? d->backend->stream(d->dev, queue, &stream, err) : 0;

	if (!code)
		code = jm_event_record(&s->began, queue, err);
	if (!code)
		code = transfer_all(s, stream, err);
	if (!code)
		code = jm_event_record(&s->done, queue, err);
	if (!code)
		code = jm_device_sync(d, err);
	return code ? code : jm_event_seconds(&s->began, &s->done, ret_seconds, err);
}

int jm_transfer_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct transfer *s = state;
	double bytes = TRANSFERS * (double)s->bytes, seconds = NAN;
	int code = run(s, &seconds, err);

	if (code)
		return code;
	if (s->steps++) /* the first one sets up connections */
		s->seconds += seconds;
	*ret = (struct jm_step){.items = bytes / 1e9,
		.flops_model = NAN,
		.flops_executed = NAN,
		.bytes = bytes,
		.loss = NAN};
	return 0;
}

int jm_transfer_agree(void *state, void *value_, size_t bytes, struct jm_err *err)
{
	struct transfer *s = state;

	return jm_comm_from_first(&s->gang.control, value_, bytes, err);
}

static void keep(struct transfer *s)
{
	double world = s->work->world, each = s->seconds / (double)(s->steps - 1) / TRANSFERS;
	const struct shape *shape = &shapes[s->kind];
	double factor = shape->moves * (shape->of_others ? (world - 1) / world : 1);

	if (!s->work->more || s->steps < 2)
		return;
	json_object_set_new(s->work->more, "transfer",
		json_pack("{s:s, s:f, s:f, s:f, s:f}", "transport",
			jm_gang_comm(&s->gang)->transport->name, "bytes", (double)s->bytes,
			"seconds", each, "bytes_per_s", (double)s->bytes / each, "bus_bytes_per_s",
			factor * (double)s->bytes / each));
}

/* Elements `at` to at + n of the result. */
static int compare(const struct transfer *s, float *room, size_t at, size_t n, struct jm_err *err)
{
	const struct jm_device *d = &s->device;
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

int jm_transfer_verify(void *state, struct jm_err *err)
{
	struct transfer *s = state;
	size_t all = s->n_to, n = all < LOOKED_AT ? all : LOOKED_AT;
	float *room = jm_device_pinned_alloc(&s->device, n * sizeof(float));
	int code = s->steps ? 0 : jm_err_set(err, JM_EUSAGE, "No step was run.");

	if (!room)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for results.");
	keep(s);
	if (!code)
		code = compare(s, room, 0, n, err);
	if (!code)
		code = compare(s, room, all - n, n, err);
	jm_device_pinned_release(&s->device, room);
	return code ? code : jm_gang_meet(&s->gang, &s->device, err);
}
