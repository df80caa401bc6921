/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of single pixels, y[rows,n] = x[rows,k] w, with the sums of a batch norm as in
 * conv_norm.cu, in 16 bits on tensor cores of compute capability 9.0, for k of at most 256.
 *
 * A block keeps 256 columns of the filter in shared memory. It has two pairs of warp groups; a pair
 * goes through tiles of 64 rows, of which each of its groups has 128 columns. While one pair
 * multiplies, the other one takes the sums from its results, which reach their packs of a row
 * through shared memory of each warp. The next tile of x is copied, and the one after it is read
 * into the cache, once the products of a tile are done.
 *
 * In gradients results leave the registers for shared memory as soon as they are there, so that the
 * operands of two quarters of a tile are read at a time. With 256 channels that memory is the tile
 * of x; the next one is copied when half of the results were taken.
 */
#include <string.h>

#include "tensor_map.h"
#include "wide_pixels.cuh"
#include "wide_pixels.h"

/* Behind the filter, the tiles of both pairs and the warps' stages: what is subtracted from the
 * columns of each pair, and barriers. */
static size_t shared_bytes(bool grad, int k)
{
	return (size_t)(COLUMNS + 2 * ROWS) * (size_t)k * 2 + STAGED(grad, k) * STAGES +
	       2 * COLUMNS * sizeof(float) + 4 * sizeof(uint64_t);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Addresses in shared memory. */
struct places {
	uint32_t filter, x, barrier; /* x: of the pair */
};

/* One thread starts the copies of a tile of x. */
__device__ __forceinline__ void copy_tile(
	const CUtensorMap *x, const struct places &m, int k, int row)
{
	barrier_expect(m.barrier, ROWS * k * 2);
	for (int c = 0; c < k / CHUNK; c++)
		copy_rows(m.x + c * X_CHUNK, x, c * CHUNK, row, m.barrier);
}

/* Reads the box of a matrix from (column, row) on into the cache. */
__device__ __forceinline__ void read_rows(const CUtensorMap *map, int column, int row)
{
	asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map),
		     "r"(column), "r"(row)
		     : "memory");
}

/* Reads a tile of x into the cache. */
__device__ __forceinline__ void read_tile(const CUtensorMap *x, int k, int row)
{
	for (int c = 0; c < k / CHUNK; c++)
		read_rows(x, c * CHUNK, row);
}

/* Copies the tile from `row` on, and reads the next one into the cache. */
__device__ __forceinline__ void copy_and_read(
	const CUtensorMap *x, const struct places &m, int k, int row, int step, int end)
{
	copy_tile(x, m, k, row);
	if (row + step < end)
		read_tile(x, k, row + step);
}

/* Starts the products of a tile; TURNED: the filter is w[k,n]. */
template <typename T, bool TURNED, int CHUNKS>
__device__ __forceinline__ void multiply_tile(const struct places &m, fragments &d)
{
	constexpr int k = CHUNKS * CHUNK;
	const int half = threadIdx.x % PAIR / GROUP;

#pragma unroll
	for (int i = 0; i < OWN / 2; i++)
		d[i] = 0;
	results_from_here(d);
	product_fence();
#pragma unroll
	for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
		for (int at = 0; at < CHUNK; at += STEP) {
			const uint64_t x = matrix_at(m.x + c * X_CHUNK + at * 2, 0);

			if (TURNED)
				product_stored<T>(d, x,
					matrix_at(m.filter + half * HALVES * k * CHUNK_ROW +
							  (c * CHUNK + at) * CHUNK_ROW,
						k * CHUNK_ROW));
			else
				product_next<T>(d, x,
					matrix_at(m.filter +
							  (c * COLUMNS + half * OWN) * CHUNK_ROW +
							  at * 2,
						0));
		}
	}
	product_commit();
}

/* The first row of the pair is what its columns are summed less of. */
template <typename T>
__device__ __forceinline__ void keep_first_row(const fragments &d, float *less)
{
	if (threadIdx.x % GROUP < 4)
#pragma unroll
		for (int j = 0; j < OWN / 8; j++)
#pragma unroll
			for (int i = 0; i < 2; i++)
				less[j * 8 + lane_of() * 2 + i] = (float)(T)d[4 * j + i];
	wait_together<GROUP>(3);
}

