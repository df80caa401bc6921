/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler's readers: threads, rings, edges. */
#include "sampler.h"
#include "sampler_pace.h"
#include "base/text/locale.h"
#include "base/process/quiet_thread.h"
#include "base/ctx.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RING_POLLS 1024 /* of one reading per signal */
#define RING_BYTES (1 << 20)
#define RING_MIN   16			/* polls */
#define SOONEST	   (JM_MILLISECOND / 5) /* least time until a source is read again */
#define LOOK	   (JM_SECOND / 20)	/* between looks at the user's interrupts */
#define LEAVE	   (JM_SECOND / 2)	/* of one device; less than BLIND_MIN of sampler_pace.c */

struct reader_signal {
	bool awaited; /* an edge waits until it has changed */
	double seen;  /* at the edge's first poll */
};

struct jm_reader {
	struct jm_reader_options o;
	pthread_t thread;
	struct jm_sleeper sleeper;
	bool started;
	struct jm_reader_pace pace;
	int64_t read_ns; /* when the last reading had come; 0 = none yet */
	bool silent;	 /* the last poll gave no value */

	struct jm_signal_reading *ring;
	size_t room;
	_Atomic size_t head, tail; /* entries written, entries read */

	/* what the source gave in this poll: the sink's row, then what did not fit there */
	struct jm_sink sink;
	struct jm_signal_reading *poll;
	size_t n_poll, poll_room;

	_Atomic int edges;  /* edges requested so far */
	_Atomic int passed; /* and how many of them are over; INT_MAX = all there will be */
	_Atomic bool stop;
	int edges_seen;
	int64_t edge_until; /* 0 = not at an edge */
	struct reader_signal *signal;
	double *last; /* value of the newest reading of each signal */

	pthread_mutex_t lock; /* of these */
	pthread_cond_t changed;
	bool first, ended;
	int64_t call_ns; /* since when the source is being read; 0 = it is not */
	bool left;	 /* given up while it was */

	double cpu_s; /* set when the thread has ended */
	int rc;
	struct jm_err err;
};

/* What an edge waits for: of each meter its counter, unless the source watches that itself, or else
 * its power. */
