/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the simulated GPU: curves, caps, names, noise, physics. */
#include "kit/test.h"
#include "sim/physics.h"

#include <stdio.h>

static const struct jm_sim_gpu *gpu_of(const char *name)
{
	const struct jm_sim_gpu *g = jm_sim_gpus;

	while (g->name && strcmp(g->name, name))
		g++;
	assert_non_null(g->name);
	return g;
}

static void curves_meet_their_points_and_rise(void **state)
{
	(void)state;
	for (const struct jm_sim_gpu *g = jm_sim_gpus; g->name; g++) {
		for (int k = 0; k < g->n_responses; k++) {
			const struct jm_sim_response *r = &g->response[k];
			struct jm_sim_curve curve;
			double last = 0;

			jm_sim_rate_curve(g, r, &curve);
			for (int i = 0; i < r->n; i++)
				assert_near(
					jm_sim_curve_at(&curve, jm_sim_busy_watts(g, r, r->cap[i])),
					r->rate[i], r->rate[i] * 1e-12);
			for (double cap = g->cap_min_watts; cap <= g->cap_max_watts; cap += 0.5) {
				double rate = jm_sim_curve_at(&curve, jm_sim_busy_watts(g, r, cap));

				assert_true(rate >= last);
				last = rate;
			}
			assert_near(jm_sim_curve_at(&curve, 0), r->rate[0], 0);
			assert_near(jm_sim_curve_at(&curve, 1e4), r->rate[r->n - 1], 0);
		}
	}
}

/* GPUs that work together wait for the one with the lowest cap, wherever it stands. */
static void the_slowest_sets_the_pace(void **state)
{
	static const struct jm_sim_limits caps[][3] = {{{300, 1e10}, {600, 1e10}, {700, 1e10}},
		{{700, 1e10}, {300, 1e10}, {600, 1e10}}, {{700, 1e10}, {600, 1e10}, {300, 1e10}}};
	const struct jm_sim_gpu *g = gpu_of("h100");
	const struct jm_sim_response *r = &g->response[0];
	struct jm_sim_curve curve;

	(void)state;
	jm_sim_rate_curve(g, r, &curve);
	for (int i = 0; i < 3; i++)
		assert_near(jm_sim_common_rate(g, r, &curve, caps[i], 3),
			jm_sim_curve_at(&curve, jm_sim_busy_watts(g, r, 300)), 0);
}

/* Power above idle goes with the cube of a clock; below the curve the rate goes with the clock. */
static void clocks_limit_power(void **state)
{
	const struct jm_sim_gpu *g = gpu_of("h100");
	const struct jm_sim_response *r = &g->response[0]; /* draws 650 W, 75 W idle; 1980 MHz */
	const struct jm_sim_limits half = {700, 990e6}, third = {700, 660e6}, both = {300, 1800e6};
	struct jm_sim_curve curve;

	(void)state;
	jm_sim_rate_curve(g, r, &curve);
	assert_near(jm_sim_limited_watts(g, r, &half), 75 + 575 / 8., 1e-6);
	assert_near(jm_sim_limited_watts(g, r, &both), 300, 1e-6);
	assert_near(jm_sim_common_rate(g, r, &curve, &half, 1) /
			    jm_sim_common_rate(g, r, &curve, &third, 1),
		1.5, 1e-6);
}

/* scipy.interpolate.PchipInterpolator([200, 300, 400, 500, 600, 700], H100 ViT-L/16) of SciPy
 * 1.10 */
static void curves_are_pchip(void **state)
{
	static const double x[] = {210, 250, 333, 450, 555, 640, 690};
	static const double y[] = {128.7913879383, 173.7470546985, 233.0835996524, 270.6804613295,
		290.8662619199, 301.9553288889, 305.5663330556};
	const struct jm_sim_gpu *g = gpu_of("h100");
	struct jm_sim_curve curve;

	(void)state;
	jm_sim_rate_curve(g, &g->response[jm_sim_response_find(g, "vit-l16", NULL)], &curve);
	for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
		assert_near(jm_sim_curve_at(&curve, x[i]), y[i], 1e-9 * y[i]);
}

