/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over the rows of x[rows,width], whose rows are `stride` elements apart: each block sums a
 * part of the rows for 32 packs of columns into partial[parts,width], which a second kernel sums in
 * order. Where 32 packs do not divide a row, up to 4 rows that lie one after the other are handled
 * as one, whose parts are as many parts of a row.
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
	const int column = blockIdx.x * WARP + threadIdx.y;
	const float sum = part_sum(p.partial, p.parts, (int)p.width);

	if (threadIdx.x == 0 && column < p.width)
		p.y[column] = sum + (p.accumulate ? p.y[column] : 0);
}

/* Rows that lie one after the other are one row of a whole number of warps' packs: that many. */
#define FOLD_MOST 4

int cuda_column_parts(int processors, int64_t rows, int64_t width)
{
	const int64_t across = (width + PACK * WARP - 1) / (PACK * WARP),
		      most = (rows + 4 * WARPS - 1) / (4 * WARPS);
	int64_t parts = 4 * processors / across;

	if (width % PACK == 0 && width / PACK % WARP)
		parts = 4 * processors * PACK * WARP / width / FOLD_MOST * FOLD_MOST;
	if (parts > most)
		parts = most;
	return parts < 1 ? 1 : (int)parts;
}

static struct cuda_columns fold_rows(const struct cuda_columns *p)
{
	struct cuda_columns ret = *p;
	int k = 1;

	while (k < FOLD_MOST && p->stride == p->width && p->width % PACK == 0 &&
		p->width * k / PACK % WARP && p->rows % (2 * k) == 0 && p->parts % (2 * k) == 0)
		k *= 2;
	ret.rows /= k;
	ret.width *= k;
	ret.stride *= k;
	ret.parts /= k;
	return ret;
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
	const struct cuda_columns folded = fold_rows(p);

	/* a pack may cross the width, but not the end of the padded row */
	(p->stride % PACK == 0 && p->width % PACK == 0) ? columns_of<PACK>(&folded, stream)
							: columns_of<1>(p, stream);
	cuda_columns_finish(p, stream);
}

void cuda_columns_finish(const struct cuda_columns *p, cudaStream_t stream)
{
	parts_kernel<<<blocks_for(p->width, WARP), dim3(WARP, WARP), 0, stream>>>(*p);
}
