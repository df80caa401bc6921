/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a program as text, as JSON and as a drawing, and of several side by side. */
#ifndef JM_DESCRIBE_PLAN_H
#define JM_DESCRIBE_PLAN_H

#include <jansson.h>
#include <stdio.h>

#include "base/option.h"
#include "engine/graph/model.h"
#include "engine/run/program.h"

/* All that is known once a program is planned. */
struct describe_plan {
	const char *name, *precision;
	struct jm_values values; /* of the command, and of the model */
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
};

/* describe_graph.c */
void describe_graph_print(const struct jm_program *p, FILE *f);
json_t *describe_graph_json(const struct jm_program *p); /* an array of groups */
/* describe_several.c: a column for each model. */
int describe_several(
	const struct describe_plan *plan, int n, int width, FILE *out, struct jm_err *err);
/* Items of a step. */
double describe_items(const struct describe_plan *plan);
#define JM_SUFFIX 16
/* 25.56 and "M", 24.5 and "GFLOP"; a number without a unit has B for billions. */
double describe_scale(double value, const char *unit, char suffix[JM_SUFFIX]);
/* describe_svg.c; false = could not be written */
bool describe_svg_write(const struct jm_program *p, const char *title, FILE *f);

#endif
