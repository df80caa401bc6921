/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of networks that learn to remove noise, for models; as layer.h. */
#ifndef JM_LAYER_NOISE_H
#define JM_LAYER_NOISE_H

#include "graph.h"

/* Steps of noise, whose betas go from the first to the last one as their square roots do. */
struct jm_noise {
	int64_t steps;
	double first, last;
	bool velocity; /* the network learns v (Salimans and Ho, arXiv 2202.00512), not the noise */
};

/* x [B,..] with noise of the same shape after step at[b], i32[B], below how->steps; ret_target:
 * what the network should make of it. */
struct jm_tensor *jm_graph_add_noise(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *noise, struct jm_tensor *at, const struct jm_noise *how,
	struct jm_tensor **ret_target);
/* Samples factor times a normal distribution of these moments [B,2C,Y,X]: means, then logarithms of
 * variances; noise [B,C,Y,X]. It has no gradient, so nothing before it is trained. */
struct jm_tensor *jm_graph_draw_moments(
	struct jm_graph *g, struct jm_tensor *moments, struct jm_tensor *noise, double factor);
/* Waves of `width` lengths at each step, as an image of one pixel [B, width, 1, 1]. */
struct jm_tensor *jm_graph_step_waves(struct jm_graph *g, struct jm_tensor *at, int64_t width);

#endif
