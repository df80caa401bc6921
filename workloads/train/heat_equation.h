/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of heat that flows on a periodic grid: samples of which the solution is known. */
#ifndef JM_HEAT_EQUATION_H
#define JM_HEAT_EQUATION_H

#include "engine/graph/node.h"

/*
 * Writes sample b of a batch [B,N..,C], channels last, which has the type of t: C independent
 * solutions of du/dt = laplacian u on [0, 2 pi) along each axis, `steps` steps of JM_HEAT_STEP
 * after they began as random sums of waves with at most JM_HEAT_WAVES periods along an axis. Values
 * are exact but for rounding; they depend on the seed alone.
 */
#define JM_HEAT_STEP  0.05
#define JM_HEAT_WAVES 4
int jm_heat_fill(const struct jm_tensor *t, int64_t b, uint64_t seed, int steps, void *room,
	struct jm_err *err);

#endif
