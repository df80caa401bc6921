/* SPDX-License-Identifier: Apache-2.0 */
/* The order of nodes, and of units with their liveness and places. */
#ifndef JM_SCHEDULE_H
#define JM_SCHEDULE_H

#include "program_plan.h"

/* Moves recomputed nodes to directly before their first readers */
int jm_graph_schedule(struct jm_graph *g, struct jm_err *err);
/* True if a and then b give the same results as b and then a: neither writes what the other uses */
bool jm_nodes_may_swap(const struct jm_node *a, const struct jm_node *b);
/* Finds the order of units, with its liveness and places */
int jm_program_schedule(struct jm_program *p, struct jm_err *err);

#endif
