/* SPDX-License-Identifier: Apache-2.0 */
#include "item_kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_RUN	3   /* numbers of a run that another one follows */
#define LEAST_STEPS	3   /* before a smaller step */
#define LEAST_ELSEWHERE 5   /* numbers of a count that an earlier run began */
#define LEAST_PACED	8   /* numbers at a steady pace */
#define PACE_MOST	0.7 /* the number at half as many, as a share */
#define PACE_LEAST	0.3
#define ROUNDING	1e-9

const char *const jm_item_kind_names[] = {"amount", "total", NULL};

enum jm_item_kind jm_item_kind_of(const char *name)
{
	if (!name)
		return JM_ITEMS_BY_RULE;
	return strcmp(name, "total") ? JM_ITEMS_AMOUNT : JM_ITEMS_TOTAL;
}

/* ---- the rule ---- */

static bool same(double a, double b, double scale)
{
	return fabs(a - b) <= ROUNDING * scale;
}

static bool from_start(const struct jm_item_run *run)
{
	return run->first == 0 || same(run->first, run->step, run->first);
}

static bool by_ones(const struct jm_item_run *run)
{
	return same(run->step, 1, 1);
}

static bool is_even(const struct jm_item_run *run)
{
	return run->even && run->step != 0 && from_start(run) && (!run->early || by_ones(run));
}

static bool is_elsewhere(const struct jm_item_run *run)
{
	return run->even && !run->repeated && !run->ending && run->n >= LEAST_ELSEWHERE &&
	       !from_start(run);
}

static bool is_paced(const struct jm_item_run *run)
{
	return run->paced && run->n >= LEAST_PACED;
}

static void begin_run(struct jm_item_rule *r, double number)
{
	r->run = (struct jm_item_run){
		.n = 1, .first = number, .octave = number, .even = true, .paced = true};
}

/* After a smaller step, or a number that is printed again, a count may only repeat its last
 * number. */
static void take_end(struct jm_item_run *run, double rise)
{
	run->even = run->even && run->steps >= LEAST_STEPS && rise < run->step &&
		    (!run->ending || rise == 0);
	run->ending = true;
}

/* A number that is not smaller than the one before, of a count by equal steps. */
static void take_step(struct jm_item_run *run, double rise, double number)
{
	if (run->step == 0 && rise == 0) {
		run->early = true;
	} else if (run->step == 0) {
		run->step = rise;
		run->steps = run->first > 0 && from_start(run) ? 2 : 1;
	} else if (!run->ending && same(rise, run->step, number)) {
		run->steps++;
	} else if (rise > 0 || !by_ones(run)) {
		take_end(run, rise);
	}
}

/* The same, of a count at a steady pace, whose last number alone may be printed again. */
static void take_pace(struct jm_item_run *run, double rise, double number)
{
	run->paced = run->paced && (rise > 0 ? !run->repeated : run->n > LEAST_PACED);
	if (run->n & (run->n - 1))
		return;
	run->paced = run->paced && run->octave <= PACE_MOST * number &&
		     (run->n < LEAST_PACED || run->octave >= PACE_LEAST * number);
	run->octave = number;
}

static void take_rise(struct jm_item_run *run, double rise, double number)
{
	run->n++;
	take_pace(run, rise, number);
	take_step(run, rise, number);
	run->repeated = run->repeated || rise == 0;
}

static void fall(struct jm_item_rule *r, double number)
{
	r->falls++;
	r->no_count =
		r->no_count || r->run.n < LEAST_RUN || !(is_even(&r->run) || is_paced(&r->run));
	r->before = r->run;
	begin_run(r, number);
}

static void rule_add(struct jm_item_rule *r, double number)
{
	double rise = number - r->last;

	if (r->n < (long)(sizeof(r->begin) / sizeof(r->begin[0])))
		r->begin[r->n] = number;
	if (!r->n) {
		begin_run(r, number);
	} else if (rise < 0) {
		fall(r, number);
	} else {
		r->rises += rise > 0;
		take_rise(&r->run, rise, number);
	}
	r->last = number;
	r->n++;
}

