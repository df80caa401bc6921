/* SPDX-License-Identifier: Apache-2.0 */
/* Native work in a worker: setup, warm-up, steady, verify, each a phase; then its teardown. */
#include "worker_native.h"
#include "run/gang/frame.h"
#include "run/gang/gang_meeting.h"
#include "run/gang/launcher.h"
#include "run/workload.h"
#include "step_series.h"
#include "worker_affinity.h"
#include "worker_device.h"
#include "worker_lengths.h"
#include "worker_orders.h"
#include "worker_pace.h"
#include "worker_phases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SELFTEST_S 0.2

struct native {
	const struct jm_workload *workload;
	struct jm_work work;
	struct jm_values values;
	void *state;
	/* when to stop */
	struct jm__lengths length;
	int epoch; /* the phase that is open; -1 = none */
	/* what came of it; sums over the steady steps */
	double items, flops_model, flops_executed, bytes, loss_first, loss_last;
	double elapsed_s;
	long n_warm, n_steady;
	long under_way;	     /* steps that were begun and are not done */
	char device[64];     /* of this rank */
	char peer[64];	     /* the devices after the first, if there is one rank */
	struct jm_meet meet; /* of ranks on several hosts */
	int64_t device_ns;   /* when the last one was done, by the device's clock; 0 = unknown */
	struct jm__pace pace;
	struct jm__heat heat;
	struct jm_step_series *series;
	int series_phase; /* that its last step belongs to; -1 = none */
};

/* Rows that an option adds must be known before the values, because values may belong to them. */
static int add_chosen(struct native *n, const json_t *options, struct jm_err *err)
{
	const char *chooser = n->workload->chooser, *choice;
	const struct jm_option *rows;
	int rc = 0;

	if (!chooser)
		return 0;
	choice = json_string_value(json_object_get(options, chooser));
	if (choice)
		rc = jm_values_set(&n->values, chooser, choice, err);
	if (!rc)
		rc = n->workload->chosen_options(jm_values_text(&n->values, chooser), &rows, err);
	return rc ? rc : jm_values_add(&n->values, rows, err);
}

static int read_options(const struct jm__worker *w, struct native *n, struct jm_err *err)
{
	const char *name;
	json_t *value;
	json_t *options = json_object_get(w->parameters, "options");
	int rc = jm_values_init(&n->values, n->workload->options, err);

	if (!rc)
		rc = jm_values_add(&n->values, jm_soft_options, err);
	if (!rc)
		rc = add_chosen(n, options, err);
	if (rc)
		return rc;
	json_object_foreach(options, name, value)
	{
		rc = jm_values_set(&n->values, name, json_string_value(value), err);
		if (rc)
			return rc;
	}
	jm__lengths_read(w->parameters, &n->length, err);
	return err->code;
}

static double selftest_of(const struct jm__worker *w)
{
	double given = jm_json_real(json_object_get(json_object_get(w->job, "how"), "selftest_s"));

	return isnan(given) ? SELFTEST_S : given;
}

static const char *peer_of(struct native *n, const char *list, int world)
{
	const char *comma = list && world < 2 ? strchr(list, ',') : NULL;

	if (!comma)
		return NULL;
	snprintf(n->peer, sizeof(n->peer), "%s", comma + 1);
	return n->peer;
}

static void name_run(const struct jm__worker *w, struct jm_work *work)
{
	const json_t *c = json_object_get(w->job, "case");

	if (json_is_true(json_object_get(w->job, "several")))
		snprintf(work->run, sizeof(work->run), "%.8s-%d", jm_json_text(c, "id"),
			(int)json_integer_value(json_object_get(c, "repeat")));
}

static int keep(void *arg, pid_t pid, struct jm_err *err)
{
	struct jm__worker *w = arg;
	json_t *json = json_pack("{s:i}", "pid", (int)pid);
	int rc;

	pthread_mutex_lock(&w->lock);
	rc = jm_frame_write_json(w->fd, JM_FRAME_KEEP, json, err);
	pthread_mutex_unlock(&w->lock);
	json_decref(json);
	return rc;
}

static bool was_stopped(void *arg)
{
	struct jm__worker *w = arg;

	jm__worker_take_orders(w);
	return w->stop;
}

