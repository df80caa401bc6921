/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks exchange in a step and what they wait for, in the record. */
#ifndef JM_TRAIN_RANKS_H
#define JM_TRAIN_RANKS_H

#include "train_state.h"

/* All ranks call it; does nothing for one. */
int jm_train_keep_ranks(struct train *s, struct jm_err *err);

#endif
