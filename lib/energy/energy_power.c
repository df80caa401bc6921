/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Energy from power readings. A reading is the mean of the window that ends when the sensor
 * refreshed; between it and the next window power is assumed to change linearly.
 *
 * Error: a change of power by dP that happened somewhere in a gap of length g is off by at most
 * dP g / 2, with variance (dP g)^2 / 12. Where power changes faster than the sensor looks, more is
 * missed between readings: for a signal with correlation time tau and x = g / tau the variance is
 * (coth(x/2) - 2/x) / (2 (1 - exp(-x))) of (dP g)^2, which goes from 1/12 (slow) to 1/2 (fast). The
 * correlation of readings one and two refreshes apart gives x. A load that repeats in step with the
 * sensor shows it the same moments again and again, so that what is missed adds up; one that nearly
 * does is seen as a slow wave (energy_pattern.c). Few readings may be alike whatever happens
 * between them: then the bound follows from what the device can draw, hidden() below;
 * docs/energy.md has the figures. A value of unknown refresh holds until the next one is seen, but
 * power may have changed at any time since it came: at most dP times that time is missed, all of it
 * on one side, with variance (dP t)^2 / 3.
 */
#include "energy/energy_parts.h"
#include "trace/plateaus.h"

#include <math.h>

/* Chosen with bench/energy_bounds, so that the bound holds 95 of 100 loads of all kinds. */
#define HIDDEN	      0.5 /* of the mean power: hidden in one gap where many readings are alike */
#define FEW_UNLIMITED 2	 /* readings: with fewer of these more is hidden; where no limit is known */
#define FEW	      10 /* readings: this number is too small to know the power in a gap */
#define FEW_VARIED    2.5  /* readings: the same, where they differ */
#define VARIED	      0.08 /* of the limit: readings that are so far apart differ */
#define ALIKE_GAPS    3.5  /* whose error adds up while readings stay alike */
#define ALIKE	      0.02 /* of the limit: readings that are no farther apart are alike */
#define FEW_ALIKE     14   /* readings: of fewer, hidden_by_few() allows for what they hide */
#define MANY_ALIKE                                                                                 \
	64 /* readings: the alias of a load within 5 % of the refresh has turned by then */
#define FEW_PAIRS	 7     /* of readings: fewer tell little of how power changes in a window */
#define FLAT		 0.25  /* of the mean power: what windows that are alike may hide */
#define REST		 0.125 /* of the limit: a device rests at about that */
#define SLOTS_AROUND	 INT64_C(2000000000)  /* ns before and after the stretch */
#define SLOWEST		 INT64_C(60000000000) /* ns, where the refresh is not known */
#define BRIDGE_REFRESHES 3
#define BRIDGE_MIN	 INT64_C(250000000) /* ns without readings that may be interpolated */

/* A value from when the sensor came to it, by the best guess, until it was seen last; for the
 * middle of its window. */
struct level {
	double value;
	int64_t start, seen;
};

struct sum {
	const struct jm_signal *signal;
	int64_t t0, t1, window, shift;
	double limit; /* W, of the device; 0 = not known */
	double joules, covered_s, watts_max;
	double highest, lowest; /* W: readings in the stretch, and next to it on either side */
	long samples, gaps;
	struct level last; /* finite */
	double before_last;
	bool any, silent, last_held;
	int64_t silent_at;
	int64_t done; /* up to here power is accounted for */
	double gap_squares, time_squares;
	/* where the refresh is not known: (change x late)^2, and changes, the first and the last */
	double late_squares, change_squares;
	long changes;
	int64_t change_first, change_last;
	double one_apart, two_apart;
	int64_t compared; /* ns, from the first of these readings to the last */
	struct jm_pattern pattern;
};

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

static double square(double x)
{
	return x * x;
}

/* Adds power that changes linearly from a at `begin` to b at `end`, for its part in the
 * interval. */
static void add_line(struct sum *s, int64_t begin, int64_t end, double a, double b)
{
	int64_t from = begin > s->t0 ? begin : s->t0, to = end < s->t1 ? end : s->t1;
	double mean = (a + b) / 2;

	if (to <= from)
		return;
	if (from > begin || to < end)
		mean = a + (b - a) / seconds(end - begin) *
				   (seconds(from - begin) + seconds(to - begin)) / 2;
	s->joules += seconds(to - from) * mean;
	s->covered_s += seconds(to - from);
}

