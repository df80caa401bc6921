/* SPDX-License-Identifier: Apache-2.0 */
/* What trainings of several models take, side by side. */
#ifndef JM_DESCRIBE_SEVERAL_H
#define JM_DESCRIBE_SEVERAL_H

#include "describe_plan.h"

/* A column for each model. */
int describe_several(
	const struct describe_plan *plan, int n, int width, FILE *out, struct jm_err *err);
/* Items of a step. */
double describe_items(const struct describe_plan *plan);
/* 25.56 and "M", 24.5 and "GFLOP"; a number without a unit has B for billions. */
double describe_scale(double value, const char *unit, char suffix[JM_SUFFIX]);

#endif
