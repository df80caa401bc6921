/* SPDX-License-Identifier: Apache-2.0 */
/* What transport `host` needs of a device. A lane is a queue of the device: its work runs in order,
 * beside that of other lanes. */
#ifndef JM_COMM_LANES_H
#define JM_COMM_LANES_H

#include "comm.h"

enum jm_lane {
	JM_LANE_TRANSFER, /* the stream of jm_transfer */
	JM_LANE_SEND,	  /* copies to the host */
	JM_LANE_RECEIVE,  /* copies from the host */
	JM_LANE_COUNT
};

struct jm_lanes_want {
	void *shared; /* memory of the host, aligned to pages, which other processes map as well */
	size_t shared_bytes;
	size_t staging_bytes; /* memory of the device */
	int marks;	      /* places in the work of a lane that other lanes can wait for */
};

/* All functions but open, passed and close queue their work and return. A mark that was never set
 * is reached. */
struct jm_lanes {
	/* dev: the device of a backend. *ret_staging belongs to the lanes. */
	int (*open)(void *dev, const struct jm_lanes_want *want, void **ret_lanes,
		void **ret_staging, struct jm_err *err);
	/* True if no work is left, of JM_LANE_TRANSFER included, or the device has failed. Does not
	 * wait. */
	bool (*passed)(void *lanes);
	void (*close)(void *lanes); /* which have passed all; takes NULL */
	int (*copy)(void *lanes, enum jm_lane lane, void *to, const void *from, size_t bytes,
		struct jm_err *err);
	/* to[i] = a[i] + b[i], n elements on the device, on JM_LANE_TRANSFER; a may be `to`. to and
	 * a are f32, b f32 or bf16; or all are bf16. */
	int (*add)(void *lanes, void *to, enum jm_comm_type type, const void *a, const void *b,
		enum jm_comm_type b_type, size_t n, struct jm_err *err);
	/* to[i] = from[i], of f32 or bf16, on JM_LANE_TRANSFER. */
	int (*cast)(void *lanes, void *to, enum jm_comm_type to_type, const void *from,
		enum jm_comm_type from_type, size_t n, struct jm_err *err);
	/* Sets the mark behind the work of the lane so far; a second call moves it. */
	int (*mark)(void *lanes, int mark, enum jm_lane lane, struct jm_err *err);
	/* Work queued on the lane from now on waits until the mark, where it is now, is reached. */
	int (*follow)(void *lanes, int mark, enum jm_lane lane, struct jm_err *err);
	/* Writes the value into shared memory when the work before it is done and visible to
	 * all. */
	int (*post)(void *lanes, enum jm_lane lane, _Atomic uint32_t *flag, uint32_t value,
		struct jm_err *err);
	/* The lane waits until *flag - value, as a signed number, is not negative. */
	int (*await)(void *lanes, enum jm_lane lane, _Atomic uint32_t *flag, uint32_t value,
		struct jm_err *err);
};

#endif
