/* SPDX-License-Identifier: Apache-2.0 */
/* The first layer of a ResNet and the gradient of its filter, for which stem.cu has kernels. */
#ifndef JM_CUDA_CONV_STEM_H
#define JM_CUDA_CONV_STEM_H

#include "conv_operands.h"
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/image_kernels.h"

/* True for conv and conv-wgrad of 7 x 7 windows of 3 channels with stride 2 on tensor cores,
 * without bias. */
bool cuda_conv_is_stem(const struct jm_node *n);
/* The bytes of the gradient's partial sums. */
size_t cuda_conv_stem_scratch(const struct cuda_dev *dev, const struct jm_node *n);
cudaError_t cuda_conv_stem_run(const struct cuda_dev *dev, const struct jm_node *n, void *scratch);

#endif
