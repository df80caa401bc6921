/* SPDX-License-Identifier: Apache-2.0 */
#include "meter/read_budget.h"

#include <math.h>

#define NEVER	   INT64_MAX
#define MEMORY	   8	/* readings over which cost and duration are averaged */
#define DRIFT	   1000 /* a refresh may be off by 1/1000 of itself */
#define MARGIN	   100	/* of a refresh: to be early or late by */
#define WIDE	   16	/* a step's time is halved down to 1/16 of a refresh */
#define SEARCH	   20	/* readings within a refresh when a step must be found */
#define MORE	   3	/* steps that are watched after an edge at which no step was timed well */
#define CHEAP	   2	/* reading every half refresh stays within the budget */
#define WARM	   3
#define OUTLIER_NS INT64_C(20000)
#define SOON	   8		       /* 1/8 of a refresh */
#define CHEAP_NS   INT64_C(1000000)    /* a reading up to this long is never limited */
#define DEBT_NS	   INT64_C(5000000000) /* the most that an edge can borrow, in time of saving */

void jm_read_pace_init(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t refresh_ns)
{
	*p = (struct jm_read_pace){.index = budget->n++, .refresh = refresh_ns, .due = NEVER};
}

/* Each of as many counters may be read once in so long. */
static int64_t saving_of(const struct jm_read_pace *p, const struct jm_read_budget *budget)
{
	return p->cost * budget->n * JM_READ_BUDGET_SHARE;
}

static bool is_cheap(const struct jm_read_pace *p, const struct jm_read_budget *budget)
{
	int64_t saving = saving_of(p, budget);

	return p->always || p->readings < WARM || saving <= p->refresh / CHEAP ||
	       saving <= CHEAP_NS;
}

/* ---- what to do next ---- */

static void rest(struct jm_read_pace *p, struct jm_read_budget *budget)
{
	p->state = JM_READ_PACE_REST;
	p->due = NEVER;
	if (budget->turn == p->index)
		budget->turn = (budget->turn + 1) % budget->n;
}

static void search(struct jm_read_pace *p, int64_t now, int64_t due)
{
	p->state = JM_READ_PACE_SEARCH;
	p->seen = false;
	p->give_up = now + p->refresh + p->refresh / SEARCH;
	p->due = due;
}

static int64_t early(const struct jm_read_pace *p)
{
	return p->from - p->wall - p->refresh / MARGIN;
}

static int64_t late(const struct jm_read_pace *p)
{
	return p->to + p->refresh / MARGIN;
}

static void await(struct jm_read_pace *p)
{
	p->state = JM_READ_PACE_AFTER;
	p->due = late(p);
	/* half of a wide span is the better estimate */
	if (p->to - p->from > p->refresh / WIDE)
		p->due = p->from + (p->to - p->from) / 2;
}

/* Extrapolates from the last known step to the first one that is not over at `now`. False: the last
 * step is too long ago. */
static bool predict(struct jm_read_pace *p, int64_t now)
{
	int64_t n = (now - p->hi) / p->refresh + 1, drift;

	n = n < 1 ? 1 : n;
	drift = n * (p->refresh / DRIFT);
	p->from = p->lo + n * p->refresh - drift;
	p->to = p->hi + n * p->refresh + drift;
	return p->to - p->from <= p->refresh / 2;
}

/* Plans the readings around the first step that can still be read before it comes. */
static void aim(struct jm_read_pace *p, int64_t now)
{
	if (!p->refresh || !p->hi || !predict(p, now)) {
		p->hi = 0;
		search(p, now, now);
		return;
	}
	if (early(p) < now) {
		p->from += p->refresh;
		p->to += p->refresh;
	}
	p->state = JM_READ_PACE_BEFORE;
	p->due = early(p);
}

/* If a step may come at any moment, the reading at the edge is the one before it; otherwise there
 * is time for another. */
static void face_edge(struct jm_read_pace *p, int64_t now)
{
	if (!p->refresh || !p->hi || !predict(p, now) || now < early(p))
		aim(p, now);
}

void jm_read_pace_edge(struct jm_read_pace *p, bool begins)
{
	p->at_edge = p->watching = begins;
	p->seen = false;
	if (!begins)
		return;
	p->state = JM_READ_PACE_EDGE;
	p->due = 0;
	p->more = MORE;
	p->misses = 0;
}

bool jm_read_pace_watches(const struct jm_read_pace *p)
{
	return p->watching;
}

bool jm_read_pace_wants(struct jm_read_pace *p, const struct jm_read_budget *budget, int64_t now)
{
	if (is_cheap(p, budget))
		return p->always || p->at_edge || p->readings < WARM ||
		       now >= p->last_begin + saving_of(p, budget);
	if (p->state == JM_READ_PACE_REST && budget->turn == p->index)
		aim(p, now > budget->free_ns ? now : budget->free_ns);
	if (p->state == JM_READ_PACE_EDGE)
		face_edge(p, now);
	if (p->state == JM_READ_PACE_BEFORE && now > p->from)
		await(p); /* other counters were read meanwhile */
	return p->state != JM_READ_PACE_REST && now >= p->due;
}

