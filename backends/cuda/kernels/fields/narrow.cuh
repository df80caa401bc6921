/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of few channels in shared memory; for narrow.cu and hidden.cu. */
#ifndef JM_CUDA_NARROW_CUH
#define JM_CUDA_NARROW_CUH

#include <cuda_pipeline.h>

#include "../common.cuh"
#include "../narrow.h"

#define QUAD 4

static __host__ __device__ constexpr int whole_quads(int n)
{
	return (n + QUAD - 1) / QUAD * QUAD;
}

static __host__ __device__ __forceinline__ int quads_of(int width)
{
	return (width + QUAD - 1) / QUAD;
}

/*
 * Floats from one row to the next in shared memory: threads that read adjacent rows, QUAD floats at
 * a time where rows are whole quads, find them in different banks.
 */
static __host__ __device__ __forceinline__ int pitch_of(int width)
{
	if (width % QUAD)
		return width | 1;
	return width / QUAD % 2 ? width : width + QUAD;
}

/*
 * Copies rows of `width` that are contiguous in memory, asynchronously, to rows of `pitch`; those
 * from `rows` to `all` become 0. `from` is aligned to a quad, `all` is a multiple of QUAD. The
 * block has a thread for each element, or quad, of a row.
 */
__device__ __forceinline__ void take_rows(
	float *to, int pitch, const float *from, int width, int rows, int all)
{
	const int threads = blockDim.x;

	if (pitch == width && rows == all) { /* as one row */
		for (int i = threadIdx.x * QUAD; i < all * width; i += threads * QUAD)
			__pipeline_memcpy_async(to + i, from + i, 16);
		return;
	}
	const int each = width % QUAD ? 1 : QUAD, line = width / each, lines = threads / line;
	const int at = threadIdx.x % line * each;

	for (int row = threadIdx.x / line; row < all && (int)threadIdx.x < lines * line;
		row += lines) {
		const float *x = row < rows ? from + row * width + at : from;
		const int none = row < rows ? 0 : each * (int)sizeof(float);

		if (each == QUAD)
			__pipeline_memcpy_async(to + row * pitch + at, x, 16, none);
		else
			__pipeline_memcpy_async(to + row * pitch + at, x, 4, none);
	}
}

#endif
