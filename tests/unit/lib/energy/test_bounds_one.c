/* SPDX-License-Identifier: Apache-2.0 */
/* The sampling bound of one load of a known form: few readings, readings that are alike, loads in
 * step with the sensor. */
#include "kit/test.h"
#include "kit/wave.h"

static double limit; /* W; 0 = no limit is known */

static void set_up_one(bool no_counter, double its_limit)
{
	wave_reset();
	wave_setup.gpus = 1;
	wave_setup.no_counter = no_counter;
	wave_setup.limit = its_limit;
}

static struct jm_energy measure_one(double stretch, double *ret_truth)
{
	const struct wave *w = &wave_setup.wave[0];
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;
	struct jm_energy e;

	assert_ok(wave_measure(&run, 1.234, 1.234 + stretch, 0, &err), err);
	assert_ok(jm_session_energy(run.session, 0, run.phase, &e, &err), err);
	*ret_truth = wave_joules(w, run.t1) - wave_joules(w, run.t0);
	wave_close(&run);
	return e;
}

/* A load that comes up within a second and stays: an alias would have come down again. */
static void slow_start_is_no_alias(void **state)
{
	struct jm_energy e;
	double truth;

	(void)state;
	set_up_one(true, 0);
	wave_add(&wave_setup.wave[0], -10, 100, 0);
	wave_add(&wave_setup.wave[0], 1.5, 100, 500);
	wave_add(&wave_setup.wave[0], 2.5, 600, 0);
	e = measure_one(10, &truth);
	assert_true(fabs(e.joules - truth) <= e.error_sampling);
	assert_true(e.error_sampling < 0.03 * truth);
}

/* J: the bound of power alone; W until 1 s before the stretch, W/s from then on. */
static double bound_of_line(double watts, double slope, double its_limit, double stretch)
{
	struct jm_energy e;
	double truth;

	set_up_one(true, its_limit);
	wave_add(&wave_setup.wave[0], -10, watts, 0);
	wave_add(&wave_setup.wave[0], 0.234, watts, slope);
	e = measure_one(stretch, &truth);
	print_message("%g W, %g W/s in %g s: %.2f J of %.1f J\n", watts, slope, stretch,
		e.error_sampling, e.joules);
	return e.error_sampling;
}

/* Few readings that are alike do not show what happens between them: anything up to the limit. */
static void limit_of_the_device_is_the_scale_of_what_few_readings_hide(void **state)
{
	double high, low;

	(void)state;
	high = bound_of_line(100, 0, 700, 0.5);
	low = bound_of_line(100, 0, 350, 0.5);
	assert_true(fabs(high / low - 2) < 0.02);
	/* not less than a reading, which may be above the limit */
	high = bound_of_line(700, 0, 700, 0.5);
	low = bound_of_line(700, 0, 350, 0.5);
	assert_true(fabs(high / low - 1) < 0.02);
}

/* In 0.2 s at most 150 ms are not measured: 52 J on either side of half the limit. A ramp may be an
 * alias in addition. Readings that differ by a few watts give nearly the same bound as equal
 * ones. */
static void bound_of_few_readings_is_possible(void **state)
{
	static const double slope[] = {0, 50, 200, 500}, most[] = {16, 30, 70, 70}; /* W/s, J */

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_true(bound_of_line(100, slope[i], 700, 0.2) < most[i]);
}

/* A stretch far shorter than a refresh, wherever it lies beside the readings: the bound is no more
 * than what the device's limit allows beyond the energy, and without a limit no more than three
 * times the energy. */
static void bound_of_a_short_stretch_is_possible(void **state)
{
	static const double windows[] = {0.025, 0.1, 1};

	(void)state;
	for (int i = 0; i < 60; i++) {
		double its_limit = i % 2 ? 700 : 0, truth;
		struct jm_energy e;

		set_up_one(true, its_limit);
		wave_setup.power_phase = 0.005 * (i / 3);
		wave_setup.window = windows[i % 3];
		wave_add(&wave_setup.wave[0], -10, 200, 0);
		e = measure_one(0.01, &truth);
		assert_near(e.joules, truth, 1e-3 * truth);
		assert_true(e.error_sampling > 0.3 * truth);
		assert_true(e.error_sampling <= (its_limit > 0 ? 500 : 600) * 0.01 + 1e-9);
	}
}

/* With many readings that are alike the bound is small compared with the energy, also at rest. */
static void bound_of_many_alike_readings_is_narrow(void **state)
{
	(void)state;
	assert_true(bound_of_line(60, 0, 700, 10) < 0.015 * 600);
	assert_true(bound_of_line(600, 0, 700, 10) < 0.006 * 6000);
}

