/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to read a counter. Some drivers spend milliseconds of processor time on a reading, and the
 * counter steps ten times a second. Such a counter is read just before and just after one of its
 * steps, so that the step's time is known, and then left alone for long enough: all counters that
 * share a budget spend a fiftieth of a core together. A cheap counter is read whenever it can be.
 *
 * At an edge (see sampler.h) a counter is read around its next step, whatever the budget says.
 */
#ifndef JM_READ_BUDGET_H
#define JM_READ_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define JM_READ_BUDGET_SHARE 50

/* The budget that several counters share; they are read in turn. */
struct jm_read_budget {
	int n, turn;
	int64_t free_ns; /* no reading before this, except at edges */
};

enum jm_read_pace_state {
	JM_READ_PACE_REST,
	JM_READ_PACE_EDGE,   /* an edge has begun */
	JM_READ_PACE_BEFORE, /* to be read before a step */
	JM_READ_PACE_AFTER,  /* to be read after the step */
	JM_READ_PACE_SEARCH, /* the time of its steps is unknown */
};

struct jm_read_pace {
	int index;	    /* of this counter in the budget */
	int64_t refresh;    /* between steps; 0 = unknown */
	int64_t cost, wall; /* ns of processor time and of time per reading, recent mean */
	int readings;	    /* counted up to a small number */
	bool always;	    /* read whenever it can be, whatever it costs */

	enum jm_read_pace_state state;
	bool at_edge, watching; /* watching: no step was seen since the edge began */
	bool seen;		/* there was a reading since then, or since a search began */
	int64_t due;		/* the next reading */
	int64_t lo, hi;		/* a step came in (lo, hi]; hi 0 = not known */
	int64_t from, to;	/* the step waited for comes in (from, to] */
	int64_t give_up;	/* end of a search */
	int more;		/* steps to look at beyond this one */
	int misses;
	double value;	    /* of the last reading */
	int64_t last_begin; /* of the last reading; 0 = none yet */
};

void jm_read_pace_init(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t refresh_ns);
/* An edge begins (before its first reading), or is over. */
void jm_read_pace_edge(struct jm_read_pace *p, bool begins);
/* Is the step after the edge still to come? */
bool jm_read_pace_watches(const struct jm_read_pace *p);
/* Is it to be read now? */
bool jm_read_pace_wants(struct jm_read_pace *p, const struct jm_read_budget *budget, int64_t now);
/* Of several counters that are due, the one with the smallest value is read first: its step may
 * come first. */
int64_t jm_read_pace_urgency(const struct jm_read_pace *p);
/* It was read: from begin to end, for so much processor time. NAN = it did not answer. */
void jm_read_pace_told(struct jm_read_pace *p, struct jm_read_budget *budget, int64_t begin,
	int64_t end, int64_t cost, double value);
/* It will not be read any more. */
void jm_read_pace_drop(struct jm_read_pace *p, struct jm_read_budget *budget);
/* When it would like to be read next; INT64_MAX = not of itself. */
int64_t jm_read_pace_due(const struct jm_read_pace *p);

#endif
