/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of a plan file look up in a run, and the words that a plan has besides options. */
#ifndef JM_PLAN_LOOKUP_H
#define JM_PLAN_LOOKUP_H

#include "plan_runs.h"

/* Index of the axis's value at a point. */
int jm__plan_at(const struct jm_plan_run *run, const struct jm_plan_point *point, int axis);

/* Equal texts, or equal numbers. */
bool jm__plan_same(const char *a, const char *b);
/* A scalar that is not null, or an error that names what it is. */
int jm__plan_scalar(const struct jm_yaml *node, const char *what, struct jm_err *err);

enum jm_plan_shape {
	JM_PLAN_TEXT,
	JM_PLAN_TEXTS,	/* a text, or a list of them */
	JM_PLAN_VALUES, /* a mapping of names to texts or lists */
	JM_PLAN_RUNS_SHAPE,
	JM_PLAN_ZIP,
	JM_PLAN_EXCLUDE,
};

/* A key that is no option. */
struct jm_plan_word {
	const char *name;
	enum jm_plan_shape shape;
	bool of_file; /* belongs to the file, not to a run */
	const char *help;
};

extern const struct jm_plan_word jm_plan_words[]; /* ends with name NULL */

const struct jm_plan_key *jm_plan_key(const struct jm_plan_run *run, const char *name);

#endif
