/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a plan: what includes what, and the platform. */
#ifndef JM_PLAN_LAYERS_H
#define JM_PLAN_LAYERS_H

#include "plan_runs.h"

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

/* The command line, the file and what it includes, the platform. */
int jm__plan_layers(struct jm__plan_loader *l, const char *path);
void jm__plan_layers_done(struct jm__plan_loader *l);

#endif
