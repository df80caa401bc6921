/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power inside work that is far shorter than its sensor's period, from many runs of it that begin
 * at other points of that period each (after FinGraV, arXiv 2412.12426). A reading is the mean of
 * power over the window W that ends at its time t, so one whose window holds a part of a run
 * depends on that part alone. With q(x) the power at x seconds after the begin of a run, less the
 * power between runs,
 *
 *	y(t) = base + 1/W integral of q(u - begin) du over the part of (t - W, t] that is in a run
 *
 * Where the sensor follows power with the time constant T (the circuit before the sensor smooths
 * power), the response to q takes its place: the integral of q(u) (1 - exp(-(t - u) / T)) du is
 * what a window that ends at t has seen of q. q is taken as constant in each of a number of bins,
 * and base and q are fitted by least squares. Runs that follow each other within W are refused:
 * their windows all hold whole runs, so they show the mean only.
 */
#ifndef JM_FOLDED_POWER_H
#define JM_FOLDED_POWER_H

#include "meter/meter.h"

#define JM_FOLD_BINS 32
#define JM_FOLD_RUNS 8 /* at least */
#define JM_FOLD_SURE                                                                               \
	0.15 /* of the mean: the 95 % error of each bin, where their number is chosen here */

struct jm_fold_runs {
	const int64_t *begin_ns, *end_ns; /* in order */
	int n;
};

struct jm_fold_sensor {
	double window_s, delay_s;
	double lag_s;	/* time constant with which it follows power; 0 = at once */
	double least_s; /* no bin is shorter: the precision of the times of readings */
};

struct jm_fold {
	double duration_s; /* of a run, median */
	int bins;	   /* of equal length */
	int readings,
		/* readings that were used, and how many of their windows hold part of a run */
		inside;
	double base_watts, base_error; /* between runs; errors are of 95 % and of sampling only */
	double watts[JM_FOLD_BINS], error[JM_FOLD_BINS];
	double joules, joules_error; /* of a run, base included */
	double rms_watts;	     /* of what the model leaves */
};

/*
 * readings: values and the times at which they held, in order (jm_sensor_changes). bins: 0 = as
 * many as JM_FOLD_SURE and least_s allow, at least one.
 * JM_ERANGE: too few runs or readings, runs too near each other, starts in step with the sensor, or
 * readings in which the runs are not found.
 */
int jm_fold(const struct jm_reading *readings, int n, const struct jm_fold_runs *runs,
	const struct jm_fold_sensor *sensor, int bins, struct jm_fold *ret, struct jm_err *err);

#endif
