/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of group norm share. */
#ifndef JM_CUDA_GROUPNORM_CUH
#define JM_CUDA_GROUPNORM_CUH

#include "../common.cuh"
#include "../groupnorm.h"

#define SOME 4 /* pixels that estimate the mean of a channel */

/* The means of N channels of an image from `at` on over some of its pixels. */
template <int N, typename T>
__device__ __forceinline__ void shifts_of(
	const struct cuda_groups &p, int64_t image, int64_t at, float (&shift)[N])
{
	const T *x = as<const T>(p.x) + image * p.pixels * p.c + at;
	packed<N, T> part[SOME];

#pragma unroll
	for (int i = 0; i < SOME; i++)
		fetch(x + p.pixels * i / SOME * p.c, part[i]);
#pragma unroll
	for (int k = 0; k < N; k++) {
		shift[k] = 0;
#pragma unroll
		for (int i = 0; i < SOME; i++)
			shift[k] += part[i].at(k);
		shift[k] /= SOME;
	}
}

/* Of a variance that rounding may leave below 0; a NaN stays one. */
__device__ __forceinline__ float rstd_of(double var, float eps)
{
	return (float)(1 / sqrt((var < 0 ? 0 : var) + (double)eps));
}

/* The gradient before SiLU. */
template <typename T>
__device__ __forceinline__ float slope_of(const struct cuda_groups &p, float dy, float t)
{
	const float s = sigmoid<T>(t);

	return p.silu ? dy * s * (1 + t * (1 - s)) : dy;
}

#endif
