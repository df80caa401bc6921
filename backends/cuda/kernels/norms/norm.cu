/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and RMS norm of x[rows,width], optionally after an add, and their gradients. A block
 * handles one row at a time; forward, a warp or a part of it where the row is short. For the
 * gradients of gamma and beta each block sums its rows in registers and writes
 * partial[blocks,2,width], which a second kernel sums in order; RMS norm has one vector less. Layer
 * norm with the gradient of a bias, which is the sum of the result, has three. Gradients of short
 * rows are in norm_teams.cu.
 */
#include "../common.cuh"
#include "../norm_teams.h"

#define MOST_THREADS 512
#define FEW_THREADS  256 /* enough for most rows; more of their blocks fit a multiprocessor */
#define MOST_SUMMED  16 /* elements of a row that a thread sums in registers without spilling them */

/* Calls f(r, i) for the thread's packs r of a row, which begin at element i. */
template <int N, int R, class F> __device__ __forceinline__ void over_packs(int64_t width, F f)
{
#pragma unroll
	for (int r = 0; r < R; r++) {
		const int i = N * (threadIdx.x + r * blockDim.x);

		if (i >= width)
			break;
		f(r, i);
	}
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y of N elements from element i of a row on. */
template <int N, typename Y>
__device__ __forceinline__ void write_normed(
	const struct cuda_norm &p, Y *y, int64_t i, float (&v)[N], float mean, float rstd)
{
	float gamma[N], beta[N] = {};

	load(p.gamma + i, gamma);
	if (p.beta)
		load(p.beta + i, beta);
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = (v[k] - mean) * rstd * gamma[k] + beta[k];
	store(y + i, v);
}

__device__ __forceinline__ void write_statistics(
	const struct cuda_norm &p, int64_t row, float mean, float rstd)
{
	p.rstd[row] = rstd;
	if (p.centred)
		p.mean[row] = mean;
}

/* A block has a row, which is kept in shared memory as f32; each thread reads only what it wrote
 * itself. */
template <int N, typename X, typename B, typename Y> __global__ void norm_kernel(struct cuda_norm p)
{
	extern __shared__ float4 memory[];
	__shared__ float share[WARP];
	float *row = reinterpret_cast<float *>(memory);
	const int64_t own = blockIdx.x, at = own * p.width;
	const int step = N * blockDim.x, first = N * threadIdx.x;
	float v[N], sum = 0, mean = 0;

	wait_for_previous();
	start_next();
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
		load(row + i, v);
		write_normed(p, as<Y>(p.y) + at, i, v, mean, rstd);
	}
	if (threadIdx.x == 0)
		write_statistics(p, own, mean, rstd);
}

#define FEW_PACKS	  5 /* of a row that a thread keeps in registers */
#define FEW_PACKS_THREADS 256

/* The sum over LANES neighbouring lanes. */
template <int LANES> __device__ __forceinline__ float lanes_sum(float x)
{
#pragma unroll
	for (int i = LANES / 2; i; i /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, i);
	return x;
}

/* LANES lanes have a row of at most FEW_PACKS LANES packs. */
template <int LANES, typename X, typename Y>
__global__ void __launch_bounds__(FEW_PACKS_THREADS) few_packs_kernel(struct cuda_norm p)
{
	const int lane = threadIdx.x % LANES;
	const int64_t row = ((int64_t)blockIdx.x * FEW_PACKS_THREADS + threadIdx.x) / LANES,
		      at = row * p.width;
	const int packs = row < p.rows ? (int)p.width / PACK : 0; /* none beyond the last row */
	packed<PACK, X> x[FEW_PACKS];
	packed<PACK, Y> b[FEW_PACKS];
	float v[FEW_PACKS][PACK] = {}, sum = 0, mean = 0;

	start_next();
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs) {
			const int64_t i = at + PACK * (lane + r * LANES);

			fetch(as<const X>(p.x) + i, x[r]);
			if (p.b.data)
				fetch(as<const Y>(p.b) + i, b[r]);
		}
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs) {
			spread(x[r], v[r]);
			if (p.b.data) {
#pragma unroll
				for (int k = 0; k < PACK; k++)
					v[r][k] = (float)(X)(v[r][k] + b[r].at(k));
				if (p.sum.data)
					store(as<X>(p.sum) + at + PACK * (lane + r * LANES), v[r]);
			}
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum += v[r][k];
		}
	if (p.centred)
		mean = lanes_sum<LANES>(sum) / p.width;
	sum = 0;
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs)
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum += (v[r][k] - mean) * (v[r][k] - mean);
	const float rstd = rsqrtf(lanes_sum<LANES>(sum) / p.width + p.eps);
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs)
			write_normed(
				p, as<Y>(p.y) + at, PACK * (lane + r * LANES), v[r], mean, rstd);
	if (packs && lane == 0)
		write_statistics(p, row, mean, rstd);
}

