/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embedding: y[B,S,C] = rows of table[V,C] by ids[B,S], plus pos[P,C]; and its gradient, which
 * first ranks all tokens by id and position by counting. A block then sums the rows of a fixed
 * number of ranks, id by id, and another kernel adds the parts of ids with more ranks, always in
 * the same order, so that the bits are the same every time.
 *
 * Copies between images x[B,C,P,Q], in any order of channels and pixels, and sequences y[B,S,C]
 * that may begin with a class token; the first token of a sequence and its gradient; rows in place
 * of others. A block handles one position of one sequence.
 */
#include "common.cuh"

#define THREADS 256
#define TILE	1024 /* ids in shared memory */

/* ---- embed ----------------------------------------------------------------------------------- */

template <int N, typename W, typename Y> __global__ void embed_kernel(struct cuda_embed p)
{
	const int64_t at = blockIdx.x * p.width, id = p.ids[blockIdx.x];
	const W *row = as<const W>(p.table) + id * p.width;
	const W *pos = as<const W>(p.pos) + blockIdx.x % p.seq * p.width;

	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		float v[N], w[N];

		load(row + i, v);
		if (p.pos.data) {
			load(pos + i, w);
#pragma unroll
			for (int k = 0; k < N; k++)
				v[k] += w[k];
		}
		store_sum(as<Y>(p.y) + at + i, v, p.accumulate);
	}
}

template <int N> static void embed_of(const struct cuda_embed *p, cudaStream_t stream)
{
	int threads = threads_for((p->width + N - 1) / N, THREADS);
	unsigned blocks = (unsigned)p->tokens;

	with_types(p->table, p->y, [&](auto table, auto y) {
		embed_kernel<N, decltype(table), decltype(y)><<<blocks, threads, 0, stream>>>(*p);
	});
}

void cuda_embed(const struct cuda_embed *p, cudaStream_t stream)
{
	p->width % PACK == 0 ? embed_of<PACK>(p, stream) : embed_of<1>(p, stream);
}

/* ---- its gradient ---------------------------------------------------------------------------- */

/* order[r] = the token with rank r: tokens with a smaller id come first, then those before it. */
__global__ void rank_kernel(const int32_t *ids, int32_t *order, int n)
{
	__shared__ int32_t tile[TILE];
	const int t = blockIdx.x * blockDim.x + threadIdx.x;
	const int id = t < n ? ids[t] : 0;
	int rank = 0;

	for (int from = 0; from < n; from += TILE) {
		int count = min(TILE, n - from);

		__syncthreads();
		for (int i = threadIdx.x; i < count; i += blockDim.x)
			tile[i] = ids[from + i];
		__syncthreads();
		if (from + count <= t) {
			for (int i = 0; i < count; i++)
				rank += tile[i] <= id;
		} else if (from > t) {
			for (int i = 0; i < count; i++)
				rank += tile[i] < id;
		} else {
			for (int i = 0; i < count; i++)
				rank += tile[i] < id || (tile[i] == id && from + i < t);
		}
	}
	if (t < n)
		order[rank] = t;
}

/* The ranks of a block, with the id of the rank before and of the rank behind; -1 = there is
 * none. */
struct ranks {
	int32_t token[CUDA_EMBED_RANKS], id[CUDA_EMBED_RANKS + 2];
};

__device__ __forceinline__ int id_of_rank(const struct cuda_embed_grad &p, int rank)
{
	return p.ids[p.order[rank]];
}

__device__ __forceinline__ void load_ranks(
	const struct cuda_embed_grad &p, int from, int n, struct ranks *ret)
{
	for (int k = threadIdx.x; k < n + 2; k += blockDim.x) {
		const int rank = from + k - 1;
		const bool there = rank >= 0 && rank < p.tokens;
		const int token = there ? p.order[rank] : -1;

		ret->id[k] = there ? p.ids[token] : -1;
		if (k > 0 && k <= n)
			ret->token[k - 1] = token;
	}
	__syncthreads();
}