int64_t jm_read_pace_due(const struct jm_read_pace *p)
{
	return p->state == JM_READ_PACE_REST ? NEVER : p->due;
}

int64_t jm_read_pace_urgency(const struct jm_read_pace *p)
{
	/* the reading after a step can wait for half a refresh if necessary */
	return p->state == JM_READ_PACE_AFTER ? p->due + p->refresh / 2
	       : p->state == JM_READ_PACE_BEFORE || p->state == JM_READ_PACE_EDGE ? p->from
										  : p->due;
}

/* ---- results of a reading ---- */

/* The first readings, and some later ones, take longer for other reasons and count less. */
static void average(struct jm_read_pace *p, int64_t *mean, int64_t value)
{
	int64_t most = 2 * *mean + OUTLIER_NS;

	if (p->readings < WARM)
		*mean = p->readings && *mean < value ? *mean : value;
	else
		*mean += ((value < most ? value : most) - *mean) / MEMORY;
}

/* An edge cannot wait; a debt above DEBT_NS is dropped. */
static void pay(
	const struct jm_read_pace *p, struct jm_read_budget *budget, int64_t now, int64_t cost)
{
	if (budget->free_ns < now)
		budget->free_ns = now;
	budget->free_ns += cost * JM_READ_BUDGET_SHARE;
	if (p->at_edge && budget->free_ns > now + DEBT_NS)
		budget->free_ns = now + DEBT_NS;
}

/* A step came after a and not after b. The expected time is more exact, but only if readings agree
 * with it. */
static void learn(struct jm_read_pace *p, int64_t a, int64_t b)
{
	bool awaited = p->state == JM_READ_PACE_AFTER && b - a < p->refresh / 2;

	p->misses = 0;
	if (awaited && p->from > a && p->from < b)
		a = p->from;
	if (awaited && p->to < b && p->to > a)
		b = p->to;
	if (b - a > p->refresh / 2)
		return;
	p->lo = a;
	p->hi = b;
}

/* Was the step between two readings in quick succession, and is its time known well? */
static bool is_sharp(const struct jm_read_pace *p, int64_t now)
{
	return now - p->last_begin <= p->refresh / SOON + 2 * p->wall &&
	       p->hi - p->lo <= p->refresh / WIDE;
}

static void found(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t now)
{
	p->watching = false;
	if (p->more-- > 0 && p->hi && !is_sharp(p, now))
		aim(p, now);
	else
		rest(p, budget);
}

/* It did not step where it should have. Perhaps the reading before came after the step. */
static void missed(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t now)
{
	if (p->at_edge && p->last_begin + p->wall > p->from && !p->misses++) {
		aim(p, now);
		return;
	}
	if (p->at_edge || ++p->misses > 1) {
		search(p, now, now + p->refresh / SEARCH);
		return;
	}
	p->lo -= p->refresh / SEARCH;
	p->hi += p->refresh / SEARCH;
	rest(p, budget);
}

/* A difference from a reading before the search may be an old step, so it does not count. */
static void searched(
	struct jm_read_pace *p, struct jm_read_budget *budget, int64_t now, bool stepped)
{
	p->due = now + p->refresh / SEARCH;
	if (stepped && p->seen) {
		found(p, budget, now);
	} else if (now >= p->give_up && (p->refresh || !p->at_edge)) {
		p->hi = 0;
		p->watching = false;
		rest(p, budget);
	}
}

static void go_on(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t now, bool stepped)
{
	if (p->state == JM_READ_PACE_EDGE || p->state == JM_READ_PACE_BEFORE)
		await(p);
	else if (p->state == JM_READ_PACE_SEARCH)
		searched(p, budget, now, stepped);
	else if (p->state == JM_READ_PACE_AFTER && stepped)
		found(p, budget, now);
	else if (p->state == JM_READ_PACE_AFTER && now < late(p))
		p->due = late(p);
	else if (p->state == JM_READ_PACE_AFTER)
		missed(p, budget, now);
}

void jm_read_pace_told(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t begin,
	int64_t end, int64_t cost, double value)
{
	bool stepped = p->last_begin && !isnan(p->value) && value > p->value;

	average(p, &p->cost, cost);
	average(p, &p->wall, end - begin);
	p->readings += p->readings < WARM;
	pay(p, budget, end, cost);
	if (stepped)
		learn(p, p->last_begin, end);
	if (is_cheap(p, budget)) {
		p->watching = p->watching && !(p->seen && stepped) && !isnan(value);
		rest(p, budget);
	} else if (p->state == JM_READ_PACE_REST && p->watching) {
		p->state = JM_READ_PACE_EDGE; /* it has just turned out to be slow to read */
		p->due = end;
	} else {
		go_on(p, budget, end, stepped);
	}
	p->seen = true;
	p->last_begin = begin > 0 ? begin : 1; /* 0 is never */
	p->value = value;
}

void jm_read_pace_drop(struct jm_read_pace *p, struct jm_read_budget *budget)
{
	p->at_edge = p->watching = false;
	if (p->state != JM_READ_PACE_REST || budget->turn == p->index)
		rest(p, budget);
}
