/* SPDX-License-Identifier: Apache-2.0 */
/* What a client asks of its guard. */
#ifndef JM_GUARD_REQUESTS_H
#define JM_GUARD_REQUESTS_H

#include "guard/guard.h"

const struct jm_knobs *jm_guard_knobs(const struct jm_guard *g);
/* Before the text of a setting is read, "KNOB=..." or "PHASE/KNOB@ID=...": where this user's
 * controls have no such knob, joulemarkd's are taken, if root's policy gives a lease with it. */
void jm_guard_seek(struct jm_guard *g, const char *text);
/* Every knob as it is; out: one per knob, with a reason where the device does not answer. Changes
 * nothing, needs no lock. */
int jm_guard_get(struct jm_guard *g, struct jm_applied *out, struct jm_err *err);
/* What knobs have that cannot be read, "gpu.clock=unlocked", as the user knows: without it such a
 * knob is not set. texts: ends with NULL; NULL = none. JM_EUSAGE: a knob that can be read, or no
 * value of it. */
int jm_guard_state(struct jm_guard *g, char *const *texts, bool probed, struct jm_err *err);
/* "gpu.clock=probe" states that it is unlocked; `probed` above: the caller has just found it so. */
bool jm_guard_is_probe(const char *text);
/* What one of the texts states. */
int jm_guard_parse_found(const char *given, const struct jm_knobs *knobs, struct jm_setting *ret,
	struct jm_err *err);
/* Does the last text about this knob come from a probe? */
bool jm_guard_was_probed(const struct jm_guard *g, const struct jm_knob *knob);
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

#endif