static void choose_awaited(struct jm_reader *reader)
{
	const struct jm_meters *set = reader->o.set;

	for (int i = 0; i < reader->o.n_signals; i++) {
		const struct jm_signal *signal = &set->signal[reader->o.first_signal + i];
		int counter = jm_meter_signal(set, signal->meter, JM_Q_ENERGY);

		reader->signal[i].awaited =
			(signal->quantity == JM_Q_ENERGY && !reader->o.source->edge) ||
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

static void release(struct jm_reader *reader)
{
	free(reader->ring);
	free(reader->poll);
	free(reader->signal);
	free(reader->last);
	free(reader->sink.row);
	free(reader);
}

int jm_reader_new(const struct jm_reader_options *o, struct jm_reader **ret, struct jm_err *err)
{
	struct jm_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return jm_err_set(err, JM_ENOMEM, "Out of memory to sample %s.", o->source->name);
	reader->o = *o;
	reader->sink.give = collect;
	reader->sink.n = o->n_signals;
	reader->room = ring_room(o->n_signals);
	reader->poll_room = (size_t)o->n_signals + 1;
	reader->ring = reallocarray(NULL, reader->room, sizeof(*reader->ring));
	reader->poll = calloc(reader->poll_room, sizeof(*reader->poll));
	reader->signal = calloc((size_t)o->n_signals + 1, sizeof(*reader->signal));
	reader->sink.row = calloc((size_t)o->n_signals + 1, sizeof(*reader->sink.row));
	reader->last = calloc((size_t)o->n_signals + 1, sizeof(*reader->last));
	if (!reader->ring || !reader->poll || !reader->sink.row || !reader->signal ||
		!reader->last) {
		release(reader);
		return jm_err_set(err, JM_ENOMEM, "Out of memory to sample %s.", o->source->name);
	}
	pthread_mutex_init(&reader->lock, NULL);
	pthread_cond_init(&reader->changed, NULL);
	reader->pace = jm__reader_pace(o->set, o->first_signal, o->n_signals, o->interval_ns);
	choose_awaited(reader);
	*ret = reader;
	return 0;
}

/* ---- in the reader's thread ---- */

static bool make_room(struct jm_reader *reader, size_t n)
{
	size_t room = reader->poll_room;
	struct jm_signal_reading *grown;

	if (reader->n_poll + n <= room)
		return true;
	while (room < reader->n_poll + n)
		room *= 2;
	grown = reallocarray(reader->poll, room, sizeof(*grown));
	if (!grown)
		return false;
	reader->poll = grown;
	reader->poll_room = room;
	return true;
}

/* Keeps the readings that do not fit into the sink's row. When memory runs out they are lost, and
 * their signal has a gap. */
static void collect(struct jm_sink *sink, int first, int n, const struct jm_reading *reading)
{
	struct jm_reader *reader =
		(struct jm_reader *)(void *)((char *)sink - offsetof(struct jm_reader, sink));

	if (first < 0 || n < 0 || first > reader->o.n_signals - n || !make_room(reader, (size_t)n))
		return;
	for (int i = 0; i < n; i++)
		reader->poll[reader->n_poll++] = (struct jm_signal_reading){first + i, reading[i]};
}

static void begin_poll(struct jm_reader *reader)
{
	reader->n_poll = 0;
	reader->sink.next = 0;
}

/* Copies n readings of the poll, from index `from` on: first come those of the sink's row, then
 * those that did not fit there. */
static void take(struct jm_reader *reader, size_t from, size_t n, struct jm_signal_reading *to)
{
	size_t row = (size_t)reader->sink.next, i = 0;
	int first = reader->o.first_signal;

	for (; i < n && from + i < row; i++) {
		const struct jm_reading *reading = &reader->sink.row[from + i];

		/* one by one, as they were just written: a copy of both at once would wait for
		 * that */
		to[i].reading.value = reading->value;
		to[i].reading.t_ns = reading->t_ns;
		to[i].signal = first + (int)(from + i);
		reader->last[from + i] = reading->value;
	}
	for (; i < n; i++) {
		to[i] = reader->poll[from + i - row];
		reader->last[to[i].signal] = to[i].reading.value;
		to[i].signal += first;
	}
}

/* Of n entries of the ring, from this one on: those before its end. */
static size_t in_one_piece(const struct jm_reader *reader, size_t from, size_t n)
{
	size_t piece = reader->room - (from & (reader->room - 1));

	return n < piece ? n : piece;
}

/* Writes the readings of the poll into the ring, as many at a time as there is room for. */
static void put_poll(struct jm_reader *reader)
{
	size_t head = atomic_load_explicit(&reader->head, memory_order_relaxed);
	size_t all = (size_t)reader->sink.next + reader->n_poll;

	for (size_t done = 0, n; done < all; done += n) {
		size_t tail = atomic_load_explicit(&reader->tail, memory_order_acquire);

		n = reader->room - (head - tail);
		if (!n)
			reader->o.full(reader->o.full_arg);
		n = in_one_piece(reader, head, n < all - done ? n : all - done);
		take(reader, done, n, &reader->ring[head & (reader->room - 1)]);
		head += n;
		atomic_store_explicit(&reader->head, head, memory_order_release);
	}
	begin_poll(reader);
}

/* Did the poll give a value? */
static bool knows_something(const struct jm_reader *reader)
{
	for (int i = 0; i < reader->sink.next; i++)
		if (!isnan(reader->sink.row[i].value))
			return true;
	for (size_t i = 0; i < reader->n_poll; i++)
		if (!isnan(reader->poll[i].reading.value))
			return true;
	return false;
}

static void put_nothing(struct jm_reader *reader, int64_t t_ns)
{
	begin_poll(reader);
	for (int i = 0; i < reader->o.n_signals; i++)
		jm_give(&reader->sink, i, NAN, t_ns);
	put_poll(reader);
}

static bool tell_source(struct jm_reader *reader, enum jm_edge edge)
{
	return reader->o.source->edge && reader->o.source->edge(reader->o.state, edge);
}

static void begin_edge(struct jm_reader *reader, int64_t now)
{
	reader->edge_until = now + reader->pace.patience;
	for (int i = 0; i < reader->o.n_signals; i++)
		reader->signal[i].seen = reader->last[i];
}

/* Has every awaited signal changed since the edge, or failed? */
static bool edge_passed(struct jm_reader *reader, int64_t now)
{
	if (now >= reader->edge_until)
		return true;
	if (tell_source(reader, JM_EDGE_ON))
		return false;
	for (int i = 0; i < reader->o.n_signals; i++) {
		const struct reader_signal *signal = &reader->signal[i];

		if (signal->awaited && !isnan(reader->last[i]) && reader->last[i] == signal->seen)
			return false;
	}
	return true;
}

/* stop, edges: what had been requested before the poll, so that an edge begins with a reading after
 * the request. True: this was the last poll, because the edge of the stop has passed. */
static bool watch_edges(struct jm_reader *reader, int64_t now, bool stop, int edges)
{
	if (edges != reader->edges_seen) {
		reader->edges_seen = edges;
		begin_edge(reader, now);
		return false;
	}
	if (reader->edge_until && edge_passed(reader, now)) {
		reader->edge_until = 0;
		atomic_store(&reader->passed, edges);
		tell_source(reader, JM_EDGE_OVER);
	}
	return stop && !reader->edge_until;
}

/* call_ns: see struct jm_reader. True if the reader has been given up meanwhile. */
static bool note_call(struct jm_reader *reader, int64_t call_ns)
{
	bool left;

	pthread_mutex_lock(&reader->lock);
	reader->call_ns = call_ns;
	left = reader->left;
	pthread_mutex_unlock(&reader->lock);
	return left;
}

/* *ret_left: the reader has been given up meanwhile. */
static int read_source(struct jm_reader *reader, bool *ret_left)
{
	int rc;

	begin_poll(reader);
	note_call(reader, jm_clock_now(jm_clock_real()));
	rc = reader->o.source->read(reader->o.state, &reader->sink, &reader->err);
	*ret_left = note_call(reader, 0);
	return rc;
}

/* A gap is stamped after the last reading that is valid: the trace drops what is not later than
 * that. */
static int read_reader(struct jm_reader *reader, bool *ret_left)
{
	int64_t before = reader->read_ns;
	int rc = read_source(reader, ret_left);
	bool known = knows_something(reader);

	if (*ret_left)
		return 0;
	reader->read_ns = jm_ctx_now(reader->o.ctx);
	reader->silent = !known;
	if (before && reader->read_ns - before > reader->pace.blind) {
		/* the values since the last reading are not known: a reading of NAN, then a new one
		 * unless the source has none */
		put_nothing(reader, before + 1);
		if (!rc && known)
			rc = read_source(reader, ret_left);
		if (*ret_left)
			return 0;
	}
	put_poll(reader);
	if (rc)
		put_nothing(reader, jm_ctx_now(reader->o.ctx) + 1);
	return rc;
}

/* At the stop a source that took longer than an edge waits, for no value, is awaited no more. */
static bool gave_up(const struct jm_reader *reader, int64_t begin)
{
	return reader->silent && reader->read_ns - begin > reader->pace.patience &&
	       atomic_load(&reader->stop);
}

/* True: this was the last poll. */
static bool poll_once(struct jm_reader *reader, int64_t now, bool *ret_left)
{
	bool stop = atomic_load(&reader->stop);
	int edges = atomic_load(&reader->edges), rc;

	if (edges != reader->edges_seen)
		tell_source(reader, JM_EDGE_BEGINS);
	rc = read_reader(reader, ret_left);
	if (*ret_left)
		return true;
	reader->rc = rc;
	return watch_edges(reader, now, stop, edges) || gave_up(reader, now);
}

static void tell_first(struct jm_reader *reader)
{
	pthread_mutex_lock(&reader->lock);
	reader->first = true;
	pthread_cond_broadcast(&reader->changed);
	pthread_mutex_unlock(&reader->lock);
}

/* After a permanent failure of a source its meters are unknown until the end. */
static void rest(struct jm_reader *reader)
{
	atomic_store(&reader->passed, INT_MAX);
	while (!atomic_load(&reader->stop))
		jm_sleep_until(&reader->sleeper, JM_FOREVER);
}

/* The next poll: on the deadline, soon at an edge, or when the source wants it. */
static int64_t next_poll(const struct jm_reader *reader, int64_t now, int64_t due)
{
	int64_t wanted =
		reader->o.source->due ? reader->o.source->due(reader->o.state) : JM_FOREVER;

	if (reader->edge_until && now + reader->pace.fast < due)
		due = now + reader->pace.fast;
	if (wanted < now + SOONEST)
		wanted = now + SOONEST;
	return wanted < due ? wanted : due;
}

static void *reader_main(void *arg)
{
	struct jm_reader *reader = arg;
	int64_t due = jm_ctx_now(reader->o.ctx);

	jm_locale_enter();
	put_poll(reader); /* what a poll that was given up had collected */
	for (;;) {
		int64_t now = jm_ctx_now(reader->o.ctx);
		bool left = false, last = poll_once(reader, now, &left);

		if (left)
			return NULL;
		if (!reader->first)
			tell_first(reader);
		if (reader->rc)
			rest(reader);
		if (last || reader->rc)
			break;
		if (due <= now) /* a missed deadline is left out, not made up for */
			due += ((now - due) / reader->pace.interval + 1) * reader->pace.interval;
		jm_sleep_until(&reader->sleeper, next_poll(reader, now, due));
	}
	pthread_mutex_lock(&reader->lock);
	reader->cpu_s += (double)jm_clock_thread() * 1e-9;
	reader->ended = true;
	pthread_cond_broadcast(&reader->changed);
	pthread_mutex_unlock(&reader->lock);
	jm_sleeper_done(&reader->sleeper);
	return NULL;
}

/* ---- from other threads ---- */

int jm_reader_start(struct jm_reader *reader, struct jm_err *err)
{
	int rc;

	jm_sleeper_init(&reader->sleeper, reader->o.ctx->clock);
	atomic_store(&reader->edges, 1); /* the start is one */
	pthread_mutex_lock(&reader->lock);
	rc = jm_quiet_thread(&reader->thread, reader_main, reader);
	pthread_mutex_unlock(&reader->lock);
	if (rc) {
		jm_sleeper_done(&reader->sleeper);
		return jm_err_set(err, JM_ENOMEM, "Cannot start the thread that samples %s: %s.",
			reader->o.source->name, strerror(rc));
	}
	reader->started = true;
	return 0;
}

void jm_reader_await_first(struct jm_reader *reader, int64_t ns)
{
	struct timespec until = jm_clock_from_now(ns);

	pthread_mutex_lock(&reader->lock);
	while (!reader->first &&
		!pthread_cond_clockwait(&reader->changed, &reader->lock, CLOCK_MONOTONIC, &until))
		;
	pthread_mutex_unlock(&reader->lock);
}

static void wake(struct jm_reader *reader)
{
	pthread_mutex_lock(&reader->lock);
	if (reader->started && !reader->ended)
		jm_sleeper_wake(&reader->sleeper);
	pthread_mutex_unlock(&reader->lock);
}

void jm_reader_edge(struct jm_reader *reader)
{
	atomic_fetch_add(&reader->edges, 1);
	wake(reader);
}

bool jm_reader_edge_passed(const struct jm_reader *reader)
{
	return atomic_load(&reader->passed) >= atomic_load(&reader->edges);
}

/* The edge is asked for before the stop: a reader that sees the stop must see its edge too. */
void jm_reader_stop(struct jm_reader *reader)
{
	atomic_fetch_add(&reader->edges, 1);
	atomic_store(&reader->stop, true);
	wake(reader);
}

static double cpu_of(pthread_t thread)
{
	clockid_t of_thread;
	struct timespec spent;

	if (pthread_getcpuclockid(thread, &of_thread) || clock_gettime(of_thread, &spent))
		return 0;
	return (double)spent.tv_sec + (double)spent.tv_nsec * 1e-9;
}

/* With the lock held. Another thread reads a source that can give up the device in a long call. */
static void leave_call(struct jm_reader *reader)
{
	const struct jm_source *source = reader->o.source;
	int64_t since = jm_clock_now(jm_clock_real()) - LEAVE;
	pthread_t before = reader->thread;

	if (!source->leave || reader->left || !reader->call_ns || reader->call_ns >= since ||
		!source->leave(reader->o.state, since))
		return;
	if (jm_quiet_thread(&reader->thread, reader_main, reader)) {
		reader->thread = before;
		reader->left = true;
		return;
	}
	reader->call_ns = 0;
	reader->cpu_s += cpu_of(before);
	pthread_detach(before);
}

void jm_reader_look(struct jm_reader *reader)
{
	pthread_mutex_lock(&reader->lock);
	leave_call(reader);
	pthread_mutex_unlock(&reader->lock);
}

static bool is_late(const struct jm_reader *reader, int64_t until_ns)
{
	const volatile int *interrupts = reader->o.ctx->interrupts;

	return (interrupts && *interrupts > 1) || jm_clock_now(jm_clock_real()) >= until_ns;
}

/* Until it has ended, or is given up: only while the source is being read, which is all that may
 * last. */
static bool await_end(struct jm_reader *reader, int64_t until_ns)
{
	pthread_mutex_lock(&reader->lock);
	while (!reader->ended && !reader->left) {
		struct timespec until = jm_clock_from_now(LOOK);

		pthread_cond_clockwait(&reader->changed, &reader->lock, CLOCK_MONOTONIC, &until);
		leave_call(reader);
		reader->left = reader->left ||
			       (!reader->ended && reader->call_ns && is_late(reader, until_ns));
	}
	pthread_mutex_unlock(&reader->lock);
	return !reader->left;
}

bool jm_reader_join(struct jm_reader *reader, int64_t until_ns)
{
	if (!reader->started)
		return !reader->left;
	reader->started = false;
	if (await_end(reader, until_ns)) {
		pthread_join(reader->thread, NULL);
		return true;
	}
	reader->cpu_s += cpu_of(reader->thread);
	pthread_detach(reader->thread);
	return false;
}

int64_t jm_reader_last(const struct jm_reader *reader)
{
	return reader->read_ns;
}

int jm_reader_drain(struct jm_reader *reader,
	int (*fn)(void *arg, struct jm_signal_reading *reading, size_t n, struct jm_err *err),
	void *arg, struct jm_err *err)
{
	size_t tail = atomic_load_explicit(&reader->tail, memory_order_relaxed);
	size_t head = atomic_load_explicit(&reader->head, memory_order_acquire);
	int rc = 0;

	for (size_t n; !rc && tail != head; tail += n) {
		n = in_one_piece(reader, tail, head - tail);
		rc = fn(arg, &reader->ring[tail & (reader->room - 1)], n, err);
	}
	atomic_store_explicit(&reader->tail, head, memory_order_release);
	return rc;
}

int jm_reader_result(const struct jm_reader *reader, struct jm_err *err)
{
	if (reader->left)
		return jm_err_set(err, JM_EIO,
			"The driver does not return from a reading that began %.1f s ago; see the "
			"kernel's log. What its meters have used since then is unknown.",
			(double)(jm_clock_now(jm_clock_real()) - reader->call_ns) * 1e-9);
	return reader->rc ? jm_err_set(err, reader->rc, "%s", reader->err.text) : 0;
}

double jm_reader_cpu(const struct jm_reader *reader)
{
	return reader->cpu_s;
}

void jm_reader_free(struct jm_reader *reader)
{
	if (!reader || reader->left)
		return;
	pthread_mutex_destroy(&reader->lock);
	pthread_cond_destroy(&reader->changed);
	release(reader);
}
