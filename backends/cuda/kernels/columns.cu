/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the rows of x[rows,width], whose rows are `stride` elements apart: each block sums a
 * part of the rows for 32 packs of columns into partial[parts,width], which a second kernel sums in
 * order.
 */
#include "common.cuh"

#define WARPS	8
#define AHEAD	4 /* rows that a thread loads at a time */
#define THREADS 256

/* Adds U rows, all of which are loaded before the first is added. */
template <int N, int U, typename X>
__device__ __forceinline__ void add_rows(
	const struct cuda_columns &p, const X *x, int64_t row, int64_t step, float (&sum)[N])
{
	float v[U][N];

#pragma unroll
	for (int u = 0; u < U; u++)
		load(x + (row + u * step) * p.stride, v[u]);
#pragma unroll
	for (int u = 0; u < U; u++)
#pragma unroll
		for (int k = 0; k < N; k++)
			sum[k] += v[u][k];
}

template <int N, typename X> __global__ void columns_kernel(struct cuda_columns p)
{
	__shared__ float share[WARPS][WARP][N + 1];
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const int64_t i = N * (blockIdx.x * (int64_t)WARP + lane),
		      step = (int64_t)WARPS * gridDim.y;
	float sum[N] = {};

	if (i < p.width) {
		const X *x = as<const X>(p.x) + i;
		int64_t r = blockIdx.y * WARPS + warp;

		for (; r + (AHEAD - 1) * step < p.rows; r += AHEAD * step)
			add_rows<N, AHEAD>(p, x, r, step, sum);
		for (; r < p.rows; r += step)
			add_rows<N, 1>(p, x, r, step, sum);
	}
#pragma unroll
	for (int k = 0; k < N; k++)
		share[warp][lane][k] = sum[k];
	__syncthreads();
	for (int j = threadIdx.x; j < WARP * N; j += WARPS * WARP) {
		const int64_t column = N * blockIdx.x * (int64_t)WARP + j;
		float all = 0;
#pragma unroll
		for (int w = 0; w < WARPS; w++)
			all += share[w][j / N][j % N];
		if (column < p.width)
			p.partial[blockIdx.y * p.width + column] = all;
	}
}

__global__ void parts_kernel(struct cuda_columns p)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	float sum = 0;

	if (i >= p.width)
		return;
	for (int part = 0; part < p.parts; part++)
		sum += p.partial[part * p.width + i];
	p.y[i] = sum + (p.accumulate ? p.y[i] : 0);
}

int cuda_column_parts(int processors, int64_t rows, int64_t width)
{
	int64_t across = (width + PACK * WARP - 1) / (PACK * WARP), parts = 4 * processors / across;
	int64_t most = (rows + 4 * WARPS - 1) / (4 * WARPS);

	if (parts > most)
		parts = most;
	return parts < 1 ? 1 : (int)parts;
}

template <int N> static void columns_of(const struct cuda_columns *p, cudaStream_t stream)
{
	dim3 grid(blocks_for(p->width, N * WARP), (unsigned)p->parts);

	with_type(p->x, [&](auto t) {
		columns_kernel<N, decltype(t)><<<grid, WARPS * WARP, 0, stream>>>(*p);
	});
}

void cuda_columns(const struct cuda_columns *p, cudaStream_t stream)
{
	/* a pack may cross the width, but not the end of the padded row */
	(p->stride % PACK == 0 && p->width % PACK == 0) ? columns_of<PACK>(p, stream)
							 : columns_of<1>(p, stream);
	parts_kernel<<<blocks_for(p->width, THREADS), THREADS, 0, stream>>>(*p);
}
