/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions of x[B,S,heads,D] and their gradient. A thread turns the same N pairs (i, i +
 * D/2) of several heads, so that it reads the angles of these pairs once.
 */
#include "common.cuh"

#define THREADS 256
#define AT_ONCE 2 /* heads that a thread loads at a time */
#define BLOCKS	4 /* on a multiprocessor: at most 64 registers */

template <int N> struct rotation {
	float cosine[N], sine[N];
};

template <int N>
__device__ __forceinline__ void load_turn(
	const struct cuda_rope &p, int64_t position, int i, struct rotation<N> &ret)
{
	const float *cosine = p.angles + position * (p.depth / 2) + i;

	load(cosine, ret.cosine);
	load(cosine + p.seq * (p.depth / 2), ret.sine);
	if (p.inverse) {
#pragma unroll
		for (int k = 0; k < N; k++)
			ret.sine[k] = -ret.sine[k];
	}
}

template <int N>
__device__ __forceinline__ void apply(const struct rotation<N> &turn, float (&a)[N], float (&b)[N])
{
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float was = a[k];

		a[k] = was * turn.cosine[k] - b[k] * turn.sine[k];
		b[k] = b[k] * turn.cosine[k] + was * turn.sine[k];
	}
}

/* The heads from p.turned on are copied. Thread h of a pack of pairs handles the heads h, h +
 * apart... < heads. */
template <int N, typename T>
__global__ void __launch_bounds__(THREADS, BLOCKS)
	rope_kernel(struct cuda_rope p, unsigned heads, unsigned apart)
{
	const unsigned per_head = p.depth / 2 / N, per_token = apart * per_head;
	const unsigned t = blockIdx.x * blockDim.x + threadIdx.x, token = t / per_token,
		       u = t % per_token;
	const int i = u % per_head * N;
	const int64_t at = (int64_t)token * p.heads * p.depth + i;
	packed<N, T> first[AT_ONCE], second[AT_ONCE];
	struct rotation<N> turn;

	if (token >= p.tokens)
		return;
#pragma unroll
	for (int k = 0; k < AT_ONCE; k++) {
		const unsigned head = u / per_head + k * apart;
		const T *x = as<const T>(p.x) + at + (int64_t)head * p.depth;

		if (head < heads) {
			fetch(x, first[k]);
			fetch(x + p.depth / 2, second[k]);
		}
	}
	load_turn(p, token % (unsigned)p.seq, i, turn);
#pragma unroll
	for (int k = 0; k < AT_ONCE; k++) {
		const unsigned head = u / per_head + k * apart;
		T *y = as<T>(p.y) + at + (int64_t)head * p.depth;
		float a[N], b[N];

		if (head >= heads)
			continue;
		spread(first[k], a);
		spread(second[k], b);
		if (head < p.turned)
			apply(turn, a, b);
		store_sum(y, a, p.accumulate);
		store_sum(y + p.depth / 2, b, p.accumulate);
	}
}

template <int N> static void rope_of(const struct cuda_rope *p, cudaStream_t stream)
{
	const bool in_place = p->x.data == p->y.data && !p->accumulate;
	const unsigned heads = (unsigned)(in_place ? p->turned : p->heads);
	const unsigned apart = (heads + AT_ONCE - 1) / AT_ONCE;

	with_type(p->x, [&](auto t) {
		rope_kernel<N, decltype(t)>
			<<<blocks_for(p->tokens * apart * (p->depth / 2 / N), THREADS), THREADS, 0,
				stream>>>(*p, heads, apart);
	});
}

void cuda_rope(const struct cuda_rope *p, cudaStream_t stream)
{
	p->depth % (2 * PACK) == 0 ? rope_of<PACK>(p, stream) : rope_of<1>(p, stream);
}
