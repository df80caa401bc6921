/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load that repeats in step with the sensor, or nearly so, shows it the same few moments over and
 * over. What is missed between them then adds up instead of averaging out: readings that are `lag`
 * refreshes apart are alike again after nearer ones were not.
 *
 * A load whose period is nearly the refresh, or a whole part of it, is seen as a slow wave, its
 * alias. When the stretch is not a whole number of such waves, the mean of the readings is not the
 * load's. The mean over a window smoothes an alias: a jump of the load takes the readings as many
 * refreshes as they need to go through the window, while a jump of a load that is slow itself takes
 * one. A small jump may also be the jitter of an alias of which a part was seen, unless readings
 * are steady on both sides of it. A wave without such jumps may be an alias; what it misses is a
 * part of its range, and the less the more often it turned: went from near one end of its range to
 * near the other. Few readings show only a part of the wave, so that its range is larger than
 * theirs, up to what the device's limit allows. So do more readings of a wave that did not turn.
 *
 * Only such ways count as samples of the wave. Where the load's period is not constant, its place
 * in the sensor's refresh is a random walk, and that returns to where it was, and crosses the mean
 * of its places, many times before it has been everywhere (W. Feller, An Introduction to
 * Probability Theory and Its Applications, vol. 1, chapter III: some sqrt(n) times in n steps).
 *
 * A load of nearly k refreshes is seen as k such waves in turn: tracks, of every k-th reading each.
 */
#include "energy/energy_parts.h"

#include <math.h>
#include <string.h>

#define UNLIKE	   0.5	/* correlation below which readings are not alike */
#define BETTER	   0.05 /* a longer lag must be more alike than a shorter one by this */
#define MOST	   0.99 /* correlation: readings are rounded */
#define SURE	   0.9	/* correlation of readings that repeat */
#define TURNS	   3	/* repetitions that make a pattern */
#define FEW_PLACES 8
#define MANY	   4096 /* readings: of more, only the first BLOCK of BLOCKS are compared */
#define BLOCK	   64
#define BLOCKS	   512
#define NEAR	   0.2 /* of the standard deviation: readings so near the mean are on neither side */
/* Chosen with bench/energy_bounds. */
#define SMOOTH	     0.85 /* of the range: a wave with such a change between readings is no alias */
#define SMALL	     0.3 /* of the limit: in a smaller range only a jump between steady readings counts */
#define STEADY	     0.1  /* of a jump: the changes before and after it are smaller */
#define NEAR_END     0.2  /* of the range: a wave turns so near its ends */
#define GREW	     1.25 /* times the range: turns within a smaller range do not count */
#define ONE_WAY	     1.2  /* of the range: the changes of readings that only rose, or fell */
#define START	     64	  /* readings: of so many, some may be a load's start */
#define QUICK	     2 /* a start has a change of QUICK / (seen share x longest stay on one side) */
#define ALIAS	     2 /* of the range: what the mean of a part of an alias misses */
#define EVEN	     3 /* readings of a repetition: what the others miss cancels out */
#define FEW_OF_WAVE  10	 /* readings: fewer of these show only a part of the wave */
#define MOST_OF_WAVE 0.4 /* of the limit: what that part adds at most */
#define PART_OF_WAVE 14	 /* readings: of fewer, FEW_OF_WAVE allows for the rest of the wave */
#define PART	     15	 /* of the range seen: what a wave may miss that did not turn */
#define MOST_OF_PART 0.8 /* of the limit: the same */
#define TRACKS	     1.1 /* power of the number of tracks: what they miss cancels out in part */
#define SLOWER                                                                                     \
	0.7 /* of the change between readings: that between those of one track, if they are tracks */

static double square(double x)
{
	return x * x;
}

/* How long do readings stay on one side of their mean so far? */
static void cross(struct jm_pattern *p, double off)
{
	double n = (double)p->n, away = n * off - p->sum;
	int side = away < 0 ? -1 : 1;

	if (side != p->side && square(away) > square(NEAR) * (n * p->squares - square(p->sum))) {
		p->side = side;
		p->since = p->n;
	}
	if (p->n - p->since > p->longest)
		p->longest = p->n - p->since;
}

