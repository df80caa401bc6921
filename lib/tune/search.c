/* SPDX-License-Identifier: Apache-2.0 */
#include "search.h"

#include "search_noise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESOLUTION 0.08 /* of the range: a narrower bracket is not divided */
#define NEAR	   0.05 /* of the range: points of the grid this near to another are left out */
#define MOST_GRID  (JM_RANGE_GRID + 1)
#define MOST_QUEUE 20
#define MOST_LINES 4	/* of a search over two knobs */
#define AROUND	   0.25 /* of the range, to either side: of the second line along a knob */
#define LATE	   0.7	/* of the time of a search: the rest is for the comparison at its end */
#define RECENT	   8	/* visits */
#define ROUNDS	   3	/* over the grid, there and back */
#define REST                                                                                       \
	9 /* a comparison while holding is followed by this many times its length without one */

const char *const jm_stage_names[] = {"coarse", "golden", "confirm", "hold", NULL};
const char *const jm_choice_names[] = {"open", "better", "flat", "found", "unclear", NULL};

struct jm_search {
	struct jm_search_options o;
	struct jm_seen seen;
	int queue[MOST_QUEUE], n_queue, at; /* points to visit next */
	enum jm_stage stage;
	int grid[MOST_GRID], n_grid, rounds; /* by value */
	int axis;			     /* the knob that is moved now */
	int line, lines;		     /* the point where this line began; how many have */
	double low, high;		     /* the bracket, in the unit of that knob */
	int left, right;		     /* the two points in it that are compared */
	int best;			     /* that is compared with the setting found */
	int first;			     /* visit of this comparison */
	struct jm_hold_watch watch;
	bool pending;	/* there was a drift after the last search */
	double visit_s; /* the last one, with its wait */
	double stage_s, last_search_s, last_check_s, rest_s;
	struct jm_search_result r;
};

/* ---- points ---- */

static double range_of(const struct jm_search *s, int knob)
{
	return s->o.knob[knob].max - s->o.knob[knob].min;
}

/* The point nearest to these values that the knobs can take; JM_ENOMEM. */
static int point_of(struct jm_search *s, const double *x, struct jm_err *err)
{
	double value[JM_TUNE_KNOBS] = {0}, within[JM_TUNE_KNOBS] = {0};

	for (int k = 0; k < s->o.n; k++) {
		value[k] = jm_range_rounded(&s->o.knob[k], x[k]);
		within[k] = s->o.knob[k].step / 2;
	}
	return jm_seen_point(&s->seen, value, within, err);
}

/* The point at x on this line. */
static int point_at(struct jm_search *s, double x, struct jm_err *err)
{
	double value[JM_TUNE_KNOBS];

	memcpy(value, s->seen.point[s->line].value, sizeof(value));
	value[s->axis] = x;
	return point_of(s, value, err);
}

static double x_of(const struct jm_search *s, int point)
{
	return s->seen.point[point].value[s->axis];
}

/* Is the point on this line? */
static bool is_on_line(const struct jm_search *s, int point)
{
	int other = 1 - s->axis;

	return fabs(s->seen.point[point].value[other] - s->seen.point[s->line].value[other]) <=
	       s->o.knob[other].step / 2;
}

/* ---- which are visited next ---- */

static void clear_queue(struct jm_search *s)
{
	s->n_queue = s->at = 0;
}

static void visit(struct jm_search *s, int point)
{
	if (s->n_queue < MOST_QUEUE)
		s->queue[s->n_queue++] = point;
}

static void visit_pair(struct jm_search *s, int a, int b)
{
	visit(s, a);
	visit(s, b);
}

/* The grid there and back. */
static void visit_grid(struct jm_search *s)
{
	for (int i = s->n_grid - 1; i >= 0; i--)
		visit(s, s->grid[i]);
	for (int i = 0; i < s->n_grid; i++)
		visit(s, s->grid[i]);
	s->rounds++;
}

static void enter(struct jm_search *s, enum jm_stage stage)
{
	clear_queue(s);
	s->stage = stage;
	s->first = s->seen.n;
}

