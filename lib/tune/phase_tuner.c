/* SPDX-License-Identifier: Apache-2.0 */
#include "phase_tuner.h"

#include "base/clock.h"
#include "guard/guard_requests.h"
#include "phase_tuner_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK	   (20 * JM_MILLISECOND) /* between two steps */
#define VALUES	   6			 /* over the range, besides the setting found */
#define MOST_MOVED 3			 /* times that another program changed the knob */

static int64_t now_of(const struct jm_phase_tuner *t)
{
	return jm_ctx_now(t->o.ctx);
}

double jm__phase_latency(const struct jm_phase_tuner *t)
{
	return t->switches ? t->latency_sum / t->switches + t->knob.settle_s : NAN;
}

/* ---- marks ---- */

static struct jm__phase_run *run_at(struct jm_phase_tuner *t, int i)
{
	return &t->run[(t->first + i) % JM__PHASES_WAITING];
}

static void add_items(struct jm__phase_run *run, double items)
{
	if (!isnan(items))
		run->items = isnan(run->items) ? items : run->items + items;
}

void jm_phase_tuner_mark(struct jm_phase_tuner *t, const char *name, int64_t t_ns, double items)
{
	struct jm__phase_run *last;

	pthread_mutex_lock(&t->lock);
	last = t->n ? run_at(t, t->n - 1) : NULL;
	if (last)
		add_items(last, items);
	if (!last || strcmp(last->name, name) != 0) {
		if (last)
			last->t1_ns = t_ns;
		if (t->n == JM__PHASES_WAITING) {
			/* the oldest one is lost */
			t->first = (t->first + 1) % JM__PHASES_WAITING;
			t->n--;
			t->lost++;
		}
		last = run_at(t, t->n++);
		*last = (struct jm__phase_run){
			.t0_ns = t_ns, .t1_ns = JM_FOREVER, .items = NAN, .phase = -1};
		snprintf(last->name, sizeof(last->name), "%s", name);
	}
	pthread_mutex_unlock(&t->lock);
}

/* The phase that goes on; false: there is none. */
static bool newest(struct jm_phase_tuner *t, struct jm__phase_run *ret)
{
	bool any;

	pthread_mutex_lock(&t->lock);
	any = t->n > 0;
	if (any)
		*ret = *run_at(t, t->n - 1);
	pthread_mutex_unlock(&t->lock);
	return any;
}

/* Takes the oldest phase if it ended before that time. */
static bool take_ended(struct jm_phase_tuner *t, int64_t before_ns, struct jm__phase_run *ret)
{
	bool any;

	pthread_mutex_lock(&t->lock);
	any = t->n > 1 && run_at(t, 0)->t1_ns <= before_ns;
	if (any) {
		*ret = *run_at(t, 0);
		t->first = (t->first + 1) % JM__PHASES_WAITING;
		t->n--;
	}
	pthread_mutex_unlock(&t->lock);
	return any;
}

/* Writes what was chosen for a phase, if it still waits. */
static void note(struct jm_phase_tuner *t, const struct jm__phase_run *run)
{
	pthread_mutex_lock(&t->lock);
	for (int i = 0; i < t->n; i++) {
		struct jm__phase_run *r = run_at(t, i);

		if (r->t0_ns != run->t0_ns || strcmp(r->name, run->name) != 0)
			continue;
		r->seen = run->seen;
		r->phase = run->phase;
		r->value = run->value;
		memcpy(r->activity, run->activity, sizeof(r->activity));
		memcpy(r->looks, run->looks, sizeof(r->looks));
	}
	pthread_mutex_unlock(&t->lock);
}

/* ---- settings ---- */

static void enter(struct jm_phase_tuner *t, bool holds)
{
	if (t->session_phase >= 0 && holds == t->holds)
		return;
	if (t->session_phase >= 0)
		jm_session_end(t->o.session, t->session_phase, 0);
	t->holds = holds;
	t->session_phase =
		jm_session_begin(t->o.session, holds ? "tune.hold" : "tune.search", 0, NULL);
}

static void stop(struct jm_phase_tuner *t, const char *why)
{
	struct jm_err err = JM_ERR_INIT;

	snprintf(t->stopped, sizeof(t->stopped), "%s", why);
	if (jm_guard_alive(t->o.guard) && jm_guard_restore(t->o.guard, &err))
		jm_log(t->o.ctx, JM_WARNING, "%s", err.text);
	enter(t, true);
	jm_log(t->o.ctx, JM_WARNING,
		"Tuning has ended, and the setting found is in force. The reason: %s", why);
}

