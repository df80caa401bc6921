/* SPDX-License-Identifier: Apache-2.0 */
/* An open device; and the defaults of functions that a backend may omit. */
#include "device.h"
#include "backend_clock.h"
#include "backend_events.h"
#include "backend_find.h"
#include "backend_peer.h"
#include "base/clock.h"
#include "engine/graph/op.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int jm_device_open(const char *text, int threads, struct jm_device *ret, struct jm_err *err)
{
	struct jm_device d = {0};
	char name[64];
	int index = 0, code;

	code = jm__backend_split(text, name, sizeof(name), &index, err);
	if (!code)
		code = jm__backend_find(name, &d.backend, err);
	if (!code)
		code = d.backend->open(index, threads, &d.dev, err);
	if (code)
		return code;
	d.backend->props(d.dev, &d.props);
	*ret = d;
	return 0;
}

void jm_device_close(struct jm_device *d)
{
	if (d->backend)
		d->backend->close(d->dev);
	*d = (struct jm_device){0};
}

/* ---- what is checked while the host waits ---------------------------------------------------- */

#define CHECK_NS  100000000
#define END_NS	  (5 * JM_SECOND) /* for each queue that a failed check has to end */
#define LEAST_NAP 20000		  /* ns */
#define MOST_NAP  1000000

struct jm_device_watch {
	jm_device_check_fn *check;
	void *arg;
	struct jm_event passed; /* for jm_device_sync */
};

/* The naps grow with the wait, so that they add an eighth to it at most. */
static void nap(int64_t waited_ns)
{
	int64_t ns = waited_ns / 8;
	struct timespec t = {0};

	t.tv_nsec = ns < LEAST_NAP ? LEAST_NAP : ns > MOST_NAP ? MOST_NAP : ns;
	nanosleep(&t, NULL);
}

static int wait_and_watch(
	const struct jm_device_watch *w, const struct jm_event *e, struct jm_err *err)
{
	int64_t start = jm_clock_now(jm_clock_real()), now = start, checked = start;
	int reached = jm_event_query(e, err), code = 0;

	while (!reached && !code) {
		nap(now - start);
		now = jm_clock_now(jm_clock_real());
		if (now - checked >= CHECK_NS) {
			code = w->check(w->arg, err);
			checked = now;
		}
		if (!code)
			reached = jm_event_query(e, err);
	}
	return reached < 0 ? reached : code ? code : w->check(w->arg, err);
}

/* After a failure of the check, which ends what the queue waits for, again and again; false = it
 * still waits. */
static bool ends(struct jm_device_watch *w, enum jm_queue queue)
{
	int64_t start = jm_clock_now(jm_clock_real()), now = start;
	int reached =
		jm_event_record(&w->passed, queue, NULL) ? 1 : jm_event_query(&w->passed, NULL);

	while (!reached && now - start < END_NS) {
		nap(now - start);
		now = jm_clock_now(jm_clock_real());
		w->check(w->arg, NULL);
		reached = jm_event_query(&w->passed, NULL);
	}
	return reached;
}

/* Waits for all queues; also after an error, so that nothing uses the device's memory any more. */
static int sync_and_watch(const struct jm_device *d, struct jm_err *err)
{
	struct jm_device_watch *w = d->watch;
	bool ended = true;
	int code = 0, rc = 0;

	for (enum jm_queue queue = 0; queue < JM_QUEUE_COUNT && !code; queue++) {
		code = jm_event_record(&w->passed, queue, err);
		if (!code)
			code = wait_and_watch(w, &w->passed, err);
	}
	for (enum jm_queue queue = 0; queue < JM_QUEUE_COUNT && code && ended; queue++)
		ended = ends(w, queue);
	if (ended)
		rc = d->backend->sync(d->dev, code ? NULL : err);
	return code ? code : rc;
}

int jm_device_watch(struct jm_device *d, jm_device_check_fn *check, void *arg, struct jm_err *err)
{
	struct jm_device_watch *w = d->watch;
	int code;

	d->watch = NULL;
	if (w)
		jm_event_drop(&w->passed);
	free(w);
	if (!check || !jm_device_is_async(d))
		return 0;
	w = calloc(1, sizeof(*w));
	if (!w)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a device.");
	*w = (struct jm_device_watch){.check = check, .arg = arg};
	code = jm_event_new(d, &w->passed, err);
	if (code)
		free(w);
	else
		d->watch = w;
	return code;
}

/* ---- work ------------------------------------------------------------------------------------ */

int jm_device_select(const struct jm_device *d, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	if (!jm_op_is_exchange(group->node[0]->op))
		return d->backend->select(d->dev, group, choice, err);
	choice[0].seconds = NAN;
	return 1;
}

