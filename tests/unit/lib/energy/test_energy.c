/* SPDX-License-Identifier: Apache-2.0 */
/* Energy against the truth of programmed waveforms, through a sensor like an H100's, in simulated
 * time. */
#include "kit/test.h"
#include "trace/plateaus.h"
#include "kit/wave.h"

static struct jm_energy of(const struct wave_run *run, int meter)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_energy e = {0};

	assert_ok(jm_session_energy(run->session, meter, run->phase, &e, &err), err);
	return e;
}

static double truth(const struct wave_run *run, int gpu)
{
	return wave_joules(&wave_setup.wave[gpu], run->t1) -
	       wave_joules(&wave_setup.wave[gpu], run->t0);
}

static void measure(struct wave_run *run, double t0, double t1)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(wave_measure(run, t0, t1, 0, &err), err);
}

static int reset(void **state)
{
	(void)state;
	wave_reset();
	return 0;
}

static void use_square(int gpus)
{
	wave_setup.gpus = gpus;
	for (int i = 0; i < gpus; i++)
		wave_square(&wave_setup.wave[i], 100, 600, 2, i / 8.0, 60);
}

static void square_wave(void **state)
{
	struct wave_run run;
	double worst = 0;

	(void)state;
	use_square(8);
	measure(&run, 1.234, 1.234 + 3.3);
	for (int i = 0; i < 8; i++) {
		struct jm_energy e = of(&run, i);

		worst = fmax(worst, fabs(e.joules / truth(&run, i) - 1));
		assert_near(e.joules, e.joules_counter, 0);
		assert_near(e.joules_integrated, truth(&run, i), 0.06 * truth(&run, i));
		assert_near(e.covered_s, 3.3, 1e-9);
		assert_near(e.watts_mean, truth(&run, i) / 3.3, 0.01 * e.watts_mean);
		assert_near(e.watts_max, 600, 1e-3);
		assert_near(e.error_calibration, 0.05 * e.joules, 1e-6);
		assert_near(e.error, hypot(e.error_calibration, e.error_sampling), 1e-6);
		assert_true(e.error_sampling > 0 && e.error_sampling < 0.03 * e.joules);
		assert_int_equal(e.gaps, 0);
		assert_true(e.samples >= 33);
	}
	assert_true(worst < 0.03);
	wave_close(&run);
}

/* ---- readings by hand: one meter with one counter ---- */

struct by_hand {
	struct jm_meters set;
	struct jm_trace *trace;
};

static void open_by_hand(struct by_hand *h, int64_t refresh_ns, double wrap, bool stamped)
{
	struct jm_meter meter = {.id = "m", .source = "test"};
	struct jm_signal counter = {.quantity = JM_Q_ENERGY,
		.step = 1e-6,
		.wrap = wrap,
		.refresh_ns = refresh_ns,
		.stamped = stamped,
		.accuracy = NAN};
	struct jm_err err = JM_ERR_INIT;

	*h = (struct by_hand){0};
	jm_meters_add(&h->set, &meter, &err);
	jm_meters_add_signal(&h->set, &counter, &err);
	h->trace = jm_trace_new(&h->set, &err);
	assert_non_null(h->trace);
}

static void tell(struct by_hand *h, double joules, int ms)
{
	struct jm_err err = JM_ERR_INIT;

	jm_trace_append(h->trace, 0, (struct jm_reading){joules, ms * JM_MILLISECOND}, &err);
}

static struct jm_energy close_by_hand(struct by_hand *h, int from_ms, int to_ms)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_energy e;

	assert_ok(jm_energy_of(h->trace, &h->set, 0, from_ms * JM_MILLISECOND,
			  to_ms * JM_MILLISECOND, &e, &err),
		err);
	jm_trace_free(h->trace);
	jm_meters_done(&h->set);
	return e;
}

/* The last 50 ms draw the most, and are too short for a reading of the maximum. */
static void the_maximum_is_not_below_the_mean(void **state)
{
	static const double joules[] = {0, 0, 0, 0.5, 1, 20, 39};
	struct by_hand h;
	struct jm_energy e;

	(void)state;
	open_by_hand(&h, 50 * JM_MILLISECOND, 0, true);
	for (int i = 0; i < 7; i++)
		tell(&h, joules[i], 50 * i);
	e = close_by_hand(&h, 100, 250);
	assert_near(e.watts_mean, 20 / 0.15, 3);
	assert_near(e.watts_max, e.watts_mean, 1e-9);
}

