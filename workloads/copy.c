/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the host's memory and a device's, within the device, or between two devices. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/rng.h"
#include "workloads/parts/kernel_run.h"
#include "workloads/parts/work_device.h"
#include "engine/device/backend_find.h"

/* Per step: as many as copy 64 MB, within these limits. */
#define LEAST_COPIES 8
#define MOST_COPIES  64
#define STEP_BYTES   64e6

enum way { TO_DEVICE, TO_HOST, ON_DEVICE, TO_PEER, BOTH_PEERS };
static const char *const ways[] = {
	"to-device", "to-host", "on-device", "to-peer", "both-peers", NULL};

/* A device that takes part: it reads memory[0] and writes memory[1]. */
struct part {
	const struct jm_device *device;
	void *memory[2];
	struct jm_event done[2];
};

struct copy {
	struct jm_kernel kernel; /* first: without a graph's nodes */
	struct jm_device peer;	 /* zeroed = there is none */
	enum way way;
	double size; /* GB of a copy, as it was asked for */
	size_t bytes;
	int copies;	   /* per step and direction */
	char *host, *back; /* pinned: what is there, and what came back */
	struct part part[2];
	int n_parts;
	int first, under_way;
};

static const struct jm_option options[] = {
	{.name = "way",
		JM_BIND(JM_CHOICE, struct copy, way),
		.choices = ways,
		.fallback = "on-device",
		.help = "from the host's memory, to it, or within the device; from the first to "
			"the second of two GPUs that --device names, or in both directions at "
			"once"},
	{.name = "size",
		JM_BIND(JM_REAL, struct copy, size),
		.min = 1e-9,
		.max = 1e6,
		.fallback = "0.25",
		.help = "GB of a copy"},
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

static void release_part(struct part *p)
{
	const struct jm_device *d = p->device;

	for (int i = 0; i < 2; i++) {
		jm_event_drop(&p->done[i]);
		d->backend->release(d->dev, p->memory[i]);
	}
}

static void copy_teardown(void *state)
{
	struct copy *s = state;
	const struct jm_device *d;

	if (!s)
		return;
	d = &s->kernel.device;
	for (int i = 0; i < s->n_parts; i++)
		jm_device_sync(s->part[i].device, NULL);
	for (int i = 0; i < s->n_parts; i++)
		release_part(&s->part[i]);
	if (d->backend) {
		jm_device_pinned_release(d, s->host);
		jm_device_pinned_release(d, s->back);
	}
	if (s->peer.backend)
		jm_device_close(&s->peer);
	jm_kernel_teardown(s);
}

static int take_part(struct copy *s, const struct jm_device *d, struct jm_err *err)
{
	struct part *p = &s->part[s->n_parts++];
	int code;

	p->device = d;
	for (int i = 0; i < 2; i++)
		p->memory[i] = d->backend->alloc(d->dev, s->bytes);
	if (!p->memory[0] || !p->memory[1]) {
		code = jm_room_refuse(jm_device_room(d), 2 * (double)s->bytes, err,
			"Two pieces of %.3g GB do not fit on %.70s; give a smaller --size.",
			(double)s->bytes / 1e9, d->props.name);
		return jm_work_device_planned(s->kernel.work, code);
	}
	code = jm_event_new(d, &p->done[0], err);
	return code ? code : jm_event_new(d, &p->done[1], err);
}

static int take_memory(struct copy *s, struct jm_err *err)
{
	const struct jm_device *d = &s->kernel.device;
	int code;

	s->host = jm_device_pinned_alloc(d, s->bytes);
	s->back = jm_device_pinned_alloc(d, s->bytes);
	if (!s->host || !s->back)
		return jm_err_set(err, JM_ENOMEM,
			"Two pieces of %.3g GB do not fit on the host; give a smaller --size.",
			(double)s->bytes / 1e9);
	code = take_part(s, d, err);
	if (!code && s->way >= TO_PEER)
		code = take_part(s, &s->peer, err);
	return code;
}

/* Random bits on the host, and in the first piece of each device. */
static int fill(struct copy *s, struct jm_err *err)
{
	int code = 0;

	for (size_t i = 0; i < s->bytes; i += sizeof(uint64_t)) {
		uint64_t bits = jm_rng(s->kernel.work->seed, i);

		memcpy(s->host + i, &bits, s->bytes - i < sizeof bits ? s->bytes - i : sizeof bits);
	}
	for (int i = 0; i < s->n_parts && !code; i++) {
		const struct part *p = &s->part[i];

		code = jm_device_copy(p->device, JM_QUEUE_COPY, p->memory[0], s->host, s->bytes,
			JM_TO_DEVICE, err);
		if (!code)
			code = jm_device_sync(p->device, err);
	}
	return code;
}

static int copy_devices(const char *option, const char *value)
{
	bool two = !strcmp(value, ways[TO_PEER]) || !strcmp(value, ways[BOTH_PEERS]);

	return !strcmp(option, "way") && two ? 2 : 1;
}

static int open_devices(struct copy *s, struct jm_work *work, struct jm_err *err)
{
	bool direct;
	int code = jm_work_device_open(work, 0, &s->kernel.device, err);

	s->kernel.work = work;
	if (code || s->way >= TO_PEER)
		return code ? code
			    : jm_work_device_open_peer(
				      work, &s->kernel.device, &s->peer, &direct, err);
	if (!work->peer)
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--way %s has one device, and --device names %s and %s; only to-peer and "
		"both-peers have two.",
		ways[s->way], work->device, work->peer);
}