int jm_device_run(const struct jm_device *d, void *exec, struct jm_err *err)
{
	return d->backend->run(d->dev, exec, err);
}

int jm_device_sync(const struct jm_device *d, struct jm_err *err)
{
	return d->watch ? sync_and_watch(d, err) : d->backend->sync(d->dev, err);
}

int jm_device_copy(const struct jm_device *d, enum jm_queue queue, void *to, const void *from,
	size_t bytes, enum jm_copy kind, struct jm_err *err)
{
	return d->backend->copy(d->dev, queue, to, from, bytes, kind, err);
}

int jm_device_peer_open(const struct jm_device *d, const struct jm_device *peer, bool *ret_direct,
	struct jm_err *err)
{
	if (d->backend != peer->backend || !d->backend->peer)
		return jm_err_set(err, JM_ENOSUP,
			"Devices %s and %s cannot copy to each other; that needs two NVIDIA GPUs "
			"of one host (cuda:0,cuda:1).",
			d->backend->name, peer->backend->name);
	return d->backend->peer->open(d->dev, peer->dev, ret_direct, err);
}

int jm_device_peer_copy(const struct jm_device *d, enum jm_queue queue,
	const struct jm_device *peer, void *to, const void *from, size_t bytes, struct jm_err *err)
{
	return d->backend->peer->copy(d->dev, queue, peer->dev, to, from, bytes, err);
}

#define FIRST_PIECE 4096
#define MOST_PIECE  ((size_t)1 << 20) /* bytes; small enough for a cache */

/* Copies a piece from the host, then doubles the filled part by copies. */
static int fill_by_copies(const struct jm_device *d, enum jm_queue queue, void *to,
	unsigned char value, size_t bytes, struct jm_err *err)
{
	unsigned char piece[FIRST_PIECE];
	size_t done = bytes < sizeof(piece) ? bytes : sizeof(piece);
	int code;

	memset(piece, value, sizeof(piece));
	code = jm_device_copy(d, queue, to, piece, done, JM_TO_DEVICE, err);
	if (!code)
		code = jm_device_sync(d, err); /* the piece is freed at the end of this call */
	while (!code && done < bytes) {
		size_t n = done < bytes - done ? done : bytes - done;

		if (n > MOST_PIECE)
			n = MOST_PIECE;
		code = jm_device_copy(d, queue, (char *)to + done, to, n, JM_ON_DEVICE, err);
		done += n;
	}
	return code;
}

int jm_device_fill(const struct jm_device *d, enum jm_queue queue, void *to, unsigned char value,
	size_t bytes, struct jm_err *err)
{
	if (!bytes)
		return 0;
	if (d->backend->fill)
		return d->backend->fill(d->dev, queue, to, value, bytes, err);
	return fill_by_copies(d, queue, to, value, bytes, err);
}

void jm_device_versions(const struct jm_device *d, char *ret, size_t size)
{
	*ret = '\0';
	if (d->backend->versions)
		d->backend->versions(d->dev, ret, size);
}

int jm_device_restrict(
	const struct jm_device *d, double share, int *ret_units, int *ret_of, struct jm_err *err)
{
	if (d->backend->restrict_units)
		return d->backend->restrict_units(d->dev, share, ret_units, ret_of, err);
	return jm_err_set(err, JM_ENOSUP,
		"Device %s cannot be restricted to a share of its units; that needs an NVIDIA GPU "
		"(cuda:0).",
		d->backend->name);
}

bool jm_device_has_clock(const struct jm_device *d)
{
	return d->backend->clock;
}

int jm_device_stamp(const struct jm_device *d, uint64_t *to, struct jm_err *err)
{
	return d->backend->clock->stamp(d->dev, to, err);
}

