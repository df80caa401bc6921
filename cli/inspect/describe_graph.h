/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of a program in the order of running: operands with their layouts and places, FLOPs,
 * bytes. */
#ifndef JM_DESCRIBE_GRAPH_H
#define JM_DESCRIBE_GRAPH_H

#include "describe_plan.h"

void describe_graph_print(const struct jm_program *p, FILE *f);
json_t *describe_graph_json(const struct jm_program *p); /* an array of groups */

#endif
