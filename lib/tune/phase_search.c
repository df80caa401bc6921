/* SPDX-License-Identifier: Apache-2.0 */
#include "phase_search.h"

#include "base/stat/stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPARED (2 * JM_TUNE_VISITS) /* visits of a phase, in turns of choice and setting found */
#define SHARE	 0.8 /* of the time: phases that come so seldom that they do not fill it wait */

struct jm_phase_search {
	struct jm_phase_search_options o;
	struct jm_phase_seen phase[JM_PHASES_MAX];
	int n;
	enum jm_phase_stage stage;
	enum jm_choice choice;
	int value[JM_CLASSES], one;
	double stage_s, search_s, rest_joules, rest_s;
	struct jm_tune_gain objective, energy, time;
	struct jm_tune_gain of_switched; /* the energy without what has the same value anyway */
	double saved, saved_half;
};

int jm_phase_search_new(const struct jm_phase_search_options *options, struct jm_phase_search **ret,
	struct jm_err *err)
{
	struct jm_phase_search *s;

	if (options->n_values < 2 || options->n_values > JM_PHASE_VALUES_MAX)
		return jm_err_set(err, JM_ERANGE,
			"The range of the knob has only one value, so phases cannot have different "
			"values; give --knob a wider range.");
	s = calloc(1, sizeof(*s));
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a search over phases.");
	s->o = *options;
	s->objective = s->energy = s->time = (struct jm_tune_gain){NAN, NAN};
	*ret = s;
	return 0;
}

void jm_phase_search_free(struct jm_phase_search *s)
{
	free(s);
}

int jm_phase_search_phase(struct jm_phase_search *s, const char *name)
{
	struct jm_phase_seen *p;

	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->phase[i].name, name))
			return i;
	if (s->n == JM_PHASES_MAX)
		return -1;
	p = &s->phase[s->n];
	*p = (struct jm_phase_seen){.has_items = true, .class_origin = JM_CLASS_UNKNOWN};
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->class = jm_phase_class_by_name(name);
	if (p->class != JM_MIXED)
		p->class_origin = JM_CLASS_BY_NAME;
	return s->n++;
}

void jm_phase_search_classify(struct jm_phase_search *s, int phase, enum jm_phase_class class,
	enum jm_class_origin origin)
{
	/* a choice was made for classes as they were then */
	if (s->stage == JM_PHASE_GRID && s->phase[phase].class_origin >= origin) {
		s->phase[phase].class = class;
		s->phase[phase].class_origin = origin;
	}
}

/* ---- the next value ---- */

static int visits_of(const struct jm_phase_search *s, const struct jm_phase_seen *p)
{
	int n = 0;

	for (int v = 0; v < s->o.n_values; v++)
		n += p->value[v].n;
	return n;
}

/* Choice, found, found, choice: a steady drift falls out. */
static bool is_turn_of_choice(const struct jm_phase_seen *p)
{
	int turn = (p->chosen.n + p->found.n) % 4;

	return turn == 0 || turn == 3;
}

static int held_value(const struct jm_phase_search *s, const struct jm_phase_seen *p)
{
	return s->choice == JM_CHOICE_BETTER && p->counts ? s->value[p->class] : JM_PHASE_FOUND;
}

int jm_phase_search_next(const struct jm_phase_search *s, int phase, double latency_s)
{
	const struct jm_phase_seen *p = &s->phase[phase];
	int k = visits_of(s, p);

	if (p->occurrences && p->seconds / p->occurrences < JM_PHASE_SHORT * latency_s)
		return JM_PHASE_KEEP;
	if (s->stage == JM_PHASE_HOLD)
		return held_value(s, p);
	if (s->stage == JM_PHASE_CONFIRM)
		return p->counts && is_turn_of_choice(p) ? s->value[p->class] : JM_PHASE_FOUND;
	k %= 2 * s->o.n_values;
	return k < s->o.n_values ? k : 2 * s->o.n_values - 1 - k;
}

