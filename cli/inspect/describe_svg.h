/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a drawing: one row per group, from top to bottom as they run. */
#ifndef JM_DESCRIBE_SVG_H
#define JM_DESCRIBE_SVG_H

#include "describe_plan.h"

/* describe_svg.c; false = could not be written */
bool describe_svg_write(const struct jm_program *p, const char *title, FILE *f);

#endif
