/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the energy and its bound with the truth, for programmed waveforms through a sensor
 * like an H100's (refresh 100 ms, window 25 ms, counter in 100 ms steps), in simulated time.
 *
 *	energy_accuracy [runs per row]
 */
#include "../tests/kit/wave.h"
#include "base/stat/stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ERRORS 100000

struct errors {
	double relative[MAX_ERRORS], absolute[MAX_ERRORS], bound[MAX_ERRORS];
	int n, held, unknown;
};

static bool apart; /* power and counter tick at different moments */
static struct errors counter, integrated, jpwr;

static void note(struct errors *e, double value, double truth, double bound)
{
	if (isnan(value)) {
		e->unknown++;
		return;
	}
	if (e->n == MAX_ERRORS)
		return;
	e->absolute[e->n] = fabs(value - truth);
	e->relative[e->n] = (value - truth) / truth;
	e->bound[e->n] = bound;
	e->held += fabs(value - truth) <= bound;
	e->n++;
}

static double quantile(double *values, int n, double q)
{
	qsort(values, (size_t)n, sizeof(*values), jm_stat_by_value);
	return n ? values[(int)fmin(n - 1, floor(q * n))] : NAN;
}

static void print(const char *name, struct errors *e)
{
	double mean = 0, sum = 0, worst = 0, p95, bound;

	for (int i = 0; i < e->n; i++) {
		mean += e->relative[i] / e->n;
		sum += fabs(e->relative[i]) / e->n;
		worst = fmax(worst, fabs(e->relative[i]));
	}
	p95 = quantile(e->absolute, e->n, 0.95);
	bound = quantile(e->bound, e->n, 0.5);
	printf("  %-12s n %5d  mean %+7.3f %%  mean|.| %6.3f %%  worst %6.3f %%", name, e->n,
		100 * mean, 100 * sum, 100 * worst);
	if (!isnan(bound))
		printf("  p95 %7.3f J  bound %7.3f J (x %.2f)  held %5.1f %%", p95, bound,
			bound / p95, 100.0 * e->held / e->n);
	printf("%s\n", e->unknown ? "  SOME UNKNOWN" : "");
}

/*
 * jpwr's method as its source describes it: samples in pairs (its sleep is computed from the end of
 * the loop before), right-hand rectangles over what it sampled, first sample dropped; the driver's
 * mean over one second, as nvmlDeviceGetPowerUsage gives it on a Hopper.
 */
static double jpwr_joules(const struct wave *w, double t0, double t1)
{
	double joules = 0, last = NAN;

	for (int i = 0;; i++) {
		double t = t0 + 0.1 * (i / 2) + (i % 2 ? 0.002 : 0.001), tick, watts;

		if (t > t1)
			return joules;
		tick = floor((t - wave_setup.tick_phase) / 0.1) * 0.1 + wave_setup.tick_phase;
		watts = wave_joules(w, tick) - wave_joules(w, tick - 1);
		if (!isnan(last))
			joules += watts * (t - last);
		last = t;
	}
}

static void judge(const struct wave_run *run)
{
	const struct jm_meters *set = jm_session_meters(run->session);

	for (int i = 0; i < set->n; i++) {
		const struct wave *w = &wave_setup.wave[i];
		double truth = wave_joules(w, run->t1) - wave_joules(w, run->t0);
		struct jm_err err = JM_ERR_INIT;
		struct jm_energy e;

		if (jm_session_energy(run->session, i, run->phase, &e, &err)) {
			printf("%s\n", err.text);
			exit(1);
		}
		if (wave_setup.no_counter)
			note(&integrated, e.joules_integrated, truth, e.error_sampling);
		else
			note(&counter, e.joules_counter, truth, e.error_sampling);
		note(&jpwr, jpwr_joules(w, run->t0, run->t1), truth, NAN);
	}
}

typedef void make_fn(struct wave *w, double end, uint64_t *seed);

static void one_run(make_fn *make, double length, bool no_counter, uint64_t *seed)
{
	double t0 = 1 + wave_uniform(seed, 0, 1);
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;

	wave_reset();
	wave_setup.gpus = WAVE_GPUS;
	wave_setup.no_counter = no_counter;
	wave_setup.tick_phase = wave_uniform(seed, 0, 0.1);
	if (apart)
		wave_setup.power_phase = wave_uniform(seed, 0, 0.1);
	for (int i = 0; i < WAVE_GPUS; i++)
		make(&wave_setup.wave[i], t0 + length + 1, seed);
	if (wave_measure(&run, t0, t0 + length, 0, &err)) {
		printf("%s\n", err.text);
		exit(1);
	}
	judge(&run);
	wave_close(&run);
}

static void row(const char *name, make_fn *make, double length, int runs)
{
	uint64_t seed = 20261120;

	counter.n = integrated.n = jpwr.n = 0;
	counter.held = integrated.held = counter.unknown = integrated.unknown = 0;
	for (int i = 0; i < runs; i++) {
		uint64_t same = seed;

		one_run(make, length, false, &seed);
		one_run(make, length, true, &same);
	}
	printf("%s, %.1f s:\n", name, length);
	print("counter", &counter);
	print("power only", &integrated);
	print("jpwr (model)", &jpwr);
}

static void square(struct wave *w, double end, uint64_t *seed)
{
	wave_square(w, 100, 600, 2, wave_uniform(seed, 0, 1), end);
}

static void telegraph(struct wave *w, double end, uint64_t *seed)
{
	wave_telegraph(w, 100, 600, exp(wave_uniform(seed, log(0.05), log(2))), end, seed);
}

static void levels(struct wave *w, double end, uint64_t *seed)
{
	wave_levels(w, 80, 700, exp(wave_uniform(seed, log(0.05), log(2))), end, seed);
}

static void ramps(struct wave *w, double end, uint64_t *seed)
{
	wave_ramps(w, 80, 700, exp(wave_uniform(seed, log(0.1), log(2))), end, seed);
}

static void any(struct wave *w, double end, uint64_t *seed)
{
	make_fn *const kinds[] = {telegraph, levels, ramps};
	double period = exp(wave_uniform(seed, log(0.05), log(4)));
	int kind = (int)(wave_random(seed) % 4);

	if (kind == 3)
		wave_square(w, 100, wave_uniform(seed, 200, 700), period, wave_uniform(seed, 0, 1),
			end);
	else
		kinds[kind](w, end, seed);
}

int main(int argc, char **argv)
{
	int runs = argc > 1 ? atoi(argv[1]) : 50;

	row("square wave 100/600 W, 2 s, shifted", square, 3.3, runs);
	row("square wave 100/600 W, 2 s, shifted", square, 7.3, runs);
	row("random telegraph, 50 ms to 2 s", telegraph, 3.3, runs);
	row("random levels, 50 ms to 2 s", levels, 3.3, runs);
	row("ramps, 0.1 to 2 s", ramps, 3.3, runs);
	row("random waveforms of all kinds", any, 3.3, runs);
	row("random waveforms of all kinds", any, 7.3, runs);
	row("random waveforms of all kinds", any, 0.7, runs);
	apart = true;
	printf("power and counter step at different moments:\n");
	row("square wave 100/600 W, 2 s, shifted", square, 3.3, runs);
	row("random waveforms of all kinds", any, 3.3, runs);
	return 0;
}