static inline void compare(struct jm_pattern *p, double watts, int lags)
{
	double last[JM_PATTERN_LAGS]; /* a copy: the compiler may take several at a time */

	memcpy(last, &p->last[p->at], sizeof(last));
	for (int lag = 0; lag < lags; lag++)
		p->apart[lag] += square(watts - last[lag]);
	p->compared++;
}

static void remember(struct jm_pattern *p, double watts)
{
	p->at = (p->at ? p->at : JM_PATTERN_LAGS) - 1;
	p->last[p->at] = p->last[p->at + JM_PATTERN_LAGS] = watts;
}

/* n readings are in the sums. */
static void count(struct jm_pattern *p, double off, long n)
{
	p->n += n;
	p->sum += (double)n * off;
	p->squares += (double)n * square(off);
	cross(p, off);
}

/* Counts how often readings go from near one end of their range so far to near the other. */
static void turn(struct jm_pattern *p, double watts)
{
	double range = p->most - p->least;
	int end = (watts >= p->most - NEAR_END * range) - (watts <= p->least + NEAR_END * range);

	if (range > GREW * p->range_turned) {
		p->range_turned = range;
		p->turns = p->turns > 1 ? 1 : p->turns;
	}
	if (!end || end == p->end)
		return;
	p->turns += p->end != 0;
	p->end = end;
}

/* The last change is followed by this one: was it a jump between steady readings? */
static void note_step(struct jm_pattern *p, double change)
{
	if (p->n > 2 && fmax(p->before_last, change) < STEADY * p->last_change)
		p->step = fmax(p->step, p->last_change);
	p->before_last = p->last_change;
	p->last_change = change;
}

static void follow(struct jm_pattern *p, double watts)
{
	if (p->n)
		note_step(p, fabs(watts - p->last[p->at]));
	for (int lag = 0; lag < JM_PATTERN_TRACKS && lag < p->n; lag++) {
		double change = fabs(watts - p->last[p->at + lag]);

		p->jump[lag] = fmax(p->jump[lag], change);
		p->path[lag] += change;
	}
}

static void add_one(struct jm_pattern *p, double watts)
{
	if (!p->n)
		p->first = p->least = p->most = watts;
	follow(p, watts);
	if (p->n < JM_PATTERN_LAGS)
		compare(p, watts, (int)p->n);
	else if (p->n < MANY || p->n % BLOCKS < BLOCK)
		compare(p, watts, JM_PATTERN_LAGS);
	if (watts < p->least)
		p->least = watts;
	if (watts > p->most)
		p->most = watts;
	turn(p, watts);
	remember(p, watts);
	count(p, watts - p->first, 1);
}

void jm_pattern_add(struct jm_pattern *p, double watts, long n)
{
	long one_by_one = n < JM_PATTERN_LAGS ? n : JM_PATTERN_LAGS;

	if (n == 1) {
		add_one(p, watts);
		return;
	}
	for (long i = 0; i < one_by_one; i++)
		add_one(p, watts);
	if (n <= one_by_one)
		return;
	count(p, watts - p->first, n - one_by_one); /* equal at all lags from here on */
	p->compared += n - one_by_one;
}

double jm_pattern_mean(const struct jm_pattern *p)
{
	return p->n ? p->first + p->sum / (double)p->n : 0;
}

/* W^2, of readings around their mean. */
static double variance(const struct jm_pattern *p)
{
	double n = (double)p->n;

	return (p->squares - square(p->sum) / n) / n;
}

double jm_pattern_swing(const struct jm_pattern *p)
{
	if (!(p->apart[0] > 0))
		return 1;
	return fmin(1, 2 * variance(p) * (double)p->compared / p->apart[0]);
}

/* W: by how much the mean of a part of the wave may be off in the time that is not measured. */
static double alias_misses(const struct jm_pattern *p, double limit)
{
	double seen = ALIAS * (p->most - p->least);

	return fmax(seen, fmin(seen * (1 + FEW_OF_WAVE / (double)p->n), MOST_OF_WAVE * limit));
}

/* How often the wave of the readings at this lag went from one end of their range to the other. The
 * first way may be a part of one between ends that are farther apart. */
