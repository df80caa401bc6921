/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the sampling bound hold the true error, and how wide is it, for loads faster and slower than the
 * sensor? Loads of known energy by period and measured stretch through a sensor like an H100's (refresh
 * 100 ms, power over 25 ms, counter in steps of 100 ms), in simulated time.
 *
 *	energy_bounds [runs per cell [kind]]
 */
#include "../tests/unit/wave.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ERRORS 200000
#define LIMIT	   700 /* W, of the device */
#define N(a)	   ((int)(sizeof(a) / sizeof((a)[0])))

/* s: the measured stretches; the loads' periods, by chance from one to the next; periods in step with the
 * sensor. */
static const double stretches[] = {0.2, 0.5, 1, 3, 10};
static const double periods[] = {0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10};
static const double locked[] = {0.02, 0.05, 0.1, 0.2};

struct sensor {
	const char *name;
	bool no_counter, no_power;
};
static const struct sensor sensors[] = {
	{"counter and power", false, false},
	{"counter alone", false, true},
	{"power alone", true, false},
};

struct cell {
	double error[MAX_ERRORS], bound[MAX_ERRORS], joules;
	int n, held, unknown;
};

static struct cell one, by_stretch[8], by_kind[WAVE_KINDS];
static int stretch_now;

static void note(struct cell *c, double error, double bound, double joules)
{
	if (isnan(error)) {
		c->unknown++;
		return;
	}
	if (c->n == MAX_ERRORS)
		return;
	c->error[c->n] = fabs(error);
	c->bound[c->n++] = bound;
	c->joules += joules;
	c->held += fabs(error) <= bound;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *values, int n, double q)
{
	qsort(values, (size_t)n, sizeof(*values), by_value);
	return n ? values[(int)fmin(n - 1, floor(q * n))] : NAN;
}

/* "held % p95 of the error in % of the energy (median bound / p95)" */
static void print(struct cell *c)
{
	double p95 = quantile(c->error, c->n, 0.95), bound = quantile(c->bound, c->n, 0.5);

	printf("| %5.1f %5.2f%% x%-5.2f%s", 100.0 * c->held / c->n, 100 * p95 * c->n / c->joules,
		bound / p95, c->unknown ? "?" : " ");
	c->n = c->held = c->unknown = 0;
	c->joules = 0;
}

static void judge(const struct wave_run *run, const int *kind)
{
	for (int i = 0; i < wave_setup.gpus; i++) {
		const struct wave *w = &wave_setup.wave[i];
		double truth = wave_joules(w, run->t1) - wave_joules(w, run->t0);
		struct jm_err err = JM_ERR_INIT;
		struct jm_energy e;

		if (jm_session_energy(run->session, i, run->phase, &e, &err)) {
			printf("%s\n", err.text);
			exit(1);
		}
		note(&one, e.joules - truth, e.error_sampling, truth);
		note(&by_stretch[stretch_now], e.joules - truth, e.error_sampling, truth);
		note(&by_kind[kind[i]], e.joules - truth, e.error_sampling, truth);
	}
}

static void measure(const struct sensor *sensor, double shortest, double longest, double stretch,
	int only_kind, uint64_t *seed)
{
	double t0 = 1 + wave_uniform(seed, 0, 1);
	struct jm_err err = JM_ERR_INIT;
	int kind[WAVE_GPUS];
	struct wave_run run;

	wave_reset();
	wave_setup.limit = LIMIT;
	wave_setup.gpus = WAVE_GPUS;
	wave_setup.no_counter = sensor->no_counter;
	wave_setup.no_power = sensor->no_power;
	wave_setup.tick_phase = wave_uniform(seed, 0, 0.1);
	wave_setup.power_phase = wave_uniform(seed, 0, 0.1);
	for (int i = 0; i < WAVE_GPUS; i++) {
		double p = exp(wave_uniform(seed, log(shortest), log(longest)));

		kind[i] = only_kind >= 0 ? only_kind : i % WAVE_KINDS;
		wave_load(&wave_setup.wave[i], (enum wave_kind)kind[i], p, t0 + stretch + 1, seed);
	}
	if (wave_measure(&run, t0, t0 + stretch, 0, &err)) {
		printf("%s\n", err.text);
		exit(1);
	}
	judge(&run, kind);
	wave_close(&run);
}

static void row(const struct sensor *sensor, double shortest, double longest, int runs, int kind)
{
	printf("%5.0f-%5.0f ms ", 1e3 * shortest, 1e3 * longest);
	for (int k = 0; k < N(stretches); k++) {
		uint64_t seed = 20261122;

		stretch_now = k;
		for (int i = 0; i < runs; i++)
			measure(sensor, shortest, longest, stretches[k], kind, &seed);
		print(&one);
	}
	printf("\n");
}

static void table(const struct sensor *sensor, int runs, int kind)
{
	printf("%s: held, p95 of the error, median bound / p95, by period and measured stretch\n"
	       "               ",
		sensor->name);
	for (int k = 0; k < N(stretches); k++)
		printf("| %4.1f s               ", stretches[k]);
	printf("\n");
	for (int i = 0; i + 1 < N(periods); i++)
		row(sensor, periods[i], periods[i + 1], runs, kind);
	printf("all            ");
	for (int k = 0; k < N(stretches); k++)
		print(&by_stretch[k]);
	printf("\nall stretches  ");
	for (int i = 0; i < WAVE_KINDS; i++) {
		printf("| %s ", wave_kind_names[i]);
		print(&by_kind[i]);
	}
	printf("\nperiods exactly so, in step with the sensor:\n");
	for (int i = 0; i < N(locked); i++)
		row(sensor, locked[i], locked[i], runs, kind);
	printf("all            ");
	for (int k = 0; k < N(stretches); k++)
		print(&by_stretch[k]);
	for (int i = 0; i < WAVE_KINDS; i++)
		by_kind[i].n = by_kind[i].held = 0;
	printf("\n\n");
}

static int kind_of(const char *name)
{
	for (int i = 0; i < WAVE_KINDS; i++)
		if (!strcmp(name, wave_kind_names[i]))
			return i;
	return -1;
}

int main(int argc, char **argv)
{
	int runs = argc > 1 ? atoi(argv[1]) : 25;
	int kind = argc > 2 ? kind_of(argv[2]) : -1;

	for (int i = 0; i < N(sensors); i++)
		table(&sensors[i], runs, kind);
	return 0;
}
