/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions of x[B,S,heads,D] and their gradient. A thread turns the same N pairs (i, i + D/2) of
 * several heads or of several sequences, so that it reads the angles of these pairs once. The gradient may
 * also sum its result over the tokens: each block writes the sums of its tokens as one row of
 * partial[blocks,heads D], which a second kernel sums in order.
 */
#include "common.cuh"

#define THREADS 256
#define AT_ONCE 2 /* heads that a thread loads at a time */
#define BLOCKS	4 /* on a multiprocessor: at most 64 registers */
/* Threads of a block that sums, one for each N pairs of a token; more lack registers. */
#define WIDEST	512
#define NARROW	384 /* threads of a block of which two fit a multiprocessor */
#define AHEAD	2 /* tokens that a thread of these loads before it needs them */

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

/* The heads from p.turned on are copied. Thread h of a pack of pairs handles the heads h, h + apart...
 * < heads. */
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

/* ---- with sums over the tokens --------------------------------------------------------------- */

template <int N> struct pairs {
	float a[N], b[N];
};

/* Sums what the elements hold, which is rounded to their type. */
template <int N, typename T>
__device__ __forceinline__ void add_rounded(struct pairs<N> &sum, const struct pairs<N> &v)
{
#pragma unroll
	for (int k = 0; k < N; k++) {
		sum.a[k] += (float)(T)v.a[k];
		sum.b[k] += (float)(T)v.b[k];
	}
}

/* A thread's pairs in the type that they have in memory. */
template <int N, typename T> struct packed_pairs {
	packed<N, T> a, b;
};

/* The tokens of a block in the order of position and sequence: that of number k; `at`: the elements before the
 * thread's pairs in a token. */
struct place {
	unsigned batch, seq, apart, first;
	int64_t width, at;

	__device__ __forceinline__ unsigned position(unsigned k) const
	{
		return first + k / batch * apart;
	}

	__device__ __forceinline__ int64_t element(unsigned k) const
	{
		return ((int64_t)(k % batch) * seq + position(k)) * width + at;
	}
};

template <int N, typename T>
__device__ __forceinline__ void load_pairs(
	const struct cuda_rope &p, int64_t at, packed_pairs<N, T> &ret)
{
	fetch(as<const T>(p.x) + at, ret.a);
	fetch(as<const T>(p.x) + at + p.depth / 2, ret.b);
}

/* Turns, stores and sums the pairs. */
template <int N, typename T>
__device__ __forceinline__ void turn_pairs(const struct cuda_rope &p, int64_t at, bool turned,
	const struct rotation<N> &turn, const packed_pairs<N, T> &x, struct pairs<N> &sum)
{
	T *y = as<T>(p.y) + at;
	struct pairs<N> v;

	spread(x.a, v.a);
	spread(x.b, v.b);
	if (turned)
		apply(turn, v.a, v.b);
	if (turned || p.x.data != p.y.data) {
		store(y, v.a);
		store(y + p.depth / 2, v.b);
	}
	add_rounded<N, T>(sum, v);
}

template <int N, int MOST, typename T>
__global__ void __launch_bounds__(MOST, MOST == NARROW ? 2 : 1) rope_sums_kernel(struct cuda_rope p)
{
	const int per_head = p.depth / 2 / N, head = threadIdx.x / per_head,
		  i = threadIdx.x % per_head * N;
	const struct place place = {(unsigned)(p.tokens / p.seq), (unsigned)p.seq, gridDim.x,
		blockIdx.x, (int64_t)p.heads * p.depth, (int64_t)head * p.depth + i};
	const unsigned n = (place.seq - place.first + place.apart - 1) / place.apart * place.batch;
	const bool turned = head < p.turned;
	float *to = p.partial + blockIdx.x * place.width + place.at;
	packed_pairs<N, T> next[AHEAD];
	struct pairs<N> sum = {};
	struct rotation<N> turn;

	if (head >= p.heads)
		return;
#pragma unroll
	for (unsigned u = 0; u < AHEAD; u++)
		if (u < n)
			load_pairs<N, T>(p, place.element(u), next[u]);
	for (unsigned from = 0; from < n; from += AHEAD)
#pragma unroll
		for (unsigned u = 0; u < AHEAD; u++) {
			const unsigned k = from + u;
			const packed_pairs<N, T> now = next[u];

			if (k >= n)
				break;
			if (k + AHEAD < n)
				load_pairs<N, T>(p, place.element(k + AHEAD), next[u]);
			if (turned && k % place.batch == 0)
				load_turn(p, place.position(k), i, turn);
			turn_pairs<N, T>(p, place.element(k), turned, turn, now, sum);
		}
	store(to, sum.a);
	store(to + p.depth / 2, sum.b);
}

__global__ void rope_parts_kernel(struct cuda_rope p, int width)
{
	const int column = blockIdx.x * WARP + threadIdx.y;
	const float sum = part_sum(p.partial, p.blocks, width);

	if (threadIdx.x == 0 && column < width)
		p.sums[column] = sum + (p.add_sums ? p.sums[column] : 0);
}

static int sum_threads(const struct cuda_rope *p)
{
	return p->heads * (p->depth / 2 / PACK);
}

bool cuda_rope_sums(const struct cuda_rope *p)
{
	return p->depth % (2 * PACK) == 0 && sum_threads(p) <= WIDEST && !p->accumulate;
}

int cuda_rope_blocks(int processors, const struct cuda_rope *p)
{
	const int threads = sum_threads(p);
	const int64_t most = (int64_t)processors * (threads <= NARROW ? 2 * NARROW / threads : 1);

	return (int)(p->seq < most ? p->seq : most);
}

static void rope_with_sums(const struct cuda_rope *p, cudaStream_t stream)
{
	const int width = p->heads * p->depth;

	const int threads = threads_for(sum_threads(p), WIDEST);

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if (threads <= NARROW)
			rope_sums_kernel<PACK, NARROW, T><<<p->blocks, threads, 0, stream>>>(*p);
		else
			rope_sums_kernel<PACK, WIDEST, T><<<p->blocks, threads, 0, stream>>>(*p);
	});
	rope_parts_kernel<<<blocks_for(width, WARP), dim3(WARP, WARP), 0, stream>>>(*p, width);
}

void cuda_rope(const struct cuda_rope *p, cudaStream_t stream)
{
	if (p->sums)
		return rope_with_sums(p, stream);
	p->depth % (2 * PACK) == 0 ? rope_of<PACK>(p, stream) : rope_of<1>(p, stream);
}
