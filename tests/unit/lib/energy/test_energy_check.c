/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and power sensors that report impossible values are not used, and are named. */
#include "kit/test.h"
#include "kit/wave.h"

#define T0 1.234 /* s, of a stretch of 10 s */
#define T1 11.234

static int reset(void **state)
{
	(void)state;
	wave_reset();
	wave_setup.gpus = 1;
	wave_setup.counter_start = 1e5;
	return 0;
}

static void use_constant(double watts)
{
	wave_add(&wave_setup.wave[0], -10, watts, 0);
}

static double truth(double t0, double t1)
{
	return wave_joules(&wave_setup.wave[0], t1) - wave_joules(&wave_setup.wave[0], t0);
}

static struct jm_energy measure(double t0, double t1)
{
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;
	struct jm_energy e;

	assert_ok(wave_measure(&run, t0, t1, 0, &err), err);
	assert_ok(jm_session_energy(run.session, 0, run.phase, &e, &err), err);
	wave_close(&run);
	return e;
}

/* The energy comes from power, within its bound, and the fault has its name. */
static void expect_power(struct jm_energy e, enum jm_fault_kind kind, double t0, double t1)
{
	assert_int_equal(e.fault.kind, kind);
	assert_true(isnan(e.joules_counter));
	assert_near(e.joules, truth(t0, t1), e.error_sampling);
	assert_near(e.joules, truth(t0, t1), 0.05 * truth(t0, t1));
}

static void expect_unknown(struct jm_energy e, enum jm_fault_kind kind)
{
	assert_int_equal(e.fault.kind, kind);
	assert_true(isnan(e.joules) && isnan(e.joules_counter) && isnan(e.error_sampling));
	assert_true(isnan(e.watts_mean));
}

static void expect_no_readings(struct jm_energy e)
{
	assert_true(isnan(e.joules));
	assert_int_equal(jm_fault_kind(&e.fault), JM_FAULT_NO_READINGS);
}

static void names_a_counter_frozen_from_the_start(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.freeze_from = 0.5, .freeze_until = 1e9};
	expect_power(measure(T0, T1), JM_FAULT_COUNTER_STUCK, T0, T1);
}

static void names_a_counter_frozen_half_way(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.freeze_from = 6, .freeze_until = 1e9};
	expect_power(measure(T0, T1), JM_FAULT_COUNTER_STUCK, T0, T1);
}

static void names_a_counter_that_stood_still_for_a_while(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.freeze_from = 4, .freeze_until = 6};
	expect_power(measure(T0, T1), JM_FAULT_COUNTER_STUCK, T0, T1);
}

/* Of a GPU at rest, too; and within half a second. */
static void names_a_counter_frozen_at_rest(void **state)
{
	(void)state;
	use_constant(40);
	wave_setup.fault[0] = (struct wave_fault){.freeze_from = 0.5, .freeze_until = 1e9};
	assert_int_equal(measure(T0, T0 + 0.5).fault.kind, JM_FAULT_COUNTER_STUCK);
	expect_power(measure(T0, T1), JM_FAULT_COUNTER_STUCK, T0, T1);
}

/* Too short to be distinguished from a late counter: the power since its last step counts. */
static void covers_a_freeze_just_before_the_end(void **state)
{
	(void)state;
	use_constant(350);
	for (int i = 0; i < 20; i++) {
		double from = T0 + 0.6 + 0.02 * i;
		struct jm_energy e;

		wave_setup.fault[0] = (struct wave_fault){.freeze_from = from, .freeze_until = 1e9};
		e = measure(T0, T0 + 1);
		assert_near(e.joules, truth(T0, T0 + 1), e.error_sampling);
	}
}

/* ---- a counter that is hardly read ---- */

#define UNREAD 1.7 /* s, of a stretch whose counter is read in its first 0.35 s and at its end */

