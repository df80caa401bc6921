/* SPDX-License-Identifier: Apache-2.0 */
/* The order of nodes, and of units with their liveness and places. */
#ifndef JM_SCHEDULE_H
#define JM_SCHEDULE_H

#include "program_plan.h"

/* Moves recomputed nodes to directly before their first readers */
int jm_graph_schedule(struct jm_graph *g, struct jm_err *err);
/* True if u and then n give the same results as n and then u: neither writes what the other uses */
bool jm_unit_may_swap(const struct jm_unit *u, const struct jm_node *n);
/* Moves unit `at` behind unit `to`; false: one of the units up to `to` writes what it uses, or
 * reads what it writes. Positions are not changed. */
bool jm_unit_put_behind(struct jm_program *p, int at, int to);
/* Finds the order of units, with its liveness and places */
int jm_program_schedule(struct jm_program *p, struct jm_err *err);

#endif