/* Adds up the sums of the threads and writes those of the pair to its row of parts. */
template <class TAKE>
__device__ __forceinline__ void leave(struct own_sums &sums, char *stages, const float *less,
	void *parts, int64_t n, int64_t rows)
{
	const int group = threadIdx.x / GROUP, warp = threadIdx.x / WARP, t = threadIdx.x % GROUP;
	const int64_t column = (int64_t)blockIdx.x * COLUMNS + group % 2 * OWN + t;
	float *own = (float *)(stages + warp * STAGE);
	float first = 0, second = 0;

	__syncwarp();
#pragma unroll
	for (int h = 0; h < HALVES; h++)
#pragma unroll
		for (int k = 0; k < PACK; k++) {
			for (int far = PACKS; far < WARP; far *= 2) {
				sums.first[h][k] +=
					__shfl_xor_sync(0xffffffffu, sums.first[h][k], far);
				sums.second[h][k] +=
					__shfl_xor_sync(0xffffffffu, sums.second[h][k], far);
			}
			if (lane_of() < PACKS) {
				own[h * CHUNK + lane_of() * PACK + k] = sums.first[h][k];
				own[OWN + h * CHUNK + lane_of() * PACK + k] = sums.second[h][k];
			}
		}
	wait_together<GROUP>(3);
	for (int i = 0; i < GROUP / WARP; i++) {
		const float *part = (const float *)(stages + (group * 4 + i) * STAGE) + t;

		first += part[0];
		second += part[OWN];
	}
	TAKE::leave(parts, (int64_t)(blockIdx.y * 2 + group / 2) * 2 * n + column, n, first, second,
		less[t], rows);
}

/* The rows of a pair's tiles. */
__device__ __forceinline__ int rows_of(int begin, int step, int end)
{
	const int tiles = begin < end ? (end - begin - 1) / step + 1 : 0,
		  last = end - (begin + (tiles - 1) * step);

	return tiles ? (tiles - 1) * ROWS + (last < ROWS ? last : ROWS) : 0;
}

/* One thread starts the copies of the block's columns of the filter. TURNED: it is w[k,n]. */
template <bool TURNED, int K>
__device__ __forceinline__ void copy_filter(const CUtensorMap *w, uint32_t to, uint32_t barrier)
{
	const int boxes = TURNED ? COLUMNS / CHUNK : K / CHUNK;

	barrier_expect(barrier, COLUMNS * K * 2);
	for (int i = 0; i < boxes; i++)
		copy_rows(to + i * (TURNED ? K : COLUMNS) * CHUNK_ROW, w,
			TURNED ? (int)blockIdx.x * COLUMNS + i * CHUNK : i * CHUNK,
			TURNED ? 0 : (int)blockIdx.x * COLUMNS, barrier);
}

/* x: the tile of the pair; staged: memory of all warps. */
template <bool IN_X> __device__ __forceinline__ struct stages stages_of(char *x, char *staged)
{
	const int warp = threadIdx.x / WARP;
	char *own = staged + warp * STAGE;

	if (IN_X)
		return {x + warp % (PAIR / WARP) * 2 * STAGE, own, STAGE};
	return {own, own + (SLOTS - 1) * STAGES, STAGES};
}

/* A warp of a pair has taken its results from the first two stages (free = 2), or from all of them.
 * True if all warps are done with the tile of x in which the first two lie: the first warp waits
 * for the others, after its third stage. */
__device__ __forceinline__ bool tile_is_free(int free)
{
	const bool first = threadIdx.x % PAIR < WARP;

	if (free == 2)
		shared_fence();
	if (free == 2 && !first)
		leave_together<PAIR>(7);
	if (free == 2 || !first)
		return false;
	wait_together<PAIR>(7);
	return true;
}

__device__ __forceinline__ void init_barriers(uint32_t barriers)
{
	for (int i = 0; i < 4; i++)
		barrier_init(barriers + 8 * i, 1);
	barrier_publish();
}

template <typename T, bool GRAD, int CHUNKS>
__global__ void __launch_bounds__(THREADS, 1) wide_pixels_kernel(
	const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
	const struct cuda_pixels p, const struct cuda_bn_grad g, void *parts)
{
	extern __shared__ __align__(1024) char memory[];
	constexpr bool in_tile = IN_TILE(GRAD, CHUNKS * CHUNK);
	using take = std::conditional_t<GRAD, take_grad<T>, take_stats<T>>;
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0), pair = group / 2;
	constexpr int k = CHUNKS * CHUNK;
	char *staged = memory + (COLUMNS + 2 * ROWS) * k * 2,
	     *behind = staged + STAGED(GRAD, k) * STAGES;
	float *less = (float *)behind + pair * COLUMNS + group % 2 * OWN;
	const uint32_t barriers = shared_at(behind) + 2 * COLUMNS * (int)sizeof(float);
	const struct stages own =
		stages_of<in_tile>(memory + (COLUMNS + pair * ROWS) * k * 2, staged);
	const struct places m = {shared_at(memory),
		shared_at(memory) + (COLUMNS + pair * ROWS) * k * 2, barriers + 8 + 8 * pair};
	const int column = (int)blockIdx.x * COLUMNS + group % 2 * OWN,
		  step = (int)gridDim.y * 2 * ROWS, begin = ((int)blockIdx.y * 2 + pair) * ROWS,
		  end = (int)p.rows;
	const bool leads = threadIdx.x % PAIR == 0;
	struct own_sums sums = {};

	if (threadIdx.x == 0)
		init_barriers(barriers);
	less[threadIdx.x % GROUP] = GRAD ? g.mean[column + threadIdx.x % GROUP] : 0;
	__syncthreads();
	if (threadIdx.x == 0)
		copy_filter<GRAD, k>(&w, m.filter, barriers);
	if (leads && begin < end)
		copy_and_read(&x, m, k, begin, step, end);
	barrier_wait(barriers, 0);
	if (pair && begin < end) /* the pairs multiply in turn */
		barrier_wait(barriers + 24, 0);
	for (int row = begin, phase = 0; row < end; row += step, phase ^= 1) {
		fragments d;

		barrier_wait(m.barrier, phase);
		multiply_tile<T, GRAD, CHUNKS>(m, d);
		product_wait<0>();
		results_from_here(d);
		wait_together<PAIR>(1);
		if (threadIdx.x == 0 && row < step)
			barrier_arrive(barriers + 24);
		auto copy_next = [&] {
			if (leads && row + step < end)
				copy_and_read(&x, m, k, row + step, step, end);
		};
		if (!in_tile)
			copy_next();
		if (!GRAD && row < step)
			keep_first_row<T>(d, less);
		take::take(p, g, d, own, less, row + (int)threadIdx.x % GROUP / WARP * 16,
			column + lane_of() % PACKS * PACK, sums, [&](int free) {
				if (in_tile && row + step < end && tile_is_free(free))
					copy_next();
			});
	}
	leave<take>(sums, staged, less, parts, p.n, rows_of(begin, step, end));
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Blocks of a column of blocks; each has two parts of the sums. */
static int blocks_down(const struct cuda_pixels *p)
{
	int64_t tiles = blocks_for(p->rows, ROWS), down = p->processors / (p->n / COLUMNS);

	down = down < COLUMN_BLOCKS / 2 ? down : COLUMN_BLOCKS / 2;
	down = down < (tiles + 1) / 2 ? down : (tiles + 1) / 2;
	return down < 1 ? 1 : (int)down;
}

