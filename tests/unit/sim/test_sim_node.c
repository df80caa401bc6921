/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated node through its source and control, in simulated and in real time. */
#include "kit/sim_bench.h"
#include "guard/control.h"

#include <time.h>

extern const struct jm_control jm_control_sim;

/* ---- meters ---------------------------------------------------------------------------------- */

static void meters_are_like_a_gpus(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, "h200x3", true);
	assert_int_equal(b.meters.n, 6);
	assert_int_equal(b.meters.n_signals, 3 * SIGNALS);
	jm_meters_derive(&b.meters);
	for (int i = 0; i < b.meters.n; i++) {
		const struct jm_meter *m = &b.meters.meter[i];

		assert_int_equal(m->origin, JM_SIMULATED);
		assert_int_equal(m->scope, i % 2 ? JM_SCOPE_GPU_MEMORY : JM_SCOPE_GPU);
		assert_int_equal(m->covered_by, i % 2 ? i - 1 : -1);
		assert_int_equal(m->overlaps, -1);
		assert_non_null(strstr(m->label, "simulated"));
		assert_string_equal(m->device, b.meters.meter[i / 2 * 2].id);
	}
	assert_string_equal(b.meters.meter[2].id, "sim:h200x3/gpu1");
	bench_close(&b);
}

/* ---- sensor ---------------------------------------------------------------------------------- */

static void an_idle_node_is_steady(void **state)
{
	struct bench b;

	(void)state;
	bench_open(&b, "h100x1", true);
	for (int i = 0; i < 50; i++) {
		until(&b, 0.17 * i);
		assert_near(value(&b, 0, JM_Q_POWER), 75, 75 * 0.004 * 3.5);
		assert_near(value(&b, 0, JM_Q_TEMPERATURE), 37, 0);
		assert_near(value(&b, 0, JM_Q_UTILISATION), 0, 0);
		assert_near(value(&b, 0, JM_Q_THROTTLE), 0, 0);
		assert_near(value(&b, 0, JM_Q_CLOCK), 345e6, 0);
		assert_near(value(&b, 0, JM_Q_LIMIT), 700, 0);
	}
	bench_close(&b);
}

static void readings_are_of_the_last_refresh(void **state)
{
	struct jm_reading last = {.t_ns = -1}, now;
	struct bench b;
	int changes = 0;

	(void)state;
	bench_open(&b, "h100x2", true);
	for (int ms = 1; ms <= 1000; ms++) {
		until(&b, ms * 1e-3);
		now = read_signal(&b, 1, JM_Q_ENERGY);
		assert_true(now.t_ns <= jm_ctx_now(&b.ctx) && now.t_ns >= 0);
		assert_true(jm_ctx_now(&b.ctx) - now.t_ns < 100 * JM_MILLISECOND);
		assert_true(now.value >= last.value);
		if (changes > 1 && now.t_ns != last.t_ns)
			assert_int_equal(now.t_ns - last.t_ns, 100 * JM_MILLISECOND);
		changes += now.t_ns != last.t_ns;
		assert_true(now.t_ns != last.t_ns || now.value == last.value);
		last = now;
	}
	assert_in_range(changes, 10, 12);
	bench_close(&b);
}

/* Energy worked out on paper: an idle second, then the lag to 500 W, then 500 W. */
static void the_counter_is_the_exact_integral(void **state)
{
	const double lag = 0.03, idle = 75, watts = 500, on = 1.2345;
	struct jm_reading first, last;
	struct bench b;
	double seconds, rest;

	(void)state;
	bench_open(&b, "h100x4", true);
	set_caps(&b, watts);
	for (int gpu = 0; gpu < 4; gpu++) {
		first = read_signal(&b, gpu, JM_Q_ENERGY);
		assert_int_equal(first.t_ns, 0);
	}
	first = read_signal(&b, 2, JM_Q_ENERGY);
	until(&b, on);
	load(&b, "vit-l16", 1);
	until(&b, 100);
	last = read_signal(&b, 2, JM_Q_ENERGY);
	seconds = (double)last.t_ns * 1e-9;
	rest = seconds - on;
	assert_near(last.value - first.value,
		idle * on + watts * rest - (watts - idle) * lag * (1 - exp(-rest / lag)), 2e-3);
	assert_near(value(&b, 2, JM_Q_POWER), watts, watts * 0.004 * 3.5);
	assert_near(value(&b, 2, JM_Q_POWER_AVERAGE), watts, watts * 0.004 * 2);
	bench_close(&b);
}

