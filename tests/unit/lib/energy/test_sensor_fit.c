/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a sensor are found from its readings. The sensor is computed in steps of 0.1
 * ms: power follows the load by an equation that is integrated step by step, the window is a
 * running sum.
 */
#include "kit/test.h"

#include "base/clock.h"
#include "energy/sensor_fit.h"

#define GRID	 1e-4 /* s */
#define SECONDS	 60
#define POINTS	 (SECONDS * 10000)
#define EDGES	 400
#define READINGS (SECONDS * 500)

struct hidden {
	double refresh, window, delay, rise; /* s */
	double low, high, noise, drift;	     /* W; noise relative; drift in W over all */
	bool counter, stamped;
};

static double joules[POINTS + 1];
static int64_t edges[EDGES];
static struct jm_reading readings[READINGS], changes[READINGS];

static double uniform(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (double)(*seed >> 11) * 0x1p-53;
}

static double normal(uint64_t *seed)
{
	return uniform(seed) + uniform(seed) + uniform(seed) + uniform(seed) - 2; /* sd 0.577 */
}

/* Loads of 0.15 to 0.6 s; returns the number of edges. */
static int make_edges(uint64_t *seed)
{
	int n = 0;

	for (double t = 1; t < SECONDS - 1 && n < EDGES; t += 0.15 + 0.45 * uniform(seed))
		edges[n++] = (int64_t)(t * 1e9);
	return n;
}

static void make_power(const struct hidden *h, int n_edges)
{
	double level = 0;
	int k = 0;

	for (int i = 0; i < POINTS; i++) {
		double t = i * GRID, load;

		while (k < n_edges && (double)edges[k] * 1e-9 <= t)
			k++;
		load = k % 2;
		level = h->rise > 0 ? level + (load - level) * GRID / h->rise : load;
		joules[i + 1] = joules[i] + GRID * (h->low + (h->high - h->low) * level +
							   h->drift * i / POINTS);
	}
}

static double joules_at(double t)
{
	double i = t / GRID;

	if (i <= 0)
		return joules[1] * i;
	if (i >= POINTS)
		return joules[POINTS];
	return joules[(int)i] + (joules[(int)i + 1] - joules[(int)i]) * (i - floor(i));
}

static double shown(const struct hidden *h, double tick, uint64_t *seed)
{
	double end = tick - h->delay;

	if (h->counter)
		return joules_at(end);
	return (joules_at(end) - joules_at(end - h->window)) / h->window *
	       (1 + h->noise / 0.577 * normal(seed));
}

/* Read every 2 ms or so; a value stays until the next refresh. */
static int read_sensor(const struct hidden *h, uint64_t *seed)
{
	double phase = h->refresh * uniform(seed), tick = -1, value = NAN;
	int n = 0;

	for (double t = 0.01; n < READINGS && t < SECONDS - 1;
		t += 0.0015 + 0.001 * uniform(seed)) {
		double now = floor((t - phase) / h->refresh) * h->refresh + phase;

		if (now > tick)
			value = shown(h, tick = now, seed);
		readings[n].value = value;
		readings[n++].t_ns = (int64_t)((h->stamped ? tick : t) * 1e9);
	}
	return n;
}

static struct jm_sensor_fit find(const struct hidden *h, uint64_t seed)
{
	struct jm_signal signal = {
		.quantity = h->counter ? JM_Q_ENERGY : JM_Q_POWER, .stamped = h->stamped};
	struct jm_load_edges load = {edges, make_edges(&seed)};
	struct jm_err err = JM_ERR_INIT;
	struct jm_sensor_fit fit;
	int n;

	make_power(h, load.n);
	n = read_sensor(h, &seed);
	n = jm_sensor_changes(&signal, readings, n, changes);
	assert_ok(jm_sensor_fit(signal.quantity, changes, n, &load, &fit, &err), err);
	return fit;
}

/* Within 5 %, and what the steps of reading and of this test leave open. */
static void check(const struct hidden *h, const struct jm_sensor_fit *fit)
{
	double slack = h->stamped ? 0.0005 : 0.0015;

	assert_near(fit->refresh.value, h->refresh, 0.05 * h->refresh);
	if (!h->counter)
		assert_near(fit->window.value, h->window, 0.05 * h->window + slack);
	assert_near(fit->delay.value, h->delay, 0.05 * h->delay + 2 * slack);
	assert_near(fit->low_watts, h->low + h->drift / 2, 0.02 * h->high);
	assert_near(fit->high_watts, h->high + h->drift / 2, 0.02 * h->high);
	assert_true(fit->window.error < 0.2 * h->window + 0.004 || h->counter);
}

/* Of a signal that does not follow the load only the refresh is reported. */
static void other_loads_are_refused(void **state)
{
	const struct hidden idle = {0.1, 0.025, 0, 0, 120, 120.2, 0.004, 0, false, false};
	const struct jm_signal signal = {.quantity = JM_Q_POWER};
	uint64_t seed = 5;
	struct jm_load_edges load = {edges, make_edges(&seed)};
	struct jm_err err = JM_ERR_INIT;
	struct jm_sensor_fit fit;
	int n;

	(void)state;
	make_power(&idle, load.n);
	n = jm_sensor_changes(&signal, readings, read_sensor(&idle, &seed), changes);
	assert_int_equal(jm_sensor_fit(JM_Q_POWER, changes, n, &load, &fit, &err), JM_ERANGE);
	assert_sentence(&err, JM_ERANGE);
	assert_near(fit.refresh.value, 0.1, 0.005);
	assert_true(isnan(fit.window.value) && isnan(fit.delay.value));
	assert_int_equal(jm_sensor_fit(JM_Q_POWER, changes, 20, &load, &fit, &err), JM_ERANGE);
	assert_int_equal(jm_sensor_fit(JM_Q_POWER, changes, 0, &load, &fit, &err), JM_ERANGE);
}

static void hidden_windows_are_found(void **state)
{
	static const struct hidden sensors[] = {
		{0.1, 0.025, 0, 0, 120, 600, 0.004, 0, false, false},
		{0.1, 0.025, 0.04, 0.02, 120, 600, 0.004, 20, false, true},
		{0.1, 0.1, 0.01, 0.01, 120, 300, 0.004, 0, false, false},
		{0.1, 1.0, 0.02, 0.03, 120, 690, 0.004, -15, false, false},
		{0.02, 0.01, 0.005, 0, 50, 250, 0.004, 0, false, false},
		{0.1, 0, 0.03, 0.02, 120, 600, 0, 10, true, false},
		{0.1, 0, 0, 0, 120, 600, 0, 0, true, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(sensors) / sizeof(sensors[0]); i++) {
		struct jm_sensor_fit fit = find(&sensors[i], 11 + i);

		check(&sensors[i], &fit);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hidden_windows_are_found),
		cmocka_unit_test(other_loads_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
