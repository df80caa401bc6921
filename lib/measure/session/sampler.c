/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler's lanes: threads, rings, edges. */
#include "sampler.h"
#include "base/text/locale.h"
#include "base/ctx.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RING_POLLS 1024 /* of one reading per signal */
#define RING_BYTES (1 << 20)
#define RING_MIN   16			  /* polls */
#define EDGE_POLLS 22			  /* within one refresh and its slack */
#define EDGE_FAST  (1 * JM_MILLISECOND)	  /* shortest time between polls at an edge */
#define EDGE_LONG  (1 * JM_SECOND)	  /* the longest wait for a slow sensor */
#define EDGE_BLIND (100 * JM_MILLISECOND) /* of a sensor whose refresh is unknown */
#define SOONEST	   (JM_MILLISECOND / 5)	  /* least time until a source is read again */
#define EDGE_SLACK 10			  /* a refresh may be late by 1/10 of itself */
#define BLIND_MIN  (1 * JM_SECOND)	  /* without a reading: the least time that makes a gap */
#define BLIND	   4			  /* and in intervals, or refreshes */
#define WRAP_WATTS 4000			  /* W: no device with a counter that wraps draws more */

struct lane_signal {
	bool awaited; /* an edge waits until it has changed */
	double seen;  /* at the edge's first poll */
};

struct jm_lane {
	struct jm_lane_options o;
	pthread_t thread;
	struct jm_sleeper sleeper;
	bool started;
	int64_t interval, fast, patience, blind;
	int64_t read_ns; /* when the last reading had come; 0 = none yet */
	bool silent;	 /* the last poll gave no value */

	struct jm_signal_reading *ring;
	size_t room;
	_Atomic size_t head, tail; /* entries written, entries read */

	/* what the source gave in this poll: the sink's row, then what did not fit there */
	struct jm_sink sink;
	struct jm_signal_reading *poll;
	size_t n_poll, poll_room;

	_Atomic int edges; /* edges requested so far */
	_Atomic bool stop;
	int edges_seen;
	int64_t edge_until; /* 0 = not at an edge */
	struct lane_signal *signal;
	double *last; /* value of the newest reading of each signal */

	pthread_mutex_t lock; /* of `first` and `ended` */
	pthread_cond_t changed;
	bool first, ended;
	double cpu_s; /* set when the thread has ended */
	int rc;
	struct jm_err err;
};

static bool speaks_of_energy(const struct jm_signal *signal)
{
	return signal->quantity == JM_Q_ENERGY || signal->quantity == JM_Q_POWER;
}

