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
 * controls: "nvml", "sim:h100x4", several with commas; NULL = all controls of the machine itself
 * that open (never a simulated one), or those of a lease of joulemarkd, where this user has none.
 * JM_ENOENT when there is no knob, with the reason.
 */
int jm_guard_start(
	struct jm_ctx *ctx, const char *controls, struct jm_guard **ret, struct jm_err *err);
/* Restores what was found (unless kept), ends the process, frees. The error names what was not
 * restored; JM_EGONE: the guard was killed, and everything was restored and read back. */
int jm_guard_stop(struct jm_guard *g, struct jm_err *err); /* takes NULL */
bool jm_guard_alive(const struct jm_guard *g);
int jm_guard_pid(const struct jm_guard *g);

#endif