/* A slow wave at any phase, which the power sensor sees well. */
static struct jm_energy measure_unread(int i, double until)
{
	wave_done(&wave_setup.wave[0]);
	wave_square(&wave_setup.wave[0], 182, 620, i % 2 ? 2.179 : 1.285, fmod(0.137 * i, 1), 12);
	wave_setup.unread_from = T0 + 0.35;
	wave_setup.unread_until = until;
	return measure(T0, T0 + UNREAD);
}

/* Its fault is set. Off by how much of the bound; at most twice that, and 2 % of the energy. */
static double off_unread(int i, double until)
{
	struct jm_energy e = measure_unread(i, until);
	double true_j = truth(T0, T0 + UNREAD), off = fabs(e.joules - true_j);

	assert_true(off <= 2 * e.error_sampling + 0.02 * true_j);
	return off / e.error_sampling;
}

/* A rise does not show until when the counter counted: the rest that power readings allow is in the
 * bound. */
static void count_freezes_while_unread(double until)
{
	int n = 0, inside = 0;

	for (int i = 0; i < 60; i++, n++) {
		double from = T0 + 0.4 + 0.02 * i;

		wave_setup.fault[0] = (struct wave_fault){.freeze_from = from, .freeze_until = 1e9};
		inside += off_unread(i, until) <= 1;
	}
	assert_true(inside >= 0.95 * n);
}

static void covers_a_freeze_while_nobody_read(void **state)
{
	(void)state;
	count_freezes_while_unread(T0 + UNREAD + 0.02);
	/* nor read after its first reading at the end, so no reading shows that it stopped */
	wave_setup.unread_for_good = T0 + UNREAD + 0.03;
	count_freezes_while_unread(T0 + UNREAD + 0.02);
	wave_setup.stamped = true;
	count_freezes_while_unread(T0 + UNREAD + 0.02);
}

/* The same value after a gap is no step. */
static void covers_a_freeze_with_a_gap_in_it(void **state)
{
	(void)state;
	wave_setup.dead_from[0] = T0 + UNREAD - 0.02;
	wave_setup.dead_until[0] = T0 + UNREAD;
	count_freezes_while_unread(T0 + UNREAD - 0.09);
}

/* Where power readings end, too, the device may have drawn all that it can. */
static void covers_a_freeze_that_no_power_reading_tells(void **state)
{
	struct jm_energy e;

	(void)state;
	wave_setup.limit = 700;
	wave_setup.power_dead_from = T0 + 1.2;
	wave_setup.unread_for_good = T0 + UNREAD + 0.03;
	wave_setup.fault[0] = (struct wave_fault){.freeze_from = T0 + 0.6, .freeze_until = 1e9};
	for (int i = 0; i < 20; i++) {
		e = measure_unread(i, T0 + UNREAD + 0.02);
		assert_near(e.joules, truth(T0, T0 + UNREAD), e.error_sampling);
		assert_true(e.error_sampling < 1.5 * 700 * UNREAD);
	}
}

/* A counter that steps again at the end is taken to have worked all the time. */
static void believes_a_sound_counter_that_is_hardly_read(void **state)
{
	(void)state;
	for (int i = 0; i < 60; i++) {
		struct jm_energy e;

		wave_setup.stamped = i >= 30;
		e = measure_unread(i, T0 + UNREAD - 0.02);
		assert_int_equal(e.fault.kind, JM_FAULT_NONE);
		assert_near(e.joules, truth(T0, T0 + UNREAD), 1.5 * e.error_sampling);
		assert_true(e.error_sampling < 0.08 * e.joules);
	}
}

/* A counter that is late but then includes all the energy is slow, not wrong. */
static void believes_a_counter_that_catches_up(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(350);
	wave_setup.fault[0] =
		(struct wave_fault){.freeze_from = 4, .freeze_until = 5, .catches_up = true};
	e = measure(T0, T1);
	assert_int_equal(e.fault.kind, JM_FAULT_NONE);
	assert_near(e.joules_counter, truth(T0, T1), 0.001 * truth(T0, T1));
}