bool cuda_wide_pixels_know(const struct cuda_pixels *p)
{
	return p->x.type != CUDA_F32 && p->n % COLUMNS == 0 &&
	       (p->k == 64 || p->k == 128 || p->k == 256) && (p->rows + ROWS) * p->n < INT32_MAX &&
	       shared_bytes(true, p->k) <= p->shared_block && cuda_tensor_map_exist();
}

size_t cuda_wide_pixels_scratch(const struct cuda_pixels *p)
{
	size_t own = 2 * sizeof(double) * (size_t)p->n * 2 * (size_t)blocks_down(p);
	size_t norm = cuda_bn_scratch(p->n);

	return own > norm ? own : norm;
}

static bool describe(
	int64_t columns, int64_t rows, int box_rows, const void *data, CUtensorMap *ret)
{
	const struct cuda_tensor_map_shape shape = {false, 2, {columns, rows}, {CHUNK, box_rows}};
	struct cuda_tensor_map map;

	if (!cuda_tensor_map_describe(&shape, data, &map))
		return false;
	memcpy(ret, &map, sizeof *ret);
	return true;
}

template <typename T, bool GRAD, int CHUNKS>
static cudaError_t start_with(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, void *parts, cudaStream_t stream)
{
	const size_t bytes = shared_bytes(GRAD, p->k);
	const dim3 blocks((unsigned)(p->n / COLUMNS), (unsigned)blocks_down(p));
	CUtensorMap x, w;
	cudaError_t rc = cudaFuncSetAttribute(wide_pixels_kernel<T, GRAD, CHUNKS>,
		cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

	if (rc)
		return rc;
	if (!describe(p->k, p->rows, ROWS, p->x.data, &x) ||
		!(GRAD ? describe(p->n, p->k, p->k, p->w.data, &w)
		       : describe(p->k, p->n, COLUMNS, p->w.data, &w)))
		return cudaErrorNotSupported;
	wide_pixels_kernel<T, GRAD, CHUNKS>
		<<<blocks, THREADS, bytes, stream>>>(x, w, *p, *g, parts);
	return cudaGetLastError();
}

template <typename T, bool GRAD>
static cudaError_t start(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, void *parts, cudaStream_t stream)
{
	return p->k == 256   ? start_with<T, GRAD, 4>(p, g, parts, stream)
	       : p->k == 128 ? start_with<T, GRAD, 2>(p, g, parts, stream)
			     : start_with<T, GRAD, 1>(p, g, parts, stream);
}

cudaError_t cuda_wide_pixels_stats(
	const struct cuda_pixels *p, const struct cuda_bn *bn, cudaStream_t stream)
{
	const struct cuda_bn_grad none = {};
	cudaError_t rc = p->x.type == CUDA_BF16 ? start<bf16, false>(p, &none, bn->scratch, stream)
						: start<half, false>(p, &none, bn->scratch, stream);

	if (!rc)
		cuda_bn_of_parts(bn, (const double *)bn->scratch, 2 * blocks_down(p), stream);
	return rc;
}

cudaError_t cuda_wide_pixels_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream)
{
	float *parts = sums_of(g->scratch, g->c).parts;
	cudaError_t rc = p->x.type == CUDA_BF16 ? start<bf16, true>(p, g, parts, stream)
						: start<half, true>(p, g, parts, stream);

	if (!rc)
		cuda_bn_grad_of_parts(g, p->y, 2 * blocks_down(p), stream);
	return rc;
}
