/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of one work on more and more devices. */
#ifndef JM_SCALING_TEXT_H
#define JM_SCALING_TEXT_H

#include "report/format/grid.h"
#include "report/judge/scaling.h"

#define JM_SCALING_TITLE "Scaling over devices"
extern const char jm_scaling_caption[];

/* title: "train gpt-117m, batch 32 on each device (weak scaling)"; a row of the table is a row of
 * the scaling. */
typedef void jm_scaling_fn(
	void *arg, const struct jm_scaling *s, const char *title, struct jm_grid *grid);
/* Calls put for each, which keeps nothing of it. */
void jm_scaling_each(const struct jm_grouping *g, jm_scaling_fn *put, void *arg);
/* All of them on a terminal; nothing where there are none. */
void jm_scaling_print(const struct jm_grouping *g, FILE *out);

#endif
