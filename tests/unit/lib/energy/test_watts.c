/* SPDX-License-Identifier: Apache-2.0 */
/* Median and mean over time of the readings of a signal, for cases that are computed by hand. */
#include "kit/test.h"

#include "base/clock.h"
#include "energy/watts.h"
#include "trace/hold_sum.h"

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

static double p99; /* of the last call of median_of */

static double median_of(
	struct jm_meters *set, const double (*readings)[2], int n, double t0, double t1)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_trace *t = jm_trace_new(set, &err);
	struct jm_watts watts = {-1, -1};

	assert_non_null(t);
	for (int i = 0; i < n; i++) {
		struct jm_reading r = {readings[i][1], AT(readings[i][0])};

		assert_ok(jm_trace_append(t, 0, r, &err), err);
	}
	assert_ok(jm_trace_flush(t, NULL, NULL, &err), err);
	assert_ok(jm_watts_of(t, set, 0, AT(t0), AT(t1), &watts, &err), err);
	jm_trace_free(t);
	jm_meters_done(set);
	p99 = watts.p99;
	return watts.median;
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

/* 100 W, and 600 W for 2 % of the time, or for 0.5 %. */
static void p99_is_exceeded_one_percent_of_the_time(void **state)
{
	static const double long_peak[][2] = {{0, 100}, {5, 600}, {5.2, 100}, {10, 100}};
	static const double short_peak[][2] = {{0, 100}, {5, 600}, {5.05, 100}, {10, 100}};
	struct jm_meters set = one_meter(JM_Q_POWER, 0);

	(void)state;
	assert_near(median_of(&set, long_peak, 4, 0, 10), 100, 0.1);
	assert_near(p99, 600, 0.6);
	set = one_meter(JM_Q_POWER, 0);
	assert_near(median_of(&set, short_peak, 4, 0, 10), 100, 0.1);
	assert_near(p99, 100, 0.1);
}

/* The bins have no influence on a power that does not change, and none on the largest one. */
static void a_constant_power_is_exact(void **state)
{
	static const double constant[][2] = {{0, 150}, {1, 150}, {9, 150}};
	static const double rising[][2] = {{0, 74.379}, {5, 75.51}, {10, 75.51}};
	struct jm_meters set = one_meter(JM_Q_POWER, 0);

	(void)state;
	assert_near(median_of(&set, constant, 3, 0, 10), 150, 1e-9);
	assert_near(p99, 150, 1e-9);
	set = one_meter(JM_Q_POWER, 0);
	median_of(&set, rising, 3, 0, 10);
	assert_near(p99, 75.51, 1e-9);
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

/* 50 W, and a reset in a tenth of the time: 600 J over the end of 1000 J would be 6000 W then. */
static void a_reset_counts_for_nothing(void **state)
{
	static const double readings[][2] = {{0, 800}, {1, 850}, {1.1, 450}, {2, 495}};
	struct jm_meters set = one_meter(JM_Q_ENERGY, 1000);

	(void)state;
	assert_near(median_of(&set, readings, 4, 0, 2), 50, 0.05);
	assert_near(p99, 50, 0.05);
}

/* 50 W; a reset that looks like 62 kJ in a second over the end of 262 kJ. */
static void a_reset_is_no_power_beyond_any_device(void **state)
{
	static const double readings[][2] = {{0, 200000}, {1, 200050}, {2, 10}, {3, 60}};
	struct jm_meters set = one_meter(JM_Q_ENERGY, 262143);

	(void)state;
	assert_near(median_of(&set, readings, 4, 0, 3), 50, 0.05);
	assert_near(p99, 50, 0.05);
}

static void a_percentile_that_is_unknown_stays_unknown_below_a_maximum(void **state)
{
	const struct jm_watts unknown = {NAN, NAN}, known = {100, 300};
	struct jm_watts w = jm_watts_at_most(unknown, 250);

	(void)state;
	assert_true(isnan(w.median) && isnan(w.p99));
	w = jm_watts_at_most(known, 250);
	assert_true(w.median == 100 && w.p99 == 250);
	w = jm_watts_at_most(known, NAN);
	assert_true(w.median == 100 && w.p99 == 300);
}

static void mean_over_time(void **state)
{
	static const double readings[][2] = {{0, 1}, {1, 2}, {3, NAN}, {7, 6}, {9, 4}};
	static const struct {
		double t0, t1;
		int mask;
		double mean;
	} rows[] = {
		{0, 3, 0, 5.0 / 3},  /* 1 for 1 s, 2 for 2 s */
		{0.5, 1.5, 0, 1.5},  /* cut at both ends */
		{2, 8, 0, 4},	     /* 2 for 1 s, nothing for 4 s, 6 for 1 s */
		{4, 6, 0, NAN},	     /* nothing at all */
		{7, 12, 0, 4.8},     /* the last one goes on */
		{0, 12, 2, 4.0 / 8}, /* bit 2 is in 2 and 6: 4 of 8 known seconds */
		{0, 12, 4, 5.0 / 8}, /* bit 4 is in 6 and 4 */
		{0, 12, 8, 0},	     /* bit 8 is in none */
	};
	struct jm_meters set = one_meter(JM_Q_THROTTLE, 0);
	struct jm_err err = JM_ERR_INIT;
	struct jm_trace *t = jm_trace_new(&set, &err);
	double mean;

	(void)state;
	assert_non_null(t);
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++)
		assert_ok(jm_trace_append(t, 0,
				  (struct jm_reading){readings[i][1], AT(readings[i][0])}, &err),
			err);
	assert_ok(jm_trace_flush(t, NULL, NULL, &err), err);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_ok(jm_held_mean(
				  t, 0, AT(rows[i].t0), AT(rows[i].t1), rows[i].mask, &mean, &err),
			err);
		if (isnan(rows[i].mean))
			assert_true(isnan(mean));
		else
			assert_near(mean, rows[i].mean, 1e-9);
	}
	jm_trace_free(t);
	jm_meters_done(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weighs_by_time),
		cmocka_unit_test(p99_is_exceeded_one_percent_of_the_time),
		cmocka_unit_test(a_constant_power_is_exact),
		cmocka_unit_test(gaps_do_not_count),
		cmocka_unit_test(a_counter_will_do),
		cmocka_unit_test(a_reset_counts_for_nothing),
		cmocka_unit_test(a_reset_is_no_power_beyond_any_device),
		cmocka_unit_test(a_percentile_that_is_unknown_stays_unknown_below_a_maximum),
		cmocka_unit_test(mean_over_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
