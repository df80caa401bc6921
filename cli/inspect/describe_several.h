/* SPDX-License-Identifier: Apache-2.0 */
/* What trainings of several models take, side by side. */
#ifndef JM_DESCRIBE_SEVERAL_H
#define JM_DESCRIBE_SEVERAL_H

#include "describe_plan.h"

#define DESCRIBE_SUFFIX 16 /* bytes of a prefix and its unit */

/* A column for each model. */
int describe_several(
	const struct describe_plan *plan, int n, int width, FILE *out, struct jm_err *err);
/* The smallest batch that all models of these names can be trained with. */
int64_t describe_least_batch(char *const *name, int n);
/* Items of a step. */
double describe_items(const struct describe_plan *plan);
/* 25.56 and "M", 24.5 and "GFLOP". */
double describe_scale(double value, const char *unit, char suffix[DESCRIBE_SUFFIX]);
/* A line: "parameters 25.56 M", "model FLOPs 24.5 GFLOP"; a number without a unit has B for
 * billions. */
void describe_print(FILE *out, const char *what, double value, const char *unit);

#endif
