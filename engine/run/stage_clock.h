/* SPDX-License-Identifier: Apache-2.0 */
/* How long a rank waits for other stages, by events around each exchange with them on the compute
 * queue. */
#ifndef JM_STAGE_CLOCK_H
#define JM_STAGE_CLOCK_H

#include "engine/device/device.h"

#define JM_CLOCK_STEPS 4 /* all events of older steps are reached */

/* Of a step or a transfer. */
struct jm_stage_span {
	struct jm_event from, to;
	bool open; /* recorded, but not read yet */
};

struct jm_stage_clock {
	struct jm_stage_span *wait; /* [n_waits]: of the last steps */
	int n_waits, now;
	struct jm_stage_span step[JM_CLOCK_STEPS];
	int step_now;
	double waited, stepped; /* seconds of the spans read so far */
	long steps;		/* of them whole steps */
	long begun;		/* steps since the last reset */
};

/* transfers: of a step, at most */
int jm_stage_clock_open(
	struct jm_stage_clock *c, const struct jm_device *d, int transfers, struct jm_err *err);
void jm_stage_clock_close(struct jm_stage_clock *c); /* one that is zeroed, too */
/* Before the first work of a step, and around each exchange; NULL = nothing is timed. */
int jm_stage_clock_step(struct jm_stage_clock *c, struct jm_err *err);
int jm_stage_clock_from(struct jm_stage_clock *c, struct jm_err *err);
int jm_stage_clock_to(struct jm_stage_clock *c, struct jm_err *err);
void jm_stage_clock_reset(struct jm_stage_clock *c); /* discards the steps so far */
/* Means of the steps so far, from the start of one to that of the next; NAN = there are none. The
 * device has done all. */
void jm_stage_clock_read(struct jm_stage_clock *c, double *ret_step, double *ret_waited);

#endif
