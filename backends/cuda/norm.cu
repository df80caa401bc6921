/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and RMS norm of x[rows,width], optionally after an add, and their gradients. A block
 * handles one row at a time. For the gradients of gamma and beta each block sums its rows in
 * registers and writes partial[blocks,2,width], which a second kernel sums in order; with the
 * gradient of a bias, which is the sum of the result in 16 bits, partial[blocks,3,width].
 */
#include "common.cuh"

#define MOST_THREADS 512
#define PER_SM	     1024 /* threads of the gradient that fit a multiprocessor */
#define COLUMNS	     32	  /* per block of the second kernel */
#define MOST_SUMMED  16 /* elements of a row that a thread sums in registers without spilling them */

/* ---- forward ------------------------------------------------------------------------------------------ */

/* The row is kept in shared memory as f32; each thread reads only what it wrote itself. */
template <int N, typename X, typename B, typename Y> __global__ void norm_kernel(struct cuda_norm p)
{
	extern __shared__ float4 memory[];
	__shared__ float share[WARP];
	float *row = reinterpret_cast<float *>(memory);
	const int64_t at = blockIdx.x * p.width;
	const int step = N * blockDim.x, first = N * threadIdx.x;
	float v[N], sum = 0, mean = 0;

	for (int i = first; i < p.width; i += step) {
		load(as<const X>(p.x) + at + i, v);
		if (p.b.data) {
			float w[N];

			load(as<const B>(p.b) + at + i, w);
#pragma unroll
			for (int k = 0; k < N; k++)
				v[k] = (float)(X)(v[k] + w[k]);
			if (p.sum.data)
				store(as<X>(p.sum) + at + i, v);
		}
		store(row + i, v);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += v[k];
	}
	if (p.centred)
		mean = block_sum(sum, share) / p.width;
	sum = 0;
	for (int i = first; i < p.width; i += step) {
		load(row + i, v);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += (v[k] - mean) * (v[k] - mean);
	}
	const float rstd = rsqrtf(block_sum(sum, share) / p.width + p.eps);
	for (int i = first; i < p.width; i += step) {
		float gamma[N], beta[N] = {};

		load(row + i, v);
		load(p.gamma + i, gamma);
		if (p.beta)
			load(p.beta + i, beta);
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] = (v[k] - mean) * rstd * gamma[k] + beta[k];
		store(as<Y>(p.y) + at + i, v);
	}
	if (threadIdx.x == 0) {
		p.rstd[blockIdx.x] = rstd;
		if (p.centred)
			p.mean[blockIdx.x] = mean;
	}
}

template <int N, typename X, typename B, typename Y>
static void norm_of(const struct cuda_norm *p, cudaStream_t stream)
{
	int bytes = (int)p->width * (int)sizeof(float);

	if (bytes > 32 << 10)
		cudaFuncSetAttribute(norm_kernel<N, X, B, Y>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	norm_kernel<N, X, B, Y><<<(unsigned)p->rows,
		threads_for((p->width + N - 1) / N, MOST_THREADS), bytes, stream>>>(*p);
}

template <int N> static void norm_typed(const struct cuda_norm *p, cudaStream_t stream)
{
	with_type(p->y, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->y.type)
			norm_of<N, T, T, T>(p, stream);
		else
			norm_of<N, float, T, T>(p, stream);
	});
}

bool cuda_norm_knows(const struct cuda_norm *p)
{
	bool alike = !p->b.data || p->b.type == p->y.type;

	return (p->x.type == p->y.type || p->x.type == CUDA_F32) && alike &&
	       p->width <= CUDA_NORM_WIDEST;
}

void cuda_norm(const struct cuda_norm *p, cudaStream_t stream)
{
	p->width % PACK == 0 ? norm_typed<PACK>(p, stream) : norm_typed<1>(p, stream);
}

/* ---- backward ----------------------------------------------------------------------------------------- */

__device__ __forceinline__ float2 block_sum_two(float2 x, float2 *share)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;

	x = make_float2(warp_sum(x.x), warp_sum(x.y));
	if (warps == 1)
		return x;
	__syncthreads();
	if (lane == 0)
		share[warp] = x;
	__syncthreads();
	x = lane < warps ? share[lane] : make_float2(0, 0);
	return make_float2(warp_sum(x.x), warp_sum(x.y));
}

/* Stores a pack in any type. */
template <int N>
__device__ __forceinline__ void store_as(const struct cuda_vec &to, int64_t i, const float (&v)[N])
{
	if (to.type == CUDA_BF16)
		store(as<bf16>(to) + i, v);
	else if (to.type == CUDA_F16)
		store(as<half>(to) + i, v);
	else
		store(as<float>(to) + i, v);
}

/* The value that an element of this type holds. */
__device__ __forceinline__ float rounded(enum cuda_type type, float x)
{
	return type == CUDA_BF16  ? __bfloat162float(__float2bfloat16_rn(x))
	       : type == CUDA_F16 ? __half2float(__float2half_rn(x))
				  : x;
}