static void power_is_the_mean_of_its_window(void **state)
{
	struct jm_sim_node *node;
	struct jm_err err = JM_ERR_INIT;
	struct bench b;
	const struct jm_sim_sample *s;

	(void)state;
	bench_open(&b, "h200x1", true);
	assert_ok(jm_sim_node_open(&b.ctx, "h200x1", &node, &err), err);
	until(&b, 2.0);
	load(&b, "resnet50", 5);
	for (int i = 0; i < 30; i++) {
		double sum = 0, sum_long = 0, noise;
		int n = 2500;

		until(&b, 2.0 + 0.11 * (i + 1));
		jm_sim_node_advance(node);
		s = jm_sim_node_read(node, 0);
		for (int k = 0; k < n; k++) {
			sum += jm_sim_node_truth(node, 0, s->t_ns - (2 * k + 1) * 5000).watts;
			sum_long +=
				jm_sim_node_truth(node, 0, s->t_ns - (2 * k + 1) * 200000).watts;
		}
		noise = s->watts / (sum / n) - 1;
		assert_true(fabs(noise) < 0.004 * 3.5 + 1e-4);
		assert_near(s->watts_average, sum_long / n, sum_long / n * 0.004 * 3.5 + 0.5);
	}
	jm_sim_node_close(node);
	bench_close(&b);
}

static void polling_does_not_show(void **state)
{
	struct jm_reading seen[2][SIGNALS_MAX * 2];

	(void)state;
	for (int often = 0; often < 2; often++) {
		struct jm_err err = JM_ERR_INIT;
		struct bench b;

		bench_open(&b, "mi300xx2", true);
		set_caps(&b, 700);
		for (int i = 1; i <= 1200; i++) {
			until(&b, 0.05 * i);
			if (i == 101)
				load(&b, "sd-v2", 9);
			if (i == 500)
				set_caps(&b, 450);
			if (i == 900)
				jm_sim_registers_unload(b.registers);
			if (often)
				read_signal(&b, 0, JM_Q_POWER);
		}
		assert_ok(read_row(&jm_source_sim, b.source, seen[often], &err), err);
		bench_close(&b);
	}
	assert_memory_equal(seen[0], seen[1], sizeof(seen[0]));
}

static void seeds_decide_the_noise(void **state)
{
	double watts[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct bench b;

		bench_open(&b, "h100x1", true);
		load(&b, "sd-v2", i < 2 ? 1 : 2);
		until(&b, 10);
		watts[i] = value(&b, 0, JM_Q_POWER);
		bench_close(&b);
	}
	assert_true(watts[0] == watts[1]);
	assert_true(watts[0] != watts[2]);
}

static void heat_comes_and_goes(void **state)
{
	struct bench b;
	double warm;

	(void)state;
	bench_open(&b, "h100x1", true);
	set_caps(&b, 600);
	load(&b, "llama3-8b-train", 1);
	until(&b, 20); /* one time constant */
	warm = value(&b, 0, JM_Q_TEMPERATURE);
	assert_near(warm, 35 + 0.03 * (600 - (600 - 75) * exp(-1)), 1.1);
	until(&b, 400);
	assert_near(value(&b, 0, JM_Q_TEMPERATURE), 53, 1);
	jm_sim_registers_unload(b.registers);
	until(&b, 420);
	assert_true(value(&b, 0, JM_Q_TEMPERATURE) < 53 - 5);
	assert_true(value(&b, 0, JM_Q_POWER_AVERAGE) > 75.2); /* leakage of what is still warm */
	until(&b, 900);
	assert_near(value(&b, 0, JM_Q_TEMPERATURE), 37, 0.5);
	bench_close(&b);
}

/* ---- caps ------------------------------------------------------------------------------------ */

static void a_binding_cap_shows(void **state)
{
	struct bench b;
	double at_300;

	(void)state;
	bench_open(&b, "h100x1", true);
	set_caps(&b, 300);
	load(&b, "resnet50", 1);
	until(&b, 30);
	assert_near(value(&b, 0, JM_Q_THROTTLE), JM_THROTTLE_POWER_CAP, 0);
	assert_near(value(&b, 0, JM_Q_POWER_AVERAGE), 300, 2);
	at_300 = value(&b, 0, JM_Q_CLOCK);
	set_caps(&b, 500);
	until(&b, 60);
	assert_true(value(&b, 0, JM_Q_CLOCK) > at_300 * 1.1);
	set_caps(&b, 700); /* more than the work draws */
	until(&b, 300);
	assert_near(value(&b, 0, JM_Q_THROTTLE), 0, 0);
	assert_near(value(&b, 0, JM_Q_POWER_AVERAGE), 650, 4);
	assert_near(value(&b, 0, JM_Q_CLOCK), 1980e6, 0);
	bench_close(&b);
}

