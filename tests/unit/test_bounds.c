/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampling bound holds the true error of 95 of 100 loads, whatever their period is beside the
 * sensor's, and is at most three times as wide as 95 of 100 errors. bench/energy_bounds prints it in full.
 */
#include "test.h"
#include "wave.h"

#define RUNS	15
#define PERIODS 12
#define ROOM	(RUNS * PERIODS * WAVE_GPUS)

static const double stretches[] = {0.2, 0.5, 1, 3, 10}; /* s */
static const double periods[PERIODS + 1] = {
	0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10}; /* s */

struct errors {
	double error[ROOM], bound[ROOM];
	int n, held;
};

static void judge(const struct wave_run *run, struct errors *errors)
{
	for (int i = 0; i < WAVE_GPUS; i++) {
		double truth = wave_joules(&wave_setup.wave[i], run->t1) -
			       wave_joules(&wave_setup.wave[i], run->t0);
		struct jm_err err = JM_ERR_INIT;
		struct jm_energy e;

		assert_ok(jm_session_energy(run->session, i, run->phase, &e, &err), err);
		errors->error[errors->n] = fabs(e.joules - truth);
		errors->bound[errors->n] = e.error_sampling;
		errors->held += errors->error[errors->n] <= e.error_sampling;
		errors->n++;
	}
}

/* Eight loads with periods from one to the next of the table, two of each kind. */
static void measure(int period, double stretch, struct errors *errors, uint64_t *seed)
{
	double t0 = 1 + wave_uniform(seed, 0, 1);
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;

	wave_setup.tick_phase = wave_uniform(seed, 0, 0.1);
	wave_setup.power_phase = wave_uniform(seed, 0, 0.1);
	for (int i = 0; i < WAVE_GPUS; i++) {
		double p = exp(wave_uniform(seed, log(periods[period]), log(periods[period + 1])));

		wave_done(&wave_setup.wave[i]);
		wave_load(&wave_setup.wave[i], (enum wave_kind)(i % WAVE_KINDS), p,
			t0 + stretch + 1, seed);
	}
	assert_ok(wave_measure(&run, t0, t0 + stretch, 0, &err), err);
	judge(&run, errors);
	wave_close(&run);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *values, int n, double q)
{
	qsort(values, (size_t)n, sizeof(*values), by_value);
	return values[(int)(q * n)];
}

/* Of loads of all periods, for each length of the measured stretch. */
static void check(bool no_counter, bool no_power)
{
	for (size_t k = 0; k < sizeof(stretches) / sizeof(stretches[0]); k++) {
		static struct errors all;
		uint64_t seed = 20261122;
		double p95, median;

		all.n = all.held = 0;
		wave_reset();
		wave_setup.gpus = WAVE_GPUS;
		wave_setup.no_counter = no_counter;
		wave_setup.no_power = no_power;
		for (int i = 0; i < RUNS * PERIODS; i++)
			measure(i % PERIODS, stretches[k], &all, &seed);
		p95 = quantile(all.error, all.n, 0.95);
		median = quantile(all.bound, all.n, 0.5);
		print_message("%g s: %d of %d errors held, median bound %.2f of p95\n",
			stretches[k], all.held, all.n, median / p95);
		assert_true(all.held >= 0.95 * all.n);
		assert_true(median <= 3 * p95);
	}
}

static void holds_with_counter_and_power(void **state)
{
	(void)state;
	check(false, false);
}

static void holds_with_a_counter_alone(void **state)
{
	(void)state;
	check(false, true);
}

static void holds_with_power_alone(void **state)
{
	(void)state;
	check(true, false);
}

/* ---- a load in step with the sensor ---- */

static struct jm_energy of_square(double period, bool no_counter, double *ret_truth)
{
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;
	struct jm_energy e;

	wave_reset();
	wave_setup.gpus = 1;
	wave_setup.no_counter = no_counter;
	wave_square(&wave_setup.wave[0], 100, 600, period, 0.3, 60);
	assert_ok(wave_measure(&run, 1.234, 11.234, 0, &err), err);
	assert_ok(jm_session_energy(run.session, 0, run.phase, &e, &err), err);
	*ret_truth =
		wave_joules(&wave_setup.wave[0], run.t1) - wave_joules(&wave_setup.wave[0], run.t0);
	wave_close(&run);
	return e;
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
	/* a counter misses nothing */
	e = of_square(0.25, false, &truth);
	assert_int_equal(e.places, 0);
	assert_true(fabs(e.joules - truth) <= e.error_sampling);
	assert_true(e.error_sampling < 0.01 * truth);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holds_with_counter_and_power),
		cmocka_unit_test(holds_with_a_counter_alone),
		cmocka_unit_test(holds_with_power_alone),
		cmocka_unit_test(names_a_load_in_step_with_the_sensor),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	wave_reset();
	return failed;
}
