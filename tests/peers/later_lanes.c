/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes (comm/lanes.h) of the fake device of backend_later.c: two threads, and a queue of the
 * device. Copies are between memory of the device and memory that ranks share; others end the
 * process.
 *
 *	JM_FAKE_LANES_US	microseconds that each copy waits before it begins
 *	JM_FAKE_LANES_FAIL	index of a device that cannot open its lanes; INDEX/N: whose copy N
 *				is refused
 *	JM_FAKE_LANES_HANG	INDEX/N: the device whose copy N never ends
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/lanes.h"
#include "engine/graph/tensor.h"
#include "fake_stream.h"

enum kind { COPY, ADD, CAST, MARK, FOLLOW, POST, AWAIT };

struct lanes;

struct job {
	enum kind kind;
	struct lanes *lanes;
	void *to;
	const void *from, *more;
	size_t n;		    /* bytes or elements */
	enum jm_comm_type type, of; /* of `to`, and of the last operand */
	_Atomic uint32_t *flag;
	uint32_t value;
	int mark;
	unsigned long count; /* of the mark */
	bool hangs;
	struct job *next;
};

struct lane {
	struct lanes *lanes;
	pthread_t thread;
	struct job *first, **last;
	bool busy;
};

struct lanes {
	const struct jm_fake_stream *stream;
	struct lane lane[JM_LANE_COUNT]; /* without JM_LANE_TRANSFER */
	char *shared, *staging;
	size_t shared_bytes, staging_bytes;
	struct {
		unsigned long asked, reached;
	} * mark;
	unsigned delay_us;
	int queued;	       /* jobs of the stream */
	long copies, fails_at; /* the copy that is refused; 0 = none is */
	long hangs_at;
	bool stop;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static float get(const void *from, enum jm_comm_type type, size_t i)
{
	const uint16_t *half = from;
	const float *whole = from;

	return type == JM_COMM_BF16 ? jm_bf16_get(half[i]) : whole[i];
}

static void set(void *to, enum jm_comm_type type, size_t i, float x)
{
	uint16_t *half = to;
	float *whole = to;

	if (type == JM_COMM_BF16)
		half[i] = jm_bf16_set(x);
	else
		whole[i] = x;
}

static void compute(const struct job *j)
{
	for (size_t i = 0; i < j->n; i++)
		set(j->to, j->type, i,
			j->kind == CAST ? get(j->from, j->of, i)
					: get(j->from, j->type, i) + get(j->more, j->of, i));
}

static void run(const struct job *j)
{
	struct lanes *l = j->lanes;

	switch (j->kind) {
	case COPY:
		while (j->hangs)
			pause();
		if (l->delay_us)
			usleep(l->delay_us);
		memcpy(j->to, j->from, j->n);
		break;
	case ADD:
	case CAST:
		compute(j);
		break;
	case MARK:
		pthread_mutex_lock(&l->lock);
		l->mark[j->mark].reached = j->count;
		pthread_cond_broadcast(&l->changed);
		pthread_mutex_unlock(&l->lock);
		break;
	case FOLLOW:
		pthread_mutex_lock(&l->lock);
		while (l->mark[j->mark].reached < j->count)
			pthread_cond_wait(&l->changed, &l->lock);
		pthread_mutex_unlock(&l->lock);
		break;
	case POST:
		atomic_store(j->flag, j->value);
		break;
	case AWAIT:
		while ((int32_t)(atomic_load(j->flag) - j->value) < 0)
			usleep(20);
		break;
	}
}

static void *serve(void *arg)
{
	struct lane *lane = arg;
	struct lanes *l = lane->lanes;

	pthread_mutex_lock(&l->lock);
	while (!l->stop || lane->first) {
		struct job *j = lane->first;

		if (!j) {
			pthread_cond_wait(&l->changed, &l->lock);
			continue;
		}
		lane->first = j->next;
		if (!lane->first)
			lane->last = &lane->first;
		lane->busy = true;
		pthread_mutex_unlock(&l->lock);
		run(j);
		free(j);
		pthread_mutex_lock(&l->lock);
		lane->busy = false;
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void run_in_stream(void *arg)
{
	struct job *j = arg;
	struct lanes *l = j->lanes;

	run(j);
	free(j);
	pthread_mutex_lock(&l->lock);
	l->queued--;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

static int put(struct lanes *l, enum jm_lane lane, struct job job)
{
	struct job *j = malloc(sizeof(*j));

	if (!j)
		return JM_ENOMEM;
	*j = job;
	j->lanes = l;
	pthread_mutex_lock(&l->lock);
	if (j->kind == MARK)
		j->count = ++l->mark[j->mark].asked;
	else if (j->kind == FOLLOW)
		j->count = l->mark[j->mark].asked;
	if (lane != JM_LANE_TRANSFER) {
		*l->lane[lane].last = j;
		l->lane[lane].last = &j->next;
		pthread_cond_broadcast(&l->changed);
	} else {
		l->queued++;
	}
	pthread_mutex_unlock(&l->lock);
	return lane == JM_LANE_TRANSFER ? l->stream->put(l->stream, run_in_stream, j) : 0;
}

static bool lanes_passed(void *arg)
{
	struct lanes *l = arg;
	bool passed;

	pthread_mutex_lock(&l->lock);
	passed = !l->queued;
	for (int i = JM_LANE_SEND; i < JM_LANE_COUNT; i++)
		passed = passed && !l->lane[i].first && !l->lane[i].busy;
	pthread_mutex_unlock(&l->lock);
	return passed;
}

static void lanes_close(void *arg)
{
	struct lanes *l = arg;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	for (int i = JM_LANE_SEND; i < JM_LANE_COUNT; i++)
		pthread_join(l->lane[i].thread, NULL);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l->mark);
	free(l->staging);
	free(l);
}

static int refuse(struct jm_err *err)
{
	return jm_err_set(err, JM_EIO, "The fake lanes were told to fail.");
}

static int lanes_open(void *dev, const struct jm_lanes_want *want, void **ret_lanes,
	void **ret_staging, struct jm_err *err)
{
	const char *delay = getenv("JM_FAKE_LANES_US"), *fails = getenv("JM_FAKE_LANES_FAIL");
	const char *hangs = getenv("JM_FAKE_LANES_HANG");
	struct lanes *l = calloc(1, sizeof(*l));

	if (!l)
		return JM_ENOMEM;
	if (fails && atoi(fails) == jm_fake_index_of(dev)) {
		l->fails_at = strchr(fails, '/') ? strtol(strchr(fails, '/') + 1, NULL, 10) : 0;
		if (!l->fails_at) {
			free(l);
			return refuse(err);
		}
	}
	if (hangs && atoi(hangs) == jm_fake_index_of(dev) && strchr(hangs, '/'))
		l->hangs_at = strtol(strchr(hangs, '/') + 1, NULL, 10);
	l->stream = jm_fake_stream_of(dev);
	l->shared = want->shared;
	l->shared_bytes = want->shared_bytes;
	l->staging_bytes = want->staging_bytes;
	l->staging = malloc(want->staging_bytes);
	l->mark = calloc((size_t)want->marks, sizeof(*l->mark));
	l->delay_us = delay ? (unsigned)atoi(delay) : 0;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	for (int i = JM_LANE_SEND; i < JM_LANE_COUNT; i++) {
		l->lane[i] = (struct lane){.lanes = l, .last = &l->lane[i].first};
		pthread_create(&l->lane[i].thread, NULL, serve, &l->lane[i]);
	}
	*ret_lanes = l;
	*ret_staging = l->staging;
	return 0;
}

static bool is_shared(const struct lanes *l, const void *at, size_t bytes)
{
	const char *from = at;

	return from >= l->shared && from + bytes <= l->shared + l->shared_bytes;
}

static bool is_of_device(const struct lanes *l, const void *at, size_t bytes)
{
	const char *from = at;

	return (from >= l->staging && from + bytes <= l->staging + l->staging_bytes) ||
	       l->stream->owns(l->stream, at, bytes);
}

static int lanes_copy(
	void *arg, enum jm_lane lane, void *to, const void *from, size_t bytes, struct jm_err *err)
{
	struct lanes *l = arg;
	bool right = is_of_device(l, to, bytes) && is_of_device(l, from, bytes);

	if (++l->copies == l->fails_at)
		return refuse(err);
	if (lane == JM_LANE_SEND)
		right = is_shared(l, to, bytes) && is_of_device(l, from, bytes);
	else if (lane == JM_LANE_RECEIVE)
		right = is_of_device(l, to, bytes) && is_shared(l, from, bytes);
	if (!right) {
		fprintf(stderr, "later-lanes: a copy from or to wrong memory\n");
		abort();
	}
	return put(l, lane,
		(struct job){.kind = COPY,
			.to = to,
			.from = from,
			.n = bytes,
			.hangs = l->copies == l->hangs_at});
}

static int lanes_add(void *arg, void *to, enum jm_comm_type type, const void *a, const void *b,
	enum jm_comm_type b_type, size_t n, struct jm_err *err)
{
	(void)err;
	return put(arg, JM_LANE_TRANSFER,
		(struct job){.kind = ADD,
			.to = to,
			.from = a,
			.more = b,
			.n = n,
			.type = type,
			.of = b_type});
}

static int lanes_cast(void *arg, void *to, enum jm_comm_type to_type, const void *from,
	enum jm_comm_type from_type, size_t n, struct jm_err *err)
{
	(void)err;
	return put(arg, JM_LANE_TRANSFER,
		(struct job){.kind = CAST,
			.to = to,
			.from = from,
			.n = n,
			.type = to_type,
			.of = from_type});
}

static int lanes_mark(void *arg, int mark, enum jm_lane lane, struct jm_err *err)
{
	(void)err;
	return put(arg, lane, (struct job){.kind = MARK, .mark = mark});
}

static int lanes_follow(void *arg, int mark, enum jm_lane lane, struct jm_err *err)
{
	(void)err;
	return put(arg, lane, (struct job){.kind = FOLLOW, .mark = mark});
}

static int lanes_post(
	void *arg, enum jm_lane lane, _Atomic uint32_t *flag, uint32_t value, struct jm_err *err)
{
	(void)err;
	return put(arg, lane, (struct job){.kind = POST, .flag = flag, .value = value});
}

static int lanes_await(
	void *arg, enum jm_lane lane, _Atomic uint32_t *flag, uint32_t value, struct jm_err *err)
{
	(void)err;
	return put(arg, lane, (struct job){.kind = AWAIT, .flag = flag, .value = value});
}

const struct jm_lanes later_lanes = {
	.open = lanes_open,
	.passed = lanes_passed,
	.close = lanes_close,
	.copy = lanes_copy,
	.add = lanes_add,
	.cast = lanes_cast,
	.mark = lanes_mark,
	.follow = lanes_follow,
	.post = lanes_post,
	.await = lanes_await,
};
