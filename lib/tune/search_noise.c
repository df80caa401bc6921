/* SPDX-License-Identifier: Apache-2.0 */
#include "search_noise.h"

#include "base/stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define Z95 1.96

/* ---- points and visits ---- */

static int add_point(
	struct jm_seen *s, const double value[JM_TUNE_KNOBS], bool found, struct jm_err *err)
{
	struct jm_tune_setting *grown =
		reallocarray(s->point, (size_t)s->n_points + 1, sizeof(*grown));

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the settings of a search.");
	s->point = grown;
	grown[s->n_points].found = found;
	memcpy(grown[s->n_points].value, value, sizeof(grown->value));
	return s->n_points++;
}

int jm_seen_init(struct jm_seen *s, const struct jm_objective *objective, double limit_watts,
	const double found[JM_TUNE_KNOBS], struct jm_err *err)
{
	int point;

	*s = (struct jm_seen){.objective = *objective, .limit_watts = limit_watts};
	point = add_point(s, found, true, err);
	return point < 0 ? point : 0;
}

void jm_seen_done(struct jm_seen *s)
{
	free(s->point);
	free(s->visit);
	*s = (struct jm_seen){.n = 0};
}

void jm_seen_begin(struct jm_seen *s)
{
	s->since = s->n;
}

static bool is_near(const struct jm_tune_setting *a, const double *value, const double *within)
{
	bool near = true;

	for (int k = 0; k < JM_TUNE_KNOBS; k++)
		near = near && fabs(a->value[k] - value[k]) <= within[k];
	return near;
}

int jm_seen_point(struct jm_seen *s, const double value[JM_TUNE_KNOBS],
	const double within[JM_TUNE_KNOBS], struct jm_err *err)
{
	for (int i = 0; i < s->n_points; i++)
		if (is_near(&s->point[i], value, within))
			return i;
	return add_point(s, value, false, err);
}

/* Does visit i count for the point? */
static bool is_of(const struct jm_seen *s, int i, int point)
{
	return s->visit[i].point == point && !s->visit[i].aside;
}

int jm_seen_count(const struct jm_seen *s, int point, int first)
{
	int n = 0;

	for (int i = first; i < s->n; i++)
		n += is_of(s, i, point);
	return n;
}

/* ---- values of visits ---- */

struct reference {
	double energy, time; /* per item */
	double limit;	     /* power limit by mean power */
};

static double energy_of(const struct jm_visit *v)
{
	return v->joules / v->items;
}

static double time_of(const struct jm_visit *v)
{
	return v->seconds / v->items;
}

/* Of the setting found in the search that began with the visit `search`. */
static struct reference reference_of(const struct jm_seen *s, int search)
{
	double energy = 0, time = 0;
	int n = 0;

	for (int i = search; i < s->n && s->visit[i].search == search; i++) {
		if (!is_of(s, i, JM_SEEN_FOUND))
			continue;
		energy += log(energy_of(&s->visit[i].visit));
		time += log(time_of(&s->visit[i].visit));
		n++;
	}
	if (!n)
		return (struct reference){NAN, NAN, NAN};
	energy = exp(energy / n);
	time = exp(time / n);
	return (struct reference){energy, time, s->limit_watts / (energy / time)};
}

static double value_of(
	const struct jm_seen *s, const struct reference *r, int i, enum jm_seen_what what)
{
	const struct jm_visit *v = &s->visit[i].visit;
	double energy = energy_of(v), time = time_of(v);

	if (what == JM_SEEN_ENERGY)
		return log(energy);
	if (what == JM_SEEN_TIME)
		return log(time);
	return jm_objective_cost(&s->objective, energy / r->energy, time / r->time, r->limit);
}

/* ---- scatter ---- */

struct scatter {
	double variance; /* of one visit; NAN = unknown */
	int dof;
};

static double mean_of(const struct jm_seen *s, const struct reference *r, int point, int first,
	enum jm_seen_what what)
{
	double sum = 0;
	int n = 0;

	for (int i = first; i < s->n; i++) {
		if (!is_of(s, i, point))
			continue;
		sum += value_of(s, r, i, what);
		n++;
	}
	return n ? sum / n : NAN;
}

/* Of all points that were visited more than once, around their means. */
static struct scatter scatter_of(
	const struct jm_seen *s, const struct reference *r, enum jm_seen_what what)
{
	double squares = 0;
	int dof = 0;

	for (int point = 0; point < s->n_points; point++) {
		int n = jm_seen_count(s, point, s->since);
		double mean = mean_of(s, r, point, s->since, what);

		for (int i = s->since; n > 1 && i < s->n; i++)
			if (is_of(s, i, point))
				squares += pow(value_of(s, r, i, what) - mean, 2);
		dof += n > 1 ? n - 1 : 0;
	}
	return (struct scatter){dof ? squares / dof : NAN, dof};
}

/* Of one visit: the scatter, or what the sampling of its energy allows where that is more. */
static double variance_of(const struct jm_visit *v, const struct scatter *scatter, bool energy)
{
	double bound = energy && v->error_joules > 0 ? v->error_joules / v->joules / Z95 : 0;

	return fmax(isnan(scatter->variance) ? 0 : scatter->variance, bound * bound);
}

