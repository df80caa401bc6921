/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room guard: knobs (control.h: the contract of a control), what people write to set them (setting.h), and the only
 * process that does, with the journal by which every change finds its way back.
 * May include: base, meter, trace, energy, measure.
 *
 * The guard: the only writer of knobs, and their way back.
 *
 * jm_guard_start executes the program joulemark (guard_program.h) as a small process in a session of its own. Before it first
 * changes a knob it writes the value it found to a journal in the state folder and syncs it; it puts that
 * value back when the client says so, ends, or is killed. The client knows the values found as well: when the
 * guard is killed it puts them back itself, reads them back, and says what is so. When both are killed,
 * jm_guard_recover of the next start does. A knob has one holder at a time (a lock beside its journal).
 *
 * A guard that does not answer is waited for; that is logged after a second. When the user asks a second time for the
 * end (ctx->interrupts), the wait ends with JM_EINTR and a sentence on what is not restored; the guard stays, and
 * restores when it can.
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
/*
 * Applies all settings or none: on a failure the values before the call are back. out: one per device
 * and setting, room for as many as there are knobs; ret_n: how many. JM_EBUSY: held by another process,
 * which the sentence names. JM_EGONE: the guard was killed and everything is back as it was found, and read back.
 */
int jm_guard_set(struct jm_guard *g, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err);
/* Everything back to what was found; the guard stays. */
int jm_guard_restore(struct jm_guard *g, struct jm_err *err);
/* Leaves the settings as they are, journalled as kept: only jm_guard_release brings them back. */
int jm_guard_keep(struct jm_guard *g, struct jm_err *err);
/* Restores what was found (unless kept), ends the process, frees. An error says what is not back. */
int jm_guard_stop(struct jm_guard *g, struct jm_err *err); /* takes NULL */
bool jm_guard_alive(const struct jm_guard *g);
int jm_guard_pid(const struct jm_guard *g);

/*
 * Restores what crashed holders left behind; ret_n: how many knobs. Cheap when there is nothing. Kept
 * settings and those of a living holder stay. What cannot be restored keeps its journal and is an error;
 * JM_EFORMAT: a damaged journal, whose value is not known. Guards that are still restoring are waited for.
 */
int jm_guard_recover(struct jm_ctx *ctx, int *ret_n, struct jm_err *err);
/* The same by who has something else to do: waits for a second at most, for all guards together. */
int jm_guard_recover_soon(struct jm_ctx *ctx, int *ret_n, struct jm_err *err);
/* The same, and kept settings too: `joulemark restore`. */
int jm_guard_release(struct jm_ctx *ctx, int *ret_n, struct jm_err *err);
/* Sets the vendor's default where a damaged journal has left nothing else to go by, on all devices of the controls (as
 * jm_guard_start), and sets the journal aside. ret_n: of how many knobs. Each is logged. */
int jm_guard_default(struct jm_ctx *ctx, const char *controls, int *ret_n, struct jm_err *err);

/* What the journals say, for `status`. */
enum jm_held {
	JM_HELD_LIVE,
	JM_HELD_ENDING, /* its client has ended; its guard is there, and has to put it back */
	JM_HELD_KEPT,
	JM_HELD_STALE,
	JM_HELD_UNKNOWN, /* the journal is damaged */
};
struct jm_hold {
	char knob[32], unit[8], device[JM_ID_MAX], control[64];
	double found; /* what a restore brings back; NAN = not known */
	enum jm_held held;
	int pid, guard_pid; /* of the holder; 0 = none */
	char why[300];	    /* JM_HELD_UNKNOWN */
};
/* Of the state folder, and of root's where that is another one. JM_EPERM: it may not be read. */
int jm_guard_holds(struct jm_ctx *ctx, struct jm_hold **ret, int *ret_n, struct jm_err *err);

/* The guard's own process: serves the client at the other end of the socket until the client has
 * ended. */
int jm_guard_serve(struct jm_ctx *ctx, int fd, struct jm_err *err);

#endif
