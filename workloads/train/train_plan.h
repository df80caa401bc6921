/* SPDX-License-Identifier: Apache-2.0 */
/* The program of `train` on paper: a batch that fits, and what is kept for gradients. */
#ifndef JM_TRAIN_PLAN_H
#define JM_TRAIN_PLAN_H

#include "train_state.h"

/* All ranks plan in turn. Nothing is allocated for the program yet. */
int jm_train_plan(struct train *s, struct jm_err *err);
/* Logs the plan, before the first byte is allocated, and adds it to the record even when it does
 * not fit. */
void jm_train_plan_tell(const struct train *s);
/* Refuses a plan that does not fit, as jm_room_refuse. */
int jm_train_plan_fits(const struct train *s, struct jm_err *err);

#endif
