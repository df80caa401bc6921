/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An asynchronous device: the reference loops behind three queues, each with a thread that delays
 * its jobs. If a caller reads, overwrites or frees memory without waiting, results are wrong. The
 * table counts the waits of the host (jm_fake_later_waits). Its clock is in later_clock.h.
 *
 *	JM_FAKE_LATER_US	microseconds that each job waits before it begins
 *	JM_FAKE_LATER_IDS	"UUID,UUID/BUS,...": of its devices by index
 *	JM_FAKE_LATER_PEAKS	"FLOP/s,FLOP/s/FLOP/s,...": of its devices by index, in every type;
 *				the second one of a device in those of 8 bits
 *	JM_FAKE_LATER_LOG	a file that gets the true time of each time stamp, ns
 *	JM_FAKE_LATER_SELECTS	a file that gets the index of the device for each time that it is
 *				asked what it could do
 *	JM_FAKE_LATER_BUILDS	a file that gets the index of the device for each group that is
 *				built
 *	JM_FAKE_LATER_HANGS	open/INDEX or close/INDEX: the device that never does this
 *	JM_FAKE_LATER_NOTICE_US	microseconds by which the host wakes up after an event
 *	JM_FAKE_LATER_EXACT	events tell the time that JM_FAKE_LATER_US and JM_FAKE_NCCL_US add
 *				up to, as if the host, jobs and threads took none
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/graph/tensor.h"
#include "fake_stream.h"
#include "later_clock.h"
#include "engine/device/backend_clock.h"
#include "engine/device/backend_events.h"

extern const struct jm_backend jm_backend_ref;

enum kind { RUN, COPY, FILL, RECORD, FOLLOW, STAMP, CALL };

struct event {
	unsigned long asked, reached; /* counts of records */
	struct timespec at;
	int64_t exact_us;
};

struct job {
	enum kind kind;
	void *to; /* exec, memory or event */
	const void *from;
	size_t bytes;
	unsigned char value;
	unsigned long count; /* of the event */
	int64_t from_us;     /* when the host queued it */
	void (*work)(void *arg);
	struct job *next;
};

struct queue {
	struct later *device;
	pthread_t thread;
	struct job *first, **last;
	bool busy;
	int64_t us; /* exact time of its last job */
};

struct block {
	char *from;
	size_t bytes;
	struct block *next;
};

struct later {
	void *ref;
	int index;
	struct block *blocks;
	char uuid[48], bus[24];
	struct queue queue[JM_QUEUE_COUNT];
	struct jm_fake_stream stream[JM_QUEUE_COUNT];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;
	FILE *log, *selects, *builds;
	unsigned notice_us;
	int code; /* of the first job that failed */
	struct jm_err err;
	unsigned delay_us, call_us;
	bool exact;
	int64_t host_us; /* exact time of the host */
};

static _Atomic long waits;
JM_API long jm_fake_later_waits(void);
long jm_fake_later_waits(void)
{
	return waits;
}

/* ---- the device's side ----------------------------------------------------------------------- */

/* *us: of the host or a queue, which waits. */
static void wait_for(struct later *d, const struct event *e, unsigned long count, int64_t *us)
{
	pthread_mutex_lock(&d->lock);
	while (e->reached < count)
		pthread_cond_wait(&d->changed, &d->lock);
	*us = *us > e->exact_us ? *us : e->exact_us;
	pthread_mutex_unlock(&d->lock);
}

static void reach(struct later *d, struct event *e, unsigned long count, int64_t us)
{
	pthread_mutex_lock(&d->lock);
	e->exact_us = us;
	clock_gettime(CLOCK_MONOTONIC, &e->at);
	e->reached = count;
	pthread_mutex_unlock(&d->lock);
}

static void stamp(const struct later *d, uint64_t *to)
{
	int64_t now = host_now();

	*to = (uint64_t)own_time(now);
	if (!d->log)
		return;
	fprintf(d->log, "%lld\n", (long long)now);
	fflush(d->log);
}

#define COPIES_ARE_SLOWER 30 /* times, on the queue that only copies */