/* Does the last run of a count that began again fit the run before it? */
static bool goes_on(const struct jm_item_run *run, const struct jm_item_run *before)
{
	if (!is_even(before))
		return true;
	if (run->step != 0)
		return is_even(run);
	return run->first == 0 || same(run->first, before->step, before->step);
}

enum jm_item_kind jm_item_rule_kind(const struct jm_item_rule *r)
{
	bool counts = r->falls ? !r->no_count && goes_on(&r->run, &r->before)
			       : is_even(&r->run) || is_elsewhere(&r->run) || is_paced(&r->run);

	return counts ? JM_ITEMS_TOTAL : JM_ITEMS_AMOUNT;
}

/* What the first number has too much, where an earlier run began the count. */
static double rule_before(const struct jm_item_rule *r)
{
	return !r->falls && is_elsewhere(&r->run) && !is_paced(&r->run) ? r->run.first - r->run.step
									: 0;
}

bool jm_item_rule_doubtful(const struct jm_item_rule *r)
{
	return r->rises && (!r->falls || jm_item_rule_kind(r) == JM_ITEMS_TOTAL);
}

/* ---- the sums ---- */

void jm_item_sums_init(struct jm_item_sums *s, enum jm_item_kind given)
{
	*s = (struct jm_item_sums){
		.given = given,
		.amount = {.late = true},
		.total = {.late = true},
		.first = {-1, -1},
	};
}

static struct jm_item_sum *phase_of(struct jm_item_sums *s, int phase)
{
	struct jm_item_sum *grown;

	if (phase < s->n_phases)
		return &s->phase[phase];
	grown = reallocarray(s->phase, (size_t)phase + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	while (s->n_phases <= phase)
		grown[s->n_phases++] = (struct jm_item_sum){NAN, NAN};
	s->phase = grown;
	return &grown[phase];
}

static void credit(struct jm_item_sums *s, int phase, double amount, double total)
{
	struct jm_item_sum *sum = phase >= 0 ? phase_of(s, phase) : NULL;

	s->lost = s->lost || (phase >= 0 && !sum);
	if (!sum)
		return;
	sum->amount = isnan(sum->amount) ? amount : sum->amount + amount;
	sum->total = isnan(sum->total) ? total : sum->total + total;
}

void jm_item_sums_add(struct jm_item_sums *s, const struct jm_mark *mark, const int phases[2])
{
	struct jm_mark rise = *mark;
	const struct jm_item_rule *r = &s->rule;

	if (r->n && mark->items >= r->last)
		rise.items = mark->items - r->last;
	for (int i = 0; i < 2; i++) {
		if (!r->n)
			s->first[i] = phases[i];
		credit(s, phases[i], mark->items, rise.items);
	}
	jm_tally_add(&s->amount, mark);
	jm_tally_add(&s->total, &rise);
	rule_add(&s->rule, mark->items);
}

enum jm_item_kind jm_item_sums_kind(const struct jm_item_sums *s)
{
	return s->given ? s->given : jm_item_rule_kind(&s->rule);
}

/* Who says that the numbers are totals says that they count from the start of the command. */
static double before(const struct jm_item_sums *s)
{
	return s->given ? 0 : rule_before(&s->rule);
}

struct jm_tally jm_item_sums_tally(const struct jm_item_sums *s)
{
	struct jm_tally tally = s->total;

	if (jm_item_sums_kind(s) == JM_ITEMS_AMOUNT)
		return s->amount;
	tally.items -= before(s);
	return tally;
}

double jm_item_sums_phase(const struct jm_item_sums *s, int phase)
{
	double total;

	if (phase >= s->n_phases)
		return NAN;
	if (jm_item_sums_kind(s) == JM_ITEMS_AMOUNT)
		return s->phase[phase].amount;
	total = s->phase[phase].total;
	return phase == s->first[0] || phase == s->first[1] ? total - before(s) : total;
}

void jm_item_sums_done(struct jm_item_sums *s)
{
	free(s->phase);
	s->phase = NULL;
}
