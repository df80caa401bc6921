/* SPDX-License-Identifier: Apache-2.0 */
/* The program of `train`: memory, kernels, communicators, start values, inputs and results. */
#ifndef JM_TRAIN_BUILD_H
#define JM_TRAIN_BUILD_H

#include "train_state.h"

/* Builds what was planned, and logs before and after it: the first time on a machine it takes
 * seconds to time kernels. */
int jm_train_build(struct train *s, struct jm_err *err);

#endif
