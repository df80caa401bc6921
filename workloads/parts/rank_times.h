/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step of several ranks went, in the record. */
#ifndef JM_RANK_TIMES_H
#define JM_RANK_TIMES_H

#include "engine/run/account.h"

#include <jansson.h>

/* Of each rank, seconds of a step; NAN = it has no such transfers. */
struct jm_rank_time {
	double step, exposed, exposed_tp, stage;
	struct jm_account_time kind[JM_ACCOUNT_KINDS_N];
};

/* Of `world` ranks, of which `each` are in a stage and wait for each other. */
json_t *jm_rank_times_json(const struct jm_rank_time *time, int world, int each);
/* The share of a step in which ranks compute and transfer at once; their mean. */
double jm_rank_times_concurrent(const struct jm_rank_time *time, int world);

#endif
