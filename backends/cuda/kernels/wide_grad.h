/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of wide_grad.cu: the gradient of a filter of 3 x 3 with stride 1 and pad 1 in 16 bits,
 * for compute capability 9.0. */
#ifndef JM_CUDA_WIDE_GRAD_H
#define JM_CUDA_WIDE_GRAD_H

#include "image_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradient of the bias: the sums of dy. */
struct cuda_wide_bias {
	float *grad; /* NULL = there is none */
	bool accumulate;
};

/* True for channels and filters that are multiples of 64. */
bool cuda_wide_knows(const struct cuda_filter_grad *p);
/* Of p->partial. */
size_t cuda_wide_scratch(const struct cuda_filter_grad *p);
cudaError_t cuda_wide_grad(
	const struct cuda_filter_grad *p, const struct cuda_wide_bias *bias, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
