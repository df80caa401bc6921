/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner.h"
#include "guard/guard_requests.h"

#include "base/clock.h"
#include "tuner_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK	   (50 * JM_MILLISECOND)  /* between two steps */
#define LEAST_WAIT (250 * JM_MILLISECOND) /* after a change: clocks and work follow a new setting */
#define HELD	   5			  /* windows in a visit of the setting that is held */
#define PATIENCE   (30 * JM_SECOND)	  /* without any item, until that is said */
#define EVEN	   0.025 /* windows of work that has warmed up differ by less than this share */
#define MOST_WARM  0.5	 /* of the time of a search: then it begins anyway */
#define MOST_LOST  10	 /* visits in a row without an objective */
#define MOST_MOVED 3	 /* times that another program changed the knob */

const char *const jm_tune_progress_names[] = {"items", "gpu", NULL};

static int64_t now_of(const struct jm_tuner *t)
{
	return jm_ctx_now(t->o.ctx);
}

/* ---- phases of the session ---- */

static void enter_phase(struct jm_tuner *t, bool holds)
{
	if (t->phase >= 0)
		jm_session_end(t->o.session, t->phase, 0);
	t->holds = holds;
	t->phase = jm_session_begin(t->o.session, holds ? "tune.hold" : "tune.search", 0, NULL);
}

/* ---- giving up ---- */

static void stop(struct jm_tuner *t, const char *why)
{
	struct jm_err err = JM_ERR_INIT;

	snprintf(t->stopped, sizeof(t->stopped), "%s", why);
	t->state = JM__STOPPED;
	/* the setting found may be above the budget */
	if (!t->budget.budget && jm_guard_alive(t->o.guard) && jm_guard_restore(t->o.guard, &err))
		jm_log(t->o.ctx, JM_WARNING, "%s", err.text);
	t->setting = (struct jm_tune_setting){.found = true};
	enter_phase(t, true);
	jm_log(t->o.ctx, JM_WARNING, "Tuning has ended, and %s in force. The reason: %s",
		t->budget.budget && jm_guard_alive(t->o.guard) ? "the last limits stay"
							       : "the setting found is",
		why);
}

/* ---- settings ---- */

static void settle(struct jm_tuner *t, int64_t now)
{
	t->state = JM__SETTLING;
	t->due_ns = now + t->settle_ns;
}

static bool same(struct jm_tune_setting a, struct jm_tune_setting b)
{
	bool alike = true;

	for (int k = 0; k < JM_TUNE_KNOBS; k++)
		alike = alike && a.value[k] == b.value[k];
	return a.found == b.found && (a.found || alike);
}

static int set_knobs(struct jm_tuner *t, struct jm_tune_setting setting, struct jm_err *err)
{
	int rc = 0;

	for (int k = 0; !rc && k < t->n_knobs; k++)
		rc = setting.found ? jm_tuned_knob_set_found(&t->knob[k], err)
				   : jm_tuned_knob_set(&t->knob[k], setting.value[k], err);
	return rc;
}

static int set_next(struct jm_tuner *t, bool *ret_changed, struct jm_err *err)
{
	struct jm_tune_setting next;
	int rc = 0;

	if (t->budget.budget)
		return jm_tuned_budget_apply(&t->budget, t->knob, ret_changed, err);
	next = jm_search_next(t->search);
	*ret_changed = !same(next, t->setting);
	if (*ret_changed)
		rc = set_knobs(t, next, err);
	t->setting = next;
	return rc;
}

static bool is_holding(const struct jm_tuner *t)
{
	return t->budget.budget ? jm_budget_holds(t->budget.budget)
				: jm_search_stage(t->search) == JM_STAGE_HOLD;
}

/* The setting of the next visit. */
static void apply(struct jm_tuner *t)
{
	struct jm_err err = JM_ERR_INIT;
	bool changed = false;

	if (set_next(t, &changed, &err)) {
		stop(t, err.text);
		return;
	}
	if (is_holding(t) != t->holds || t->phase < 0)
		enter_phase(t, is_holding(t));
	if (!changed) {
		/* nothing has changed: the next window begins where this one ended */
		t->state = JM__WINDOW;
		t->window.t0_ns = t->window.t1_ns;
		t->window.items0 = t->window.items1;
	} else {
		settle(t, now_of(t));
	}
}

/* ---- progress ---- */

void jm_tuner_progress(struct jm_tuner *t, int64_t t_ns, double items)
{
	pthread_mutex_lock(&t->lock);
	t->items_ns = t_ns;
	t->items = items;
	pthread_mutex_unlock(&t->lock);
}