static int by_value(const struct jm_search *s, int a, int b)
{
	return x_of(s, a) < x_of(s, b);
}

/* Are two points of the grid too near to each other for both? */
static bool are_near(const struct jm_search *s, int a, int b)
{
	const double *x = s->seen.point[a].value, *y = s->seen.point[b].value;
	bool near = true;

	for (int k = 0; k < s->o.n; k++)
		near = near && fabs(x[k] - y[k]) < NEAR * range_of(s, k);
	return a == b || near;
}

static void add_to_grid(struct jm_search *s, int point)
{
	int i = s->n_grid;

	for (int k = 0; k < s->n_grid; k++)
		if (are_near(s, s->grid[k], point))
			return;
	while (i > 0 && by_value(s, point, s->grid[i - 1])) {
		s->grid[i] = s->grid[i - 1];
		i--;
	}
	s->grid[i] = point;
	s->n_grid++;
}

static int begin(struct jm_search *s, struct jm_err *err)
{
	double x[JM_RANGE_GRID][JM_TUNE_KNOBS] = {{0}};
	int n = jm_range_grid(s->o.knob, s->o.n, x);

	enter(s, JM_STAGE_COARSE);
	jm_seen_begin(&s->seen);
	s->n_grid = s->rounds = 0;
	s->axis = s->lines = 0;
	s->line = JM_SEEN_FOUND;
	s->stage_s = 0;
	s->pending = false;
	s->r.choice = JM_CHOICE_OPEN;
	s->r.searches++;
	add_to_grid(s, JM_SEEN_FOUND);
	for (int i = 0; i < n; i++) {
		int point = point_of(s, x[i], err);

		if (point < 0)
			return point;
		add_to_grid(s, point);
	}
	visit_grid(s);
	return 0;
}

/* ---- the end of a search ---- */

static void hold(struct jm_search *s, enum jm_choice choice, int best)
{
	double took = s->stage_s;

	enter(s, JM_STAGE_HOLD);
	s->r.choice = choice;
	s->best = best;
	s->r.best = s->seen.point[best];
	jm_hold_watch_begin(&s->watch);
	visit(s, best);
	s->rest_s = 0;
	s->stage_s = 0;
	if (s->pending)
		s->last_check_s = took;
	else
		s->last_search_s = took;
}

static void confirm(struct jm_search *s, int best)
{
	if (best == JM_SEEN_FOUND) {
		hold(s, JM_CHOICE_FOUND, best);
		return;
	}
	enter(s, JM_STAGE_CONFIRM);
	s->best = best;
	s->r.best = s->seen.point[best];
	visit_pair(s, JM_SEEN_FOUND, best);
	visit_pair(s, best, JM_SEEN_FOUND);
}

/* The gain by which the choice is made: of a limit to the slowdown that of energy, where the limit
 * is not surpassed. */
static struct jm_tune_gain deciding(const struct jm_search *s)
{
	double limit = s->o.objective.number;
	const struct jm_seen *seen = &s->seen;
	struct jm_tune_gain time =
		jm_seen_compare(seen, s->best, JM_SEEN_FOUND, s->first, JM_SEEN_TIME);
	bool allowed =
		s->o.objective.kind == JM_MIN_SLOWDOWN && time.log - time.half <= log1p(limit);

	return jm_seen_compare(
		seen, s->best, JM_SEEN_FOUND, s->first, allowed ? JM_SEEN_ENERGY : JM_SEEN_COST);
}

static void confirmed(struct jm_search *s)
{
	struct jm_tune_gain gain = deciding(s);
	int visits = jm_seen_count(&s->seen, s->best, s->first);

	if (fabs(gain.log) <= gain.half && gain.half > JM_TUNE_ALIKE / 2 &&
		visits < 2 * JM_TUNE_VISITS && s->stage_s + 4 * s->visit_s <= s->o.within_s) {
		visit_pair(s, JM_SEEN_FOUND, s->best);
		visit_pair(s, s->best, JM_SEEN_FOUND);
		return;
	}
	s->r.objective = gain;
	s->r.energy = jm_seen_compare(&s->seen, s->best, JM_SEEN_FOUND, s->first, JM_SEEN_ENERGY);
	s->r.time = jm_seen_compare(&s->seen, s->best, JM_SEEN_FOUND, s->first, JM_SEEN_TIME);
	if (gain.log < -gain.half)
		hold(s, JM_CHOICE_BETTER, s->best);
	else
		hold(s, gain.log > gain.half ? JM_CHOICE_FOUND : JM_CHOICE_UNCLEAR, JM_SEEN_FOUND);
}

