/* SPDX-License-Identifier: Apache-2.0 */
/* Power that a sensor shows whose refresh nobody knows, as that of a management controller: the
 * bound against loads whose energy is known. */
#include "base/clock.h"
#include "kit/test.h"
#include "energy/energy.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

#define POLL_MS 200
#define FROM_S	100
#define TO_S	160
#define TRIALS	200

struct load {
	double level[64], until_s[64];
	int n;
};

static double between(double least, double most)
{
	return least + (most - least) * rand() / RAND_MAX;
}

static struct load random_load(double longest_s)
{
	struct load l = {.n = 0};

	for (double t = 0; l.n < 64 && t < 2 * TO_S; l.n++) {
		t += between(longest_s / 8, longest_s);
		l.level[l.n] = between(200, 1000);
		l.until_s[l.n] = t;
	}
	return l;
}

static double watts_at(const struct load *l, double t)
{
	int i = 0;

	while (i + 1 < l->n && l->until_s[i] <= t)
		i++;
	return l->level[i];
}

static double truth_of(const struct load *l)
{
	double joules = 0, from = FROM_S;

	for (int i = 0; i < l->n && from < TO_S; i++) {
		double to = fmin(l->until_s[i], TO_S);

		if (to <= from)
			continue;
		joules += l->level[i] * (to - from);
		from = to;
	}
	return joules;
}

/* Of a sensor whose values move by so many watts from refresh to refresh. */
static struct jm_energy measure(const struct load *l, double refresh_s, double noise)
{
	struct jm_meter meter = {.id = "m", .source = "test", .covers = "/"};
	struct jm_signal power = {.quantity = JM_Q_POWER, .window_ns = -1, .accuracy = NAN};
	double phase = between(0, refresh_s);
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_trace *trace;
	struct jm_energy e;

	jm_meters_add(&set, &meter, &err);
	jm_meters_add_signal(&set, &power, &err);
	trace = jm_trace_new(&set, &err);
	assert_non_null(trace);
	for (int ms = 0; ms < (TO_S + 5) * 1000; ms += POLL_MS) {
		double k = floor((ms * 1e-3 - phase) / refresh_s), seen = k * refresh_s + phase;
		double watts = watts_at(l, seen) + noise * fmod(7 * fabs(k), 11) / 11;
		struct jm_reading r = {watts, ms * JM_MILLISECOND};

		assert_ok(jm_trace_append(trace, 0, r, &err), err);
	}
	assert_ok(
		jm_energy_of(trace, &set, 0, FROM_S * JM_SECOND, TO_S * JM_SECOND, &e, &err), err);
	jm_trace_free(trace);
	jm_meters_done(&set);
	return e;
}

/* Returns the bound as a share of the energy. */
static double expect_bounds(double refresh_s, double noise)
{
	double joules = 0, bound = 0;
	int known = 0, held = 0;

	for (int i = 0; i < TRIALS; i++) {
		struct load l = random_load(between(2 * refresh_s, 60));
		struct jm_energy e = measure(&l, refresh_s, noise);
		double truth = truth_of(&l) + noise / 2.2 * (TO_S - FROM_S);

		if (isnan(e.error_sampling))
			continue;
		known++;
		held += fabs(e.joules - truth) <= e.error_sampling;
		joules += e.joules;
		bound += e.error_sampling;
	}
	printf("refresh %.0f s, noise %.0f W: %d of %d bounds hold, %.0f %%\n", refresh_s, noise,
		held, known, 100 * bound / joules);
	assert_true(known > TRIALS / 2 && held >= 0.9 * known);
	return bound / joules;
}

static void the_bound_holds_whatever_the_refresh(void **state)
{
	(void)state;
	srand(11);
	expect_bounds(1, 0);
	expect_bounds(5, 0);
	expect_bounds(20, 0);
}

/* Noise shows how often the sensor refreshes. */
static void the_bound_is_small_where_each_refresh_shows(void **state)
{
	(void)state;
	srand(12);
	assert_true(expect_bounds(1, 5) < 0.06);
	assert_true(expect_bounds(5, 5) < 0.15);
	expect_bounds(20, 5);
}

/* It may have been taken before, and show the idle machine. */
static void one_value_has_no_bound(void **state)
{
	const struct load l = {{400}, {1e3}, 1};
	struct jm_energy e = measure(&l, 5, 0);

	(void)state;
	assert_near(e.joules, truth_of(&l), 1e-6);
	assert_true(isnan(e.error_sampling));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bound_holds_whatever_the_refresh),
		cmocka_unit_test(the_bound_is_small_where_each_refresh_shows),
		cmocka_unit_test(one_value_has_no_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
