/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions of x[B,S,heads,D] and their gradient. A thread turns the same N pairs (i, i + D/2) of
 * several heads or of several sequences, so that it reads the angles of these pairs once. The gradient may
 * also sum its result over the tokens: each block writes the sums of its tokens as one row of
 * partial[blocks,heads D], which a second kernel sums in order.
 */
#include "common.cuh"

#define THREADS 256
#define AT_ONCE 4 /* heads that a thread loads at a time */
/* Threads of a block that sums, one for each N pairs of a token; more lack registers. */
#define WIDEST	512
#define PER_SM	768 /* threads of blocks that sum which fit a multiprocessor */
#define AHEAD	2 /* tokens that a thread of these loads at a time */

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
__global__ void rope_kernel(struct cuda_rope p, unsigned heads, unsigned apart)
{
	const unsigned per_head = p.depth / 2 / N, per_token = apart * per_head;
	const unsigned t = blockIdx.x * blockDim.x + threadIdx.x, token = t / per_token,
		       u = t % per_token;
	const int i = u % per_head * N;
	const int64_t at = (int64_t)token * p.heads * p.depth + i;
	float a[AT_ONCE][N], b[AT_ONCE][N];
	struct rotation<N> turn;

	if (token >= p.tokens)
		return;
	load_turn(p, token % (unsigned)p.seq, i, turn);
#pragma unroll
	for (int k = 0; k < AT_ONCE; k++) {
		const unsigned head = u / per_head + k * apart;
		const T *x = as<const T>(p.x) + at + (int64_t)head * p.depth;

		if (head < heads) {
			load(x, a[k]);
			load(x + p.depth / 2, b[k]);
		}
	}
#pragma unroll
	for (int k = 0; k < AT_ONCE; k++) {
		const unsigned head = u / per_head + k * apart;
		T *y = as<T>(p.y) + at + (int64_t)head * p.depth;

		if (head >= heads)
			continue;
		if (head < p.turned)
			apply(turn, a[k], b[k]);
		store_sum(y, a[k], p.accumulate);
		store_sum(y + p.depth / 2, b[k], p.accumulate);
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

/* One position of all sequences; `at`: the elements before the thread's pairs in a token. */
template <int N, typename T>
__device__ __forceinline__ void turn_position(const struct cuda_rope &p, int64_t position,
	int64_t at, bool turned, const struct rotation<N> &turn, struct pairs<N> &sum)
{
	const int64_t width = (int64_t)p.heads * p.depth;

	for (int64_t first = position; first < p.tokens; first += AHEAD * p.seq) {
		struct pairs<N> v[AHEAD];

#pragma unroll
		for (int u = 0; u < AHEAD; u++) {
			const T *x = as<const T>(p.x) + (first + u * p.seq) * width + at;

			if (first + u * p.seq < p.tokens) {
				load(x, v[u].a);
				load(x + p.depth / 2, v[u].b);
			}
		}
#pragma unroll
		for (int u = 0; u < AHEAD; u++) {
			T *y = as<T>(p.y) + (first + u * p.seq) * width + at;

			if (first + u * p.seq >= p.tokens)
				break;
			if (turned)
				apply(turn, v[u].a, v[u].b);
			if (turned || p.x.data != p.y.data) {
				store(y, v[u].a);
				store(y + p.depth / 2, v[u].b);
			}
			add_rounded<N, T>(sum, v[u]);
		}
	}
}

template <int N, typename T>
__global__ void __launch_bounds__(WIDEST) rope_sums_kernel(struct cuda_rope p)
{
	const int per_head = p.depth / 2 / N, head = threadIdx.x / per_head,
		  i = threadIdx.x % per_head * N;
	const int64_t at = (int64_t)head * p.depth + i;
	float *to = p.partial + (int64_t)blockIdx.x * p.heads * p.depth + at;
	struct pairs<N> sum = {};
	struct rotation<N> turn;

	if (head >= p.heads)
		return;
	for (int64_t s = blockIdx.x; s < p.seq; s += gridDim.x) {
		if (head < p.turned)
			load_turn(p, s, i, turn);
		turn_position<N, T>(p, s, at, head < p.turned, turn, sum);
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
	const int64_t most =
		(int64_t)processors * (sum_threads(p) < PER_SM ? PER_SM / sum_threads(p) : 1);

	return (int)(p->seq < most ? p->seq : most);
}

static void rope_with_sums(const struct cuda_rope *p, cudaStream_t stream)
{
	const int width = p->heads * p->depth;

	with_type(p->x, [&](auto t) {
		rope_sums_kernel<PACK, decltype(t)>
			<<<p->blocks, threads_for(sum_threads(p), WIDEST), 0, stream>>>(*p);
	});
	rope_parts_kernel<<<blocks_for(width, WARP), dim3(WARP, WARP), 0, stream>>>(*p, width);
}

void cuda_rope(const struct cuda_rope *p, cudaStream_t stream)
{
	if (p->sums)
		return rope_with_sums(p, stream);
	p->depth % (2 * PACK) == 0 ? rope_of<PACK>(p, stream) : rope_of<1>(p, stream);
}
