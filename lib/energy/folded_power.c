/* SPDX-License-Identifier: Apache-2.0 */
#include "energy/folded_power.h"
#include "base/stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWNS (JM_FOLD_BINS + 1)
#define SINGULAR 1e-9 /* of a pivot, relative */
#define TAIL	 10   /* lags after which nothing of a run is left */
#define SEEN	 3    /* lags in which much of it is */

struct fit {
	const struct jm_reading *readings;
	const struct jm_fold_runs *runs;
	int n;
	struct jm_fold_sensor sensor;
	double duration_s;
	int bins;
	/* normal equations: sums of a a^T and a y; base is the last unknown */
	double matrix[UNKNOWNS][UNKNOWNS], right[UNKNOWNS], squares;
	double mean; /* of the readings: taken off before squares are summed up */
	int used, inside;
};

/* Integral from 0 to t of the response to a step at 0: what a sensor that follows with this lag has
 * seen. */
static double seen_of_step(double t, double lag_s)
{
	if (t <= 0)
		return 0;
	return lag_s > 0 ? t + lag_s * expm1(-t / lag_s) : t;
}

/* What it has seen, until t, of 1 W from a to b; J. */
static double seen_until(double t, double a, double b, double lag_s)
{
	return seen_of_step(t - a, lag_s) - seen_of_step(t - b, lag_s);
}

