/* SPDX-License-Identifier: Apache-2.0 */
/* Sources are found and opened; calls of them that may never return are made in threads of their
 * own. */
#ifndef JM_SOURCE_CALLS_H
#define JM_SOURCE_CALLS_H

#include "base/ctx.h"
#include "base/process/driver_call.h"
#include "meter/source.h"

/* By name, in the table; NULL = of all sources. */
const struct jm_source *jm__source_find(
	const struct jm_source *const *table, const char *name, struct jm_err *err);
/*
 * Opens a source (jm_source_open) and adds its meters, whose ids no meter of the set may have. A
 * driver that does not return within JM_DRIVER_LIMIT_NS is an error, and the call keeps the
 * context.
 */
int jm__source_open(struct jm_ctx *ctx, const struct jm_source *source, const char *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err);
/*
 * Calls `uses` of a source; an error where it has none. A driver that does not return is awaited
 * for 2 s, and then not asked until it has: *left is the call, NULL = there is none. Its rows stay
 * until the end of the program.
 */
int jm__source_uses(const struct jm_source *source, void *state, struct jm_driver_call **left,
	int meter, jm_use_fn *give, void *arg, struct jm_err *err);
/* Has such a call not returned yet? The source must then not be closed. */
bool jm__source_waits(struct jm_driver_call **left);

#endif