template <int LANES, typename X, typename Y>
static void few_packs(const struct cuda_norm *p, cudaStream_t stream)
{
	few_packs_kernel<LANES, X, Y>
		<<<blocks_for(p->rows * LANES, FEW_PACKS_THREADS), FEW_PACKS_THREADS, 0, stream>>>(
			*p);
}

template <int N, typename X, typename Y>
static void norm_of(const struct cuda_norm *p, cudaStream_t stream)
{
	const int64_t packs = p->width / PACK;
	const int64_t each = (p->width / N + MOST_THREADS - 1) / MOST_THREADS; /* of a thread */
	const int bytes = (int)p->width * (int)sizeof(float);

	if constexpr (N == PACK) {
		if (packs <= 8 * FEW_PACKS)
			return few_packs<8, X, Y>(p, stream);
		if (packs <= 16 * FEW_PACKS)
			return few_packs<16, X, Y>(p, stream);
		if (packs <= 32 * FEW_PACKS)
			return few_packs<32, X, Y>(p, stream);
	}
	if (bytes > 32 << 10)
		cudaFuncSetAttribute(norm_kernel<N, X, Y, Y>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	const int threads = threads_for((p->width / N + each - 1) / each, MOST_THREADS);

	if (p->rows <= CUDA_FEW_ROWS)
		start_overlapping(norm_kernel<N, X, Y, Y>, dim3((unsigned)p->rows), threads, bytes,
			stream, *p);
	else
		norm_kernel<N, X, Y, Y><<<(unsigned)p->rows, threads, bytes, stream>>>(*p);
}

template <int N> static void norm_typed(const struct cuda_norm *p, cudaStream_t stream)
{
	with_type(p->y, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->y.type)
			norm_of<N, T, T>(p, stream);
		else
			norm_of<N, float, T>(p, stream);
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

/* ---- backward -------------------------------------------------------------------------------- */

/* As warp_sum, of two values; the first is 0 in RMS norm. */
template <bool CENTRED> __device__ __forceinline__ float2 warp_sums(float2 x)
{
	return make_float2(CENTRED ? warp_sum(x.x) : 0, warp_sum(x.y));
}

/* As block_sum, of two values, with one barrier: `share` may be reused after the barrier of another
 * call. */
template <bool CENTRED> __device__ __forceinline__ float2 block_sums(float2 x, float2 *share)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;

	x = warp_sums<CENTRED>(x);
	if (warps == 1)
		return x;
	if (lane == 0)
		share[warp] = x;
	__syncthreads();
	return warp_sums<CENTRED>(lane < warps ? share[lane] : make_float2(0, 0));
}

/* The value that an element of this type holds. */
__device__ __forceinline__ float rounded(enum cuda_type type, float x)
{
	return type == CUDA_BF16  ? __bfloat162float(__float2bfloat16_rn(x))
	       : type == CUDA_F16 ? __half2float(__float2half_rn(x))
				  : x;
}

/* R packs of a row, in the types that they have in memory. */
template <int N, int R, typename C, typename A> struct row_part {
	/* pairs need fewer registers, single elements fewer instructions before the next load */
	template <typename T>
	using elements = std::conditional_t<sizeof(A) == 2, packed<N, T>, raw<N, T>>;

	elements<C> dy[R];
	elements<A> x[R], dx[R]; /* dx: what the result is added to */
	float mean, rstd;

	/* Wide rows leave no registers for the next row, the widest none for values that are used
	 * late. */
	static constexpr bool ahead = N * R <= PACK, narrow = N * R <= 2 * PACK;
};

/* The sums of a thread's columns over rows. */
template <int N, int R> struct column_sums {
	float dgamma[R][N], dbeta[R][N], dx[R][N];
};

/* Threads of the gradient that fit a multiprocessor, limited by registers: x: bytes of an element
 * of x. */
static constexpr int grad_per_sm(bool centred, int packs, int x)
{
	return centred || packs > 1 || x > 2 ? 512 : 1024;
}

template <bool CENTRED, int N, int R, typename C, typename A>
__device__ __forceinline__ void load_row(
	const struct cuda_norm_grad &p, int64_t row, struct row_part<N, R, C, A> &ret)
{
	if (row >= p.rows)
		return;
	ret.rstd = p.rstd[row];
	ret.mean = CENTRED ? p.mean[row] : 0;
	over_packs<N, R>(p.width, [&](int r, int i) {
		const int64_t at = row * p.width + i;

		fetch(as<const C>(p.dy) + at, ret.dy[r]);
		fetch(as<const A>(p.x) + at, ret.x[r]);
		if (ret.narrow && p.add_dx)
			fetch(as<const A>(p.dx) + at, ret.dx[r]);
	});
}

/* gamma of a thread's columns, in registers where rows are narrow. */
template <int N, int R> struct factors {
	static constexpr bool kept = N * R <= 2 * PACK;
	float gamma[kept ? R : 1][N];

	__device__ __forceinline__ void get(const float *from, int r, float (&ret)[N]) const
	{
		if constexpr (kept) {
#pragma unroll
			for (int k = 0; k < N; k++)
				ret[k] = gamma[r][k];
		} else {
			load(from, ret);
		}
	}
};

/* Adds the row to dgamma and dbeta; returns the thread's share of the sums of dy gamma and dy gamma
 * x_hat. */
template <bool CENTRED, int N, int R, typename C, typename A>
__device__ __forceinline__ float2 add_products(const struct cuda_norm_grad &p,
	const struct row_part<N, R, C, A> &row, const struct factors<N, R> &factors,
	struct column_sums<N, R> &sums)
{
	float2 ret = make_float2(0, 0);

	over_packs<N, R>(p.width, [&](int r, int i) {
		float gamma[N];

		factors.get(p.gamma + i, r, gamma);
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float dy = row.dy[r].at(k), g = dy * gamma[k];
			const float x_hat = (row.x[r].at(k) - row.mean) * row.rstd;

			sums.dgamma[r][k] += dy * x_hat;
			ret.y += g * x_hat;
			if constexpr (CENTRED) {
				sums.dbeta[r][k] += dy;
				ret.x += g;
			}
		}
	});
	return ret;
}