/* The counter was not read for longer than it takes to wrap: the number of wraps is unknown. */
static void a_counter_that_may_have_gone_round(void **state)
{
	struct by_hand h;
	struct jm_energy e;

	(void)state;
	open_by_hand(&h, 100 * JM_MILLISECOND, 100, false);
	for (int i = 0; i <= 300; i++) /* 10 W */
		tell(&h, i < 50 || i > 250 ? fmod(i, 100) : NAN, 100 * i);
	e = close_by_hand(&h, 1000, 29000);
	assert_true(isnan(e.joules));
	assert_near(e.covered_s, 28 - 20.2, 0.3);
	assert_near(e.watts_mean, 10, 0.1);
}

/* Each poll sees another value, many more of them near an edge than are looked at. */
static void polled_often(void **state)
{
	struct by_hand h;
	struct jm_energy e;

	(void)state;
	open_by_hand(&h, 100 * JM_MILLISECOND, 0, true);
	for (int i = 0; i <= 2000; i++) /* 10 W */
		tell(&h, i * 0.01, i);
	e = close_by_hand(&h, 500, 1500);
	assert_near(e.joules, 10, 1e-3);
	assert_near(e.covered_s, 1, 1e-9);
}

/* The first reading may come a little after the stretch began, on a machine with much to do. */
static void a_late_first_reading(void **state)
{
	struct by_hand h;
	struct jm_energy e;

	(void)state;
	open_by_hand(&h, JM_MILLISECOND, 0, false);
	for (int ms = 5; ms <= 300; ms += 5)
		tell(&h, ms < 150 ? 1 : 4.5, ms);
	e = close_by_hand(&h, 0, 300);
	assert_near(e.joules, 3.5, 1e-6);
	assert_near(e.covered_s, 0.3, 1e-9);
}

/* A counter read seldom, just after a step and just before the next: the pair gives the time of the
 * step. */
static void read_in_pairs(void **state)
{
	struct by_hand h;
	struct jm_energy e;

	(void)state;
	open_by_hand(&h, 100 * JM_MILLISECOND, 0, false);
	for (int ms = 0; ms <= 3099; ms++) /* 100 W: steps of 10 J */
		if (ms < 1000 || ms % 500 == 3 || ms % 500 == 99)
			tell(&h, 10 * (ms / 100), ms);
	e = close_by_hand(&h, 500, 3010);
	assert_near(e.joules, 251, 1);
	assert_true(e.error_sampling < 3);
}

/* With a sensor that steps every 100 ms, polls at odd times give more information together than
 * each alone. */
struct runs {
	int n;
	int64_t widest; /* of those after the first ten */
};

static void look_at_run(void *arg, const struct jm_plateau *run)
{
	struct runs *runs = arg;
	int64_t step = (int64_t)run->value * 100 * JM_MILLISECOND;

	if (!runs->n++)
		return;
	assert_true(run->lo <= step && step <= run->hi);
	if (runs->n > 10 && run->hi - run->lo > runs->widest)
		runs->widest = run->hi - run->lo;
}

static void polls_that_fall_together(void **state)
{
	struct jm_signal counter = {.refresh_ns = 100 * JM_MILLISECOND};
	struct runs runs = {0};
	struct jm_plateaus steps;

	(void)state;
	jm_plateaus_init(&steps, &counter, look_at_run, &runs);
	for (int ms = 0; ms < 5000; ms += 37)
		jm_plateaus_feed(&steps, (struct jm_reading){ms / 100, ms * JM_MILLISECOND});
	jm_plateaus_end(&steps);
	assert_int_equal(runs.n, 50);
	assert_true(runs.widest < 30 * JM_MILLISECOND);
}

