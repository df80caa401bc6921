/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of group norm share. */
#ifndef JM_CUDA_GROUPNORM_CUH
#define JM_CUDA_GROUPNORM_CUH

#include "../common.cuh"
#include "../groupnorm.h"

#define SOME 4 /* pixels that estimate the mean of a channel */

/* The means of N channels over some of the pixels of an image; get(pixel, part) reads them. */
template <int N, typename T, class GET>
__device__ __forceinline__ void shifts_by(int64_t pixels, float (&shift)[N], GET get)
{
	packed<N, T> part[SOME];

#pragma unroll
	for (int i = 0; i < SOME; i++)
		get(pixels * i / SOME, part[i]);
#pragma unroll
	for (int k = 0; k < N; k++) {
		shift[k] = 0;
#pragma unroll
		for (int i = 0; i < SOME; i++)
			shift[k] += part[i].at(k);
		shift[k] /= SOME;
	}
}

/* The same of x from channel `at` of an image on. */
template <int N, typename T>
__device__ __forceinline__ void shifts_of(
	const struct cuda_groups &p, int64_t image, int64_t at, float (&shift)[N])
{
	const T *x = as<const T>(p.x) + image * p.pixels * p.c + at;

	shifts_by<N, T>(p.pixels, shift,
		[&](int64_t pixel, packed<N, T> &part) { fetch(x + pixel * p.c, part); });
}

/* Of a variance that rounding may leave below 0; a NaN stays one. */
__device__ __forceinline__ float rstd_of(double var, float eps)
{
	return (float)(1 / sqrt((var < 0 ? 0 : var) + (double)eps));
}

/* Where the channels of a pixel from `at` on are in the parts or, if there are none, in `whole`,
 * and the distance to the next pixel. */
template <typename T> struct group_place {
	T *at; /* NULL = nowhere */
	int64_t c;
};

template <typename T>
__device__ __forceinline__ group_place<T> place_of(const struct cuda_groups &p,
	const struct cuda_vec &whole, int64_t image, int64_t pixel, int at)
{
	void *data = whole.data;
	int c = p.c;

#pragma unroll
	for (int i = 0, first = 0; i < CUDA_GROUP_PARTS; i++) {
		if (i < p.n_parts && at >= first && at < first + p.width[i]) {
			data = p.part[i].data;
			c = p.width[i];
			at -= first;
			break;
		}
		first += p.width[i];
	}
	return {data ? static_cast<T *>(data) + (image * p.pixels + pixel) * c + at : NULL, c};
}

/* The gradient before SiLU. */
template <typename T>
__device__ __forceinline__ float slope_of(const struct cuda_groups &p, float dy, float t)
{
	const float s = sigmoid<T>(t);

	return p.silu ? dy * s * (1 + t * (1 - s)) : dy;
}

#endif