/* ---- golden section ---- */

/* The first line along each of two knobs: it needs no more than the place of the second one. */
static bool is_rough(const struct jm_search *s)
{
	return s->o.n > 1 && s->lines <= s->o.n;
}

/* Makes the two points that divide the bracket, of which `inner` is one if it is inside (-1 =
 * none), and lets them be visited; false: the bracket is not divided further. */
static bool divide(struct jm_search *s, int inner, struct jm_err *err)
{
	double width = s->high - s->low;
	bool kept = inner >= 0 && x_of(s, inner) > s->low && x_of(s, inner) < s->high;
	int other, with;

	if (width <= (is_rough(s) ? 2 : 1) * RESOLUTION * range_of(s, s->axis))
		return false;
	with = kept ? inner : point_at(s, s->low + JM_TUNE_GOLDEN * width, err);
	if (with < 0)
		return false;
	other = point_at(s, s->low + s->high - x_of(s, with), err);
	/* near the middle of the bracket its mirror is too near: the longer part is divided
	 * instead */
	if (other >= 0 && fabs(x_of(s, other) - x_of(s, with)) < 0.1 * width)
		other = point_at(s, s->low + JM_TUNE_GOLDEN * width, err);
	if (other < 0 || other == with || x_of(s, other) <= s->low || x_of(s, other) >= s->high)
		return false;
	s->left = by_value(s, with, other) ? with : other;
	s->right = s->left == with ? other : with;
	/* what was seen of the inner point just before counts, and is little older */
	s->first = s->seen.n - RECENT > s->seen.since ? s->seen.n - RECENT : s->seen.since;
	visit_pair(s, other, with);
	return true;
}

/* The setting at which time per item is just allowed, between the two points of this line on either
 * side of it; -1 = there is none on one side. */
static int at_limit(struct jm_search *s, struct jm_err *err)
{
	double limit = log1p(s->o.objective.number), above = NAN, below = NAN;
	int slow = -1, fast = -1;

	for (int i = 0; i < s->seen.n_points; i++) {
		double t = jm_seen_compare(&s->seen, i, JM_SEEN_FOUND, s->seen.since, JM_SEEN_TIME)
				   .log;

		if (!is_on_line(s, i))
			continue;
		if (t > limit && (slow < 0 || t < above)) {
			slow = i;
			above = t;
		} else if (t <= limit && (fast < 0 || t > below)) {
			fast = i;
			below = t;
		}
	}
	if (slow < 0 || fast < 0)
		return -1;
	return point_at(s,
		x_of(s, fast) + (limit - below) / (above - below) * (x_of(s, slow) - x_of(s, fast)),
		err);
}

static void finish(struct jm_search *s, struct jm_err *err)
{
	int best = jm_seen_best(&s->seen), limit = -1;

	if (s->o.objective.kind == JM_MIN_SLOWDOWN)
		limit = at_limit(s, err);
	/* beyond the limit lies what is too slow: the minimum is there, or before it */
	if (limit >= 0 && is_on_line(s, best) &&
		fabs(x_of(s, limit) - x_of(s, best)) <= s->high - s->low)
		best = limit;
	confirm(s, best);
}

/* Another line, through the best point so far; false: there is none to follow. */
static bool next_line(struct jm_search *s, struct jm_err *err)
{
	while (s->lines < MOST_LINES) {
		int best = jm_seen_best(&s->seen), axis = s->lines % s->o.n;
		const struct jm_search_range *r = &s->o.knob[axis];
		double around = (s->lines < s->o.n ? 1 : AROUND) * range_of(s, axis);

		if (s->lines >= s->o.n && best == s->line)
			return false;
		s->axis = axis;
		s->line = best;
		s->lines++;
		s->low = fmax(x_of(s, best) - around, r->min);
		s->high = fmin(x_of(s, best) + around, jm_range_rounded(r, r->max));
		if (divide(s, best, err))
			return true;
	}
	return false;
}