static void curves_of_two_points_and_of_turns(void **state)
{
	static const double x[] = {0, 1, 3, 4}, y[] = {0, 2, 2, 1};
	struct jm_sim_curve curve;

	(void)state;
	jm_sim_curve_init(&curve, 2, x, y);
	assert_near(jm_sim_curve_at(&curve, 0.25), 0.5, 1e-15);
	jm_sim_curve_init(&curve, 4, x, y);
	for (double at = 1; at <= 3; at += 0.01)
		assert_near(jm_sim_curve_at(&curve, at), 2, 1e-12); /* no overshoot */
}

static void names_are_kind_and_number(void **state)
{
	static const char *const bad[] = {"h100", "h100x", "h100x0", "h100x9", "h100x10", "h100x4 ",
		"h10x4", "x4", "h100x4x2"};
	struct jm_sim_name name = {0};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_ok(jm_sim_name_parse("mi300xx8", &name, &err), err);
	assert_string_equal(name.gpu->name, "mi300x");
	assert_int_equal(name.n, 8);
	assert_ok(jm_sim_name_parse("", &name, &err), err);
	assert_string_equal(name.text, "h100x4");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct jm_err refused = JM_ERR_INIT;

		assert_int_equal(jm_sim_name_parse(bad[i], &name, &refused), JM_EUSAGE);
		assert_sentence(&refused, JM_EUSAGE);
		assert_non_null(strstr(refused.text, "mi300x"));
		assert_string_equal(name.text, "h100x4"); /* untouched */
	}
}

static void a_node_without_a_number_is_told_so(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_sim_name name;

	(void)state;
	assert_int_equal(jm_sim_name_parse("mi300x", &name, &err), JM_EUSAGE);
	assert_non_null(strstr(err.text, "number of GPUs"));
}

