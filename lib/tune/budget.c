/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BASE 2 /* visits of limits before they are compared */
#define MARGIN                                                                                     \
	0.02 /* of its power: so much more stays with a device that draws less than its limit */
#define AT_LIMIT    0.97  /* a device that draws this share of its limit could use more */
#define LEAST_SLACK 0.005 /* of the budget: less is not moved */
#define LEAST_SHARE 0.1	  /* of the unused watts, halved after each move that did harm */
#define FIRST_SLOPE 0.15  /* of the mean limit: what a device is given to find the slope */
#define LEAST_SLOPE 0.03  /* halved after each step along it that did not help */
#define SAME	    0.003 /* rates nearer than this are the same */
#define Z	    2.0

const char *const jm_share_names[] = {"equal", "proportional", "marginal", NULL};

enum stage { BASELINE, SLACK, PROBE, STEP, HOLD };

struct jm_budget {
	struct jm_budget_options o;
	enum stage stage;
	double limit[JM_BUDGET_MOST], trial[JM_BUDGET_MOST];
	double power[JM_BUDGET_MOST]; /* of each device, under `limit`; NAN = unknown */
	double slope[JM_BUDGET_MOST]; /* of the logarithm of the rate, by device */
	double base,
		sum; /* logarithm of the rate: under `limit`; sum of the visits of this stage */
	int n_sum, probed;
	double squares; /* of the differences of two visits of the same limits */
	int n_squares;
	double share, delta; /* of the next move */
	struct jm_hold_rate {
		double rate, power;
		int moved;
	} held;
	struct jm_budget_result r;
};

/* ---- limits within the budget ---- */

static double clipped(const struct jm_budget_device *d, double watts)
{
	return fmin(fmax(watts, d->min), d->max);
}

static double sum_of(const double *limit, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += limit[i];
	return sum;
}

/* The highest limits in these proportions whose sum is at most the budget. */
static void fill(const struct jm_budget_options *o, const double *weight, double *ret)
{
	double low = 0, high = 1;

	for (int i = 0; i < o->n; i++)
		high = fmax(high, o->device[i].max / weight[i]);
	for (int k = 0; k < 60; k++) {
		double level = (low + high) / 2, sum = 0;

		for (int i = 0; i < o->n; i++)
			sum += clipped(&o->device[i], level * weight[i]);
		*(sum <= o->watts ? &low : &high) = level;
	}
	for (int i = 0; i < o->n; i++)
		ret[i] = clipped(&o->device[i], low * weight[i]);
}

/* Adds the same to each limit until the sum is the budget, or nothing more can be moved. */
static void level_out(const struct jm_budget_options *o, double *limit)
{
	for (int k = 0; k < 30; k++) {
		double left = (o->watts - sum_of(limit, o->n)) / o->n;

		for (int i = 0; i < o->n; i++)
			limit[i] = clipped(&o->device[i], limit[i] + left);
	}
}

/* Down, so that the sum stays below the budget. */
static void round_down(const struct jm_budget_options *o, double *limit)
{
	for (int i = 0; i < o->n; i++) {
		const struct jm_budget_device *d = &o->device[i];

		if (d->step > 0)
			limit[i] = d->min + d->step * floor((limit[i] - d->min) / d->step + 1e-9);
	}
}

static void begin_trial(struct jm_budget *b, enum stage stage)
{
	level_out(&b->o, b->trial);
	round_down(&b->o, b->trial);
	b->stage = stage;
	b->sum = 0;
	b->n_sum = 0;
}

/* ---- rates ---- */

/* Two means of BASE visits are the same within this. */
static double tolerance(const struct jm_budget *b)
{
	double variance = b->n_squares ? b->squares / b->n_squares / 2 : 0;

	return fmax(SAME, Z * sqrt(2 * variance / BASE));
}

static void note_rate(struct jm_budget *b, double rate)
{
	double mean = b->n_sum ? b->sum / b->n_sum : NAN;

	if (b->n_sum && b->stage != PROBE) {
		b->squares += (rate - mean) * (rate - mean);
		b->n_squares++;
	}
	b->sum += rate;
	b->n_sum++;
}

