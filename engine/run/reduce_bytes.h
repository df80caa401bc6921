/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JM_REDUCE_BYTES_H
#define JM_REDUCE_BYTES_H

#include "engine/plan/program_plan.h"

/* What a step exchanges with other ranks: of reduce.h. */
struct jm_reduce_bytes {
	int buckets;
	double summed, gathered, shared;
};

struct jm_reduce_bytes jm_reduce_bytes(const struct jm_program *p);

#endif