static void narrow(struct jm_search *s, struct jm_err *err)
{
	struct jm_tune_gain d =
		jm_seen_compare(&s->seen, s->left, s->right, s->first, JM_SEEN_COST);
	/* over two knobs one is often bounded by the other: then the noise of many visits must not
	 * lead along a plateau */
	bool separated = fabs(d.log) > fmax(d.half, s->o.n > 1 ? JM_TUNE_ALIKE : 0);
	int inner, fewest = jm_seen_count(&s->seen, s->left, s->first),
		   others = jm_seen_count(&s->seen, s->right, s->first);

	fewest = others < fewest ? others : fewest;
	if (!separated && d.half > JM_TUNE_ALIKE &&
		fewest < JM_TUNE_VISITS / (is_rough(s) ? 2 : 1)) {
		visit_pair(s, fewest % 2 ? s->left : s->right, fewest % 2 ? s->right : s->left);
		return;
	}
	/* where they are alike the minimum is between them or, on a plateau, below it */
	inner = separated && d.log > 0 ? s->right : s->left;
	if (inner == s->left)
		s->high = x_of(s, s->right);
	else
		s->low = x_of(s, s->left);
	if (divide(s, inner, err) || (s->o.n > 1 && next_line(s, err)))
		return;
	finish(s, err);
}

/* ---- the grid ---- */

struct graded {
	int first, last;    /* of the grid: the points that are not worse than the best one */
	bool flat, unclear; /* all are alike; more visits are needed to know */
};

static struct graded grade(const struct jm_search *s)
{
	struct graded g = {MOST_GRID, -1, true, false};
	int best = s->grid[0];

	for (int i = 1; i < s->n_grid; i++)
		if (jm_seen_compare(&s->seen, s->grid[i], best, s->first, JM_SEEN_COST).log < 0)
			best = s->grid[i];
	for (int i = 0; i < s->n_grid; i++) {
		int point = s->grid[i];
		struct jm_tune_gain d =
			jm_seen_compare(&s->seen, point, best, s->first, JM_SEEN_COST);
		struct jm_tune_gain of_found =
			jm_seen_compare(&s->seen, point, JM_SEEN_FOUND, s->first, JM_SEEN_COST);

		if (point != JM_SEEN_FOUND && fabs(of_found.log) + of_found.half > JM_TUNE_FLAT)
			g.flat = false;
		if (point != best && d.log > d.half)
			continue;
		g.first = i < g.first ? i : g.first;
		g.last = i;
		g.unclear = g.unclear || (point != best && d.half > JM_TUNE_FLAT);
	}
	/* all may be alike */
	g.unclear = g.unclear || (!g.flat && g.first == 0 && g.last == s->n_grid - 1);
	return g;
}

static void bracket(struct jm_search *s, struct jm_err *err)
{
	struct graded g = grade(s);
	/* of several alike, the one next to where the curve changes */
	int middle = g.first > 0 ? g.first : g.last;

	if (g.unclear && s->rounds < ROUNDS && s->stage_s < LATE / 2 * s->o.within_s) {
		visit_grid(s);
		return;
	}
	if (g.flat) {
		hold(s, JM_CHOICE_FLAT, JM_SEEN_FOUND);
		return;
	}
	s->stage = JM_STAGE_GOLDEN;
	if (s->o.n > 1) {
		if (!next_line(s, err))
			finish(s, err);
		return;
	}
	s->low = x_of(s, s->grid[middle > 0 ? middle - 1 : 0]);
	s->high = x_of(s, s->grid[middle < s->n_grid - 1 ? middle + 1 : middle]);
	if (!divide(s, s->grid[middle], err))
		finish(s, err);
}

/* ---- holding ---- */

