/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes on images as arguments of image_kernels.h. */
#ifndef JM_CUDA_OPS_IMAGE_H
#define JM_CUDA_OPS_IMAGE_H

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/image_kernels.h"

static inline int64_t cuda_pixels_of(const struct jm_tensor *t)
{
	return t->dim[0] * t->dim[2] * t->dim[3];
}

/* Pooling of x to y, or its gradient. */
struct cuda_pool cuda_pool_of(
	const struct jm_node *n, const struct jm_tensor *x, const struct jm_tensor *y);
/* All images of the nodes from this one on have their channels last. */
void cuda_image_layouts(const struct jm_group *group, int from, struct jm_choice *choice);
/* One choice, with these layouts for all nodes, and with the default cost. */
int cuda_image_choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err);
/* bn-stats and bn-finalize of one image. own: [2,c], mean and variance where the tensors have no
 * memory. */
struct cuda_bn cuda_bn_stats_of(
	const struct jm_node *stats, const struct jm_node *last, float *own, void *scratch);
/* bn-grad, with the mask that the forward group of exec saved. */
struct cuda_bn_grad cuda_bn_grad_of(const struct jm_node *n, const struct cuda_exec *exec);

#endif
