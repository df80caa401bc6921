/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Energy from a counter: E(t1) - E(t0). The counter steps once a refresh; E between two steps is
 * interpolated, shaped by the power before and after; in the middle only wraps and resets matter.
 */
#include "energy/energy_parts.h"
#include "trace/plateaus.h"

#include <math.h>

#define MAX_RUNS    32
#define AROUND	    12		       /* refreshes looked at on each side of an edge */
#define BEYOND	    4		       /* and after the end of the interval */
#define AROUND_MIN  INT64_C(50000000)  /* ns */
#define BRIDGE_MIN  INT64_C(250000000) /* ns without readings that may be interpolated */
#define LATE	    50		       /* a refresh may be late by 1/50 of itself */
#define PEAK_WINDOW INT64_C(90000000)  /* ns a mean must last to count as a maximum */
/* Standard deviation of the shape between two steps, as a share of (difference of power) x (time
 * between the steps), in the middle: measured by bench/energy_accuracy on random waveforms. */
#define SHAPE_STEP  0.09 /* of the change of power in the span */
#define SHAPE_OTHER 0.3	 /* of the energy that the shape does not explain */

/* The runs near an edge at t; when there are too many, those farthest from it are left out. */
struct near {
	struct jm_plateau run[MAX_RUNS];
	int n;
	int64_t t;
};

static void collect(void *arg, const struct jm_plateau *run)
{
	struct near *near = arg;

	if (near->n == MAX_RUNS) {
		if (near->run[MAX_RUNS / 2].first > near->t)
			return;
		for (int i = 1; i < MAX_RUNS; i++)
			near->run[i - 1] = near->run[i];
		near->n--;
	}
	near->run[near->n++] = *run;
}

static int look_around(const struct jm_trace_interval *s, int signal, int64_t t, struct near *near,
	struct jm_err *err)
{
	const struct jm_signal *what = &s->set->signal[signal];
	int64_t reach = AROUND * what->refresh_ns, beyond = BEYOND * what->refresh_ns;
	struct jm_plateaus steps;
	int64_t until;
	int rc;

	if (reach < AROUND_MIN)
		reach = AROUND_MIN;
	if (beyond < AROUND_MIN)
		beyond = AROUND_MIN;
	/* not far beyond the stretch: what is read after it depends on when the session ends */
	until = t + reach < s->t1 + beyond ? t + reach : s->t1 + beyond;
	near->n = 0;
	near->t = t;
	jm_plateaus_init(&steps, what, collect, near);
	rc = jm_trace_each_some(
		s->trace, signal, t - reach, until, jm_plateaus_feed_all, &steps, err);
	jm_plateaus_end(&steps);
	return rc;
}

/* Joules between two readings of a counter; NAN when it was reset. rate: watts before, NAN
 * unknown. */
static inline double rise(
	const struct jm_signal *counter, double a, double b, double seconds, double rate)
{
	double joules = jm_counter_rise(counter->wrap, a, b, seconds);

	/* so long without a reading that it may have wrapped more than once */
	if (counter->wrap > 0 && rate * seconds > counter->wrap / 2)
		return NAN;
	if (b >= a)
		return joules;
	/* a reset looks like a wrap of many joules in no time */
	if (!isnan(rate) && joules > 10 * rate * seconds + 1000)
		return NAN;
	return joules;
}

/* ---- an edge: the energy at t, relative to a reading near it ---- */

struct edge {
	bool known;
	int64_t anchor; /* when that reading was first seen */
	double joules;	/* E(t) - the counter's value at the anchor */
	double variance;
};

/* The interval between two steps of the counter. */
struct span {
	int64_t begin, end; /* energy rises from begin to end */
	double joules;
	struct jm_shape shape;	       /* of power; n = 0: a straight line */
	double share;		       /* where in its gaps power changed */
	double rest;		       /* joules that the shape does not explain */
	double loose_begin, loose_end; /* seconds by which begin and end may be off, in all */
	double step;		       /* J, the counter's resolution */
	struct jm_unseen unseen;
};

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

/* The value in effect at t; NAN = none. */
static double value_at(const struct near *near, int64_t t)
{
	double value = NAN;

	for (int i = 0; i < near->n && near->run[i].first <= t; i++)
		value = near->run[i].value;
	return value;
}

/*
 * Energy from the span's begin to t. When power goes from one level to another, the energy between
 * the steps shows when it did so; the remaining energy is spread evenly.
 */
