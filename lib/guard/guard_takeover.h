/* SPDX-License-Identifier: Apache-2.0 */
/* When the guard was killed, the client restores the values found. */
#ifndef JM_GUARD_TAKEOVER_H
#define JM_GUARD_TAKEOVER_H

#include "base/ctx.h"
#include "guard/journal.h"

struct jm_takeover {
	struct jm_ctx *ctx;
	const char *controls; /* as they were given to the guard */
	const struct jm_knobs *knobs;
	const struct jm_knob_value *found; /* of each knob; unknown: the guard did not hold it */
	struct jm_process guard;
};

/*
 * Restores every value and reads it back, with its journal or without. 0 only when each was read
 * back as it was found, or has been settled by another joulemark since; else the sentence names
 * those that are not.
 */
int jm_take_over(const struct jm_takeover *t, struct jm_err *err);

#endif
