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

/* ---- linear-wgrad of narrow layers ----------------------------------------------------------- */

/*
 * dw[N,K] = dy[T,N]^T x[T,K] in f32 for many rows T and small N and K, and db[N] = the sums of the
 * columns of dy. A block has a part of the rows, which it reads once to shared memory, some at a
 * time; a thread has a tile of 4 x 4 of dw, and where tiles are few, several threads have one and
 * share the rows. The sums of the blocks are added up in order, in f64.
 */
#define ROWS	   32	/* that are in shared memory at a time */
#define SIDE	   4	/* of a tile */
#define BLOCKS	   4	/* of a multiprocessor */
#define MOST_TILES 192	/* of dw: with more, cuBLASLt may be faster */
#define FEWEST	   4096 /* rows: of fewer, parts are few */

static __host__ __device__ __forceinline__ int tiles_of(int width)
{
	return (width + SIDE - 1) / SIDE;
}

/* Copies rows; columns from `width` to a multiple of SIDE become 0. */
__device__ __forceinline__ void take_rows(
	float *to, const float *from, int64_t stride, int width, int rows)
{
	const int tiles = tiles_of(width);

	if (width % SIDE == 0 && stride % SIDE == 0) {
		for (int i = threadIdx.x; i < ROWS * tiles; i += THREADS) {
			const int row = i / tiles, tile = i % tiles;

			reinterpret_cast<float4 *>(to)[i] =
				row < rows ? *reinterpret_cast<const float4 *>(
						     from + row * stride + tile * SIDE)
					   : make_float4(0, 0, 0, 0);
		}
		return;
	}
	for (int i = threadIdx.x; i < ROWS * tiles * SIDE; i += THREADS) {
		const int row = i / (tiles * SIDE), column = i % (tiles * SIDE);

		to[i] = row < rows && column < width ? from[row * stride + column] : 0;
	}
}

/* A tile's sums: of the products, and of dy. */
struct tile_sums {
	float product[SIDE][SIDE], dy[SIDE];
};

__device__ __forceinline__ void add_row(
	const float *dy, const float *x, bool first, struct tile_sums &s)
{
	float a[SIDE], b[SIDE];

	load(dy, a);
	load(x, b);
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int k = 0; k < SIDE; k++)
			s.product[i][k] += a[i] * b[k];
	if (!first)
		return;
#pragma unroll
	for (int i = 0; i < SIDE; i++)
		s.dy[i] += a[i];
}

/* Adds up what threads of one tile have, and leaves the block's part. */
__device__ __forceinline__ void leave_tiles(
	const struct cuda_narrow_grad &p, const struct tile_sums &s, float *share, int splits)
{
	const int from = tiles_of(p.from), tiles = tiles_of(p.to) * from, each = SIDE * SIDE + SIDE;
	float *to = p.partial + (int64_t)blockIdx.x * p.to * (p.from + 1);

	__syncthreads();
	if ((int)threadIdx.x < splits * tiles) {
#pragma unroll
		for (int i = 0; i < SIDE * SIDE; i++)
			share[i * THREADS + threadIdx.x] = s.product[i / SIDE][i % SIDE];
#pragma unroll
		for (int i = 0; i < SIDE; i++)
			share[(SIDE * SIDE + i) * THREADS + threadIdx.x] = s.dy[i];
	}
	__syncthreads();
	for (int j = threadIdx.x; j < tiles * each; j += THREADS) {
		const int tile = j % tiles, i = j / tiles;
		const bool bias = i >= SIDE * SIDE;
		const int row = tile / from * SIDE + (bias ? i - SIDE * SIDE : i / SIDE);
		const int column = bias ? p.from : tile % from * SIDE + i % SIDE;
		float sum = 0;

		if (row >= p.to || (bias ? tile % from != 0 : column >= p.from))
			continue;
		for (int k = 0; k < splits; k++)
			sum += share[i * THREADS + k * tiles + tile];
		to[(int64_t)row * (p.from + 1) + column] = sum;
	}
}

__global__ void __launch_bounds__(THREADS) narrow_grad_kernel(struct cuda_narrow_grad p)
{
	extern __shared__ float4 memory[];
	const int from = tiles_of(p.from), tiles = tiles_of(p.to) * from, splits = THREADS / tiles;
	const int tile = threadIdx.x % tiles, split = threadIdx.x / tiles;
	float *dy = reinterpret_cast<float *>(memory), *x = dy + ROWS * tiles_of(p.to) * SIDE;
	const int64_t each = (p.rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
	const int64_t end = min(first + each, p.rows);
	struct tile_sums s = {};

	for (int64_t row = first; row < end; row += ROWS) {
		const int rows = (int)min((int64_t)ROWS, end - row);

		__syncthreads();
		take_rows(dy, p.dy + row * p.dy_stride, p.dy_stride, p.to, rows);
		take_rows(x, p.x + row * p.x_stride, p.x_stride, p.from, rows);
		__syncthreads();
		if (split < splits)
			for (int r = split; r < rows; r += splits)
				add_row(dy + (r * tiles_of(p.to) + tile / from) * SIDE,
					x + (r * from + tile % from) * SIDE, tile % from == 0, s);
	}
	leave_tiles(p, s, dy, splits);
}

/* Blocks of 32 x 32 threads: 32 results, and parts that are 32 apart. */
__global__ void narrow_sums_kernel(struct cuda_narrow_grad p)
{
	__shared__ double share[WARP][WARP + 1];
	const int wide = p.from + 1, all = p.to * wide, i = blockIdx.x * WARP + threadIdx.x;
	double sum = 0;

	if (i < all)
		for (int part = threadIdx.y; part < p.parts; part += WARP)
			sum += (double)p.partial[(int64_t)part * all + i];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	sum = warp_sum(share[threadIdx.x][threadIdx.y]);
	const int mine = blockIdx.x * WARP + threadIdx.y, row = mine / wide, column = mine % wide;

	if (threadIdx.x || mine >= all)
		return;
	if (column < p.from) {
		float *to = p.dw + (int64_t)row * p.from + column;

		*to = (float)(sum + (p.add_dw ? (double)*to : 0));
	} else if (p.db) {
		p.db[row] = (float)(sum + (p.add_db ? (double)p.db[row] : 0));
	}
}

bool cuda_narrow_grad_knows(int64_t rows, int64_t from, int64_t to)
{
	return from + to <= THREADS && tiles_of((int)from) * tiles_of((int)to) <= MOST_TILES &&
	       rows >= FEWEST;
}

int cuda_narrow_grad_parts(int processors, int64_t rows)
{
	const int64_t most = rows / ROWS, parts = (int64_t)BLOCKS * processors;

	return (int)(parts < most ? parts : most);
}

void cuda_narrow_grad(const struct cuda_narrow_grad *p, cudaStream_t stream)
{
	const int rows = ROWS * (tiles_of(p->from) + tiles_of(p->to)) * SIDE;
	const int sums = THREADS * (SIDE * SIDE + SIDE), floats = rows > sums ? rows : sums;

	narrow_grad_kernel<<<(unsigned)p->parts, THREADS, (size_t)floats * sizeof(float), stream>>>(
		*p);
	narrow_sums_kernel<<<blocks_for((int64_t)p->to * (p->from + 1), WARP), dim3(WARP, WARP), 0,
		stream>>>(*p);
}