static void names_a_jump(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.jump_at = 5, .jump = 1e6};
	expect_power(measure(T0, T1), JM_FAULT_COUNTER_FAST, T0, T1);
}

/* In a short stretch, at its end. */
static void names_a_jump_in_half_a_second(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.jump_at = T0 + 0.3, .jump = 1e6};
	expect_power(measure(T0, T0 + 0.5), JM_FAULT_COUNTER_FAST, T0, T0 + 0.5);
}

/* A jump that is physically possible: which of the two is right is not known, so that the bound has
 * both. */
static void covers_a_small_jump(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.jump_at = 5, .jump = 800};
	e = measure(T0, T1);
	assert_int_equal(e.fault.kind, JM_FAULT_DIFFER);
	assert_near(e.joules, truth(T0, T1), e.error_sampling);
}

static void a_counter_of_half_the_energy_is_covered_by_its_bound(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.rate = 0.5};
	e = measure(T0, T1);
	assert_int_equal(e.fault.kind, JM_FAULT_DIFFER);
	assert_near(e.joules, truth(T0, T1), e.error_sampling);
}

/* The sensor saw energy that a hundredth cannot hold. */
static void a_counter_of_a_hundredth_contradicts_its_power(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.fault[0] = (struct wave_fault){.rate = 0.01};
	expect_unknown(measure(T0, T1), JM_FAULT_CONTRADICTION);
}

/* ---- without a second signal ---- */

static void a_package_frozen_under_load_is_unknown(void **state)
{
	(void)state;
	use_constant(150);
	wave_setup.no_power = true;
	wave_setup.scope = JM_SCOPE_PACKAGE;
	wave_setup.refresh = 0.001;
	wave_setup.counter_step = 1e-6;
	wave_setup.fault[0] = (struct wave_fault){.freeze_from = 5, .freeze_until = 1e9};
	expect_unknown(measure(T0, T1), JM_FAULT_COUNTER_STUCK);
	/* for less than a second it may be late */
	wave_setup.fault[0] =
		(struct wave_fault){.freeze_from = 5, .freeze_until = 5.6, .catches_up = true};
	assert_int_equal(measure(T0, T1).fault.kind, JM_FAULT_NONE);
}

static void an_idle_uncore_may_stand_still(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(0);
	wave_setup.no_power = true;
	wave_setup.scope = JM_SCOPE_UNCORE;
	e = measure(T0, T1);
	assert_int_equal(e.fault.kind, JM_FAULT_NONE);
	assert_near(e.joules, 0, 1e-9);
}

static void a_package_that_jumps_is_unknown(void **state)
{
	(void)state;
	use_constant(150);
	wave_setup.no_power = true;
	wave_setup.scope = JM_SCOPE_PACKAGE;
	wave_setup.fault[0] = (struct wave_fault){.jump_at = 5, .jump = 66400};
	expect_unknown(measure(T0, T1), JM_FAULT_COUNTER_FAST);
	/* nor while it was not read */
	wave_setup.dead_from[0] = 4;
	wave_setup.dead_until[0] = 5.5;
	expect_unknown(measure(T0, T1), JM_FAULT_COUNTER_FAST);
}

/* A counter that can go round and is reset goes back by what looks like a part of a round. */
static void a_reset_of_a_counter_that_wraps_is_no_jump(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(150);
	wave_setup.no_power = true;
	wave_setup.scope = JM_SCOPE_PACKAGE;
	wave_setup.wrap = 262143;
	wave_setup.counter_start = 200000;
	wave_setup.reset_at[0] = 5;
	e = measure(T0, T1);
	assert_int_equal(e.fault.kind, JM_FAULT_COUNTER_RESET);
	assert_true(isnan(e.joules));
	assert_int_equal(e.resets, 1);
	/* and going round is neither */
	wave_setup.reset_at[0] = 0;
	wave_setup.counter_start = 262143 - 2000;
	e = measure(T0, T1);
	assert_int_equal(e.fault.kind, JM_FAULT_NONE);
	assert_near(e.joules, truth(T0, T1), e.error_sampling);
}

