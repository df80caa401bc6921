/* SPDX-License-Identifier: Apache-2.0 */
/* gelu with the normal distribution function, and its gradient, as factors. */
#ifndef JM_CUDA_GELU_CUH
#define JM_CUDA_GELU_CUH

/* The normal distribution function: gelu-erf(x) / x. Its absolute error is small, which suffices
 * because it is multiplied by x. */
__device__ __forceinline__ float normal_below(float x)
{
	return 0.5f + 0.5f * erff(x * 0.7071067811865476f);
}

/* The derivative of gelu-erf. */
__device__ __forceinline__ float gelu_erf_slope(float x)
{
	return normal_below(x) + x * 0.3989422804014327f * expf(-0.5f * x * x);
}

#endif
