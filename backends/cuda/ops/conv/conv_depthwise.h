/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with a filter for each channel, for which depthwise.cu has kernels. */
#ifndef JM_CUDA_CONV_DEPTHWISE_H
#define JM_CUDA_CONV_DEPTHWISE_H

#include "conv_operands.h"
#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/depthwise/depthwise.h"

/* True for conv, conv-dgrad and conv-wgrad of 3 x 3 windows with stride 1 and pad 1, without
 * bias. */
bool cuda_conv_is_depthwise(const struct jm_node *n);
/* The bytes of the partial sums of a filter's gradient. */
size_t cuda_conv_depthwise_scratch(const struct cuda_dev *dev, const struct jm_node *n);
cudaError_t cuda_conv_depthwise_run(const struct cuda_dev *dev, const struct cuda_exec *exec);
/* What its kernels are told; scratch: of the bytes above. */
struct cuda_depthwise cuda_depthwise_of(
	const struct cuda_dev *dev, const struct jm_node *n, void *scratch);

#endif
