/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor parallelism (Shoeybi et al., arXiv 1909.08053): g->tp ranks share one model. Of a matrix
 * that is cut by rows (outputs) each rank computes a part of the outputs; one that is cut by
 * columns (inputs) reads such a part, and the sum of its results over the ranks is the layer's.
 * jm_graph_linear adds the node sum-ranks that makes this sum, and jm_graph_gradients the one for
 * the gradient of what a matrix cut by rows reads. All other nodes run on every rank with the same
 * values. With one rank nothing is cut.
 *
 * With g->sp (sequence parallel; Korthikanti et al., arXiv 2205.05198) they run on the own rows
 * only: a matrix cut by rows reads the gathered rows of all ranks, and of the sum of one cut by
 * columns each rank receives its rows. All norms are in this part of the graph.
 *
 * own-rows and whole-rows are the gradients of each other, as are gather-rows and sum-rows.
 */
#ifndef JM_TENSOR_PARALLEL_H
#define JM_TENSOR_PARALLEL_H

#include "graph.h"

enum jm_cut_dim { JM_CUT_ROWS, JM_CUT_COLUMNS };

/* For models: the own share of n (heads, width). An n that the ranks do not divide is an error. */
int64_t jm_graph_share(struct jm_graph *g, int64_t n, const char *what);
/* For models: cuts a parameter, declared whole, along the dim. It has n parts side by side, of
 * which each rank keeps an equal share; size: of the whole parts. Returns the parameter. */
struct jm_tensor *jm_graph_cut(
	struct jm_graph *g, struct jm_tensor *t, enum jm_cut_dim dim, int n, const int64_t *size);

/* True if t is a parameter that is cut along this dim, or the copy of one. */
bool jm_graph_is_cut(const struct jm_graph *g, const struct jm_tensor *t, enum jm_cut_dim dim);
/* The sum of x over the ranks; with sp the own rows of it. */
struct jm_tensor *jm_graph_sum_ranks(struct jm_graph *g, struct jm_tensor *x);
/* With sp: all rows, for a matrix cut by rows. */
struct jm_tensor *jm_graph_gather_rows(struct jm_graph *g, struct jm_tensor *x);
/* For models, with sp: from rows [batch,seq,width] that are equal on all ranks to the own ones, and
 * back. */
struct jm_tensor *jm_graph_own_rows(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_whole_rows(struct jm_graph *g, struct jm_tensor *x);
/* For norms: with sp the gradient of the parameter (may be NULL) is of the own rows. */
void jm_graph_sums_gradient(struct jm_graph *g, struct jm_tensor *t);
/* After the gradients: the first rank alone adds the biases of sums over ranks. */
void jm_graph_add_biases_once(struct jm_graph *g);

/* The size of dim i of the whole parameter. */
int64_t jm_cell_dim(const struct jm_graph *g, const struct jm_cell *c, int i);
int64_t jm_cell_count(const struct jm_graph *g, const struct jm_cell *c); /* of the whole one */
/* How many elements of rank tp_rank, from `own` on, follow each other in the whole parameter, too;
 * ret_whole: the index of the first there. */
int64_t jm_cell_stretch(const struct jm_graph *g, const struct jm_cell *c, int tp_rank, int64_t own,
	int64_t *ret_whole);
/* The share of the node's FLOPs that counts as the model's: other ranks run the same products. */
double jm_node_model_share(const struct jm_graph *g, const struct jm_node *n);

#endif
