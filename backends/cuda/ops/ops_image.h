/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes on images as arguments of image_kernels.h. */
#ifndef JM_CUDA_OPS_IMAGE_H
#define JM_CUDA_OPS_IMAGE_H

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/batchnorm_once.h"

static inline int64_t cuda_pixels_of(const struct jm_tensor *t)
{
	return t->dim[0] * t->dim[2] * t->dim[3];
}

/* All images of the nodes from this one on have their channels last. */
void cuda_image_layouts(const struct jm_group *group, int from, struct jm_choice *choice);
/* One choice, with these layouts for all nodes, and with the default cost. */
int cuda_image_choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err);
/* bn-stats and bn-finalize of one image. own: [2,c], mean and variance where the tensors have no
 * memory. */
struct cuda_bn cuda_bn_stats_of(
	const struct jm_node *stats, const struct jm_node *last, float *own, void *scratch);
/* bn-stats, bn-finalize and bn-apply of one image; own: [3,c], also for rstd; mask: as below. */
struct cuda_bn cuda_bn_whole_of(const struct jm_node *n, float *own, void *scratch, void *mask);
/* Where the blocks of kernels of batchnorm_once.h meet; without memory for it `arrived` is NULL. */
struct cuda_meeting cuda_meeting_of(struct cuda_dev *dev);
/* True if the device has these kernels for the norm, or for its gradient. */
bool cuda_bn_is_once(const struct cuda_dev *dev, const struct cuda_bn *p);
bool cuda_bn_grad_is_once(const struct cuda_dev *dev, const struct cuda_bn_grad *p);
/* Accepts groups whose images all have one type. */
int cuda_takes_images(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err);
/* Of groups whose first node computes on a batch norm, or is the gradient of its pooling. */
int cuda_choices_bn(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err);
/* bn-apply; mask: where the bits of its ReLU go, or NULL. */
struct cuda_bn cuda_bn_apply_of(const struct jm_node *n, void *mask);
/* Accepts a norm with ReLU that is computed again by the kernel of its gradient. */
int cuda_takes_bn_again(
	const struct jm_node *grad, const struct jm_node *again, struct jm_err *err);
/* bn-grad, with the mask that the forward group of exec saved, and with the norm again if that is
 * the last node. */
struct cuda_bn_grad cuda_bn_grad_of(const struct jm_node *n, const struct cuda_exec *exec);

#endif
