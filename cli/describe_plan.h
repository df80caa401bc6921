/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a program as text, as JSON and as a drawing. */
#ifndef JM_DESCRIBE_PLAN_H
#define JM_DESCRIBE_PLAN_H

#include <jansson.h>
#include <stdio.h>

#include "engine/program.h"

/* describe_graph.c */
void describe_graph_print(const struct jm_program *p, FILE *f);
json_t *describe_graph_json(const struct jm_program *p); /* an array of groups */
/* describe_svg.c; false = could not be written */
bool describe_svg_write(const struct jm_program *p, const char *title, FILE *f);

#endif
