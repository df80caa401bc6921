/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next token of each row of logits[rows,width]. A block of threads has a row.
 *
 * Tokens are in order by a key: the larger logit first, of equal ones the first token. The `count`
 * first ones, those that together have the share of the probability, and the drawn one are each
 * found by a search for the key at which a sum reaches a target, 3 bits at a time: a pass over the
 * row adds up what is at or above each of 7 candidates. Weights are whole numbers of 2^-40 of the
 * largest, so that sums do not depend on their order and the result has the same bits every time.
 * As soon as few tokens are left, they are listed in shared memory, and passes are over the list
 * alone.
 */
#include "backends/cuda/kernels/common.cuh"

#define THREADS 512
#define WARPS	(THREADS / WARP)
#define STEP	3 /* bits of a key that a pass finds */
#define OTHERS	((1 << STEP) - 1)
#define ONE	0x1p40f /* the weight of the largest */
#define LISTED	2048	/* tokens at most */
#define ALL	0xffffffffu

typedef unsigned long long wide;

/* A row and what of it counts: keys from `least` on, which are among the n tokens of the list. */
template <typename T> struct row {
	const T *x;
	int classes, index_bits, logit_bits;
	float largest, t;
	wide least;
	const int *list; /* NULL: all tokens */
	int n;

	__device__ __forceinline__ int token(int i) const
	{
		return list ? list[i] : i;
	}

	/* The order of logits as whole numbers. */
	__device__ __forceinline__ unsigned order(float x) const
	{
		const unsigned bits = __float_as_uint(x + 0.f); /* -0 becomes 0 */

		return (bits & 0x80000000u ? ~bits : bits | 0x80000000u) >> (32 - logit_bits);
	}
	__device__ __forceinline__ wide key(int i) const
	{
		return (wide)order((float)x[i]) << index_bits | (unsigned)(classes - 1 - i);
	}
	__device__ __forceinline__ wide weight(int i) const
	{
		return __float2ull_rn(ONE * expf(((float)x[i] - largest) / t));
	}
};

struct shared {
	wide sum[WARPS][OTHERS];
	float value[WARPS];
	int at[WARPS];
	int list[LISTED];
	volatile unsigned listed;
};

/* Sums over the block, the same in all threads. */
template <int N> __device__ __forceinline__ void add_up(wide (&sum)[N], struct shared *share)
{
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

#pragma unroll
	for (int k = 0; k < N; k++)
#pragma unroll
		for (int i = WARP / 2; i; i /= 2)
			sum[k] += __shfl_xor_sync(ALL, sum[k], i);
	__syncthreads();
	if (lane == 0)
		for (int k = 0; k < N; k++)
			share->sum[warp][k] = sum[k];
	__syncthreads();
#pragma unroll
	for (int k = 0; k < N; k++) {
		sum[k] = 0;
		for (int i = 0; i < WARPS; i++)
			sum[k] += share->sum[i][k];
	}
}

/* Lists the tokens from the key on, if there are not too many. */
template <typename T>
__device__ __forceinline__ void list_from(struct row<T> &r, wide least, struct shared *share)
{
	const int lane = threadIdx.x % WARP;

	__syncthreads();
	if (threadIdx.x == 0)
		share->listed = 0;
	__syncthreads();
	for (int i = threadIdx.x; i - lane < r.classes; i += THREADS) {
		const bool wanted = i < r.classes && r.key(i) >= least;
		const unsigned all = __ballot_sync(ALL, wanted);
		unsigned at = 0;

		if (lane == 0)
			at = all ? atomicAdd((unsigned *)&share->listed, __popc(all))
				 : share->listed;
		at = __shfl_sync(ALL, at, 0);
		if (at > LISTED)
			break;
		at += __popc(all & ((1u << lane) - 1));
		if (wanted && at < LISTED)
			share->list[at] = i;
	}
	__syncthreads();
	if (share->listed > LISTED)
		return;
	r.list = share->list;
	r.n = (int)share->listed;
}

/*
 * The largest key of `bits` bits at or above which amounts sum to the target at least. key_of and
 * amount_of: of a token; amounts of all tokens sum to the target or more. narrow(key): called where
 * the result is that key or a larger one.
 */
template <typename T, typename K, typename A, typename N>
__device__ __forceinline__ wide search(const struct row<T> &r, int bits, wide target, K key_of,
	A amount_of, N narrow, struct shared *share)
{
	wide found = 0;

	for (int at = (bits + STEP - 1) / STEP * STEP - STEP; at >= 0; at -= STEP) {
		wide sum[OTHERS] = {};
		int digit = 0;

		for (int i = threadIdx.x; i < r.n; i += THREADS) {
			const int token = r.token(i);
			const wide key = key_of(token);
			const wide amount = key >> at > found >> at ? amount_of(token) : 0;
#pragma unroll
			for (int k = 0; k < OTHERS; k++)
				sum[k] += key >> at > (found >> at) + k ? amount : 0;
		}
		add_up(sum, share);
#pragma unroll
		for (int k = 0; k < OTHERS; k++)
			digit += sum[k] >= target;
		found += (wide)digit << at;
		narrow(found);
	}
	return found;
}

