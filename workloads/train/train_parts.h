/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of which model a rank has (--tp, --pp), and what does not go with parts. */
#ifndef JM_TRAIN_PARTS_H
#define JM_TRAIN_PARTS_H

#include "train_state.h"

/* True where the training writes a checkpoint or goes on from one. */
bool jm_train_has_checkpoint(const struct train *s);
void jm_train_choose_seat(struct train *s);
int jm_train_check_parts(const struct train *s, struct jm_err *err);

#endif
