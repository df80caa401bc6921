/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the host's memory and a device's, or within the device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rng.h"
#include "workloads/kernel_run.h"
#include "workloads/work_device.h"

#define COPIES 8 /* per step */

enum way { TO_DEVICE, TO_HOST, ON_DEVICE };
static const char *const ways[] = {"to-device", "to-host", "on-device", NULL};

struct copy {
	struct jm_kernel kernel; /* first: without a graph's nodes */
	enum way way;
	size_t bytes;
	char *host, *back; /* pinned: what is there, and what came back */
	void *memory[2];   /* of the device */
	struct jm_event done[2];
	int first, under_way;
};

static const struct jm_option options[] = {
	{.name = "way",
		.type = JM_CHOICE,
		.choices = ways,
		.fallback = "on-device",
		.help = "from the host's memory, to it, or within the device"},
	{.name = "size",
		.type = JM_REAL,
		.min = 1e-9,
		.max = 1e6,
		.fallback = "0.25",
		.help = "GB of a copy"},
	{0},
};

/* ---- setup ---------------------------------------------------------------------------------------------- */

static void copy_teardown(void *state)
{
	struct copy *s = state;
	const struct jm_device *d;

	if (!s)
		return;
	d = &s->kernel.device;
	if (d->backend) {
		jm_device_sync(d, NULL);
		jm_device_pinned_release(d, s->host);
		jm_device_pinned_release(d, s->back);
		for (int i = 0; i < 2; i++) {
			jm_event_drop(&s->done[i]);
			d->backend->release(d->dev, s->memory[i]);
		}
	}
	jm_kernel_teardown(s);
}

static int take_memory(struct copy *s, struct jm_err *err)
{
	const struct jm_device *d = &s->kernel.device;

	s->host = jm_device_pinned_alloc(d, s->bytes);
	s->back = jm_device_pinned_alloc(d, s->bytes);
	for (int i = 0; i < 2; i++)
		s->memory[i] = d->backend->alloc(d->dev, s->bytes);
	if (!s->host || !s->back || !s->memory[0] || !s->memory[1])
		return jm_err_set(err, JM_ENOMEM,
			"Two pieces of %.3g GB do not fit, on the host or on %.70s; take a smaller "
			"--size.",
			(double)s->bytes / 1e9, d->props.name);
	for (int i = 0; i < 2; i++) {
		int code = jm_event_new(d, &s->done[i], err);

		if (code)
			return code;
	}
	return 0;
}

/* Random bits on the host, and in the device's first piece. */
static int fill(struct copy *s, struct jm_err *err)
{
	const struct jm_device *d = &s->kernel.device;
	int code;

	for (size_t i = 0; i < s->bytes; i += sizeof(uint64_t)) {
		uint64_t bits = jm_rng(s->kernel.work->seed, i);

		memcpy(s->host + i, &bits, s->bytes - i < sizeof bits ? s->bytes - i : sizeof bits);
	}
	code = jm_device_copy(d, JM_QUEUE_COPY, s->memory[0], s->host, s->bytes, JM_TO_DEVICE, err);
	return code ? code : jm_device_sync(d, err);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct copy *s = state;
	const char *way = jm_values_text(work->options, "way");
	int code = jm_work_device_open(work, 0, &s->kernel.device, err);

	s->kernel.work = work;
	if (code)
		return code;
	while (strcmp(ways[s->way], way) != 0)
		s->way++;
	s->bytes = (size_t)llround(jm_values_number(work->options, "size") * 1e9);
	work->n_devices = 1;
	snprintf(work->detail, sizeof work->detail, "%d copies of %.3g GB per step, %s, on %.70s",
		COPIES, (double)s->bytes / 1e9, way, s->kernel.device.props.name);
	code = take_memory(s, err);
	return code ? code : fill(s, err);
}

static int copy_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(work, sizeof(struct copy), prepare, copy_teardown, ret_state, err);
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

static int queue_one(struct copy *s, struct jm_err *err)
{
	const struct jm_device *d = &s->kernel.device;

	switch (s->way) {
	case TO_DEVICE:
		return jm_device_copy(
			d, JM_QUEUE_COPY, s->memory[1], s->host, s->bytes, JM_TO_DEVICE, err);
	case TO_HOST:
		return jm_device_copy(
			d, JM_QUEUE_COPY, s->back, s->memory[0], s->bytes, JM_TO_HOST, err);
	default:
		return jm_device_copy(
			d, JM_QUEUE_COPY, s->memory[1], s->memory[0], s->bytes, JM_ON_DEVICE, err);
	}
}

static int copy_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct copy *s = state;
	double bytes = COPIES * (double)s->bytes;
	int code;

	if (!s->under_way)
		return 1;
	code = jm_event_wait(&s->done[s->first], err);
	if (code)
		return code;
	s->first = !s->first;
	s->under_way--;
	s->kernel.steps++;
	*ret = (struct jm_step){.items = bytes / 1e9,
		.flops_model = NAN,
		.flops_executed = NAN,
		.bytes = bytes * (s->way == ON_DEVICE ? 2 : 1), /* of the device's memory */
		.loss = NAN};
	return 0;
}

static int copy_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct copy *s = state;
	int slot = s->first ^ s->under_way, code = 0;

	for (int i = 0; i < COPIES && !code; i++)
		code = queue_one(s, err);
	if (!code)
		code = jm_event_record(&s->done[slot], JM_QUEUE_COPY, err);
	if (code)
		return code;
	return ++s->under_way == 2 ? copy_finish(s, ret, err) : 1;
}

/* What arrived is read back, and is what was sent. */
static int copy_verify(void *state, struct jm_err *err)
{
	struct copy *s = state;
	const struct jm_device *d = &s->kernel.device;
	int code = s->kernel.steps ? 0 : jm_err_set(err, JM_EUSAGE, "No step was run.");

	if (!code && s->way != TO_HOST)
		code = jm_device_copy(
			d, JM_QUEUE_COPY, s->back, s->memory[1], s->bytes, JM_TO_HOST, err);
	if (!code)
		code = jm_device_sync(d, err);
	if (!code && memcmp(s->back, s->host, s->bytes) != 0)
		code = jm_err_set(err, JM_ERANGE,
			"The copied data differs from its source: the device, its memory or the "
			"bus is faulty; do not trust its results.");
	return code;
}

static int copy_check(const char *device, const char *precision, struct jm_err *err)
{
	(void)precision;
	return jm_device_check(device, err);
}

const struct jm_workload jm_workload_copy = {
	.name = "copy",
	.summary = "copies between the host and a device, or within the device",
	.unit = "GB",
	.options = options,
	.no_precision = true,
	.check = copy_check,
	.setup = copy_setup,
	.step = copy_step,
	.finish = copy_finish,
	.verify = copy_verify,
	.teardown = copy_teardown,
};