/* The larger logit, of equal ones the first. */
__device__ __forceinline__ void prefer(float x, int at, float &best, int &best_at)
{
	if (x > best || (x == best && at < best_at)) {
		best = x;
		best_at = at;
	}
}

/* The token of the largest logit, which is stored as well. */
template <typename T>
__device__ __forceinline__ int find_largest(struct row<T> &r, struct shared *share)
{
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	float best = -INFINITY;
	int best_at = 0;

	for (int i = threadIdx.x; i < r.classes; i += THREADS)
		prefer((float)r.x[i], i, best, best_at);
#pragma unroll
	for (int i = WARP / 2; i; i /= 2)
		prefer(__shfl_xor_sync(ALL, best, i), __shfl_xor_sync(ALL, best_at, i), best,
			best_at);
	if (lane == 0) {
		share->value[warp] = best;
		share->at[warp] = best_at;
	}
	__syncthreads();
	for (int i = 0; i < WARPS; i++)
		prefer(share->value[i], share->at[i], best, best_at);
	r.largest = best;
	return best_at;
}

/* The sum of the weights that count. */
template <typename T>
__device__ __forceinline__ wide sum_kept(const struct row<T> &r, struct shared *share)
{
	wide sum[1] = {};

	for (int i = threadIdx.x; i < r.n; i += THREADS)
		sum[0] += r.key(r.token(i)) >= r.least ? r.weight(r.token(i)) : 0;
	add_up(sum, share);
	return sum[0];
}

/* The key at and above which amounts sum to the target. */
template <typename T, typename A>
__device__ __forceinline__ wide search_keys(
	struct row<T> &r, wide target, A amount_of, struct shared *share)
{
	return search(
		r, r.logit_bits + r.index_bits, target, [&](int i) { return r.key(i); }, amount_of,
		[&](wide least) {
			if (!r.list)
				list_from(r, least, share);
		},
		share);
}

/* Keeps the first `count` tokens in order; 0: all. */
template <typename T>
__device__ __forceinline__ void keep_first(struct row<T> &r, int count, struct shared *share)
{
	if (count <= 0 || count >= r.classes)
		return;
	r.least = search_keys(r, (wide)count, [](int) { return (wide)1; }, share);
}

/* Keeps the first of these that together have the share of their weight, one at least. */
template <typename T>
__device__ __forceinline__ void keep_share(struct row<T> &r, float part, struct shared *share)
{
	wide target;

	if (part >= 1)
		return;
	target = (wide)ceil((double)part * (double)sum_kept(r, share));
	r.least = search_keys(
		r, max(target, (wide)1),
		[&](int i) { return r.key(i) >= r.least ? r.weight(i) : 0; }, share);
}

/* The token at which the sum of kept weights, in the order of tokens, exceeds the drawn share of
 * it. */
template <typename T>
__device__ __forceinline__ int draw_one(const struct row<T> &r, wide drawn, struct shared *share)
{
	const wide target = __umul64hi(drawn & ~(wide)0x7ff, sum_kept(r, share)) + 1;

	return r.classes - 1 -
	       (int)search(
		       r, r.index_bits, target, [&](int i) { return (wide)(r.classes - 1 - i); },
		       [&](int i) { return r.key(i) >= r.least ? r.weight(i) : 0; }, [](wide) {},
		       share);
}

template <typename T> __global__ void __launch_bounds__(THREADS) sample_kernel(struct cuda_sample p)
{
	__shared__ struct shared share;
	const float *rule = p.rule + 3 * blockIdx.x;
	const uint32_t *draw = p.draw + 2 * blockIdx.x;
	struct row<T> r = {.x = as<const T>(p.logits) + blockIdx.x * p.width,
		.classes = p.classes,
		.index_bits = 32 - __clz(p.classes),
		.logit_bits = std::is_same<T, bf16>::value ? 16 : 32};
	int token;

	r.n = p.classes;
	token = find_largest(r, &share);

	if (p.rule && rule[0] > 0) {
		r.t = rule[0];
		keep_first(r, (int)rule[2], &share);
		keep_share(r, rule[1], &share);
		token = draw_one(r, draw[0] | (wide)draw[1] << 32, &share);
	}
	if (threadIdx.x == 0)
		p.token[blockIdx.x] = max(token, 0); /* below 0 if logits are not numbers */
}

void cuda_sample(const struct cuda_sample *p, cudaStream_t stream)
{
	with_type(p->logits, [&](auto t) {
		sample_kernel<decltype(t)><<<(unsigned)p->rows, THREADS, 0, stream>>>(*p);
	});
}