static void unknown_responses_get_a_hint(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_int_equal(jm_sim_response_find(gpu_of("h200"), "resnet-50", &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
	assert_non_null(strstr(err.text, "'resnet50'"));
}

static void only_the_mi300x_violates_and_only_low_caps(void **state)
{
	(void)state;
	for (const struct jm_sim_gpu *g = jm_sim_gpus; g->name; g++) {
		bool mi300x = !strcmp(g->name, "mi300x");

		for (double cap = g->cap_min_watts; cap <= g->cap_max_watts; cap += 50) {
			double held = jm_sim_held_watts(g, cap);

			if (mi300x && cap < 400)
				assert_true(held > cap && held < 400);
			else
				assert_near(held, cap, 0);
		}
	}
}

static void noise_is_standard_and_repeats(void **state)
{
	enum { N = 200000 };
	double sum = 0, squares = 0, neighbours = 0, last = 0;

	(void)state;
	for (uint64_t i = 0; i < N; i++) {
		double x = jm_sim_noise(3, 1, i);

		assert_true(x == jm_sim_noise(3, 1, i));
		assert_true(fabs(x) < 3.5);
		sum += x;
		squares += x * x;
		neighbours += x * last;
		last = x;
	}
	assert_near(sum / N, 0, 0.01);
	assert_near(squares / N, 1, 0.01);
	assert_near(neighbours / N, 0, 0.01);
	assert_true(jm_sim_noise(3, 1, 5) != jm_sim_noise(4, 1, 5));
	assert_true(jm_sim_noise(3, 1, 5) != jm_sim_noise(3, 2, 5));
}

/* ---- physics: the closed form against plain small steps -------------------------------------- */

static void closed_form_equals_small_steps(
	const struct jm_sim_gpu *g, double from_watts, double watts, bool regulated, double seconds)
{
	struct jm_sim_state start = jm_sim_steady(g, from_watts), at;
	struct jm_sim_segment segment;
	double p = start.watts, q = start.celsius, e = 0, h = 2e-5;
	double leak = regulated ? 0 : g->leakage_watts_per_kelvin;
	double settled = g->ambient_celsius + g->thermal_resistance * watts;
	long steps = lround(seconds / h);

	for (long i = 0; i < steps; i++) { /* Heun */
		double dp = (watts + leak * (q - settled) - p) / g->power_lag_s;
		double dq = (g->ambient_celsius + g->thermal_resistance * p - q) / g->thermal_lag_s;
		double p1 = p + h * dp, q1 = q + h * dq;
		double dp1 = (watts + leak * (q1 - settled) - p1) / g->power_lag_s;
		double dq1 =
			(g->ambient_celsius + g->thermal_resistance * p1 - q1) / g->thermal_lag_s;
		double next = p + h * (dp + dp1) / 2;

		e += h * (p + next) / 2;
		p = next;
		q += h * (dq + dq1) / 2;
	}
	jm_sim_segment_init(&segment, g, 5 * 1000000000ll, &start, watts, regulated);
	at = jm_sim_segment_at(&segment, 5 * 1000000000ll + llround(seconds * 1e9));
	assert_near(at.watts, p, 1e-3);
	assert_near(at.celsius, q, 1e-4);
	assert_near(at.joules, e, 1e-4 * seconds + 1e-3);
}

static void physics_solves_its_equations(void **state)
{
	(void)state;
	for (const struct jm_sim_gpu *g = jm_sim_gpus; g->name; g++) {
		closed_form_equals_small_steps(g, g->idle_watts, 650, true, 0.1);
		closed_form_equals_small_steps(g, g->idle_watts, 700, false, 0.05);
		closed_form_equals_small_steps(g, 700, 200, true, 3);
		closed_form_equals_small_steps(g, 700, g->idle_watts, false, 20);
	}
}

static void physics_settles_and_joins(void **state)
{
	const struct jm_sim_gpu *g = gpu_of("mi300x");
	struct jm_sim_state from = jm_sim_steady(g, 140), at, via;
	struct jm_sim_segment whole, second;

	(void)state;
	jm_sim_segment_init(&whole, g, 0, &from, 750, false);
	at = jm_sim_segment_at(&whole, 0);
	assert_near(at.watts, 140, 1e-9);
	assert_near(at.celsius, 30 + 0.055 * 140, 1e-9);
	at = jm_sim_segment_at(&whole, 600 * INT64_C(1000000000));
	assert_near(at.watts, 750, 1e-3);
	assert_near(at.celsius, 30 + 0.055 * 750, 1e-3);
	/* the same inputs again in the middle change nothing */
	via = jm_sim_segment_at(&whole, 7 * INT64_C(1000000000));
	jm_sim_segment_init(&second, g, 7 * INT64_C(1000000000), &via, 750, false);
	via = jm_sim_segment_at(&second, 600 * INT64_C(1000000000));
	assert_near(via.joules, at.joules, 1e-6);
	assert_near(via.celsius, at.celsius, 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(curves_meet_their_points_and_rise),
		cmocka_unit_test(the_slowest_sets_the_pace),
		cmocka_unit_test(clocks_limit_power),
		cmocka_unit_test(curves_are_pchip),
		cmocka_unit_test(curves_of_two_points_and_of_turns),
		cmocka_unit_test(names_are_kind_and_number),
		cmocka_unit_test(a_node_without_a_number_is_told_so),
		cmocka_unit_test(unknown_responses_get_a_hint),
		cmocka_unit_test(only_the_mi300x_violates_and_only_low_caps),
		cmocka_unit_test(noise_is_standard_and_repeats),
		cmocka_unit_test(physics_solves_its_equations),
		cmocka_unit_test(physics_settles_and_joins),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
