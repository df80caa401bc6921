/* SPDX-License-Identifier: Apache-2.0 */
/* Power inside work of 1 ms by a sensor that reports the mean of 25 ms ten times a second; the
 * truth is known. */
#include "kit/test.h"

#include "base/clock.h"
#include "energy/folded_power.h"

#include <stdio.h>

#define RUNS	 3000
#define READINGS 4000
#define WINDOW	 0.025
#define BASE	 100.0
#define LENGTH	 0.001

static int64_t begins[RUNS], ends[RUNS];
static double used[RUNS]; /* joules of runs before each */
static struct jm_reading readings[READINGS];
static const struct jm_fold_runs runs = {begins, ends, RUNS};
static unsigned int seed;

static double uniform(void)
{
	return (double)rand_r(&seed) / ((double)RAND_MAX + 1);
}

/* Joules above the base from the begin of a run to x seconds later: 700 W for 0.4 ms, then 300
 * W. */
static double inside(double x)
{
	double first = x < 0.0004 ? x : 0.0004, rest = x < LENGTH ? x - first : LENGTH - first;

	return x <= 0 ? 0 : (700 - BASE) * first + (300 - BASE) * rest;
}

/* Joules above the base from the beginning to t. */
static double joules(int64_t t)
{
	int low = 0, high = RUNS;

	while (low < high) {
		int middle = (low + high) / 2;

		if (begins[middle] > t)
			high = middle;
		else
			low = middle + 1;
	}
	return low ? used[low - 1] + inside((double)(t - begins[low - 1]) * 1e-9) : 0;
}

/* Runs with pauses of `least` to `most` seconds; a reading each 0.1 s with a noise of so many
 * watts. */
static int make(double least, double most, double noise)
{
	int64_t t = 2 * JM_SECOND, window = (int64_t)(WINDOW * 1e9);
	int n = 0;

	for (int i = 0; i < RUNS; i++) {
		begins[i] = t;
		ends[i] = t + (int64_t)(LENGTH * 1e9);
		used[i] = i * inside(LENGTH);
		t = ends[i] + (int64_t)((least + (most - least) * uniform()) * 1e9);
	}
	for (int64_t at = 37 * JM_MILLISECOND; at < t && n < READINGS; at += JM_SECOND / 10, n++) {
		double sum = uniform() + uniform() + uniform() + uniform() - 2; /* sd 0.577 */

		readings[n] = (struct jm_reading){
			.value = BASE + (joules(at) - joules(at - window)) / WINDOW +
				 noise * sum / 0.577,
			.t_ns = at,
		};
	}
	return n;
}

static double truth_of(int bin, int bins)
{
	double length = LENGTH / bins;

	return BASE + (inside((bin + 1) * length) - inside(bin * length)) / length;
}

static void shows_the_power_inside(void **state)
{
	int hits = 0, of = 0, energy_hits = 0;

	(void)state;
	for (seed = 1; seed <= 20;) {
		struct jm_err err = JM_ERR_INIT;
		unsigned int first = seed;
		struct jm_fold fold;
		double joule = inside(LENGTH) + BASE * LENGTH;
		int n = make(0.026, 0.126, 0.5);

		assert_ok(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0}, 5,
				  &fold, &err),
			err);
		assert_true(fabs(fold.base_watts - BASE) < 0.2);
		assert_true(fabs(fold.duration_s - LENGTH) < 1e-9);
		for (int k = 0; k < 5; k++, of++) {
			hits += fabs(fold.watts[k] - truth_of(k, 5)) <= fold.error[k];
			assert_true(fold.error[k] < 150);
		}
		/* the two levels are distinguished */
		assert_true(fold.watts[0] - fold.error[0] > fold.watts[4] + fold.error[4]);
		energy_hits += fabs(fold.joules - joule) <= fold.joules_error;
		assert_true(fold.joules_error < 0.05 * joule);
		seed = first + 1;
	}
	/* an interval of 95 %: of 100 at least 88, of 20 at least 16, with a probability of 0.997
	 * and more */
	assert_true(hits >= 88);
	assert_true(energy_hits >= 16);
	assert_int_equal(of, 100);
}

static void chooses_the_bins_that_are_sure(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_fold quiet, loud, coarse;
	int n;

	(void)state;
	seed = 7;
	n = make(0.026, 0.126, 0.05);
	assert_ok(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0}, 0, &quiet,
			  &err),
		err);
	assert_ok(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0.0003}, 0,
			  &coarse, &err),
		err);
	seed = 7;
	n = make(0.026, 0.126, 1);
	assert_ok(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0}, 0, &loud,
			  &err),
		err);
	assert_true(quiet.bins > loud.bins);
	assert_in_range(coarse.bins, 1, 3);
	for (int k = 0; k < quiet.bins; k++)
		assert_true(quiet.error[k] <= JM_FOLD_SURE * quiet.joules / quiet.duration_s);
	assert_true(fabs(loud.rms_watts - 1) < 0.1);
}