/* The slowest of the source's energy and power sensors; 0 = unknown. */
static int64_t slowest_refresh(const struct jm_lane_options *o)
{
	int64_t slowest = 0;

	for (int i = 0; i < o->n_signals; i++) {
		const struct jm_signal *signal = &o->set->signal[o->first_signal + i];

		if (speaks_of_energy(signal) && signal->refresh_ns > slowest)
			slowest = signal->refresh_ns;
	}
	return slowest;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* A counter must not go round unseen, however seldom it is to be read. */
static int64_t longest_interval(const struct jm_lane_options *o)
{
	double longest = 1e9; /* s */

	for (int i = 0; i < o->n_signals; i++) {
		const struct jm_signal *signal = &o->set->signal[o->first_signal + i];

		if (signal->quantity == JM_Q_ENERGY && signal->wrap > 0)
			longest = fmin(longest, signal->wrap / WRAP_WATTS);
	}
	return (int64_t)(longest * 1e9);
}

static void set_pace(struct jm_lane *lane)
{
	int64_t refresh = slowest_refresh(&lane->o);
	int64_t wait = refresh ? refresh + refresh / EDGE_SLACK : EDGE_BLIND;

	lane->patience = clamp(wait, 2 * EDGE_FAST, EDGE_LONG);
	lane->fast = clamp(lane->patience / EDGE_POLLS, EDGE_FAST, EDGE_LONG);
	lane->interval = lane->o.interval_ns;
	if (!lane->interval)
		lane->interval =
			refresh ? clamp(refresh / 2, 20 * JM_MILLISECOND, 100 * JM_MILLISECOND)
				: 100 * JM_MILLISECOND;
	lane->interval = clamp(lane->interval, 1, longest_interval(&lane->o));
	lane->blind = clamp(BLIND * (lane->interval > refresh ? lane->interval : refresh),
		BLIND_MIN, INT64_MAX);
}

/* What an edge waits for: of each meter its counter, unless the source watches that itself, or else its
 * power. */
static void choose_awaited(struct jm_lane *lane)
{
	const struct jm_meters *set = lane->o.set;

	for (int i = 0; i < lane->o.n_signals; i++) {
		const struct jm_signal *signal = &set->signal[lane->o.first_signal + i];
		int counter = jm_meter_signal(set, signal->meter, JM_Q_ENERGY);

		lane->signal[i].awaited =
			(signal->quantity == JM_Q_ENERGY && !lane->o.source->edge) ||
			(signal->quantity == JM_Q_POWER && counter < 0);
	}
}

static void collect(struct jm_sink *sink, int first, int n, const struct jm_reading *reading);

/* Entries; a power of two. */
static size_t ring_room(int n_signals)
{
	size_t poll = (size_t)n_signals + 1, room = 1;
	size_t polls = RING_BYTES / (poll * sizeof(struct jm_signal_reading));

	polls = polls > RING_POLLS ? RING_POLLS : polls < RING_MIN ? RING_MIN : polls;
	while (room < poll * polls)
		room *= 2;
	return room;
}

int jm_lane_new(const struct jm_lane_options *o, struct jm_lane **ret, struct jm_err *err)
{
	struct jm_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return jm_err_set(err, JM_ENOMEM, "Out of memory to sample %s.", o->source->name);
	lane->o = *o;
	lane->sink.give = collect;
	lane->sink.n = o->n_signals;
	lane->room = ring_room(o->n_signals);
	lane->poll_room = (size_t)o->n_signals + 1;
	lane->ring = reallocarray(NULL, lane->room, sizeof(*lane->ring));
	lane->poll = calloc(lane->poll_room, sizeof(*lane->poll));
	lane->signal = calloc((size_t)o->n_signals + 1, sizeof(*lane->signal));
	lane->sink.row = calloc((size_t)o->n_signals + 1, sizeof(*lane->sink.row));
	lane->last = calloc((size_t)o->n_signals + 1, sizeof(*lane->last));
	if (!lane->ring || !lane->poll || !lane->sink.row || !lane->signal || !lane->last) {
		jm_lane_free(lane);
		return jm_err_set(err, JM_ENOMEM, "Out of memory to sample %s.", o->source->name);
	}
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->changed, NULL);
	set_pace(lane);
	choose_awaited(lane);
	*ret = lane;
	return 0;
}

/* ---- in the lane's thread ---- */

static bool make_room(struct jm_lane *lane, size_t n)
{
	size_t room = lane->poll_room;
	struct jm_signal_reading *grown;

	if (lane->n_poll + n <= room)
		return true;
	while (room < lane->n_poll + n)
		room *= 2;
	grown = reallocarray(lane->poll, room, sizeof(*grown));
	if (!grown)
		return false;
	lane->poll = grown;
	lane->poll_room = room;
	return true;
}

/* Keeps the readings that do not fit into the sink's row. When memory runs out they are lost, and their
 * signal has a gap. */
static void collect(struct jm_sink *sink, int first, int n, const struct jm_reading *reading)
{
	struct jm_lane *lane =
		(struct jm_lane *)(void *)((char *)sink - offsetof(struct jm_lane, sink));

	if (first < 0 || n < 0 || first > lane->o.n_signals - n || !make_room(lane, (size_t)n))
		return;
	for (int i = 0; i < n; i++)
		lane->poll[lane->n_poll++] = (struct jm_signal_reading){first + i, reading[i]};
}

static void begin_poll(struct jm_lane *lane)
{
	lane->n_poll = 0;
	lane->sink.next = 0;
}

/* Copies n readings of the poll, from index `from` on: first come those of the sink's row, then those
 * that did not fit there. */
static void take(struct jm_lane *lane, size_t from, size_t n, struct jm_signal_reading *to)
{
	size_t row = (size_t)lane->sink.next, i = 0;
	int first = lane->o.first_signal;

	for (; i < n && from + i < row; i++) {
		const struct jm_reading *reading = &lane->sink.row[from + i];

		/* one by one, as they were just written: a copy of both at once would wait for that */
		to[i].reading.value = reading->value;
		to[i].reading.t_ns = reading->t_ns;
		to[i].signal = first + (int)(from + i);
		lane->last[from + i] = reading->value;
	}
	for (; i < n; i++) {
		to[i] = lane->poll[from + i - row];
		lane->last[to[i].signal] = to[i].reading.value;
		to[i].signal += first;
	}
}

/* Of n entries of the ring, from this one on: those before its end. */
static size_t in_one_piece(const struct jm_lane *lane, size_t from, size_t n)
{
	size_t piece = lane->room - (from & (lane->room - 1));

	return n < piece ? n : piece;
}