/* ---- energy that is unknown has a reason ---- */

static void names_missing_readings(void **state)
{
	(void)state;
	use_constant(350);
	wave_setup.dead_from[0] = T1 - 0.5;
	wave_setup.dead_until[0] = T1 + 9;
	expect_no_readings(measure(T0, T1));
	wave_setup.no_power = true;
	expect_no_readings(measure(T0, T1));
	wave_setup.no_power = false;
	wave_setup.no_counter = true;
	expect_no_readings(measure(T0, T1));
	/* a meter that has neither */
	wave_setup.no_power = true;
	wave_setup.limit = 700;
	expect_no_readings(measure(T0, T1));
}

/* ---- power ---- */

static void a_gpu_that_is_on_does_not_rest_at_zero(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(350);
	wave_setup.fault[0].power_zero = true;
	e = measure(T0, T1);
	assert_int_equal(jm_fault_kind(&e.fault), JM_FAULT_POWER_ZERO);
	assert_near(e.joules, truth(T0, T1), 0.001 * truth(T0, T1));
	assert_true(isnan(e.joules_integrated));
	wave_setup.fault[0] =
		(struct wave_fault){.power_zero = true, .freeze_from = 0.5, .freeze_until = 1e9};
	expect_unknown(measure(T0, T1), JM_FAULT_COUNTER_STUCK);
	wave_setup.no_counter = true;
	e = measure(T0, T1);
	assert_true(isnan(e.joules));
	assert_int_equal(jm_fault_kind(&e.fault), JM_FAULT_POWER_ZERO);
}

/* ---- readings by hand: a node's power, and no counter ---- */

static struct jm_energy node_of(double zero_s)
{
	struct jm_meters set = {0};
	struct jm_meter meter = {.id = "m", .source = "test", .covers = "/"};
	struct jm_signal power = {
		.quantity = JM_Q_POWER, .refresh_ns = 100 * JM_MILLISECOND, .accuracy = NAN};
	struct jm_err err = JM_ERR_INIT;
	struct jm_trace *trace;
	struct jm_energy e;

	jm_meters_add(&set, &meter, &err);
	jm_meters_add_signal(&set, &power, &err);
	trace = jm_trace_new(&set, &err);
	assert_non_null(trace);
	for (int ms = 0; ms <= 20000; ms += 100)
		jm_trace_append(trace, 0,
			(struct jm_reading){ms > 8000 && ms <= 8000 + zero_s * 1000 ? 0 : 300,
				ms * JM_MILLISECOND},
			&err);
	assert_ok(jm_energy_of(trace, &set, 0, 5 * JM_SECOND, 15 * JM_SECOND, &e, &err), err);
	jm_trace_free(trace);
	jm_meters_done(&set);
	return e;
}

static void a_node_does_not_rest_at_zero_for_a_part_of_the_time(void **state)
{
	struct jm_energy e = node_of(0);

	(void)state;
	assert_near(e.joules, 3000, 1);
	e = node_of(2);
	assert_true(isnan(e.joules));
	assert_int_equal(jm_fault_kind(&e.fault), JM_FAULT_POWER_ZERO);
	assert_near(e.fault.power_zero_s, 2, 0.01);
}

/* No power before the reset says that so many joules are none of a round. */
static void a_reset_where_the_stretch_begins_is_no_round(void **state)
{
	(void)state;
	use_constant(100);
	wave_setup.wrap = 262143;
	wave_setup.counter_start = 2e5;
	wave_setup.no_power = true;
	for (int i = -4; i < 6; i++) {
		struct jm_energy e;

		wave_setup.reset_at[0] = T0 + 0.05 * i;
		e = measure(T0, T1);
		if (isnan(e.joules))
			assert_int_equal(e.resets, 1);
		else
			assert_near(e.joules, truth(T0, T1), 0.02 * truth(T0, T1));
		assert_true(e.watts_max < 101 && !(e.watts_mean >= 101));
	}
}

