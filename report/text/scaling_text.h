/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of one work on more and more devices. */
#ifndef JM_SCALING_TEXT_H
#define JM_SCALING_TEXT_H

#include "report/format/cells.h"
#include "report/judge/scaling.h"

#define JM_SCALING_TITLE "Scaling over devices"
extern const char jm_scaling_caption[];

/* "train gpt-117m, batch 32 on each device (weak scaling)" */
void jm_scaling_title(const struct jm_scaling *s, char *out, size_t size);
/* One row for each number of devices. */
int jm_scaling_grid(const struct jm_scaling *s, struct jm_grid *ret, struct jm_err *err);
/* Calls put for the table of each, which it does not keep. */
typedef void jm_scaling_fn(void *arg, const char *title, struct jm_grid *grid);
void jm_scaling_each(const struct jm_grouping *g, jm_scaling_fn *put, void *arg);
/* All of them on a terminal; nothing where there are none. */
void jm_scaling_print(const struct jm_grouping *g, FILE *out);

#endif