static void keep(struct jm_budget *b)
{
	memcpy(b->limit, b->trial, sizeof(b->limit));
	b->base = b->sum / b->n_sum;
	b->r.rate = exp(b->base);
	b->r.kept++;
}

/* ---- moves ---- */

static void hold(struct jm_budget *b)
{
	memcpy(b->trial, b->limit, sizeof(b->trial));
	b->stage = HOLD;
	b->held = (struct jm_hold_rate){.rate = NAN};
}

/* From devices that draw less than their limit to those that draw all of it; false: there is
 * nothing to move. */
static bool move_slack(struct jm_budget *b)
{
	double slack[JM_BUDGET_MOST], all = 0;
	int takers = 0;

	for (int i = 0; i < b->o.n; i++) {
		double spare = b->limit[i] - b->power[i] * (1 + MARGIN); /* NAN = unknown */
		double most = b->limit[i] - b->o.device[i].min;

		slack[i] = spare > 0 ? fmin(spare, most) * b->share : 0;
		all += slack[i];
		takers += b->power[i] >= AT_LIMIT * b->limit[i] && b->limit[i] < b->o.device[i].max;
	}
	if (!takers || all < LEAST_SLACK * b->o.watts || b->share < LEAST_SHARE)
		return false;
	for (int i = 0; i < b->o.n; i++)
		b->trial[i] = slack[i] > 0 ? b->limit[i] - slack[i] : b->limit[i];
	for (int i = 0; i < b->o.n; i++)
		if (b->power[i] >= AT_LIMIT * b->limit[i])
			b->trial[i] = clipped(&b->o.device[i], b->trial[i] + all / takers);
	b->r.tried++;
	begin_trial(b, SLACK);
	return true;
}

/* Device `probed` gets some watts of all others. */
static void probe(struct jm_budget *b)
{
	int n = b->o.n;

	for (int i = 0; i < n; i++) {
		double change = i == b->probed ? b->delta : -b->delta / (n - 1);

		b->trial[i] = clipped(&b->o.device[i], b->limit[i] + change);
	}
	begin_trial(b, PROBE);
}

static bool find_slope(struct jm_budget *b)
{
	if (b->o.n < 2 || b->delta < LEAST_SLOPE * b->o.watts / b->o.n)
		return false;
	b->probed = 0;
	probe(b);
	return true;
}

static void step_along(struct jm_budget *b)
{
	double mean = sum_of(b->slope, b->o.n) / b->o.n, most = 0;

	for (int i = 0; i < b->o.n; i++)
		most = fmax(most, fabs(b->slope[i] - mean));
	for (int i = 0; i < b->o.n; i++)
		b->trial[i] = clipped(&b->o.device[i],
			b->limit[i] + (most > 0 ? b->delta * (b->slope[i] - mean) / most : 0));
	b->r.tried++;
	begin_trial(b, STEP);
}

static void next_move(struct jm_budget *b)
{
	if (!move_slack(b) && !find_slope(b))
		hold(b);
}

static void baseline(struct jm_budget *b)
{
	memcpy(b->trial, b->limit, sizeof(b->trial));
	b->stage = BASELINE;
	b->sum = 0;
	b->n_sum = 0;
}

/* ---- visits ---- */

static void decide(struct jm_budget *b)
{
	double gain = b->sum / b->n_sum - b->base;

	switch (b->stage) {
	case BASELINE:
		b->base = b->sum / b->n_sum;
		b->r.rate = exp(b->base);
		if (isnan(b->r.first_rate))
			b->r.first_rate = b->r.rate;
		next_move(b);
		return;
	case SLACK:
		/* what does not help is kept, but moves less and less, or two devices would give
		 * each other the same watts */
		if (gain < tolerance(b))
			b->share *= 0.7;
		if (gain > -tolerance(b))
			keep(b);
		baseline(b);
		return;
	case STEP:
		if (gain > tolerance(b) / 2)
			keep(b);
		else
			b->delta /= 2;
		baseline(b);
		return;
	case PROBE:
		b->slope[b->probed] = gain;
		if (++b->probed < b->o.n)
			probe(b);
		else
			step_along(b);
		return;
	case HOLD:
		return;
	}
}

