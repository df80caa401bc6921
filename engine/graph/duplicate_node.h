/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that run a second time in a step, and which nodes read what; for rematerialize.c,
 * recompute.c and keep_copies.c. */
#ifndef JM_DUPLICATE_NODE_H
#define JM_DUPLICATE_NODE_H

#include "graph.h"

/* A tensor like t for the recomputed values. From now on t is never virtual, so that both have the
 * same bits. NULL = the graph has an error. */
struct jm_tensor *jm_duplicate_tensor(struct jm_graph *g, struct jm_tensor *t);
/* Appends a duplicate of the node with these results. NULL = the graph has an error. */
struct jm_node *jm_duplicate_node(
	struct jm_graph *g, const struct jm_node *n, struct jm_tensor *const *out);

/* Nodes from `first` on read `to` in place of `from`. */
void jm_rename_reads(
	const struct jm_graph *g, int first, const struct jm_tensor *from, struct jm_tensor *to);

/* The operands of gradients that are one tensor, so that they are found in the time of as many. */
struct jm_reads {
	int n_nodes; /* those before there were duplicates */
	int *last;   /* [cell]: node * JM_NODE_IN + operand; -1 = none */
	int *before; /* [node, operand]: the one before it of that tensor; -1 = none */
};

/* False = out of memory. */
bool jm_reads_find(struct jm_reads *reads, const struct jm_graph *g);
/* Gradients and duplicates read `to` in place of `from`. */
void jm_reads_rename(const struct jm_reads *reads, const struct jm_graph *g,
	const struct jm_tensor *from, struct jm_tensor *to);
void jm_reads_free(struct jm_reads *reads);

/* True if copies of parameters may be recomputed. With several micro-steps one copy serves all
 * (hoist_copies.c). */
static inline bool jm_duplicates_copies(const struct jm_graph *g)
{
	return g->micro_steps < 2;
}

#endif