static int setup(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	const json_t *p = w->parameters, *kept = json_object_get(w->job, "kept");
	int phase = jm__worker_begin(w, "setup", err), rc;

	if (phase < 0)
		return phase;
	n->work = (struct jm_work){
		.ctx = w->ctx,
		.sleeper = &w->sleeper,
		.options = &n->values,
		.device = jm__device_of_rank(json_string_value(json_object_get(p, "device")),
			w->rank, n->device, sizeof(n->device)),
		.peer = peer_of(n, json_string_value(json_object_get(p, "device")), w->world),
		.precision = json_string_value(json_object_get(p, "precision")),
		.seed = (uint64_t)json_integer_value(
			json_object_get(json_object_get(w->job, "case"), "seed")),
		.rank = w->rank,
		.world = w->world,
		.local = jm__worker_sharing(w),
		.gang_fd = w->world > 1 ? JM_WORKER_GANG : -1,
		.meet = jm_gang_meeting_read(json_object_get(w->job, "gang"),
				w->rank ? -1 : JM_WORKER_GANG, &n->meet)
				? &n->meet
				: NULL,
		.selftest_s = selftest_of(w),
		.warm_s = n->length.warm_s,
		.steady_s = n->length.seconds,
		.by_epochs = jm__lengths_by_epochs(p),
		.given_epoch_steps = jm__lengths_by_epochs(p) ? 0 : n->length.epoch_steps,
		.kept = (pid_t)json_integer_value(kept),
		.keep = kept ? keep : NULL,
		.keep_arg = w,
		.stopped = was_stopped,
		.stopped_arg = w,
		.n_devices = 1,
		.more = json_object(),
	};
	snprintf(n->work.own.host, sizeof(n->work.own.host), "%s",
		jm_json_text(json_object_get(w->job, "gang"), "host"));
	name_run(w, &n->work);
	rc = n->workload->setup(&n->work, &n->state, err);
	if (n->work.unit)
		w->unit = n->work.unit;
	jm__worker_own(w, &n->work);
	jm__worker_end(w, phase);
	return rc;
}

/* When a step was done: by the device's clock, or the host's where the device works in this thread;
 * where neither is known, when the host noticed. */
static void note_step(struct jm__worker *w, struct native *n, int phase, const struct jm_step *step)
{
	int64_t now = jm_ctx_now(w->ctx), t = now;
	int n_phases;

	if (phase != n->series_phase)
		jm_step_series_begin(
			n->series, jm_session_phases(w->session, &n_phases)[phase].t0_ns);
	n->series_phase = phase;
	if (step->device_ns && w->alignment.n)
		t = jm_alignment_host(&w->alignment, step->device_ns);
	else if (step->host_ns && !jm_clock_simulated(w->ctx->clock))
		t = step->host_ns;
	jm_step_series_add(n->series, t < now ? t : now, step->items, step->loss);
}

/* Adds the result of a finished step to the open phase. */
static void count(struct jm__worker *w, struct native *n, int phase, const struct jm_step *step)
{
	jm__worker_credit(w, phase, step->items);
	if (isnan(n->loss_first))
		n->loss_first = step->loss;
	n->loss_last = step->loss;
	n->device_ns = step->device_ns;
	note_step(w, n, phase, step);
	n->under_way--;
	if (phase != w->main_phase) {
		n->n_warm++;
		return;
	}
	if (n->epoch >= 0)
		jm_session_credit(w->session, n->epoch, step->items);
	n->n_steady++;
	n->items += step->items;
	n->flops_model += step->flops_model;
	n->flops_executed += step->flops_executed;
	n->bytes += step->bytes;
}

static int one_step(struct jm__worker *w, struct native *n, int phase, struct jm_err *err)
{
	struct jm_step step = {.device_ns = 0};
	int rc = n->workload->step(n->state, &step, err);

	n->under_way += rc >= 0;
	if (!rc)
		count(w, n, phase, &step);
	return rc < 0 ? rc : 0;
}

/* Waits until no step is running. */
static int finish(struct jm__worker *w, struct native *n, int phase, struct jm_err *err)
{
	struct jm_step step = {.device_ns = 0};
	int rc = 0;

	while (!rc && n->workload->finish) {
		rc = n->workload->finish(n->state, &step, err);
		if (!rc)
			count(w, n, phase, &step);
	}
	return rc < 0 ? rc : 0;
}