/* ---- sums ---- */

static void add_to(struct jm_phase_sum *sum, double joules, double seconds)
{
	sum->n++;
	sum->joules += joules;
	sum->seconds += seconds;
	sum->joules_squared += joules * joules;
	sum->seconds_squared += seconds * seconds;
}

static double mean(double sum, int n)
{
	return n ? sum / n : NAN;
}

/* Of the mean. */
static double variance(double sum, double squared, int n)
{
	return n > 1 ? fmax(0, squared - sum * sum / n) / (n - 1) / n : NAN;
}

/* Units that are weighed: all that were done in occurrences that were switched. */
static double weight(const struct jm_phase_seen *p)
{
	return p->has_items ? p->switched_units : p->switched;
}

static void add_unchanged(const struct jm_phase_seen *p, double *joules, double *seconds)
{
	*joules += p->switched_joules;
	*seconds += p->switched_s;
}

/* ---- the choice ---- */

/* False: no phase does. */
static bool decide_who_counts(struct jm_phase_search *s)
{
	bool any = false;

	for (int i = 0; i < s->n; i++) {
		struct jm_phase_seen *p = &s->phase[i];

		p->counts = true;
		for (int v = 0; v < s->o.n_values; v++)
			p->counts = p->counts && p->value[v].n;
		any = any || p->counts;
	}
	return any;
}

/* Energy and time of the work if each class had that value; phases that do not count have what
 * they had, as does what was not switched. */
static void sums_with(
	const struct jm_phase_search *s, const int *value, double *ret_joules, double *ret_s)
{
	*ret_joules = s->rest_joules;
	*ret_s = s->rest_s;
	for (int i = 0; i < s->n; i++) {
		const struct jm_phase_seen *p = &s->phase[i];
		const struct jm_phase_sum *sum = &p->value[value[p->class]];

		if (!p->counts) {
			add_unchanged(p, ret_joules, ret_s);
			continue;
		}
		*ret_joules += weight(p) * mean(sum->joules, sum->n);
		*ret_s += weight(p) * mean(sum->seconds, sum->n);
	}
}

/* The next choice of a value per class, as a number counts; false after the last one. */
static bool count_on(const struct jm_phase_search *s, int *value)
{
	for (int c = 0; c < JM_CLASSES; c++) {
		if (++value[c] < s->o.n_values)
			return true;
		value[c] = 0;
	}
	return false;
}

static double cost_of(const struct jm_phase_search *s, double joules, double seconds,
	double joules_found, double seconds_found)
{
	return jm_objective_cost(&s->o.objective, joules / joules_found, seconds / seconds_found,
		s->o.limit_watts / (joules_found / seconds_found));
}

static bool all_alike(const int *value)
{
	for (int c = 1; c < JM_CLASSES; c++)
		if (value[c] != value[0])
			return false;
	return true;
}

static void enter_stage(struct jm_phase_search *s, enum jm_phase_stage stage)
{
	s->search_s += s->stage_s;
	s->stage_s = 0;
	s->stage = stage;
}

static void choose(struct jm_phase_search *s)
{
	int value[JM_CLASSES] = {0};
	double e0, t0, best = 0, best_one = 0;

	enter_stage(s, JM_PHASE_CONFIRM);
	if (!decide_who_counts(s)) {
		s->choice = JM_CHOICE_UNCLEAR;
		s->stage = JM_PHASE_HOLD;
		return;
	}
	sums_with(s, value, &e0, &t0);
	do {
		double e, t, cost;

		sums_with(s, value, &e, &t);
		cost = cost_of(s, e, t, e0, t0);
		if (cost < best) {
			best = cost;
			memcpy(s->value, value, sizeof(value));
		}
		if (cost < best_one && all_alike(value)) {
			best_one = cost;
			s->one = value[0];
		}
	} while (count_on(s, value));
	if (best > log1p(-JM_TUNE_FLAT)) {
		s->choice = JM_CHOICE_FLAT;
		s->stage = JM_PHASE_HOLD;
	}
}