/* The last value from begin to `from`, a line from there to `to`, and then watts until start. */
static void add_step(
	struct sum *s, int64_t begin, int64_t from, int64_t to, int64_t start, double watts)
{
	double last = s->last.value;

	if (begin >= s->t0 && to <= start && start <= s->t1) {
		s->joules += seconds(from - begin) * last +
			     seconds(to - from) * (last + watts) / 2 + seconds(start - to) * watts;
		s->covered_s += seconds(start - begin);
		return;
	}
	add_line(s, begin, from, last, last);
	add_line(s, from, to, last, watts);
	add_line(s, to, start, watts, watts);
}

static bool touches(const struct sum *s, int64_t begin, int64_t end)
{
	return begin < s->t1 && end > s->t0;
}

static void note_range(struct sum *s, double watts)
{
	if (!(watts <= s->highest)) /* NAN before the first */
		s->highest = watts;
	if (!(watts >= s->lowest))
		s->lowest = watts;
}

static void note_highest(struct sum *s, const struct jm_plateau *run, int64_t start)
{
	if (!touches(s, start - s->window, run->seen - s->shift + 1))
		return;
	s->samples++;
	if (!(run->value <= s->watts_max)) /* NAN before the first */
		s->watts_max = run->value;
}

/* The last moment at which the sensor is known to have had its last value, before the next one at
 * `start`. */
static int64_t known_until(const struct sum *s, int64_t start)
{
	int64_t last = s->signal->refresh_ns ? start - s->signal->refresh_ns : s->last.seen;

	if (last > s->last.seen)
		last = s->last.seen;
	return last > s->last.start ? last : s->last.start;
}

/* The run from its start to `until`: a reading at each refresh. */
static void note_pattern(struct sum *s, int64_t from, int64_t until, double value)
{
	int64_t refresh = s->signal->refresh_ns, n = 1;

	if (refresh > 0 && (until - from < refresh / 2 || until - from >= refresh + refresh / 2))
		n = (until - from + refresh / 2) / refresh;
	jm_pattern_add(&s->pattern, value, n);
}

/* How alike are readings one and two refreshes apart? A value that stays counts as alike. */
static void correlate(struct sum *s, const struct jm_plateau *run, bool held)
{
	if (s->last_held && !isnan(s->before_last))
		s->two_apart += square(s->last.value - s->before_last);
	s->one_apart += square(run->value - s->last.value);
	if (held)
		s->two_apart += square(run->value - s->last.value);
	else if (!isnan(s->before_last))
		s->two_apart += square(run->value - s->before_last);
}

static void first_run(struct sum *s, const struct jm_plateau *run, int64_t start)
{
	add_line(s, start - jm_reach(s->signal) - s->window, start, run->value, run->value);
}

/* Power may have changed at any time since the change before, as far as that is in the stretch. */
static void note_late(struct sum *s, int64_t start, double change)
{
	int64_t from = s->last.start > s->t0 ? s->last.start : s->t0;
	int64_t to = start < s->t1 ? start : s->t1;

	if (s->signal->refresh_ns || to <= from)
		return;
	s->late_squares += square(change * seconds(to - from));
	s->change_squares += square(change);
	if (!s->changes++)
		s->change_first = start;
	s->change_last = start;
}

/* J^2: what that may have missed. A sensor with a refresh changes not later than the mean distance
 * of its changes. */
static double missed_late(const struct sum *s)
{
	double most = seconds(SLOWEST);

	if (s->changes > 1)
		most = fmin(
			most, seconds(s->change_last - s->change_first) / (double)(s->changes - 1));
	return fmin(s->late_squares, s->change_squares * square(most)) / 3;
}

