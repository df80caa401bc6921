/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a guard: announced after a second, ended by the user's second interrupt. */
#ifndef JM_GUARD_WAIT_H
#define JM_GUARD_WAIT_H

#include <sys/types.h>

#include "base/ctx.h"

#define JM_GUARD_LOOK_MS 100 /* between two checks whether to continue */

struct jm_guard_wait {
	const struct jm_ctx *ctx;
	pid_t guard;
	const char *what; /* it does: "is setting knobs" */
	int ms;
	int asked; /* interrupts when the wait began */
	bool announced, warned;
};

struct jm_guard_wait jm_guard_wait_begin(const struct jm_ctx *ctx, pid_t guard, const char *what);
/* After JM_GUARD_LOOK_MS more. False: the user has asked for the second time, or once more since it
 * began. */
bool jm_guard_wait_goes_on(struct jm_guard_wait *w);

#endif