static int set_value(struct jm_phase_tuner *t, int value, struct jm_err *err)
{
	int rc = value == JM_PHASE_FOUND ? jm_tuned_knob_set_found(&t->knob, err)
					 : jm_tuned_knob_set(&t->knob, t->value[value], err);

	t->now = value;
	return rc;
}

/* By which a phase is too short: of the knob, or of the sensor, whose readings of a phase that is
 * shorter than its period and window show the phase before as well. */
static double latency_of(const struct jm_phase_tuner *t)
{
	double knob = jm__phase_latency(t);
	double sensor = (double)(t->energy.refresh_ns + t->energy.window_ns) * 1e-9;

	return fmax(isnan(knob) ? t->knob.settle_s : knob, sensor / JM_PHASE_SHORT);
}

/* A phase has begun: its value, and the setting. Names that the search has no room for get the
 * setting found, not that of the phase before. */
static void begin(struct jm_phase_tuner *t, struct jm__phase_run *run)
{
	struct jm_err err = JM_ERR_INIT;

	run->seen = true;
	run->phase = jm_phase_search_phase(t->search, run->name);
	run->value = JM_PHASE_FOUND;
	if (run->phase >= 0)
		run->value = jm_phase_search_next(t->search, run->phase, latency_of(t));
	if (run->value != JM_PHASE_KEEP && run->value != t->now) {
		if (set_value(t, run->value, &err)) {
			stop(t, err.text);
			return;
		}
		t->switches++;
		t->latency_sum += (double)(now_of(t) - run->t0_ns) * 1e-9;
	}
	note(t, run);
}

/* ---- activity ---- */

static const enum jm_quantity activities[4] = {
	JM_Q_TENSOR_ACTIVITY, JM_Q_SM_ACTIVITY, JM_Q_DRAM_ACTIVITY, JM_Q_NVLINK_SENT};

/* Readings that have come in this phase. */
static void look(struct jm_phase_tuner *t, struct jm__phase_run *run)
{
	const struct jm_meters *set = jm_session_meters(t->o.session);

	for (int i = 0; i < set->n; i++) {
		for (int k = 0; k < 4; k++) {
			int signal = jm_meter_signal(set, i, activities[k]);
			struct jm_reading r = {.value = NAN};

			if (signal >= 0)
				r = jm_session_newest(t->o.session, signal);
			if (isnan(r.value) || r.t_ns < run->t0_ns)
				continue;
			run->activity[k] += r.value;
			run->looks[k]++;
		}
	}
	note(t, run);
}

static void classify(struct jm_phase_tuner *t, const struct jm__phase_run *run)
{
	double mean[4];
	struct jm_phase_activity a;
	bool any = false;

	for (int k = 0; k < 4; k++) {
		mean[k] = run->looks[k] ? run->activity[k] / run->looks[k] : NAN;
		any = any || run->looks[k];
	}
	a = (struct jm_phase_activity){mean[0], mean[1], mean[2], mean[3]};
	if (any)
		jm_phase_search_classify(t->search, run->phase, jm_phase_class_by_activity(&a),
			JM_CLASS_BY_ACTIVITY);
}

/* ---- phases that have ended ---- */

/* A phase that another program has spoilt counts for nothing. */
static bool was_moved(struct jm_phase_tuner *t)
{
	struct jm_err err = JM_ERR_INIT;
	bool moved = false;
	char why[200];

	if (jm_tuned_knob_moved(&t->knob, &moved, &err)) {
		stop(t, err.text);
		return true;
	}
	if (!moved)
		return false;
	t->lost++;
	snprintf(why, sizeof(why), "Another program changes %s as well.", t->knob.name);
	if (++t->moved >= MOST_MOVED)
		stop(t, why);
	else if (set_value(t, t->now, &err))
		stop(t, err.text);
	return true;
}

static void finish(struct jm_phase_tuner *t, const struct jm__phase_run *run)
{
	double joules = NAN, error;
	double seconds = (double)(run->t1_ns - run->t0_ns) * 1e-9;
	int phase = run->seen ? run->phase : jm_phase_search_phase(t->search, run->name);

	if (phase < 0) {
		t->lost++;
		return;
	}
	jm_tuned_energy_of(&t->energy, run->t0_ns, run->t1_ns, &joules, &error);
	/* one that had ended before it was seen is too short to be switched */
	if (run->seen)
		classify(t, run);
	jm_phase_search_add(t->search, phase, run->seen ? run->value : JM_PHASE_KEEP, seconds,
		run->items, joules);
	t->lost += !(joules > 0);
	enter(t, jm_phase_search_stage(t->search) == JM_PHASE_HOLD);
}