/* Each thread handles R packs of a row. V: the vectors of partial; the third one has the sums of `copy`. */
template <int N, int R, int V, typename C, typename A>
__global__ void __launch_bounds__(MOST_THREADS) norm_grad_kernel(struct cuda_norm_grad p)
{
	__shared__ float2 share[WARP];
	const int step = N * blockDim.x, first = N * threadIdx.x;
	float dgamma[R][N] = {}, dbeta[R][N] = {}, sums[R][N] = {};

	for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
		const int64_t at = row * p.width;
		const float rstd = p.rstd[row], mean = p.mean ? p.mean[row] : 0;
		float g[R][N], h[R][N];
		float2 sum = make_float2(0, 0);
#pragma unroll
		for (int r = 0; r < R; r++) {
			const int i = first + r * step;
			float gamma[N];

			if (i >= p.width)
				break;
			load(as<const C>(p.dy) + at + i, g[r]);
			load(as<const A>(p.x) + at + i, h[r]);
			load(p.gamma + i, gamma);
#pragma unroll
			for (int k = 0; k < N; k++) {
				h[r][k] = (h[r][k] - mean) * rstd;
				dgamma[r][k] += g[r][k] * h[r][k];
				dbeta[r][k] += g[r][k];
				g[r][k] *= gamma[k];
				sum.x += g[r][k];
				sum.y += g[r][k] * h[r][k];
			}
		}
		sum = block_sum_two(sum, share);
		const float mean_g = p.mean ? sum.x / p.width : 0, mean_gh = sum.y / p.width;
#pragma unroll
		for (int r = 0; r < R; r++) {
			const int i = first + r * step;

			if (i >= p.width)
				break;
#pragma unroll
			for (int k = 0; k < N; k++)
				g[r][k] = rstd * (g[r][k] - mean_g - h[r][k] * mean_gh);
			if (p.dx.data)
				store_sum(as<A>(p.dx) + at + i, g[r], p.add_dx);
			if (p.copy.data)
				store_as(p.copy, at + i, g[r]);
			if constexpr (V > 2) {
#pragma unroll
				for (int k = 0; k < N; k++)
					sums[r][k] += rounded(p.copy.type, g[r][k]);
			}
		}
	}
#pragma unroll
	for (int r = 0; r < R; r++) {
		const int i = first + r * step;
		float *to = p.partial + V * blockIdx.x * p.width + i;

		if (i >= p.width)
			break;
		store(to, dgamma[r]);
		store(to + p.width, dbeta[r]);
		if constexpr (V > 2)
			store(to + 2 * p.width, sums[r]);
	}
}

/* Stores or adds element i of the first, second or third vector. */
__device__ __forceinline__ void finish(
	const struct cuda_norm_grad &p, int vector, int64_t i, float sum)
{
	float *to = vector == 0 ? p.dgamma : vector == 1 ? p.dbeta : p.sums;
	const bool add = vector == 0 ? p.add_dgamma : vector == 1 ? p.add_dbeta : p.add_sums;

	if (to)
		to[i] = sum + (add ? to[i] : 0);
}

/* Sums the columns of partial[blocks,columns]; the threads of one column are COLUMNS apart. */
__global__ void norm_columns_kernel(struct cuda_norm_grad p, int columns)
{
	__shared__ float share[COLUMNS][COLUMNS + 1];
	const int column = blockIdx.x * COLUMNS + threadIdx.x,
		  mine = blockIdx.x * COLUMNS + threadIdx.y;
	const bool there = column < columns;
	float sum = 0;

	for (int b = threadIdx.y; there && b < p.blocks; b += COLUMNS)
		sum += p.partial[(int64_t)b * columns + column];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	sum = warp_sum(share[threadIdx.x][threadIdx.y]);
	if (threadIdx.x == 0 && mine < columns)
		finish(p, (int)(mine / p.width), mine % p.width, sum);
}

template <int N, int R, int V>
static void norm_grad_typed(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	int threads = threads_for((p->width + N * R - 1) / (N * R), MOST_THREADS);

	with_type(p->dy, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->dy.type)
			norm_grad_kernel<N, R, V, T, T><<<p->blocks, threads, 0, stream>>>(*p);
		else
			norm_grad_kernel<N, R, V, T, float><<<p->blocks, threads, 0, stream>>>(*p);
	});
}

template <int N, int R>
static void norm_grad_of(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	if constexpr (N * R <= MOST_SUMMED)
		if (p->sums)
			return norm_grad_typed<N, R, 3>(p, stream);
	norm_grad_typed<N, R, 2>(p, stream);
}

static int grad_threads(int64_t width)
{
	if (width % PACK)
		return threads_for((width + 3) / 4, MOST_THREADS);
	if (width <= PACK * 256)
		return threads_for(width / PACK, MOST_THREADS);
	return threads_for((width + 2 * PACK - 1) / (2 * PACK), MOST_THREADS);
}

int cuda_norm_grad_blocks(int processors, int64_t rows, int64_t width)
{
	int most = PER_SM / grad_threads(width) * processors;

	return rows < most ? (int)rows : most;
}

bool cuda_norm_grad_knows(const struct cuda_norm_grad *p)
{
	int64_t packs = p->sums ? MOST_SUMMED / PACK : 4;
	int64_t widest = (p->width % PACK ? 4 : PACK * packs) * MOST_THREADS;

	return (p->x.type == p->dy.type || p->x.type == CUDA_F32) && p->width <= widest;
}

void cuda_norm_grad(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	if (p->width % PACK)
		norm_grad_of<1, 4>(p, stream);
	else if (p->width <= PACK * 256)
		norm_grad_of<PACK, 1>(p, stream);
	else if (p->width <= PACK * 2 * MOST_THREADS)
		norm_grad_of<PACK, 2>(p, stream);
	else
		norm_grad_of<PACK, 4>(p, stream);
	const int columns = (p->sums ? 3 : 2) * (int)p->width;

	norm_columns_kernel<<<blocks_for(columns, COLUMNS), dim3(COLUMNS, COLUMNS), 0, stream>>>(
		*p, columns);
}
