/* SPDX-License-Identifier: Apache-2.0 */
/* A session: its sources, its writer, its phases. */
#include "session_private.h"
#include "sensors_file.h"
#include "base/text/locale.h"
#include "base/process/quiet_thread.h"
#include "base/ctx.h"
#include "source_calls.h"
#include "base/printable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WRITE_EVERY (250 * JM_MILLISECOND)
#define FLUSH_EVERY 4 /* writes: once a second */
#define DRIFT	    (JM_MILLISECOND / 10)
#define FIRST_READ  (5 * JM_MILLISECOND) /* all sources together */
#define FAR_READ    (1 * JM_SECOND)	 /* one that answers over a network */

/* ---- opening ---- */

static int open_source(struct jm_session *s, const struct jm_source *source, const char *options,
	struct jm_err *err)
{
	struct jm_open_source *grown =
		reallocarray(s->source, (size_t)s->n_sources + 1, sizeof(*grown));
	struct jm_open_source opened = {.source = source, .first_signal = s->set.n_signals};
	int rc;

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory to open %s.", source->name);
	s->source = grown;
	rc = jm__source_open(s->ctx, source, options, &s->set, &opened.state, err);
	if (rc)
		return rc;
	opened.n_signals = s->set.n_signals - opened.first_signal;
	s->source[s->n_sources++] = opened;
	return 0;
}

/* A source that is still in a call stays, with the context that it uses. */
static void close_source(struct jm_session *s, struct jm_open_source *open)
{
	if (open->left || jm__source_waits(&open->uses_left) ||
		(open->source->waits && open->source->waits(open->state)))
		s->ctx->n_left++;
	else
		open->source->close(open->state);
}

static void close_last(struct jm_session *s, int n_meters)
{
	struct jm_open_source *last = &s->source[--s->n_sources];

	close_source(s, last);
	jm_meters_cut(&s->set, n_meters, last->first_signal);
}

/* "name" or "name:options" */
static int open_named(struct jm_session *s, const char *text, struct jm_err *err)
{
	const char *colon = strchrnul(text, ':');
	const struct jm_source *source;
	char name[64];

	if (colon - text >= (ptrdiff_t)sizeof(name))
		return jm_err_set(err, JM_EUSAGE, "'%s' is not the name of a source.", text);
	snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
	source = jm__source_find(s->options.table, name, err);
	if (!source)
		return err ? err->code : JM_EUSAGE;
	return open_source(s, source, *colon ? colon + 1 : "", err);
}

/* Is there anything among the meters from `first` on that no measured meter covers? */
static bool adds_something(struct jm_session *s, int first)
{
	jm_meters_derive(&s->set);
	for (int i = first; i < s->set.n; i++) {
		int above = s->set.meter[i].covered_by;

		while (above >= first)
			above = s->set.meter[above].covered_by;
		if (above < 0)
			return true;
	}
	return false;
}

static void open_if_it_opens(struct jm_session *s, const struct jm_source *source)
{
	struct jm_err err = JM_ERR_INIT;
	int n = s->set.n;

	if (open_source(s, source, "", &err)) {
		/* no warning of a source that is absent or unsupported, only of one that fails */
		bool absent = err.code == JM_ENOENT || err.code == JM_ENOSUP;

		jm_log(s->ctx, absent ? JM_DEBUG : JM_WARNING, "%s: %s", source->name, err.text);
		return;
	}
	if (source->origin != JM_ESTIMATED)
		return;
	if (!adds_something(s, n)) {
		close_last(s, n);
		return;
	}
	jm_log(s->ctx, JM_WARNING,
		"No sensor measures the whole processor, so '%s' estimates its power; 'joulemark "
		"doctor' shows the reason.",
		source->name);
}

static int open_default(struct jm_session *s, struct jm_err *err)
{
	static const enum jm_origin order[] = {JM_MEASURED, JM_ESTIMATED};
	const struct jm_source *const *table = s->options.table ? s->options.table : jm_sources;

	for (size_t pass = 0; pass < sizeof(order) / sizeof(order[0]); pass++)
		for (int i = 0; table[i]; i++)
			if (table[i]->origin == order[pass] && !table[i]->on_request)
				open_if_it_opens(s, table[i]);
	if (s->n_sources)
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"No power source is available; 'joulemark doctor' shows the reason.");
}

static int open_all(struct jm_session *s, struct jm_err *err)
{
	int rc = 0;

	if (!s->options.sources)
		return open_default(s, err);
	for (int i = 0; !rc && s->options.sources[i]; i++)
		rc = open_named(s, s->options.sources[i], err);
	return rc;
}

