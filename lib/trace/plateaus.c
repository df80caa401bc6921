/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/plateaus.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

#define DRIFT 50 /* a refresh may be off by 1/50 of itself */

void jm_plateaus_init(
	struct jm_plateaus *s, const struct jm_signal *signal, jm_plateau_fn *fn, void *arg)
{
	*s = (struct jm_plateaus){
		.refresh = signal->refresh_ns,
		.drift = signal->refresh_ns / DRIFT,
		.stamped = signal->stamped,
		.fn = fn,
		.arg = arg,
	};
}

/*
 * The number of refreshes between two runs of a regular sensor; 0 = unknown, or so many that the
 * sensor may have drifted.
 */
static int64_t refreshes_between(
	const struct jm_plateau *a, const struct jm_plateau *b, int64_t shortest, int64_t longest)
{
	int64_t near = b->lo - a->hi, far = b->hi - a->lo;
	int64_t least, most;

	if (near <= longest && far >= shortest && far < 2 * shortest)
		return 1;
	least = (jm_later(near, 1) + longest - 1) / longest;
	most = far / shortest;
	return least == most && most <= DRIFT / 2 ? most : 0;
}

/* Two runs of a regular sensor start a whole number of refreshes apart: each narrows the other. */
static void narrow(const struct jm_plateaus *s, struct jm_plateau *a, struct jm_plateau *b)
{
	int64_t shortest = s->refresh - s->drift, longest = s->refresh + s->drift;
	int64_t n, least, most, lo, hi;

	if (!s->refresh)
		return;
	n = refreshes_between(a, b, shortest, longest);
	if (!n)
		return;
	least = n * shortest;
	most = n * longest;
	lo = jm_later(b->lo, a->lo + least);
	hi = jm_earlier(b->hi, a->hi + most);
	if (lo >= hi)
		return;
	b->lo = lo;
	b->hi = hi;
	lo = jm_later(a->lo, b->lo - most);
	hi = jm_earlier(a->hi, b->hi - least);
	if (lo >= hi)
		return;
	a->lo = lo;
	a->hi = hi;
}

static struct jm_plateau begin(const struct jm_plateaus *s, const struct jm_reading *r)
{
	struct jm_plateau run = {
		.value = r->value, .lo = r->t_ns, .hi = r->t_ns, .first = r->t_ns, .seen = r->t_ns};

	if (s->stamped)
		return run;
	if (s->refresh)
		run.lo = r->t_ns - s->refresh;
	else if (s->any)
		run.lo = s->now.seen;
	if (s->any)
		run.lo = jm_later(run.lo, s->now.seen);
	return run;
}

static void change(struct jm_plateaus *s, const struct jm_reading *r)
{
	struct jm_plateau next = begin(s, r);

	if (s->any) {
		if (!isnan(s->now.value) && !isnan(next.value))
			narrow(s, &s->now, &next);
		s->fn(s->arg, &s->now);
	}
	s->now = next;
	s->any = true;
}

static inline void feed(struct jm_plateaus *s, const struct jm_reading *r)
{
	if (s->any && (r->value == s->now.value || (isnan(r->value) && isnan(s->now.value))))
		s->now.seen = r->t_ns;
	else
		change(s, r);
}

int jm_plateaus_feed(void *steps, struct jm_reading r)
{
	feed(steps, &r);
	return 0;
}

int jm_plateaus_feed_all(void *steps, const struct jm_reading *reading, int n)
{
	for (int i = 0; i < n; i++)
		feed(steps, &reading[i]);
	return 0;
}

void jm_plateaus_end(struct jm_plateaus *s)
{
	if (s->any)
		s->fn(s->arg, &s->now);
	s->any = false;
}
