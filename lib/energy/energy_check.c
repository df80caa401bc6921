/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can the readings of a meter be true? Counter and power of one meter check each other, and both
 * are held against what is physically possible:
 *
 *	a counter that does not change for some refreshes and does not later include the energy that
 *	power readings show for this time;
 *	the counter of a package or GPU that does not change for a second: a device that is on uses
 *	energy;
 *	a counter that rises, over a second or more, by more than the device can draw;
 *	a counter outside what power readings allow: those of their windows, and from rest to peak
 *	between; a power sensor that reports 0 W for a package, GPU or the node during a second.
 */
#include "base/clock.h"
#include "energy/energy_parts.h"
#include "energy/sensor_fault.h"
#include "trace/plateaus.h"

#include <math.h>
#include <string.h>

#define STILL	     3	  /* refreshes without a step that are looked at */
#define BEYOND	     4	  /* refreshes looked at after the stretch */
#define REST	     0.1  /* W: a package or GPU that is on draws more */
#define CAUGHT_UP    0.7  /* of the energy by power readings: a late counter then includes it */
#define PROVES	     0.5  /* of a reading: sensors may be off, windows shorter */
#define OVER	     1.2  /* of a reading */
#define ABOVE_LIMIT  1.5  /* of a limit: readings of 930 W at 700 W were true */
#define COVERED	     0.99 /* of the time, by power readings */
#define WINDOWS	     64	  /* that a long stretch is cut into */
#define WINDOW_SHARE 0.25 /* of a refresh, where the sensor's window is not known */
#define UNSEEN_MIN   INT64_C(150000000) /* ns: two readings may be this far apart */

/* The time of a step of the counter, and its uncertainty; ns. */
struct step {
	int64_t at, loose;
};

/* A stretch of the counter from one of its steps on. */
struct rising {
	bool open;
	struct step begin, end;
	double joules;
};

/* A value of the counter, and when it was first and last read. */
struct still {
	double value;
	int64_t first, seen;
};

struct check {
	const struct jm_trace_interval *s;
	const struct jm_signal *counter, *power; /* power: NULL = there are no usable readings */
	const struct jm_meter_signals *m;
	struct jm_power_slots *slots; /* of the power */
	double peak;		      /* W; INFINITY = not known */
	int64_t window;		      /* ns */
	struct still last;
	bool any;
	int64_t alive; /* the last moment at which the counter is known to count; ns */
	struct rising window_open, whole;
	/* ns, the longest time without a step after which the counter caught up */
	int64_t caught_up;
	struct jm_fault fault;
	struct jm_err *err;
	int rc;
};

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

/* ---- power over some time ---- */

static struct jm_held_power hold_power(struct check *c, int64_t t0, int64_t t1)
{
	struct jm_held_power sum = {0};

	if (!c->rc)
		c->rc = jm_power_slots_held(
			c->slots, c->s->trace, c->m->power, t0, t1, &sum, c->err);
	return sum;
}

/* The share of time that power readings cover. */
static double seen_share(const struct jm_signal *power)
{
	if (power->refresh_ns <= 0 || power->window_ns <= 0)
		return WINDOW_SHARE;
	return fmin(1, seconds(power->window_ns) / seconds(power->refresh_ns));
}

/* ---- what a device can draw ---- */

static bool rests_above_zero(enum jm_scope scope)
{
	return scope == JM_SCOPE_PACKAGE || scope == JM_SCOPE_GPU || scope == JM_SCOPE_MODULE ||
	       scope == JM_SCOPE_PLATFORM;
}

/* The node that runs this is on. */
static bool is_on(const struct jm_meter *meter)
{
	return rests_above_zero(meter->scope) || !strcmp(meter->covers, "/");
}

