/* SPDX-License-Identifier: Apache-2.0 */
/* Least squares over window, delay and rise; low, high and their drift follow from these by linear
 * least squares. */
#include "energy/sensor_fit.h"

#include "base/stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_CHANGES 40
#define GROUPS	      8
#define LINEAR	      4 /* low, high - low, and the drift of each */
#define LONGEST_S     2.5
#define PARTS	      4	  /* of a shape */
#define MOST_STEPS    300 /* of a search; real readings take a tenth of it */
/* High less low must stand out of what the model leaves by this factor, and be this share of
 * high. */
#define CONTRAST 3
#define SHARE	 0.05

/* A value of the sensor. */
struct change {
	double t;     /* s since the first reading */
	double gap;   /* s since the change before */
	double watts; /* of a counter: the mean since the change before */
};

struct shape {
	double window, delay, rise, fall; /* s; window NAN = the gap of each change */
};

struct fit {
	const struct change *change;
	int n;
	const double *edge; /* s since the first reading */
	int n_edges;
	double *level, *sum; /* of L and its integral at each edge, for the rise of the moment */
	int without;	     /* the group that is left out; -1 = none */
	double linear[LINEAR];
};

/* ---- the load as power shows it -------------------------------------------------------------- */

static double level_after(double level, double target, double seconds, double lag)
{
	return lag > 0 ? target + (level - target) * exp(-seconds / lag) : target;
}

static double sum_after(double level, double target, double seconds, double lag)
{
	return lag > 0 ? target * seconds + (level - target) * lag * -expm1(-seconds / lag)
		       : target * seconds;
}

/* The load between edges i - 1 and i. */
static double load_before(int i)
{
	return i % 2;
}

static double lag_before(const struct shape *s, int i)
{
	return i % 2 ? s->rise : s->fall;
}

static void follow_load(const struct fit *f, const struct shape *s)
{
	f->level[0] = f->sum[0] = 0;
	for (int i = 1; i < f->n_edges; i++) {
		double seconds = f->edge[i] - f->edge[i - 1], lag = lag_before(s, i);

		f->level[i] = level_after(f->level[i - 1], load_before(i), seconds, lag);
		f->sum[i] =
			f->sum[i - 1] + sum_after(f->level[i - 1], load_before(i), seconds, lag);
	}
}

/* Integral of L up to t. *i: an index near by, kept from call to call while t grows. */
static double sum_at(const struct fit *f, double t, const struct shape *s, int *i)
{
	while (*i + 1 < f->n_edges && f->edge[*i + 1] <= t)
		++*i;
	if (t < f->edge[*i])
		return 0;
	return f->sum[*i] +
	       sum_after(f->level[*i], load_before(*i + 1), t - f->edge[*i], lag_before(s, *i + 1));
}

/* ---- linear least squares -------------------------------------------------------------------- */

/* Solves a x = b for a symmetric positive matrix, by elimination; a and b are used up. False:
 * singular. */
static bool solve(double a[LINEAR][LINEAR], double b[LINEAR], double x[LINEAR])
{
	for (int i = 0; i < LINEAR; i++) {
		if (!(a[i][i] > 1e-12))
			return false;
		for (int k = i + 1; k < LINEAR; k++) {
			double factor = a[k][i] / a[i][i];

			for (int j = i; j < LINEAR; j++)
				a[k][j] -= factor * a[i][j];
			b[k] -= factor * b[i];
		}
	}
	for (int i = LINEAR - 1; i >= 0; i--) {
		x[i] = b[i];
		for (int j = i + 1; j < LINEAR; j++)
			x[i] -= a[i][j] * x[j];
		x[i] /= a[i][i];
	}
	return true;
}

struct normal {
	double a[LINEAR][LINEAR], b[LINEAR], yy;
	int n;
};

static void add_row(struct normal *m, const double row[LINEAR], double y)
{
	for (int i = 0; i < LINEAR; i++) {
		for (int j = 0; j < LINEAR; j++)
			m->a[i][j] += row[i] * row[j];
		m->b[i] += row[i] * y;
	}
	m->yy += y * y;
	m->n++;
}

/* What the model leaves of the readings: the sum of squares per reading, W^2. */
static double misfit(struct fit *f, const struct shape *s)
{
	struct normal m = {0};
	double b[LINEAR], left;
	int from = 0, to = 0;
	double middle = f->change[f->n / 2].t, length = f->change[f->n - 1].t - f->change[0].t;

	follow_load(f, s);
	for (int i = 0; i < f->n; i++) {
		const struct change *c = &f->change[i];
		double window = isnan(s->window) ? c->gap : s->window, end = c->t - s->delay;
		double load = (sum_at(f, end, s, &to) - sum_at(f, end - window, s, &from)) / window;
		double drift = 2 * (c->t - middle) / length;
		const double row[LINEAR] = {1, load, drift, load * drift};

		/* the first second has a past that is not known */
		if (c->t < LONGEST_S || i * GROUPS / f->n == f->without)
			continue;
		add_row(&m, row, c->watts);
	}
	memcpy(b, m.b, sizeof(b));
	if (m.n <= LINEAR || !solve(m.a, m.b, f->linear))
		return INFINITY;
	left = m.yy;
	for (int i = 0; i < LINEAR; i++)
		left -= f->linear[i] * b[i];
	return left > 0 ? left / m.n : 0;
}