static double crossings(const struct jm_pattern *p, int lag, double range)
{
	double more = p->path[lag - 1] / (lag * range);

	if (lag > 1)
		return more;
	return fmax(0, fmin(more, (double)p->turns) - 1);
}

/* W: the same for a wave at this lag of which only a part was seen: its range may be all that the
 * limit allows. */
static double part_misses(const struct jm_pattern *p, int lag, double limit)
{
	double range = p->most - p->least, more;

	if (p->n < PART_OF_WAVE || p->n < 2 * lag)
		return 0;
	more = crossings(p, lag, range);
	return fmin(PART * range * exp(-more), MOST_OF_PART * limit) / (1 + more) /
	       pow(lag, TRACKS);
}

/* Readings of a load that jumps itself. */
static bool has_jump(const struct jm_pattern *p, double limit)
{
	double range = p->most - p->least;

	return p->jump[0] >= SMOOTH * range &&
	       (range >= SMALL * limit || p->step >= SMOOTH * range);
}

/* Readings that went to another level once, soon, and stayed there. */
static bool is_start(const struct jm_pattern *p, double seen_share)
{
	double range = p->most - p->least;

	return p->n >= START && p->path[0] <= ONE_WAY * range &&
	       p->jump[0] * seen_share * (double)p->longest >= QUICK * range;
}

/* Do every lag-th readings go more smoothly than all of them? */
static bool is_track(const struct jm_pattern *p, int lag)
{
	return p->jump[lag - 1] < SMOOTH * (p->most - p->least) &&
	       p->path[lag - 1] <= SLOWER * p->path[0];
}

double jm_pattern_alias(const struct jm_pattern *p, double seen_share, double limit)
{
	double misses = 0;

	if (!has_jump(p, limit) && !is_start(p, seen_share)) {
		misses = alias_misses(p, limit) / (double)(p->turns + 1);
		misses = fmax(misses, part_misses(p, 1, limit));
	}
	for (int lag = 2; lag <= JM_PATTERN_TRACKS; lag++)
		if (is_track(p, lag))
			misses = fmax(misses, part_misses(p, lag, limit));
	return (1 - seen_share) * misses;
}

static double alike_at(const struct jm_pattern *p, long lag)
{
	double unlike = 2 * variance(p) * (double)(p->compared - lag);

	return unlike > 0 ? 1 - p->apart[lag - 1] / unlike : 0;
}

/* The lag at which readings are most alike after they were not; 0 = there is none. */
static long best_lag(const struct jm_pattern *p, double *ret_alike)
{
	bool fell = false;
	long best = 0;

	*ret_alike = 0;
	for (long lag = 1; lag <= JM_PATTERN_LAGS && lag < p->n; lag++) {
		double alike = alike_at(p, lag);

		if (fell && alike > *ret_alike + BETTER) {
			*ret_alike = alike;
			best = lag;
		}
		fell = fell || alike < UNLIKE;
	}
	return best;
}

/*
 * The share of what is missed in the readings of one repetition that adds up over the repetitions.
 * Many readings at different places of a load go evenly through its period, so that what they miss
 * cancels out but for that of a few of them. Readings that seldom change miss something in few
 * places only.
 */
static double uneven(const struct jm_pattern *p, long lag, double alike)
{
	double changing = (double)lag * (1 - fmax(0, alike_at(p, 1)));

	if (alike < SURE || lag <= FEW_PLACES || p->n < TURNS * lag)
		return 1;
	return fmin(1, EVEN / changing);
}

double jm_pattern_repeats(const struct jm_pattern *p)
{
	double alike, turns, uneven_share;
	long lag = best_lag(p, &alike);

	if (!lag)
		return 1;
	uneven_share = uneven(p, lag, alike);
	alike = fmin(alike, MOST);
	turns = fmin((1 + alike) / (1 - alike), (double)p->n / (double)lag);
	return uneven_share < 1 ? uneven_share * turns : fmax(1, turns);
}

int jm_pattern_places(const struct jm_pattern *p)
{
	double alike;
	long lag = best_lag(p, &alike);

	return alike >= SURE && lag <= FEW_PLACES && p->n >= TURNS * lag ? (int)lag : 0;
}