static void work(struct later *d, struct queue *q, const struct job *j)
{
	unsigned slower = q == &d->queue[JM_QUEUE_COPY] ? COPIES_ARE_SLOWER : 1;
	unsigned delay_us = j->kind <= FILL ? d->delay_us * slower : 0;
	struct jm_err err = JM_ERR_INIT;
	int code = 0;

	if (delay_us)
		usleep(delay_us);
	q->us = (q->us > j->from_us ? q->us : j->from_us) +
		(j->kind == CALL ? d->call_us : delay_us);
	if (j->kind == RUN)
		code = jm_backend_ref.run(d->ref, j->to, &err);
	else if (j->kind == COPY)
		memmove(j->to, j->from, j->bytes);
	else if (j->kind == FILL)
		memset(j->to, j->value, j->bytes);
	else if (j->kind == STAMP)
		stamp(d, j->to);
	else if (j->kind == RECORD)
		reach(d, j->to, j->count, q->us);
	else if (j->kind == CALL)
		j->work(j->to);
	else
		wait_for(d, j->to, j->count, &q->us);
	if (code && !d->code) {
		d->code = code;
		d->err = err;
	}
}

static void *serve(void *arg)
{
	struct queue *q = arg;
	struct later *d = q->device;

	pthread_mutex_lock(&d->lock);
	while (!d->stop || q->first) {
		struct job *j = q->first;

		if (!j) {
			pthread_cond_wait(&d->changed, &d->lock);
			continue;
		}
		q->first = j->next;
		if (!q->first)
			q->last = &q->first;
		q->busy = true;
		pthread_mutex_unlock(&d->lock);
		work(d, q, j);
		free(j);
		pthread_mutex_lock(&d->lock);
		q->busy = false;
		pthread_cond_broadcast(&d->changed);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* ---- the host's side ------------------------------------------------------------------------- */

static int put(struct later *d, enum jm_queue queue, struct job job)
{
	struct job *j = malloc(sizeof(*j));
	struct queue *q = &d->queue[queue];

	if (!j)
		return JM_ENOMEM;
	*j = job;
	j->from_us = d->host_us;
	pthread_mutex_lock(&d->lock);
	*q->last = j;
	q->last = &j->next;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static void hang(const char *where, int index)
{
	const char *hangs = getenv("JM_FAKE_LATER_HANGS");
	char own[32];

	snprintf(own, sizeof(own), "%s/%d", where, index);
	while (hangs && !strcmp(hangs, own))
		pause();
}

static void later_close(void *arg)
{
	struct later *d = arg;

	if (!d)
		return;
	hang("close", d->index);
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
	for (int i = 0; i < JM_QUEUE_COUNT; i++)
		pthread_join(d->queue[i].thread, NULL);
	jm_backend_ref.close(d->ref);
	if (d->log)
		fclose(d->log);
	if (d->selects)
		fclose(d->selects);
	if (d->builds)
		fclose(d->builds);
	free(d);
}

static void read_ids(struct later *d, int index)
{
	const char *at = getenv("JM_FAKE_LATER_IDS");
	char one[96] = "";

	for (; at && *at && index > 0; index--)
		at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',');
	if (at)
		snprintf(one, sizeof(one), "%.*s", (int)strcspn(at, ","), at);
	if (strchr(one, '/'))
		snprintf(d->bus, sizeof(d->bus), "%.23s", strchr(one, '/') + 1);
	snprintf(d->uuid, sizeof(d->uuid), "%.*s", (int)strcspn(one, "/"), one);
}

static int later_open(int index, int threads, void **ret_dev, struct jm_err *err)
{
	const char *delay = getenv("JM_FAKE_LATER_US"), *log = getenv("JM_FAKE_LATER_LOG");
	const char *notice = getenv("JM_FAKE_LATER_NOTICE_US"), *call = getenv("JM_FAKE_NCCL_US");
	const char *selects = getenv("JM_FAKE_LATER_SELECTS"),
		   *builds = getenv("JM_FAKE_LATER_BUILDS");
	struct later *d = calloc(1, sizeof(*d));
	int code = d ? jm_backend_ref.open(0, threads, &d->ref, err) : JM_ENOMEM;

	if (code) {
		free(d);
		return code;
	}
	hang("open", index);
	read_ids(d, index);
	d->index = index;
	d->selects = selects ? fopen(selects, "ae") : NULL;
	d->builds = builds ? fopen(builds, "ae") : NULL;
	d->log = log ? fopen(log, "ae") : NULL;
	d->exact = getenv("JM_FAKE_LATER_EXACT");
	d->call_us = call ? (unsigned)atoi(call) : 0;
	d->notice_us = notice ? (unsigned)atoi(notice) : 0;
	d->delay_us = delay ? (unsigned)atoi(delay) : 100;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
	for (int i = 0; i < JM_QUEUE_COUNT; i++) {
		d->queue[i] = (struct queue){.device = d, .last = &d->queue[i].first};
		pthread_create(&d->queue[i].thread, NULL, serve, &d->queue[i]);
	}
	*ret_dev = d;
	return 0;
}

/* Of all types, for the device with this index; without the variable it is unknown. */
static void read_peak(struct jm_device_props *ret, int index)
{
	const char *at = getenv("JM_FAKE_LATER_PEAKS");

	for (; at && index > 0; index--)
		at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	for (int i = 0; at && i < JM_DTYPE_COUNT; i++)
		ret->peak_flops[i] = atof(at);
	if (!at || at[strcspn(at, "/,")] != '/')
		return;
	ret->peak_flops[JM_F8E4M3] = atof(strchr(at, '/') + 1);
	ret->peak_flops[JM_F8E5M2] = ret->peak_flops[JM_F8E4M3];
}

static void later_props(void *dev, struct jm_device_props *ret)
{
	const struct later *d = dev;

	jm_backend_ref.props(d->ref, ret);
	read_peak(ret, d->index);
	ret->host_memory = !getenv("JM_FAKE_LATER_OWN_MEMORY");
	memcpy(ret->uuid, d->uuid, sizeof(ret->uuid));
	memcpy(ret->bus, d->bus, sizeof(ret->bus));
}

static void tell(const struct later *d, FILE *f)
{
	if (!f)
		return;
	fprintf(f, "%d\n", d->index);
	fflush(f);
}

static int later_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct later *d = dev;

	tell(d, d->selects);
	return jm_backend_ref.select(d->ref, group, choice, err);
}

static int later_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	const struct later *d = dev;

	tell(d, d->builds);
	return jm_backend_ref.build(d->ref, group, choice, ret_exec, err);
}