/* The first run that ends after t. */
static int first_after(const struct fit *f, int64_t t_ns)
{
	int low = 0, high = f->runs->n;

	while (low < high) {
		int middle = (low + high) / 2;

		if (f->runs->end_ns[middle] > t_ns)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int64_t to_ns(double s)
{
	return (int64_t)(s * 1e9);
}

/* What the window of a reading holds of 1 W in each bin, over its length; false = hardly anything
 * of a run. */
static bool shares_of(const struct fit *f, int reading, double *ret)
{
	double window = f->sensor.window_s, lag = f->sensor.lag_s, bin = f->duration_s / f->bins;
	int64_t t_ns = f->readings[reading].t_ns - to_ns(f->sensor.delay_s);
	int64_t from_ns = t_ns - to_ns(window);
	bool any = false;

	memset(ret, 0, sizeof(*ret) * (size_t)f->bins);
	for (int i = first_after(f, from_ns - to_ns(TAIL * lag));
		i < f->runs->n && f->runs->begin_ns[i] < t_ns; i++) {
		/* the window, seen from the begin of the run */
		double w0 = (double)(from_ns - f->runs->begin_ns[i]) * 1e-9, w1 = w0 + window;

		for (int k = 0; k < f->bins; k++)
			ret[k] += (seen_until(w1, k * bin, (k + 1) * bin, lag) -
					  seen_until(w0, k * bin, (k + 1) * bin, lag)) /
				  window;
		any = any || f->runs->end_ns[i] > from_ns - to_ns(SEEN * lag);
	}
	return any;
}

static void add_reading(struct fit *f, int reading)
{
	double a[UNKNOWNS], y = f->readings[reading].value - f->mean;

	f->inside += shares_of(f, reading, a);
	a[f->bins] = 1;
	for (int i = 0; i <= f->bins; i++) {
		for (int k = 0; k <= i; k++)
			f->matrix[i][k] += a[i] * a[k];
		f->right[i] += a[i] * y;
	}
	f->squares += y * y;
	f->used++;
}

/* A reading of the time of the runs, or of a window before or after. */
static bool belongs(const struct fit *f, int reading)
{
	int64_t slack =
		to_ns(2 * (f->sensor.window_s + f->sensor.delay_s) + TAIL * f->sensor.lag_s);
	int64_t t = f->readings[reading].t_ns;

	return !isnan(f->readings[reading].value) && t >= f->runs->begin_ns[0] - slack &&
	       t <= f->runs->end_ns[f->runs->n - 1] + slack;
}

static void sum_up(struct fit *f)
{
	f->mean = f->squares = 0;
	f->used = f->inside = 0;
	memset(f->matrix, 0, sizeof(f->matrix));
	memset(f->right, 0, sizeof(f->right));
	for (int i = 0; i < f->n; i++)
		if (belongs(f, i)) {
			f->mean += f->readings[i].value;
			f->used++;
		}
	f->mean /= f->used ? f->used : 1;
	f->used = 0;
	for (int i = 0; i < f->n; i++)
		if (belongs(f, i))
			add_reading(f, i);
}

/* Cholesky, in place; false = singular. */
static bool factor(struct fit *f)
{
	int n = f->bins + 1;

	for (int i = 0; i < n; i++) {
		double whole = f->matrix[i][i];

		for (int k = 0; k <= i; k++) {
			double sum = f->matrix[i][k];

			for (int j = 0; j < k; j++)
				sum -= f->matrix[i][j] * f->matrix[k][j];
			if (k < i)
				f->matrix[i][k] = sum / f->matrix[k][k];
			else if (!(sum > SINGULAR * whole))
				return false;
			else
				f->matrix[i][i] = sqrt(sum);
		}
	}
	return true;
}

/* x = L^-1 b; then, back, x = L^-T x. */
static void forward(const struct fit *f, double *x)
{
	for (int i = 0; i <= f->bins; i++) {
		for (int k = 0; k < i; k++)
			x[i] -= f->matrix[i][k] * x[k];
		x[i] /= f->matrix[i][i];
	}
}

static void backward(const struct fit *f, double *x)
{
	for (int i = f->bins; i >= 0; i--) {
		for (int k = i + 1; k <= f->bins; k++)
			x[i] -= f->matrix[k][i] * x[k];
		x[i] /= f->matrix[i][i];
	}
}

/* Standard deviation of c . x, in units of that of a reading: |L^-1 c|. */
static double deviation(const struct fit *f, const double *c)
{
	double x[UNKNOWNS], sum = 0;

	memcpy(x, c, sizeof(x));
	forward(f, x);
	for (int i = 0; i <= f->bins; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

static void fill(const struct fit *f, const double *x, double left, struct jm_fold *ret)
{
	int dof = f->used - f->bins - 1;
	double unit = sqrt(left / dof) * jm_stat_t_quantile(0.975, dof);
	double bin = f->duration_s / f->bins, c[UNKNOWNS] = {0};

	*ret = (struct jm_fold){
		.duration_s = f->duration_s,
		.bins = f->bins,
		.readings = f->used,
		.inside = f->inside,
		.rms_watts = sqrt(left / f->used),
	};
	c[f->bins] = 1;
	ret->base_watts = x[f->bins] + f->mean;
	ret->base_error = unit * deviation(f, c);
	for (int k = 0; k < f->bins; k++) {
		c[k] = 1;
		ret->watts[k] = ret->base_watts + x[k];
		ret->error[k] = unit * deviation(f, c);
		c[k] = 0;
		ret->joules += ret->watts[k] * bin;
	}
	for (int k = 0; k < f->bins; k++)
		c[k] = bin;
	c[f->bins] = f->duration_s;
	ret->joules_error = unit * deviation(f, c);
}

/* False: the readings do not distinguish these bins. */
static bool fit_bins(struct fit *f, int bins, struct jm_fold *ret)
{
	double x[UNKNOWNS], left;

	f->bins = bins;
	sum_up(f);
	if (f->used < 2 * (bins + 1) || f->inside < bins || !factor(f))
		return false;
	memcpy(x, f->right, sizeof(x));
	forward(f, x);
	left = f->squares;
	for (int i = 0; i <= bins; i++)
		left -= x[i] * x[i];
	backward(f, x);
	fill(f, x, fmax(left, 0), ret);
	return true;
}

static bool is_sure(const struct jm_fold *fold)
{
	double mean = fold->joules / fold->duration_s;

	for (int k = 0; k < fold->bins; k++)
		if (!(fold->error[k] <= JM_FOLD_SURE * mean))
			return false;
	return true;
}

/* Of the lengths of runs, or of the gaps between them; NAN = out of memory. */
static double median(const struct jm_fold_runs *runs, bool gaps)
{
	double *all = calloc((size_t)runs->n, sizeof(*all)), value = NAN;
	int n = runs->n - gaps;

	for (int i = 0; all && i < n; i++)
		all[i] = gaps ? (double)(runs->begin_ns[i + 1] - runs->end_ns[i])
			      : (double)(runs->end_ns[i] - runs->begin_ns[i]);
	if (all) {
		qsort(all, (size_t)n, sizeof(*all), jm_stat_by_value);
		value = all[n / 2] * 1e-9;
	}
	free(all);
	return value;
}

static int check(struct fit *f, struct jm_err *err)
{
	double gap, reach = f->sensor.window_s + f->sensor.lag_s;

	if (f->runs->n < JM_FOLD_RUNS)
		return jm_err_set(err, JM_ERANGE,
			"There are %d runs; at least %d are needed, with pauses of random length "
			"between them.",
			f->runs->n, JM_FOLD_RUNS);
	gap = median(f->runs, true);
	f->duration_s = median(f->runs, false);
	if (isnan(gap) || isnan(f->duration_s))
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d runs.", f->runs->n);
	if (gap < reach)
		return jm_err_set(err, JM_ERANGE,
			"The runs follow each other within %.3g ms, and the sensor averages over "
			"%.3g ms (window and lag): its readings show the mean of several runs, not "
			"the power inside one. Insert a pause of random length between runs, "
			"longer than window and lag together.",
			1e3 * gap, 1e3 * reach);
	return 0;
}

/* Readings in which the runs are not found fit any model badly, and would be given as a power that
 * nothing drew. */
static int is_found(const struct jm_fold *fold, struct jm_err *err)
{
	if (fold->joules > fold->joules_error)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"The readings do not determine the power of a run: it would be %.3g ± %.2g W. Use "
		"more runs, check the window, the delay and the lag of the sensor, and use "
		"readings with the sensor's own time stamps.",
		fold->joules / fold->duration_s, fold->joules_error / fold->duration_s);
}

int jm_fold(const struct jm_reading *readings, int n, const struct jm_fold_runs *runs,
	const struct jm_fold_sensor *sensor, int bins, struct jm_fold *ret, struct jm_err *err)
{
	struct fit f = {.readings = readings, .runs = runs, .n = n, .sensor = *sensor};
	int rc = check(&f, err);

	if (rc)
		return rc;
	for (int k = bins ? bins : JM_FOLD_BINS; k >= (bins ? bins : 1); k--) {
		if (!bins && k > 1 && f.duration_s / k < sensor->least_s)
			continue;
		if (fit_bins(&f, k, ret) && (bins || k == 1 || is_sure(ret)))
			return is_found(ret, err);
	}
	return jm_err_set(err, JM_ERANGE,
		"%d readings, %d of them of the time of a run, do not determine %d %s: use more "
		"runs, and start each of them at a different point of the sensor's period.",
		f.used, f.inside, f.bins, f.bins == 1 ? "power" : "powers");
}
