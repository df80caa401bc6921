/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search over two knobs on surfaces of which the truth is known: what is held after a job of
 * ten minutes is compared with the best pair of a full sweep over the surface itself.
 */
#include "kit/test.h"
#include "sim/sim_model.h"
#include "tune/search.h"

#define SEEDS  50
#define JOB_S  600.
#define SETTLE 0.3 /* s, before a window */
#define WITHIN 180.
#define IDLE   100. /* W */

/* Rate in items/s and power in W under two settings. */
struct surface {
	const char *name;
	struct jm_search_range knob[JM_TUNE_KNOBS];
	double noise; /* relative standard deviation of the rate of a window, half as much of power */
	void (*at)(double x, double y, double *rate, double *watts);
};

/* x: cap in W; y: clock in MHz. Work bound by the clock of which the cap allows so much; one that
 * holds the clock down costs 2 % besides, because clocks swing. */
static void cap_and_clock(double x, double y, double *rate, double *watts)
{
	double allowed = 2000 * cbrt((x - IDLE) / 600), clock = fmin(y, allowed);

	*watts = IDLE + 600 * pow(clock / 2000, 3);
	*rate = clock * (y > allowed ? 0.98 : 1);
}

/* x, y: clocks in MHz of two units that work after each other. */
static void two_clocks(double x, double y, double *rate, double *watts)
{
	*rate = 1e3 / (0.6 * 2000 / x + 0.4 * 1600 / y);
	*watts = IDLE + 350 * pow(x / 2000, 3) + 250 * pow(y / 1600, 2);
}

/* Far below any setting: nothing changes anything. */
static void neither(double x, double y, double *rate, double *watts)
{
	(void)x;
	(void)y;
	*rate = 500;
	*watts = 150;
}

static const struct surface surfaces[] = {
	{"cap and clock", {{200, 700, 5, 700}, {600, 2000, 15, NAN}}, 0.005, cap_and_clock},
	{"two clocks", {{500, 2000, 15, 2000}, {400, 1600, 0, 1600}}, 0.005, two_clocks},
	{"two clocks, found within", {{500, 2000, 15, 1400}, {400, 1600, 0, 700}}, 0.005,
		two_clocks},
	{"quiet", {{500, 2000, 15, 2000}, {400, 1600, 10, 1600}}, 0, two_clocks},
};
static const struct surface flat = {
	"flat", {{200, 700, 5, 700}, {600, 2000, 15, 2000}}, 0.002, neither};

static double place_of(const struct jm_search_range *r, bool found, double value)
{
	return !found ? value : isnan(r->found) ? r->max : r->found;
}

static double cost_at(const struct surface *s, double power, double x, double y)
{
	double rate, watts;

	s->at(x, y, &rate, &watts);
	return watts / rate * pow(1 / rate, power);
}

/* power: of the delay in the objective. */
static double least_cost(const struct surface *s, double power)
{
	const struct jm_search_range *x = &s->knob[0], *y = &s->knob[1];
	double least = INFINITY;

	for (double a = x->min; a <= x->max; a += (x->max - x->min) / 300)
		for (double b = y->min; b <= y->max; b += (y->max - y->min) / 300)
			least = fmin(least, cost_at(s, power, a, b));
	return least;
}

static struct jm_visit visit_of(const struct surface *s, struct jm_tune_setting setting, double *t,
	double window, uint64_t seed)
{
	uint64_t at = (uint64_t)llround(*t * 1000);
	double rate, watts;

	s->at(place_of(&s->knob[0], setting.found, setting.value[0]),
		place_of(&s->knob[1], setting.found, setting.value[1]), &rate, &watts);
	*t += SETTLE + window;
	return (struct jm_visit){
		.seconds = window,
		.items = window * rate * (1 + s->noise * jm_sim_noise(seed, 1, at)),
		.joules = window * watts * (1 + s->noise / 2 * jm_sim_noise(seed, 2, at)),
		.error_joules = 0.002 * window * watts,
		.wall_s = SETTLE + window,
	};
}

struct outcome {
	struct jm_search_result result;
	double to_best, to_found; /* the true objective of what is held at the end */
	double search_s;	  /* the first one */
};

