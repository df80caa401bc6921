/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: covers over neighbouring nodes, which are offered to a backend together (node.h). */
#ifndef JM_GROUP_H
#define JM_GROUP_H

#include "graph.h"

/* Who names each tensor, when the graph had n_nodes nodes: the number of operands, and the last
 * node. By id. */
struct jm_uses {
	int n_nodes, *count, *last;
};

/*
 * The number of nodes of the largest cover that begins at graph->node[i] and ends before
 * node[end]. Marks internal tensors as virtual.
 */
int jm_group_cover(struct jm_graph *g, int i, int end, const struct jm_uses *uses);
void jm_group_uncover(struct jm_graph *g, int i, int n);
/* Results of the group that may have the memory of an operand of its first node; returns how
 * many. */
struct jm_over {
	struct jm_tensor *to; /* the result */
	int from;	      /* the index of the operand */
};
int jm_group_replaces(const struct jm_group *group, struct jm_over ret[2]);
/* The bytes of all operands of the group's nodes; those of an operand that they share count
 * once. */
double jm_group_bytes(const struct jm_group *group);
/* The linear-wgrad that may join the group that begins with node i, to compute the gradient of its
 * bias; NULL = there is none. */
const struct jm_node *jm_group_wgrad(const struct jm_graph *g, int i);

/* The op of the gradient of an activation, for activations that a backend may recompute in
 * the kernel of their gradient; JM_OP_COUNT = not one of them */
enum jm_op jm_group_gradient(enum jm_op activation);
/* Marks norms in 16 bits that a max pooling of 3 x 3 with stride 2 alone reads, which may norm the
 * maxima: for devices that save the positions of maxima (jm_remake). To be called after
 * jm_graph_gradients. */
void jm_group_join_pooled(struct jm_graph *g);

#endif
