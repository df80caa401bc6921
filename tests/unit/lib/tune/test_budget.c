/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing a budget among eight unlike GPUs, of which the truth is known: the rate is compared with
 * that of the best static split, computed another way, and the sum of the limits is looked at
 * before each visit.
 */
#include "kit/test.h"
#include "sim/sim_model.h"
#include "tune/budget.h"

#include <stdio.h>

#define GPUS   8
#define SEEDS  100
#define VISITS 400
#define IDLE   75.

struct node {
	/* each step waits for the slowest; else each GPU works alone, and rates add up */
	bool together;
	double speed[GPUS], hunger[GPUS]; /* items/s at full power; W of that */
	double noise;
	uint64_t seed, visits;
};

static struct node node_of(bool together, uint64_t seed)
{
	struct node n = {.together = together, .noise = 0.002, .seed = seed};

	for (int i = 0; i < GPUS; i++) {
		n.speed[i] = 100 * (1 + 0.1 * jm_sim_noise(seed, 10, (uint64_t)i));
		n.hunger[i] = 600 * (1 + 0.1 * jm_sim_noise(seed, 11, (uint64_t)i));
	}
	return n;
}

/* Rate of one GPU: the cube root of its share of the power, the law of the simulated clock. */
static double rate_of(const struct node *n, int i, double watts)
{
	double share = (watts - IDLE) / (n->hunger[i] - IDLE);

	return n->speed[i] * cbrt(fmin(fmax(share, 0.001), 1));
}

static double watts_for(const struct node *n, int i, double rate)
{
	return IDLE + (n->hunger[i] - IDLE) * pow(rate / n->speed[i], 3);
}

static double rate_under(const struct node *n, const double *limit)
{
	double slowest = INFINITY, sum = 0;

	for (int i = 0; i < GPUS; i++) {
		sum += rate_of(n, i, limit[i]);
		slowest = fmin(slowest, rate_of(n, i, limit[i]));
	}
	return n->together ? GPUS * slowest : sum;
}

/* A GPU that waits is idle in that time. */
static struct jm_budget_visit visit(struct node *n, const double *limit)
{
	double rate = rate_under(n, limit);
	struct jm_budget_visit v = {.seconds = 2,
		.items = 2 * rate * (1 + n->noise * jm_sim_noise(n->seed, 12, n->visits))};

	for (int i = 0; i < GPUS; i++) {
		double busy = n->together ? rate / GPUS / rate_of(n, i, limit[i]) : 1;

		v.watts[i] = IDLE + busy * (fmin(limit[i], n->hunger[i]) - IDLE);
	}
	n->visits++;
	return v;
}

/* Together: the pace at which all limits add up to the budget. Alone: watt by watt to where it does
 * most. */
static double best_rate(const struct node *n, double watts)
{
	double limit[GPUS], low = 0, high = 200;

	for (int k = 0; k < 60 && n->together; k++) {
		double pace = (low + high) / 2, sum = 0;

		for (int i = 0; i < GPUS; i++)
			sum += pace > n->speed[i] ? INFINITY : fmax(200, watts_for(n, i, pace));
		*(sum <= watts ? &low : &high) = pace;
	}
	if (n->together)
		return GPUS * low;
	for (int i = 0; i < GPUS; i++)
		limit[i] = 200;
	for (double left = watts - GPUS * 200; left >= 1; left--) {
		int best = 0;
		double most = -1;

		for (int i = 0; i < GPUS; i++) {
			double more = rate_of(n, i, limit[i] + 1) - rate_of(n, i, limit[i]);

			if (limit[i] < 700 && more > most) {
				best = i;
				most = more;
			}
		}
		limit[best] += 1;
	}
	return rate_under(n, limit);
}

static struct jm_budget_options options_of(enum jm_share share, double watts)
{
	struct jm_budget_options o = {.watts = watts, .share = share, .n = GPUS};

	for (int i = 0; i < GPUS; i++)
		o.device[i] = (struct jm_budget_device){200, 700, 1};
	return o;
}

static double sum_of(const double *limit)
{
	double sum = 0;

	for (int i = 0; i < GPUS; i++) {
		assert_true(limit[i] >= 200 && limit[i] <= 700);
		sum += limit[i];
	}
	return sum;
}

static double shared(
	bool together, double watts, uint64_t seed, double *ret_equal, double *ret_visits)
{
	const struct jm_budget_options o = options_of(JM_SHARE_MARGINAL, watts);
	struct node n = node_of(together, seed);
	struct jm_err err = JM_ERR_INIT;
	struct jm_budget_result r;
	struct jm_budget *b = NULL;
	double best = best_rate(&n, watts);
	int until = 0;

	assert_ok(jm_budget_new(&o, &b, &err), err);
	*ret_equal = rate_under(&n, jm_budget_next(b)) / best;
	for (int i = 0; i < VISITS; i++) {
		struct jm_budget_visit v = visit(&n, jm_budget_next(b));

		assert_true(sum_of(jm_budget_next(b)) <= watts);
		until = jm_budget_holds(b) ? until : i;
		assert_ok(jm_budget_add(b, &v, &err), err);
	}
	jm_budget_result(b, &r);
	assert_true(jm_budget_holds(b));
	*ret_visits = fmax(*ret_visits, until);
	jm_budget_free(b);
	return rate_under(&n, r.limit) / best;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unlike_gpus_share_a_budget),
		cmocka_unit_test(static_shares_are_what_they_say),
		cmocka_unit_test(a_visit_without_items_is_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
