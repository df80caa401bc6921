/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that run a second time in a step; for rematerialize.c and recompute.c. */
#ifndef JM_DUPLICATE_NODE_H
#define JM_DUPLICATE_NODE_H

#include "graph.h"

/* A tensor like t for the same values, made again. t is never virtual from now on, so that both have the
 * same bits. NULL = the graph has an error. */
struct jm_tensor *jm_duplicate_tensor(struct jm_graph *g, struct jm_tensor *t);
/* The node once more, with these results. NULL = the graph has an error. */
struct jm_node *jm_duplicate_node(
	struct jm_graph *g, const struct jm_node *n, struct jm_tensor *const *out);

/* May copies of parameters be made again? With several micro-steps they are made once for all (hoist_copies.c). */
static inline bool jm_duplicates_copies(const struct jm_graph *g)
{
	return g->micro_steps < 2;
}

#endif
