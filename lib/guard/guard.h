/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room guard: knobs (control.h: the contract of a control), the grammar of settings (setting.h),
 * and the only process that changes knobs, with the journal from which every change can be undone.
 * May include: base, meter, trace, energy, measure.
 *
 * The guard changes and restores all knobs.
 *
 * jm_guard_start executes the program joulemark (guard_program.h) as a small process in a separate
 * session. Before it first changes a knob it writes the value it found to a journal in the state
 * folder and syncs it; it restores that value when the client asks for it, ends, or is killed. The
 * client knows the values found as well: when the guard is killed, the client restores them, reads
 * them back, and reports the result. When both are killed, jm_guard_recover of the next start
 * restores them. A knob has one holder at a time (a lock file next to its journal).
 *
 * The client waits for a guard that does not answer, and logs this after a second. On a second
 * interrupt of the user (ctx->interrupts) the wait ends with JM_EINTR and a sentence that names
 * what is not restored; the guard continues, and restores when it can.
 */
#ifndef JM_GUARD_H
#define JM_GUARD_H

#include "base/ctx.h"
#include "guard/control.h"
#include "guard/setting.h"

struct jm_guard;

/*
 * controls: "nvml", "sim:h100x4", several with commas; NULL = all controls of the machine itself that
 * open (never a simulated one). JM_ENOENT when there is no knob, with the reason.
 */
int jm_guard_start(
	struct jm_ctx *ctx, const char *controls, struct jm_guard **ret, struct jm_err *err);
const struct jm_knobs *jm_guard_knobs(const struct jm_guard *g);
/* Every knob as it is; out: one per knob, with a reason where the device does not answer. Changes nothing, needs no
 * lock. */
int jm_guard_get(struct jm_guard *g, struct jm_applied *out, struct jm_err *err);
/* What knobs have that cannot be read, "gpu.clock=unlocked", as the user knows: without it such a knob is not set.
 * texts: ends with NULL; NULL = none. JM_EUSAGE: a knob that can be read, or no value of it. */
int jm_guard_state(struct jm_guard *g, char *const *texts, struct jm_err *err);
/*
 * Applies all settings or none: on a failure the values from before the call are restored. out: one
 * per device and setting, room for as many as there are knobs; ret_n: how many. JM_EBUSY: held by
 * another process, which the sentence names. JM_EGONE: the guard was killed; every value found was
 * restored and read back.
 */
int jm_guard_set(struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err);
/* Restores every value found; the guard continues. */
int jm_guard_restore(struct jm_guard *g, struct jm_err *err);
/* Leaves the settings in place, journalled as kept: only jm_guard_release restores them. */
int jm_guard_keep(struct jm_guard *g, struct jm_err *err);
/* Restores what was found (unless kept), ends the process, frees. The error names what was not
 * restored; JM_EGONE: the guard was killed, and everything was restored and read back. */
int jm_guard_stop(struct jm_guard *g, struct jm_err *err); /* takes NULL */
bool jm_guard_alive(const struct jm_guard *g);
int jm_guard_pid(const struct jm_guard *g);

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

/* The guard's own process: serves the client at the other end of the socket until the client has
 * ended. */
int jm_guard_serve(struct jm_ctx *ctx, int fd, struct jm_err *err);

#endif