/* ---- the comparison ---- */

struct compared {
	double chosen, found, variance_chosen, variance_found;
};

static void compare_one(struct compared *c, double w, const double *sums, const double *squared,
	const struct jm_phase_sum *a, const struct jm_phase_sum *b)
{
	c->chosen += w * mean(sums[0], a->n);
	c->found += w * mean(sums[1], b->n);
	c->variance_chosen += w * w * variance(sums[0], squared[0], a->n);
	c->variance_found += w * w * variance(sums[1], squared[1], b->n);
}

static struct jm_tune_gain gain_of(const struct compared *c, int dof)
{
	double relative = c->variance_chosen / (c->chosen * c->chosen) +
			  c->variance_found / (c->found * c->found);

	return (struct jm_tune_gain){
		log(c->chosen / c->found), jm_stat_t_quantile(0.975, dof) * sqrt(relative)};
}

/* The objective of the gains: its interval has those of energy and time, as if they were
 * independent. */
static struct jm_tune_gain objective_of(const struct jm_phase_search *s, double watts_found)
{
	double e = exp(s->energy.log), t = exp(s->time.log);
	double limit = s->o.limit_watts / watts_found;
	double cost = jm_objective_cost(&s->o.objective, e, t, limit);
	double by_energy =
		jm_objective_cost(&s->o.objective, e * exp(s->energy.half), t, limit) - cost;
	double by_time = jm_objective_cost(&s->o.objective, e, t * exp(s->time.half), limit) - cost;

	return (struct jm_tune_gain){cost, hypot(by_energy, by_time)};
}

static void add_same(struct compared *c, double sum)
{
	c->chosen += sum;
	c->found += sum;
}

static void compare(struct jm_phase_search *s)
{
	struct compared energy = {.chosen = 0}, time = {.chosen = 0};
	double joules = s->rest_joules, seconds = s->rest_s;
	int dof = 0;

	for (int i = 0; i < s->n; i++) {
		struct jm_phase_seen *p = &s->phase[i];
		const struct jm_phase_sum *a = &p->chosen, *b = &p->found;
		double w = weight(p);

		p->counts = p->counts && a->n > 1 && b->n > 1;
		if (!p->counts) {
			add_unchanged(p, &joules, &seconds);
			continue;
		}
		dof += a->n + b->n - 2;
		compare_one(&energy, w, (double[]){a->joules, b->joules},
			(double[]){a->joules_squared, b->joules_squared}, a, b);
		compare_one(&time, w, (double[]){a->seconds, b->seconds},
			(double[]){a->seconds_squared, b->seconds_squared}, a, b);
	}
	enter_stage(s, JM_PHASE_HOLD);
	s->choice = JM_CHOICE_UNCLEAR;
	if (!dof)
		return;
	s->of_switched = gain_of(&energy, dof);
	add_same(&energy, joules);
	add_same(&time, seconds);
	s->energy = gain_of(&energy, dof);
	s->time = gain_of(&time, dof);
	s->objective = objective_of(s, energy.found / time.found);
	if (s->objective.log + s->objective.half < 0)
		s->choice = JM_CHOICE_BETTER;
}

/* ---- visits ---- */

/* Have the phases that fill most of the time so many visits? */
static bool enough(const struct jm_phase_search *s, bool compared, int visits)
{
	double have = 0, all = 0;

	for (int i = 0; i < s->n; i++) {
		const struct jm_phase_seen *p = &s->phase[i];
		int n = compared ? p->chosen.n + p->found.n : visits_of(s, p);

		if (p->kept || (compared && !p->counts))
			continue;
		all += p->seconds;
		if (n >= visits)
			have += p->seconds;
	}
	return all > 0 && have >= SHARE * all;
}

