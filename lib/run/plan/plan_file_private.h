/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a plan file share: plan_file.c (runs) uses plan_layers.c (files), plan_order.c and plan_axes.c;
 * plan_points.c and plan_text.c (values) come later; all use plan_lookup.c.
 */
#ifndef JM_PLAN_FILE_PRIVATE_H
#define JM_PLAN_FILE_PRIVATE_H

#include "plan_file.h"

/* ---- plan_layers.c ---- */

#define JM__PLAN_LAYERS 64

struct jm__plan_layer {
	const struct jm_yaml *map;
	char *path; /* real; NULL = the command line */
	bool *used; /* per key: some run has it */
	bool platform;
};

struct jm__plan_loader {
	const struct jm_plan_file_options *o;
	struct jm_plan_file file;
	struct jm__plan_layer layer[JM__PLAN_LAYERS]; /* the strongest first */
	int n_layers, depth;
	int first; /* layer of the plan: 1 if a layer of the command line precedes it, else 0 */
	const char
		*open[JM__PLAN_LAYERS]; /* real paths of the files that include one another now */
	const struct jm_yaml *platform;
	struct jm_err *err;
};

/* ---- runs ---- */

struct jm__plan_condition {
	const struct jm_plan_key *key;
	json_t *texts;
};

struct jm_plan_exclude {
	bool *mask[JM_PLAN_AXES]; /* per value of the axis; NULL = any */
	struct jm__plan_condition *derived;
	int n_derived;
	json_t *settings; /* {"gpu.power": ["300W"]}; NULL = none */
};

#endif