static void join(struct sum *s, const struct jm_plateau *run, int64_t start)
{
	int64_t from = known_until(s, start), to = start - s->window;
	double change = run->value - s->last.value;
	bool held = from > s->last.start + s->signal->refresh_ns / 2;

	if (to < from)
		to = from;
	add_step(s, s->last.start, from, to, start, run->value);
	if (touches(s, from, start)) {
		s->gap_squares += square(change * seconds(to - from));
		s->time_squares += square(change * seconds(run->hi - run->lo));
	}
	if (touches(s, s->last.start, start)) {
		note_pattern(s, s->last.start, start, s->last.value);
		note_range(s, s->last.value);
		note_range(s, run->value);
	}
	note_late(s, start, change);
	correlate(s, run, held);
	s->compared += start - s->last.start;
	s->last_held = held;
}

/* Ends the last run before a gap in the readings: its value is valid as long as it was seen. */
static void close_run(struct sum *s)
{
	int64_t start = s->last.start, seen = s->last.seen;

	if (seen > start)
		add_line(s, start, seen, s->last.value, s->last.value);
}

static void on_silence(struct sum *s, const struct jm_plateau *run)
{
	s->silent = true;
	s->silent_at = run->first - s->shift;
	if (touches(s, run->lo - s->shift, run->seen - s->shift + 1))
		s->gaps++;
}

/* Too far from the last reading for a line between the two? */
static bool is_far(const struct sum *s, int64_t start)
{
	int64_t bridge = BRIDGE_REFRESHES * s->signal->refresh_ns;

	return start - s->window - s->last.seen > (bridge < BRIDGE_MIN ? BRIDGE_MIN : bridge);
}

/* The first run, or one after a gap. */
static void begin_anew(struct sum *s, const struct jm_plateau *run, int64_t start)
{
	if (!s->any && !s->silent) {
		first_run(s, run, start);
		return;
	}
	if (s->any) {
		close_run(s);
		s->last.value = NAN;
	}
	add_line(s, start - s->window, start, run->value, run->value);
}

static void on_run(void *arg, const struct jm_plateau *run)
{
	struct sum *s = arg;
	int64_t start = jm_plateau_start(run) - s->shift;

	if (isnan(run->value)) {
		on_silence(s, run);
		return;
	}
	if (s->any && !(s->silent && is_far(s, start)))
		join(s, run, start);
	else
		begin_anew(s, run, start);
	note_highest(s, run, start);
	s->before_last = s->any ? s->last.value : NAN;
	s->last = (struct level){run->value, start, run->seen - s->shift};
	s->any = true;
	s->silent = false;
}

/* After the last plateau: it is valid a little longer than it was read, unless readings stopped. */
static void finish(struct sum *s)
{
	int64_t start = s->last.start, end;

	if (!s->any)
		return;
	end = s->silent ? s->last.seen : s->last.seen + jm_reach(s->signal) + 2 * s->shift;
	if (end > start)
		add_line(s, start, end, s->last.value, s->last.value);
	if (!touches(s, start, end))
		return;
	note_pattern(s, start, end < s->t1 ? end : s->t1, s->last.value);
	if (!s->pattern.n) /* a stretch soon after the only reading that it has */
		jm_pattern_add(&s->pattern, s->last.value, 1);
}

/* The share of (dP g)^2 that is variance; see above. */
static double missed_share(const struct sum *s)
{
	double alike = s->one_apart > 0 ? s->two_apart / s->one_apart - 1 : 1, x;

	alike = fmin(fmax(alike, 0.02), 0.98);
	x = -log(alike);
	return (1 / tanh(x / 2) - 2 / x) / (2 * (1 - alike));
}

/* Of the time, between windows; 0 where one of the two is not known. */
static double unseen_share(const struct sum *s)
{
	if (!s->window || s->window >= s->signal->refresh_ns)
		return 0;
	return 1 - seconds(s->window) / seconds(s->signal->refresh_ns);
}

/*
 * J, standard deviation: how far the mean is off where the readings may be the alias of a fast
 * load. Without gaps between the windows nothing has an alias.
 */
static double alias(const struct sum *s)
{
	double seen = 1 - unseen_share(s);

	if (seen >= 1)
		return 0;
	return jm_pattern_alias(&s->pattern, seen, s->limit) * seconds(s->t1 - s->t0) / Z95;
}

static double range_of(const struct sum *s)
{
	return s->highest >= s->lowest ? s->highest - s->lowest : 0;
}