/*
 * Does the work continue? Rank 0 decides for all: it receives the orders, and the clocks of ranks
 * differ.
 */
static int agree(struct jm__worker *w, struct native *n, bool *more, struct jm_err *err)
{
	jm__worker_take_orders(w);
	*more = *more && !w->stop;
	if (w->world < 2)
		return 0;
	return n->workload->agree(n->state, more, sizeof(*more), err);
}

/* One step; where a power is to be held, no other step runs with it, and its pause follows. */
static int paced_step(struct jm__worker *w, struct native *n, int phase, struct jm_err *err)
{
	int64_t t0 = jm_ctx_now(w->ctx);
	int rc = one_step(w, n, phase, err);

	if (rc || !n->pace.holds)
		return rc;
	rc = finish(w, n, phase, err);
	return rc ? rc : jm__pace_rest(w, &n->pace, jm__worker_seconds_since(w, t0), err);
}

static bool is_warm(struct jm__worker *w, struct native *n, int64_t t0)
{
	bool by_length = (double)(n->n_warm + n->under_way) >= n->length.warm_steps &&
			 jm__worker_seconds_since(w, t0) >= n->length.warm_s;
	bool paced = jm__pace_ready(w, &n->pace);

	return by_length && paced && jm__heat_done(w, &n->heat);
}

static int warm_up(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	double watts = w->rank ? 0 : jm_values_number(&n->values, "hold-power");
	int phase = jm__worker_begin(w, "warmup", err), rc = phase < 0 ? phase : 0;
	int64_t t0 = jm_ctx_now(w->ctx);

	if (!rc)
		rc = jm__worker_entered(w, phase, err);
	if (!rc)
		rc = jm__pace_begin(w, &n->pace, watts, err);
	n->heat.limit_s = jm_json_real(json_object_get(json_object_get(w->job, "how"), "steady_s"));
	while (!rc) {
		bool more = !is_warm(w, n, t0) && !n->work.ended;

		rc = agree(w, n, &more, err);
		if (rc || !more)
			break;
		rc = paced_step(w, n, phase, err);
		jm__worker_progress(w, "warmup", 0, 0, 0);
	}
	if (!rc)
		rc = finish(w, n, phase, err);
	jm__worker_end_at(w, phase, n->device_ns);
	jm__heat_record(w, &n->heat);
	return rc ? rc : jm__worker_anchor(w, &n->work, err);
}

/* Steps and seconds that are given must both be reached. */
static double share_done(const struct native *n)
{
	double by_steps =
		isnan(n->length.steps) ? 1 : (double)(n->n_steady + n->under_way) / n->length.steps;
	double by_time = isnan(n->length.seconds) ? 1 : n->elapsed_s / n->length.seconds;

	return by_steps < by_time ? by_steps : by_time;
}

/* Opens the phase of the epoch that begins with this step, counted from 1, which warms up if there
 * are more. */
static int turn_epoch(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	int first = n->length.warm_steps > 0 ? 2 : 1, rc;
	char name[32];

	if (!n->length.epoch_steps || (n->n_steady + n->under_way) % n->length.epoch_steps)
		return 0;
	rc = finish(w, n, w->main_phase, err);
	if (rc)
		return rc;
	jm__worker_end_at(w, n->epoch, n->device_ns);
	snprintf(name, sizeof(name), "epoch %ld", first + n->n_steady / n->length.epoch_steps);
	n->epoch = jm__worker_begin(w, name, err);
	return n->epoch < 0 ? n->epoch : 0;
}

static void tell(struct jm__worker *w, const struct native *n)
{
	char phase[64];

	snprintf(phase, sizeof(phase), "steady%s%s", *n->work.live ? ", " : "", n->work.live);
	jm__worker_progress(w, phase, n->items, n->elapsed_s, share_done(n));
}

/* Runs steps until no reading includes the time before the settings; steps, so that the device
 * stays warm. */
