/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search on curves of which the truth is known: after a job of ten minutes the setting that is
 * held is compared with the best one of a full sweep over the curve itself, and with the setting
 * found, for 100 seeds of the noise.
 */
#include "kit/test.h"
#include "kit/search_worlds.h"

#include <stdio.h>

#define SEEDS 100

static const struct search_world changing = {
	"changing", "h100", "llama3-8b-train", 0.005, 0, 320, 250, 0, 300};

static struct search_outcome tune(
	const struct search_world *w, const struct jm_objective *o, double job_s, uint64_t seed)
{
	struct search_outcome out;
	struct jm_err err = JM_ERR_INIT;

	assert_ok(search_world_tune(w, o, job_s, seed, &out, &err), err);
	return out;
}

static struct jm_objective objective_of(const char *text)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_objective o;

	assert_ok(jm_objective_parse(text, &o, &err), err);
	return o;
}

/* at_least: so many of the seeds end within 3 % of the best. */
static void all_seeds(const struct search_world *w, const char *text, int at_least)
{
	const struct jm_objective o = objective_of(text);
	int near = 0, safe = 0, flat = 0;
	double worst = 0, longest = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct search_outcome out = tune(w, &o, SEARCH_JOB_S, seed);

		near += out.to_best <= 1.03;
		safe += out.to_default <= 1.01;
		flat += out.result.choice == JM_CHOICE_FLAT;
		worst = fmax(worst, out.to_best);
		longest = fmax(longest, out.first_search_s);
	}
	print_message("%s %s: %d of %d within 1.03 of the best (worst %.3f), %d within 1.01 of the "
		      "default, flat %d, search %.0f s\n",
		w->name, text, near, SEEDS, worst, safe, flat, longest);
	assert_true(near >= at_least);
	assert_int_equal(safe, SEEDS);
	assert_true(longest <= SEARCH_WITHIN_S);
}

static void every_curve_is_tuned(void **state)
{
	static const char *const texts[] = {"energy", "edp", "eds:2", "zeus:0.5"};

	(void)state;
	for (size_t i = 0; search_worlds[i].name; i++)
		for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
			all_seeds(&search_worlds[i], texts[k], 98);
}

/* The noise of the third power of time is three times that of the energy, and the best setting
 * saves 8 %. */
static void delays_squared_are_tuned_where_noise_allows(void **state)
{
	(void)state;
	all_seeds(&search_worlds[0], "ed2p", 40);
	for (size_t i = 1; search_worlds[i].name; i++)
		all_seeds(&search_worlds[i], "ed2p", 98);
}

/* A percent of time is up to 4 % of energy at the limit. */
static void slowdowns_are_limited(void **state)
{
	(void)state;
	all_seeds(&search_worlds[0], "slowdown:5%", 50);
	for (size_t i = 1; search_worlds[i].name; i++)
		all_seeds(&search_worlds[i], "slowdown:5%", 90);
}

/* The work draws less than the lowest cap: the search ends after the grid. */
static void flat_curves_end_early(void **state)
{
	const struct jm_objective o = objective_of("energy");
	int flat = 0, early = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct search_outcome out = tune(&search_worlds[1], &o, SEARCH_JOB_S, seed);

		assert_true(out.result.best.found);
		flat += out.result.choice == JM_CHOICE_FLAT;
		early += out.first_search_s <= 0.9 * SEARCH_WITHIN_S;
	}
	assert_true(flat >= 95 && early >= 95);
}

/* From the fifth minute on the work needs all its power: what was the best setting is now one of
 * the worst. */
static void changed_work_is_looked_at_again(void **state)
{
	const struct jm_objective o = objective_of("edp");
	int near = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct search_outcome soon = tune(&changing, &o, SEARCH_JOB_S, seed);
		struct search_outcome late = tune(&changing, &o, 3 * SEARCH_JOB_S, seed);

		/* there is no time for another search yet, but for a comparison */
		assert_true(soon.to_default <= 1.01);
		assert_true(late.result.searches > 1 && late.result.drifts > 0);
		assert_true(late.to_default <= 1.01);
		near += late.to_best <= 1.03;
	}
	assert_true(near >= 98);
}

