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
 */
#include <string.h>

#include "batchnorm.cuh"
#include "hopper.cuh"
#include "tensor_map.h"
#include "wide_pixels.h"

#define COLUMNS	   256 /* of a block */
#define ROWS	   64  /* of a tile */
#define CHUNK	   64  /* columns of 128 bytes */
#define STEP	   16  /* channels that an instruction sums over */
#define GROUP	   128
#define PAIR	   (2 * GROUP)
#define THREADS	   (2 * PAIR)
#define OWN	   (COLUMNS / 2) /* of a warp group */
#define HALVES	   (OWN / CHUNK)
#define X_CHUNK	   (ROWS * CHUNK_ROW)
#define STAGE	   2048 /* bytes of a warp */
#define STAGES	   (THREADS / WARP * STAGE)
#define PACKS	   (CHUNK / PACK) /* of a row of a chunk */
#define LANES_DOWN (WARP / PACKS)

/* Behind the filter, the tiles of both pairs and the warps' stages: what is subtracted from the
 * columns of each pair, and barriers. */
static size_t shared_bytes(int k)
{
	return (size_t)(COLUMNS + 2 * ROWS) * (size_t)k * 2 + STAGES + 2 * COLUMNS * sizeof(float) +
	       4 * sizeof(uint64_t);
}

__device__ __forceinline__ int lane_of()
{
	return (int)threadIdx.x % WARP;
}

/* The lane, of which the compiler does not know that it was needed before: places that follow from
 * it are found again, since few registers are free. */
__device__ __forceinline__ int lane_again()
{
	int lane = lane_of();

	asm volatile("" : "+r"(lane));
	return lane;
}

/* Waits for the other threads of a pair, or of a warp group. */
template <int THREADS_OF> __device__ __forceinline__ void wait_together(int first)
{
	asm volatile(
		"bar.sync %0, %1;" ::"r"(first + (int)threadIdx.x / THREADS_OF), "n"(THREADS_OF)
		: "memory");
}

/* ---- results of a warp as tensor cores keep them: 16 rows, 128 columns ----------------------- */

typedef float fragments[OWN / 2];

/* Two neighbouring columns of a row of 64, in 16 bits; their packs lie in different banks in 8
 * rows. */
template <typename T>
__device__ __forceinline__ void put_pair(
	T *stage, int lane, int row, int pack, float low, float high)
{
	char *to = (char *)stage + row * CHUNK_ROW + (pack ^ row % 8) * 16 + lane % 4 * 4;

	*reinterpret_cast<unsigned *>(to) = two(stage, low, high);
}

template <typename T>
__device__ __forceinline__ raw<PACK, T> get_pack(const T *stage, int lane, int row)
{
	const char *from = (const char *)stage + row * CHUNK_ROW + (lane % PACKS ^ row % 8) * 16;

	return *reinterpret_cast<const raw<PACK, T> *>(from);
}

/* The same in f32 for 8 rows: the second half of a pack lies 128 bytes behind the first. */
__device__ __forceinline__ int place_of(int row, int pack, int half)
{
	return row * 2 * CHUNK_ROW + half * CHUNK_ROW + (pack ^ row ^ 4 * half) * 16;
}

__device__ __forceinline__ void put_pair(
	float *stage, int lane, int row, int pack, float low, float high)
{
	char *to = (char *)stage + place_of(row, pack, lane % 4 / 2) + lane % 2 * 8;

	*reinterpret_cast<float2 *>(to) = make_float2(low, high);
}

/* Half a pack. */
__device__ __forceinline__ void get_half(
	const float *stage, int lane, int row, int half, float (&ret)[4])
{
	load((const float *)((const char *)stage + place_of(row, lane % PACKS, half)), ret);
}

/* ---- what is done with them ------------------------------------------------------------------ */

/* The first or second of two elements. */
__device__ __forceinline__ float widened(const bf16 *, unsigned word, int second)
{
	return __uint_as_float(second ? word & 0xffff0000u : word << 16);
}

__device__ __forceinline__ float widened(const half *, unsigned word, int second)
{
	const half2 both = *reinterpret_cast<const half2 *>(&word);

	return second ? __high2float(both) : __low2float(both);
}

/* The sums of a thread for its packs of both halves. */
struct own_sums {
	float first[HALVES][PACK], second[HALVES][PACK];
};