/* Writes dx. mean_g, mean_gx: the means over the row of dy gamma (0 in RMS norm) and of dy gamma
 * x_hat. */
template <int N, int R, bool SUMS, typename C, typename A>
__device__ __forceinline__ void write_row(const struct cuda_norm_grad &p, int64_t at,
	const struct row_part<N, R, C, A> &row, const struct factors<N, R> &factors, float mean_g,
	float mean_gx, struct column_sums<N, R> &sums)
{
	over_packs<N, R>(p.width, [&](int r, int i) {
		auto old = row.dx[r];
		float gamma[N], v[N];

		factors.get(p.gamma + i, r, gamma);
		if (!row.narrow && p.add_dx)
			fetch(as<const A>(p.dx) + at + i, old);
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float x_hat = (row.x[r].at(k) - row.mean) * row.rstd;

			v[k] = row.rstd * (row.dy[r].at(k) * gamma[k] - mean_g - x_hat * mean_gx);
			if (p.add_dx)
				v[k] += old.at(k);
		}
		store(as<A>(p.dx) + at + i, v);
		if constexpr (SUMS) {
#pragma unroll
			for (int k = 0; k < N; k++)
				sums.dx[r][k] += rounded(p.dx.type, v[k]);
		}
	});
}

/* The vectors of partial; dbeta exists in layer norm only. */
static __host__ __device__ __forceinline__ int vectors_of(const struct cuda_norm_grad &p)
{
	return 1 + p.centred + (p.sums != NULL);
}

