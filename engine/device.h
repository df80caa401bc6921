/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open device: a backend that is built in or loaded. "ref" is always there; "NAME" or "NAME:INDEX"
 * loads NAME.so from the folder JM_BACKENDS names, or from `backends` beside the program, else from
 * the installed plug-ins.
 */
#ifndef JM_DEVICE_H
#define JM_DEVICE_H

#include "graph.h"

struct jm_device {
	const struct jm_backend *backend;
	void *dev;
	void *library; /* NULL = built in */
	struct jm_device_props props;
};

/* threads: of the host, 0 = all this process may use. */
int jm_device_open(const char *text, int threads, struct jm_device *ret, struct jm_err *err);
void jm_device_close(struct jm_device *d);

/* ---- work: as in backend.h, with defaults for what the backend leaves out --------------------------------- */

int jm_device_run(const struct jm_device *d, void *exec, struct jm_err *err);
int jm_device_sync(const struct jm_device *d, struct jm_err *err);
int jm_device_copy(const struct jm_device *d, enum jm_queue queue, void *to, const void *from,
	size_t bytes, enum jm_copy kind, struct jm_err *err);
int jm_device_fill(const struct jm_device *d, enum jm_queue queue, void *to, unsigned char value,
	size_t bytes, struct jm_err *err);
void *jm_device_pinned_alloc(const struct jm_device *d, size_t bytes);	/* NULL = out of memory */
void jm_device_pinned_release(const struct jm_device *d, void *memory); /* takes NULL */
size_t jm_device_memory_free(const struct jm_device *d);		/* bytes; 0 = unknown */
/* What may be computed again for gradients within that share of a step's time, by the device's peaks;
 * false: the peaks are unknown. */
bool jm_device_remake(const struct jm_device *d, enum jm_dtype type, enum jm_math math,
	double share, struct jm_remake *ret);
double jm_device_peak(const struct jm_device *d, enum jm_dtype type, enum jm_math math);
/* Does it work while the host continues? Otherwise all work is done when a call returns. */
bool jm_device_is_async(const struct jm_device *d);

/* Versions of what it computes with, for people; "" = nothing to tell. */
void jm_device_versions(const struct jm_device *d, char *ret, size_t size);
/* Restricts it to about this share of its units, right after it was opened. JM_ENOSUP: it cannot. */
int jm_device_restrict(
	const struct jm_device *d, double share, int *ret_units, int *ret_of, struct jm_err *err);

/* Has it a clock of its own, and time stamps? (backend.h) */
bool jm_device_has_clock(const struct jm_device *d);
int jm_device_stamp(const struct jm_device *d, uint64_t *to, struct jm_err *err);
int jm_device_clock(const struct jm_device *d, struct jm_device_time *ret, struct jm_err *err);

/* A place in a queue. The device must stay where it is in memory while its events live. */
struct jm_event {
	const struct jm_device *device;
	void *own;     /* the backend's */
	int64_t at_ns; /* of devices that are not asynchronous: when it was recorded */
};
int jm_event_new(const struct jm_device *d, struct jm_event *ret, struct jm_err *err);
int jm_event_record(struct jm_event *e, enum jm_queue queue, struct jm_err *err);
/* What is queued from now on waits for the event. */
int jm_event_follow(const struct jm_event *e, enum jm_queue queue, struct jm_err *err);
int jm_event_wait(const struct jm_event *e, struct jm_err *err);  /* the host waits */
int jm_event_query(const struct jm_event *e, struct jm_err *err); /* 1 = reached, 0 = not yet */
int jm_event_seconds(
	const struct jm_event *from, const struct jm_event *to, double *ret, struct jm_err *err);
void jm_event_drop(struct jm_event *e); /* one that was never made, too */

/* ---- backends ------------------------------------------------------------------------------------------- */

/* Could the device's backend be loaded? 0, or the reason; opens nothing. */
int jm_backend_check(const char *name, struct jm_err *err);

/* The i-th backend of this source, whether built or not, "ref" last; NULL behind it. */
const char *jm_backend_name(size_t i);

/* Could there be such a device? Neither opened nor loaded; JM_EUSAGE with the names there are. */
int jm_device_check(const char *text, struct jm_err *err);

#endif