/* Writes y, and sums it and its squares, less the first row of the pair; row, column: of the
 * warp. */
template <typename T> struct take_stats {
	static __device__ __forceinline__ void take(const struct cuda_pixels &p,
		const struct cuda_bn_grad &, const fragments &d, void *stage, const float *less,
		int row, int column, struct own_sums &sums)
	{
		T *own = (T *)stage;

#pragma unroll
		for (int h = 0; h < HALVES; h++) {
			const int lane = lane_again();
			float shift[PACK];

			__syncwarp();
#pragma unroll
			for (int i = 0; i < 2 * PACKS; i++)
				put_pair(own, lane, lane / 4 + i % 2 * 8, i / 2, d[h * 32 + 2 * i],
					d[h * 32 + 2 * i + 1]);
			__syncwarp();
			load(less + h * CHUNK + lane % PACKS * PACK, shift);
#pragma unroll
			for (int u = 0; u < 16 / LANES_DOWN; u++) {
				int r = lane / PACKS + u * LANES_DOWN;
				raw<PACK, T> y = get_pack(own, lane, r);
				float v[PACK];

				if (row + r >= (int)p.rows)
					continue;
				*reinterpret_cast<raw<PACK, T> *>(
					(T *)p.y.data + ((row + r) * p.n + column + h * CHUNK)) = y;
				load(y.v, v);
				add_shifted(v, shift, sums.first[h], sums.second[h]);
			}
		}
	}
	/* The sums of a column less shift in `rows` rows. */
	static __device__ __forceinline__ void leave(void *parts, int64_t at, int64_t n,
		float first, float second, float shift, int64_t rows)
	{
		double *own = (double *)parts + at;
		double s = shift, all = (double)rows * s;

		own[0] = first + all;
		own[n] = second + s * (2.0 * first + all);
	}
};

/*
 * The sums of a norm's gradient, whose result y is: e is y plus the gradient of another branch
 * where the ReLU's bit is set, and is written in place of y.
 */
template <typename T> struct take_grad {
	struct operands {
		packed<PACK, T> x, add;
		unsigned char open;
	};
	static __device__ __forceinline__ void fetch_operands(const struct cuda_pixels &p,
		const struct cuda_bn_grad &g, int at, struct operands &to)
	{
		fetch<PACK>((const T *)g.x.data + at, to.x);
		fetch<PACK>((const T *)p.add.data + at, to.add);
		to.open = g.mask[at / PACK];
	}
	/* Returns half a pack of e. */
	static __device__ __forceinline__ uint2 take_half(const float *stage, int lane, int row,
		int half, const struct operands &t, const float *mean, float *first, float *second)
	{
		float v[4], m[4];
		uint2 e;

		get_half(stage, lane, row, half, v);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			v[k] += t.add.at(half * 4 + k);
			v[k] = t.open >> (half * 4 + k) & 1 ? v[k] : 0;
		}
		e = make_uint2(two((const T *)NULL, v[0], v[1]), two((const T *)NULL, v[2], v[3]));
		load(mean + lane % PACKS * PACK + half * 4, m);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			const unsigned word = k < 2 ? e.x : e.y;
			const float w = widened((const T *)NULL, word, k % 2);

			first[k] += w;
			second[k] += w * (t.x.at(half * 4 + k) - m[k]);
		}
		return e;
	}
	static __device__ __forceinline__ void take(const struct cuda_pixels &p,
		const struct cuda_bn_grad &g, const fragments &d, void *stage, const float *less,
		int row, int column, struct own_sums &sums)
	{
		float *own = (float *)stage;

#pragma unroll
		for (int i = 0; i < 2 * HALVES; i++) {
			const int h = i / 2, down = i % 2 * 8, lane = lane_again();
			struct operands t[8 / LANES_DOWN];

			__syncwarp();
#pragma unroll
			for (int j = 0; j < PACKS; j++)
				put_pair(own, lane, lane / 4, j, d[h * 32 + 4 * j + down / 4],
					d[h * 32 + 4 * j + down / 4 + 1]);
#pragma unroll
			for (int u = 0; u < 8 / LANES_DOWN; u++) {
				int r = row + down + lane / PACKS + u * LANES_DOWN;
				int at = r * p.n + column + h * CHUNK;

				if (r >= (int)p.rows)
					continue;
				fetch_operands(p, g, at, t[u]);
			}
			__syncwarp();
#pragma unroll
			for (int u = 0; u < 8 / LANES_DOWN; u++) {
				int r = lane / PACKS + u * LANES_DOWN;
				uint2 low, high;

				if (row + down + r >= (int)p.rows)
					continue;
				low = take_half(own, lane, r, 0, t[u], less + h * CHUNK,
					sums.first[h], sums.second[h]);
				high = take_half(own, lane, r, 1, t[u], less + h * CHUNK,
					sums.first[h] + 4, sums.second[h] + 4);
				*reinterpret_cast<uint4 *>(
					(T *)p.y.data +
					((row + down + r) * p.n + column + h * CHUNK)) =
					make_uint4(low.x, low.y, high.x, high.y);
			}
		}
	}
	static __device__ __forceinline__ void leave(
		void *parts, int64_t at, int64_t n, float first, float second, float, int64_t)
	{
		float *own = (float *)parts + at;

		own[0] = first;
		own[n] = second;
	}
};

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

