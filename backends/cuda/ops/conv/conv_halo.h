/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 that halo_conv.cu computes. */
#ifndef JM_CUDA_CONV_HALO_H
#define JM_CUDA_CONV_HALO_H

#include "conv_operands.h"
#include "backends/cuda/device/cuda.h"

/* True for conv and conv-dgrad of many channels in 16 bits with stride 1 and pad 1, on compute
 * capability 9.0. The kernel adds a bias. */
bool cuda_conv_is_halo(const struct cuda_dev *dev, const struct jm_node *n);
/* A second node adds another image to the result, or is a ReLU. */
cudaError_t cuda_conv_halo_run(const struct cuda_dev *dev, const struct cuda_exec *exec);

#endif
