/* SPDX-License-Identifier: Apache-2.0 */
/* The optional part of a backend (backend.h) for events: points in the queues of a device that
 * works asynchronously. */
#ifndef JM_BACKEND_EVENTS_H
#define JM_BACKEND_EVENTS_H

#include "backend.h"

/* All functions are needed. An event that was never recorded counts as reached. */
struct jm_backend_events {
	int (*create)(void *dev, void **ret_event, struct jm_err *err);
	/* Marks the point after all work queued so far; a second call moves the event. */
	int (*record)(void *dev, void *event, enum jm_queue queue, struct jm_err *err);
	/* Work queued from now on waits until the event is reached. */
	int (*follow)(void *dev, void *event, enum jm_queue queue, struct jm_err *err);
	/* The host waits until the event is reached. */
	int (*wait)(void *dev, void *event, struct jm_err *err);
	/* 1 = reached, 0 = not yet */
	int (*query)(void *dev, void *event, struct jm_err *err);
	/* The time between two events that are reached. */
	int (*seconds)(void *dev, void *from, void *to, double *ret, struct jm_err *err);
	void (*drop)(void *dev, void *event); /* takes NULL */
};

#endif
