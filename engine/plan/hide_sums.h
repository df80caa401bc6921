/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of ranks that share a model, beside computation. */
#ifndef JM_HIDE_SUMS_H
#define JM_HIDE_SUMS_H

#include "program_plan.h"

/*
 * Puts units that compute gradients of parameters behind an exchange whose result they do not need,
 * and lets the program wait where the result is used first. Only without data parallelism, whose
 * sums have the same queue. Liveness and places are found again.
 */
int jm_program_hide_sums(struct jm_program *p, struct jm_err *err);

#endif
