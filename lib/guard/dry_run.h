/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard would write for settings: told, and not done. Reads the devices; no lock, no
 * journal, no process. */
#ifndef JM_DRY_RUN_H
#define JM_DRY_RUN_H

#include "base/ctx.h"
#include "guard/setting.h"

struct jm_dry_run;

/* One knob to be set. */
struct jm_dry_knob {
	const struct jm_knob *knob;
	const struct jm_knob_value *found, *value; /* what it has, and is to get */
	const struct jm_knob_value *
		base; /* what `joulemark restore` puts back: from before what an earlier one left */
	enum jm_known_by known_by;
	const char *journal; /* the file that has the value found before the first write */
	int holder; /* the process that holds the knob now, so that it cannot be set; 0 = none */
};

/* A write of it; text NULL: `to` is a call. allowed: this user may do it. */
struct jm_dry_write {
	const char *to, *text;
	bool allowed;
};

/* Called in the order of the guard's doing: each knob, and its writes. */
struct jm_dry_report {
	void (*knob)(void *arg, const struct jm_dry_knob *knob);
	void (*write)(void *arg, const struct jm_dry_write *write);
	void *arg;
};

/* controls: as of jm_guard_start, but without a lease: NULL = those that this user can open. */
int jm_dry_run_open(
	struct jm_ctx *ctx, const char *controls, struct jm_dry_run **ret, struct jm_err *err);
const struct jm_knobs *jm_dry_run_knobs(const struct jm_dry_run *d);
/* What cannot be read, one knob and value each. Errors as of jm_guard_state. */
int jm_dry_run_state(
	struct jm_dry_run *d, const struct jm_setting *stated, int n, struct jm_err *err);
/* Errors as of jm_guard_set, as far as they are known before anything is written. */
int jm_dry_run(struct jm_dry_run *d, const struct jm_setting *settings, int n,
	const struct jm_dry_report *report, struct jm_err *err);
void jm_dry_run_close(struct jm_dry_run *d); /* takes NULL */

#endif