static double energy_in_span(const struct span *span, int64_t t)
{
	double at = seconds(t - span->begin) / seconds(span->end - span->begin);

	if (!span->shape.n)
		return span->joules * at;
	return jm_shape_joules(&span->shape, span->begin, t, span->share) + span->rest * at;
}

static double square(double x)
{
	return x * x;
}

static double variance_in_span(const struct span *span, int64_t t)
{
	double length = seconds(span->end - span->begin);
	double share = seconds(t - span->begin) / length, bump = 4 * share * (1 - share);
	double mean = span->joules / length;
	double change = length * jm_shape_change(&span->shape, span->begin, span->end);
	double rest = span->shape.n ? fabs(span->rest) : span->joules;

	return square(bump * (SHAPE_STEP * change + SHAPE_OTHER * rest)) +
	       (square(mean * span->loose_begin * (1 - share)) +
		       square(mean * span->loose_end * share)) /
		       12 +
	       square(span->step) / 6 + jm_unseen_variance(&span->unseen, length, share);
}

/* Mean watts between two runs of the counter; NAN when there are none. */
static double rate(const struct jm_signal *counter, const struct near *near, int a, int b)
{
	double length;

	if (a < 0 || b >= near->n)
		return NAN;
	length = seconds(jm_plateau_start(&near->run[b]) - jm_plateau_start(&near->run[a]));
	if (length <= 0)
		return NAN;
	return rise(counter, near->run[a].value, near->run[b].value, length, NAN) / length;
}

/* When the energy of the step from a to b begins to flow: a counter that stood still used
 * nothing. */
static int64_t flow_begins(
	const struct jm_signal *counter, const struct jm_plateau *a, const struct jm_plateau *b)
{
	int64_t begin = jm_plateau_start(a), still = a->seen - counter->refresh_ns;

	if (!counter->refresh_ns || b->value - a->value < 2 * counter->step)
		return begin;
	return still > begin ? still : begin;
}

/* Without power readings: the means between the counter's steps before and after. */
static void shape_from_rates(struct span *span, double before, double after)
{
	double mean = span->joules / seconds(span->end - span->begin);

	if (isnan(before) && isnan(after))
		return;
	span->shape.n = 1;
	span->shape.gap[0].begin = span->begin;
	span->shape.gap[0].end = span->end;
	span->shape.gap[0].from = isnan(before) ? mean : before;
	span->shape.gap[0].to = isnan(after) ? mean : after;
}

static struct span span_between(const struct jm_signal *counter, const struct near *near, int a,
	const struct jm_signal *power_signal, const struct near *power)
{
	const struct jm_plateau *from = &near->run[a], *to = &near->run[a + 1];
	struct span span = {
		.begin = flow_begins(counter, from, to),
		.end = jm_plateau_start(to),
		.loose_begin = seconds(from->hi - from->lo),
		.loose_end = seconds(to->hi - to->lo),
		.step = counter->step,
	};

	span.joules = rise(counter, from->value, to->value, seconds(span.end - span.begin), NAN);
	if (isnan(span.joules))
		return span;
	jm_unseen_init(&span.unseen, &(struct jm_runs){counter, near->run, near->n},
		&(struct jm_runs){power_signal, power->run, power->n}, near->t);
	if (power->n)
		jm_shape_init(&span.shape, power_signal, power->run, power->n);
	else
		shape_from_rates(
			&span, rate(counter, near, a - 1, a), rate(counter, near, a + 1, a + 2));
	if (!span.shape.n)
		return span;
	span.share = jm_shape_fit(&span.shape, span.begin, span.end, span.joules);
	span.rest = span.joules - jm_shape_joules(&span.shape, span.begin, span.end, span.share);
	return span;
}

/* Beyond the last step, or before the first: the power there, for not too long. */
static struct edge extrapolate(const struct jm_signal *counter, const struct near *near, int i,
	int64_t t, const struct near *power)
{
	const struct jm_plateau *run = &near->run[i];
	int64_t start = jm_plateau_start(run), away = t - start, from_seen;
	double watts = value_at(power, t > start ? t : run->first), length = seconds(away);

	bool used = watts > 0;

	from_seen = t > run->seen ? t - run->seen : t < run->lo ? run->lo - t : 0;
	if (isnan(watts))
		watts = t > start ? rate(counter, near, i - 1, i) : rate(counter, near, i, i + 1);
	if (from_seen > jm_reach(counter))
		return (struct edge){.known = false};
	/* without a step for longer than a refresh: no energy was used, unless power readings say
	 * otherwise */
	if (!used && (t > start || isnan(watts)) && counter->refresh_ns &&
		run->seen - start > jm_reach(counter))
		watts = 0;
	if (isnan(watts))
		return (struct edge){.known = false};
	return (struct edge){
		.known = true,
		.anchor = run->first,
		.joules = watts * length,
		.variance = square(watts * length) / 3 +
			    square(watts * seconds(run->hi - run->lo)) / 12,
	};
}