template <bool CENTRED, bool SUMS, int N, int R>
__device__ __forceinline__ void leave_sums(
	const struct cuda_norm_grad &p, const struct column_sums<N, R> &sums)
{
	over_packs<N, R>(p.width, [&](int r, int i) {
		float *to = p.partial + vectors_of(p) * blockIdx.x * p.width + i;

		store(to, sums.dgamma[r]);
		if constexpr (CENTRED)
			store(to += p.width, sums.dbeta[r]);
		if constexpr (SUMS)
			store(to + p.width, sums.dx[r]);
	});
}

/* Each thread handles R packs of every gridDim.x-th row, and loads those of the next row before it
 * waits for the others. */
template <int N, int R, bool CENTRED, bool SUMS, int MOST, typename C, typename A>
__global__ void __launch_bounds__(MOST, grad_per_sm(CENTRED, R, sizeof(A)) / MOST)
	norm_grad_kernel(struct cuda_norm_grad p)
{
	__shared__ float2 share[2][WARP];
	struct row_part<N, R, C, A> now, next;
	struct column_sums<N, R> sums = {
	};
	struct factors<N, R> factors;
	int turn = 0;

	if constexpr (factors.kept)
		over_packs<N, R>(
			p.width, [&](int r, int i) { load(p.gamma + i, factors.gamma[r]); });
	if constexpr (now.ahead)
		load_row<CENTRED>(p, blockIdx.x, next);
	for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x, turn ^= 1) {
		if constexpr (now.ahead)
			now = next;
		load_row<CENTRED>(p, now.ahead ? row + gridDim.x : row, now.ahead ? next : now);
		const float2 sum = block_sums<CENTRED>(
			add_products<CENTRED>(p, now, factors, sums), share[turn]);

		write_row<N, R, SUMS>(
			p, row * p.width, now, factors, sum.x / p.width, sum.y / p.width, sums);
	}
	leave_sums<CENTRED, SUMS>(p, sums);
}

/* As norm_grad_kernel, of one row, without the gradients of gamma and beta, which need sums over
 * rows. */
template <int N, int R, bool CENTRED, typename C, typename A>
__global__ void __launch_bounds__(MOST_THREADS, sizeof(A) > 2 ? 1 : 2)
	norm_dx_kernel(struct cuda_norm_grad p)
{
	__shared__ float2 share[WARP];
	const int64_t row = blockIdx.x;
	struct row_part<N, R, C, A> now;
	struct column_sums<N, R> unused;
	struct factors<N, R> factors;

	load_row<CENTRED>(p, row, now);
	if constexpr (factors.kept)
		over_packs<N, R>(
			p.width, [&](int r, int i) { load(p.gamma + i, factors.gamma[r]); });
	const float2 sum =
		block_sums<CENTRED>(add_products<CENTRED>(p, now, factors, unused), share);

	write_row<N, R, false>(
		p, row * p.width, now, factors, sum.x / p.width, sum.y / p.width, unused);
}

/* Stores or adds element i of the first, second or third vector. */
__device__ __forceinline__ void finish(
	const struct cuda_norm_grad &p, int vector, int64_t i, float sum)
{
	const bool beta = vector == 1 && p.centred;
	float *to = vector == 0 ? p.dgamma : beta ? p.dbeta : p.sums;
	const bool add = vector == 0 ? p.add_dgamma : beta ? p.add_dbeta : p.add_sums;

	if (to)
		to[i] = sum + (add ? to[i] : 0);
}

__global__ void norm_columns_kernel(struct cuda_norm_grad p, int columns)
{
	const int column = blockIdx.x * WARP + threadIdx.y;
	const float sum = part_sum(p.partial, p.blocks, columns);

	if (threadIdx.x == 0 && column < columns)
		finish(p, (int)(column / p.width), column % p.width, sum);
}

/* False where gamma and beta are frozen. */
static bool has_vectors(const struct cuda_norm_grad *p)
{
	return p->dgamma || p->dbeta || p->sums;
}