static void low_caps_of_the_mi300x_are_violated(void **state)
{
	struct jm_knobs knobs = {0};
	struct jm_err err = JM_ERR_INIT;
	struct bench b;
	void *control;
	const struct jm_knob_value low = jm_knob_value_of(200), high = jm_knob_value_of(400);
	struct jm_knob_value requested, enforced;

	(void)state;
	bench_open(&b, "mi300xx8", true);
	assert_ok(jm_control_sim.open(&b.ctx, "mi300xx8", &knobs, &control, &err), err);
	assert_int_equal(knobs.n, 2 * 8); /* caps and clocks */
	for (int i = 0; i < 8; i++)
		assert_ok(jm_control_sim.set(control, i, &low, &err), err);
	assert_ok(jm_control_sim.get(control, 7, &requested, &enforced, &err), err);
	assert_near(requested.high, 200, 0);
	assert_near(enforced.high, 300, 0);
	load(&b, "vit-l16", 1);
	until(&b, 20);
	assert_near(value(&b, 7, JM_Q_POWER_AVERAGE), 300, 3);
	assert_near(value(&b, 7, JM_Q_LIMIT_REQUESTED), 200, 0);
	assert_near(value(&b, 7, JM_Q_LIMIT), 300, 0);
	assert_ok(jm_control_sim.set(control, 7, &high, &err), err);
	assert_ok(jm_control_sim.get(control, 7, &requested, &enforced, &err), err);
	assert_near(enforced.high, 400, 0);
	jm_control_sim.close(control);
	jm_knobs_done(&knobs);
	bench_close(&b);
}

static void who_waits_for_the_slowest_draws_less(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct bench b;

	(void)state;
	bench_open(&b, "h100x2", true);
	set_caps(&b, 700);
	assert_ok(jm_sim_registers_set_cap(b.registers, 0, 200, &err), err);
	load(&b, "llama3-8b-train", 1);
	until(&b, 60);
	assert_near(value(&b, 0, JM_Q_POWER_AVERAGE), 200, 2);
	assert_near(value(&b, 1, JM_Q_POWER_AVERAGE), 75 + 625 * 9699.3 / 30271.0, 4);
	bench_close(&b);
}

static void memory_is_a_part_of_its_gpu(void **state)
{
	struct jm_reading all[SIGNALS];
	struct jm_err err = JM_ERR_INIT;
	struct bench b;

	(void)state;
	bench_open(&b, "h100x1", true);
	load(&b, "sd-v2", 1);
	until(&b, 60);
	assert_ok(read_row(&jm_source_sim, b.source, all, &err), err);
	assert_near(all[SIGNALS - 1].value, 25 + 0.15 * (700 - 75), 3);
	bench_close(&b);
}

static void dies_are_parts_of_an_mi300x(void **state)
{
	static const enum jm_scope scopes[] = {
		JM_SCOPE_GPU, JM_SCOPE_GPU_CORE, JM_SCOPE_GPU_IO, JM_SCOPE_GPU_MEMORY};
	const double watts = 450 - 140,
		     expected[] = {40 + 0.1 * watts, 40 + 0.55 * watts, 50 + 0.2 * watts};
	struct jm_reading all[SIGNALS_MAX];
	struct jm_err err = JM_ERR_INIT;
	struct bench b;

	(void)state;
	bench_open(&b, "mi300xx1", true);
	assert_int_equal(b.meters.n, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(b.meters.meter[i].scope, scopes[i]);
	load(&b, "all-gather", 1);
	until(&b, 60);
	assert_ok(read_row(&jm_source_sim, b.source, all, &err), err);
	for (int i = 0; i < 3; i++)
		assert_near(all[SIGNALS_MAX - 3 + i].value, expected[i], 4);
	bench_close(&b);
}

/* ---- cost ------------------------------------------------------------------------------------ */

static double cpu_seconds(void)
{
	return (double)clock() / CLOCKS_PER_SEC;
}

/* An hour at 100 Hz x 8 GPUs: must not be slow by an order (figures are bench/'s matter). */
static void an_hour_passes_quickly(void **state)
{
	struct jm_reading all[SIGNALS * 8];
	struct jm_err err = JM_ERR_INIT;
	struct bench b;
	double start = cpu_seconds();

	(void)state;
	bench_open(&b, "h100x8", true);
	set_caps(&b, 700);
	load(&b, "llama3-8b-train", 1);
	for (int i = 1; i <= 360000; i++) {
		jm_sleep_until(&b.sleeper, i * 10 * JM_MILLISECOND);
		assert_int_equal(read_row(&jm_source_sim, b.source, all, &err), 0);
	}
	assert_near(all[0].value, 3600 * 700 + 2 * 75, 100);
	print_message("an hour at 100 Hz x 8 GPUs: %.2f s of processor\n", cpu_seconds() - start);
	assert_true(cpu_seconds() - start < 20);
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(meters_are_like_a_gpus),
		cmocka_unit_test(an_idle_node_is_steady),
		cmocka_unit_test(readings_are_of_the_last_refresh),
		cmocka_unit_test(the_counter_is_the_exact_integral),
		cmocka_unit_test(power_is_the_mean_of_its_window),
		cmocka_unit_test(polling_does_not_show),
		cmocka_unit_test(seeds_decide_the_noise),
		cmocka_unit_test(heat_comes_and_goes),
		cmocka_unit_test(a_binding_cap_shows),
		cmocka_unit_test(low_caps_of_the_mi300x_are_violated),
		cmocka_unit_test(who_waits_for_the_slowest_draws_less),
		cmocka_unit_test(memory_is_a_part_of_its_gpu),
		cmocka_unit_test(dies_are_parts_of_an_mi300x),
		cmocka_unit_test(an_hour_passes_quickly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
