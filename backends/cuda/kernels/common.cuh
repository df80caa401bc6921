/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that kernels share: packs of elements as f32, reductions over warps and blocks. */
#ifndef JM_CUDA_COMMON_CUH
#define JM_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "kernels.h"

#define PACK 8 /* elements that a thread handles at a time: 16 bytes of 2-byte elements */
#define WARP 32
#define MASKED                                                                                     \
	-1e30f /* a score that counts as none; not infinite, so that differences are numbers */

typedef __nv_bfloat16 bf16;

/* ---- loads and stores of N elements as f32, aligned to N elements ---------------------------- */

template <int N> __device__ __forceinline__ void load(const float *p, float (&v)[N])
{
	if constexpr (N % 4 == 0) {
#pragma unroll
		for (int i = 0; i < N; i += 4) {
			float4 q = *reinterpret_cast<const float4 *>(p + i);

			v[i] = q.x, v[i + 1] = q.y, v[i + 2] = q.z, v[i + 3] = q.w;
		}
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = p[i];
	}
}

template <int N> __device__ __forceinline__ void load(const bf16 *p, float (&v)[N])
{
	if constexpr (N % 8 == 0) {
#pragma unroll
		for (int i = 0; i < N; i += 8) {
			uint4 q = *reinterpret_cast<const uint4 *>(p + i);
			const unsigned w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
			for (int k = 0; k < 4; k++) {
				v[i + 2 * k] = __uint_as_float(w[k] << 16);
				v[i + 2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
			}
		}
	} else if constexpr (N == 4) {
		const uint2 q = *reinterpret_cast<const uint2 *>(p);

		v[0] = __uint_as_float(q.x << 16), v[1] = __uint_as_float(q.x & 0xffff0000u);
		v[2] = __uint_as_float(q.y << 16), v[3] = __uint_as_float(q.y & 0xffff0000u);
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = __bfloat162float(p[i]);
	}
}

template <int N> __device__ __forceinline__ void load(const half *p, float (&v)[N])
{
	if constexpr (N % 8 == 0) {
#pragma unroll
		for (int i = 0; i < N; i += 8) {
			uint4 q = *reinterpret_cast<const uint4 *>(p + i);
			const unsigned w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
			for (int k = 0; k < 4; k++) {
				float2 t = __half22float2(*reinterpret_cast<const half2 *>(&w[k]));

				v[i + 2 * k] = t.x;
				v[i + 2 * k + 1] = t.y;
			}
		}
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = __half2float(p[i]);
	}
}

template <int N> __device__ __forceinline__ void store(float *p, const float (&v)[N])
{
	if constexpr (N % 4 == 0) {
#pragma unroll
		for (int i = 0; i < N; i += 4)
			*reinterpret_cast<float4 *>(p + i) =
				make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			p[i] = v[i];
	}
}

__device__ __forceinline__ unsigned two(const bf16 *, float low, float high)
{
	__nv_bfloat162 t = __floats2bfloat162_rn(low, high);

	return *reinterpret_cast<unsigned *>(&t);
}

__device__ __forceinline__ unsigned two(const half *, float low, float high)
{
	half2 t = __floats2half2_rn(low, high);

	return *reinterpret_cast<unsigned *>(&t);
}

/* T: a type of 2 bytes. */
template <int N, typename T> __device__ __forceinline__ void store(T *p, const float (&v)[N])
{
	if constexpr (N % 8 == 0) {
#pragma unroll
		for (int i = 0; i < N; i += 8)
			*reinterpret_cast<uint4 *>(p + i) =
				make_uint4(two(p, v[i], v[i + 1]), two(p, v[i + 2], v[i + 3]),
					two(p, v[i + 4], v[i + 5]), two(p, v[i + 6], v[i + 7]));
	} else if constexpr (N == 4) {
		*reinterpret_cast<uint2 *>(p) =
			make_uint2(two(p, v[0], v[1]), two(p, v[2], v[3]));
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			p[i] = (T)v[i];
	}
}

/* N elements in the type they have in memory; types of 2 bytes need half the registers of f32. */
template <int N, typename T> struct alignas(N == 1 ? sizeof(T) : 16) raw {
	T v[N];

	__device__ __forceinline__ float at(int i) const
	{
		return (float)v[i];
	}
};

template <int N, typename T> __device__ __forceinline__ void fetch(const T *p, raw<N, T> &ret)
{
	ret = *reinterpret_cast<const raw<N, T> *>(p);
}

/* As raw, for elements that are only read as f32. */
template <int N, typename T> struct packed : raw<N, T> {
};

/* Pairs of elements, because the compiler would keep single ones in a register each. */
template <> struct alignas(16) packed<PACK, bf16> {
	unsigned pair[PACK / 2];

	__device__ __forceinline__ float at(int i) const
	{
		const unsigned w = pair[i / 2];

		return __uint_as_float(i % 2 ? w & 0xffff0000u : w << 16);
	}
};

template <int N, typename T> __device__ __forceinline__ void fetch(const T *p, packed<N, T> &ret)
{
	ret = *reinterpret_cast<const packed<N, T> *>(p);
}

template <int N, typename T>
__device__ __forceinline__ void spread(const packed<N, T> &from, float (&ret)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		ret[i] = from.at(i);
}

template <int N, typename T> __device__ __forceinline__ void add_stored(const T *p, float (&v)[N])
{
	float old[N];

	load(p, old);
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] += old[i];
}

template <int N, typename T>
__device__ __forceinline__ void store_sum(T *p, float (&v)[N], bool add)
{
	if (add)
		add_stored(p, v);
	store(p, v);
}