template <int N, int R, bool CENTRED>
static void norm_dx(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	const int threads = threads_for((p->width + N * R - 1) / (N * R), MOST_THREADS);

	with_type(p->dy, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->dy.type)
			norm_dx_kernel<N, R, CENTRED, T, T>
				<<<(unsigned)p->rows, threads, 0, stream>>>(*p);
		else
			norm_dx_kernel<N, R, CENTRED, T, float>
				<<<(unsigned)p->rows, threads, 0, stream>>>(*p);
	});
}

template <int N, int R, bool CENTRED, bool SUMS, int MOST>
static void norm_grad_typed(const struct cuda_norm_grad *p, int threads, cudaStream_t stream)
{
	with_type(p->dy, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->dy.type)
			norm_grad_kernel<N, R, CENTRED, SUMS, MOST, T, T>
				<<<p->blocks, threads, 0, stream>>>(*p);
		else
			norm_grad_kernel<N, R, CENTRED, SUMS, MOST, T, float>
				<<<p->blocks, threads, 0, stream>>>(*p);
	});
}

template <int N, int R, bool CENTRED, bool SUMS>
static void norm_grad_sized(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	int threads = threads_for((p->width + N * R - 1) / (N * R), MOST_THREADS);

	if constexpr (N == PACK && R == 1)
		if (threads <= FEW_THREADS)
			return norm_grad_typed<N, R, CENTRED, SUMS, FEW_THREADS>(
				p, threads, stream);
	norm_grad_typed<N, R, CENTRED, SUMS, MOST_THREADS>(p, threads, stream);
}

template <int N, int R, bool CENTRED>
static void norm_grad_centred(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	if constexpr (CENTRED && N * R <= MOST_SUMMED)
		if (p->sums)
			return norm_grad_sized<N, R, CENTRED, true>(p, stream);
	norm_grad_sized<N, R, CENTRED, false>(p, stream);
}

template <int N, int R>
static void norm_grad_of(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	if (!has_vectors(p))
		return p->centred ? norm_dx<N, R, true>(p, stream)
				  : norm_dx<N, R, false>(p, stream);
	p->centred ? norm_grad_centred<N, R, true>(p, stream)
		   : norm_grad_centred<N, R, false>(p, stream);
}

/* The packs of a row that a thread handles. */
static int grad_packs(int64_t width)
{
	if (width % PACK)
		return 4;
	return width <= PACK * MOST_THREADS ? 1 : width <= 2 * PACK * MOST_THREADS ? 2 : 4;
}

int cuda_norm_grad_blocks(int processors, const struct cuda_norm_grad *p)
{
	const int teams = cuda_norm_teams_blocks(processors, p);

	if (teams)
		return teams;
	const int packs = grad_packs(p->width), each = (p->width % PACK ? 1 : PACK) * packs;
	const int per_sm = grad_per_sm(p->centred, packs, p->x.type == CUDA_F32 ? 4 : 2);
	const int threads = threads_for((p->width + each - 1) / each, MOST_THREADS);
	const int most = max(1, per_sm / threads) * processors;

	return p->rows < most ? (int)p->rows : most;
}

bool cuda_norm_grad_knows(const struct cuda_norm_grad *p)
{
	int64_t packs = p->sums ? MOST_SUMMED / PACK : 4;
	int64_t widest = (p->width % PACK ? 4 : PACK * packs) * MOST_THREADS;

	return (p->x.type == p->dy.type || p->x.type == CUDA_F32) && p->width <= widest;
}

void cuda_norm_grad(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	const int packs = grad_packs(p->width);

	if (has_vectors(p) && cuda_norm_teams_blocks(p->blocks, p))
		cuda_norm_teams(p, stream);
	else if (p->width % PACK)
		norm_grad_of<1, 4>(p, stream);
	else if (packs == 1)
		norm_grad_of<PACK, 1>(p, stream);
	else if (packs == 2)
		norm_grad_of<PACK, 2>(p, stream);
	else
		norm_grad_of<PACK, 4>(p, stream);
	if (!has_vectors(p))
		return;
	const int columns = vectors_of(*p) * (int)p->width;

	norm_columns_kernel<<<blocks_for(columns, WARP), dim3(WARP, WARP), 0, stream>>>(
		*p, columns);
}
