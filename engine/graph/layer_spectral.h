/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of fields [B, N.., C] on regular grids of 1 to 3 axes, channels last, for models; as
 * layer.h. */
#ifndef JM_LAYER_SPECTRAL_H
#define JM_LAYER_SPECTRAL_H

#include "graph.h"

/*
 * A convolution over the whole grid (Li et al., arXiv 2010.08895): of x the lowest frequencies, on
 * each axis but the last also as many negative ones, are multiplied by the complex matrices of the
 * parameter `name`, [2, K, from, to], and transformed back. modes: at most half the points of an
 * axis, of the last one half of them plus 1.
 */
struct jm_tensor *jm_graph_spectral_conv(struct jm_graph *g, struct jm_tensor *x, const char *name,
	int64_t to, const int64_t *modes);
/* The mean of |y - target| / |target|, where the norms are over the last `axes` axes of the grid;
 * in training with a tensor for its gradient. Not finite if a target is all zeros. */
struct jm_tensor *jm_graph_relative_l2(
	struct jm_graph *g, struct jm_tensor *y, struct jm_tensor *target, int axes);

#endif
