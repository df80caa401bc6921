/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks exchange in a step and what they wait for, in the record. */
#ifndef JM_TRAIN_RANKS_H
#define JM_TRAIN_RANKS_H

#include "engine/run/account.h"
#include "train_state.h"

/* Of each rank, seconds of a step; NAN = it has no such transfers. */
struct jm_rank_time {
	double step, exposed, exposed_tp, stage;
	struct jm_account_time kind[JM_ACCOUNT_KINDS_N];
};

/* Of `world` ranks, of which `each` are in a stage and wait for each other. */
json_t *jm_rank_times_json(const struct jm_rank_time *time, int world, int each);
/* All ranks call it; does nothing for one. */
int jm_train_keep_ranks(struct train *s, struct jm_err *err);

#endif
