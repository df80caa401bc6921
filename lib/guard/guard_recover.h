/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that outlived their holders: restores them, and lists them. */
#ifndef JM_GUARD_RECOVER_H
#define JM_GUARD_RECOVER_H

#include "base/ctx.h"
#include "guard/control.h"

/*
 * Restores the values that crashed holders have changed; ret_n: the number of knobs. Fast when
 * there is nothing to restore. Kept settings and those of a living holder stay. What cannot be
 * restored keeps its journal and is an error; JM_EFORMAT: a damaged journal, whose value is not
 * known. Waits for guards that are still restoring.
 */
int jm_guard_recover(struct jm_ctx *ctx, int *ret_n, struct jm_err *err);
/* The same for callers that must not wait long: waits at most a second for all guards together. */
int jm_guard_recover_soon(struct jm_ctx *ctx, int *ret_n, struct jm_err *err);
/* The same, and kept settings too: `joulemark restore`. */
int jm_guard_release(struct jm_ctx *ctx, int *ret_n, struct jm_err *err);
/* Sets the vendor's default where a damaged journal leaves the value found unknown, on all
 * devices of the controls (as jm_guard_start), and sets the journal aside. ret_n: the number of
 * knobs. Each is logged. */
int jm_guard_default(struct jm_ctx *ctx, const char *controls, int *ret_n, struct jm_err *err);

/* The contents of the journals, for `status`. */
enum jm_held {
	JM_HELD_LIVE,
	JM_HELD_ENDING, /* its client has ended; its guard still has to restore it */
	JM_HELD_KEPT,
	JM_HELD_STALE,
	JM_HELD_UNKNOWN, /* the journal is damaged */
};
struct jm_hold {
	char knob[32], unit[8], device[JM_ID_MAX], control[JM_ID_MAX + 32];
	struct jm_knob_value found; /* that a restore sets */
	enum jm_known_by known_by;
	enum jm_held held;
	int pid, guard_pid; /* of the holder; 0 = none */
	char why[300];	    /* JM_HELD_UNKNOWN */
};
/* Reads the state folder, and root's if it is another one. JM_EPERM: it may not be read. */
int jm_guard_holds(struct jm_ctx *ctx, struct jm_hold **ret, int *ret_n, struct jm_err *err);

#endif
