/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and runs the units of a program, in stretches that a backend may record. */
#ifndef JM_UNITS_H
#define JM_UNITS_H

#include "engine/plan/program_plan.h"

/* Returns the span's first unit; ret_to: the unit after its last one. */
int jm_units_span(const struct jm_program *p, enum jm_span span, int *ret_to);
/* Finds the stretches of all spans. */
int jm_units_stretches(struct jm_program *p, struct jm_err *err);
/* Build units from `from` to `to`, or run them; a stretch lies between these or outside. copies: by
 * unit, built in place of the units' groups; NULL = these. */
int jm_units_build(
	struct jm_program *p, const struct jm_group *copies, int from, int to, struct jm_err *err);
int jm_units_run(struct jm_program *p, int from, int to, struct jm_err *err);

#endif
