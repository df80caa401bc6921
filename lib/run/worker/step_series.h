/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed and loss of every step of a run in a fixed amount of memory. Up to JM_STEP_ROWS steps have
 * a row each. When there is no room, rows are joined in pairs, so that a row then stands for 2, 4,
 * 8... steps: its time and items are those of all of them, its loss is that of the last one.
 */
#ifndef JM_STEP_SERIES_H
#define JM_STEP_SERIES_H

#include <jansson.h>

#include <stdbool.h>
#include <stdint.h>

#define JM_STEP_ROWS 1000 /* even */

struct jm_step_row {
	int64_t end_ns; /* when its last step was done */
	double seconds, items, loss;
};

/* All zero: empty. */
struct jm_step_series {
	long every; /* steps of a row; 0 = there is none yet */
	long open;  /* steps in the last row; the others are full */
	int n;
	int64_t begin_ns; /* of the next step: when the one before was done, or its phase began */
	struct jm_step_row row[JM_STEP_ROWS];
};

/* The next step belongs to a phase that began then. */
void jm_step_series_begin(struct jm_step_series *s, int64_t now_ns);
/* A step was done then; loss: NAN = it has none. A time before that of the step before counts as
 * that. */
void jm_step_series_add(struct jm_step_series *s, int64_t end_ns, double items, double loss);
/* The key step_series of a record, with times since start_ns; NULL: there are no steps, or no
 * memory. */
json_t *jm_step_series_json(const struct jm_step_series *s, int64_t start_ns);

#endif
