/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU under work whose power and rate over the cap are known, and a search that runs on it. */
#ifndef JM_TEST_SEARCH_WORLDS_H
#define JM_TEST_SEARCH_WORLDS_H

#include "tune/search.h"

#define SEARCH_JOB_S	600.
#define SEARCH_WITHIN_S 60.

/* Power and rate over the cap, and over time. */
struct search_world {
	const char *name, *gpu, *response;
	/* relative standard deviation of the rate of a window; half as much of its power */
	double noise;
	double drift;	    /* of the rate and the power until the end of the job */
	double demand;	    /* W; 0 = by the response */
	double bound_watts; /* from here on more power gives no more rate; 0 = by the response */
	/* share of the windows in which the work stands still for half of the time */
	double stalls;
	double change_s; /* until then the demand holds, after it the response; 0 = always */
};
/* noisy, flat, drifting, memory-bound, violated, quiet; ends with name NULL */
extern const struct search_world search_worlds[];

struct search_outcome {
	struct jm_search_result result;
	double to_best, to_default; /* the true objective of what is held at the end */
	double first_search_s;
};

/* A job under the tuner; what is held in its end is compared with a full sweep over the truth in
 * steps of 1 W, and with the default. */
int search_world_tune(const struct search_world *w, const struct jm_objective *o, double job_s,
	uint64_t seed, struct search_outcome *ret, struct jm_err *err);

#endif
