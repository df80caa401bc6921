/* SPDX-License-Identifier: Apache-2.0 */
/* Places of tensors in memory, and what is live when. */
#ifndef JM_ARENA_H
#define JM_ARENA_H

#include "program_plan.h"

/* Liveness and places for the current order of units */
int jm_program_places(struct jm_program *p, struct jm_err *err);
/* The largest number of bytes that are live at a unit, a lower bound of the arena, and
 * that unit; whether a tensor is live at a unit */
size_t jm_program_live(const struct jm_program *p, int *ret_unit);
bool jm_program_is_live(const struct jm_cell *c, int unit);

#endif
