/* SPDX-License-Identifier: Apache-2.0 */
/* Compares each op of a device with ref, on random shapes. */
#ifndef JM_SELFTEST_H
#define JM_SELFTEST_H

#include "engine/device/backend.h"

#define JM_SELFTEST_SHAPES 2 /* per case, types and mode of accumulation */

struct jm_selftest_row {
	const char *name; /* of an op, or of several fused ones */
	int n_cases, n_refused, n_wrong;
	double worst; /* the largest difference divided by the tolerance; NaN: a result is NaN */
	/* types, shape and element of the first wrong case; "" = none is wrong */
	char first_wrong[256];
};

typedef void jm_selftest_tell(void *arg, const struct jm_selftest_row *row);

struct jm_selftest_request {
	const char *device;
	const char *op; /* the beginning of the ops' names; "" = all ops */
	bool exact;	/* only the op whose whole name is `op` */
	uint64_t seed;
};

/*
 * Tests the ops that are asked for and calls back with each row. Shapes and operands of a row
 * depend only on seed and name. Returns 0 also if results are wrong, and an error if a case cannot
 * be run or no op has the name.
 */
int jm_selftest(const struct jm_selftest_request *request, jm_selftest_tell *tell, void *arg,
	struct jm_err *err);

/* The result of the short test before a run. */
struct jm_selftest_short {
	int n_cases, n_refused, n_left_out; /* left out: not run within the time budget */
	double worst;			    /* as above */
	double seconds;
};

/*
 * Tests the ops of a planned graph in its types on small random shapes, the most costly first, for
 * at most budget_s, on an open device; its name is used in messages. Returns an error if an op is
 * wrong or cannot be run.
 */
struct jm_device;
struct jm_graph;
int jm_selftest_short(const char *device, const struct jm_device *open, const struct jm_graph *g,
	double budget_s, struct jm_selftest_short *ret, struct jm_err *err);

#endif
