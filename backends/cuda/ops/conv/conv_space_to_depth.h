/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images with few channels, those of the first layer, are folded, so that there are enough channels
 * for tensor cores: each square of pixels that the stride steps over becomes channels.
 */
#ifndef JM_CUDA_CONV_SPACE_TO_DEPTH_H
#define JM_CUDA_CONV_SPACE_TO_DEPTH_H

#include "conv_operands.h"
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/dnn/dnn_conv.h"
#include "backends/cuda/kernels/image_kernels.h"

bool cuda_conv_folds(const struct jm_node *n);
/* What rearranges the image x or the filter w. */
struct cuda_fold cuda_conv_fold(const struct jm_node *n, const struct jm_tensor *t);
/* Changes the shape to the one that cuDNN computes on. */
void cuda_conv_fold_shape(const struct jm_node *n, struct dnn_conv_shape *shape);
/* The strides of t, which is plain or has its channels last, in the order of its dims. */
void cuda_conv_strides(const struct jm_tensor *t, int64_t ret[4]);

#endif
