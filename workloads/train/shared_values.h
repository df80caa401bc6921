/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that several ranks of a model have: each computes them by itself, and they must stay
 * equal. */
#ifndef JM_SHARED_VALUES_H
#define JM_SHARED_VALUES_H

#include "train_state.h"

/* Compares them over all ranks, bit by bit; no step is under way. All ranks call it; does nothing
 * unless --tp or --pp divide models. JM_ERANGE: names a parameter and the ranks. */
int jm_shared_values_check(struct train *s, struct jm_err *err);

#endif