/* Writes the readings of the poll into the ring, as many at a time as there is room for. */
static void put_poll(struct jm_lane *lane)
{
	size_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
	size_t all = (size_t)lane->sink.next + lane->n_poll;

	for (size_t done = 0, n; done < all; done += n) {
		size_t tail = atomic_load_explicit(&lane->tail, memory_order_acquire);

		n = lane->room - (head - tail);
		if (!n)
			lane->o.full(lane->o.full_arg);
		n = in_one_piece(lane, head, n < all - done ? n : all - done);
		take(lane, done, n, &lane->ring[head & (lane->room - 1)]);
		head += n;
		atomic_store_explicit(&lane->head, head, memory_order_release);
	}
	begin_poll(lane);
}

/* Did the poll give a value? */
static bool knows_something(const struct jm_lane *lane)
{
	for (int i = 0; i < lane->sink.next; i++)
		if (!isnan(lane->sink.row[i].value))
			return true;
	for (size_t i = 0; i < lane->n_poll; i++)
		if (!isnan(lane->poll[i].reading.value))
			return true;
	return false;
}

static void put_nothing(struct jm_lane *lane, int64_t t_ns)
{
	begin_poll(lane);
	for (int i = 0; i < lane->o.n_signals; i++)
		jm_give(&lane->sink, i, NAN, t_ns);
	put_poll(lane);
}

static bool tell_source(struct jm_lane *lane, enum jm_edge edge)
{
	return lane->o.source->edge && lane->o.source->edge(lane->o.state, edge);
}

static void begin_edge(struct jm_lane *lane, int64_t now)
{
	lane->edge_until = now + lane->patience;
	for (int i = 0; i < lane->o.n_signals; i++)
		lane->signal[i].seen = lane->last[i];
}

/* Has every awaited signal changed since the edge, or failed? */
static bool edge_passed(struct jm_lane *lane, int64_t now)
{
	if (now >= lane->edge_until)
		return true;
	if (tell_source(lane, JM_EDGE_ON))
		return false;
	for (int i = 0; i < lane->o.n_signals; i++) {
		const struct lane_signal *signal = &lane->signal[i];

		if (signal->awaited && !isnan(lane->last[i]) && lane->last[i] == signal->seen)
			return false;
	}
	return true;
}

/* stop, edges: what had been requested before the poll, so that an edge begins with a reading after the
 * request. True: this was the last poll, because the edge of the stop has passed. */
static bool watch_edges(struct jm_lane *lane, int64_t now, bool stop, int edges)
{
	if (edges != lane->edges_seen) {
		lane->edges_seen = edges;
		begin_edge(lane, now);
		return false;
	}
	if (lane->edge_until && edge_passed(lane, now)) {
		lane->edge_until = 0;
		tell_source(lane, JM_EDGE_OVER);
	}
	return stop && !lane->edge_until;
}

static int read_source(struct jm_lane *lane)
{
	begin_poll(lane);
	return lane->o.source->read(lane->o.state, &lane->sink, &lane->err);
}

/* A gap is stamped after the last reading that is valid: the trace drops what is not later than that. */
static int read_lane(struct jm_lane *lane)
{
	int64_t before = lane->read_ns;
	int rc = read_source(lane);
	bool known = knows_something(lane);

	lane->read_ns = jm_ctx_now(lane->o.ctx);
	lane->silent = !known;
	if (before && lane->read_ns - before > lane->blind) {
		/* the values since the last reading are not known: a reading of NAN, then a new one
		 * unless the source has none */
		put_nothing(lane, before + 1);
		if (!rc && known)
			rc = read_source(lane);
	}
	put_poll(lane);
	if (rc)
		put_nothing(lane, jm_ctx_now(lane->o.ctx) + 1);
	return rc;
}

/* At the stop: a source that took longer than an edge would wait, and then had no value, is not awaited again. */
static bool gave_up(const struct jm_lane *lane, int64_t begin)
{
	return lane->silent && lane->read_ns - begin > lane->patience && atomic_load(&lane->stop);
}

static bool poll_once(struct jm_lane *lane, int64_t now)
{
	bool stop = atomic_load(&lane->stop);
	int edges = atomic_load(&lane->edges);

	if (edges != lane->edges_seen)
		tell_source(lane, JM_EDGE_BEGINS);
	lane->rc = read_lane(lane);
	return watch_edges(lane, now, stop, edges) || gave_up(lane, now);
}

static void tell_first(struct jm_lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->first = true;
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
}