/* The window ends so much before its time. */
static void takes_the_delay_off(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_fold late, wrong;
	int n;

	(void)state;
	seed = 3;
	n = make(0.026, 0.126, 0.1);
	for (int i = 0; i < n; i++)
		readings[i].t_ns += 8 * JM_MILLISECOND;
	assert_ok(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0.008, 0, 0}, 5,
			  &late, &err),
		err);
	assert_true(fabs(late.watts[0] - 700) <= 2 * late.error[0]);
	assert_ok(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0}, 5, &wrong,
			  &err),
		err);
	assert_true(wrong.rms_watts > 5 * late.rms_watts);
}

/* A sensor after a filter: power in steps of 0.1 ms, followed with a time constant of 15 ms, as an
 * H200's sensor does. */
static int make_lagged(double lag_s, double noise)
{
	static double
		sum[RUNS * 400]; /* of what the filter lets through, in each step; W x steps */
	const double step_s = 1e-4, follow = exp(-step_s / lag_s);
	double level = BASE, whole = 0;
	int last = 0, n = 0;

	for (int i = 0; i < RUNS; i++) {
		int begin = last + 260 + (int)(uniform() * 100);

		begins[i] = begin * (JM_MILLISECOND / 10);
		ends[i] = begins[i] + JM_MILLISECOND;
		for (; last < begin + 10; last++) {
			double power = last < begin ? BASE : last < begin + 4 ? 700 : 300;

			/* the mean of the level in a step in which it goes to power
			 * exponentially */
			whole += power + (level - power) * (1 - follow) * lag_s / step_s;
			level = power + (level - power) * follow;
			sum[last] = whole;
		}
	}
	for (int at = 400; at < last && n < READINGS; at += 200 + (int)(uniform() * 5)) {
		double y = (sum[at - 1] - sum[at - 26]) / 25 + noise * (uniform() + uniform() - 1);

		readings[n++] = (struct jm_reading){y, at * (JM_MILLISECOND / 10)};
	}
	return n;
}

/* Five parts of a run, seen through a filter 15 times as long; without the lag the run is not
 * found, or a wrong one. */
static void sees_through_a_lag(void **state)
{
	const struct jm_fold_sensor sensor = {0.0025, 0, 0.015, 0}, without = {0.0025, 0, 0, 0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_fold fold, blind;
	int n, rc;

	(void)state;
	seed = 3;
	n = make_lagged(0.015, 0.2);
	assert_ok(jm_fold(readings, n, &runs, &sensor, 5, &fold, &err), err);
	for (int k = 0; k < 5; k++) {
		assert_true(fabs(fold.watts[k] - truth_of(k, 5)) <= 2 * fold.error[k]);
		assert_true(fold.error[k] < 150);
	}
	assert_true(fabs(fold.joules - 0.46) <= 2 * fold.joules_error && fold.joules_error < 0.01);
	assert_true(fabs(fold.base_watts - BASE) < 0.2);
	rc = jm_fold(readings, n, &runs, &without, 1, &blind, &err);
	assert_true(rc == JM_ERANGE || blind.rms_watts > 10 * fold.rms_watts);
}

/* Readings that know nothing of the runs: a power of which nothing was measured is not given. */
static void refuses_readings_without_the_runs(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_fold fold;
	int n, refusals = 0;

	(void)state;
	seed = 9;
	for (int i = 0; i < 20; i++) {
		n = make(0.026, 0.126, 1);
		for (int k = 0; k < n; k++)
			readings[k].value = 30 * (uniform() - 0.5);
		err = (struct jm_err)JM_ERR_INIT;
		refusals += jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0},
				    0, &fold, &err) == JM_ERANGE;
	}
	assert_true(refusals >= 16);
}

static void refused(double least, double most, const char *words)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_fold fold;
	int n;

	seed = 5;
	n = make(least, most, 0.1);
	assert_int_equal(jm_fold(readings, n, &runs, &(struct jm_fold_sensor){WINDOW, 0, 0, 0}, 0,
				 &fold, &err),
		JM_ERANGE);
	assert_non_null(strstr(err.text, words));
}

static void refuses_what_shows_the_mean(void **state)
{
	(void)state;
	refused(0, 0, "show the mean of several runs");
	refused(0.001, 0.005, "show the mean of several runs");
	/* in step with the sensor: every window holds a whole run, at the same place */
	refused(0.099, 0.099, "start each of them at a different point");
}

static void refuses_few_runs(void **state)
{
	const struct jm_fold_runs few = {begins, ends, 7};
	struct jm_err err = JM_ERR_INIT;
	struct jm_fold fold;
	int n = make(0.026, 0.126, 0.1);

	(void)state;
	assert_int_equal(jm_fold(readings, n, &few, &(struct jm_fold_sensor){WINDOW, 0, 0, 0}, 0,
				 &fold, &err),
		JM_ERANGE);
	assert_non_null(strstr(err.text, "There are 7 runs"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shows_the_power_inside),
		cmocka_unit_test(chooses_the_bins_that_are_sure),
		cmocka_unit_test(takes_the_delay_off),
		cmocka_unit_test(sees_through_a_lag),
		cmocka_unit_test(refuses_readings_without_the_runs),
		cmocka_unit_test(refuses_what_shows_the_mean),
		cmocka_unit_test(refuses_few_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