static int later_run(void *dev, void *exec, struct jm_err *err)
{
	(void)err;
	return put(dev, JM_QUEUE_COMPUTE, (struct job){.kind = RUN, .to = exec});
}

static int call(const struct jm_fake_stream *s, void (*work_)(void *arg), void *arg)
{
	return put(s->dev, (enum jm_queue)s->queue,
		(struct job){.kind = CALL, .to = arg, .work = work_});
}

static bool owns(const struct jm_fake_stream *s, const void *from, size_t bytes)
{
	const struct later *d = s->dev;
	const char *at = from;

	for (const struct block *b = d->blocks; b; b = b->next)
		if (at >= b->from && at + bytes <= b->from + b->bytes)
			return true;
	return false;
}

static int later_stream(void *dev, enum jm_queue queue, void **ret, struct jm_err *err)
{
	struct later *d = dev;

	(void)err;
	d->stream[queue] = (struct jm_fake_stream){call, owns, dev, (int)queue, d->index};
	*ret = &d->stream[queue];
	return 0;
}

int jm_fake_index_of(void *dev)
{
	const struct later *d = dev;

	return d->index;
}

const struct jm_fake_stream *jm_fake_stream_of(void *dev)
{
	void *stream;

	later_stream(dev, JM_QUEUE_COMM, &stream, NULL);
	return stream;
}

