/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All opened controls and their knobs as one table. Used by the guard and by readers. A driver call
 * that does not return is awaited for JM_DRIVER_LIMIT_NS; the knob is then unusable until the call
 * has returned, and the others continue.
 */
#ifndef JM_KNOB_TABLE_H
#define JM_KNOB_TABLE_H

#include "base/process/driver_call.h"
#include "guard/control.h"

#define JM_SPEC_MAX (JM_ID_MAX + 32) /* "sim:h100x4", "nvml:all", "cgroup:/jobs/7#4711" */

struct jm_knob_member {
	const struct jm_control *control;
	void *state;
	char argument[JM_SPEC_MAX]; /* as it was opened */
	int first, n;		    /* its knobs in the table */
};

struct jm_knob_table {
	struct jm_knobs knobs;
	struct jm_knob_member *member;
	int n;
	struct jm_knob_value
		*told; /* of each unreadable knob, what it was stated to have or was set to */
	struct jm_driver_call **left; /* of each knob, a call that has not returned; NULL = none */
	const struct jm_ctx
		*announce; /* called with the holder after a second of waiting; NULL = none */
};

/* specs: "nvml", "sim:h100x4", several with commas; NULL = all of the machine itself that open, and
 * `more` with its argument in place of those that have the same knobs; NULL = none. */
int jm_knob_table_open(struct jm_ctx *ctx, const char *specs, const char *more,
	struct jm_knob_table *ret, struct jm_err *err);
void jm_knob_table_close(struct jm_knob_table *table);
/* Exactly one control; the argument in its spec may have commas. */
int jm_knob_table_open_one(
	struct jm_ctx *ctx, const char *spec, struct jm_knob_table *ret, struct jm_err *err);
/* As jm_knob_table_open, without those that do not open, which is logged of those that specs
 * names. */
int jm_knob_table_open_rest(
	struct jm_ctx *ctx, const char *specs, struct jm_knob_table *ret, struct jm_err *err);
/*
 * Calls of drivers, made one after the other in a thread of their own: an answer for all of them is
 * awaited once. One that does not return is given up alone; the calls behind it are made without
 * it, and it makes none of them when it returns.
 */
enum jm_knob_act {
	JM_KNOB_GET,
	JM_KNOB_SET,	  /* unless it can be read and has the value */
	JM_KNOB_SET_READ, /* the same, then gets what it has now */
	JM_KNOB_PUT_BACK, /* as SET_READ, also if it cannot be read first */
};
struct jm_knob_call {
	enum jm_knob_act act;
	int i;			    /* of the knob */
	struct jm_knob_value value; /* to set */
	/* what came of it */
	bool made;				 /* false: an earlier one failed */
	bool wrote;				 /* it was set, or may have been */
	struct jm_knob_value accepted, enforced; /* as jm_knob_table_get has them */
	struct jm_knob_value before;		 /* what it had when it was set or put back */
	int rc;
	struct jm_err err;
};
/* What the knob has. */
static inline const struct jm_knob_value *jm_knob_call_now(const struct jm_knob_call *c)
{
	return jm_knob_value_known(&c->accepted) ? &c->accepted : &c->enforced;
}
/* Has a device more than one of the knobs, of which one may change another? */
bool jm_knob_table_coupled(
	const struct jm_knob_table *table, const struct jm_knob_call *call, int n);
/* In their order; with `stop` none is made after one that failed. A caller sets act, i and value.
 */
void jm_knob_table_call(
	const struct jm_knob_table *table, struct jm_knob_call *call, int n, bool stop);
/* Knob i of the table; accepted and enforced as in jm_control.get; of an unreadable knob accepted
 * is what it was told. */
int jm_knob_table_get(const struct jm_knob_table *table, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err);
/* What an unreadable knob has, as somebody knows who cannot read it either. */
void jm_knob_table_tell(struct jm_knob_table *table, int i, const struct jm_knob_value *value);
/* What opens the device of knob i again, in any environment. */
void jm_knob_table_spec(const struct jm_knob_table *table, int i, char *out, size_t size);
/* Is there a driver call that has not returned? Its setting may still take effect. */
bool jm_knob_table_waits(const struct jm_knob_table *table);
const struct jm_knob_member *jm_knob_table_member(const struct jm_knob_table *table, int i);
/* The index of a knob by name and device, or -1. */
int jm_knob_table_find(const struct jm_knob_table *table, const char *knob, const char *device);

#endif
