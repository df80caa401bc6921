/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfer of inputs to a device. The host writes a batch to pinned memory while the device still
 * processes the previous one; the copy queue transfers it to the device, and the compute queue then
 * copies it to the inputs of the program. The host never waits for a step here.
 */
#ifndef JM_STAGING_H
#define JM_STAGING_H

#include "program.h"

#define JM_STAGING_SLOTS   2
#define JM_STAGING_TENSORS 8

struct jm_staging_slot {
	char *host;   /* pinned */
	char *device; /* NULL if the device is not asynchronous */
	/* sent: recorded on the copy queue; taken: on the compute queue */
	struct jm_event sent, taken;
};

struct jm_staging {
	struct jm_program *program;
	struct jm_tensor *tensor[JM_STAGING_TENSORS];
	size_t offset[JM_STAGING_TENSORS], bytes;
	const int32_t *used; /* of this batch: jm_staging_rows; NULL = all is sent */
	int n, now;
	struct jm_staging_slot slot[JM_STAGING_SLOTS];
};

/* Opens staging for these inputs of a built program. */
int jm_staging_open(struct jm_staging *s, struct jm_program *p, struct jm_tensor *const *t, int n,
	struct jm_err *err);
/* Bytes of device memory that staging an input needs in addition to the plan of its program. */
size_t jm_staging_bytes(const struct jm_device *d, const struct jm_tensor *t);
void jm_staging_close(struct jm_staging *s); /* a zeroed one is allowed */

/* Begins a batch in a slot that the device no longer reads. */
int jm_staging_begin(struct jm_staging *s, struct jm_err *err);
/* The memory for the values of the tensor, plain and complete. NULL: it is not one of the
 * inputs. */
void *jm_staging_room(const struct jm_staging *s, const struct jm_tensor *t);
/*
 * Of each row of the last input, whose values have 4 bytes, this batch reads only the first
 * used[row]: others may hold anything. `used` is read in jm_staging_end.
 */
void jm_staging_rows(struct jm_staging *s, const int32_t *used);
/* Sends all inputs: work queued from now on reads these values. */
int jm_staging_end(struct jm_staging *s, struct jm_err *err);

#endif
