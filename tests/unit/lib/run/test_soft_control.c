/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses that hold a power, on a device whose power is known; the clock of a device that is faster
 * than the host's; thermal steady state of a body that warms up by a known law.
 */
#include "kit/test.h"
#include "run/worker/clock_alignment.h"
#include "run/worker/pacer.h"
#include "run/worker/steady_state.h"

#define SECOND INT64_C(1000000000)

/* ---- pacer: power = idle, or active within a step; the meter reports whole turns ------------- */

struct plant {
	double idle, active, step_s;
	double seconds, joules; /* in truth */
};

/* One step and its pause. */
static void turn(struct plant *p, struct jm_pacer *pacer)
{
	double rest = jm_pacer_pause(pacer, p->step_s);

	p->joules += p->active * p->step_s + p->idle * rest;
	p->seconds += p->step_s + rest;
}

/* Turns for at least so many seconds, each second reported to the pacer. Returns the mean watts. */
static double run(struct plant *p, struct jm_pacer *pacer, double seconds, bool measured)
{
	const struct plant begin = *p;
	struct plant from = *p;

	while (p->seconds < begin.seconds + seconds) {
		turn(p, pacer);
		if (p->seconds < from.seconds + 1)
			continue;
		jm_pacer_see(pacer, (p->joules - from.joules) / (p->seconds - from.seconds),
			measured ? p->joules - begin.joules -
					   pacer->watts * (p->seconds - begin.seconds)
				 : 0);
		from = *p;
	}
	return (p->joules - begin.joules) / (p->seconds - begin.seconds);
}

static void check_hold(double idle, double active, double step_s, double wanted)
{
	struct plant p = {.idle = idle, .active = active, .step_s = step_s};
	struct jm_pacer pacer;

	jm_pacer_init(&pacer, wanted);
	run(&p, &pacer, 15, false);
	assert_true(jm_pacer_ready(&pacer));
	jm_pacer_settle(&pacer);
	assert_near(run(&p, &pacer, 30, true), wanted, 0.01 * wanted);
	assert_near(pacer.work_s / (pacer.work_s + pacer.pause_s),
		(wanted - idle) / (active - idle), 0.03);
}

static void power_is_held(void **state)
{
	(void)state;
	check_hold(72, 700, 0.02, 300);
	check_hold(72, 700, 0.02, 600);
	check_hold(72, 700, 0.4, 400); /* long steps */
	check_hold(
		5, 700, 0.0005, 350);	/* pauses too short to be made one by one; hardly a floor */
	check_hold(300, 690, 0.1, 320); /* near the floor */
}

static void load_that_changes_is_followed(void **state)
{
	struct plant p = {.idle = 72, .active = 700, .step_s = 0.02};
	struct jm_pacer pacer;

	(void)state;
	jm_pacer_init(&pacer, 400);
	run(&p, &pacer, 10, false);
	p.active = 560;
	run(&p, &pacer, 10, false);
	assert_near(run(&p, &pacer, 20, true), 400, 4);
}

static void out_of_reach_is_no_pause(void **state)
{
	struct plant p = {.idle = 72, .active = 500, .step_s = 0.02};
	struct jm_pacer pacer;

	(void)state;
	jm_pacer_init(&pacer, 650);
	assert_false(jm_pacer_ready(&pacer));
	assert_near(run(&p, &pacer, 5, false), 500, 1e-9);
	assert_true(jm_pacer_ready(&pacer));
	assert_near(pacer.pause_s, 0, 0);
	jm_pacer_see(&pacer, NAN, 0); /* no reading: nothing changes */
	assert_near(pacer.duty, 1, 0);
}

/* ---- alignment ------------------------------------------------------------------------------- */

#define FAST 40e-6 /* the device's clock */

static int64_t device_at(int64_t host)
{
	return INT64_C(1790000000000000000) + host + llround(FAST * (double)(host - SECOND));
}

static struct jm_work_time anchor_at(int64_t host, int64_t before, int64_t after)
{
	return (struct jm_work_time){device_at(host), host - before, host + after};
}

