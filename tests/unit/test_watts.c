/* SPDX-License-Identifier: Apache-2.0 */
/* The median power of a stretch, where it can be told by hand. */
#include "test.h"

#include "base/clock.h"
#include "energy/watts.h"

#define AT(s) (int64_t)((s) * (double)JM_SECOND)

static struct jm_meters one_meter(enum jm_quantity quantity, double wrap)
{
	struct jm_meters set = {0};
	struct jm_meter meter = {.id = "a"};
	struct jm_signal signal = {.quantity = quantity, .wrap = wrap, .accuracy = NAN};

	jm_meters_add(&set, &meter, NULL);
	jm_meters_add_signal(&set, &signal, NULL);
	return set;
}

static double median_of(
	struct jm_meters *set, const double (*readings)[2], int n, double t0, double t1)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_trace *t = jm_trace_new(set, &err);
	double median = -1;

	assert_non_null(t);
	for (int i = 0; i < n; i++) {
		struct jm_reading r = {readings[i][1], AT(readings[i][0])};

		assert_ok(jm_trace_append(t, 0, r, &err), err);
	}
	assert_ok(jm_trace_flush(t, NULL, NULL, &err), err);
	assert_ok(jm_watts_median(t, set, 0, AT(t0), AT(t1), &median, &err), err);
	jm_trace_free(t);
	jm_meters_done(set);
	return median;
}

/* 100 W for 1 s, 300 W for 4 s, 500 W for 2 s, of which the stretch cuts a half each. */
static void weighs_by_time(void **state)
{
	static const double readings[][2] = {{0, 100}, {1, 300}, {5, 500}, {7, 500}};
	struct jm_meters set = one_meter(JM_Q_POWER, 0);

	(void)state;
	assert_near(median_of(&set, readings, 4, 0.5, 6), 300, 0.3);
	set = one_meter(JM_Q_POWER, 0);
	assert_near(median_of(&set, readings, 4, 4.5, 7), 500, 0.5);
	set = one_meter(JM_Q_POWER, 0);
	assert_near(median_of(&set, readings, 4, 0, 1), 100, 0.1);
	set = one_meter(JM_Q_POWER, 0);
	assert_near(median_of(&set, readings, 2, 0, 4), 300, 0.3); /* the last one goes on */
}

static void gaps_do_not_count(void **state)
{
	static const double readings[][2] = {{0, 100}, {1, NAN}, {9, 100}, {9.5, 700}, {9.9, 700}};
	static const double none[][2] = {{0, NAN}, {5, NAN}};
	struct jm_meters set = one_meter(JM_Q_POWER, 0);

	(void)state;
	assert_near(median_of(&set, readings, 5, 0, 10), 100, 0.1);
	set = one_meter(JM_Q_POWER, 0);
	assert_true(isnan(median_of(&set, none, 2, 0, 5)));
	set = one_meter(JM_Q_TEMPERATURE, 0);
	assert_true(isnan(median_of(&set, none, 2, 0, 5)));
	set = one_meter(JM_Q_POWER, 0);
	assert_near(median_of(&set, (const double[][2]){{0, 0}, {4, 0}}, 2, 0, 5), 0, 0);
}

/* 50 J/s for 3 s, over the wrap, then 200 J/s for 1 s. */
static void a_counter_will_do(void **state)
{
	static const double readings[][2] = {
		{0, 900}, {1, 950}, {1.5, 950}, {2, 0}, {3, 50}, {3.5, 150}, {4, 250}};
	struct jm_meters set = one_meter(JM_Q_ENERGY, 1000);

	(void)state;
	assert_near(median_of(&set, readings, 7, 0, 4), 50, 0.05);
	set = one_meter(JM_Q_ENERGY, 1000);
	assert_near(median_of(&set, readings, 7, 2.9, 4), 200, 0.2);
	set = one_meter(JM_Q_ENERGY, 1000);
	assert_near(median_of(&set, readings, 7, 1.1, 1.9), 50, 0.05); /* going round */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weighs_by_time),
		cmocka_unit_test(gaps_do_not_count),
		cmocka_unit_test(a_counter_will_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
