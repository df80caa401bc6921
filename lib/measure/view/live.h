/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view of a session while it runs: watts now and joules so far of each meter, from the session's
 * own trace and by the same rules as its report. Any thread may hold a view; the sampler goes on
 * meanwhile. One view belongs to one thread at a time, and ends before its session is closed.
 *
 *	jm_live_new	from a moment on: when the session had started, or a phase begins
 *	jm_live_step	updates what jm_live_meter and jm_live_total return
 *
 * A sensor reports the latest moments only at its next refresh, so that each meter is known up to
 * one refresh before now. A step within one refresh of the last one changes nothing. The report at
 * the end is more exact.
 */
#ifndef JM_LIVE_H
#define JM_LIVE_H

#include "measure/session/session.h"

struct jm_live;

struct jm_live_meter {
	double watts;	    /* mean of the last step that brought something new; NAN = unknown */
	double error_watts; /* of it, 95 %; NAN = unknown */
	/* since the view began; NAN = unknown, also where a part is unknown: in a gap, and after a
	 * gap that no energy counter bridges */
	double joules;
	int64_t t0_ns; /* the clock at the beginning of the stretch whose mean is `watts` */
	int64_t t1_ns; /* and at its end, up to which `joules` counts */
};

struct jm_live_total {
	double watts,
		joules; /* NAN = unknown: no such meter, an unknown one, or two that share a part */
};

int jm_live_new(struct jm_session *s, int64_t t0_ns, struct jm_live **ret, struct jm_err *err);
int jm_live_step(struct jm_live *l, struct jm_err *err);
const struct jm_live_meter *jm_live_meter(const struct jm_live *l, int meter);
/* Sum over the topmost meters of this origin. */
struct jm_live_total jm_live_total(const struct jm_live *l, enum jm_origin origin);
void jm_live_free(struct jm_live *l); /* takes NULL */

#endif