/* ---- the search ------------------------------------------------------------------------------ */

static struct shape coarse(struct fit *f, bool counter)
{
	struct shape best = {.window = NAN}, s;
	double least = INFINITY;

	for (double window = 0.004; window < LONGEST_S; window *= 1.3) {
		s.window = counter ? NAN : window;
		for (s.delay = -0.02; s.delay < 0.3; s.delay += 0.01)
			for (s.rise = 0; s.rise < 0.3; s.rise = s.rise * 2 + 0.01) {
				double left;

				s.fall = s.rise;
				left = misfit(f, &s);
				if (left < least) {
					least = left;
					best = s;
				}
			}
		if (counter)
			break;
	}
	return best;
}

static bool better(struct fit *f, struct shape *s, double *part, double change, double *least)
{
	double before = *part, left;

	*part += change;
	left = s->rise < 0 || s->fall < 0 || s->window < 1e-3 || s->window > LONGEST_S
		       ? INFINITY
		       : misfit(f, s);
	if (left < *least) {
		*least = left;
		return true;
	}
	*part = before;
	return false;
}

/* Downhill from s in steps that become smaller (Hooke and Jeeves without the pattern move). */
static struct shape refine(struct fit *f, struct shape s, double step)
{
	double least = misfit(f, &s);
	double *part[] = {&s.window, &s.delay, &s.rise, &s.fall};
	double scale[] = {isnan(s.window) ? 0 : s.window + 0.01, 0.03, 0.03, 0.03};

	for (int i = 0; i < MOST_STEPS && step > 2e-4; i++) {
		bool moved = false;

		for (int k = isnan(s.window); k < PARTS; k++)
			for (int sign = -1; sign <= 1; sign += 2)
				moved |= better(f, &s, part[k], sign * step * scale[k], &least);
		/* window, delay and rise trade off against each other: the middle of the window
		 * stays */
		for (int sign = -1; sign <= 1 && !isnan(s.window); sign += 2) {
			struct shape moved_by = s;
			double d = sign * step * scale[0], left;

			moved_by.window += d;
			moved_by.delay -= d / 2;
			left = moved_by.window < 1e-3 ? INFINITY : misfit(f, &moved_by);
			if (left < least) {
				least = left;
				s = moved_by;
				moved = true;
			}
		}
		if (!moved)
			step /= 2;
	}
	misfit(f, &s);
	return s;
}

static void jackknife(struct fit *f, const struct shape *all, struct jm_sensor_fit *ret)
{
	double value[PARTS][GROUPS];
	struct jm_fitted *to[] = {&ret->window, &ret->delay, &ret->rise, &ret->fall};
	double t = jm_stat_t_quantile(0.975, GROUPS - 1);

	for (f->without = 0; f->without < GROUPS; f->without++) {
		struct shape s = refine(f, *all, 0.05);

		value[0][f->without] = s.window;
		value[1][f->without] = s.delay;
		value[2][f->without] = s.rise;
		value[3][f->without] = s.fall;
	}
	f->without = -1;
	for (int i = 0; i < PARTS; i++) {
		struct jm_stat stat;

		jm_stat_of(value[i], GROUPS, &stat);
		to[i]->error = t * stat.sd * (GROUPS - 1) / sqrt(GROUPS);
	}
}

/* ---- changes ------------------------------------------------------------------------------ */

int jm_sensor_changes(const struct jm_signal *signal, const struct jm_reading *readings, int n,
	struct jm_reading *ret)
{
	const struct jm_reading *before = NULL;
	int changes = 0;

	for (int i = 0; i < n; i++) {
		struct jm_reading r = readings[i];

		if (isnan(r.value))
			continue;
		if (!signal->stamped && before)
			r.t_ns = before->t_ns + (r.t_ns - before->t_ns) / 2;
		before = &readings[i];
		if (!changes ||
			(r.value != ret[changes - 1].value && r.t_ns > ret[changes - 1].t_ns))
			ret[changes++] = r;
	}
	return changes;
}

/* The gap before the first change, which is the first reading, and before the second is not
 * whole. */