static void drop_silence(struct near *near, int64_t *ret_silent_at, int64_t t)
{
	int kept = 0;

	*ret_silent_at = INT64_MAX;
	for (int i = 0; i < near->n; i++) {
		if (!isnan(near->run[i].value))
			near->run[kept++] = near->run[i];
		else if (near->run[i].seen >= t - BRIDGE_MIN && near->run[i].first < *ret_silent_at)
			*ret_silent_at = near->run[i].first;
	}
	near->n = kept;
}

/* A counter seen at a value reached it less than a refresh before, unless it did not change for
 * longer. */
static void tighten(const struct jm_signal *counter, struct near *near)
{
	for (int i = 0; counter->refresh_ns && i < near->n; i++) {
		struct jm_plateau *run = &near->run[i];
		int64_t late = run->seen - counter->refresh_ns - counter->refresh_ns / LATE;

		if (late > run->lo && late < run->hi)
			run->lo = late;
	}
}

static struct edge edge_among(const struct jm_signal *counter, struct near *near,
	const struct jm_signal *power_signal, struct near *power, int64_t t)
{
	int64_t silent_at, bridge = AROUND * counter->refresh_ns;
	struct span span;
	int i = -1;

	drop_silence(power, &silent_at, t);
	drop_silence(near, &silent_at, t);
	tighten(counter, near);
	if (!near->n)
		return (struct edge){.known = false};
	while (i + 1 < near->n && jm_plateau_start(&near->run[i + 1]) <= t)
		i++;
	if (i < 0)
		return extrapolate(counter, near, 0, t, power);
	if (i + 1 == near->n)
		return extrapolate(counter, near, i, t, power);
	span = span_between(counter, near, i, power_signal, power);
	if (bridge < BRIDGE_MIN)
		bridge = BRIDGE_MIN;
	if (isnan(span.joules) ||
		(silent_at < near->run[i + 1].first && silent_at > near->run[i].seen &&
			span.end - near->run[i].seen > bridge))
		return extrapolate(counter, near, i, t, power);
	if (t <= span.begin)
		return (struct edge){.known = true, .anchor = near->run[i].first};
	return (struct edge){
		.known = true,
		.anchor = near->run[i].first,
		.joules = energy_in_span(&span, t),
		.variance = variance_in_span(&span, t),
	};
}

static int find_edge(const struct jm_trace_interval *s, int signal, int power, int64_t t,
	struct edge *ret, struct jm_err *err)
{
	const struct jm_signal *counter = &s->set->signal[signal];
	struct near near, watts = {.n = 0};
	int rc = look_around(s, signal, t, &near, err);

	/* a power averaged over more than the counter's refresh shows nothing within one step */
	if (!rc && power >= 0 && s->set->signal[power].window_ns <= counter->refresh_ns)
		rc = look_around(s, power, t, &watts, err);
	if (!rc)
		*ret = edge_among(
			counter, &near, power < 0 ? NULL : &s->set->signal[power], &watts, t);
	return rc;
}

/* ---- the middle ---- */

struct middle {
	const struct jm_signal *counter;
	int64_t from, to;
	bool any, silent;
	struct jm_reading last;
	int64_t first_t;
	double joules, lost_s, rate;
	/* the mean that may become the maximum */
	int64_t peak_t;
	double peak_joules, watts_max;
	long samples, gaps;
	int resets;
};

static void watch_peak(struct middle *m, int64_t t, double joules)
{
	m->peak_joules += joules;
	if (t - m->peak_t < PEAK_WINDOW)
		return;
	m->rate = m->peak_joules / seconds(t - m->peak_t);
	m->watts_max = fmax(m->watts_max, m->rate);
	m->peak_t = t;
	m->peak_joules = 0;
}