static int settle_at_work(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	int phase = jm__worker_begin(w, "settle", err), rc = phase < 0 ? phase : 0;
	int64_t until = jm_ctx_now(w->ctx) + jm__worker_sensor_window(w);

	while (!rc) {
		bool more = jm_ctx_now(w->ctx) < until;

		rc = agree(w, n, &more, err);
		if (rc || !more)
			break;
		rc = paced_step(w, n, phase, err);
	}
	if (!rc)
		rc = finish(w, n, phase, err);
	jm__worker_end_at(w, phase, n->device_ns);
	return rc ? rc : jm__worker_anchor(w, &n->work, err);
}

static int begin_steady(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	bool changed;
	int rc = jm__worker_enter(w, "steady", &changed, err);

	if (!rc && changed)
		rc = settle_at_work(w, n, err);
	if (!rc) {
		w->last_progress = 0; /* from here on Ctrl-C keeps what is measured */
		tell(w, n);
		w->main_phase = rc = jm__worker_begin(w, "steady", err);
	}
	return rc < 0 ? rc : jm__worker_entered(w, w->main_phase, err);
}

static int steady(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	int rc = begin_steady(w, n, err), phase = w->main_phase;
	int64_t t0 = jm_ctx_now(w->ctx);

	n->work.steady_ns = t0;
	jm__pace_settle(w, &n->pace);
	while (!rc) {
		bool more = share_done(n) < 1 && !n->work.ended;

		rc = agree(w, n, &more, err);
		if (rc || !more)
			break;
		rc = turn_epoch(w, n, err);
		if (!rc)
			rc = paced_step(w, n, phase, err);
		if (rc)
			break;
		n->elapsed_s = jm__worker_seconds_since(w, t0);
		tell(w, n);
	}
	if (!rc)
		rc = finish(w, n, phase, err);
	if (!rc)
		n->elapsed_s = jm__worker_seconds_since(w, t0);
	jm__worker_end_at(w, n->epoch, n->device_ns);
	jm__worker_end_at(w, phase, n->pace.holds ? 0 : n->device_ns);
	if (!rc && w->stop && !n->n_steady)
		rc = jm_err_set(err, JM_EINTR, "Interrupted before the measured phase.");
	return rc ? rc : jm__worker_anchor(w, &n->work, err);
}

static int verify(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	bool changed;
	int phase, rc = jm__worker_enter(w, "verify", &changed, err);

	if (!rc && changed)
		rc = jm__worker_settle(w, err);
	if (rc)
		return rc;
	phase = jm__worker_begin(w, "verify", err);
	rc = phase < 0 ? phase : jm__worker_entered(w, phase, err);
	if (rc)
		return rc;
	w->last_progress = 0; /* Ctrl-C waits for it longer than for a step */
	jm__worker_progress(w, "verify", n->items, n->elapsed_s, 1);
	rc = n->workload->verify(n->state, &why);
	jm__worker_end(w, phase);
	jm_record_set(w->record, "verified", rc && rc != JM_ERANGE ? NULL : json_boolean(!rc));
	if (!rc)
		return 0;
	jm_record_set(w->record, "verify_reason", json_string(why.text));
	if (rc > 0)
		return 0;
	return jm_err_set(
		err, rc, rc == JM_ERANGE ? "The result of the work is wrong: %s" : "%s", why.text);
}

/* The phases that a workload names. */
static int add_windows(struct jm__worker *w, const struct native *n, struct jm_err *err)
{
	const struct jm_work_window *window = n->work.window;

	for (int i = 0; i < JM_WORK_WINDOWS && window[i].t1_ns; i++) {
		int phase = jm_session_begin(w->session, window[i].name, window[i].t0_ns, err);

		if (phase < 0)
			return phase;
		jm_session_end(w->session, phase, window[i].t1_ns);
		jm_session_credit(w->session, phase, window[i].items);
	}
	return 0;
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : NULL;
}