struct report {
	int64_t t_ns; /* 0 = there was none */
	double items;
};

static struct report newest(struct jm_tuner *t)
{
	struct report r;

	pthread_mutex_lock(&t->lock);
	r = (struct report){t->items_ns, t->items};
	pthread_mutex_unlock(&t->lock);
	return r;
}

/* Is the meter of a device that a knob sets? */
static bool is_tuned(const struct jm_tuner *t, const struct jm_meter *m)
{
	const struct jm_knobs *knobs = jm_guard_knobs(t->o.guard);

	for (int k = 0; k < t->n_knobs; k++)
		for (int i = 0; i < t->knob[k].n; i++)
			if (!strcmp(knobs->knob[t->knob[k].index[i]].device, m->device))
				return true;
	return false;
}

/* Busy cycles per second of the GPUs that are tuned, 1e9/s; NAN = unknown. */
static double cycles_per_s(struct jm_tuner *t)
{
	const struct jm_meters *set = jm_session_meters(t->o.session);
	double sum = NAN;

	for (int i = 0; i < set->n; i++) {
		int use = jm_meter_signal(set, i, JM_Q_UTILISATION);
		int clock = jm_meter_signal(set, i, JM_Q_CLOCK);
		double rate;

		if (use < 0 || clock < 0 || !is_tuned(t, &set->meter[i]))
			continue;
		rate = jm_session_newest(t->o.session, use).value *
		       jm_session_newest(t->o.session, clock).value * 1e-9;
		sum = isnan(sum) ? rate : sum + rate;
	}
	return sum;
}

static void count_cycles(struct jm_tuner *t, int64_t now)
{
	double rate = cycles_per_s(t);

	if (t->looked_ns && rate > 0)
		t->cycles += rate * (double)(now - t->looked_ns) * 1e-9;
	t->looked_ns = now;
	if (rate > 0)
		jm_tuner_progress(t, now, t->cycles);
}

static int check_activity(struct jm_tuner *t, struct jm_err *err)
{
	const struct jm_meters *set = jm_session_meters(t->o.session);

	for (int i = 0; t->o.progress == JM_TUNE_GPU && i < set->n; i++)
		if (is_tuned(t, &set->meter[i]) && jm_meter_signal(set, i, JM_Q_UTILISATION) >= 0 &&
			jm_meter_signal(set, i, JM_Q_CLOCK) >= 0)
			return 0;
	if (t->o.progress != JM_TUNE_GPU)
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"No source reports utilisation and clock of the devices of %s, so --progress gpu "
		"has nothing to count; let the command report its items ('joulemark mark', "
		"--items-regex).",
		t->knob[0].name);
}

/* ---- windows ---- */

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

static int64_t length_of(const struct jm_tuner *t)
{
	return llround(t->o.window_s * 1e9) * (t->holds ? HELD : 1);
}

static void lose(struct jm_tuner *t, int64_t now)
{
	t->lost++;
	if (++t->lost_in_row < MOST_LOST) {
		settle(t, now);
		return;
	}
	stop(t, "The energy or the items of ten visits in a row are unknown.");
}

static int set_again(struct jm_tuner *t, struct jm_err *err)
{
	if (t->budget.budget)
		return jm_tuned_budget_set(&t->budget, t->knob, err);
	return set_knobs(t, t->setting, err);
}

/* Has another program moved one of the knobs? ret_knob: which one. */
static int any_moved(struct jm_tuner *t, bool *ret, int *ret_knob, struct jm_err *err)
{
	int rc = 0;

	*ret = false;
	*ret_knob = 0;
	for (int k = 0; !rc && !*ret && k < t->n_knobs; k++) {
		rc = jm_tuned_knob_moved(&t->knob[k], ret, err);
		*ret_knob = k;
	}
	return rc;
}

/* A visit that another program has spoilt, and what it set, count for nothing. */
static bool was_moved(struct jm_tuner *t, int64_t now)
{
	struct jm_err err = JM_ERR_INIT;
	bool moved = false;
	char why[200];
	int k;

	if (any_moved(t, &moved, &k, &err)) {
		stop(t, err.text);
		return true;
	}
	if (!moved)
		return false;
	t->lost++;
	if (++t->moved >= MOST_MOVED) {
		snprintf(why, sizeof(why), "Another program changes %s as well.", t->knob[k].name);
		stop(t, why);
	} else if (set_again(t, &err)) {
		stop(t, err.text);
	} else {
		settle(t, now);
	}
	return true;
}

static int note_start(struct jm_tuner *t)
{
	int64_t *grown = reallocarray(t->start_ns, (size_t)t->n_start + 1, sizeof(*grown));

	if (!grown)
		return JM_ENOMEM;
	t->start_ns = grown;
	grown[t->n_start++] = t->window.t0_ns;
	return 0;
}