/* Each block has two rows of parts: of an id that begins at its first rank or before, and of one
 * that begins later and goes on in the next block. */
__device__ __forceinline__ float *part_of(const struct cuda_embed_grad &p, int block, bool later)
{
	return p.parts + (2 * (int64_t)block + later) * p.width;
}

/* Sums the rows of each id among the ranks of a block: into the table where the block has all of
 * them. */
template <int N, typename Y, typename W>
__global__ void embed_ranks_kernel(struct cuda_embed_grad p)
{
	__shared__ struct ranks r;
	const int from = blockIdx.x * CUDA_EMBED_RANKS,
		  n = min(CUDA_EMBED_RANKS, (int)p.tokens - from);

	load_ranks(p, from, n, &r);
	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		float sum[N] = {};
		int first = 0;

		for (int k = 0; k < n; k++) {
			const int id = r.id[k + 1];
			const bool goes_on = r.id[k + 2] == id;
			float v[N];

			load(as<const Y>(p.dy) + r.token[k] * p.width + i, v);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] += v[j];
			if (goes_on && k + 1 < n)
				continue;
			if (goes_on || (!first && r.id[0] == id))
				store(part_of(p, blockIdx.x, first) + i, sum);
			else
				store_sum(as<W>(p.dtable) + id * p.width + i, sum, p.add_table);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] = 0;
			first = k + 1;
		}
	}
}

/* The block in which an id begins that goes on in the next one adds its parts. */
template <int N, typename W> __global__ void embed_parts_kernel(struct cuda_embed_grad p)
{
	const int from = blockIdx.x * CUDA_EMBED_RANKS, next = from + CUDA_EMBED_RANKS;
	int id;

	if (next >= p.tokens)
		return;
	id = id_of_rank(p, next);
	if (id_of_rank(p, next - 1) != id || (from && id_of_rank(p, from - 1) == id))
		return;
	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		const bool later = id_of_rank(p, from) != id;
		float sum[N];

		load(part_of(p, blockIdx.x, later) + i, sum);
		for (int b = blockIdx.x + 1; b * CUDA_EMBED_RANKS < p.tokens; b++) {
			float v[N];

			if (id_of_rank(p, b * CUDA_EMBED_RANKS) != id)
				break;
			load(part_of(p, b, false) + i, v);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] += v[j];
		}
		store_sum(as<W>(p.dtable) + id * p.width + i, sum, p.add_table);
	}
}

/* y[s] = sum over b of x[b,s]. */
template <int N, typename X, typename Y> __global__ void batch_sum_kernel(struct cuda_batch_sum p)
{
	const int64_t s = blockIdx.x;

	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		float sum[N] = {};

		for (int64_t b = 0; b < p.batch; b++) {
			float v[N];

			load(as<const X>(p.x) + (b * p.seq + s) * p.width + i, v);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] += v[j];
		}
		store_sum(as<Y>(p.y) + s * p.width + i, sum, p.accumulate);
	}
}

/* Calls f(T()) with T, the type of a gradient of parameters. */
template <typename F> static void with_gradient_type(const struct cuda_vec &v, F f)
{
	if (v.type == CUDA_BF16)
		f(bf16());
	else
		f(float());
}

template <int N> static void batch_sum_of(const struct cuda_batch_sum *p, cudaStream_t stream)
{
	int threads = threads_for((p->width + N - 1) / N, THREADS);
	unsigned blocks = (unsigned)p->rows;

	with_gradient_type(p->y, [&](auto y) {
		with_type(p->x, [&](auto x) {
			batch_sum_kernel<N, decltype(x), decltype(y)>
				<<<blocks, threads, 0, stream>>>(*p);
		});
	});
}

void cuda_batch_sum(const struct cuda_batch_sum *p, cudaStream_t stream)
{
	p->width % PACK == 0 ? batch_sum_of<PACK>(p, stream) : batch_sum_of<1>(p, stream);
}

