/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling as arguments of image_kernels.h. */
#ifndef JM_CUDA_OPS_POOL_H
#define JM_CUDA_OPS_POOL_H

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/image_kernels.h"

/* Pooling of x to y, or its gradient. */
struct cuda_pool cuda_pool_of(
	const struct jm_node *n, const struct jm_tensor *x, const struct jm_tensor *y);
/* Accepts an image of which each pixel is the same, and which is added to another one. */
int cuda_takes_shift(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);

#endif
