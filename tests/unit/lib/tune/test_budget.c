/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing a budget among eight unlike GPUs, of which the truth is known: the rate is compared with
 * that of the best static split, computed another way, and the sum of the limits is looked at
 * before each visit.
 */
#include "kit/test.h"
#include "kit/budget_node.h"

#include <stdio.h>

#define SEEDS  100
#define VISITS 400

static struct jm_budget_options options_of(enum jm_share share, double watts)
{
	struct jm_budget_options o = {.watts = watts, .share = share, .n = BUDGET_GPUS};

	for (int i = 0; i < BUDGET_GPUS; i++)
		o.device[i] = (struct jm_budget_device){200, 700, 1};
	return o;
}

static double sum_of(const double *limit)
{
	double sum = 0;

	for (int i = 0; i < BUDGET_GPUS; i++) {
		assert_true(limit[i] >= 200 && limit[i] <= 700);
		sum += limit[i];
	}
	return sum;
}

static double shared(
	bool together, double watts, uint64_t seed, double *ret_equal, double *ret_visits)
{
	const struct jm_budget_options o = options_of(JM_SHARE_MARGINAL, watts);
	struct budget_node n = budget_node_of(together, seed);
	struct jm_err err = JM_ERR_INIT;
	struct jm_budget_result r;
	struct jm_budget *b = NULL;
	double best = budget_node_best(&n, watts);
	int until = 0;

	assert_ok(jm_budget_new(&o, &b, &err), err);
	*ret_equal = budget_node_rate(&n, jm_budget_next(b)) / best;
	for (int i = 0; i < VISITS; i++) {
		struct jm_budget_visit v = budget_node_visit(&n, jm_budget_next(b));

		assert_true(sum_of(jm_budget_next(b)) <= watts);
		until = jm_budget_holds(b) ? until : i;
		assert_ok(jm_budget_add(b, &v, &err), err);
	}
	jm_budget_result(b, &r);
	assert_true(jm_budget_holds(b));
	*ret_visits = fmax(*ret_visits, until);
	jm_budget_free(b);
	return budget_node_rate(&n, r.limit) / best;
}

static void comes_near_the_best_split(bool together, double watts)
{
	double worst = INFINITY, worst_equal = INFINITY, visits = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		double equal, ratio = shared(together, watts, seed, &equal, &visits);

		worst = fmin(worst, ratio);
		worst_equal = fmin(worst_equal, equal);
	}
	print_message("%s, %g W: at least %.3f of the best split; equal limits %.3f; %.0f visits\n",
		together ? "together" : "alone", watts, worst, worst_equal, visits);
	assert_true(worst >= 0.97);
}

static void unlike_gpus_share_a_budget(void **state)
{
	(void)state;
	for (double watts = 2400; watts <= 4000; watts += 800) {
		comes_near_the_best_split(true, watts);
		comes_near_the_best_split(false, watts);
	}
}

static void static_shares_are_what_they_say(void **state)
{
	struct jm_budget_options o = options_of(JM_SHARE_EQUAL, 2401);
	struct jm_err err = JM_ERR_INIT;
	struct jm_budget *b = NULL;

	(void)state;
	o.n = 3;
	o.device[2].max = 350;
	assert_ok(jm_budget_new(&o, &b, &err), err);
	assert_true(jm_budget_holds(b));
	assert_near(jm_budget_next(b)[0], 700, 0);
	assert_near(jm_budget_next(b)[2], 350, 0);
	jm_budget_free(b);
	o.watts = 1000;
	assert_ok(jm_budget_new(&o, &b, &err), err);
	for (int i = 0; i < 3; i++)
		assert_near(jm_budget_next(b)[i], 333, 0);
	jm_budget_free(b);
	o.share = JM_SHARE_PROPORTIONAL;
	assert_ok(jm_budget_new(&o, &b, &err), err);
	assert_near(jm_budget_next(b)[0], 400, 0);
	assert_near(jm_budget_next(b)[2], 200, 0);
	jm_budget_free(b);
	o.watts = 599;
	assert_int_equal(jm_budget_new(&o, &b, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
}

static void a_visit_without_items_is_ignored(void **state)
{
	const struct jm_budget_options o = options_of(JM_SHARE_MARGINAL, 2400);
	static const struct jm_budget_visit bad[] = {{.seconds = 1}, {.items = 1},
		{.seconds = 1, .items = NAN}, {.seconds = -1, .items = 2}};
	struct jm_err err = JM_ERR_INIT;
	struct jm_budget_result r;
	struct jm_budget *b = NULL;

	(void)state;
	assert_ok(jm_budget_new(&o, &b, &err), err);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(jm_budget_add(b, &bad[i], NULL), JM_ERANGE);
	jm_budget_result(b, &r);
	assert_int_equal(r.visits, 0);
	assert_true(isnan(r.rate));
	jm_budget_free(b);
}

/* Two GPUs at 300 W: the second one draws all of it, and of the first nobody knows. */
static void unknown_power_is_no_slack(void **state)
{
	const struct jm_budget_visit v = {.seconds = 1, .items = 1, .watts = {NAN, 300}};
	struct jm_budget_options o = options_of(JM_SHARE_MARGINAL, 600);
	struct jm_budget_result r;
	struct jm_budget *b = NULL;
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	o.n = 2;
	assert_ok(jm_budget_new(&o, &b, &err), err);
	for (int i = 0; i < 2; i++)
		assert_ok(jm_budget_add(b, &v, &err), err);
	jm_budget_result(b, &r);
	assert_int_equal(r.tried, 0); /* the next visits find the slope instead */
	assert_true(jm_budget_next(b)[0] > 300);
	jm_budget_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unlike_gpus_share_a_budget),
		cmocka_unit_test(static_shares_are_what_they_say),
		cmocka_unit_test(a_visit_without_items_is_ignored),
		cmocka_unit_test(unknown_power_is_no_slack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