/* What a better setting saves: energy per item of the setting found less its own, for the items of
 * this visit. */
static void count_saved(struct jm_tuner *t, const struct jm_visit *v)
{
	struct jm_search_result r;

	jm_search_result(t->search, &r);
	if (!t->holds || r.best.found || isnan(r.energy.log))
		return;
	t->saved += v->joules * expm1(-r.energy.log);
	t->saved_half += v->joules * exp(-r.energy.log) * r.energy.half;
}

/* The work has begun to run evenly: energy and time per item of two windows in a row agree. Until
 * then, the setting found is in force and nothing is learnt, as while a program compiles or fills
 * its caches. */
static bool is_warm(struct jm_tuner *t, const struct jm_visit *v)
{
	double energy = v->joules / v->items, time = v->seconds / v->items;
	bool even =
		fabs(energy / t->warm_energy - 1) < EVEN && fabs(time / t->warm_time - 1) < EVEN;

	if (t->warm)
		return true;
	t->warm_s += v->wall_s;
	t->warm_energy = energy;
	t->warm_time = time;
	t->warm = even || t->warm_s >= MOST_WARM * t->o.within_s;
	return false;
}

/* What is learnt from it; an error: nothing is. */
static int learn(struct jm_tuner *t, const struct jm_visit *v)
{
	int before, rc;

	if (t->budget.budget)
		return jm_tuned_budget_add(&t->budget, t->knob, t->o.session, t->window.t0_ns,
			t->window.t1_ns, v->items);
	before = jm_search_visits(t->search);
	count_saved(t, v);
	rc = jm_search_add(t->search, v, NULL);
	if (!rc && jm_search_visits(t->search) > before)
		rc = note_start(t);
	return rc;
}

static void finish_visit(struct jm_tuner *t, int64_t now)
{
	struct jm_visit v = {
		.seconds = seconds(t->window.t1_ns - t->window.t0_ns),
		.items = t->window.items1 - t->window.items0,
		.wall_s = seconds(t->window.t1_ns - t->left_ns),
	};

	if (was_moved(t, now))
		return;
	jm_tuned_energy_of(
		&t->energy, t->window.t0_ns, t->window.t1_ns, &v.joules, &v.error_joules);
	if (v.items > 0 && v.joules > 0 && !is_warm(t, &v)) {
		t->left_ns = t->window.t1_ns;
		apply(t);
		return;
	}
	if (learn(t, &v)) {
		lose(t, now);
		return;
	}
	t->lost_in_row = 0;
	t->left_ns = t->window.t1_ns;
	apply(t);
}

static void say_nothing_came(struct jm_tuner *t, int64_t now)
{
	if (t->waited || now - t->began_ns < PATIENCE)
		return;
	t->waited = true;
	jm_log(t->o.ctx, JM_WARNING,
		"The command has reported no items in %.0f s; the search begins with the first of "
		"them. It reports them by 'joulemark mark' or by what it prints (--items-regex, "
		"--items-json); --progress gpu takes the activity of the GPU for it.",
		seconds(now - t->began_ns));
}

/* Of use for the window: known, and after the knob has settled or the window has begun. */
static bool is_new(const struct jm_tuner *t, const struct report *r)
{
	if (isnan(r->items))
		return false;
	return (t->state == JM__STARTING && r->t_ns >= t->due_ns) ||
	       (t->state == JM__WINDOW && r->t_ns > t->window.t0_ns);
}

static void in_window(struct jm_tuner *t, const struct report *r)
{
	struct jm__tuner_window *w = &t->window;

	if (t->state == JM__STARTING || r->items < w->items0) {
		/* a count that falls was another one before */
		*w = (struct jm__tuner_window){.t0_ns = r->t_ns, .items0 = r->items};
		t->state = JM__WINDOW;
		if (!t->left_ns)
			t->left_ns = r->t_ns;
		return;
	}
	if (r->t_ns - w->t0_ns < length_of(t) || !(r->items > w->items0))
		return;
	w->t1_ns = r->t_ns;
	w->items1 = r->items;
	t->state = JM__READING;
	t->due_ns = now_of(t) + t->energy.refresh_ns + LOOK;
	jm_session_edge(t->o.session);
}