static double power_of(const struct jm_budget_visit *v, int n)
{
	double sum = sum_of(v->watts, n);

	return isnan(sum) ? 1 : sum;
}

/* What is held is looked at again where rate or power have moved, three visits in a row. */
static void held(struct jm_budget *b, double rate, double power)
{
	struct jm_hold_rate *h = &b->held;

	if (isnan(h->rate))
		*h = (struct jm_hold_rate){rate, power, 0};
	if (fabs(rate - h->rate) > JM_TUNE_DRIFT || fabs(power / h->power - 1) > JM_TUNE_DRIFT)
		h->moved++;
	else
		h->moved = 0;
	if (h->moved < 3 || b->o.share != JM_SHARE_MARGINAL)
		return;
	b->share = 1;
	b->delta = FIRST_SLOPE * b->o.watts / b->o.n;
	baseline(b);
}

int jm_budget_add(struct jm_budget *b, const struct jm_budget_visit *v, struct jm_err *err)
{
	double rate = log(v->items / v->seconds);

	if (!(v->seconds > 0 && v->items > 0 && isfinite(rate)))
		return jm_err_set(err, JM_ERANGE, "A visit without items or time.");
	b->r.visits++;
	if (b->stage == BASELINE)
		memcpy(b->power, v->watts, sizeof(b->power));
	if (b->stage == HOLD) {
		held(b, rate, power_of(v, b->o.n));
		return 0;
	}
	note_rate(b, rate);
	if (b->n_sum >= (b->stage == PROBE ? 1 : BASE))
		decide(b);
	return 0;
}

/* ---- beginning and end ---- */

static int check(const struct jm_budget_options *o, struct jm_err *err)
{
	double least = 0;

	if (o->n < 1 || o->n > JM_BUDGET_MOST)
		return jm_err_set(err, JM_EUSAGE, "A budget is for 1 to %d devices, not %d.",
			JM_BUDGET_MOST, o->n);
	for (int i = 0; i < o->n; i++)
		least += o->device[i].min;
	if (o->watts >= least)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"The budget of %g W is below the sum of the least limits of the devices, %g W; "
		"give more, or fewer devices.",
		o->watts, least);
}

int jm_budget_new(
	const struct jm_budget_options *options, struct jm_budget **ret, struct jm_err *err)
{
	struct jm_budget *b;
	double weight[JM_BUDGET_MOST];
	int rc = check(options, err);

	if (rc)
		return rc;
	b = calloc(1, sizeof(*b));
	if (!b)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a power budget.");
	b->o = *options;
	b->r.first_rate = b->r.rate = NAN;
	for (int i = 0; i < JM_BUDGET_MOST; i++)
		weight[i] =
			b->o.share == JM_SHARE_PROPORTIONAL && i < b->o.n ? b->o.device[i].max : 1;
	fill(&b->o, weight, b->limit);
	round_down(&b->o, b->limit);
	b->share = 1;
	b->delta = FIRST_SLOPE * b->o.watts / b->o.n;
	baseline(b);
	if (b->o.share != JM_SHARE_MARGINAL)
		hold(b);
	*ret = b;
	return 0;
}

void jm_budget_free(struct jm_budget *b)
{
	free(b);
}

const double *jm_budget_next(const struct jm_budget *b)
{
	return b->trial;
}

bool jm_budget_holds(const struct jm_budget *b)
{
	return b->stage == HOLD;
}

void jm_budget_result(const struct jm_budget *b, struct jm_budget_result *ret)
{
	*ret = b->r;
	memcpy(ret->limit, b->limit, sizeof(ret->limit));
}