/* Three times 10 ms without work, between the windows of 25 ms: no reading changes. */
static void short_gaps_of_a_constant_load_are_in_the_bound(void **state)
{
	struct wave *w = &wave_setup.wave[0];
	struct jm_energy e;
	double truth;

	(void)state;
	set_up_one(true, 700);
	wave_add(w, -10, 600, 0);
	for (double t = 3.05; t < 10; t += 3) {
		wave_add(w, t, 100, 0);
		wave_add(w, t + 0.01, 600, 0);
	}
	e = measure_one(10, &truth);
	assert_true(fabs(e.joules - 6000) < 0.01); /* not seen */
	assert_true(fabs(e.joules - truth) > 14);
	assert_true(fabs(e.joules - truth) <= e.error_sampling);
}

/* ---- a load in step with the sensor ---- */

static double length = 10; /* s */

static struct jm_energy of_square(double period, bool no_counter, double *ret_truth)
{
	set_up_one(no_counter, limit);
	wave_square(&wave_setup.wave[0], 100, 600, period, 0.3, 50 + length);
	return measure_one(length, ret_truth);
}

/* Five moments of a load of 250 ms, again and again: what is missed between them adds up. */
static void names_a_load_in_step_with_the_sensor(void **state)
{
	struct jm_energy e, other;
	double truth;

	(void)state;
	e = of_square(0.25, true, &truth);
	assert_int_equal(e.places, 5);
	assert_true(fabs(e.joules - truth) <= e.error_sampling);
	other = of_square(0.2567, true, &truth);
	assert_int_equal(other.places, 0);
	assert_true(e.error_sampling > 1.5 * other.error_sampling);
	/* also where readings are so many that only some are compared: at most 99 % of likeness
	 * counts, ten times what 20 repetitions in 10 s prove */
	e = of_square(0.25, true, &truth);
	length = 1000;
	other = of_square(0.25, true, &truth);
	length = 10;
	assert_int_equal(other.places, 5);
	print_message("%g times the error in 100 times as long\n",
		other.error_sampling / e.error_sampling);
	assert_true(fabs(other.error_sampling / e.error_sampling - sqrt(100 * 10)) < 5);
	/* a counter misses nothing */
	e = of_square(0.25, false, &truth);
	assert_int_equal(e.places, 0);
	assert_true(fabs(e.joules - truth) <= e.error_sampling);
	assert_true(e.error_sampling < 0.01 * truth);
}

/* All readings are alike: the bound of many does not hold, but what the sensor does not see is
 * known, and the limit. */
static void error_of_a_locked_load_is_told(void **state)
{
	static const double period[] = {0.1, 0.05, 0.02};
	double truth;

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct jm_energy e = of_square(period[i], true, &truth);

		assert_true(isnan(e.error_locked)); /* no limit is known */
		limit = 700;
		e = of_square(period[i], true, &truth);
		assert_true(fabs(e.joules - truth) > e.error_sampling);
		assert_true(fabs(e.joules - truth) <= e.error_locked);
		/* the whole of the unseen three quarters, from 0 to 700 W */
		assert_true(fabs(e.error_locked - 0.75 * fmax(e.joules, 7000 - e.joules)) < 0.01);
		length = 3; /* a bound of few readings that are alike covers such a load */
		e = of_square(period[i], true, &truth);
		length = 10;
		assert_true(e.may_be_locked && e.error_sampling == e.error_locked);
		assert_true(fabs(e.joules - truth) <= e.error_sampling);
		e = of_square(period[i], false, &truth);
		assert_true(isnan(e.error_locked)); /* the counter sees all */
		limit = 0;
	}
}

/* In less than 14 readings nothing tells a load near the refresh from others, whatever its form. */
static void few_readings_of_power_are_told(void **state)
{
	double truth;

	(void)state;
	length = 1;
	assert_true(of_square(0.0987, true, &truth).few_readings);
	assert_true(of_square(0.4, true, &truth).few_readings);
	assert_false(of_square(0.0987, false, &truth).few_readings); /* a counter misses nothing */
	length = 3;
	assert_false(of_square(0.0987, true, &truth).few_readings);
	length = 10;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limit_of_the_device_is_the_scale_of_what_few_readings_hide),
		cmocka_unit_test(bound_of_few_readings_is_possible),
		cmocka_unit_test(bound_of_a_short_stretch_is_possible),
		cmocka_unit_test(bound_of_many_alike_readings_is_narrow),
		cmocka_unit_test(short_gaps_of_a_constant_load_are_in_the_bound),
		cmocka_unit_test(slow_start_is_no_alias),
		cmocka_unit_test(names_a_load_in_step_with_the_sensor),
		cmocka_unit_test(error_of_a_locked_load_is_told),
		cmocka_unit_test(few_readings_of_power_are_told),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	wave_reset();
	return failed;
}
