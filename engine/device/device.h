/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open device: a backend that is built in or loaded. "ref" is always available; "NAME" or
 * "NAME:INDEX" loads NAME.so from the folder that JM_BACKENDS names, else from the folder
 * `backends` beside the program, else from the installed plug-ins.
 */
#ifndef JM_DEVICE_H
#define JM_DEVICE_H

#include "backend.h"
#include "engine/graph/rematerialize.h"

struct jm_device_time; /* backend_clock.h */
struct jm_device_watch;

struct jm_device {
	const struct jm_backend *backend;
	void *dev;
	struct jm_device_props props;
	struct jm_device_watch *watch; /* NULL = none */
};

/* threads: host threads, 0 = all that this process may use. */
int jm_device_open(const char *text, int threads, struct jm_device *ret, struct jm_err *err);
void jm_device_close(struct jm_device *d);

/* ---- work: as in backend.h, with defaults for absent functions ------------------------------- */

/* As select of the backend; an exchange between ranks, which the engine runs itself, is of plain
 * tensors. */
int jm_device_select(const struct jm_device *d, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err);
int jm_device_run(const struct jm_device *d, void *exec, struct jm_err *err);
int jm_device_sync(const struct jm_device *d, struct jm_err *err);
int jm_device_copy(const struct jm_device *d, enum jm_queue queue, void *to, const void *from,
	size_t bytes, enum jm_copy kind, struct jm_err *err);
/* Copies between two devices, as in backend_peer.h. JM_ENOSUP: they have no such copies. */
int jm_device_peer_open(const struct jm_device *d, const struct jm_device *peer, bool *ret_direct,
	struct jm_err *err);
int jm_device_peer_copy(const struct jm_device *d, enum jm_queue queue,
	const struct jm_device *peer, void *to, const void *from, size_t bytes, struct jm_err *err);
int jm_device_fill(const struct jm_device *d, enum jm_queue queue, void *to, unsigned char value,
	size_t bytes, struct jm_err *err);
void *jm_device_pinned_alloc(const struct jm_device *d, size_t bytes);	/* NULL = out of memory */
void jm_device_pinned_release(const struct jm_device *d, void *memory); /* takes NULL */
size_t jm_device_memory_free(const struct jm_device *d);		/* bytes; 0 = unknown */

/* The share of free memory that a case leaves to others. */
#define JM_ROOM_RESERVE 0.05

/* Bytes of memory of its own that a device had when it was opened; both 0 where it has none. */
struct jm_room {
	size_t now, alone; /* alone: if no other process held any; 0 = unknown */
};
struct jm_room jm_device_room(const struct jm_device *d);
double jm_room_held(struct jm_room room); /* bytes that other processes hold, at least */
/* Sets and returns the error of `needs` bytes that do not fit: the sentence, then one about other
 * processes if they hold memory of the device. JM_EBUSY: it would fit without them; else
 * JM_ENOMEM. */
int jm_room_refuse(struct jm_room room, double needs, struct jm_err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Sets the limit of recomputation to that share of a step's time, by the device's peaks; false: the
 * peaks are unknown. */
bool jm_device_remake(const struct jm_device *d, enum jm_dtype type, enum jm_math math,
	double share, struct jm_remake *ret);
double jm_device_peak(const struct jm_device *d, enum jm_dtype type, enum jm_math math);
/* As plan_roughly of the backend; false: its plans are always exact. */
bool jm_device_plan_roughly(const struct jm_device *d, bool on);
/* True if the device works while the host continues; otherwise all work is done when a call
 * returns. */
bool jm_device_is_async(const struct jm_device *d);

/* The versions of driver and libraries as a text for users; "" = none. */
void jm_device_versions(const struct jm_device *d, char *ret, size_t size);
/* Restricts the device to about this share of its units, directly after it was opened. JM_ENOSUP:
 * the backend cannot. */
int jm_device_restrict(
	const struct jm_device *d, double share, int *ret_units, int *ret_of, struct jm_err *err);

/* True if the device has a clock and time stamps (backend_clock.h). */
bool jm_device_has_clock(const struct jm_device *d);
int jm_device_stamp(const struct jm_device *d, uint64_t *to, struct jm_err *err);
int jm_device_clock(const struct jm_device *d, struct jm_device_time *ret, struct jm_err *err);

/* A point in a queue. The struct jm_device must not move in memory while its events exist. */
struct jm_event {
	const struct jm_device *device;
	void *own;     /* the backend's event */
	int64_t at_ns; /* time of recording, for devices that are not asynchronous */
};
int jm_event_new(const struct jm_device *d, struct jm_event *ret, struct jm_err *err);
int jm_event_record(struct jm_event *e, enum jm_queue queue, struct jm_err *err);
/* Work queued from now on waits for the event. */
int jm_event_follow(const struct jm_event *e, enum jm_queue queue, struct jm_err *err);
int jm_event_wait(const struct jm_event *e, struct jm_err *err);  /* the host waits */
int jm_event_query(const struct jm_event *e, struct jm_err *err); /* 1 = reached, 0 = not yet */
/* On a device that works in the calling thread, CLOCK_MONOTONIC in ns at the record; else 0. */
int64_t jm_event_host_ns(const struct jm_event *e);
int jm_event_seconds(
	const struct jm_event *from, const struct jm_event *to, double *ret, struct jm_err *err);
void jm_event_drop(struct jm_event *e); /* a zeroed event is allowed */

/*
 * While the host waits for an asynchronous device, it calls check(arg) ten times per second; an
 * error ends the wait, and the caller gets it. To be called after the device is open, and with
 * check NULL before it is closed.
 */
typedef int jm_device_check_fn(void *arg, struct jm_err *err);
int jm_device_watch(struct jm_device *d, jm_device_check_fn *check, void *arg, struct jm_err *err);

#endif
