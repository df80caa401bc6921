/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power by its readings, each of which holds until the next one, summed up in slots of time during
 * another calculation's pass over the trace. An interval is then the sum of the slots within, and
 * of the readings in the two slots at its ends, and only the readings of these two are read again.
 */
#include "energy_parts.h"
#include "trace/hold_sum.h"

#include <math.h>

static double seconds(int64_t ns)
{
	return (double)ns * 1e-9;
}

void jm_power_slots_init(struct jm_power_slots *c, int64_t t0, int64_t t1)
{
	int64_t length = (t1 - t0) / JM_POWER_SLOTS + 1;

	*c = (struct jm_power_slots){.t0 = t0,
		.t1 = t0 + length * JM_POWER_SLOTS,
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
	if (watts == 0)
		sum->zero_s += length;
}

/* Holds the value until t, which may be beyond the end of the current slot. */
static void hold_long(struct jm_power_slots *c, int64_t t)
{
	while (c->at < t && c->n < JM_POWER_SLOTS) {
		int64_t until = t < c->end ? t : c->end;

		if (!isnan(c->value))
			add(&c->slot[c->n], c->value, seconds(until - c->at));
		c->at = until;
		if (until == c->end) {
			c->end += c->length;
			c->n++;
		}
	}
}

/* The value held until t. */
static inline void hold(struct jm_power_slots *c, int64_t t)
{
	if (t <= c->at || c->n == JM_POWER_SLOTS)
		return;
	if (t >= c->end) {
		hold_long(c, t);
		return;
	}
	if (!isnan(c->value))
		add(&c->slot[c->n], c->value, seconds(t - c->at));
	c->at = t;
}

void jm_power_slots_add(struct jm_power_slots *c, const struct jm_reading *reading, int n)
{
	for (int i = 0; i < n; i++) {
		if (reading[i].value == c->value)
			continue;
		hold(c, reading[i].t_ns);
		c->value = reading[i].value;
	}
}

void jm_power_slots_end(struct jm_power_slots *c)
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

static int read_both(void *arg, struct jm_reading r)
{
	struct reading *part = arg;

	read_held(&part[0], r);
	return read_held(&part[1], r);
}

/* Splits the slot that contains t: an interval that ends at t may be followed by one that begins
 * there. */
static int split(struct jm_power_slots *c, const struct jm_trace *trace, int signal, int64_t t,
	struct jm_err *err)
{
	struct jm_split *s = &c->split;
	int64_t begin = t - (t - c->t0) % c->length, end = begin + c->length;
	struct reading part[] = {
		{{begin, t, begin, NAN}, &s->before}, {{t, end, t, NAN}, &s->after}};
	int rc;

	if (s->known && s->t == t)
		return 0;
	*s = (struct jm_split){.known = true, .t = t};
	if (begin == t) {
		s->after = c->slot[(begin - c->t0) / c->length];
		return 0;
	}
	rc = jm_trace_each(trace, signal, begin, end, read_both, part, err);
	hold_reading(&part[0], t);
	hold_reading(&part[1], end);
	s->known = !rc;
	return rc;
}

static void add_sum(struct jm_held_power *sum, const struct jm_held_power *part)
{
	sum->joules += part->joules;
	sum->covered_s += part->covered_s;
	sum->most = fmax(sum->most, part->most);
	sum->zero_s += part->zero_s;
}

int jm_power_slots_held(struct jm_power_slots *c, const struct jm_trace *trace, int signal,
	int64_t t0, int64_t t1, struct jm_held_power *sum, struct jm_err *err)
{
	int64_t first = (t0 - c->t0) / c->length, last = (t1 - c->t0) / c->length;
	int rc;

	if (t0 < c->t0 || t1 >= c->t1 || first == last)
		return jm_power_held(trace, signal, t0, t1, sum, err);
	rc = split(c, trace, signal, t0, err);
	add_sum(sum, &c->split.after);
	for (int64_t i = first + 1; i < last; i++)
		add_sum(sum, &c->slot[i]);
	if (!rc)
		rc = split(c, trace, signal, t1, err);
	add_sum(sum, &c->split.before);
	return rc;
}