/* A reset of a counter that can go round looks like a part of a round, of far too many joules. */
static void a_reset_is_no_round(void **state)
{
	struct by_hand h;
	struct jm_energy e;

	(void)state;
	open_by_hand(&h, 100 * JM_MILLISECOND, 262143, false);
	for (int k = 0; k < 100; k++) /* 100 W */
		tell(&h, k < 50 ? 200000 + 10 * k : 10 * (k - 50), 100 * k);
	e = close_by_hand(&h, 1000, 9000);
	assert_true(isnan(e.joules));
	assert_int_equal(e.gaps, 1);
	open_by_hand(&h, 100 * JM_MILLISECOND, 262143, false);
	for (int k = 0; k < 100; k++)
		tell(&h, fmod(262000 + 10 * k, 262143), 100 * k);
	assert_near(close_by_hand(&h, 1000, 9000).joules, 800, 1);
}

/* Readings that begin after the stretch, or end before it does, leave a gap though none of them is
 * one. */
static void readings_of_a_part(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		struct by_hand h;
		struct jm_energy e;

		open_by_hand(&h, 100 * JM_MILLISECOND, 0, false);
		for (int k = late ? 10 : 0; k <= (late ? 30 : 20); k++)
			tell(&h, 10 * k, 100 * k);
		e = close_by_hand(&h, 0, 3000);
		assert_true(isnan(e.joules));
		assert_int_equal(e.gaps, 1);
		assert_near(e.covered_s, 2, 0.01);
		assert_near(e.watts_mean, 100, 6);
	}
}

/* A load that begins exactly where the stretch does, as a command's: the edge is found. */
static void edge_of_a_command(void **state)
{
	struct wave_run run;

	(void)state;
	for (int i = 0; i < 20; i++) {
		double t0 = 2 + 0.0173 * i;
		struct jm_energy e;

		wave_reset();
		wave_setup.gpus = 1;
		wave_add(&wave_setup.wave[0], 0, 80, 0);
		wave_add(&wave_setup.wave[0], t0, 680, 0);
		wave_add(&wave_setup.wave[0], t0 + 1, 90, 0);
		measure(&run, t0, t0 + 1);
		e = of(&run, 0);
		assert_near(e.joules, 680, 0.02 * 680);
		wave_close(&run);
	}
}

static void bound_holds(void **state)
{
	uint64_t seed = 99;
	int held = 0, n = 0;

	(void)state;
	for (int i = 0; i < 13; i++) {
		struct wave_run run;
		double t0 = 1 + wave_uniform(&seed, 0, 1);

		wave_reset();
		wave_setup.gpus = 8;
		wave_setup.tick_phase = wave_uniform(&seed, 0, 0.1);
		for (int k = 0; k < 8; k++)
			wave_telegraph(&wave_setup.wave[k], 100, 600, wave_uniform(&seed, 0.1, 2),
				8, &seed);
		measure(&run, t0, t0 + 3.3);
		for (int k = 0; k < 8; k++, n++) {
			struct jm_energy e = of(&run, k);

			held += fabs(e.joules - truth(&run, k)) <= e.error_sampling;
		}
		wave_close(&run);
	}
	assert_true(held >= 0.95 * n);
}

static void without_counter(void **state)
{
	struct wave_run run;

	(void)state;
	use_square(8);
	wave_setup.no_counter = true;
	measure(&run, 1.234, 1.234 + 7.3);
	for (int i = 0; i < 8; i++) {
		struct jm_energy e = of(&run, i);

		assert_true(isnan(e.joules_counter));
		assert_near(e.joules, truth(&run, i), 0.03 * truth(&run, i));
		assert_true(fabs(e.joules - truth(&run, i)) <= e.error_sampling);
	}
	wave_close(&run);
}

/* Only the mean over a second, as older drivers have it: no better than that, and it says so. */
static void long_window(void **state)
{
	struct wave_run run;
	struct jm_energy e;

	(void)state;
	use_square(1);
	wave_setup.no_counter = wave_setup.average_only = true;
	wave_setup.window = 1;
	measure(&run, 1.5, 11.5);
	e = of(&run, 0);
	assert_near(e.joules, truth(&run, 0), 0.06 * truth(&run, 0));
	assert_true(fabs(e.joules - truth(&run, 0)) <= e.error_sampling);
	wave_close(&run);
}

/* Each GPU's energy is the truth to this share of it, without gaps. */
static void check_all(int gpus, double t0, double t1, double share)
{
	struct wave_run run;

	measure(&run, t0, t1);
	for (int i = 0; i < gpus; i++) {
		assert_near(of(&run, i).joules, truth(&run, i), share * truth(&run, i));
		assert_int_equal(of(&run, i).gaps, 0);
	}
	wave_close(&run);
}