static void go_on(struct jm_phase_search *s)
{
	bool late = s->stage_s >= s->o.within_s;

	if (s->stage == JM_PHASE_GRID && (late || enough(s, false, 2 * s->o.n_values)))
		choose(s);
	else if (s->stage == JM_PHASE_CONFIRM && (late || enough(s, true, COMPARED)))
		compare(s);
}

/* What the choice saves against the setting found, for the units of this visit. */
static void count_saved(struct jm_phase_search *s, const struct jm_phase_seen *p, double joules)
{
	const struct jm_tune_gain *gain = &s->of_switched;

	if (s->choice != JM_CHOICE_BETTER || !p->counts)
		return;
	s->saved += joules * expm1(-gain->log);
	s->saved_half += joules * exp(-gain->log) * gain->half;
}

static void add_visit(struct jm_phase_search *s, struct jm_phase_seen *p, int value, double seconds,
	double units, double joules)
{
	if (s->stage == JM_PHASE_GRID)
		add_to(&p->value[value], joules / units, seconds / units);
	else if (s->stage == JM_PHASE_HOLD)
		count_saved(s, p, joules);
	else if (p->counts && value == (is_turn_of_choice(p) ? s->value[p->class] : JM_PHASE_FOUND))
		add_to(is_turn_of_choice(p) ? &p->chosen : &p->found, joules / units,
			seconds / units);
}

static void add_switched(struct jm_phase_seen *p, double seconds, double units, double joules)
{
	p->switched++;
	p->switched_units += units;
	p->switched_joules += joules;
	p->switched_s += seconds;
}

/* What was seen per item does not tell of occurrences. */
static void forget_items(struct jm_phase_search *s, struct jm_phase_seen *p)
{
	p->has_items = false;
	memset(p->value, 0, sizeof(p->value));
	p->chosen = p->found = (struct jm_phase_sum){0};
	if (s->stage == JM_PHASE_CONFIRM)
		p->counts = false;
}

void jm_phase_search_add(struct jm_phase_search *s, int phase, int value, double seconds,
	double items, double joules)
{
	struct jm_phase_seen *p = &s->phase[phase];
	double units;

	if (p->has_items && !(items > 0) && s->stage != JM_PHASE_HOLD)
		forget_items(s, p);
	units = p->has_items ? items : 1;
	p->occurrences++;
	p->seconds += seconds;
	p->kept += value == JM_PHASE_KEEP;
	s->stage_s += seconds;
	if (value != JM_PHASE_KEEP && seconds > 0 && joules > 0) {
		add_switched(p, seconds, units, joules);
		add_visit(s, p, value, seconds, units, joules);
	} else if (joules > 0) {
		s->rest_joules += joules;
		s->rest_s += seconds;
	}
	go_on(s);
}

/* ---- what is known ---- */

enum jm_phase_stage jm_phase_search_stage(const struct jm_phase_search *s)
{
	return s->stage;
}

int jm_phase_search_phases(const struct jm_phase_search *s)
{
	return s->n;
}

const struct jm_phase_seen *jm_phase_search_at(const struct jm_phase_search *s, int phase)
{
	return &s->phase[phase];
}

void jm_phase_search_result(const struct jm_phase_search *s, struct jm_phase_search_result *ret)
{
	*ret = (struct jm_phase_search_result){
		.choice = s->choice,
		.one = s->one,
		.held = s->choice == JM_CHOICE_BETTER,
		.objective = s->objective,
		.energy = s->energy,
		.time = s->time,
		.search_s = s->search_s + (s->stage == JM_PHASE_HOLD ? 0 : s->stage_s),
		.saved = s->choice == JM_CHOICE_BETTER ? s->saved : NAN,
		.saved_half = s->saved_half,
	};
	memcpy(ret->value, s->value, sizeof(ret->value));
	for (int i = 0; i < s->n; i++)
		ret->kept += s->phase[i].kept;
}
