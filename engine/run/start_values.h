/* SPDX-License-Identifier: Apache-2.0 */
/* Start values of parameters (rules: engine/graph/init_rule.h). */
#ifndef JM_START_VALUES_H
#define JM_START_VALUES_H

#include "program.h"

/* Writes the start values of all parameters, rounded to f32 in every precision; the same seed gives
 * the same values. */
int jm_program_init(struct jm_program *p, uint64_t seed, struct jm_err *err);
/* The same of those that are wanted only; their values are the same. */
typedef bool jm_start_fn(const void *arg, const struct jm_cell *c);
int jm_program_init_some(struct jm_program *p, uint64_t seed, jm_start_fn *wanted, const void *arg,
	struct jm_err *err);

#endif
