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
	char *host;		     /* pinned */
	char *device;		     /* NULL: of a device that is not asynchronous */
	struct jm_event sent, taken; /* by the copy queue; by the compute queue */
};

struct jm_staging {
	struct jm_program *program;
	struct jm_tensor *tensor[JM_STAGING_TENSORS];
	size_t offset[JM_STAGING_TENSORS], bytes;
	int n, now;
	struct jm_staging_slot slot[JM_STAGING_SLOTS];
};

/* For these inputs of a program that is built. */
int jm_staging_open(struct jm_staging *s, struct jm_program *p, struct jm_tensor *const *t, int n,
	struct jm_err *err);
/* Device memory for all inputs of a program that is planned, beyond its plan; 0 where none is needed. */
size_t jm_staging_bytes(const struct jm_program *p);
void jm_staging_close(struct jm_staging *s); /* one that is zeroed, too */

/* A slot that the device needs no longer. */
int jm_staging_begin(struct jm_staging *s, struct jm_err *err);
/* Where the host writes the values of that tensor, plain and in full. NULL: it is not among them. */
void *jm_staging_room(const struct jm_staging *s, const struct jm_tensor *t);
/* Sends all of them: what is queued to run from now on reads these values. */
int jm_staging_end(struct jm_staging *s, struct jm_err *err);

#endif