/* Such a load cannot be told from one whose period is nearly the refresh. */
static bool is_alike(const struct sum *s)
{
	double most = s->limit > 0 ? s->limit : s->highest;

	return s->pattern.n >= FEW_ALIKE && s->pattern.n < MANY_ALIKE &&
	       range_of(s) <= ALIKE * most;
}

/* W, standard deviation: the mean power of one gap, estimated from few readings. uniform: W, the
 * same without any information from readings. While readings stay alike, the errors of the gaps add
 * up; ALIKE_GAPS of them exclude most loads that change. Where readings differ, few of them are a
 * poor sample of the load. */
static double hidden_by_few(const struct sum *s, double uniform)
{
	double varied = fmin(1, range_of(s) / (VARIED * s->limit));
	double gaps = (double)(s->t1 - s->t0) / (double)s->signal->refresh_ns;

	return uniform * ((1 - varied) * fmin(1, gaps / ALIKE_GAPS) +
				 varied * (1 + FEW_VARIED / fmax(1, (double)s->pattern.n)));
}

/* J, standard deviation: what one gap may hide, however alike the readings are. */
static double hidden(const struct sum *s, double gap)
{
	double n = fmax(1, (double)s->pattern.n), few = fmin(1, FEW / n);
	double of_mean = HIDDEN * jm_pattern_mean(&s->pattern);
	double uniform = (1 - REST) * s->limit / sqrt(12); /* anything from rest to the limit */

	if (!(s->limit > 0))
		return (1 + FEW_UNLIMITED / n) * of_mean * gap;
	return (few * hidden_by_few(s, uniform) + (1 - few) * fmin(uniform, of_mean)) * gap;
}

/* J^2: what power did between the windows of the readings. Their differences show one part of it;
 * what they may hide is an alternative to that, not an addition, where the device's limit bounds
 * it. */
static double between_windows(const struct sum *s)
{
	double gap = fmax(0, seconds(s->signal->refresh_ns - s->window));
	double grown = jm_pattern_repeats(&s->pattern) * jm_pattern_swing(&s->pattern);
	double range = range_of(s), shown, hides;

	if (!(s->limit > 0)) /* then most_missed() does not bound what a short stretch hides */
		gap = fmin(gap, seconds(s->t1 - s->t0));
	if (s->shift) /* there is no gap between the windows; their length is unknown */
		return s->gap_squares * missed_share(s) + square(range * gap) / 12;
	shown = s->gap_squares * missed_share(s) * grown + square(range * gap) / 4;
	hides = gap > 0 ? square(hidden(s, gap)) : 0;
	return (s->limit > 0 ? fmax(shown, hides) : shown + hides) + square(alias(s));
}

/*
 * J^2: what power did inside the windows that the two ends of the stretch cut, each at a share u of
 * its length T: V T^2 u (1 - u), V T^2 / 6 on average, as in a step of a counter (energy_unseen.c).
 * V, the variance of power within a window, comes from readings that follow each other; means of
 * windows that overlap differ by less. A stretch much shorter than T misses no more than its own
 * length, in which power may differ from the reading by 2 sqrt(V). Where windows are at most half
 * of the refresh, the gaps between them hide more (between_windows), and this part is left out.
 */
static double within_windows(const struct sum *s)
{
	double refresh = seconds(s->signal->refresh_ns), window = seconds(s->window + 2 * s->shift);
	double pairs = seconds(s->compared) / refresh, length = seconds(s->t1 - s->t0), squares = 0;

	if (2 * window <= refresh || !(refresh > 0))
		return 0;
	if (pairs > 0)
		squares = s->one_apart / 2 / pairs * (1 + FEW_PAIRS / pairs) * window / refresh;
	squares += square(FLAT * jm_pattern_mean(&s->pattern));
	return squares * fmin(square(window) / 3, square(2 * length));
}

/* J^2: more is impossible, as power is between 0 and the limit all the time. */
static double most_missed(const struct sum *s)
{
	double length = seconds(s->t1 - s->t0);

	if (!(s->limit > 0) || !(s->covered_s > 0))
		return INFINITY;
	return square(fmax(s->joules, s->limit * length - s->joules) / Z95);
}

