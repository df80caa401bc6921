/* SPDX-License-Identifier: Apache-2.0 */
/* Which works of records tell about the power of a device: what they computed and moved, in which
 * time, and at how many watts. */
#ifndef JM_POWER_WORKS_H
#define JM_POWER_WORKS_H

#include <jansson.h>

#include "result/power_fit.h"

struct jm_power_query {
	const char *backend;   /* "cuda" */
	const char *device;    /* name of its props: "NVIDIA H200 GPU-a9d...", "Xeon, 2 threads" */
	const char *precision; /* "bf16" */
};

/* Why a run tells nothing. */
#define JM_POWER_UNFIT(X)                                                                          \
	X(FAILED, "failed")                                                                        \
	X(DEVICE, "ran on another device")                                                         \
	X(SEVERAL, "ran on several devices")                                                       \
	X(THREADS, "had a number of threads or ranks of their own")                                \
	X(PRECISION, "computed in another precision")                                              \
	X(SETTINGS, "had settings of their own")                                                   \
	X(UNKNOWN, "lack FLOPs, bytes or power that was measured")
enum jm_power_unfit {
#define X(name, text) JM_POWER_##name,
	JM_POWER_UNFIT(X)
#undef X
		JM_POWER_UNFITS
};

struct jm_power_works {
	struct jm_power_work *work; /* means over the runs of a case; owned */
	int n, n_runs, n_records;
	int unfit[JM_POWER_UNFITS]; /* records */
	bool simulated;		    /* power of at least one run was */
};

/* records: an array; estimated power never counts. */
int jm_power_works_of(const json_t *records, const struct jm_power_query *query,
	struct jm_power_works *ret, struct jm_err *err);
void jm_power_works_done(struct jm_power_works *works);
/* "Of 12 runs 3 count; 5 ran on another device, 4 failed." */
void jm_power_works_text(const struct jm_power_works *works, char *out, size_t size);

#endif