template <typename T, bool GRAD, int CHUNKS>
__global__ void __launch_bounds__(THREADS, 1) wide_pixels_kernel(
	const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
	const struct cuda_pixels p, const struct cuda_bn_grad g, void *parts)
{
	extern __shared__ __align__(1024) char memory[];
	using take = std::conditional_t<GRAD, take_grad<T>, take_stats<T>>;
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0), pair = group / 2;
	constexpr int k = CHUNKS * CHUNK;
	char *stages = memory + (COLUMNS + 2 * ROWS) * k * 2;
	float *less = (float *)(stages + STAGES) + pair * COLUMNS + group % 2 * OWN;
	const uint32_t barriers = shared_at(stages + STAGES) + 2 * COLUMNS * (int)sizeof(float);
	const struct places m = {shared_at(memory),
		shared_at(memory) + (COLUMNS + pair * ROWS) * k * 2, barriers + 8 + 8 * pair};
	const int column = (int)blockIdx.x * COLUMNS + group % 2 * OWN,
		  step = (int)gridDim.y * 2 * ROWS, begin = ((int)blockIdx.y * 2 + pair) * ROWS;
	const int end = (int)p.rows;
	const bool leads = threadIdx.x % PAIR == 0;
	struct own_sums sums = {};
	int phase = 0;

	if (threadIdx.x == 0) {
		for (int i = 0; i < 4; i++)
			barrier_init(barriers + 8 * i, 1);
		barrier_publish();
	}
	less[threadIdx.x % GROUP] = GRAD ? g.mean[column + threadIdx.x % GROUP] : 0;
	__syncthreads();
	if (threadIdx.x == 0)
		copy_filter<GRAD, k>(&w, m.filter, barriers);
	if (leads && begin < end) {
		copy_tile(&x, m, k, begin);
		if (begin + step < end)
			read_tile(&x, k, begin + step);
	}
	barrier_wait(barriers, 0);
	if (pair && begin < end) /* the pairs multiply in turn */
		barrier_wait(barriers + 24, 0);
	for (int row = begin; row < end; row += step, phase ^= 1) {
		fragments d;

		barrier_wait(m.barrier, phase);
		multiply_tile<T, GRAD, CHUNKS>(m, d);
		product_wait<0>();
		results_from_here(d);
		wait_together<PAIR>(1);
		if (threadIdx.x == 0 && row < step)
			barrier_arrive(barriers + 24);
		if (leads && row + step < end) {
			copy_tile(&x, m, k, row + step);
			if (row + 2 * step < end)
				read_tile(&x, k, row + 2 * step);
		}
		if (!GRAD && row < step)
			keep_first_row<T>(d, less);
		take::take(p, g, d, stages + threadIdx.x / WARP * STAGE, less,
			row + (int)threadIdx.x % GROUP / WARP * 16,
			column + lane_of() % PACKS * PACK, sums);
	}
	leave<take>(sums, stages, less, parts, p.n, rows_of(begin, step, end));
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
	       shared_bytes(p->k) <= p->shared_block && cuda_tensor_map_exist();
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
	const size_t bytes = shared_bytes(p->k);
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
