/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between images x[B,C,P,Q], in any order of channels and pixels, and sequences y[B,S,C]
 * that may begin with a class token; also the first token of a sequence and its gradient. A block
 * handles one position of one sequence.
 */
#include "common.cuh"

#define THREADS 256

/* Loads N channels of an image, which are `channel` elements apart; one load where they are
 * adjacent. */
template <int N, typename T>
__device__ __forceinline__ void load_pixel(const T *x, int64_t i, int64_t channel, float (&v)[N])
{
	if constexpr (N == 1)
		v[0] = (float)x[i * channel];
	else
		load(x + i, v);
}

template <int N, typename X, typename Y> __global__ void tokens_kernel(struct cuda_tokens p)
{
	const int64_t b = blockIdx.x / p.seq, s = blockIdx.x % p.seq;
	const X *x = as<const X>(p.x) + b * p.image + (s - p.behind) * p.pixel;

	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		float v[N], w[N];

		if (s < p.behind)
			load(p.first + i, v);
		else
			load_pixel(x, i, p.channel, v);
		if (p.pos) {
			load(p.pos + s * p.width + i, w);
#pragma unroll
			for (int k = 0; k < N; k++)
				v[k] += w[k];
		}
		store_sum(as<Y>(p.y) + blockIdx.x * p.width + i, v, p.accumulate);
	}
}

/* y is the gradient of the sequence, x that of the image. */
template <int N, typename X, typename Y> __global__ void tokens_grad_kernel(struct cuda_tokens p)
{
	const int64_t b = blockIdx.x / p.seq, s = blockIdx.x % p.seq;
	X *x = as<X>(p.x) + b * p.image + (s - p.behind) * p.pixel;

	if (s < p.behind)
		return;
	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		float v[N];

		load(as<const Y>(p.y) + blockIdx.x * p.width + i, v);
		store_sum(x + i * (N == 1 ? p.channel : 1), v, p.accumulate);
	}
}

template <int N, typename X, typename Y>
static void tokens_of(const struct cuda_tokens *p, cudaStream_t stream)
{
	unsigned blocks = (unsigned)(p->batch * p->seq);
	int threads = threads_for((p->width + N - 1) / N, THREADS);

	if (p->grad)
		tokens_grad_kernel<N, X, Y><<<blocks, threads, 0, stream>>>(*p);
	else
		tokens_kernel<N, X, Y><<<blocks, threads, 0, stream>>>(*p);
}

template <int N> static void tokens_typed(const struct cuda_tokens *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->y.type)
			tokens_of<N, T, T>(p, stream);
		else
			tokens_of<N, T, float>(p, stream);
	});
}

void cuda_tokens(const struct cuda_tokens *p, cudaStream_t stream)
{
	p->width % PACK == 0 && p->channel == 1 ? tokens_typed<PACK>(p, stream)
						: tokens_typed<1>(p, stream);
}

/* ---- the first token of each sequence -------------------------------------------------------- */

/* grad: x[b,0] = y[b] and all other x[b,s] = 0; else y[b] = x[b,0]. */
template <typename T> __global__ void first_kernel(struct cuda_first p)
{
	const int64_t b = blockIdx.x / p.places, s = blockIdx.x % p.places;
	const T *from = as<const T>(p.grad ? p.y : p.x) + b * (p.grad ? 1 : p.seq) * p.width;
	T *to = as<T>(p.grad ? p.x : p.y) + (b * (p.grad ? p.seq : 1) + s) * p.width;

	for (int64_t i = threadIdx.x; i < p.width; i += blockDim.x)
		to[i] = (T)((s ? 0 : (float)from[i]) + (p.accumulate ? (float)to[i] : 0));
}

void cuda_first(const struct cuda_first *given, cudaStream_t stream)
{
	struct cuda_first p = *given;
	int threads = threads_for(p.width, THREADS);

	p.places = p.grad ? p.seq : 1;
	with_type(p.x, [&](auto t) {
		first_kernel<decltype(t)>
			<<<(unsigned)(p.batch * p.places), threads, 0, stream>>>(p);
	});
}
