/* SPDX-License-Identifier: Apache-2.0 */
/* Setup of `train`: a device, a plan that fits, what is fed, and the program. */
#ifndef JM_TRAIN_SETUP_H
#define JM_TRAIN_SETUP_H

#include "train_state.h"

/* Plans, builds and describes what was chosen. */
int jm_train_prepare(struct train *s, struct jm_err *err);

#endif
