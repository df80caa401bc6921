/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on x[rows,c], c fastest, by columns: thread (tx, ty) of a block handles one pack of N
 * channels in every blocks-th row; each block writes its sums of channels as one row of
 * parts[blocks][2][c].
 */
#ifndef JM_CUDA_ROWS_CUH
#define JM_CUDA_ROWS_CUH

#include "common.cuh"

#define COLUMN_THREADS 256
#define COLUMN_BLOCKS  396 /* upper limit: the blocks that 132 multiprocessors run at a time */
/* Blocks that run on one multiprocessor at a time, limited by registers. */
#define COLUMN_RESIDENT(T) (sizeof(T) == 2 ? 3 : 2)

struct columns {
	dim3 grid, block;
};

#define MOST_IMAGES 65535 /* along z of a grid */

/* The operand from element n on. */
static inline struct cuda_vec from(const struct cuda_vec &v, int64_t n)
{
	char *data = static_cast<char *>(v.data);

	return {data ? data + n * (v.type == CUDA_F32 ? 4 : 2) : NULL, v.type};
}

/* Calls start(first, images) for parts of a batch with at most 2^31 of `each` image's threads. */
template <class START> static inline void by_images(int64_t batch, int64_t each, START start)
{
	int64_t most = ((int64_t)1 << 31) / (each > 0 ? each : 1);

	most = most < 1 ? 1 : most < MOST_IMAGES ? most : MOST_IMAGES;
	for (int64_t first = 0; first < batch; first += most)
		start(first, (int)(batch - first < most ? batch - first : most));
}

/* The threads along channels are a power of 2 up to a warp, so that a warp reads whole sectors. */
static inline struct columns columns_of(int64_t rows, int64_t c, int n, int resident)
{
	int64_t packs = (c + n - 1) / n, tx = 1, most, want;
	struct columns ret;

	while (tx < WARP && tx < packs)
		tx *= 2;
	ret.block = dim3((unsigned)tx, (unsigned)(COLUMN_THREADS / tx));
	ret.grid.x = (unsigned)((packs + tx - 1) / tx);
	most = (COLUMN_BLOCKS / 3 * resident + ret.grid.x - 1) / ret.grid.x;
	want = (rows + 4 * ret.block.y - 1) / (4 * ret.block.y);
	ret.grid.y = (unsigned)(want < 1 ? 1 : want < most ? want : most);
	ret.grid.z = 1;
	return ret;
}

__device__ __forceinline__ int64_t column_of(int n)
{
	return (int64_t)(blockIdx.x * blockDim.x + threadIdx.x) * n;
}

__device__ __forceinline__ int64_t first_row()
{
	return (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
}

__device__ __forceinline__ int64_t row_step()
{
	return (int64_t)gridDim.y * blockDim.y;
}

/*
 * Calls get(row, part), then use(row, part) for all rows of a thread, U rows at a time. All U loads
 * are issued before the first value is used, which hides the latency of memory; the compiler cannot
 * reorder them itself across a store.
 */
template <int U, class PART, class GET, class USE>
__device__ __forceinline__ void over_rows(int64_t rows, GET get, USE use)
{
	for (int64_t r = first_row(); r < rows; r += U * row_step()) {
		PART part[U];

#pragma unroll
		for (int u = 0; u < U; u++)
			if (r + u * row_step() < rows)
				get(r + u * row_step(), part[u]);
#pragma unroll
		for (int u = 0; u < U; u++)
			if (r + u * row_step() < rows)
				use(r + u * row_step(), part[u]);
	}
}

/* Sums v over the threads of one column into v of the first thread; share: COLUMN_THREADS * N
 * floats. */
template <int N> __device__ __forceinline__ void column_sum(float (&v)[N], float *share)
{
	float *own = share + (threadIdx.y * blockDim.x + threadIdx.x) * N;

	__syncthreads();
#pragma unroll
	for (int i = 0; i < N; i++)
		own[i] = v[i];
	for (unsigned half = blockDim.y / 2; half; half /= 2) {
		__syncthreads();
		if (threadIdx.y < half) {
#pragma unroll
			for (int i = 0; i < N; i++)
				own[i] += own[half * blockDim.x * N + i];
		}
	}
	__syncthreads();
	if (threadIdx.y == 0) {
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = own[i];
	}
}

/* Writes the block's two sums for each channel of its packs to its row of parts. */
template <int N>
__device__ __forceinline__ void leave_parts(
	float (&first)[N], float (&second)[N], float *parts, int64_t c, float *share)
{
	int64_t at = column_of(N);
	float *own = parts + (int64_t)blockIdx.y * 2 * c + at;

	column_sum(first, share);
	column_sum(second, share);
	if (threadIdx.y == 0 && at < c) {
		store(own, first);
		store(own + c, second);
	}
}

/* Both sums over all n parts; warp threadIdx.y gets those of gathered_channel(). Blocks are 32 x
 * 32. */
struct two_sums {
	double first, second;
};
template <typename P>
__device__ __forceinline__ two_sums gather_parts(
	const P *parts, int n, int64_t c, double (*share)[WARP + 1])
{
	int64_t at = (int64_t)blockIdx.x * WARP + threadIdx.x;
	two_sums s = {0, 0};

	if (at < c)
		for (int i = threadIdx.y; i < n; i += WARP) {
			s.first += parts[(int64_t)i * 2 * c + at];
			s.second += parts[((int64_t)i * 2 + 1) * c + at];
		}
	share[threadIdx.y][threadIdx.x] = s.first;
	__syncthreads();
	s.first = warp_sum(share[threadIdx.x][threadIdx.y]);
	__syncthreads();
	share[threadIdx.y][threadIdx.x] = s.second;
	__syncthreads();
	s.second = warp_sum(share[threadIdx.x][threadIdx.y]);
	return s;
}

/* The channel of this warp; c or more = none. */
__device__ __forceinline__ int64_t gathered_channel()
{
	return (int64_t)blockIdx.x * WARP + threadIdx.y;
}

#endif
