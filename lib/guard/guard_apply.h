/* SPDX-License-Identifier: Apache-2.0 */
/* Changes and restores knobs with their journals. Used inside the guard only. */
#ifndef JM_GUARD_APPLY_H
#define JM_GUARD_APPLY_H

#include "base/ctx.h"
#include "guard/knob_table.h"
#include "guard/setting.h"
#include "guard/journal.h"
#include "guard/knob_restore.h"

struct jm_knob_holder {
	struct jm_ctx *ctx;
	struct jm_knob_table table;
	struct jm_journal *journal; /* one per knob; closed = not held */
	enum jm_known_by *known_by; /* of each knob, the value that is restored */
	bool *written;		    /* since it is held; not by a set that was not permitted */
	struct jm_knob_value *left; /* what each had after it was set; unknown: it was not */
	struct jm_back *back;	    /* room for all knobs, so that a restore needs no memory */
	struct jm_process client;   /* on whose behalf */
	struct jm_process self;
	char boot[40], machine[40];
};

/* specs, more: as jm_knob_table_open has them. */
int jm_knob_holder_open(struct jm_knob_holder *ret, struct jm_ctx *ctx, const char *specs,
	const char *more, int client, struct jm_err *err);
void jm_knob_holder_close(struct jm_knob_holder *k); /* restores nothing */
/* As jm_guard_get, jm_guard_set (guard.h). */
void jm_knob_holder_get(struct jm_knob_holder *k, struct jm_applied *out);
/* As jm_guard_state. */
int jm_knob_holder_state(
	struct jm_knob_holder *k, const struct jm_setting *settings, int n, struct jm_err *err);
/* One line for each knob that the settings mean, in the order in which they are set. The plan is
 * the caller's to free, also after an error. */
int jm_knob_holder_plan(const struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied **ret_plan, int *ret_n, struct jm_err *err);
/* Locks the knobs of the settings and journals the values found; out: accepted is the value
 * found. */
int jm_knob_holder_hold(struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err);
int jm_knob_holder_set(struct jm_knob_holder *k, const struct jm_setting *settings, int n,
	struct jm_applied *out, int *ret_n, struct jm_err *err);
/* Restores the values found; release: releases the locks, too. Tries all knobs; afterwards every
 * error is logged, and the first is returned. */
int jm_knob_holder_restore(struct jm_knob_holder *k, bool release, struct jm_err *err);
/* Leaves all settings in place, journalled, and releases the locks. */
int jm_knob_holder_keep(struct jm_knob_holder *k, struct jm_err *err);

/* Has the machine rebooted since, which ends the setting? boot: the current id. */
bool jm_outlived(const struct jm_journal_state *s, const char *boot);

#endif
