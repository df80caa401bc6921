/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution with a window of one pixel over images with their channels last is a linear layer
 * over all pixels: y[pixels, K] = x[pixels, C] w[K, C]^T, and so are its gradients. */
#ifndef JM_CONV_MATRIX_H
#define JM_CONV_MATRIX_H

#include "layout.h"

/* The choice to run a convolution as a product of matrices; 0 = not possible. */
int cpu_conv_matrix_offer(
	const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice);

#endif
