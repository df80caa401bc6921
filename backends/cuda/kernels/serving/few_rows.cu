/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y[T,N] = x[T,K] w[N,K]^T for few rows T, as serving has them: the time is that of reading w once.
 * A block computes 16 columns of y; its warps share K. Rows of w are the rows of products on tensor
 * cores, rows of x their columns. What is summed over may be in any order, so a lane reads 16 bytes
 * of w at a time, directly to registers, and the elements of x that belong to them. A block reads
 * the first of w before the kernel that makes x has ended, unless that one may write w: then it
 * starts behind it, because reads of w are not coherent with writes by a kernel that still runs.
 */
#include "few_rows.cuh"

#define CHUNK 64 /* bytes of a row of w that a warp takes at a time */

/* How a block reads w: its warps; the chunks that a warp reads before it multiplies; and how many
 * of these lie one behind the other. */
template <int WARPS, int AHEAD, int TOGETHER> struct reading {
	static constexpr int warps = WARPS, ahead = AHEAD, together = TOGETHER;
};

/* Adds up what the warps have: share[warp][column of y][row of y]. */
template <typename Y, int TILES, int WARPS>
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

/* T: of x and w; TILES: of 8 rows; R: a reading. */
template <typename T, typename Y, int TILES, class R>
__global__ void __launch_bounds__(R::warps *WARP) few_rows_kernel(struct cuda_few_rows p)
{
	__shared__ float share[R::warps][COLUMNS][8 * TILES];
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	constexpr int chunk = CHUNK / sizeof(T); /* elements */
	const int quad = lane / 4, part = lane % 4 * (chunk / 4);
	const T *w = as<const T>(p.w) + (int64_t)(blockIdx.x * COLUMNS + quad) * p.from + part;
	const T *x = as<const T>(p.x) + (int64_t)quad * p.from + part;
	const int begin = warp * R::together * chunk;
	float d[TILES][4] = {};

	for (int first = begin; first < p.from; first += R::ahead * R::warps * chunk) {
		struct words a[R::ahead][2]; /* of two rows of w, 8 apart */
		auto chunk_at = [&](int i) {
			return first +
			       (i / R::together * R::warps * R::together + i % R::together) * chunk;
		};

#pragma unroll
		for (int i = 0; i < R::ahead; i++) {
			const int k = chunk_at(i);

			a[i][0] = read_once(w + k, k < p.from);
			a[i][1] = read_once(w + k + 8 * p.from, k < p.from);
		}
		if (first == begin)
			wait_for_previous();
#pragma unroll
		for (int i = 0; i < R::ahead; i++) {
			const int k = chunk_at(i);
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
	store_block<Y, TILES, R::warps>(p, share);
}

bool cuda_few_rows_knows(const struct cuda_few_rows *p)
{
	return p->rows <= CUDA_FEW_ROWS && p->y.type != CUDA_F32 &&
	       p->from % (p->ws ? CHUNK : CHUNK / 2) == 0 && p->to % COLUMNS == 0;
}

template <typename T, typename Y, int TILES, class R>
static void few_rows_by(const struct cuda_few_rows *p, cudaStream_t stream)
{
	const auto kernel = few_rows_kernel<T, Y, TILES, R>;
	const dim3 blocks((unsigned)(p->to / COLUMNS));

	if (p->w_stays)
		start_overlapping(kernel, blocks, R::warps * WARP, 0, stream, *p);
	else
		kernel<<<blocks, R::warps * WARP, 0, stream>>>(*p);
}

/* The fastest readings of those tried (docs/serving-kernels.md). */
template <typename T, typename Y>
static void few_rows(const struct cuda_few_rows *p, cudaStream_t stream)
{
	using of_8 = std::conditional_t<sizeof(T) == 2, reading<16, 2, 2>, reading<8, 4, 1>>;

	if (p->rows <= 8)
		few_rows_by<T, Y, 1, of_8>(p, stream);
	else
		few_rows_by<T, Y, 2, reading<8, 4, 1>>(p, stream);
}

void cuda_few_rows(const struct cuda_few_rows *p, cudaStream_t stream)
{
	if (p->y.type == CUDA_BF16)
		p->ws ? few_rows<e4m3, bf16>(p, stream) : few_rows<bf16, bf16>(p, stream);
	else
		p->ws ? few_rows<e4m3, half>(p, stream) : few_rows<half, half>(p, stream);
}
