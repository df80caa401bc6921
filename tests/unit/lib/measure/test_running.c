/* SPDX-License-Identifier: Apache-2.0 */
/* Unlimited totals, and rows of power, of readings whose energy is computed by hand. */
#include "kit/test.h"

#include "base/clock.h"
#include "measure/session/power_rows.h"
#include "measure/command/running.h"

#include <stdio.h>

#define AT(s) (int64_t)((s) * (double)JM_SECOND)

static void add(struct jm_meters *set, const char *id, enum jm_quantity quantity, double wrap)
{
	struct jm_meter meter = {.source = "test", .covers = ""};
	struct jm_signal signal = {.quantity = quantity, .wrap = wrap, .accuracy = NAN};

	snprintf(meter.id, sizeof(meter.id), "%s", id);
	if (id[0])
		assert_true(jm_meters_add(set, &meter, NULL) >= 0);
	assert_true(jm_meters_add_signal(set, &signal, NULL) >= 0);
}

static struct jm_running *running_of(struct jm_meters *set)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_running *r;

	assert_ok(jm_running_new(set, &r, &err), err);
	assert_true(isnan(jm_running_of(r, 0).joules) && isnan(jm_running_of(r, 0).watts));
	return r;
}

static void take(struct jm_running *r, int signal, double t, double value)
{
	jm_running_take(r, signal, (struct jm_reading){value, AT(t)});
}

/* 100 W for 1 s, 300 W for 2 s, then nothing for 3 s, then 50 W for 2 s. */
static void sums_power_up_without_its_gaps(void **state)
{
	static const double readings[][2] = {{0, 100}, {1, 300}, {3, NAN}, {6, 50}, {8, 70}};
	struct jm_meters set = {0};
	struct jm_running *r;

	(void)state;
	add(&set, "a", JM_Q_POWER, 0);
	r = running_of(&set);
	for (int i = 0; i < 5; i++)
		take(r, 0, readings[i][0], readings[i][1]);
	assert_near(jm_running_of(r, 0).joules, 100 + 600 + 100, 1e-9);
	assert_near(jm_running_of(r, 0).watts, 70, 0);
	assert_near(jm_running_of(r, 0).unknown_s, 3, 1e-9);
	take(r, 0, 9, NAN);
	assert_true(isnan(jm_running_of(r, 0).watts));
	take(r, 0, 10, NAN);
	assert_near(jm_running_of(r, 0).unknown_s, 4, 1e-9);
	jm_running_free(r);
	jm_meters_done(&set);
}

/* A counter of 1000 J: over its end it goes on, set back it is counted as a reset, and a gap loses
 * nothing. */
static void follows_a_counter(void **state)
{
	static const double readings[][2] = {
		{0, 900}, {1, 950}, {2, NAN}, {3, 990}, {4, 30}, {5, 330}, {6, 10}, {7, 15}};
	struct jm_meters set = {0};
	struct jm_running *r;

	(void)state;
	add(&set, "a", JM_Q_ENERGY, 1000);
	r = running_of(&set);
	for (int i = 0; i < 6; i++)
		take(r, 0, readings[i][0], readings[i][1]);
	assert_near(jm_running_of(r, 0).joules, 50 + 40 + 40 + 300, 1e-9);
	assert_near(jm_running_of(r, 0).watts, 300, 1e-9); /* no power signal: the rate */
	assert_int_equal(jm_running_of(r, 0).resets, 0);
	set.signal[0].wrap = 0;
	take(r, 0, readings[6][0], readings[6][1]);
	take(r, 0, readings[7][0], readings[7][1]);
	assert_near(jm_running_of(r, 0).joules, 430 + 5, 1e-9);
	assert_int_equal(jm_running_of(r, 0).resets, 1);
	jm_running_free(r);
	jm_meters_done(&set);
}

/* A counter that steps by 5 J every 0.1 s, then stands still: after a second its power is unknown,
 * until it steps again; so is that of one that gives no reading. A set-back far from its end is a
 * reset. */
static void power_of_a_silent_counter_is_unknown(void **state)
{
	struct jm_meters set = {0};
	struct jm_running *r;

	(void)state;
	add(&set, "a", JM_Q_ENERGY, 262144);
	set.signal[0].refresh_ns = AT(0.1);
	r = running_of(&set);
	for (int i = 0; i <= 10; i++)
		take(r, 0, 0.1 * i, 1000 + 5 * i);
	assert_near(jm_running_of(r, 0).watts, 50, 1e-6);
	take(r, 0, 1.9, 1050);
	assert_near(jm_running_of(r, 0).watts, 50, 1e-6);
	take(r, 0, 2.1, 1050);
	assert_true(isnan(jm_running_of(r, 0).watts));
	take(r, 0, 3, 1090);
	assert_near(jm_running_of(r, 0).watts, 40 / 2.0, 1e-6);
	take(r, 0, 3.1, NAN);
	assert_true(isnan(jm_running_of(r, 0).watts));
	take(r, 0, 3.2, 2);
	assert_int_equal(jm_running_of(r, 0).resets, 1);
	assert_near(jm_running_of(r, 0).joules, 90, 1e-9);
	jm_running_free(r);
	jm_meters_done(&set);
}