int64_t jm_phase_tuner_step(struct jm_phase_tuner *t)
{
	int64_t now = now_of(t);
	struct jm__phase_run run = {.seen = false};

	if (*t->stopped)
		return now + JM_SECOND;
	if (newest(t, &run) && !run.seen)
		begin(t, &run);
	else if (run.seen)
		look(t, &run);
	while (!*t->stopped && take_ended(t, now - t->energy.refresh_ns - LOOK, &run))
		if (!was_moved(t))
			finish(t, &run);
	return now + LOOK;
}

void jm_phase_tuner_end(struct jm_phase_tuner *t)
{
	/* since the last order to it */
	if (!*t->stopped && !jm_guard_alive(t->o.guard))
		stop(t, "The guard was killed.");
	if (t->session_phase >= 0)
		jm_session_end(t->o.session, t->session_phase, 0);
	t->session_phase = -1;
}

/* ---- beginning and end ---- */

/* Evenly over the range, in steps of the knob. */
static void spread_values(struct jm_phase_tuner *t)
{
	const struct jm_tuned_knob *k = &t->knob;

	t->value[t->n_values++] = k->found;
	for (int i = 0; i < VALUES; i++) {
		double value = k->min + (k->max - k->min) * i / (VALUES - 1);

		if (k->step > 0)
			value = k->min + round((value - k->min) / k->step) * k->step;
		if (value > k->max)
			value = k->max;
		if (value != k->found && value != t->value[t->n_values - 1])
			t->value[t->n_values++] = value;
	}
}

static int state_classes(struct jm_phase_tuner *t, struct jm_err *err)
{
	for (char *const *text = t->o.classes; text && *text; text++) {
		enum jm_phase_class class;
		char name[64];
		int n, phase, rc = jm_phase_class_parse(*text, &n, &class, err);

		if (rc)
			return rc;
		snprintf(name, sizeof(name), "%.*s", n, *text);
		phase = jm_phase_search_phase(t->search, name);
		if (phase < 0)
			return jm_err_set(err, JM_EUSAGE, "--class names more than %d phases.",
				JM_PHASES_MAX);
		jm_phase_search_classify(t->search, phase, class, JM_CLASS_STATED);
	}
	return 0;
}

static int open_search(struct jm_phase_tuner *t, struct jm_err *err)
{
	struct jm_phase_search_options o = {
		.objective = t->o.objective,
		.limit_watts = t->knob.found_sum,
		.within_s = t->o.within_s,
	};
	int rc;

	spread_values(t);
	o.n_values = t->n_values;
	if (o.objective.kind == JM_MIN_ZEUS && strcmp(t->knob.knob->unit, "W") != 0)
		return jm_err_set(err, JM_EUSAGE,
			"--objective zeus needs a power limit as the knob, and %s is none; take "
			"edp or eds.",
			t->knob.name);
	rc = jm_phase_search_new(&o, &t->search, err);
	if (!rc)
		rc = state_classes(t, err);
	/* whether the knob can be set shows before the work begins; a value that is not known
	 * cannot be set again, so that another one has to show it */
	if (!rc && isnan(t->knob.found))
		rc = jm_tuned_knob_set(&t->knob, t->knob.max, err);
	return rc ? rc : set_value(t, JM_PHASE_FOUND, err);
}

int jm_phase_tuner_new(const struct jm_phase_tuner_options *options, struct jm_phase_tuner **ret,
	struct jm_err *err)
{
	struct jm_phase_tuner *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a tuner.");
	t->o = *options;
	t->session_phase = -1;
	pthread_mutex_init(&t->lock, NULL);
	rc = jm_tuned_knob_open(&t->knob, options->guard, options->knob, err);
	if (!rc)
		rc = jm_tuned_energy_open(&t->energy, options->session, err);
	if (!rc)
		rc = open_search(t, err);
	if (rc) {
		jm_phase_tuner_free(t);
		return rc;
	}
	enter(t, false);
	*ret = t;
	return 0;
}

void jm_phase_tuner_free(struct jm_phase_tuner *t)
{
	if (!t)
		return;
	jm_phase_search_free(t->search);
	jm_tuned_knob_close(&t->knob);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
