/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of filters of 3 x 3 for which filter_grad.cu (tf32), slim_grad.cu and wide_grad.cu
 * (16 bits) have kernels. */
#ifndef JM_CUDA_CONV_FILTER_H
#define JM_CUDA_CONV_FILTER_H

#include "conv_operands.h"
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/image_kernels.h"

/* True for conv-wgrad in tf32 with pad 1 and without bias that the kernel knows, on compute
 * capability 9.0. */
bool cuda_conv_is_filter(const struct cuda_dev *dev, const struct jm_node *n);
/* The bytes of its partial sums. */
size_t cuda_conv_filter_scratch(const struct cuda_dev *dev, const struct jm_node *n);
cudaError_t cuda_conv_filter_run(const struct cuda_dev *dev, const struct cuda_exec *exec);

/* True for conv-wgrad of few channels in 16 bits with stride 1 and without bias. */
bool cuda_conv_is_slim(const struct cuda_dev *dev, const struct jm_node *n);
size_t cuda_conv_slim_scratch(const struct cuda_dev *dev, const struct jm_node *n);
cudaError_t cuda_conv_slim_run(const struct cuda_dev *dev, const struct cuda_exec *exec);

/* True for conv-wgrad of many channels in 16 bits with stride 1 and pad 1, on compute capability
 * 9.0. The kernel computes the gradient of a bias, too. */
bool cuda_conv_is_wide(const struct cuda_dev *dev, const struct jm_node *n);
size_t cuda_conv_wide_scratch(const struct cuda_dev *dev, const struct jm_node *n);
cudaError_t cuda_conv_wide_run(const struct cuda_dev *dev, const struct cuda_exec *exec);

#endif