/* One window in twenty: they are made again, and the choice is as good as without. */
static void stalls_are_set_aside(void **state)
{
	const struct search_world w = {
		"stalling", "h100", "llama3-8b-train", 0.005, 0, 0, 0, 0.05, 0};
	const struct jm_objective o = objective_of("edp");
	int within = 0, outliers = 0;

	(void)state;
	all_seeds(&w, "edp", 98);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct search_outcome out = tune(&w, &o, SEARCH_JOB_S, seed);
		struct jm_tune_gain gain = out.result.objective;

		outliers += out.result.outliers;
		within += fabs(gain.log - log(out.to_default)) <= gain.half;
	}
	assert_true(outliers > SEEDS / 2);
	assert_true(within >= 85);
}

/* Of an interval of 95 %, at least 90 of 100 hold the truth of the held setting. */
static void gains_are_within_their_intervals(void **state)
{
	const struct jm_objective o = objective_of("energy");
	const struct search_world *w = &search_worlds[0];
	int within = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct search_outcome out = tune(w, &o, SEARCH_JOB_S, seed);
		struct jm_tune_gain gain = out.result.objective;

		assert_int_equal(out.result.choice, JM_CHOICE_BETTER);
		within += fabs(gain.log - log(out.to_default)) <= gain.half;
	}
	assert_true(within >= 90);
}

static void objectives_are_read_and_written(void **state)
{
	static const char *const good[] = {
		"energy", "edp", "ed2p", "eds:2", "zeus:0.5", "slowdown:5%", "slowdown:2.5%"};
	static const char *const bad[] = {"", "ed", "energy:2", "eds", "eds:", "eds:0.5", "eds:2x",
		"zeus:2", "zeus:nan", "slowdown:0", "slowdown:200%", "slowdown:5%%", "power"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const struct jm_objective o = objective_of(good[i]);
		char text[40];

		jm_objective_text(&o, text, sizeof(text));
		assert_string_equal(text, good[i]);
		assert_near(jm_objective_cost(&o, 1, 1, 1.5), 0, 1e-12);
		assert_true(isnan(jm_objective_cost(&o, NAN, 1, 1)));
		assert_true(isnan(jm_objective_cost(&o, 1, 0, 1)));
		assert_true(jm_objective_cost(&o, 0.8, 1, 1.5) < 0);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_objective o;

		assert_int_equal(jm_objective_parse(bad[i], &o, &err), JM_EUSAGE);
		assert_sentence(&err, JM_EUSAGE);
	}
}

static void nothing_is_learnt_from_a_visit_without_items(void **state)
{
	static const struct jm_visit bad[] = {{.seconds = 1, .joules = 1},
		{.seconds = 1, .items = NAN, .joules = 1},
		{.seconds = 1, .items = 1, .joules = NAN}, {.seconds = 0, .items = 1, .joules = 1},
		{.seconds = 1, .items = 1, .joules = -1},
		{.seconds = 1, .items = INFINITY, .joules = 1}};
	const struct jm_search_options narrow = {.knob[0] = {1, 3, 1, 3}, .n = 1};
	const struct jm_search_options o = {.knob[0] = {1, 9, 0, 9}, .n = 1};
	struct jm_err err = JM_ERR_INIT;
	struct jm_search *s = NULL;

	(void)state;
	assert_int_equal(jm_search_new(&narrow, &s, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_search_new(&o, &s, &err), err);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err = (struct jm_err)JM_ERR_INIT;
		assert_int_equal(jm_search_add(s, &bad[i], &err), JM_ERANGE);
	}
	assert_int_equal(jm_search_visits(s), 0);
	assert_true(jm_search_next(s).found);
	jm_search_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_curve_is_tuned),
		cmocka_unit_test(delays_squared_are_tuned_where_noise_allows),
		cmocka_unit_test(slowdowns_are_limited),
		cmocka_unit_test(flat_curves_end_early),
		cmocka_unit_test(changed_work_is_looked_at_again),
		cmocka_unit_test(stalls_are_set_aside),
		cmocka_unit_test(gains_are_within_their_intervals),
		cmocka_unit_test(objectives_are_read_and_written),
		cmocka_unit_test(nothing_is_learnt_from_a_visit_without_items),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