static struct outcome tune(const struct surface *s, const char *text, double power, uint64_t seed)
{
	struct jm_search_options o = {.n = 2, .knob = {s->knob[0], s->knob[1]}, .within_s = WITHIN};
	const struct jm_search_range *x = &s->knob[0], *y = &s->knob[1];
	struct outcome out = {.search_s = NAN};
	struct jm_err err = JM_ERR_INIT;
	struct jm_search *search = NULL;
	struct jm_tune_setting *best = &out.result.best;
	double held, t = 0;

	assert_ok(jm_objective_parse(text, &o.objective, &err), err);
	assert_ok(jm_search_new(&o, &search, &err), err);
	while (t < JOB_S) {
		bool holds = jm_search_stage(search) == JM_STAGE_HOLD;
		struct jm_visit v = visit_of(s, jm_search_next(search), &t, holds ? 10 : 2, seed);

		if (holds && isnan(out.search_s))
			out.search_s = t - 10 - SETTLE;
		assert_ok(jm_search_add(search, &v, &err), err);
	}
	jm_search_result(search, &out.result);
	jm_search_free(search);
	held = cost_at(s, power, place_of(x, best->found, best->value[0]),
		place_of(y, best->found, best->value[1]));
	out.to_best = held / least_cost(s, power);
	out.to_found = held / cost_at(s, power, place_of(x, true, 0), place_of(y, true, 0));
	return out;
}

static void all_seeds(const struct surface *s, const char *text, double power, int at_least)
{
	double worst = 0, longest = 0;
	int near = 0, safe = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct outcome out = tune(s, text, power, seed);

		near += out.to_best <= 1.03;
		safe += out.to_found <= 1.01;
		worst = fmax(worst, out.to_best);
		longest = fmax(longest, out.search_s);
	}
	print_message("%s, %s: %d of %d within 1.03 of the best (worst %.3f), %d within 1.01 of "
		      "the setting found, search %.0f s\n",
		s->name, text, near, SEEDS, worst, safe, longest);
	assert_true(near >= at_least);
	assert_int_equal(safe, SEEDS);
	assert_true(longest <= WITHIN);
}

static void both_knobs_are_tuned(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(surfaces) / sizeof(surfaces[0]); i++) {
		all_seeds(&surfaces[i], "energy", 0, SEEDS - 1);
		all_seeds(&surfaces[i], "edp", 1, SEEDS - 1);
	}
}

static void a_flat_surface_ends_early(void **state)
{
	int early = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct outcome out = tune(&flat, "edp", 1, seed);

		early += out.result.choice == JM_CHOICE_FLAT && out.result.best.found &&
			 out.search_s < WITHIN / 2;
	}
	print_message("flat: %d of %d\n", early, SEEDS);
	assert_true(early >= SEEDS * 9 / 10);
}

/* The least energy of all pairs that are at most 10 % slower. */
static double least_within(const struct surface *s, double limit, double *ret_rate)
{
	const struct jm_search_range *x = &s->knob[0], *y = &s->knob[1];
	double found, least = INFINITY, rate, watts;

	s->at(place_of(x, true, 0), place_of(y, true, 0), &found, &watts);
	for (double a = x->min; a <= x->max; a += 5)
		for (double b = y->min; b <= y->max; b += 5) {
			s->at(a, b, &rate, &watts);
			if (rate * (1 + limit) >= found)
				least = fmin(least, watts / rate);
		}
	*ret_rate = found;
	return least;
}

static void slowdowns_are_limited(void **state)
{
	const struct surface *s = &surfaces[1];
	double found, least = least_within(s, 0.1, &found), rate, watts;
	int near = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct outcome out = tune(s, "slowdown:10%", 0, seed);
		const double *at = out.result.best.value;

		s->at(at[0], at[1], &rate, &watts);
		near += !out.result.best.found && rate * 1.13 >= found &&
			watts / rate <= 1.06 * least;
	}
	print_message("slowdown:10%%: %d of %d\n", near, SEEDS);
	assert_true(near >= SEEDS * 8 / 10);
}

static void a_knob_without_a_range_is_refused(void **state)
{
	const struct jm_search_options o = {.n = 2, .knob = {{1, 9, 0, 9}, {1, 3, 1, 3}}};
	struct jm_err err = JM_ERR_INIT;
	struct jm_search *s = NULL;

	(void)state;
	assert_int_equal(jm_search_new(&o, &s, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_knobs_are_tuned),
		cmocka_unit_test(a_flat_surface_ends_early),
		cmocka_unit_test(slowdowns_are_limited),
		cmocka_unit_test(a_knob_without_a_range_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
