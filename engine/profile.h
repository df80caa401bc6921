/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the time of each unit of a program: each unit runs between two events, and the host
 * waits for the device after each span, so that a step takes a little longer than without. The
 * shortest possible time of a unit is the larger of its executed FLOPs divided by the device's peak
 * and its bytes divided by the memory bandwidth (the roofline; Williams et al. 2009).
 */
#ifndef JM_PROFILE_H
#define JM_PROFILE_H

#include "program.h"

struct jm_profile {
	double *seconds;	/* [unit], summed over `steps` */
	long *runs;		/* [unit] */
	struct jm_event *event; /* [unit]: before it; [unit + 1]: behind it */
	int n_events;
	double peak_bytes; /* of memory, per second: the device's, else measured by updating long vectors */
};

/* One line of a profile: a unit, or all units of one kind. Per run of the program's step. */
struct jm_profile_line {
	char name[96];		      /* "linear + gelu" */
	char what[48];		      /* of a unit: what it makes, "h0.gelu.7" */
	double calls;		      /* per step */
	double seconds, flops, bytes; /* per step */
	double roofline_s;	      /* what it should take at least; NAN = peaks are unknown */
};

/* From now on runs are timed. */
int jm_profile_start(struct jm_program *p, struct jm_err *err);
/* Forgets what was timed so far: after warm-up. */
void jm_profile_reset(struct jm_program *p);
void jm_profile_free(struct jm_profile *profile); /* takes NULL */

/* program.c: runs the units from .. to - 1. */
int jm_profile_run(struct jm_program *p, int from, int to, struct jm_err *err);

void jm_profile_unit(const struct jm_program *p, int unit, struct jm_profile_line *ret);
/* Lines by kind, the one with the most time first; at most `most`. Returns how many. */
int jm_profile_kinds(const struct jm_program *p, struct jm_profile_line *ret, int most);

#endif