/* No part of these kinds that is built draws so much, in watts. */
static double most_of(enum jm_scope scope)
{
	switch (scope) {
	case JM_SCOPE_MODULE:
	case JM_SCOPE_PLATFORM:
		return 10e3;
	case JM_SCOPE_PACKAGE:
	case JM_SCOPE_CORE:
	case JM_SCOPE_UNCORE:
	case JM_SCOPE_DRAM:
	case JM_SCOPE_GPU:
	case JM_SCOPE_GPU_CORE:
	case JM_SCOPE_GPU_MEMORY:
	case JM_SCOPE_GPU_IO:
		return 3e3;
	case JM_SCOPE_NODE:
	case JM_SCOPE_PSU:
	case JM_SCOPE_OUTLET:
		return 1e6;
	default:
		return INFINITY;
	}
}

/* The device's own peak, where it has a limit; not less than its highest reading. */
static double peak_of(struct check *c)
{
	double peak = most_of(c->s->set->meter[c->m->meter].scope);

	if (c->m->limit > 0)
		peak = ABOVE_LIMIT * c->m->limit;
	if (c->power)
		peak = fmax(peak, ABOVE_LIMIT * hold_power(c, c->s->t0, c->s->t1).most);
	return peak;
}

/* ---- a counter that does not change ---- */

static void blame(
	struct check *c, enum jm_fault_kind kind, int64_t length, double counter_w, double power_w)
{
	if (c->fault.kind)
		return;
	c->fault.kind = kind;
	c->fault.seconds = seconds(length);
	c->fault.counter_watts = counter_w;
	c->fault.power_watts = power_w;
}

static void note_pause(struct check *c, int64_t length, double rise)
{
	if (rise > 0 && length > c->caught_up)
		c->caught_up = length;
}

/* The step of a counter that is only late includes the energy of that time. */
static void look_at_long_rest(
	struct check *c, const struct still *still, const struct jm_plateau *next, double rise)
{
	int64_t length = still->seen - still->first, refresh = c->counter->refresh_ns;
	int64_t until = next ? jm_plateau_start(next) : still->seen - refresh - refresh / 5;
	int64_t need = STILL * refresh;
	double least = 0, watts = NAN;

	if (c->power && need < STILL * c->power->refresh_ns)
		need = STILL * c->power->refresh_ns;
	if (c->power && length >= need && until > still->first) {
		struct jm_held_power h = hold_power(c, still->first, until);

		watts = h.covered_s > 0 ? h.joules / h.covered_s : NAN;
		least = CAUGHT_UP * h.joules;
	}
	if (rests_above_zero(c->s->set->meter[c->m->meter].scope) && length >= JM_SECOND &&
		length >= JM_STILL_REFRESHES * refresh)
		least = fmax(least, REST * seconds(length));
	if (rise >= least || least <= 2 * c->counter->step) {
		note_pause(c, length, rise);
		return;
	}
	if (next || length > c->caught_up + c->caught_up / 5)
		blame(c, JM_FAULT_COUNTER_STUCK, length, rise / seconds(length), watts);
}

/* The counter had no step for some time and then rose by `rise` at the next step (NULL: there was
 * none). */
static inline void look_at_rest(
	struct check *c, const struct still *still, const struct jm_plateau *next, double rise)
{
	int64_t length = still->seen - still->first;

	if (still->seen <= c->s->t0 || still->first >= c->s->t1)
		return;
	if (length < STILL * c->counter->refresh_ns && length < JM_SECOND)
		note_pause(c, length, rise);
	else
		look_at_long_rest(c, still, next, rise);
}

/* ---- a counter that rises ---- */

static struct step step_of(const struct jm_plateau *run)
{
	return (struct step){jm_plateau_start(run), run->hi - run->lo};
}