/* Loads the first `left` elements of a pack; the others are 0. */
template <int N, typename T>
__device__ __forceinline__ void load_some(const T *p, float (&v)[N], int64_t left)
{
	if (left >= N) {
		load(p, v);
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = i < left ? (float)p[i] : 0;
}

template <int N, typename T>
__device__ __forceinline__ void store_some(T *p, float (&v)[N], int64_t left, bool add)
{
	if (left >= N) {
		store_sum(p, v, add);
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		if (i < left)
			p[i] = (T)(v[i] + (add ? (float)p[i] : 0));
}

/* The address in shared memory as instructions take it. */
__device__ __forceinline__ unsigned shared_at(const void *p)
{
	return (unsigned)__cvta_generic_to_shared(p);
}

/* ---- functions with a relative error of about 2^-22, for results in 16 bits ------------------ */

#define LOG2_E 1.4426950408889634f

/* 2^x. */
__device__ __forceinline__ float fast_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ __forceinline__ float fast_inverse(float x)
{
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ __forceinline__ float fast_root(float x)
{
	float y;

	asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* 1 / (1 + e^-x) for operands and results of type T. */
template <typename T> __device__ __forceinline__ float sigmoid(float x)
{
	if constexpr (sizeof(T) == 2)
		return fast_inverse(1 + fast_exp2(-LOG2_E * x));
	return 1 / (1 + expf(-x));
}

/* ---- sums and maxima, returned in all threads ------------------------------------------------ */

template <typename T> __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
	for (int i = WARP / 2; i; i /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, i);
	return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
	for (int i = WARP / 2; i; i /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
	return x;
}

/* The sum over a block of whole warps; `share` holds 32 values and may be reused after the next
 * barrier. */
template <typename T> __device__ __forceinline__ T block_sum(T x, T *share)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;

	x = warp_sum(x);
	if (warps == 1)
		return x;
	__syncthreads();
	if (lane == 0)
		share[warp] = x;
	__syncthreads();
	return warp_sum(lane < warps ? share[lane] : (T)0);
}

__device__ __forceinline__ float block_max(float x, float *share)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;

	x = warp_max(x);
	if (warps == 1)
		return x;
	__syncthreads();
	if (lane == 0)
		share[warp] = x;
	__syncthreads();
	return warp_max(lane < warps ? share[lane] : -INFINITY);
}

/*
 * The sum of a column of partial[parts,columns] in order, the same in all threads of a warp: that
 * of column blockIdx.x WARP + threadIdx.y. Blocks are WARP x WARP.
 */
__device__ __forceinline__ float part_sum(const float *partial, int parts, int columns)
{
	__shared__ float share[WARP][WARP + 1];
	const int column = blockIdx.x * WARP + threadIdx.x;
	float sum = 0;

	for (int i = threadIdx.y; column < columns && i < parts; i += WARP)
		sum += partial[(int64_t)i * columns + column];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	return warp_sum(share[threadIdx.x][threadIdx.y]);
}

/* ---- kernels that overlap -------------------------------------------------------------------- */

/*
 * A kernel of start_overlapping begins when all blocks of the one before it have called start_next
 * or ended. Before wait_for_previous it reads only what that one does not write, and writes
 * nothing. From compute capability 9.0 on; before, kernels follow each other.
 */
__device__ __forceinline__ void start_next()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- starting kernels ------------------------------------------------------------------------ */

static inline unsigned blocks_for(int64_t n, int per_block)
{
	return (unsigned)((n + per_block - 1) / per_block);
}

/* The threads of whole warps that cover `n`, at most `most`. */
static inline int threads_for(int64_t n, int most)
{
	int64_t t = (n + WARP - 1) / WARP * WARP;

	return t < most ? (int)t : most;
}

static inline bool can_overlap()
{
	int device = 0, major = 0;

	cudaGetDevice(&device);
	cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
	return major >= 9;
}

/* Starts a kernel that calls wait_for_previous. */
template <class... P, class... A>
static inline void start_overlapping(void (*kernel)(P...), dim3 blocks, dim3 threads, int shared,
	cudaStream_t stream, const A &...operands)
{
	cudaLaunchAttribute overlaps = {};
	cudaLaunchConfig_t how = {};

	overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	overlaps.val.programmaticStreamSerializationAllowed = 1;
	how.gridDim = blocks;
	how.dynamicSmemBytes = (size_t)shared;
	how.blockDim = threads;
	how.stream = stream;
	how.attrs = &overlaps;
	how.numAttrs = can_overlap();
	cudaLaunchKernelEx(&how, kernel, P(operands)...);
}

/* Calls f(T()) with T, the type of the operand's elements. */
template <class F> static inline void with_type(const struct cuda_vec &v, F f)
{
	if (v.type == CUDA_BF16)
		f(bf16());
	else if (v.type == CUDA_F16)
		f(half());
	else
		f(float());
}

/* Calls f(A(), B()) for two types that are equal or of which one is f32. */
template <class F>
static inline void with_types(const struct cuda_vec &a, const struct cuda_vec &b, F f)
{
	with_type(a, [&](auto x) {
		with_type(b, [&](auto y) {
			using X = decltype(x);
			using Y = decltype(y);

			if constexpr (std::is_same_v<X, Y> || std::is_same_v<X, float> ||
				      std::is_same_v<Y, float>)
				f(x, y);
		});
	});
}

template <typename T> __host__ __device__ __forceinline__ T *as(const struct cuda_vec &v)
{
	return static_cast<T *>(v.data);
}

#endif
