/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y[T,N] = x[T,K] w[N,K]^T for few rows T, as serving has them: the time is that of reading w once.
 * A block computes 16 columns of y; its warps share K. Rows of w are the rows of products on tensor
 * cores, rows of x their columns. What is summed over may be in any order, so a lane reads 16 bytes
 * of w at a time, directly to registers, and the elements of x that belong to them. A block reads
 * the first of w before the kernel that makes x has ended.
 */
#include "backends/cuda/kernels/mma.cuh"

#define WARPS	8
#define COLUMNS 16 /* of y, of a block */
#define CHUNK	64 /* bytes of a row of w that a warp takes at a time */
#define AHEAD	4  /* chunks that it reads at a time */

/* 8 elements of 16 bits, or 16 of 8 bits. */
struct words {
	unsigned w[4];
};

__device__ __forceinline__ struct words read_once(const void *p, bool exists)
{
	struct words r = {{0, 0, 0, 0}};

	if (exists)
		asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
			     : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
			     : "l"(p));
	return r;
}

__device__ __forceinline__ struct words read_words(const void *p, bool exists)
{
	const uint4 q = exists ? *static_cast<const uint4 *>(p) : make_uint4(0, 0, 0, 0);

	return {{q.x, q.y, q.z, q.w}};
}

/* Adds up what the warps have: share[warp][column of y][row of y]. */
template <typename Y, int TILES>
__device__ __forceinline__ void store_block(
	const struct cuda_few_rows &p, const float (*share)[COLUMNS][8 * TILES])
{
	for (int i = threadIdx.x; i < COLUMNS * 8 * TILES; i += WARPS * WARP) {
		const int column = i % COLUMNS, row = i / COLUMNS;
		float sum = 0;

		for (int warp = 0; warp < WARPS; warp++)
			sum += share[warp][column][row];
		if (row >= p.rows)
			continue;
		if (p.ws)
			sum *= p.xs[row] * p.ws[blockIdx.x * COLUMNS + column];
		as<Y>(p.y)[row * p.to + blockIdx.x * COLUMNS + column] = (Y)sum;
	}
}

/* T: of x and w; TILES: of 8 rows. */
template <typename T, typename Y, int TILES>
__global__ void __launch_bounds__(WARPS *WARP) few_rows_kernel(struct cuda_few_rows p)
{
	__shared__ float share[WARPS][COLUMNS][8 * TILES];
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	constexpr int chunk = CHUNK / sizeof(T); /* elements */
	const int quad = lane / 4, part = lane % 4 * (chunk / 4);
	const T *w = as<const T>(p.w) + (int64_t)(blockIdx.x * COLUMNS + quad) * p.from + part;
	const T *x = as<const T>(p.x) + (int64_t)quad * p.from + part;
	float d[TILES][4] = {};

	if (!p.w_stays)
		wait_for_previous();
	for (int first = warp * chunk; first < p.from; first += AHEAD * WARPS * chunk) {
		struct words a[AHEAD][2]; /* of two rows of w, 8 apart */

#pragma unroll
		for (int i = 0; i < AHEAD; i++) {
			const int k = first + i * WARPS * chunk;

			a[i][0] = read_once(w + k, k < p.from);
			a[i][1] = read_once(w + k + 8 * p.from, k < p.from);
		}
		if (first == warp * chunk)
			wait_for_previous();
#pragma unroll
		for (int i = 0; i < AHEAD; i++) {
			const int k = first + i * WARPS * chunk;
			const unsigned low[4] = {
				a[i][0].w[0], a[i][1].w[0], a[i][0].w[1], a[i][1].w[1]};
			const unsigned high[4] = {
				a[i][0].w[2], a[i][1].w[2], a[i][0].w[3], a[i][1].w[3]};

#pragma unroll
			for (int t = 0; t < TILES; t++) {
				const struct words b = read_words(x + 8 * t * p.from + k,
					quad + 8 * t < p.rows && k < p.from);

				multiply(T(), d[t], low, b.w[0], b.w[1]);
				multiply(T(), d[t], high, b.w[2], b.w[3]);
			}
		}
	}
#pragma unroll
	for (int t = 0; t < TILES; t++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			share[warp][quad + i / 2 * 8][8 * t + lane % 4 * 2 + i % 2] = d[t][i];
	__syncthreads();
	store_block<Y, TILES>(p, share);
}

bool cuda_few_rows_knows(const struct cuda_few_rows *p)
{
	return p->rows <= CUDA_FEW_ROWS && p->y.type != CUDA_F32 &&
	       p->from % (p->ws ? CHUNK : CHUNK / 2) == 0 && p->to % COLUMNS == 0;
}

template <typename T, typename Y>
static void few_rows(const struct cuda_few_rows *p, cudaStream_t stream)
{
	const unsigned blocks = (unsigned)(p->to / COLUMNS);
	void (*kernel)(struct cuda_few_rows) =
		p->rows <= 8 ? few_rows_kernel<T, Y, 1> : few_rows_kernel<T, Y, 2>;

	start_overlapping(kernel, dim3(blocks), WARPS * WARP, 0, stream, *p);
}

void cuda_few_rows(const struct cuda_few_rows *p, cudaStream_t stream)
{
	if (p->y.type == CUDA_BF16)
		p->ws ? few_rows<e4m3, bf16>(p, stream) : few_rows<bf16, bf16>(p, stream);
	else
		p->ws ? few_rows<e4m3, half>(p, stream) : few_rows<half, half>(p, stream);
}
