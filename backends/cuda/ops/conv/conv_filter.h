/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a filter of 3 x 3 in tf32, for which filter_grad.cu has a kernel. */
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

#endif
