/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: one question to a source, a control or a backend, whose driver may never answer. */
#ifndef JM_DOCTOR_ASK_H
#define JM_DOCTOR_ASK_H

#include "meter/source.h"

/* Asks the member and reports what is found; arg is for say. */
typedef void jm_doctor_fn(struct jm_ctx *ctx, const void *member, jm_finding_fn *say, void *arg);

/*
 * Calls fn in a thread, and reports its findings when it has returned. False: it has not within
 * JM_DRIVER_LIMIT_NS, and nothing was reported; the thread keeps the context.
 */
bool jm_doctor_ask(
	struct jm_ctx *ctx, jm_doctor_fn *fn, const void *member, jm_finding_fn *say, void *arg);

#endif