/* Of a point's mean; 0 = nothing is known. */
static double variance_of_mean(const struct jm_seen *s, const struct scatter *scatter, int point,
	int first, enum jm_seen_what what)
{
	double sum = 0;
	int n = 0;

	for (int i = first; i < s->n; i++) {
		if (!is_of(s, i, point))
			continue;
		sum += variance_of(&s->visit[i].visit, scatter, what != JM_SEEN_TIME);
		n++;
	}
	return n ? sum / n / n : 0;
}

static double quantile(const struct scatter *scatter)
{
	return scatter->dof ? jm_stat_t_quantile(0.975, scatter->dof) : Z95;
}

/* ---- comparisons ---- */

struct jm_tune_gain jm_seen_compare(
	const struct jm_seen *s, int a, int b, int first, enum jm_seen_what what)
{
	struct reference r = reference_of(s, s->since);
	struct scatter scatter = scatter_of(s, &r, what);
	double variance = variance_of_mean(s, &scatter, a, first, what) +
			  variance_of_mean(s, &scatter, b, first, what);

	return (struct jm_tune_gain){
		.log = mean_of(s, &r, a, first, what) - mean_of(s, &r, b, first, what),
		.half = scatter.dof || variance > 0 ? quantile(&scatter) * sqrt(variance)
						    : INFINITY,
	};
}

int jm_seen_best(const struct jm_seen *s)
{
	struct reference r = reference_of(s, s->since);
	struct scatter scatter = scatter_of(s, &r, JM_SEEN_COST);
	double least = INFINITY;
	int best = JM_SEEN_FOUND;

	for (int point = 0; point < s->n_points; point++) {
		double mean = mean_of(s, &r, point, s->since, JM_SEEN_COST);
		double above =
			mean + sqrt(variance_of_mean(s, &scatter, point, s->since, JM_SEEN_COST));

		if (above < least) {
			least = above;
			best = point;
		}
	}
	return best;
}

struct jm_tune_gain jm_seen_cost(const struct jm_seen *s, int visit)
{
	struct reference r = reference_of(s, s->visit[visit].search);
	struct scatter scatter = scatter_of(s, &r, JM_SEEN_COST);

	return (struct jm_tune_gain){
		.log = value_of(s, &r, visit, JM_SEEN_COST),
		.half = quantile(&scatter) *
			sqrt(variance_of(&s->visit[visit].visit, &scatter, true)),
	};
}

/* ---- adding ---- */

static bool differ(const struct jm_visit *a, const struct jm_visit *b)
{
	return fabs(log(energy_of(a) / energy_of(b))) > JM_TUNE_ODD ||
	       fabs(log(time_of(a) / time_of(b))) > JM_TUNE_ODD;
}

/* Does it differ from all visits of the point in this search? False where there are none. */
static bool is_odd(const struct jm_seen *s, const struct jm_visit *visit, int point)
{
	int n = 0;

	for (int i = s->since; i < s->n; i++) {
		if (!is_of(s, i, point))
			continue;
		if (!differ(&s->visit[i].visit, visit))
			return false;
		n++;
	}
	return n > 0;
}

/* The last visit was set aside, and this one of the same point is odd, too. */
static void believe_both(struct jm_seen *s, int point)
{
	struct jm_seen_visit *last = &s->visit[s->n - 1];

	if (jm_seen_count(s, point, s->since) == 1)
		for (int i = s->since; i < s->n; i++)
			s->visit[i].aside = s->visit[i].aside || is_of(s, i, point);
	last->aside = false;
}

int jm_seen_add(struct jm_seen *s, const struct jm_visit *visit, int point, bool *ret_again,
	struct jm_err *err)
{
	struct jm_seen_visit *grown = reallocarray(s->visit, (size_t)s->n + 1, sizeof(*grown));
	bool odd, again;

	if (!grown)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the visits of a search.");
	s->visit = grown;
	odd = is_odd(s, visit, point);
	again = odd && s->n > s->since && grown[s->n - 1].aside && grown[s->n - 1].point == point;
	if (again && !differ(&grown[s->n - 1].visit, visit))
		believe_both(s, point);
	*ret_again = odd && !again;
	grown[s->n++] = (struct jm_seen_visit){*visit, point, s->since, *ret_again};
	return 0;
}

/* ---- a setting that is held ---- */

void jm_hold_watch_begin(struct jm_hold_watch *w)
{
	*w = (struct jm_hold_watch){.n = 0};
}

bool jm_hold_watch_add(struct jm_hold_watch *w, const struct jm_visit *visit)
{
	const double now[] = {log(energy_of(visit)), log(time_of(visit))};
	bool moved[2] = {true, true};

	for (int k = 0; k < 2; k++) {
		if (w->n < JM_HOLD_VISITS)
			w->first[k] += now[k] / JM_HOLD_VISITS;
		else
			w->last[w->n % JM_HOLD_VISITS][k] = now[k];
	}
	w->n++;
	if (w->n < 2 * JM_HOLD_VISITS)
		return false;
	for (int i = 0; i < JM_HOLD_VISITS; i++)
		for (int k = 0; k < 2; k++)
			moved[k] = moved[k] && fabs(w->last[i][k] - w->first[k]) > JM_TUNE_DRIFT;
	return moved[0] || moved[1];
}
