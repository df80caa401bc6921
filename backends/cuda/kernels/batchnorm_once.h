/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of norms/batchnorm_once.cu: batch norm in 16 bits by one kernel that keeps its operands
 * on the multiprocessors between its two passes. */
#ifndef JM_CUDA_BATCHNORM_ONCE_H
#define JM_CUDA_BATCHNORM_ONCE_H

#include "image_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where blocks meet; only one kernel uses it at a time. */
struct cuda_meeting {
	int processors;	   /* that the stream may use, of which each runs a block */
	unsigned *arrived; /* CUDA_MEETING_BYTES, 0 at first */
};
#define CUDA_MEETING_BYTES ((size_t)128 << 8)

/* True if channels are multiples of 64, nothing is added to the norm, and y is not added to. */
bool cuda_bn_once_knows(const struct cuda_bn *p, int processors);
/* True if the ReLU's mask is recomputed from x, and dx is not added to. */
bool cuda_bn_grad_once_knows(const struct cuda_bn_grad *p, int processors);
/* cuda_bn_stats, with rstd, then cuda_bn_apply. Both fail where the device cannot run all blocks at
 * a time. */
cudaError_t cuda_bn_once(
	const struct cuda_bn *p, const struct cuda_meeting *m, cudaStream_t stream);
/* cuda_bn_grad. */
cudaError_t cuda_bn_grad_once(
	const struct cuda_bn_grad *p, const struct cuda_meeting *m, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
