/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of wide_pixels.cu: convolutions of single pixels with the sums of a norm in 16 bits, with
 * 256 columns of a block, for compute capability 9.0. */
#ifndef JM_CUDA_WIDE_PIXELS_H
#define JM_CUDA_WIDE_PIXELS_H

#include "image_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True for 64, 128 or 256 channels and multiples of 256 columns. */
bool cuda_wide_pixels_know(const struct cuda_pixels *p);
size_t cuda_wide_pixels_scratch(const struct cuda_pixels *p);
/* As cuda_pixels_stats and cuda_pixels_grad; the latter only with a gradient that is added, and
 * with bits of the ReLU. They fail where a block cannot have the shared memory. */
cudaError_t cuda_wide_pixels_stats(
	const struct cuda_pixels *p, const struct cuda_bn *bn, cudaStream_t stream);
cudaError_t cuda_wide_pixels_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