/* After a permanent failure of a source its meters are unknown until the end. */
static void rest(struct jm_lane *lane)
{
	while (!atomic_load(&lane->stop))
		jm_sleep_until(&lane->sleeper, JM_FOREVER);
}

/* The next poll: on the deadline, soon at an edge, or when the source wants it. */
static int64_t next_poll(const struct jm_lane *lane, int64_t now, int64_t due)
{
	int64_t wanted = lane->o.source->due ? lane->o.source->due(lane->o.state) : JM_FOREVER;

	if (lane->edge_until && now + lane->fast < due)
		due = now + lane->fast;
	if (wanted < now + SOONEST)
		wanted = now + SOONEST;
	return wanted < due ? wanted : due;
}

static void *lane_main(void *arg)
{
	struct jm_lane *lane = arg;
	int64_t due = jm_ctx_now(lane->o.ctx);

	jm_locale_enter();
	for (;;) {
		int64_t now = jm_ctx_now(lane->o.ctx);
		bool last = poll_once(lane, now);

		if (!lane->first)
			tell_first(lane);
		if (lane->rc)
			rest(lane);
		if (last || lane->rc)
			break;
		if (due <= now) /* a missed deadline is left out, not made up for */
			due += ((now - due) / lane->interval + 1) * lane->interval;
		jm_sleep_until(&lane->sleeper, next_poll(lane, now, due));
	}
	lane->cpu_s = (double)jm_clock_thread() * 1e-9;
	pthread_mutex_lock(&lane->lock);
	lane->ended = true;
	pthread_mutex_unlock(&lane->lock);
	jm_sleeper_done(&lane->sleeper);
	return NULL;
}

/* ---- from other threads ---- */

int jm_lane_start(struct jm_lane *lane, struct jm_err *err)
{
	sigset_t all, before;
	int rc;

	jm_sleeper_init(&lane->sleeper, lane->o.ctx->clock);
	atomic_store(&lane->edges, 1); /* the start is one */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&lane->thread, NULL, lane_main, lane);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		jm_sleeper_done(&lane->sleeper);
		return jm_err_set(err, JM_ENOMEM, "Cannot start the thread that samples %s: %s.",
			lane->o.source->name, strerror(rc));
	}
	lane->started = true;
	return 0;
}

void jm_lane_await_first(struct jm_lane *lane, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / JM_SECOND;
	until.tv_nsec = ns % JM_SECOND;
	pthread_mutex_lock(&lane->lock);
	while (!lane->first &&
		!pthread_cond_clockwait(&lane->changed, &lane->lock, CLOCK_MONOTONIC, &until))
		;
	pthread_mutex_unlock(&lane->lock);
}

static void wake(struct jm_lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	if (lane->started && !lane->ended)
		jm_sleeper_wake(&lane->sleeper);
	pthread_mutex_unlock(&lane->lock);
}

void jm_lane_edge(struct jm_lane *lane)
{
	atomic_fetch_add(&lane->edges, 1);
	wake(lane);
}

/* The edge is asked for before the stop: a lane that sees the stop must see its edge too. */
void jm_lane_stop(struct jm_lane *lane)
{
	atomic_fetch_add(&lane->edges, 1);
	atomic_store(&lane->stop, true);
	wake(lane);
}

void jm_lane_join(struct jm_lane *lane)
{
	if (!lane->started)
		return;
	pthread_join(lane->thread, NULL);
	lane->started = false;
}

int jm_lane_drain(struct jm_lane *lane,
	int (*fn)(void *arg, struct jm_signal_reading *reading, size_t n, struct jm_err *err),
	void *arg, struct jm_err *err)
{
	size_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
	size_t head = atomic_load_explicit(&lane->head, memory_order_acquire);
	int rc = 0;

	for (size_t n; !rc && tail != head; tail += n) {
		n = in_one_piece(lane, tail, head - tail);
		rc = fn(arg, &lane->ring[tail & (lane->room - 1)], n, err);
	}
	atomic_store_explicit(&lane->tail, head, memory_order_release);
	return rc;
}

int jm_lane_result(const struct jm_lane *lane, struct jm_err *err)
{
	return lane->rc ? jm_err_set(err, lane->rc, "%s", lane->err.text) : 0;
}

double jm_lane_cpu(const struct jm_lane *lane)
{
	return lane->cpu_s;
}

void jm_lane_free(struct jm_lane *lane)
{
	if (!lane)
		return;
	free(lane->ring);
	free(lane->poll);
	free(lane->signal);
	free(lane->last);
	free(lane->sink.row);
	pthread_mutex_destroy(&lane->lock);
	pthread_cond_destroy(&lane->changed);
	free(lane);
}
