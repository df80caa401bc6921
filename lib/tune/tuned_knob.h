/* SPDX-License-Identifier: Apache-2.0 */
/* The knob that a tuner moves, on all devices that it means, through the guard. Part of tuner.h. */
#ifndef JM_TUNED_KNOB_H
#define JM_TUNED_KNOB_H

#include "guard/guard.h"
#include "search.h"

struct jm_tuned_knob {
	struct jm_guard *guard;	    /* borrowed */
	const struct jm_knob *knob; /* the first of them, of the guard's */
	char name[32], selector[JM_ID_MAX];
	double low, high;      /* between which the user wants the values; infinite = not given */
	double min, max, step; /* that every device takes */
	double found;	       /* the highest of them; NAN = no number */
	double found_sum;      /* over the devices; NAN = no number */
	double settle_s;
	int *index; /* among the guard's knobs */
	int n;
	struct jm_setting *of_found; /* one per device; unknown where it cannot be read */
	struct jm_applied *now;	     /* one per knob of the guard */
	struct jm_knob_value
		*ordered; /* one per device: that was accepted last; unknown = it is not known */
};

/*
 * text: "gpu.power", "gpu.power@0", or with the values between which is searched,
 * "gpu.power=250:600+25W". JM_EUSAGE, JM_ERANGE; JM_ENOSUP: the knob has no numbers. Nothing is
 * set.
 */
int jm_tuned_knob_open(
	struct jm_tuned_knob *k, struct jm_guard *guard, const char *text, struct jm_err *err);
void jm_tuned_knob_close(struct jm_tuned_knob *k);
/* All devices or none, as jm_guard_set. */
int jm_tuned_knob_set(struct jm_tuned_knob *k, double value, struct jm_err *err);
/* The values found. The knob stays in our hands, so that no other program takes it between two
 * visits, wherever they are known. */
int jm_tuned_knob_set_found(struct jm_tuned_knob *k, struct jm_err *err);
/*
 * Each device its own number, whose sum is never above `most` on the way: lower sets those that
 * fall, and reads back what all of them enforce (ret_now); raise then sets those that rise, by as
 * much less as the devices enforce more than they were asked for, and reads back again. JM_ERANGE:
 * together they enforce more than `most` all the same.
 */
int jm_tuned_knob_lower(
	struct jm_tuned_knob *k, const double *number, double *ret_now, struct jm_err *err);
int jm_tuned_knob_raise(struct jm_tuned_knob *k, const double *number, double most, double *now,
	struct jm_err *err);
/* Has another program changed what was set? JM_EGONE and others: it cannot be read. */
int jm_tuned_knob_moved(struct jm_tuned_knob *k, bool *ret, struct jm_err *err);

#endif
