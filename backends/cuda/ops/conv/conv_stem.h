/* SPDX-License-Identifier: Apache-2.0 */
/* First layers and the gradients of their filters, which stem.cu and small_stem.cu compute. */
#ifndef JM_CUDA_CONV_STEM_H
#define JM_CUDA_CONV_STEM_H

#include "conv_operands.h"
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/image_kernels.h"

/* True for conv and conv-wgrad of windows of 3 channels on tensor cores: of 7 x 7 with stride 2
 * without bias, and in 16 bits of 3 x 3. */
bool cuda_conv_is_stem(const struct jm_node *n);
/* Of these, true for 3 x 3: the kernels add the bias and apply a ReLU behind it. */
bool cuda_conv_stem_ends(const struct jm_node *n);
/* The bytes of the gradient's partial sums. */
size_t cuda_conv_stem_scratch(const struct cuda_dev *dev, const struct jm_node *n);
cudaError_t cuda_conv_stem_run(const struct cuda_dev *dev, const struct cuda_exec *exec);
/* The gradients of the filter and of the bias, without writing that of the ReLU behind them. */
cudaError_t cuda_conv_stem_opened(const struct cuda_dev *dev, const struct jm_node *relu,
	const struct jm_node *n, void *scratch);

#endif