static void add_reading(struct middle *m, struct jm_reading r)
{
	double joules;

	if (r.t_ns < m->from || r.t_ns > m->to)
		return;
	if (isnan(r.value)) {
		m->gaps += !m->silent;
		m->silent = true;
		return;
	}
	m->silent = false;
	m->samples++;
	if (!m->any) {
		m->any = true;
		m->first_t = m->peak_t = r.t_ns;
	} else {
		double length = seconds(r.t_ns - m->last.t_ns);

		joules = rise(m->counter, m->last.value, r.value, length, m->rate);
		if (isnan(joules)) {
			m->resets++;
			m->gaps++;
			m->lost_s += length;
			m->peak_t = r.t_ns;
			m->peak_joules = 0;
		} else {
			m->joules += joules;
			watch_peak(m, r.t_ns, joules);
		}
	}
	m->last = r;
}

/* The known part of the interval: if the energy at an edge is unknown, from the first reading or to
 * the last. */
struct known {
	int64_t begin, end;
	struct edge e0, e1;
	bool whole_begin, whole_end;
};

static int find_edges(const struct jm_trace_interval *s, int signal, int power, struct known *k,
	struct jm_err *err)
{
	int rc = find_edge(s, signal, power, s->t0, &k->e0, err);

	k->begin = s->t0;
	k->end = s->t1;
	if (!rc)
		rc = find_edge(s, signal, power, s->t1, &k->e1, err);
	k->whole_begin = k->e0.known;
	k->whole_end = k->e1.known;
	return rc;
}

struct watched {
	struct middle *middle;
	const struct jm_watch *watch;
};

static int add_readings(void *arg, const struct jm_reading *reading, int n)
{
	struct watched *w = arg;

	for (int i = 0; i < n; i++)
		add_reading(w->middle, reading[i]);
	return w->watch ? w->watch->fn(w->watch->arg, reading, n) : 0;
}

static int sum_readings(const struct jm_trace_interval *s, int signal, const struct known *k,
	const struct jm_watch *watch, struct middle *ret, struct jm_err *err)
{
	struct watched both = {ret, watch};

	*ret = (struct middle){
		.counter = &s->set->signal[signal],
		.rate = NAN,
		.watts_max = NAN,
		.from = k->e0.known ? k->e0.anchor : k->begin,
		.to = k->e1.known ? k->e1.anchor : k->end,
	};
	return jm_trace_each_some(s->trace, signal,
		watch && watch->t0 < ret->from ? watch->t0 : ret->from,
		watch && watch->t1 > ret->to ? watch->t1 : ret->to, add_readings, &both, err);
}

/*
 * A counter without steps at an end of the stretch: its last value is as old as its last step, not
 * as its last reading, so the energy up to that reading has an edge there too.
 */
static int retreat(const struct jm_trace_interval *s, int signal, int power, const struct middle *m,
	struct known *k, struct jm_err *err)
{
	int rc = 0;

	if (!k->whole_begin) {
		k->begin = m->first_t;
		rc = find_edge(s, signal, power, k->begin, &k->e0, err);
	}
	if (!rc && !k->whole_end) {
		k->end = m->last.t_ns;
		rc = find_edge(s, signal, power, k->end, &k->e1, err);
	}
	return rc;
}

static void sum_up(const struct known *k, const struct middle *m, struct jm_part *ret)
{
	*ret = (struct jm_part){
		.joules = NAN,
		.known = NAN,
		.variance = NAN,
		.watts_max = m->watts_max,
		.samples = m->samples,
		.resets = m->resets,
		.gaps = m->gaps + !k->whole_begin + (!k->whole_end && !m->silent),
	};
	if (!m->any || !k->e0.known || !k->e1.known || k->end <= k->begin)
		return;
	ret->known = m->joules + k->e1.joules - k->e0.joules;
	ret->covered_s = seconds(k->end - k->begin) - m->lost_s;
	if (!k->whole_begin || !k->whole_end || m->resets)
		return;
	ret->joules = ret->known;
	ret->variance = k->e0.variance + k->e1.variance;
}

int jm_energy_by_counter(const struct jm_trace_interval *s, int signal, int power,
	const struct jm_watch *watch, struct jm_part *ret, struct jm_err *err)
{
	struct known k = {0};
	struct middle m;
	int rc = find_edges(s, signal, power, &k, err);

	if (!rc)
		rc = sum_readings(s, signal, &k, watch, &m, err);
	if (!rc && m.any)
		rc = retreat(s, signal, power, &m, &k, err);
	if (!rc)
		sum_up(&k, &m, ret);
	return rc;
}