template <int N, typename Y>
static void embed_grad_of(const struct cuda_embed_grad *p, cudaStream_t stream)
{
	int threads = threads_for((p->width + N - 1) / N, THREADS);
	unsigned blocks = (unsigned)blocks_for(p->tokens, CUDA_EMBED_RANKS);

	with_gradient_type(p->dtable, [&](auto w) {
		using W = decltype(w);

		embed_ranks_kernel<N, Y, W><<<blocks, threads, 0, stream>>>(*p);
		embed_parts_kernel<N, W><<<blocks, threads, 0, stream>>>(*p);
	});
}

void cuda_embed_grad(const struct cuda_embed_grad *p, cudaStream_t stream)
{
	bool packs = p->width % PACK == 0;
	size_t each = p->dtable.type == CUDA_BF16 ? sizeof(bf16) : sizeof(float);

	if (!p->add_table)
		cudaMemsetAsync(p->dtable.data, 0, (size_t)(p->rows * p->width) * each, stream);
	rank_kernel<<<blocks_for(p->tokens, THREADS), THREADS, 0, stream>>>(
		p->ids, p->order, (int)p->tokens);
	with_type(p->dy, [&](auto t) {
		using T = decltype(t);

		packs ? embed_grad_of<PACK, T>(p, stream) : embed_grad_of<1, T>(p, stream);
	});
}

/* ---- images and sequences -------------------------------------------------------------------- */

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

/* ---- rows in place of others ----------------------------------------------------------------- */

/* to[i] (+)= from[i], or 0 where from is NULL; a row of `width` */
template <int N, typename X, typename Y>
__device__ __forceinline__ void move_row(const X *from, Y *to, int64_t width, bool add)
{
	for (int64_t i = N * threadIdx.x; i < width; i += N * blockDim.x) {
		float v[N] = {};

		if (from)
			load(from + i, v);
		store_sum(to + i, v, add);
	}
}

/* The row of rows[batch,places,width] that position s of sequence b has; -1 = none. */
__device__ __forceinline__ int64_t row_at(const struct cuda_put &p, int64_t b, int64_t s)
{
	const int64_t at = p.at[b], row = s - at;

	return at >= 0 && row >= 0 && row < p.places ? b * p.places + row : -1;
}

/* y = x with rows in it; with grad x = y with zeros in it */
template <int N, typename X, typename R> __global__ void put_kernel(struct cuda_put p)
{
	const int64_t t = blockIdx.x, row = row_at(p, t / p.seq, t % p.seq);
	const X *from = as<const X>(p.grad ? p.y : p.x) + t * p.width;
	X *to = as<X>(p.grad ? p.x : p.y) + t * p.width;

	if (row >= 0 && !p.grad)
		move_row<N>(as<const R>(p.rows) + row * p.width, to, p.width, p.accumulate);
	else
		move_row<N>(row < 0 ? from : (const X *)NULL, to, p.width, p.accumulate);
}

/* rows = those of y */
template <int N, typename X, typename R> __global__ void taken_kernel(struct cuda_put p)
{
	const int64_t b = blockIdx.x / p.places, at = p.at[b];
	const X *from = as<const X>(p.y) + (b * p.seq + at + blockIdx.x % p.places) * p.width;

	move_row<N>(at < 0 ? (const X *)NULL : from, as<R>(p.rows) + blockIdx.x * p.width, p.width,
		p.add_rows);
}

template <int N, typename X, typename R>
static void put_of(const struct cuda_put *p, cudaStream_t stream)
{
	int threads = threads_for((p->width + N - 1) / N, THREADS);

	if (p->grad && p->rows.data)
		taken_kernel<N, X, R><<<(unsigned)(p->batch * p->places), threads, 0, stream>>>(*p);
	put_kernel<N, X, R><<<(unsigned)(p->batch * p->seq), threads, 0, stream>>>(*p);
}

void cuda_put(const struct cuda_put *p, cudaStream_t stream)
{
	with_types(p->x, p->rows, [&](auto x, auto rows) {
		using X = decltype(x);
		using R = decltype(rows);

		p->width % PACK == 0 ? put_of<PACK, X, R>(p, stream) : put_of<1, X, R>(p, stream);
	});
}
