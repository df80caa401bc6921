/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: a separate process in which one case runs, so that its death is a result. A case of
 * several ranks runs in several workers (a gang): rank 0 measures, counts and sends the record; the
 * first rank that fails ends all, with its reason.
 *
 * This is the child (hidden command `worker`); worker_parent.h is its parent. The child reads the
 * job (record.h) from its standard input and sends frames (frame.h) to a descriptor.
 */
#ifndef JM_WORKER_H
#define JM_WORKER_H

#include "affinity.h"
#include "base/ctx.h"

#include <jansson.h>

/* Runs the job and sends its record; an error has been sent too. Descriptors: as in launcher.h.
 * affinity: NULL = nothing is bound. */
int jm_worker_run(
	struct jm_ctx *ctx, const json_t *job, jm_affinity_fn *affinity, struct jm_err *err);

#endif
