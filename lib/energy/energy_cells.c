/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power as its readings tell it, each until the next, summed up in cells of time during another's pass over
 * the trace. An interval is then the sum of the cells within, and of the readings in the two cells at its
 * ends, which alone are read again.
 */
#include "energy/energy_parts.h"
#include "trace/held.h"

#include <math.h>

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

void jm_cells_init(struct jm_cells *c, int64_t t0, int64_t t1)
{
	int64_t length = (t1 - t0) / JM_CELLS + 1;

	*c = (struct jm_cells){.t0 = t0,
		.t1 = t0 + length * JM_CELLS,
		.length = length,
		.at = t0,
		.end = t0 + length,
		.value = NAN};
}

static inline void add(struct jm_held_power *sum, double watts, double length)
{
	sum->joules += watts * length;
	sum->covered_s += length;
	if (watts > sum->most)
		sum->most = watts;
}

/* The value held until t. */
static void hold(struct jm_cells *c, int64_t t)
{
	if (t <= c->at || c->n == JM_CELLS)
		return;
	if (t < c->end) {
		if (!isnan(c->value))
			add(&c->cell[c->n], c->value, seconds(t - c->at));
		c->at = t;
		return;
	}
	while (c->at < t && c->n < JM_CELLS) {
		int64_t until = t < c->end ? t : c->end;

		if (!isnan(c->value))
			add(&c->cell[c->n], c->value, seconds(until - c->at));
		c->at = until;
		if (until == c->end) {
			c->end += c->length;
			c->n++;
		}
	}
}

void jm_cells_add(struct jm_cells *c, struct jm_reading r)
{
	hold(c, r.t_ns);
	c->value = r.value;
}

void jm_cells_end(struct jm_cells *c)
{
	hold(c, c->t1);
}

/* ---- an interval ---- */

struct reading {
	struct jm_held held;
	struct jm_held_power *sum;
};

static void hold_reading(struct reading *h, int64_t t)
{
	double length = jm_held_until(&h->held, t);

	if (length > 0)
		add(h->sum, h->held.value, length);
}

static int read_held(void *arg, struct jm_reading r)
{
	struct reading *h = arg;

	hold_reading(h, r.t_ns);
	h->held.value = r.value;
	return r.t_ns > h->held.t1;
}

int jm_power_held(const struct jm_trace *trace, int signal, int64_t t0, int64_t t1,
	struct jm_held_power *sum, struct jm_err *err)
{
	struct reading h = {{t0, t1, t0, NAN}, sum};
	int rc = 0;

	if (t0 >= t1)
		return 0;
	rc = jm_trace_each(trace, signal, t0, t1, read_held, &h, err);
	hold_reading(&h, t1);
	return rc;
}

int jm_cells_held(const struct jm_cells *c, const struct jm_trace *trace, int signal, int64_t t0,
	int64_t t1, struct jm_held_power *sum, struct jm_err *err)
{
	int64_t first = (t0 - c->t0 + c->length - 1) / c->length, end = (t1 - c->t0) / c->length;
	int rc;

	if (t0 < c->t0 || t1 > c->t1 || first >= end)
		return jm_power_held(trace, signal, t0, t1, sum, err);
	rc = jm_power_held(trace, signal, t0, c->t0 + first * c->length, sum, err);
	for (int64_t i = first; i < end; i++) {
		sum->joules += c->cell[i].joules;
		sum->covered_s += c->cell[i].covered_s;
		sum->most = fmax(sum->most, c->cell[i].most);
	}
	if (rc)
		return rc;
	return jm_power_held(trace, signal, c->t0 + end * c->length, t1, sum, err);
}
