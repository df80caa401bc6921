/* SPDX-License-Identifier: Apache-2.0 */
#include "steps.h"

#include <math.h>
#include <string.h>

#define DRIFT 50 /* a refresh may be off by 1/50 of itself */

void jm_steps_init(struct jm_steps *s, const struct jm_signal *signal, jm_run_fn *fn, void *arg)
{
	*s = (struct jm_steps){
		.refresh = signal->refresh_ns,
		.stamped = signal->stamped,
		.fn = fn,
		.arg = arg,
	};
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Two runs of a regular sensor start a whole number of refreshes apart: each narrows the other. */
static void narrow(const struct jm_steps *s, struct jm_run *a, struct jm_run *b)
{
	int64_t apart = jm_run_start(b) - jm_run_start(a), n, least, most, lo, hi;

	if (!s->refresh || (a->hi - a->lo) + (b->hi - b->lo) > s->refresh * 4 / 5)
		return;
	n = (apart + s->refresh / 2) / s->refresh;
	if (n < 1 || n > DRIFT / 2)
		return;
	least = n * (s->refresh - s->refresh / DRIFT);
	most = n * (s->refresh + s->refresh / DRIFT);
	lo = later(b->lo, a->lo + least);
	hi = earlier(b->hi, a->hi + most);
	if (lo >= hi)
		return;
	b->lo = lo;
	b->hi = hi;
	lo = later(a->lo, b->lo - most);
	hi = earlier(a->hi, b->hi - least);
	if (lo >= hi)
		return;
	a->lo = lo;
	a->hi = hi;
}

static struct jm_run begin(const struct jm_steps *s, struct jm_reading r)
{
	struct jm_run run = {.value = r.value, .lo = r.t_ns, .hi = r.t_ns, .seen = r.t_ns};

	if (s->stamped)
		return run;
	if (s->refresh)
		run.lo = r.t_ns - s->refresh;
	else if (s->any)
		run.lo = s->now.seen;
	if (s->any)
		run.lo = later(run.lo, s->now.seen);
	return run;
}

int jm_steps_feed(void *steps, struct jm_reading r)
{
	struct jm_steps *s = steps;
	struct jm_run next;

	if (s->any && (r.value == s->now.value || (isnan(r.value) && isnan(s->now.value)))) {
		s->now.seen = r.t_ns;
		return 0;
	}
	next = begin(s, r);
	if (s->any) {
		if (!isnan(s->now.value) && !isnan(next.value))
			narrow(s, &s->now, &next);
		s->fn(s->arg, &s->now);
	}
	s->now = next;
	s->any = true;
	return 0;
}

void jm_steps_end(struct jm_steps *s)
{
	if (s->any)
		s->fn(s->arg, &s->now);
	s->any = false;
}