static void look_at_rising(struct check *c, const struct rising *r)
{
	int64_t a = r->begin.at, b = r->end.at;
	double length = seconds(b - a), mean = r->joules / length;
	double loose = seconds(r->begin.loose + r->end.loose) / 2;
	double share, least, most;
	struct jm_held_power h;

	if (r->joules > c->peak * (length + loose)) {
		blame(c, JM_FAULT_COUNTER_FAST, b - a, mean, NAN);
		return;
	}
	if (!c->power)
		return;
	h = hold_power(c, a, b);
	if (h.covered_s < COVERED * length)
		return;
	/* readings and steps are at different times, and a long window delays readings */
	loose += seconds(2 * c->power->refresh_ns) + fmax(0, seconds(c->power->window_ns));
	share = seen_share(c->power);
	least = PROVES * share * h.joules - h.most * loose;
	most = OVER * share * h.joules + (1 - share) * c->peak * length + c->peak * loose;
	if (r->joules < least || r->joules > most)
		blame(c, JM_FAULT_CONTRADICTION, b - a, mean, h.joules / length);
}

static inline void rise_by(struct rising *r, struct step at, double joules)
{
	if (!r->open)
		*r = (struct rising){.open = true, .begin = at};
	else
		r->joules += joules;
	r->end = at;
}

static void add_rise(struct check *c, const struct jm_plateau *run, double joules)
{
	int64_t slack = 2 * c->counter->refresh_ns;
	struct rising *r = &c->window_open;
	struct step at = step_of(run);

	if (run->first < c->s->t0 - slack || run->first > c->s->t1 + slack)
		return;
	rise_by(&c->whole, at, joules);
	rise_by(r, at, joules);
	if (at.at - r->begin.at < c->window)
		return;
	look_at_rising(c, r);
	*r = (struct rising){.open = true, .begin = at, .end = at};
}

/* Begins anew after a reset. */
static void start_over(struct check *c)
{
	c->window_open.open = c->whole.open = false;
}

/* A reset looks like a wrap-around with more joules than the device can draw: -1 then. */
static double gone_round(const struct check *c, const struct jm_plateau *run, double rise)
{
	return rise > c->peak * (seconds(run->first - c->last.first) + 1) ? -1 : rise;
}

/* A step may include the energy of one resolution from before the value was first read, and no more
 * than that. */
static void look_at_step(struct check *c, const struct jm_plateau *run, double rise)
{
	double length = seconds(run->first - c->last.first);

	if (rise - c->counter->step > c->peak * (length + 1))
		blame(c, JM_FAULT_COUNTER_FAST, run->first - c->last.first, rise / length, NAN);
}

static void on_plateau(void *arg, const struct jm_plateau *run)
{
	struct check *c = arg;
	double rise = run->value - c->last.value;

	/* a counter counts on where it is not read */
	if (isnan(run->value))
		return;
	if (!c->any) {
		c->any = true;
		c->last = (struct still){run->value, run->first, run->seen};
		return;
	}
	if (rise < 0 && c->counter->wrap > 0)
		rise = gone_round(c, run, rise + c->counter->wrap);
	if (rise < 0) {
		start_over(c);
	} else {
		look_at_step(c, run, rise);
		if (rise > 0)
			c->alive = c->last.seen;
		look_at_rest(c, &c->last, run, rise);
		add_rise(c, run, rise);
	}
	c->last = (struct still){run->value, run->first, run->seen};
}

/* Checks the rise if it was long enough for that. */
static void look_at_end(struct check *c, const struct rising *r)
{
	if (r->open && r->end.at - r->begin.at >= STILL * c->counter->refresh_ns)
		look_at_rising(c, r);
}

/* Checks the rest of the last window, the whole stretch, and whether the counter has no steps at
 * its end. */
static void finish(struct check *c)
{
	if (!c->any)
		return;
	look_at_rest(c, &c->last, NULL, 0);
	look_at_end(c, &c->window_open);
	look_at_end(c, &c->whole);
}

/* ---- a counter without a later step ---- */

/*
 * The last value of a counter may be old: it rose since a reading, but until when it counted is not
 * known if it was not seen to step again. From that reading on the energy is between the counter's
 * value and what power readings allow.
 */
