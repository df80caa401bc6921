/* SPDX-License-Identifier: Apache-2.0 */
/* How long a device waits for transfers of one kind, and how long its steps take. */
#ifndef JM_WAITS_H
#define JM_WAITS_H

#include "engine/device/device.h"

struct jm_waits; /* the functions take NULL: nothing is measured */

/* per_step: the most waits of a step on this queue of the device; their events are read a few steps
 * later, when they have been reached. */
int jm_waits_new(const struct jm_device *d, enum jm_queue queue, int per_step,
	struct jm_waits **ret, struct jm_err *err);
void jm_waits_free(struct jm_waits *w);
/* The first waits of `clock` divide time into steps for these waits as well; else their own do. */
void jm_waits_count_by(struct jm_waits *w, const struct jm_waits *clock);
/* Around a wait, or a transfer, on the queue. first: of its step. */
int jm_waits_begin(struct jm_waits *w, bool first, struct jm_err *err);
int jm_waits_end(struct jm_waits *w, struct jm_err *err);
/* In host memory: a wait that took so long; and the first wait of a step. */
void jm_waits_add(struct jm_waits *w, double seconds);
void jm_waits_step(struct jm_waits *w);
void jm_waits_reset(struct jm_waits *w); /* discards the steps so far */
/* Seconds that a step waits, and seconds from the first wait of a step to that of the next; NAN =
 * unknown. Both are means over the same time: a step counts when the next one has begun, or if it
 * is the only one. The device has finished. */
void jm_waits_means(struct jm_waits *w, double *ret_waited, double *ret_step);
/* The seconds of the waits in these steps; returns the number of all waits so far. The device has
 * finished. */
long jm_waits_total(struct jm_waits *w, double *ret_seconds);
long jm_waits_steps(const struct jm_waits *w);

#endif