/* A reader's ring is full: its thread empties all rings itself. */
static void empty_rings(void *arg)
{
	struct jm_session *s = arg;

	pthread_mutex_lock(&s->lock);
	jm__session_drain(s);
	pthread_mutex_unlock(&s->lock);
}

static int make_readers(struct jm_session *s, struct jm_err *err)
{
	int rc = 0;

	for (int i = 0; !rc && i < s->n_sources; i++) {
		struct jm_open_source *open = &s->source[i];
		struct jm_reader_options o = {
			.ctx = s->ctx,
			.source = open->source,
			.state = open->state,
			.set = &s->set,
			.first_signal = open->first_signal,
			.n_signals = open->n_signals,
			.interval_ns = s->options.interval_ns,
			.full = empty_rings,
			.full_arg = s,
		};

		rc = jm_reader_new(&o, &open->reader, err);
	}
	return rc;
}

static int make_newest(struct jm_session *s, struct jm_err *err)
{
	s->newest = calloc((size_t)s->set.n_signals + 1, sizeof(*s->newest));
	if (!s->newest)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the readings of a session.");
	for (int i = 0; i < s->set.n_signals; i++)
		s->newest[i].value = NAN;
	return 0;
}

static int use_calibration(struct jm_session *s, struct jm_err *err)
{
	s->delay_ns = calloc((size_t)s->set.n_signals + 1, sizeof(*s->delay_ns));
	if (!s->delay_ns)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the sensors of a session.");
	if (!s->options.as_declared)
		jm_sensors_apply(s->ctx, &s->set, s->delay_ns);
	for (int i = 0; i < s->set.n_signals; i++)
		s->delayed = s->delayed || s->delay_ns[i];
	return 0;
}

int jm_session_open(struct jm_ctx *ctx, const struct jm_session_options *options,
	struct jm_session **ret, struct jm_err *err)
{
	struct jm_session *s = calloc(1, sizeof(*s));
	struct jm_err local = JM_ERR_INIT;
	int rc;

	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a session.");
	s->ctx = ctx;
	s->options = *options;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->phase_lock, NULL);
	pthread_cond_init(&s->finish, NULL);
	rc = open_all(s, &local);
	if (!rc)
		rc = use_calibration(s, &local);
	if (!rc) {
		jm_meters_derive(&s->set);
		s->trace = jm_trace_new(&s->set, &local);
		rc = s->trace ? make_newest(s, &local) : JM_ENOMEM;
	}
	if (!rc)
		rc = make_readers(s, &local);
	if (rc) {
		jm_session_close(s);
		return jm_err_set(err, rc, "%s", local.text);
	}
	*ret = s;
	return 0;
}

const struct jm_meters *jm_session_meters(const struct jm_session *s)
{
	return &s->set;
}

/* ---- the writer ---- */

static void keep_newest(struct jm_session *s, const struct jm_signal_reading *reading, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s->newest[reading[i].signal] = reading[i].reading;
}

static int keep(void *arg, struct jm_signal_reading *reading, size_t n, struct jm_err *err)
{
	struct jm_session *s = arg;

	for (size_t i = 0; s->delayed && i < n; i++)
		reading[i].reading.t_ns -= s->delay_ns[reading[i].signal];
	for (size_t i = 0; s->options.on_reading && i < n; i++)
		s->options.on_reading(
			s->options.on_reading_arg, reading[i].signal, reading[i].reading);
	if (!s->options.no_trace)
		return jm_trace_append_all(s->trace, reading, n, err);
	keep_newest(s, reading, n);
	return 0;
}

/* With the lock held. The first error is kept; later readings are taken and lost. */
int jm__session_drain(struct jm_session *s)
{
	int rc = 0;

	for (int i = 0; i < s->n_sources; i++)
		rc = jm_reader_drain(s->source[i].reader, keep, s, &s->err) ? JM_EIO : rc;
	if (rc && !s->rc)
		s->rc = s->err.code ? s->err.code : rc;
	return rc;
}

static int hand_out(void *arg, const struct jm_chunk *chunk, struct jm_err *err)
{
	struct jm_session *s = arg;

	return s->options.on_chunk(s->options.on_chunk_arg, chunk, err);
}

static void take_moment(struct jm_session *s)
{
	struct jm_moment now = {jm_ctx_now(s->ctx), jm_clock_wall(s->ctx->clock)};
	struct jm_moment *grown;

	if (s->n_moments) {
		const struct jm_moment *last = &s->moment[s->n_moments - 1];
		int64_t drift = (now.wall_ns - now.t_ns) - (last->wall_ns - last->t_ns);

		if (llabs(drift) <= DRIFT)
			return;
	}
	grown = reallocarray(s->moment, (size_t)s->n_moments + 1, sizeof(*grown));
	if (!grown)
		return;
	s->moment = grown;
	grown[s->n_moments++] = now;
}

