/* SPDX-License-Identifier: Apache-2.0 */
/* Puts knobs back to values found, and reads them back. Used inside the guard only. */
#ifndef JM_KNOB_RESTORE_H
#define JM_KNOB_RESTORE_H

#include "guard/knob_table.h"

struct jm_back {
	const struct jm_knob_table *table;
	int i; /* of the knob in the table */
	struct jm_knob_value value;
	bool untouched; /* nobody has written it, so that an unreadable knob has the value */
	struct jm_knob_value seen; /* what a readable one had */
	int rc;			   /* 0 = it has the value */
	struct jm_err why;	   /* if not */
};

/*
 * Puts all back in the order given, and reads each back; a value that cannot be read back is an
 * error. One knob of a device may forbid the value of another, or change it: under the governor
 * `performance` intel_pstate refuses any other preference, and a change of the governor changes the
 * preference. So this is repeated until a pass writes nothing.
 */
void jm_put_back_all(struct jm_back *back, int n);
/* Logs it where a knob had neither the value that it was left with nor the one that is put back. */
void jm_put_back_tell(
	const struct jm_back *b, const struct jm_knob_value *left, const struct jm_ctx *log);
/* One alone. A device that has ended with its setting needs nothing. */
int jm_put_back(const struct jm_knob_table *table, int i, const struct jm_knob_value *value,
	struct jm_err *err);

#endif