static void stamps_of_the_sensor(void **state)
{
	(void)state;
	use_square(8);
	wave_setup.stamped = true;
	check_all(8, 1.234, 1.234 + 3.3, 0.01);
}

static void unknown_refresh(void **state)
{
	(void)state;
	use_square(4);
	wave_setup.refresh_unknown = true;
	check_all(4, 1.234, 1.234 + 3.3, 0.03);
}

static void wraps(void **state)
{
	(void)state;
	use_square(2);
	wave_setup.wrap = 1000;
	wave_setup.counter_start = 7 * 500 + 4000; /* the count is positive all along */
	check_all(2, 1.234, 11, 0.01);
}

/* A counter that decreases for another reason: its energy is unknown, and power is integrated
 * instead. */
static void is_reset(void **state)
{
	struct wave_run run;
	struct jm_energy e;

	(void)state;
	use_square(2);
	wave_setup.counter_start = 1e5;
	wave_setup.reset_at[0] = 3;
	measure(&run, 1, 6);
	e = of(&run, 0);
	assert_true(isnan(e.joules_counter));
	assert_near(e.joules, truth(&run, 0), 0.05 * truth(&run, 0));
	assert_false(isnan(of(&run, 1).joules_counter));
	wave_close(&run);

	wave_setup.no_power = true;
	measure(&run, 1, 6);
	e = of(&run, 0);
	assert_true(isnan(e.joules));
	assert_int_equal(e.gaps, 1);
	assert_near(e.covered_s, 4.9, 0.11);
	assert_near(e.watts_mean, 350, 70);
	wave_close(&run);
}

/* A GPU that disappears: null with the seconds covered; the others go on. */
static void disappears(void **state)
{
	struct wave_run run;
	struct jm_energy e;

	(void)state;
	use_square(3);
	wave_setup.dead_from[1] = 3;
	wave_setup.dead_until[1] = 1e9;
	measure(&run, 1, 6);
	e = of(&run, 1);
	assert_true(isnan(e.joules) && isnan(e.joules_counter) && isnan(e.joules_integrated));
	assert_true(isnan(e.error_sampling));
	assert_near(e.covered_s, 2, 0.11);
	assert_int_equal(e.gaps, 1);
	assert_near(e.watts_mean,
		(wave_joules(&wave_setup.wave[1], 3) - wave_joules(&wave_setup.wave[1], 1)) / 2,
		40);
	for (int i = 0; i < 3; i += 2)
		assert_near(of(&run, i).joules, truth(&run, i), 0.01 * truth(&run, i));
	wave_close(&run);
}

/* Silent for a while: the counter went on counting; power alone does not know. */
static void silent_for_a_while(void **state)
{
	struct wave_run run;
	struct jm_energy e;

	(void)state;
	use_square(1);
	wave_setup.dead_from[0] = 2.5;
	wave_setup.dead_until[0] = 4.5;
	measure(&run, 1, 6);
	e = of(&run, 0);
	assert_near(e.joules, truth(&run, 0), 0.01 * truth(&run, 0));
	assert_int_equal(e.gaps, 1);
	assert_true(isnan(e.joules_integrated));
	wave_close(&run);

	wave_setup.no_counter = true;
	measure(&run, 1, 6);
	e = of(&run, 0);
	assert_true(isnan(e.joules));
	assert_near(e.covered_s, 3, 0.25);
	wave_close(&run);
}

static void never_there(void **state)
{
	struct wave_run run;
	struct jm_energy e;

	(void)state;
	use_square(1);
	wave_setup.dead_until[0] = 1e9;
	measure(&run, 1, 2);
	e = of(&run, 0);
	assert_true(isnan(e.joules) && isnan(e.watts_mean) && isnan(e.watts_max));
	assert_near(e.covered_s, 0, 0);
	wave_close(&run);
}

/* What is known of a GPU that is lost, or comes late, at any moment between two steps: its mean is
 * that of the seconds it is said to be known for. */
