/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_REDUCE_BYTES_H
#define JM_REDUCE_BYTES_H

#include "engine/plan/program_plan.h"

/* What a step exchanges with other ranks. */
struct jm_reduce_bytes {
	int buckets;
	double summed;	 /* bytes of gradients */
	double gathered; /* bytes that each rank has after the gathers of a sharded update */
	double shared;	 /* bytes that ranks which share a model sum; a gather counts half */
};

struct jm_reduce_bytes jm_reduce_bytes(const struct jm_program *p);

#endif
