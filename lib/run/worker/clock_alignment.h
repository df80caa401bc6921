/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts times of a device's clock to the run's clock: by a line through simultaneous readings of
 * both at the beginning and at the end. Readings in between show the deviation from the line.
 */
#ifndef JM_CLOCK_ALIGNMENT_H
#define JM_CLOCK_ALIGNMENT_H

#include "run/workload.h"

#define JM_ANCHORS 8

struct jm_alignment {
	struct jm_work_time anchor[JM_ANCHORS]; /* in the order in which they were taken */
	int n;
};

/* The last one is replaced where there is no room. */
void jm_alignment_add(struct jm_alignment *a, const struct jm_work_time *anchor);
/* Time on the run's clock, ns. At least one anchor. */
int64_t jm_alignment_host(const struct jm_alignment *a, int64_t device_ns);
/* The largest error between first and last anchor, ns: half of the widest exchange and the
 * largest distance of an anchor from the line. */
double jm_alignment_error(const struct jm_alignment *a);
/* How much faster the device's clock runs, 1e-6; NAN with less than two anchors. */
double jm_alignment_drift(const struct jm_alignment *a);

#endif
