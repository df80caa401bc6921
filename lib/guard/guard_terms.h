/* SPDX-License-Identifier: Apache-2.0 */
/* What a guard may do for a client that is not its parent: the lease of a user. */
#ifndef JM_GUARD_TERMS_H
#define JM_GUARD_TERMS_H

#include "base/ctx.h"
#include "base/process/process_identity.h"
#include "guard/setting.h"

struct jm_guard_terms {
	struct jm_process client; /* to which the lease is bound */
	int pidfd;		  /* of it; the guard's to close */
	/* When it ends, by CLOCK_BOOTTIME: no later than each knob allows that has been set. */
	int64_t (*end_ns)(void *arg);
	/* Is the knob the client's to set to this value? The sentence says what is. */
	int (*allow)(void *arg, const struct jm_knob *knob, const struct jm_knob_value *value,
		struct jm_err *err);
	/* What a knob has that cannot be read, as root states it; unknown = root does not. */
	struct jm_knob_value (*found)(void *arg, const struct jm_knob *knob);
	void *arg;
	/* With its argument: opened besides the controls of the machine, in place of those with the
	 * same knobs; NULL = none. */
	const char *control;
};

#endif
