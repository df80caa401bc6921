/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the time of each unit of a program: each unit runs between two events, and the host
 * waits for the device after each span. Every second step runs as it does without a profile (on a
 * GPU as recorded graphs), with events around its spans only, so that both times are known. The
 * shortest possible time of a unit is the larger of its executed FLOPs divided by the device's peak
 * and its bytes divided by the memory bandwidth (the roofline; Williams et al. 2009).
 */
#ifndef JM_PROFILE_H
#define JM_PROFILE_H

#include "engine/plan/program_plan.h"

struct jm_profile {
	double *seconds;	/* [unit], summed over `steps` */
	long *runs;		/* [unit] */
	struct jm_event *event; /* [unit]: before the unit; [unit + 1]: after it */
	int n_events;
	bool whole;	      /* this step runs without events between its units */
	double whole_seconds; /* summed over whole_steps */
	long whole_steps;
	/* of memory per second: the device's peak, else measured by updating long vectors */
	double peak_bytes;
};

/* One line of a profile: a unit, or all units of one kind. */
struct jm_profile_line {
	char name[96];		  /* "linear + gelu" */
	char what[JM_NAME_BYTES]; /* for a unit: the name of its result, "h0.gelu.7" */
	double calls;		  /* per step */
	double seconds, flops,
		/* per step; bytes: NAN for exchanges between ranks, and attention over pages */
		bytes;
	double roofline_s; /* the shortest possible time; NAN = peaks are unknown, or an exchange */
};
/* Discards the times so far; called after warm-up. */
void jm_profile_reset(struct jm_program *p);
void jm_profile_free(struct jm_profile *profile); /* takes NULL */

/* program.c: the next step begins. */
void jm_profile_begin(struct jm_program *p);
/* program.c: before and after a span of a whole step, units from .. to - 1. */
int jm_profile_span_begin(struct jm_program *p, int from, struct jm_err *err);
int jm_profile_span_end(struct jm_program *p, int from, int to, struct jm_err *err);
/* program.c: runs the units from .. to - 1, a span, and times each. */
int jm_profile_run(struct jm_program *p, int from, int to, struct jm_err *err);

/* Of a step that ran without events between its units; NAN = none did. */
double jm_profile_whole(const struct jm_program *p);
void jm_profile_unit(const struct jm_program *p, int unit, struct jm_profile_line *ret);
/* At most `most` lines by kind, the longest time first. Returns their number. */
int jm_profile_kinds(const struct jm_program *p, struct jm_profile_line *ret, int most);

#endif