/* A sensor whose refresh is unknown, and that shows one value, may not have measured at all in this
 * time. */
static bool is_blind(const struct sum *s)
{
	return !s->signal->refresh_ns && !(range_of(s) > 0);
}

/* One pass: plateaus within [t0, t1] with one reading on each side, and slots. */
struct pass {
	int64_t t0, t1;
	struct jm_plateaus steps;
	struct jm_power_slots *slots;
	struct jm_reading before;
	bool has_before, over;
};

static int pass_on(void *arg, const struct jm_reading *reading, int n)
{
	struct pass *p = arg;
	int begin = 0, end;

	jm_power_slots_add(p->slots, reading, n);
	while (begin < n && reading[begin].t_ns < p->t0)
		begin++;
	if (begin) {
		p->before = reading[begin - 1];
		p->has_before = true;
	}
	end = n;
	if (p->over || reading[n - 1].t_ns > p->t1)
		for (end = begin; !p->over && end < n; end++)
			p->over = reading[end].t_ns > p->t1;
	if (end == begin)
		return 0;
	jm_plateaus_feed_all(&p->steps, &p->before, p->has_before);
	p->has_before = false;
	jm_plateaus_feed_all(&p->steps, reading + begin, end - begin);
	return 0;
}

static int read_power(const struct jm_trace_interval *stretch, int signal, struct sum *s,
	struct jm_power_slots *slots, struct jm_err *err)
{
	int64_t around = jm_reach(s->signal) * 3 + s->shift;
	int64_t more = around > SLOTS_AROUND ? around : SLOTS_AROUND;
	struct pass p = {.t0 = s->t0 - around + 2 * s->shift, .t1 = s->t1 + around, .slots = slots};
	int rc;

	jm_plateaus_init(&p.steps, s->signal, on_run, s);
	jm_power_slots_init(slots, s->t0 - SLOTS_AROUND, s->t1 + SLOTS_AROUND);
	rc = jm_trace_each_some(
		stretch->trace, signal, s->t0 - more, s->t1 + more, pass_on, &p, err);
	if (p.has_before)
		jm_plateaus_feed(&p.steps, p.before);
	jm_plateaus_end(&p.steps);
	jm_power_slots_end(slots);
	return rc;
}

int jm_energy_by_power(const struct jm_trace_interval *stretch, const struct jm_meter_signals *m,
	struct jm_power_slots *slots, struct jm_part *ret, struct jm_err *err)
{
	const struct jm_signal *power = &stretch->set->signal[m->power];
	struct sum s = {
		.signal = power,
		.t0 = stretch->t0,
		.t1 = stretch->t1,
		.watts_max = NAN,
		.highest = NAN,
		.lowest = NAN,
		.before_last = NAN,
	};
	double length = seconds(s.t1 - s.t0), variance;
	int rc;

	/* A long window's mean belongs to its middle; a short one is known to end at the
	 * refresh. */
	if (power->window_ns > 2 * power->refresh_ns)
		s.shift = power->window_ns / 2;
	else if (power->window_ns > 0)
		s.window = power->window_ns;
	rc = read_power(stretch, m->power, &s, slots, err);
	if (rc)
		return rc;
	finish(&s);
	if (m->limit > 0)
		s.limit = fmax(m->limit, s.samples ? s.watts_max : 0);
	variance = between_windows(&s) + within_windows(&s) + s.time_squares / 12 +
		   missed_late(&s) + square(power->step * s.covered_s) / 12 +
		   2 * square(range_of(&s) * seconds(s.shift)) / 12;
	*ret = (struct jm_part){
		.joules = s.covered_s > length * (1 - 1e-6) ? s.joules : NAN,
		.known = s.covered_s > 0 ? s.joules : NAN,
		.variance = is_blind(&s) ? NAN : fmin(variance, most_missed(&s)),
		.unseen = unseen_share(&s),
		.alike = is_alike(&s),
		.few = s.pattern.n < FEW_ALIKE,
		.places = jm_pattern_places(&s.pattern),
		.covered_s = s.covered_s,
		.watts_max = s.watts_max,
		.samples = s.samples,
		.gaps = s.gaps,
	};
	return 0;
}