static void record_native(struct jm__worker *w, const struct native *n)
{
	json_t *r = w->record;
	double rate = n->elapsed_s > 0 ? n->items / n->elapsed_s : NAN;
	bool some = n->n_steady > 0 && n->items > 0;

	jm_record_set(r, "unit", json_string(w->unit));
	jm_record_set(r, "devices", json_integer(n->work.n_devices));
	if (w->world > 1)
		jm_record_set(r, "gang", jm__worker_gang(w, &n->work));
	jm_record_set(r, "steps", json_integer(n->n_steady));
	jm_record_set(r, "warmup_steps", json_integer(n->n_warm));
	jm_record_set(r, "items", some ? jm_json_number(n->items) : NULL);
	jm_record_set(r, "throughput", jm_json_number(rate));
	jm_record_set(r, "throughput_per_device", jm_json_number(rate / n->work.n_devices));
	jm_record_set(r, "loss_first", jm_json_number(n->loss_first));
	jm_record_set(r, "loss_last", jm_json_number(n->loss_last));
	if (some && n->flops_model > 0)
		jm_record_set(r, "flops_model_per_item", jm_json_number(n->flops_model / n->items));
	if (some && n->flops_executed > 0)
		jm_record_set(
			r, "flops_executed_per_item", jm_json_number(n->flops_executed / n->items));
	if (some && n->bytes > 0)
		jm_record_set(r, "bytes_per_item", jm_json_number(n->bytes / n->items));
	jm_record_set(r, "step_series", jm_step_series_json(n->series, w->start_ns));
	jm_record_set(r, "detail", text_or_null(n->work.detail));
	jm_record_set(r, "note", text_or_null(n->work.note));
	if (n->work.more)
		json_object_update_missing(r, n->work.more);
}

static struct native *new_native(struct jm__worker *w, struct jm_err *err)
{
	struct native *n = calloc(1, sizeof(*n));
	struct jm_step_series *series = calloc(1, sizeof(*series));

	if (!n || !series) {
		free(n);
		free(series);
		jm_err_set(err, JM_ENOMEM, "Out of memory for the work of a case.");
		return NULL;
	}
	*n = (struct native){.epoch = -1,
		.loss_first = NAN,
		.loss_last = NAN,
		.series = series,
		.series_phase = -1};
	w->native = n;
	return n;
}

static int run_phases(struct jm__worker *w, struct native *n, struct jm_err *err)
{
	bool changed;
	int rc = setup(w, n, err);

	if (!rc)
		rc = jm__lengths_fit(w->parameters, &n->work, &n->length, err);
	if (!rc)
		rc = jm__worker_enter(w, "warmup", &changed, err);
	if (!rc)
		rc = jm__worker_settle(w, err);
	if (!rc)
		rc = jm__worker_anchor(w, &n->work, err);
	if (!rc)
		rc = warm_up(w, n, err);
	if (!rc)
		rc = steady(w, n, err);
	if (!rc)
		rc = verify(w, n, err);
	return rc ? rc : add_windows(w, n, err);
}

int jm__worker_native(struct jm__worker *w, struct jm_err *err)
{
	const char *name = json_string_value(json_object_get(w->parameters, "workload"));
	const struct jm_workload *workload = jm_workload_find(name, err);
	struct native *n = workload ? new_native(w, err) : NULL;
	int rc;

	if (!n)
		return err->code;
	n->workload = workload;
	w->unit = workload->unit;
	rc = read_options(w, n, err);
	if (!rc && w->world > 1 && !workload->agree)
		rc = jm_err_set(err, JM_ENOSUP,
			"The workload '%s' runs on one rank only; omit --ranks.", name);
	if (!rc)
		rc = run_phases(w, n, err);
	if (rc)
		jm__worker_tell_failure(w, rc, err);
	n->elapsed_s -= jm__worker_align(w);
	record_native(w, n);
	jm__pace_record_soft(w, &n->pace, &n->work.own);
	if (n->work.own.unusable ||
		rc == JM_EGONE) { /* the fault is the device's, not the work's */
		jm_record_set(w->record, "exit_status", json_integer(JM_EXIT_DEVICE));
		jm_record_set_failure(w->record, JM_FAILURE_DEVICE);
	} else {
		jm_record_set(w->record, "exit_status", rc ? NULL : json_integer(0));
	}
	return rc;
}

void jm__worker_native_end(struct jm__worker *w)
{
	struct native *n = w->native;

	w->native = NULL;
	if (!n)
		return;
	if (n->state)
		n->workload->teardown(n->state);
	json_decref(n->work.more);
	jm_values_done(&n->values);
	free(n->series);
	free(n);
}
