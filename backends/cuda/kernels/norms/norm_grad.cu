/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of layer norm and RMS norm of x[rows,width]. A block handles one row at a time, while
 * its next rows are on their way to shared memory. For the gradients of gamma and beta each block
 * sums its rows in registers and writes partial[blocks,2,width], which a second kernel sums in
 * order; RMS norm has one vector less. Layer norm with the gradient of a bias, which is the sum of
 * the result, has three. Gradients of short rows are in norm_teams.cu.
 */
#include "../common.cuh"
#include "../mma.cuh"
#include "../norm_teams.h"

#define MOST_THREADS 512
#define FEW_THREADS  256 /* enough for most rows; more of their blocks fit a multiprocessor */
#define TWO_PACKS    320 /* of which two blocks fit one where a thread has two packs */
#define MOST_SUMMED  16 /* elements of a row that a thread sums in registers without spilling them */
#define AHEAD	     2	/* rows of a block on their way to shared memory */
#define MOST_WAITING (96 << 10) /* their bytes */

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
	/* pairs need fewer registers, single elements fewer instructions */
	template <typename T>
	using elements = std::conditional_t<sizeof(A) == 2, packed<N, T>, raw<N, T>>;

	elements<C> dy[R];
	elements<A> x[R], dx[R]; /* dx: what the result is added to */
	float mean, rstd;

	/* The widest rows leave no registers for values that are used late. */
	static constexpr bool narrow = N * R <= 2 * PACK;
	static constexpr int bytes = R * N * (sizeof(C) + 2 * sizeof(A));
};

/* The sums of a thread's columns over rows. */
template <int N, int R> struct column_sums {
	float dgamma[R][N], dbeta[R][N], dx[R][N];
};

/* Threads of the gradient that fit a multiprocessor, limited by registers: x: bytes of an element
 * of x. */
static constexpr int grad_per_sm(bool centred, int packs, int x)
{
	return centred || packs > 2 || x > 2 ? 512 : packs > 1 ? 2 * TWO_PACKS : 1024;
}

/* Whether the next rows of blocks of so many threads wait in shared memory. */
template <int N, int R, typename C, typename A, int THREADS>
static constexpr bool rows_wait =
	N == PACK &&AHEAD *THREADS *row_part<N, R, C, A>::bytes <= MOST_WAITING;

template <bool CENTRED, int N, int R, typename C, typename A>
__device__ __forceinline__ void load_row(
	const struct cuda_norm_grad &p, int64_t row, struct row_part<N, R, C, A> &ret)
{
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

/* Copies 16 bytes to shared memory by way of the first cache, where a neighbour that is copied next
 * finds its half of a sector. */
__device__ __forceinline__ void copy_half(uint4 *to, const uint4 *from)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from));
}

/* Copies a pack to shared memory, of which 16 bytes of each thread lie side by side. */
template <int N, typename T> __device__ __forceinline__ void copy_pack(const T *from, uint4 *to)
{
	constexpr int PARTS = N * sizeof(T) / 16;
	const uint4 *part = reinterpret_cast<const uint4 *>(from);
#pragma unroll
	for (int k = 0; k < PARTS; k++)
		if constexpr (PARTS == 1)
			copy_async<16>(shared_at(to), part, true);
		else
			copy_half(to + k * blockDim.x, part + k);
}

/* A pack that copy_pack has copied. */
template <typename E> __device__ __forceinline__ void take_pack(const uint4 *from, E &ret)
{
#pragma unroll
	for (int k = 0; k < (int)sizeof(ret) / 16; k++)
		reinterpret_cast<uint4 *>(&ret)[k] = from[k * blockDim.x];
}

/* Where the operands of a thread's pack r lie from its first 16 bytes on. */
template <int N, int R, typename C, typename A> struct waiting_row {
	static constexpr int DY = N * sizeof(C) / 16, X = N * sizeof(A) / 16;
	uint4 *own;

	__device__ __forceinline__ uint4 *dy(int r) const
	{
		return own + r * DY * blockDim.x;
	}
	__device__ __forceinline__ uint4 *x(int r) const
	{
		return own + (R * DY + r * X) * blockDim.x;
	}
	__device__ __forceinline__ uint4 *dx(int r) const
	{
		return own + (R * DY + (R + r) * X) * blockDim.x;
	}
};

/* A thread reads only what it has copied itself, so that none waits for others. */
template <int N, int R, typename C, typename A>
__device__ __forceinline__ void copy_row(
	const struct cuda_norm_grad &p, int64_t row, waiting_row<N, R, C, A> to)
{
	if (row < p.rows)
		over_packs<N, R>(p.width, [&](int r, int i) {
			const int64_t at = row * p.width + i;

			copy_pack<N>(as<const C>(p.dy) + at, to.dy(r));
			copy_pack<N>(as<const A>(p.x) + at, to.x(r));
			if (p.add_dx)
				copy_pack<N>(as<const A>(p.dx) + at, to.dx(r));
		});
	copies_commit();
}

