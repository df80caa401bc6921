/* SPDX-License-Identifier: Apache-2.0 */
/* How power went between the steps of a counter, from the readings around. */
#include "energy/energy_parts.h"
#include "trace/plateaus.h"

#include <math.h>

#define TRIES 32 /* shares that a fit looks at before it goes straight between two */

void jm_shape_init(
	struct jm_shape *shape, const struct jm_signal *power, const struct jm_plateau *run, int n)
{
	int64_t window = power->window_ns > 0 ? power->window_ns : 0;

	shape->n = 0;
	for (int i = 0; i + 1 < n && shape->n < JM_SHAPE_GAPS; i++) {
		int64_t start = jm_plateau_start(&run[i + 1]);
		int64_t begin = power->refresh_ns ? start - power->refresh_ns : run[i].seen;

		if (begin > run[i].seen)
			begin = run[i].seen;
		if (begin < jm_plateau_start(&run[i]))
			begin = jm_plateau_start(&run[i]);
		shape->gap[shape->n].begin = begin;
		shape->gap[shape->n].end = start - window > begin ? start - window : begin;
		shape->gap[shape->n].from = run[i].value;
		shape->gap[shape->n].to = run[i + 1].value;
		shape->n++;
	}
	if (n != 1)
		return;
	shape->gap[0].begin = shape->gap[0].end = jm_plateau_start(&run[0]);
	shape->gap[0].from = shape->gap[0].to = run[0].value;
	shape->n = 1;
}

double jm_shape_joules(const struct jm_shape *shape, int64_t a, int64_t b, double share)
{
	double joules = 0, watts = shape->gap[0].from;
	int64_t at = a;

	for (int i = 0; i < shape->n && at < b; i++) {
		int64_t length = shape->gap[i].end - shape->gap[i].begin;
		int64_t change = shape->gap[i].begin + (int64_t)(share * (double)length);

		if (change > b)
			change = b;
		if (change > at) {
			joules += watts * (double)(change - at) * 1e-9;
			at = change;
		}
		watts = shape->gap[i].to;
	}
	return joules + (at < b ? watts * (double)(b - at) * 1e-9 : 0);
}

double jm_shape_fit(const struct jm_shape *shape, int64_t a, int64_t b, double joules)
{
	double before = jm_shape_joules(shape, a, b, 0) - joules;
	double best = 0, least = fabs(before);

	for (int i = 1; i <= TRIES; i++) {
		double share = (double)i / TRIES;
		double off = jm_shape_joules(shape, a, b, share) - joules;

		if ((off < 0) != (before < 0))
			return share - off / (off - before) / TRIES;
		if (fabs(off) < least) {
			least = fabs(off);
			best = share;
		}
		before = off;
	}
	return best;
}

double jm_shape_change(const struct jm_shape *shape, int64_t a, int64_t b)
{
	double most = 0;

	for (int i = 0; i < shape->n; i++)
		if (shape->gap[i].begin < b && shape->gap[i].end > a)
			most = fmax(most, fabs(shape->gap[i].to - shape->gap[i].from));
	return most;
}
