/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 in which each channel has a filter of its own. */
#ifndef JM_CUDA_DEPTHWISE_H
#define JM_CUDA_DEPTHWISE_H

#include "backends/cuda/kernels/image_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * y[batch,in,channels] of x of the same shape and w[channels,3,3] with stride 1 and pad 1, and the
 * gradient dw of the filter from x and y, which is dy then. The gradient of the image is y of dy
 * with the filter turned by half a turn. All but dw have one type; channels is a multiple of 8.
 * Without w, y is the mean of 3 x 3 pixels, of which those outside of the image are 0.
 */
struct cuda_depthwise {
	int batch, channels, processors;
	int in[2];
	bool turned, accumulate;
	struct cuda_vec x, w, y;
	struct cuda_vec open; /* y is 0, before it is added, where this is not above 0; not of dw */
	/* relu: in 16 bits, 0 comes in place of x where x is below 0. mean: (x - mean) rstd gamma +
	 * beta comes in its place, and 0 where that is below 0. Neither is together with `open` or
	 * accumulate of y */
	bool relu;
	struct {
		const float *mean, *rstd, *gamma, *beta;
	} norm;
	float *dw;
	float *partial; /* of dw: cuda_depthwise_scratch bytes */
};
size_t cuda_depthwise_scratch(const struct cuda_depthwise *p);
void cuda_depthwise(const struct cuda_depthwise *p, cudaStream_t stream);
/* depthwise_image.cu: the same with `open` or accumulate. */
void cuda_depthwise_more(const struct cuda_depthwise *p, cudaStream_t stream);
void cuda_depthwise_grad(const struct cuda_depthwise *p, cudaStream_t stream);
/* y, the gradient of a norm's result, and from it dx, dgamma and dbeta of the norm, in 16 bits.
 * bn->scratch: cuda_depthwise_norm_scratch bytes; bn has no y, and its dx may be y, which becomes
 * the gradient before the ReLU; with `open` it has no ReLU. */
void cuda_depthwise_norm_grad(
	const struct cuda_depthwise *p, const struct cuda_bn_grad *bn, cudaStream_t stream);
size_t cuda_depthwise_norm_scratch(const struct cuda_depthwise *p);

#ifdef __cplusplus
}
#endif

#endif