/* Both settings again, or the whole search where it may take the time. */
static int look_again(struct jm_search *s, struct jm_err *err)
{
	double all = s->r.search_s + s->r.hold_s;

	if (s->r.search_s + s->last_search_s <= JM_TUNE_SHARE * all)
		return begin(s, err);
	if (s->best != JM_SEEN_FOUND && s->rest_s >= REST * s->last_check_s) {
		jm_seen_begin(&s->seen);
		confirm(s, s->best);
	}
	return 0;
}

static int held(struct jm_search *s, const struct jm_visit *v, struct jm_err *err)
{
	s->rest_s += v->wall_s;
	s->r.hold_s += v->wall_s;
	if (jm_hold_watch_add(&s->watch, v)) {
		s->r.drifts++;
		s->pending = true;
		jm_hold_watch_begin(&s->watch);
	}
	return s->pending ? look_again(s, err) : 0;
}

/* ---- what others call ---- */

int jm_search_new(
	const struct jm_search_options *options, struct jm_search **ret, struct jm_err *err)
{
	const struct jm_tune_gain unknown = {NAN, NAN};
	double place[JM_TUNE_KNOBS] = {0};
	struct jm_search *s;
	int rc = 0;

	for (int k = 0; !rc && k < options->n; k++) {
		const struct jm_search_range *r = &options->knob[k];

		rc = jm_range_check(r, err);
		place[k] = isnan(r->found) ? r->max : r->found;
	}
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a search.");
	s->o = *options;
	s->r = (struct jm_search_result){
		.objective = unknown, .energy = unknown, .time = unknown, .best.found = true};
	memcpy(s->r.best.value, place, sizeof(place));
	rc = jm_seen_init(&s->seen, &options->objective, options->limit_watts, place, err);
	if (!rc)
		rc = begin(s, err);
	if (rc) {
		jm_search_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void jm_search_free(struct jm_search *s)
{
	if (!s)
		return;
	jm_seen_done(&s->seen);
	free(s);
}

struct jm_tune_setting jm_search_next(const struct jm_search *s)
{
	return s->seen.point[s->stage == JM_STAGE_HOLD ? s->best : s->queue[s->at]];
}

enum jm_stage jm_search_stage(const struct jm_search *s)
{
	return s->stage;
}

/* After a visit, with the queue empty. */
static void decide(struct jm_search *s, struct jm_err *err)
{
	bool late = s->stage_s > LATE * s->o.within_s;

	clear_queue(s);
	if (s->stage == JM_STAGE_COARSE)
		bracket(s, err);
	else if (s->stage == JM_STAGE_GOLDEN && late)
		finish(s, err);
	else if (s->stage == JM_STAGE_GOLDEN)
		narrow(s, err);
	else
		confirmed(s);
}

int jm_search_add(struct jm_search *s, const struct jm_visit *visit, struct jm_err *err)
{
	struct jm_visit v = *visit;
	bool again;

	v.setting = jm_search_next(s);
	v.stage = s->stage;
	if (!(v.seconds > 0 && v.items > 0 && v.joules > 0 &&
		    isfinite(v.seconds + v.items + v.joules)))
		return jm_err_set(err, JM_ERANGE, "A visit without items, time or energy.");
	if (s->stage == JM_STAGE_HOLD)
		return held(s, &v, err);
	if (jm_seen_add(&s->seen, &v, s->queue[s->at], &again, err))
		return JM_ENOMEM;
	s->visit_s = v.wall_s;
	s->r.search_s += v.wall_s;
	s->stage_s += v.wall_s;
	s->at += !again;
	s->r.outliers += again;
	if (s->at < s->n_queue)
		return 0;
	decide(s, err);
	return 0;
}

void jm_search_result(const struct jm_search *s, struct jm_search_result *ret)
{
	*ret = s->r;
}

int jm_search_visits(const struct jm_search *s)
{
	return s->seen.n;
}

const struct jm_visit *jm_search_visit(const struct jm_search *s, int i)
{
	return &s->seen.visit[i].visit;
}

bool jm_search_visit_aside(const struct jm_search *s, int i)
{
	return s->seen.visit[i].aside;
}

struct jm_tune_gain jm_search_visit_cost(const struct jm_search *s, int visit)
{
	return jm_seen_cost(&s->seen, visit);
}
