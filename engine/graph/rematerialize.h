/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputes results for gradients instead of keeping them, where that costs little time. */
#ifndef JM_REMATERIALIZE_H
#define JM_REMATERIALIZE_H

#include "graph.h"

/* A device's peaks per second (flops_f8: products in 8 bits), and the share of a step's time,
 * computed from them, that may be spent on recomputation; share 0: no limit, NAN: jm_remake_usual.
 * positions: max pooling saves positions (backend.h, saved), so nothing is recomputed for its
 * gradient. copies: the update keeps copies of parameters (keep_copies.c), so they are not
 * recomputed. */
struct jm_remake {
	double flops, flops_f8, bytes, share;
	bool positions, copies;
	/* activations are recomputed by the kernels of their gradients (group.c), which read their
	 * operands anyway: always, as it costs one writing of a result; at most half of the share
	 * counts as spent on them */
	bool beside;
};
/* The share that is worth its time where memory suffices: 1/16 % for transformers, 1.6 % for
 * networks of images with residual sums, 1 % for others. */
double jm_remake_usual(const struct jm_graph *g);
/*
 * Recomputes norms, activations and compute copies for gradients instead of
 * keeping them, where how->share is above the usual one also attention and products, beginning with
 * those that free most memory for their time. To be called after
 * jm_graph_gradients and before the update. The nodes are appended; jm_graph_schedule moves them to
 * their place.
 */
int jm_graph_rematerialize(struct jm_graph *g, const struct jm_remake *how, struct jm_err *err);

#endif