static void lost_between_steps(void **state)
{
	struct wave_run run;

	(void)state;
	for (int late = 0; late < 2; late++) {
		for (int k = 0; k < 3; k++) {
			wave_reset();
			wave_setup.gpus = 8;
			wave_setup.no_power = k == 2;
			for (int i = 0; i < 8; i++) {
				wave_add(&wave_setup.wave[i], 0, 300, 0);
				/* a step in level long before: the mean is not the same
				 * everywhere */
				wave_add(&wave_setup.wave[i], 1.5, k == 1 ? 500 : 300, 0);
				wave_setup.dead_from[i] = late ? 0 : 2.505 + 0.0131 * i;
				wave_setup.dead_until[i] = late ? 2.005 + 0.0131 * i : 1e9;
			}
			measure(&run, 1.234, 1.234 + 3);
			for (int i = 0; i < 8; i++) {
				struct jm_energy e = of(&run, i);
				double t0 = late ? run.t1 - e.covered_s : run.t0;
				double joules = wave_joules(&wave_setup.wave[i], t0 + e.covered_s) -
						wave_joules(&wave_setup.wave[i], t0);

				assert_true(isnan(e.joules));
				assert_true(e.gaps >= 1);
				assert_true(e.covered_s > 1 && e.covered_s < 2.3);
				/* polls are 50 ms apart, so a step's time is known to 25 */
				assert_near(e.watts_mean, joules / e.covered_s,
					0.026 * 500 / e.covered_s);
			}
			wave_close(&run);
		}
	}
}

/* Readings are rounded to a milliwatt. Windows as long as the refresh see all of the load, but not
 * what it does inside the two that the ends of the stretch cut: a quarter of the mean power. */
static void rounded_readings_without_gaps(void **state)
{
	(void)state;
	for (int k = 0; k < 20; k++) {
		struct wave_run run;
		struct jm_energy e;

		wave_reset();
		wave_setup.gpus = 1;
		wave_setup.no_counter = true;
		wave_setup.window = wave_setup.refresh;
		wave_add(&wave_setup.wave[0], -10, 123.4 + 1.37e-4 * k, 0);
		measure(&run, 1.234, 1.234 + 0.2 + 0.1 * k);
		e = of(&run, 0);
		assert_near(e.joules, truth(&run, 0), 1e-3 * (0.2 + 0.1 * k));
		assert_near(e.error_sampling, 1.96 * 0.25 * e.watts_mean * 0.1 / sqrt(3), 1e-3);
		wave_close(&run);
	}
}

/* 0 W that was measured is 0, not unknown: an outlet with nothing plugged in. */
static void nothing_used(void **state)
{
	struct wave_run run;
	struct jm_energy e;

	(void)state;
	wave_setup.gpus = 1;
	wave_setup.scope = JM_SCOPE_OUTLET;
	wave_add(&wave_setup.wave[0], 0, 0, 0);
	measure(&run, 1, 3);
	e = of(&run, 0);
	assert_near(e.joules, 0, 1e-9);
	assert_near(e.covered_s, 2, 1e-9);
	wave_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(square_wave, reset),
		cmocka_unit_test(the_maximum_is_not_below_the_mean),
		cmocka_unit_test_setup(a_counter_that_may_have_gone_round, reset),
		cmocka_unit_test_setup(a_late_first_reading, reset),
		cmocka_unit_test_setup(polled_often, reset),
		cmocka_unit_test_setup(polls_that_fall_together, reset),
		cmocka_unit_test_setup(read_in_pairs, reset),
		cmocka_unit_test_setup(a_reset_is_no_round, reset),
		cmocka_unit_test_setup(readings_of_a_part, reset),
		cmocka_unit_test_setup(edge_of_a_command, reset),
		cmocka_unit_test_setup(bound_holds, reset),
		cmocka_unit_test_setup(without_counter, reset),
		cmocka_unit_test_setup(long_window, reset),
		cmocka_unit_test_setup(stamps_of_the_sensor, reset),
		cmocka_unit_test_setup(unknown_refresh, reset),
		cmocka_unit_test_setup(wraps, reset),
		cmocka_unit_test_setup(is_reset, reset),
		cmocka_unit_test_setup(disappears, reset),
		cmocka_unit_test_setup(silent_for_a_while, reset),
		cmocka_unit_test_setup(lost_between_steps, reset),
		cmocka_unit_test_setup(rounded_readings_without_gaps, reset),
		cmocka_unit_test_setup(never_there, reset),
		cmocka_unit_test_setup(nothing_used, reset),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	wave_reset();
	return failed;
}