static int look_at_tail(const struct check *c, struct jm_part *counter)
{
	int64_t unseen = jm_reach(c->counter), from = c->alive;
	struct jm_trace_interval tail = *c->s;
	struct jm_part told, power;
	struct jm_power_slots slots;
	double most;
	int rc;

	if (unseen < UNSEEN_MIN)
		unseen = UNSEEN_MIN;
	if (!c->power || isnan(counter->joules) || from > c->s->t1 - unseen)
		return 0;
	tail.t0 = from > c->s->t0 ? from : c->s->t0;
	rc = jm_energy_by_counter(&tail, c->m->counter, c->m->shape, NULL, &told, c->err);
	if (!rc)
		rc = jm_energy_by_power(&tail, c->m, &slots, &power, c->err);
	if (rc)
		return rc;
	most = fmin(
		power.joules + Z95 * sqrt(power.variance), c->peak * seconds(tail.t1 - tail.t0));
	counter->hidden = isfinite(most) ? fmax(0, most - told.joules) : 0;
	return 0;
}

static int64_t window_of(const struct check *c)
{
	int64_t window = (c->s->t1 - c->s->t0) / WINDOWS;

	if (window < JM_SECOND)
		window = JM_SECOND;
	if (window < STILL * c->counter->refresh_ns)
		window = STILL * c->counter->refresh_ns;
	if (c->power && window < STILL * (c->power->refresh_ns + c->power->window_ns))
		window = STILL * (c->power->refresh_ns + c->power->window_ns);
	return window;
}

static int walk_counter(struct check *c, struct jm_part *ret)
{
	int64_t around =
		JM_SECOND + JM_SECOND / 5 + 2 * JM_STILL_REFRESHES * c->counter->refresh_ns;
	struct jm_plateaus steps;
	/* what is read after the stretch depends on when the session ends */
	struct jm_watch watch = {
		.t0 = c->s->t0 - around,
		.t1 = c->s->t1 + BEYOND * c->counter->refresh_ns,
		.fn = jm_plateaus_feed_all,
		.arg = &steps,
	};
	int rc;

	jm_plateaus_init(&steps, c->counter, on_plateau, c);
	rc = jm_energy_by_counter(c->s, c->m->counter, c->m->shape, &watch, ret, c->err);
	jm_plateaus_end(&steps);
	if (rc)
		return rc;
	finish(c);
	return look_at_tail(c, ret);
}

/* A stretch that is too short to tell is judged with the second before it. */
static void check_power(struct check *c)
{
	struct jm_held_power h = hold_power(c, c->s->t0, c->s->t1);

	if (!(h.most > 0))
		h = hold_power(c, c->s->t0 - JM_SECOND, c->s->t1);
	if (h.zero_s >= 1 && is_on(&c->s->set->meter[c->m->meter]))
		c->fault.power_zero_s = h.zero_s;
	else if (h.most > 0)
		c->power = &c->s->set->signal[c->m->power];
}

int jm_energy_check(const struct jm_trace_interval *s, const struct jm_meter_signals *m,
	struct jm_power_slots *slots, struct jm_part *ret_counter, struct jm_fault *ret,
	struct jm_err *err)
{
	struct check c = {.s = s, .m = m, .slots = slots, .err = err};
	int rc = 0;

	*ret = (struct jm_fault){.kind = JM_FAULT_NONE};
	if (s->set->meter[m->meter].origin == JM_ESTIMATED)
		return m->counter < 0 ? 0
				      : jm_energy_by_counter(
						s, m->counter, m->shape, NULL, ret_counter, err);
	if (m->power >= 0)
		check_power(&c);
	if (m->counter >= 0 && !c.rc) {
		c.counter = &s->set->signal[m->counter];
		c.peak = peak_of(&c);
		c.window = window_of(&c);
		rc = walk_counter(&c, ret_counter);
	}
	*ret = c.fault;
	return c.rc ? c.rc : rc;
}
