/* SPDX-License-Identifier: Apache-2.0 */
/* The scratch memory of sums over rows, whose size is cuda_bn_scratch: two values for each channel,
 * and parts. */
#ifndef JM_CUDA_BATCHNORM_CUH
#define JM_CUDA_BATCHNORM_CUH

#include "image.h"
#include "rows.cuh"

/* dx = scale (e - first - (x - mean) second): scale = rstd gamma, first = dbeta / n, second = rstd^2 sum(e
 * (x - mean)) / n. */
struct sums {
	float *parts, *first, *second;
};

static inline struct sums sums_of(void *scratch, int64_t c)
{
	float *at = (float *)scratch;

	return {at + 2 * c, at, at + c};
}

#endif
