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

#include "exchange.h"
#include "work_device.h"

#define TRANSFERS 16 /* per step */

struct transfer {
	struct jm_work *work;
	struct jm_device device;
	struct jm_exchange exchange;
	struct jm_exchange_way way;
	double size; /* GB of the larger array, as it was asked for */
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
	JM_EXCHANGE_OPTIONS(struct transfer, way),
	{0},
};

int jm_transfer_check(const char *device, const char *precision, struct jm_err *err)
{
	(void)precision;
	return jm_device_check(device, err);
}

/* ---- setup ----------------------------------------------------------------------------------- */

void jm_transfer_teardown(void *state)
{
	struct transfer *s = state;

	if (!s || !jm_exchange_close(&s->exchange))
		return;
	jm_event_drop(&s->began);
	jm_event_drop(&s->done);
	jm_device_close(&s->device);
	free(s);
}

static int prepare(struct transfer *s, enum jm_transfer_kind kind, struct jm_err *err)
{
	struct jm_work *work = s->work;
	int code = jm_work_device_open(work, 1, &s->device, err);

	if (!code)
		code = jm_exchange_open(&s->exchange, work, &s->device, &s->way, err);
	if (!code)
		code = jm_exchange_fill(&s->exchange, kind, s->size, err);
	if (!code)
		code = jm_event_new(&s->device, &s->began, err);
	if (!code)
		code = jm_event_new(&s->device, &s->done, err);
	if (code)
		return code;
	work->n_devices = jm_gang_devices(work);
	snprintf(work->detail, sizeof(work->detail),
		"%d transfers of %.4g GB per step, by %s between %d ranks, on %.70s", TRANSFERS,
		(double)s->exchange.bytes / 1e9, jm_gang_comm(&s->exchange.gang)->transport->name,
		work->world, s->device.props.name);
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
	*ret_state = s;
	return prepare(s, kind, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

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
		code = jm_exchange_start(&s->exchange, TRANSFERS, stream, err);
	if (!code)
		code = jm_event_record(&s->done, queue, err);
	if (!code)
		code = jm_device_sync(d, err);
	return code ? code : jm_event_seconds(&s->began, &s->done, ret_seconds, err);
}

int jm_transfer_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct transfer *s = state;
	double bytes = TRANSFERS * (double)s->exchange.bytes, seconds = NAN;
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

	return jm_comm_from_first(&s->exchange.gang.control, value_, bytes, err);
}

static void keep(struct transfer *s)
{
	double each = s->seconds / (double)(s->steps - 1) / TRANSFERS;
	double bytes = (double)s->exchange.bytes;

	if (!s->work->more || s->steps < 2)
		return;
	json_object_set_new(s->work->more, "transfer",
		json_pack("{s:s, s:f, s:f, s:f, s:f}", "transport",
			jm_gang_comm(&s->exchange.gang)->transport->name, "bytes", bytes, "seconds",
			each, "bytes_per_s", bytes / each, "bus_bytes_per_s",
			jm_exchange_bus_factor(&s->exchange) * bytes / each));
}

int jm_transfer_verify(void *state, struct jm_err *err)
{
	struct transfer *s = state;

	if (!s->steps)
		return jm_err_set(err, JM_EUSAGE, "No step was run.");
	keep(s);
	return jm_exchange_verify(&s->exchange, err);
}