static int later_copy(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err)
{
	(void)kind;
	(void)err;
	return put(dev, queue, (struct job){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

static int later_fill(void *dev, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
	struct jm_err *err)
{
	(void)err;
	return put(
		dev, queue, (struct job){.kind = FILL, .to = to, .value = value, .bytes = bytes});
}

static int later_sync(void *dev, struct jm_err *err)
{
	struct later *d = dev;

	waits++;
	pthread_mutex_lock(&d->lock);
	for (int i = 0; i < JM_QUEUE_COUNT; i++)
		while (d->queue[i].first || d->queue[i].busy)
			pthread_cond_wait(&d->changed, &d->lock);
	for (int i = 0; i < JM_QUEUE_COUNT; i++)
		d->host_us = d->queue[i].us > d->host_us ? d->queue[i].us : d->host_us;
	pthread_mutex_unlock(&d->lock);
	return d->code ? jm_err_set(err, d->code, "%s", d->err.text) : 0;
}

static void *later_alloc(void *dev, size_t bytes)
{
	struct later *d = dev;
	struct block *b = malloc(sizeof(*b));
	void *memory = b ? jm_backend_ref.alloc(d->ref, bytes) : NULL;

	if (!memory) {
		free(b);
		return NULL;
	}
	*b = (struct block){memory, bytes, d->blocks};
	d->blocks = b;
	return memory;
}

static void later_release(void *dev, void *memory)
{
	struct later *d = dev;
	struct block **at = &d->blocks, *b;

	while (*at && (*at)->from != memory)
		at = &(*at)->next;
	b = *at;
	if (b)
		*at = b->next;
	free(b);
	jm_backend_ref.release(d->ref, memory);
}

static void later_drop(void *dev, void *exec)
{
	(void)dev;
	(void)exec;
}

static int event_new(void *dev, void **ret_event, struct jm_err *err)
{
	(void)dev;
	(void)err;
	*ret_event = calloc(1, sizeof(struct event));
	return *ret_event ? 0 : JM_ENOMEM;
}

static int event_record(void *dev, void *event, enum jm_queue queue, struct jm_err *err)
{
	struct event *e = event;

	(void)err;
	return put(dev, queue, (struct job){.kind = RECORD, .to = e, .count = ++e->asked});
}

static int event_follow(void *dev, void *event, enum jm_queue queue, struct jm_err *err)
{
	struct event *e = event;

	(void)err;
	return put(dev, queue, (struct job){.kind = FOLLOW, .to = e, .count = e->asked});
}

static int event_wait(void *dev, void *event, struct jm_err *err)
{
	struct event *e = event;
	struct later *d = dev;

	(void)err;
	wait_for(d, e, e->asked, &d->host_us);
	if (d->notice_us)
		usleep(d->notice_us);
	return 0;
}

static int event_query(void *dev, void *event, struct jm_err *err)
{
	const struct event *e = event;
	struct later *d = dev;
	int reached;

	(void)err;
	pthread_mutex_lock(&d->lock);
	reached = e->reached == e->asked;
	pthread_mutex_unlock(&d->lock);
	return reached;
}

static int event_seconds(void *dev, void *from, void *to, double *ret, struct jm_err *err)
{
	const struct event *a = from, *b = to;
	const struct later *d = dev;

	(void)err;
	if (d->exact)
		*ret = 1e-6 * (double)(b->exact_us - a->exact_us);
	else
		*ret = (double)(b->at.tv_sec - a->at.tv_sec) +
		       1e-9 * (double)(b->at.tv_nsec - a->at.tv_nsec);
	return 0;
}

static void event_drop(void *dev, void *event)
{
	(void)dev;
	free(event);
}

static void *later_pinned_alloc(void *dev, size_t bytes)
{
	(void)dev;
	return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static void later_pinned_release(void *dev, void *memory)
{
	(void)dev;
	free(memory);
}

static int later_stamp(void *dev, uint64_t *to, struct jm_err *err)
{
	(void)err;
	return put(dev, JM_QUEUE_COMPUTE, (struct job){.kind = STAMP, .to = to});
}

static int later_read_clock(void *dev, struct jm_device_time *ret, struct jm_err *err)
{
	struct jm_device_time one;

	(void)dev;
	(void)err;
	for (int i = 0; i < 200; i++) {
		one.before_ns = host_now();
		one.device_ns = own_time(host_now());
		one.after_ns = host_now();
		if (!i || one.after_ns - one.before_ns < ret->after_ns - ret->before_ns)
			*ret = one;
	}
	return 0;
}

static const struct jm_backend_events events = {
	.create = event_new,
	.record = event_record,
	.follow = event_follow,
	.wait = event_wait,
	.query = event_query,
	.seconds = event_seconds,
	.drop = event_drop,
};

static const struct jm_backend_clock later_clock = {.stamp = later_stamp, .read = later_read_clock};

static const struct jm_backend later = {
	.abi = JM_BACKEND_ABI,
	.name = "later",
	.summary = "the reference loops, some time after the call",
	.open = later_open,
	.props = later_props,
	.select = later_select,
	.build = later_build,
	.run = later_run,
	.drop = later_drop,
	.alloc = later_alloc,
	.release = later_release,
	.copy = later_copy,
	.fill = later_fill,
	.sync = later_sync,
	.close = later_close,
	.events = &events,
	.pinned_alloc = later_pinned_alloc,
	.pinned_release = later_pinned_release,
	.clock = &later_clock,
	.stream = later_stream,
	.lanes = &later_lanes,
};

const struct jm_backend *jm_backend_entry(void)
{
	return &later;
}