int jm_device_clock(const struct jm_device *d, struct jm_device_time *ret, struct jm_err *err)
{
	return d->backend->clock->read(d->dev, ret, err);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define ALIGN ((size_t)64)

void *jm_device_pinned_alloc(const struct jm_device *d, size_t bytes)
{
	size_t size = (bytes + ALIGN - 1) / ALIGN * ALIGN;

	if (d->backend->pinned_alloc)
		return d->backend->pinned_alloc(d->dev, bytes);
	return aligned_alloc(ALIGN, size ? size : ALIGN);
}

void jm_device_pinned_release(const struct jm_device *d, void *memory)
{
	if (d->backend && d->backend->pinned_release)
		d->backend->pinned_release(d->dev, memory);
	else
		free(memory);
}

size_t jm_device_memory_free(const struct jm_device *d)
{
	size_t bytes = 0;

	if (!d->backend->memory_free || d->backend->memory_free(d->dev, &bytes, NULL))
		return 0;
	return bytes;
}

struct jm_room jm_device_room(const struct jm_device *d)
{
	const struct jm_device_props *p = &d->props;

	if (p->host_memory)
		return (struct jm_room){0, 0};
	return (struct jm_room){p->memory_bytes, p->memory_alone};
}

double jm_room_held(struct jm_room room)
{
	return room.alone > room.now ? (double)(room.alone - room.now) : 0;
}

/* ret: a sentence about other processes with a space before it, or "". */
static int lacks(struct jm_room room, double needs, char *ret, size_t size)
{
	double held = jm_room_held(room);
	bool fits_alone = needs <= (double)room.alone * (1 - JM_ROOM_RESERVE);

	*ret = 0;
	if (held > 0)
		snprintf(ret, size,
			" Another process holds memory of the device (%.1f GB at least; "
			"'nvidia-smi' shows which); without it, this case would %s.",
			held / 1e9, fits_alone ? "fit" : "not fit either");
	else if (room.now && !room.alone)
		snprintf(ret, size,
			" Another process may hold memory of the device; 'joulemark doctor' "
			"tells how much is free.");
	return held > 0 && fits_alone ? JM_EBUSY : JM_ENOMEM;
}

int jm_room_refuse(struct jm_room room, double needs, struct jm_err *err, const char *fmt, ...)
{
	char text[sizeof(err->text)], others[160];
	int code = lacks(room, needs, others, sizeof(others));
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return jm_err_set(err, code, "%s%s", text, others);
}

/* ---- plans ----------------------------------------------------------------------------------- */

double jm_device_peak(const struct jm_device *d, enum jm_dtype type, enum jm_math math)
{
	if (type != JM_F32 || math != JM_MATH_TF32)
		return d->props.peak_flops[type];
	return d->props.peak_tf32 > 0 ? d->props.peak_tf32 : (double)NAN;
}

bool jm_device_remake(const struct jm_device *d, enum jm_dtype type, enum jm_math math,
	double share, struct jm_remake *ret)
{
	*ret = (struct jm_remake){jm_device_peak(d, type, math), d->props.peak_flops[JM_F8E4M3],
		d->props.peak_bytes, share, !d->props.host_memory, !d->props.host_memory,
		!d->props.host_memory};
	return ret->flops > 0 && ret->bytes > 0;
}

bool jm_device_plan_roughly(const struct jm_device *d, bool on)
{
	if (d->backend->plan_roughly)
		d->backend->plan_roughly(d->dev, on);
	return d->backend->plan_roughly;
}

/* ---- events ---------------------------------------------------------------------------------- */

bool jm_device_is_async(const struct jm_device *d)
{
	return d->backend->events;
}

int jm_event_new(const struct jm_device *d, struct jm_event *ret, struct jm_err *err)
{
	*ret = (struct jm_event){.device = d};
	return jm_device_is_async(d) ? d->backend->events->create(d->dev, &ret->own, err) : 0;
}

int jm_event_record(struct jm_event *e, enum jm_queue queue, struct jm_err *err)
{
	const struct jm_device *d = e->device;
	int code;

	if (jm_device_is_async(d))
		return d->backend->events->record(d->dev, e->own, queue, err);
	code = jm_device_sync(d, err);
	e->at_ns = jm_clock_now(jm_clock_real());
	return code;
}

int jm_event_follow(const struct jm_event *e, enum jm_queue queue, struct jm_err *err)
{
	const struct jm_device *d = e->device;

	return jm_device_is_async(d) ? d->backend->events->follow(d->dev, e->own, queue, err) : 0;
}

int jm_event_wait(const struct jm_event *e, struct jm_err *err)
{
	const struct jm_device *d = e->device;

	if (d->watch)
		return wait_and_watch(d->watch, e, err);
	return jm_device_is_async(d) ? d->backend->events->wait(d->dev, e->own, err) : 0;
}

int jm_event_query(const struct jm_event *e, struct jm_err *err)
{
	const struct jm_device *d = e->device;

	return jm_device_is_async(d) ? d->backend->events->query(d->dev, e->own, err) : 1;
}

int64_t jm_event_host_ns(const struct jm_event *e)
{
	return jm_device_is_async(e->device) ? 0 : e->at_ns;
}

int jm_event_seconds(
	const struct jm_event *from, const struct jm_event *to, double *ret, struct jm_err *err)
{
	const struct jm_device *d = from->device;

	if (jm_device_is_async(d))
		return d->backend->events->seconds(d->dev, from->own, to->own, ret, err);
	*ret = 1e-9 * (double)(to->at_ns - from->at_ns);
	return 0;
}

void jm_event_drop(struct jm_event *e)
{
	if (e->own)
		e->device->backend->events->drop(e->device->dev, e->own);
	*e = (struct jm_event){0};
}