/* A counter that was beyond its range, as where the range is reported too small, is not believed to
 * have come round: joules never fall. */
static void a_counter_beyond_its_range_is_reset(void **state)
{
	struct jm_meters set = {0};
	struct jm_running *r;

	(void)state;
	add(&set, "a", JM_Q_ENERGY, 1000);
	r = running_of(&set);
	take(r, 0, 0, 1500);
	take(r, 0, 1, 1600);
	take(r, 0, 2, 200);
	assert_near(jm_running_of(r, 0).joules, 100, 1e-9);
	assert_int_equal(jm_running_of(r, 0).resets, 1);
	jm_running_free(r);
	jm_meters_done(&set);
}

/* Energy is the counter's where there is one; watts are those of the instantaneous signal. */
static void takes_the_better_signal(void **state)
{
	struct jm_meters set = {0};
	struct jm_running *r;

	(void)state;
	add(&set, "a", JM_Q_POWER_AVERAGE, 0);
	add(&set, "", JM_Q_POWER, 0);
	add(&set, "", JM_Q_ENERGY, 0);
	r = running_of(&set);
	for (int t = 0; t < 3; t++) {
		take(r, 0, t, 1);
		take(r, 1, t, 200);
		take(r, 2, t, 7 * t);
	}
	assert_near(jm_running_of(r, 0).joules, 14, 0);
	assert_near(jm_running_of(r, 0).watts, 200, 0);
	assert_true(jm_running_of(r, 0).counter);
	jm_running_free(r);
	jm_meters_done(&set);
}

/* Rows at 0, 1, 2 and 2.5 s: means of what held since the row before, and their sum is the
 * integral. */
static void rows_are_means_of_their_interval(void **state)
{
	static const double readings[][2] = {
		{-1, 80}, {0.25, 100}, {0.75, 300}, {1, 200}, {2.25, 400}, {3, 9}};
	static const double want[] = {80, (0.25 * 80 + 0.5 * 100 + 0.25 * 300), 200, 300};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_power_rows rows;
	struct jm_trace *trace;
	const int signal = 0;
	double sum = 0;

	(void)state;
	add(&set, "a", JM_Q_POWER, 0);
	trace = jm_trace_new(&set, &err);
	for (int i = 0; i < 6; i++) {
		struct jm_reading r = {readings[i][1], AT(readings[i][0])};

		assert_ok(jm_trace_append(trace, 0, r, &err), err);
	}
	assert_ok(jm_trace_flush(trace, NULL, NULL, &err), err);
	assert_ok(jm_power_rows_of(trace, &signal, 1, 0, AT(2.5), AT(1), &rows, &err), err);
	assert_int_equal(rows.n, 4);
	for (int i = 0; i < 4; i++) {
		assert_near(rows.value[i], want[i], 1e-9);
		sum += i ? rows.value[i] * (double)(rows.t_ns[i] - rows.t_ns[i - 1]) * 1e-9 : 0;
	}
	assert_near(sum, 0.25 * 80 + 0.5 * 100 + 0.25 * 300 + 1.25 * 200 + 0.25 * 400, 1e-6);
	assert_int_equal(rows.t_ns[3], AT(2.5));
	jm_power_rows_done(&rows);
	jm_trace_free(trace);
	jm_meters_done(&set);
}

/* An interval without a reading is unknown, one with some is the mean of these; an end on the grid
 * is no row twice. */
static void rows_without_a_reading_are_unknown(void **state)
{
	static const double readings[][2] = {{0.5, 100}, {1.5, NAN}, {3.5, 60}};
	struct jm_err err = JM_ERR_INIT;
	struct jm_meters set = {0};
	struct jm_power_rows rows;
	struct jm_trace *trace;
	const int signal = 0;

	(void)state;
	add(&set, "a", JM_Q_POWER, 0);
	trace = jm_trace_new(&set, &err);
	for (int i = 0; i < 3; i++) {
		struct jm_reading r = {readings[i][1], AT(readings[i][0])};

		assert_ok(jm_trace_append(trace, 0, r, &err), err);
	}
	assert_ok(jm_trace_flush(trace, NULL, NULL, &err), err);
	assert_ok(jm_power_rows_of(trace, &signal, 1, 0, AT(4), AT(1), &rows, &err), err);
	assert_int_equal(rows.n, 5);
	assert_near(rows.value[0], 100, 0); /* the first that is known */
	assert_near(rows.value[2], 100, 0);
	assert_true(isnan(rows.value[3]));
	assert_near(rows.value[4], 60, 0);
	jm_power_rows_done(&rows);
	jm_trace_free(trace);
	jm_meters_done(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_power_up_without_its_gaps),
		cmocka_unit_test(follows_a_counter),
		cmocka_unit_test(power_of_a_silent_counter_is_unknown),
		cmocka_unit_test(a_counter_beyond_its_range_is_reset),
		cmocka_unit_test(takes_the_better_signal),
		cmocka_unit_test(rows_are_means_of_their_interval),
		cmocka_unit_test(rows_without_a_reading_are_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
