/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the sampling bound with the true error for loads that are faster or slower than the
 * sensor, by period of the load and measured time: loads of known energy through a sensor like an
 * H100's (refresh 100 ms, power over 25 ms, counter in steps of 100 ms), in simulated time.
 *
 *	energy_bounds [runs per cell [kind or "all" [limit in W, 0 = none [power's window in s]]]]
 *	energy_bounds near [rounds [seed]]	power alone, periods near multiples and fractions of
 *						the refresh
 *
 * After the tables it prints how narrow the bounds of a counter alone, and those of few readings of
 * power alone, could be (see narrowest()).
 */
#include "../tests/kit/wave.h"
#include "base/stat/stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ERRORS 200000
#define N(a)	   ((int)(sizeof(a) / sizeof((a)[0])))

/* s: the measured intervals; the limits between which the periods of loads are drawn at random;
 * periods in step with the sensor. */
static const double stretches[] = {0.2, 0.5, 1, 3, 10};
static const double periods[] = {0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10};
static const double locked[] = {0.02, 0.05, 0.1, 0.2};

#define ROWS	 (N(periods) - 1)
#define SLOW	 8     /* rows from here on: loads that change little in few readings */
#define ROOM	 20000 /* loads in a row */
#define SAME	 14    /* W: readings that are no farther apart are alike */
#define MAY_MISS 0.05
#define NO_BOUND 1e6 /* J */

struct sensor {
	const char *name;
	bool no_counter, no_power;
	int narrowest; /* index of the stretch that narrowest() looks at; -1 = none */
};
static const struct sensor sensors[] = {
	{"counter and power", false, false, -1},
	{"counter alone", false, true, 3},
	{"power alone", true, false, 0},
};

struct cell {
	double error[MAX_ERRORS], bound[MAX_ERRORS], joules;
	int n, held, unknown;
};

struct load {
	double error, bound; /* J */
	bool alike;	     /* its readings */
};

/* Results of one sensor and measured interval, by period. */
static struct row {
	struct load load[ROOM];
	int n;
} rows[ROWS];
static int row_index;	    /* -1 = none of these */
static struct row *row_now; /* NULL = none of these */

#define STRETCHES N(stretches)
static struct cell one, by_stretch[STRETCHES], by_kind[WAVE_KINDS][STRETCHES];
static int stretch_now;
static uint64_t first_seed = 20261122;
static double limit = 700;	  /* W, of the device; 0 = no limit is known */
static double its_window = 0.025; /* s, of the power */

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

static double quantile(double *values, int n, double q)
{
	qsort(values, (size_t)n, sizeof(*values), jm_stat_by_value);
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

/* True if the means over `window` that a sensor reports in the interval, and one before and one
 * after it, are alike. */
static bool is_alike(const struct wave *w, double t0, double t1, double phase, double window)
{
	double refresh = wave_setup.refresh;
	double least = INFINITY, most = 0;

	for (double k = floor((t0 - phase) / refresh); k * refresh + phase < t1 + refresh; k++) {
		double tick = k * refresh + phase;
		double watts = (wave_joules(w, tick) - wave_joules(w, tick - window)) / window;

		least = fmin(least, watts);
		most = fmax(most, watts);
	}
	return most - least <= SAME;
}

static bool readings_alike(const struct wave *w, double t0, double t1)
{
	double phase = wave_setup.tick_phase;

	if (wave_setup.no_counter)
		return is_alike(w, t0, t1, phase + wave_setup.power_phase, wave_setup.window);
	return is_alike(w, t0, t0, phase, wave_setup.refresh) &&
	       is_alike(w, t1, t1, phase, wave_setup.refresh);
}

static void note_load(const struct wave *w, const struct wave_run *run, const struct load *load)
{
	struct load *next = row_now ? &row_now->load[row_now->n] : NULL;

	if (!next || row_now->n == ROOM)
		return;
	*next = *load;
	next->alike = readings_alike(w, run->t0, run->t1);
	row_now->n++;
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
		if (kind[i] < WAVE_KINDS)
			note(&by_kind[kind[i]][stretch_now], e.joules - truth, e.error_sampling,
				truth);
		note_load(w, run,
			&(struct load){.error = fabs(e.joules - truth), .bound = e.error_sampling});
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
	wave_setup.limit = limit;
	wave_setup.window = its_window;
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

/* ---- how narrow a bound of few readings can be ---- */

static int by_error(const void *a, const void *b)
{
	return jm_stat_by_value(&((const struct load *)a)->error, &((const struct load *)b)->error);
}

static double row_p95(const struct row *r)
{
	return r->load[(int)(0.95 * r->n)].error; /* sorted by now */
}

static double alike_share(const struct row *r)
{
	int alike = 0;

	for (int i = 0; i < r->n; i++)
		alike += r->load[i].alike;
	return (double)alike / r->n;
}

/* J: the narrowest bound of the row's other readings, if this is that of readings that are
 * alike. */
static double narrowest_of_row(const struct row *r, double alike)
{
	double may_miss = MAY_MISS * r->n;

	for (int i = r->n - 1; i >= 0; i--)
		may_miss -= r->load[i].alike && r->load[i].error > alike;
	if (may_miss < 0)
		return NO_BOUND;
	for (int i = r->n - 1; i >= 0; i--)
		if (!r->load[i].alike && --may_miss < 0)
			return r->load[i].error;
	return 0;
}

static double narrowest_of_others(const struct row *of, double alike)
{
	double bound = 0;

	for (int i = 0; i < ROWS; i++)
		bound = fmax(bound, narrowest_of_row(&of[i], alike));
	return bound;
}

static double narrowest_of_alike(const struct row *of)
{
	double low = 0, high = NO_BOUND / 2;

	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;

		if (narrowest_of_others(of, middle) < NO_BOUND)
			high = middle;
		else
			low = middle;
	}
	return high;
}

static void print_pair(const struct row *of, double alike)
{
	double others = narrowest_of_others(of, alike);
	double least = fmin(alike, others), most = fmax(alike, others);

	printf("%6.1f J %6.1f J ", alike, others);
	for (int i = SLOW; i < ROWS; i++) {
		double share = alike_share(&of[i]); /* of those that have the smaller bound */

		if (alike > others)
			share = 1 - share;
		printf("| x%-5.2f", (share >= 0.5 ? least : most) / row_p95(&of[i]));
	}
	printf("\n");
}

static void print_own(const struct row *of)
{
	static double bound[2][ROWS * ROOM];
	int n[2] = {0};

	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < of[i].n; k++) {
			bool alike = of[i].load[k].alike;

			bound[alike][n[alike]++] = of[i].load[k].bound;
		}
	printf("%6.1f J %6.1f J  joulemark's bound: the medians\n\n", quantile(bound[1], n[1], 0.5),
		quantile(bound[0], n[0], 0.5));
}

/*
 * One bound for readings that are alike and one for the others, chosen with knowledge of all errors
 * of these loads, so that each row holds 95 %. A narrower bound of one of them needs a wider bound
 * of the other.
 */
static void narrowest(struct row *of, const struct sensor *sensor)
{
	static const double wider[] = {1, 1.25, 1.5, 2, 3, 4, 5, 6};
	double alike;

	for (int i = 0; i < ROWS; i++)
		qsort(of[i].load, (size_t)of[i].n, sizeof(of[i].load[0]), by_error);
	alike = narrowest_of_alike(of);
	printf("%s, %g s: narrowest pairs of bounds, of readings that are alike and of others, "
	       "that "
	       "hold "
	       "95 %% in each row,\nand medians / p95",
		sensor->name, stretches[sensor->narrowest]);
	for (int i = SLOW; i < ROWS; i++)
		printf(" | %g-%g ms", 1e3 * periods[i], 1e3 * periods[i + 1]);
	printf("\n");
	for (int i = 0; i < N(wider); i++)
		print_pair(of, wider[i] * alike);
	print_own(of);
}

/* ---- the tables ---- */

static void row(const struct sensor *sensor, double shortest, double longest, int runs, int kind)
{
	printf("%5.0f-%5.0f ms ", 1e3 * shortest, 1e3 * longest);
	for (int k = 0; k < STRETCHES; k++) {
		uint64_t seed = first_seed;

		stretch_now = k;
		row_now = row_index >= 0 && k == sensor->narrowest ? &rows[row_index] : NULL;
		for (int i = 0; i < runs; i++)
			measure(sensor, shortest, longest, stretches[k], kind, &seed);
		print(&one);
	}
	printf("\n");
}

static void print_row(const char *name, struct cell *of)
{
	printf("%-15s", name);
	for (int k = 0; k < STRETCHES; k++)
		print(&of[k]);
	printf("\n");
}

/* Combines all periods; empties the cells. */
static void by_wave_form(int kind)
{
	printf("by wave form, over all periods:\n");
	for (int i = 0; i < WAVE_KINDS; i++)
		if (kind < 0 || i == kind)
			print_row(wave_kind_names[i], by_kind[i]);
	print_row("all", by_stretch);
}

/* Periods in step with the sensor are not among the loads of the other tables. */
static void in_step(const struct sensor *sensor, int runs, int kind)
{
	printf("periods exactly so, in step with the sensor:\n");
	for (int i = 0; i < N(locked); i++)
		row(sensor, locked[i], locked[i], runs, kind);
	print_row("all", by_stretch);
	memset(by_kind, 0, sizeof(by_kind));
}

static void table(const struct sensor *sensor, int runs, int kind)
{
	printf("%s: held, p95 of the error, median bound / p95, by period and measured stretch\n"
	       "               ",
		sensor->name);
	for (int k = 0; k < STRETCHES; k++)
		printf("| %4.1f s               ", stretches[k]);
	printf("\n");
	for (int i = 0; i < ROWS; i++) {
		row_index = i;
		rows[i].n = 0;
		row(sensor, periods[i], periods[i + 1], runs, kind);
	}
	row_index = -1;
	by_wave_form(kind);
	in_step(sensor, runs, kind);
	printf("\n");
}

/* ---- periods near multiples and fractions of the refresh ---- */

struct near {
	double shortest, longest; /* refreshes */
	int kind;		  /* -1 = all of one period */
};
static const struct near nears[] = {
	{0.975, 0.995, WAVE_SQUARE},
	{1.005, 1.025, WAVE_SQUARE},
	{3.9, 4.1, WAVE_SPIKES},
};
static const double multiples[] = {1. / 4, 1. / 3, 1. / 2, 2. / 3, 1, 3. / 2, 2, 3, 4, 5, 6, 8};
/* With loads whose period is not constant, or not one. */
static const double irregular[] = {1. / 3, 1. / 2, 1, 2, 3, 4};

static void near_row(const struct near *near, int runs)
{
	double refresh = 0.1;

	printf("%-10s", near->kind < 0 ? "all" : wave_kind_names[near->kind]);
	row(&sensors[2], refresh * near->shortest, refresh * near->longest, runs, near->kind);
}

static void near_multiple(double of, int kind, int runs)
{
	near_row(&(struct near){0.95 * of, 1.05 * of, kind}, runs);
}

static void near_resonance(int runs)
{
	row_index = -1;
	printf("power alone, near resonance: held, p95 of the error, median bound / p95\n");
	for (int i = 0; i < N(nears); i++)
		near_row(&nears[i], runs);
	for (int i = 0; i < N(multiples); i++)
		near_multiple(multiples[i], -1, runs);
	for (int i = 0; i < N(irregular); i++)
		for (int kind = WAVE_KINDS; kind < WAVE_ALL_KINDS; kind++)
			near_multiple(irregular[i], kind, runs);
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

	if (argc > 1 && !strcmp(argv[1], "near")) {
		if (argc > 3)
			first_seed = strtoull(argv[3], NULL, 10);
		near_resonance(argc > 2 ? atoi(argv[2]) : 500);
		return 0;
	}
	if (argc > 3)
		limit = atof(argv[3]);
	if (argc > 4)
		its_window = atof(argv[4]);

	for (int i = 0; i < N(sensors); i++) {
		table(&sensors[i], runs, kind);
		if (runs > 0 && sensors[i].narrowest >= 0)
			narrowest(rows, &sensors[i]);
	}
	return 0;
}