static void describe(const struct copy *s, struct jm_work *work)
{
	bool two = s->way >= TO_PEER;

	snprintf(work->detail, sizeof work->detail,
		"%d copies of %.3g GB per step%s, %s, on %.70s%s%.70s", s->copies,
		(double)s->bytes / 1e9, s->way == BOTH_PEERS ? " and direction" : "", ways[s->way],
		s->kernel.device.props.name, two ? " and " : "", two ? s->peer.props.name : "");
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct copy *s = state;
	int code;

	s->bytes = (size_t)llround(s->size * 1e9);
	s->copies = (int)fmin(MOST_COPIES, fmax(LEAST_COPIES, STEP_BYTES / (double)s->bytes));
	code = open_devices(s, work, err);
	if (!code)
		code = take_memory(s, err);
	if (!code)
		code = fill(s, err);
	if (code)
		return code;
	work->n_devices = s->n_parts;
	describe(s, work);
	return 0;
}

static int copy_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(work, sizeof(struct copy), prepare, copy_teardown, ret_state, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* From this device to the other one. */
static int queue_to_peer(struct copy *s, int from, struct jm_err *err)
{
	const struct part *p = &s->part[from], *to = &s->part[!from];

	return jm_device_peer_copy(
		p->device, JM_QUEUE_COPY, to->device, to->memory[1], p->memory[0], s->bytes, err);
}

static int queue_one(struct copy *s, struct jm_err *err)
{
	const struct jm_device *d = &s->kernel.device;
	void *const *memory = s->part[0].memory;
	int code;

	switch (s->way) {
	case TO_DEVICE:
		return jm_device_copy(
			d, JM_QUEUE_COPY, memory[1], s->host, s->bytes, JM_TO_DEVICE, err);
	case TO_HOST:
		return jm_device_copy(
			d, JM_QUEUE_COPY, s->back, memory[0], s->bytes, JM_TO_HOST, err);
	case ON_DEVICE:
		return jm_device_copy(
			d, JM_QUEUE_COPY, memory[1], memory[0], s->bytes, JM_ON_DEVICE, err);
	default:
		code = queue_to_peer(s, 0, err);
		return code || s->way == TO_PEER ? code : queue_to_peer(s, 1, err);
	}
}

/* How many pieces of memory of the devices each copied byte touches. */
static double touched(enum way way)
{
	return way == TO_DEVICE || way == TO_HOST ? 1 : 2;
}

static int copy_finish(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct copy *s = state;
	double bytes = s->copies * (double)s->bytes * (s->way == BOTH_PEERS ? 2 : 1);
	int code = 0;

	if (!s->under_way)
		return 1;
	for (int i = 0; i < s->n_parts && !code; i++)
		code = jm_event_wait(&s->part[i].done[s->first], err);
	if (code)
		return code;
	s->first = !s->first;
	s->under_way--;
	s->kernel.steps++;
	*ret = (struct jm_step){.items = bytes / 1e9,
		.flops_model = NAN,
		.flops_executed = NAN,
		.bytes = bytes * touched(s->way),
		.loss = NAN};
	return 0;
}

static int copy_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct copy *s = state;
	int slot = s->first ^ s->under_way, code = 0;

	for (int i = 0; i < s->copies && !code; i++)
		code = queue_one(s, err);
	for (int i = 0; i < s->n_parts && !code; i++)
		code = jm_event_record(&s->part[i].done[slot], JM_QUEUE_COPY, err);
	if (code)
		return code;
	return ++s->under_way == 2 ? copy_finish(s, ret, err) : 1;
}

/* What arrived on the device is read back and compared with the source. */
static int verify_part(struct copy *s, const struct part *p, struct jm_err *err)
{
	int code = 0;

	if (s->way != TO_HOST) {
		memset(s->back, 0, s->bytes);
		code = jm_device_copy(
			p->device, JM_QUEUE_COPY, s->back, p->memory[1], s->bytes, JM_TO_HOST, err);
	}
	if (!code)
		code = jm_device_sync(p->device, err);
	if (!code && memcmp(s->back, s->host, s->bytes) != 0)
		code = jm_err_set(err, JM_ERANGE,
			"The data copied to %.70s differs from its source: the device, its memory "
			"or the bus is faulty; do not trust its results.",
			s->way == TO_HOST ? "the host" : p->device->props.name);
	return code;
}

static int copy_verify(void *state, struct jm_err *err)
{
	struct copy *s = state;
	int code = s->kernel.steps ? 0 : jm_err_set(err, JM_EUSAGE, "No step was run.");

	if (!code && s->way >= TO_PEER)
		code = verify_part(s, &s->part[1], err);
	if (!code && s->way != TO_PEER)
		code = verify_part(s, &s->part[0], err);
	return code;
}

static int copy_check(const char *device, const char *precision, struct jm_err *err)
{
	(void)precision;
	return jm_device_check(device, err);
}

const struct jm_workload jm_workload_copy = {
	.name = "copy",
	.summary = "copies between the host and a device, within it, or between two GPUs",
	.unit = "GB",
	.options = options,
	.no_precision = true,
	.devices_of = copy_devices,
	.check = copy_check,
	.setup = copy_setup,
	.step = copy_step,
	.finish = copy_finish,
	.verify = copy_verify,
	.teardown = copy_teardown,
};
