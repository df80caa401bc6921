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
	const char *init;
	const char *device_name, *json, *svg; /* NULL = not given */
	bool lists_graph, keep_most;
	double remake;		 /* percent; NAN = not given */
	struct jm_values values; /* of the command, and of the model */
	struct jm_values dims;
	struct jm_training training;
	struct jm_device device;
	struct jm_graph *graph;
	struct jm_program *program;
};
#define JM_SUFFIX 16

#endif