template <int N, int R, typename C, typename A>
__device__ __forceinline__ void take_row(
	const struct cuda_norm_grad &p, waiting_row<N, R, C, A> from, row_part<N, R, C, A> &ret)
{
	over_packs<N, R>(p.width, [&](int r, int) {
		take_pack(from.dy(r), ret.dy[r]);
		take_pack(from.x(r), ret.x[r]);
		if (p.add_dx)
			take_pack(from.dx(r), ret.dx[r]);
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

/* The mean and the inverse deviation of a row, one row before they are needed. */
template <bool CENTRED> struct next_row {
	float mean, rstd;

	__device__ __forceinline__ void load(const struct cuda_norm_grad &p, int64_t row)
	{
		if (row < p.rows) {
			rstd = p.rstd[row];
			mean = CENTRED ? p.mean[row] : 0;
		}
	}
};

/* Each thread handles R packs of every gridDim.x-th row. */
template <int N, int R, bool CENTRED, bool SUMS, int MOST, typename C, typename A>
__global__ void __launch_bounds__(MOST, grad_per_sm(CENTRED, R, sizeof(A)) / MOST)
	norm_grad_kernel(struct cuda_norm_grad p)
{
	constexpr bool WAIT = rows_wait<N, R, C, A, MOST>;
	extern __shared__ uint4 waiting[];
	__shared__ float2 share[2][WARP];
	struct row_part<N, R, C, A> now;
	struct next_row<CENTRED> next;
	struct column_sums<N, R> sums = {
	};
	struct factors<N, R> factors;
	int turn = 0;
	auto slot = [&](int i) {
		return waiting_row<N, R, C, A>{
			waiting + i * (now.bytes / 16) * blockDim.x + threadIdx.x};
	};

	if constexpr (WAIT) {
		for (int i = 0; i < AHEAD; i++)
			copy_row(p, blockIdx.x + (int64_t)i * gridDim.x, slot(i));
		next.load(p, blockIdx.x);
	}
	if constexpr (factors.kept)
		over_packs<N, R>(
			p.width, [&](int r, int i) { load(p.gamma + i, factors.gamma[r]); });
	for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x, turn ^= 1) {
		if constexpr (WAIT) {
			now.mean = next.mean, now.rstd = next.rstd;
			next.load(p, row + gridDim.x);
			copies_wait<AHEAD - 1>();
			take_row(p, slot(turn), now);
		} else {
			load_row<CENTRED>(p, row, now);
		}
		const float2 sum = block_sums<CENTRED>(
			add_products<CENTRED>(p, now, factors, sums), share[turn]);

		if constexpr (WAIT)
			copy_row(p, row + AHEAD * (int64_t)gridDim.x, slot(turn));
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

template <int N, int R, bool CENTRED, bool SUMS, int MOST, typename C, typename A>
static void start_norm_grad(const struct cuda_norm_grad *p, int threads, cudaStream_t stream)
{
	const auto kernel = norm_grad_kernel<N, R, CENTRED, SUMS, MOST, C, A>;
	const int bytes = AHEAD * threads * row_part<N, R, C, A>::bytes;

	if constexpr (!rows_wait<N, R, C, A, MOST>)
		return kernel<<<p->blocks, threads, 0, stream>>>(*p);
	if (bytes > 32 << 10)
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	kernel<<<p->blocks, threads, bytes, stream>>>(*p);
}

template <int N, int R, bool CENTRED, bool SUMS, int MOST>
static void norm_grad_typed(const struct cuda_norm_grad *p, int threads, cudaStream_t stream)
{
	with_type(p->dy, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->dy.type)
			start_norm_grad<N, R, CENTRED, SUMS, MOST, T, T>(p, threads, stream);
		else
			start_norm_grad<N, R, CENTRED, SUMS, MOST, T, float>(p, threads, stream);
	});
}

template <int N, int R, bool CENTRED, bool SUMS>
static void norm_grad_sized(const struct cuda_norm_grad *p, cudaStream_t stream)
{
	constexpr int FEW = R == 1 ? FEW_THREADS : R == 2 ? TWO_PACKS : MOST_THREADS;
	const int threads = threads_for((p->width + N * R - 1) / (N * R), MOST_THREADS);

	if constexpr (N == PACK && FEW < MOST_THREADS)
		if (threads <= FEW)
			return norm_grad_typed<N, R, CENTRED, SUMS, FEW>(p, threads, stream);
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