/* ---- what is true is believed ---- */

/* Square products draw 790 to 930 W at a limit of 700 W, and a load may switch as fast as it
 * likes. */
static void believes_true_readings(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < 60; i++) {
		double period = exp(wave_uniform(&seed, log(0.02), log(10)));
		double length = exp(wave_uniform(&seed, log(0.2), log(10)));
		struct jm_energy e;

		wave_reset();
		wave_setup.gpus = 1;
		if (i % 3)
			wave_load(&wave_setup.wave[0], (enum wave_kind)(i % WAVE_KINDS), period, 12,
				&seed);
		else
			wave_square(&wave_setup.wave[0], 72, 930, period, 0.3, 12);
		wave_setup.no_power = i % 5 == 4;
		e = measure(T0, T0 + length);
		assert_true(e.fault.kind == JM_FAULT_NONE || e.fault.kind == JM_FAULT_DIFFER);
		assert_near(e.joules_counter, truth(T0, T0 + length),
			e.error_sampling + 0.01 * truth(T0, T0 + length));
	}
}

static void a_reset_that_is_survived_is_counted(void **state)
{
	struct jm_energy e;

	(void)state;
	use_constant(350);
	wave_setup.reset_at[0] = 5;
	e = measure(T0, T1);
	assert_int_equal(e.resets, 1);
	assert_int_equal(e.fault.kind, JM_FAULT_NONE);
	assert_near(e.joules, truth(T0, T1), e.error_sampling);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(names_a_counter_frozen_from_the_start, reset),
		cmocka_unit_test_setup(names_a_counter_frozen_half_way, reset),
		cmocka_unit_test_setup(names_a_counter_that_stood_still_for_a_while, reset),
		cmocka_unit_test_setup(names_a_counter_frozen_at_rest, reset),
		cmocka_unit_test_setup(covers_a_freeze_just_before_the_end, reset),
		cmocka_unit_test_setup(covers_a_freeze_with_a_gap_in_it, reset),
		cmocka_unit_test_setup(covers_a_freeze_while_nobody_read, reset),
		cmocka_unit_test_setup(covers_a_freeze_that_no_power_reading_tells, reset),
		cmocka_unit_test_setup(believes_a_sound_counter_that_is_hardly_read, reset),
		cmocka_unit_test_setup(believes_a_counter_that_catches_up, reset),
		cmocka_unit_test_setup(names_a_jump, reset),
		cmocka_unit_test_setup(names_a_jump_in_half_a_second, reset),
		cmocka_unit_test_setup(covers_a_small_jump, reset),
		cmocka_unit_test_setup(a_counter_of_half_the_energy_is_covered_by_its_bound, reset),
		cmocka_unit_test_setup(a_counter_of_a_hundredth_contradicts_its_power, reset),
		cmocka_unit_test_setup(a_package_frozen_under_load_is_unknown, reset),
		cmocka_unit_test_setup(an_idle_uncore_may_stand_still, reset),
		cmocka_unit_test_setup(a_package_that_jumps_is_unknown, reset),
		cmocka_unit_test_setup(a_reset_of_a_counter_that_wraps_is_no_jump, reset),
		cmocka_unit_test_setup(names_missing_readings, reset),
		cmocka_unit_test_setup(a_gpu_that_is_on_does_not_rest_at_zero, reset),
		cmocka_unit_test_setup(a_reset_where_the_stretch_begins_is_no_round, reset),
		cmocka_unit_test(a_node_does_not_rest_at_zero_for_a_part_of_the_time),
		cmocka_unit_test_setup(believes_true_readings, reset),
		cmocka_unit_test_setup(a_reset_that_is_survived_is_counted, reset),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	wave_reset();
	return failed;
}
