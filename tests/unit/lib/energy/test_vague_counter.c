/* SPDX-License-Identifier: Apache-2.0 */
/* A counter that is seldom read, beside power that is read often. */
#include "base/clock.h"
#include "kit/test.h"
#include "energy/energy.h"
#include "trace/trace.h"

static struct jm_meters set;
static struct jm_trace *trace;

static int open_both(void **state)
{
	struct jm_meter meter = {.id = "m", .source = "test"};
	struct jm_signal counter = {.quantity = JM_Q_ENERGY,
		.step = 1e-3,
		.refresh_ns = 100 * JM_MILLISECOND,
		.accuracy = NAN};
	struct jm_signal power = {.quantity = JM_Q_POWER,
		.step = 1e-3,
		.refresh_ns = 100 * JM_MILLISECOND,
		.window_ns = 20 * JM_MILLISECOND,
		.accuracy = NAN};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	set = (struct jm_meters){0};
	jm_meters_add(&set, &meter, &err);
	jm_meters_add_signal(&set, &counter, &err);
	jm_meters_add_signal(&set, &power, &err);
	trace = jm_trace_new(&set, &err);
	assert_non_null(trace);
	return 0;
}

static int close_both(void **state)
{
	(void)state;
	jm_trace_free(trace);
	jm_meters_done(&set);
	return 0;
}

static void tell(int signal, double value, int ms)
{
	struct jm_err err = JM_ERR_INIT;

	jm_trace_append(trace, signal, (struct jm_reading){value, ms * JM_MILLISECOND}, &err);
}

/* Watts alternate each 1.2 s; the counter was read before 1 s and after 9 s only. */
static void gives_way_to_power_between_its_readings(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_energy e;
	double joules = 0;

	(void)state;
	for (int ms = 0; ms < 10000; ms += 50) {
		double watts = ms / 1200 % 2 ? 700 : 300;

		tell(1, watts, ms);
		joules += watts * 0.05;
		if (ms < 1000 || ms > 9000)
			tell(0, joules, ms);
	}
	assert_ok(jm_energy_of(
			  trace, &set, 0, 4800 * JM_MILLISECOND, 6000 * JM_MILLISECOND, &e, &err),
		err);
	assert_near(e.joules, 300 * 1.2, e.error_sampling);
	assert_true(e.error_sampling < 0.25 * e.joules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			gives_way_to_power_between_its_readings, open_both, close_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
