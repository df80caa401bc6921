/* SPDX-License-Identifier: Apache-2.0 */
/* Does a device compute what the ops are defined to be? Each is compared with ref, on random shapes. */
#ifndef JM_SELFTEST_H
#define JM_SELFTEST_H

#include "backend.h"

#define JM_SELFTEST_SHAPES 2 /* of each case, for each of the types and ways to add */

struct jm_selftest_row {
	const char *name; /* of an op, or of several that may be joined */
	int n_cases, n_refused, n_wrong;
	double worst; /* the largest difference, in units of what is allowed; NaN: a result is NaN */
	char first_wrong
		[256]; /* types, shape and element of the first wrong case; "" = none is wrong */
};

typedef void jm_selftest_tell(void *arg, const struct jm_selftest_row *row);

/*
 * Tells row by row, of the ops whose name begins with `op` ("" = all); a row's shapes and operands depend on seed and
 * name alone. 0, also when results are wrong; an error when something cannot be run at all, or there is no such op.
 */
int jm_selftest(const char *device, const char *op, uint64_t seed, jm_selftest_tell *tell,
	void *arg, struct jm_err *err);

/* A few ops before a run. */
struct jm_selftest_short {
	int n_cases, n_refused, n_left_out; /* left out: for which no time was left */
	double worst;			    /* as above */
	double seconds;
};

/*
 * The ops of a planned graph in its types, on small random shapes, the most costly first, until budget_s is spent;
 * on a device that is open, whose name is given for sentences. An error: one is wrong, or cannot be run.
 */
struct jm_device;
struct jm_graph;
int jm_selftest_short(const char *device, const struct jm_device *open, const struct jm_graph *g,
	double budget_s, struct jm_selftest_short *ret, struct jm_err *err);

#endif