static int take_changes(bool counter, const struct jm_reading *r, int n, struct change *change)
{
	for (int i = 2; i < n; i++) {
		double gap = (double)(r[i].t_ns - r[i - 1].t_ns) * 1e-9;

		change[i - 2] = (struct change){.t = (double)(r[i].t_ns - r[0].t_ns) * 1e-9,
			.gap = gap,
			.watts = counter ? (r[i].value - r[i - 1].value) / gap : r[i].value};
	}
	return n > 2 ? n - 2 : 0;
}

/* The gap between changes; one that is a multiple of the median holds several, since a value can
 * come twice. */
static struct jm_fitted refresh_of(const struct change *change, int n, double *sorted)
{
	double median, group[GROUPS];
	struct jm_stat stat;

	for (int i = 0; i < n; i++)
		sorted[i] = change[i].gap;
	qsort(sorted, (size_t)n, sizeof(*sorted), jm_stat_by_value);
	median = sorted[n / 2];
	for (int g = 0; g < GROUPS; g++) {
		double seconds = 0, count = 0;

		for (int i = n * g / GROUPS; i < n * (g + 1) / GROUPS; i++) {
			double times = fmax(1, round(change[i].gap / median));

			/* rare, long gaps come from readings that were late */
			if (times > 4)
				continue;
			seconds += change[i].gap;
			count += times;
		}
		group[g] = count > 0 ? seconds / count : NAN;
	}
	jm_stat_of(group, GROUPS, &stat);
	return (struct jm_fitted){stat.mean, stat.half_width};
}

/* ---- together -------------------------------------------------------------------------------- */

static int judge(const struct fit *f, struct jm_sensor_fit *ret, struct jm_err *err)
{
	ret->low_watts = f->linear[0];
	ret->high_watts = f->linear[0] + f->linear[1];
	if (f->linear[1] > CONTRAST * ret->rms_watts &&
		f->linear[1] > SHARE * fabs(ret->high_watts))
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"The signal does not follow the load: %.1f W with it, %.1f W without it, and %.1f "
		"W that the model of a sensor does not explain.",
		ret->high_watts, ret->low_watts, ret->rms_watts);
}

static int fit_changes(struct fit *f, bool counter, struct jm_sensor_fit *ret, struct jm_err *err)
{
	struct shape s = refine(f, coarse(f, counter), 0.25);
	int rc;

	ret->rms_watts = sqrt(misfit(f, &s));
	rc = judge(f, ret, err);
	if (rc)
		return rc;
	ret->window.value = s.window;
	ret->delay.value = s.delay;
	ret->rise.value = s.rise;
	ret->fall.value = s.fall;
	jackknife(f, &s, ret);
	if (counter)
		ret->window = (struct jm_fitted){NAN, NAN};
	return 0;
}

static int fit_all(bool counter, const struct jm_reading *changes, int n, struct fit *f,
	struct change *change, double *sorted, struct jm_sensor_fit *ret, struct jm_err *err)
{
	f->n = ret->changes = take_changes(counter, changes, n, change);
	f->change = change;
	if (f->n < LEAST_CHANGES)
		return jm_err_set(err, JM_ERANGE,
			"The signal changed %d times; at least %d are needed: measure for longer.",
			f->n, LEAST_CHANGES);
	ret->refresh = refresh_of(change, f->n, sorted);
	return fit_changes(f, counter, ret, err);
}

int jm_sensor_fit(enum jm_quantity quantity, const struct jm_reading *changes, int n,
	const struct jm_load_edges *edges, struct jm_sensor_fit *ret, struct jm_err *err)
{
	size_t n_edges = (size_t)edges->n;
	struct change *change = calloc((size_t)n + 1, sizeof(*change));
	double *numbers = calloc(3 * n_edges + (size_t)n + 1, sizeof(*numbers));
	double *edge = numbers ? numbers + 2 * n_edges : NULL;
	struct fit f = {.edge = edge, .n_edges = edges->n, .without = -1};
	int rc;

	*ret = (struct jm_sensor_fit){.refresh = {NAN, NAN},
		.window = {NAN, NAN},
		.delay = {NAN, NAN},
		.rise = {NAN, NAN},
		.fall = {NAN, NAN}};
	if (!change || !numbers) {
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory to fit a sensor.");
	} else if (n < 1 || edges->n < 4) {
		rc = jm_err_set(err, JM_ERANGE, "There are no readings, or fewer than two loads.");
	} else {
		f.level = numbers;
		f.sum = numbers + n_edges;
		for (size_t i = 0; i < n_edges; i++)
			edge[i] = (double)(edges->t_ns[i] - changes[0].t_ns) * 1e-9;
		rc = fit_all(
			quantity == JM_Q_ENERGY, changes, n, &f, change, edge + n_edges, ret, err);
	}
	free(change);
	free(numbers);
	return rc;
}
