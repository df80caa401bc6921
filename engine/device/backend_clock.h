/* SPDX-License-Identifier: Apache-2.0 */
/* The optional part of a backend (backend.h) for the device's own clock, in ns with any zero. It
 * needs pinned memory. */
#ifndef JM_BACKEND_CLOCK_H
#define JM_BACKEND_CLOCK_H

#include "backend.h"

/* The device's clock, read between two readings of the host's CLOCK_MONOTONIC; all in ns. */
struct jm_device_time {
	int64_t device_ns, before_ns, after_ns;
};

/* Both functions are needed. */
struct jm_backend_clock {
	/* Queues a write of the time to *to, in memory of pinned_alloc, on the compute queue. */
	int (*stamp)(void *dev, uint64_t *to, struct jm_err *err);
	/* While nothing is queued: the most exact of many readings. */
	int (*read)(void *dev, struct jm_device_time *ret, struct jm_err *err);
};

#endif