int64_t jm_tuner_step(struct jm_tuner *t)
{
	int64_t now = now_of(t);
	struct report r;

	if (t->state == JM__STOPPED)
		return now + JM_SECOND;
	if (t->o.progress == JM_TUNE_GPU)
		count_cycles(t, now);
	r = newest(t);
	if (!r.t_ns)
		say_nothing_came(t, now);
	if (t->state == JM__SETTLING && now >= t->due_ns)
		t->state = JM__STARTING;
	if (is_new(t, &r))
		in_window(t, &r);
	else if (t->state == JM__READING && now >= t->due_ns)
		finish_visit(t, now);
	return now + LOOK;
}

void jm_tuner_end(struct jm_tuner *t)
{
	/* since the last order to it */
	if (!*t->stopped && !jm_guard_alive(t->o.guard))
		stop(t, "The guard was killed.");
	if (t->phase >= 0)
		jm_session_end(t->o.session, t->phase, 0);
	t->phase = -1;
}

/* ---- beginning and end ---- */

static int open_search(struct jm_tuner *t, struct jm_err *err)
{
	struct jm_search_options o = {
		.objective = t->o.objective,
		.n = t->n_knobs,
		.limit_watts = t->knob[0].found_sum,
		.within_s = t->o.within_s,
	};
	struct jm_tune_setting highest = {.found = false};
	bool all_known = true;
	int rc;

	for (int k = 0; k < t->n_knobs; k++) {
		const struct jm_tuned_knob *knob = &t->knob[k];

		o.knob[k] = (struct jm_search_range){knob->min, knob->max, knob->step, knob->found};
		highest.value[k] = knob->max;
		all_known = all_known && !isnan(knob->found);
	}
	if (o.objective.kind == JM_MIN_ZEUS && strcmp(t->knob[0].knob->unit, "W") != 0)
		return jm_err_set(err, JM_EUSAGE,
			"--objective zeus needs a power limit as the first knob, and %s is none; "
			"take edp or eds.",
			t->knob[0].name);
	rc = jm_search_new(&o, &t->search, err);
	/* a value that is not known cannot be set again: whether the knob can be set shows with
	 * another one */
	if (!rc && !all_known)
		rc = set_knobs(t, highest, err);
	return rc ? rc : set_knobs(t, t->setting, err);
}

/* Does a device have both knobs, which are one and the same? */
static bool are_one(const struct jm_tuned_knob *a, const struct jm_tuned_knob *b)
{
	for (int i = 0; i < a->n; i++)
		for (int k = 0; k < b->n; k++)
			if (a->index[i] == b->index[k])
				return true;
	return false;
}

static int open_knobs(struct jm_tuner *t, struct jm_err *err)
{
	for (; t->n_knobs < JM_TUNE_KNOBS && t->o.knob[t->n_knobs]; t->n_knobs++) {
		struct jm_tuned_knob *k = &t->knob[t->n_knobs];
		int rc = jm_tuned_knob_open(k, t->o.guard, t->o.knob[t->n_knobs], err);

		if (rc)
			return rc;
		if (llround(k->settle_s * 1e9) > t->settle_ns)
			t->settle_ns = llround(k->settle_s * 1e9);
	}
	if (t->n_knobs < 2 || !are_one(&t->knob[0], &t->knob[1]))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"--knob %s is given twice for one device; give two knobs, or different devices.",
		t->knob[1].name);
}

int jm_tuner_new(const struct jm_tuner_options *options, struct jm_tuner **ret, struct jm_err *err)
{
	struct jm_tuner *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a tuner.");
	t->o = *options;
	t->phase = -1;
	t->settle_ns = LEAST_WAIT;
	t->setting.found = true;
	t->items = NAN;
	pthread_mutex_init(&t->lock, NULL);
	rc = open_knobs(t, err);
	if (!rc)
		rc = jm_tuned_energy_open(&t->energy, options->session, err);
	if (!rc && t->energy.window_ns > t->settle_ns)
		t->settle_ns = t->energy.window_ns;
	if (!rc)
		rc = check_activity(t, err);
	/* another holder, or missing rights, show before the work begins */
	if (!rc && options->budget_watts > 0)
		rc = jm_tuned_budget_open(
			&t->budget, t->o.ctx, t->knob, options->budget_watts, options->share, err);
	else if (!rc)
		rc = open_search(t, err);
	if (rc) {
		jm_tuner_free(t);
		return rc;
	}
	t->began_ns = now_of(t);
	settle(t, t->began_ns);
	*ret = t;
	return 0;
}

void jm_tuner_free(struct jm_tuner *t)
{
	if (!t)
		return;
	jm_search_free(t->search);
	jm_tuned_budget_close(&t->budget);
	for (int k = 0; k < JM_TUNE_KNOBS; k++)
		jm_tuned_knob_close(&t->knob[k]);
	pthread_mutex_destroy(&t->lock);
	free(t->start_ns);
	free(t);
}