static void drift_is_taken_out(void **state)
{
	const struct jm_work_time from = anchor_at(100 * SECOND, 700, 700),
				  middle = anchor_at(103 * SECOND, 900, 700),
				  to = anchor_at(130 * SECOND, 500, 500);
	struct jm_alignment a = {.n = 0};

	(void)state;
	jm_alignment_add(&a, &from);
	assert_true(isnan(jm_alignment_drift(&a)));
	assert_int_equal(jm_alignment_host(&a, from.device_ns + 5), 100 * SECOND + 5);
	jm_alignment_add(&a, &middle);
	jm_alignment_add(&a, &to);
	assert_near(jm_alignment_drift(&a), 1e6 * FAST, 1e-3);
	for (int64_t t = 100 * SECOND; t <= 130 * SECOND; t += SECOND / 3)
		assert_near((double)(jm_alignment_host(&a, device_at(t)) - t), 0, 3);
	/* half of the widest, 800 ns, and the one anchor whose middle is 100 ns off */
	assert_near(jm_alignment_error(&a), 900, 3);
}

static void a_clock_that_jumps_shows_in_the_error(void **state)
{
	const struct jm_work_time from = anchor_at(100 * SECOND, 700, 700),
				  to = anchor_at(130 * SECOND, 500, 500);
	struct jm_work_time middle = anchor_at(115 * SECOND, 700, 700);
	struct jm_alignment a = {.n = 0};

	(void)state;
	middle.device_ns += 50000;
	jm_alignment_add(&a, &from);
	jm_alignment_add(&a, &middle);
	jm_alignment_add(&a, &to);
	assert_true(jm_alignment_error(&a) > 49000);
}

/* ---- steady state ---------------------------------------------------------------------------- */

/* Seconds until the rule holds; each half second a reading of whole degrees, as GPUs report. NAN:
 * never in 10 min. missing: with one of so many readings of both, but not at once; 0 = none. */
static double warms_up_with_gaps(double tau_s, double rise_k, double leak, int missing)
{
	struct jm_steady s = {.n = 0};

	for (int i = 0; i < 1200; i++) {
		double t = 0.5 * i;
		double celsius = 40 + rise_k * (1 - exp(-t / tau_s));
		double watts = 600 * (1 + leak * (1 - exp(-t / tau_s)));

		if (missing && i % missing == 2)
			celsius = NAN;
		if (missing && i % missing == 4)
			watts = NAN;
		jm_steady_add(&s, llround(1e9 * t), floor(celsius), watts);
		if (jm_steady_is(&s))
			return t;
	}
	return NAN;
}

static double warms_up(double tau_s, double rise_k, double leak)
{
	return warms_up_with_gaps(tau_s, rise_k, leak, 0);
}

static void steady_when_the_law_says_so(void **state)
{
	double at;

	(void)state;
	assert_near(warms_up(30, 0, 0), 10, 0.5); /* the window must be full */
	/* the slope is below 1 K in 10 s from tau ln(rise 10 / tau) on: 30 ln 10 = 69 s, in the
	 * window's middle */
	at = warms_up(30, 30, 0);
	assert_true(at > 60 && at < 90);
	/* power alone: 5 % leakage, 1 % in 10 s: 30 ln(0.05 10 / 30 / 0.01) = 15 s */
	at = warms_up(30, 0.1, 0.05);
	assert_true(at > 15 && at < 30);
}

static void readings_that_are_missing_hide_no_change(void **state)
{
	(void)state;
	assert_near(warms_up_with_gaps(30, 30, 0, 7), warms_up(30, 30, 0), 4);
	assert_near(warms_up_with_gaps(30, 0.1, 0.05, 7), warms_up(30, 0.1, 0.05), 1);
}

static void unknown_temperature_does_not_hinder(void **state)
{
	struct jm_steady s = {.n = 0}, none = {.n = 0};
	double kelvin, watts;

	(void)state;
	for (double t = 0; t < 12; t += 0.5) {
		jm_steady_add(&s, llround(1e9 * t), NAN, 500);
		jm_steady_add(&none, llround(1e9 * t), NAN, NAN);
	}
	jm_steady_change(&s, &kelvin, &watts);
	assert_true(isnan(kelvin));
	assert_near(watts, 0, 1e-12);
	assert_true(jm_steady_is(&s));
	assert_false(jm_steady_is(&none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(power_is_held),
		cmocka_unit_test(load_that_changes_is_followed),
		cmocka_unit_test(out_of_reach_is_no_pause),
		cmocka_unit_test(drift_is_taken_out),
		cmocka_unit_test(a_clock_that_jumps_shows_in_the_error),
		cmocka_unit_test(steady_when_the_law_says_so),
		cmocka_unit_test(readings_that_are_missing_hide_no_change),
		cmocka_unit_test(unknown_temperature_does_not_hinder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
