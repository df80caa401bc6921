/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `train`, and what a step is made of by them. */
#ifndef JM_TRAIN_OPTIONS_H
#define JM_TRAIN_OPTIONS_H

#include "train_state.h"

extern const struct jm_option jm_train_options[];
/* Of the host, for this rank; 0 = all. */
int jm_train_threads(const struct train *s);
/* Model, precision, update and schedule as the options say; s->training is filled in. */
int jm_train_choose(struct train *s, struct jm_err *err);

#endif