/* With the lock held. */
static void flush(struct jm_session *s)
{
	if (!s->options.no_trace)
		take_moment(s);
	if (!s->options.on_chunk || s->rc)
		return;
	s->rc = jm_trace_flush(s->trace, hand_out, s, &s->err);
}

/* Waits in real time, also where the clock is simulated: rings fill at the machine's pace. The
 * machine's wall clock may be set meanwhile. */
static void wait_for_finish(struct jm_session *s)
{
	struct timespec until = jm_clock_from_now(WRITE_EVERY);

	while (!s->finishing &&
		!pthread_cond_clockwait(&s->finish, &s->lock, CLOCK_MONOTONIC, &until))
		;
}

static void *writer_main(void *arg)
{
	struct jm_session *s = arg;

	jm_locale_enter();
	pthread_mutex_lock(&s->lock);
	for (int i = 1; !s->finishing; i++) {
		wait_for_finish(s);
		for (int k = 0; k < s->n_sources; k++)
			jm_reader_look(s->source[k].reader);
		jm__session_drain(s);
		if (i % FLUSH_EVERY == 0)
			flush(s);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start_writer(struct jm_session *s, struct jm_err *err)
{
	int rc = jm_quiet_thread(&s->writer, writer_main, s);

	if (rc)
		return jm_err_set(err, JM_ENOMEM,
			"Cannot start the thread that stores readings: %s.", strerror(rc));
	return 0;
}

static void stop_writer(struct jm_session *s)
{
	pthread_mutex_lock(&s->lock);
	s->finishing = true;
	pthread_cond_signal(&s->finish);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->writer, NULL);
}

/* ---- running ---- */

static void announce(struct jm_session *s)
{
	for (int i = 0; i < s->n_sources && !s->announced; i++)
		if (s->source[i].reader)
			jm_reader_stop(s->source[i].reader);
	s->announced = true;
}

static void stop_readers(struct jm_session *s)
{
	int64_t until;

	announce(s);
	until = jm_clock_now(jm_clock_real()) + JM_DRIVER_LIMIT_NS;
	for (int i = 0; i < s->n_sources; i++) {
		struct jm_open_source *open = &s->source[i];

		if (open->reader)
			open->left = !jm_reader_join(
				open->reader, open->source->keeps_time ? JM_FOREVER : until);
	}
}

/* Of sources that were given up: their readings end in a gap. After stop_writer. */
static void end_in_gaps(struct jm_session *s)
{
	for (int i = 0; i < s->n_sources && !s->rc; i++) {
		const struct jm_open_source *open = &s->source[i];
		int64_t last_ns = open->left ? jm_reader_last(open->reader) : 0;

		for (int k = 0; open->left && k < open->n_signals; k++) {
			struct jm_signal_reading gap = {
				open->first_signal + k, {NAN, last_ns ? last_ns + 1 : s->start_ns}};

			if (keep(s, &gap, 1, &s->err))
				s->rc = s->err.code;
		}
	}
}

int jm_session_start(struct jm_session *s, struct jm_err *err)
{
	int rc;

	if (s->started)
		return jm_err_set(err, JM_EBUG, "This session was started before.");
	s->start_ns = jm_ctx_now(s->ctx);
	take_moment(s);
	rc = start_writer(s, err);
	if (rc)
		return rc;
	for (int i = 0; !rc && i < s->n_sources; i++)
		rc = jm_reader_start(s->source[i].reader, err);
	if (rc) {
		stop_readers(s);
		stop_writer(s);
		return rc;
	}
	s->started = true;
	for (int i = 0; i < s->n_sources; i++)
		jm_reader_await_first(s->source[i].reader,
			s->source[i].source->on_request ? FAR_READ : FIRST_READ / s->n_sources);
	return 0;
}

int64_t jm_session_began(const struct jm_session *s)
{
	return s->start_ns;
}

void jm_session_edge(struct jm_session *s)
{
	for (int i = 0; s->started && i < s->n_sources; i++)
		jm_reader_edge(s->source[i].reader);
}

int jm_session_begin(struct jm_session *s, const char *name, int64_t t_ns, struct jm_err *err)
{
	struct jm_phase phase = {
		.t0_ns = t_ns ? t_ns : jm_ctx_now(s->ctx),
		.t1_ns = JM_FOREVER,
		.items = NAN,
	};
	struct jm_phase *grown;
	int index = JM_ENOMEM;

	snprintf(phase.name, sizeof(phase.name), "%s", name);
	jm_text_tame(phase.name);
	pthread_mutex_lock(&s->phase_lock);
	grown = reallocarray(s->phase, (size_t)s->n_phases + 1, sizeof(*grown));
	if (grown) {
		s->phase = grown;
		index = s->n_phases++;
		grown[index] = phase;
	}
	pthread_mutex_unlock(&s->phase_lock);
	if (index < 0)
		return jm_err_set(err, index, "Out of memory for phase '%s'.", name);
	jm_session_edge(s);
	return index;
}

void jm_session_end(struct jm_session *s, int phase, int64_t t_ns)
{
	pthread_mutex_lock(&s->phase_lock);
	if (phase >= 0 && phase < s->n_phases)
		s->phase[phase].t1_ns = t_ns ? t_ns : jm_ctx_now(s->ctx);
	pthread_mutex_unlock(&s->phase_lock);
	jm_session_edge(s);
}

void jm_session_credit(struct jm_session *s, int phase, double items)
{
	pthread_mutex_lock(&s->phase_lock);
	if (phase >= 0 && phase < s->n_phases && isfinite(items)) {
		double *sum = &s->phase[phase].items;

		*sum = isnan(*sum) ? items : *sum + items;
	}
	pthread_mutex_unlock(&s->phase_lock);
}

void jm_session_forget_items(struct jm_session *s)
{
	pthread_mutex_lock(&s->phase_lock);
	for (int i = 0; i < s->n_phases; i++)
		s->phase[i].items = NAN;
	pthread_mutex_unlock(&s->phase_lock);
}

static void warn_of_dead_sources(struct jm_session *s)
{
	for (int i = 0; i < s->n_sources; i++) {
		struct jm_err err = JM_ERR_INIT;

		if (jm_reader_result(s->source[i].reader, &err))
			jm_log(s->ctx, JM_WARNING, "%s: %s", s->source[i].source->name, err.text);
	}
}

void jm_session_announce_stop(struct jm_session *s)
{
	if (s->started && !s->stopped)
		announce(s);
}

int jm_session_stop(struct jm_session *s, struct jm_err *err)
{
	int64_t now = jm_ctx_now(s->ctx);

	if (!s->started || s->stopped)
		return jm_err_set(err, JM_EBUG, "This session is not running.");
	s->stopped = true;
	for (int i = 0; i < s->n_phases; i++)
		if (s->phase[i].t1_ns == JM_FOREVER)
			s->phase[i].t1_ns = now;
	stop_readers(s);
	stop_writer(s);
	jm__session_drain(s);
	end_in_gaps(s);
	flush(s);
	warn_of_dead_sources(s);
	return s->rc ? jm_err_set(err, s->rc, "%s", s->err.text) : 0;
}

int jm_session_energy(
	struct jm_session *s, int meter, int phase, struct jm_energy *ret, struct jm_err *err)
{
	if (phase < 0 || phase >= s->n_phases)
		return jm_err_set(err, JM_EBUG, "There is no phase %d.", phase);
	return jm_energy_of(
		s->trace, &s->set, meter, s->phase[phase].t0_ns, s->phase[phase].t1_ns, ret, err);
}

int jm_session_energy_now(struct jm_session *s, int meter, int64_t t0_ns, int64_t t1_ns,
	struct jm_energy *ret, struct jm_err *err)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	jm__session_drain(s);
	rc = s->rc ? jm_err_set(err, s->rc, "%s", s->err.text)
		   : jm_energy_of(s->trace, &s->set, meter, t0_ns, t1_ns, ret, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

struct jm_reading jm_session_newest(struct jm_session *s, int signal)
{
	struct jm_reading newest;

	pthread_mutex_lock(&s->lock);
	jm__session_drain(s);
	newest = s->options.no_trace ? s->newest[signal] : jm_trace_newest(s->trace, signal);
	pthread_mutex_unlock(&s->lock);
	return newest;
}

const struct jm_trace *jm_session_trace(const struct jm_session *s)
{
	return s->trace;
}

const struct jm_phase *jm_session_phases(const struct jm_session *s, int *ret_n)
{
	*ret_n = s->n_phases;
	return s->phase;
}

void jm_session_close(struct jm_session *s)
{
	if (!s)
		return;
	if (s->started && !s->stopped) {
		stop_readers(s);
		stop_writer(s);
	}
	for (int i = 0; i < s->n_sources; i++) {
		jm_reader_free(s->source[i].reader);
		close_source(s, &s->source[i]);
	}
	jm_trace_free(s->trace);
	jm_meters_done(&s->set);
	free(s->source);
	free(s->moment);
	free(s->newest);
	free(s->delay_ns);
	free(s->phase);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->phase_lock);
	pthread_cond_destroy(&s->finish);
	free(s);
}
