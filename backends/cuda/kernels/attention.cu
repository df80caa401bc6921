/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over views of q, k and v in plain f32 arithmetic, for what cuDNN does not support or is
 * not asked for: f32, q, k and v apart; and the softmax between the two products of attention with
 * wide heads (ops_attention_wide.c). A block handles TILE rows ("own") of one head, a warp ROWS of
 * them, and loops over the tiles of the other operand ("other"). Lane t computes products with
 * other row t, and sums of rows in columns t, t + 32... Scores stay in the block; sums run in the
 * same order every time.
 *
 *	forward	 own = queries, other = keys: y += p v
 *	dq	 own = queries, other = keys: dq += ds k
 *	dkv	 own = keys, other = queries of all heads of the group: dv += p dy, dk += ds q
 *	with p = exp(scale q k - lse), ds = scale p (dy v - delta), delta = sum over D of dy y
 */
#include "common.cuh"
#include "softmax.h"

#define WARPS 4
#define ROWS  4
#define TILE  (WARPS * ROWS)

template <typename T> struct head_view {
	T *data;
	int64_t row; /* elements from one position to the next */
};

/* The address of head h of sequence b. */
template <typename T>
__device__ __forceinline__ head_view<T> part(const struct cuda_heads &v, int64_t b, int h)
{
	return {as<T>(v.data) + b * v.batch + h * v.head, v.row};
}

template <typename T>
__device__ __forceinline__ head_view<T> whole(
	const struct cuda_vec &v, const struct cuda_attention &p, int64_t b, int h)
{
	const int64_t width = (int64_t)p.heads * p.depth;

	return {as<T>(v) + b * p.seq * width + (int64_t)h * p.depth, width};
}

/* Loads `count` rows from position `from` on into shared memory, pitch floats apart; rows after the
 * end are 0. */
template <typename T>
__device__ __forceinline__ void fetch(float *to, const head_view<T> &v, int64_t from, int count,
	int64_t seq, int depth, int pitch)
{
	for (int i = threadIdx.x; i < count * depth; i += blockDim.x) {
		const int r = i / depth, c = i % depth;

		to[r * pitch + c] = from + r < seq ? (float)v.data[(from + r) * v.row + c] : 0;
	}
}

/* The products of a warp's own rows with other row `lane`. */
__device__ __forceinline__ void products(
	const float *own, const float *other, int depth, int pitch, float (&s)[ROWS])
{
	const float *mine = other + threadIdx.x % WARP * pitch;

#pragma unroll
	for (int r = 0; r < ROWS; r++)
		s[r] = 0;
	for (int c = 0; c < depth; c++) {
		const float x = mine[c];
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			s[r] += own[r * pitch + c] * x;
	}
}

/* sum[r][..] += over other rows t of weight[r] (held by lane t) other[t]. */
template <int C>
__device__ __forceinline__ void add_rows(const float (&weight)[ROWS], const float *other, int depth,
	int pitch, float (&sum)[ROWS][C])
{
	const int lane = threadIdx.x % WARP;

	for (int t = 0; t < WARP; t++) {
		float w[ROWS];
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			w[r] = __shfl_sync(0xffffffffu, weight[r], t);
#pragma unroll
		for (int c = 0; c < C; c++) {
			const float x =
				lane + c * WARP < depth ? other[t * pitch + lane + c * WARP] : 0;
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				sum[r][c] += w[r] * x;
		}
	}
}

template <int C, typename T>
__device__ __forceinline__ void emit(const head_view<T> &v, int64_t from, int64_t seq, int depth,
	const float (&sum)[ROWS][C], const float (&factor)[ROWS], bool add)
{
	const int lane = threadIdx.x % WARP;

#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int c = 0; c < C; c++) {
			if (from + r >= seq || lane + c * WARP >= depth)
				continue;
			T *y = v.data + (from + r) * v.row + lane + c * WARP;
			*y = (T)(sum[r][c] * factor[r] + (add ? (float)*y : 0));
		}
}

template <int C, typename T>
__global__ void __launch_bounds__(WARPS *WARP) attention_kernel(struct cuda_attention p)
{
	extern __shared__ float memory[];
	const int pitch = p.depth + 1, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const int h = blockIdx.y, g = h / (p.heads / p.groups);
	const int64_t b = blockIdx.z, first = (int64_t)blockIdx.x * TILE,
		      mine = first + warp * ROWS;
	float *q = memory, *k = q + TILE * pitch, *v = k + WARP * pitch;
	const int64_t end = p.causal && first + TILE < p.keys ? first + TILE : p.keys;
	float most[ROWS], total[ROWS], sum[ROWS][C] = {};

	for (int r = 0; r < ROWS; r++) {
		most[r] = -INFINITY;
		total[r] = 0;
	}
	fetch(q, part<const T>(p.q, b, h), first, TILE, p.seq, p.depth, pitch);
	for (int64_t from = 0; from < end; from += WARP) {
		float s[ROWS];

		__syncthreads();
		fetch(k, part<const T>(p.k, b, g), from, WARP, p.keys, p.depth, pitch);
		fetch(v, part<const T>(p.v, b, g), from, WARP, p.keys, p.depth, pitch);
		__syncthreads();
		products(q + warp * ROWS * pitch, k, p.depth, pitch, s);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			const bool seen =
				from + lane < p.keys && (!p.causal || from + lane <= mine + r);
			const float x = seen ? s[r] * p.scale : -INFINITY;
			const float top = fmaxf(most[r], warp_max(x));
			const float rescale = top == -INFINITY ? 1 : expf(most[r] - top);

			s[r] = seen ? expf(x - top) : 0;
			total[r] = total[r] * rescale + warp_sum(s[r]);
			most[r] = top;
#pragma unroll
			for (int c = 0; c < C; c++)
				sum[r][c] *= rescale;
		}
		add_rows(s, v, p.depth, pitch, sum);
	}
	for (int r = 0; r < ROWS; r++) {
		if (lane == 0 && mine + r < p.seq)
			p.lse[(b * p.heads + h) * p.seq + mine + r] = most[r] + logf(total[r]);
		total[r] = 1 / total[r];
	}
	emit(whole<T>(p.y, p, b, h), mine, p.seq, p.depth, sum, total, false);
}

/* Computes delta[B,H,S]; each warp handles one row. */
template <typename T> __global__ void delta_kernel(struct cuda_attention p)
{
	const int64_t row = blockIdx.x * (int64_t)WARPS + threadIdx.x / WARP;
	const int64_t s = row % p.seq, h = row / p.seq % p.heads, b = row / p.seq / p.heads;
	float sum = 0;

	if (row >= p.batch * p.heads * p.seq)
		return;
	head_view<const T> y = whole<const T>(p.y, p, b, (int)h),
			   dy = whole<const T>(p.dy, p, b, (int)h);
	for (int c = threadIdx.x % WARP; c < p.depth; c += WARP)
		sum += (float)y.data[s * y.row + c] * (float)dy.data[s * dy.row + c];
	sum = warp_sum(sum);
	if (threadIdx.x % WARP == 0)
		p.delta[row] = sum;
}

template <int C, typename T>
__global__ void __launch_bounds__(WARPS *WARP) dq_kernel(struct cuda_attention p)
{
	extern __shared__ float memory[];
	const int pitch = p.depth + 1, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const int h = blockIdx.y, g = h / (p.heads / p.groups);
	const int64_t b = blockIdx.z, first = (int64_t)blockIdx.x * TILE,
		      mine = first + warp * ROWS;
	float *q = memory, *dy = q + TILE * pitch, *k = dy + TILE * pitch, *v = k + WARP * pitch;
	const int64_t end = p.causal && first + TILE < p.keys ? first + TILE : p.keys;
	const float *lse = p.lse + (b * p.heads + h) * p.seq,
		    *delta = p.delta + (b * p.heads + h) * p.seq;
	float sum[ROWS][C] = {}, one[ROWS];

	fetch(q, part<const T>(p.q, b, h), first, TILE, p.seq, p.depth, pitch);
	fetch(dy, whole<const T>(p.dy, p, b, h), first, TILE, p.seq, p.depth, pitch);
	for (int64_t from = 0; from < end; from += WARP) {
		float s[ROWS], d[ROWS];

		__syncthreads();
		fetch(k, part<const T>(p.k, b, g), from, WARP, p.keys, p.depth, pitch);
		fetch(v, part<const T>(p.v, b, g), from, WARP, p.keys, p.depth, pitch);
		__syncthreads();
		products(q + warp * ROWS * pitch, k, p.depth, pitch, s);
		products(dy + warp * ROWS * pitch, v, p.depth, pitch, d);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			const bool seen = mine + r < p.seq && from + lane < p.keys &&
					  (!p.causal || from + lane <= mine + r);

			s[r] = seen ? p.scale * expf(p.scale * s[r] - lse[mine + r]) *
					       (d[r] - delta[mine + r])
				    : 0;
		}
		add_rows(s, k, p.depth, pitch, sum);
	}
	for (int r = 0; r < ROWS; r++)
		one[r] = 1;
	emit(part<T>(p.dq, b, h), mine, p.seq, p.depth, sum, one, p.accumulate);
}

template <int C, typename T>
__global__ void __launch_bounds__(WARPS *WARP) dkv_kernel(struct cuda_attention p)
{
	extern __shared__ float memory[];
	const int pitch = p.depth + 1, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const int g = blockIdx.y, per_group = p.heads / p.groups;
	const int64_t b = blockIdx.z, first = (int64_t)blockIdx.x * TILE,
		      mine = first + warp * ROWS;
	float *k = memory, *v = k + TILE * pitch, *q = v + TILE * pitch, *dy = q + WARP * pitch;
	float dk[ROWS][C] = {}, dv[ROWS][C] = {}, one[ROWS];

	fetch(k, part<const T>(p.k, b, g), first, TILE, p.keys, p.depth, pitch);
	fetch(v, part<const T>(p.v, b, g), first, TILE, p.keys, p.depth, pitch);
	for (int h = g * per_group; h < (g + 1) * per_group; h++) {
		const float *lse = p.lse + (b * p.heads + h) * p.seq;
		const float *delta = p.delta + (b * p.heads + h) * p.seq;

		for (int64_t from = p.causal ? first / WARP * WARP : 0; from < p.seq;
			from += WARP) {
			float s[ROWS], d[ROWS];
			const int64_t at = from + lane;

			__syncthreads();
			fetch(q, part<const T>(p.q, b, h), from, WARP, p.seq, p.depth, pitch);
			fetch(dy, whole<const T>(p.dy, p, b, h), from, WARP, p.seq, p.depth, pitch);
			__syncthreads();
			products(k + warp * ROWS * pitch, q, p.depth, pitch, s);
			products(v + warp * ROWS * pitch, dy, p.depth, pitch, d);
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				const bool seen = mine + r < p.keys && at < p.seq &&
						  (!p.causal || mine + r <= at);

				s[r] = seen ? expf(p.scale * s[r] - lse[at]) : 0;
				d[r] = seen ? p.scale * s[r] * (d[r] - delta[at]) : 0;
			}
			add_rows(s, dy, p.depth, pitch, dv);
			add_rows(d, q, p.depth, pitch, dk);
		}
	}
	for (int r = 0; r < ROWS; r++)
		one[r] = 1;
	emit(part<T>(p.dk, b, g), mine, p.keys, p.depth, dk, one, p.accumulate);
	emit(part<T>(p.dv, b, g), mine, p.keys, p.depth, dv, one, p.accumulate);
}

/* ---- softmax of scores in memory ------------------------------------------------------------- */

#define SOFTMAX_THREADS 256

/* 2^x for results of type T. */
template <typename T> __device__ __forceinline__ float power(float x)
{
	return sizeof(T) == 2 ? fast_exp2(x) : exp2f(x);
}

/* A block handles one row. It reads the row twice, the second time from a cache, and writes a piece
 * of the result when all of its threads have read the scores below: T is no larger than f32. */
template <typename T>
__global__ void __launch_bounds__(SOFTMAX_THREADS) softmax_kernel(struct cuda_softmax p)
{
	__shared__ float share[WARP];
	const int64_t row = blockIdx.x, sequence = blockIdx.y, at = p.first + row + 1;
	const int64_t end = p.causal && at < p.keys ? at : p.keys;
	const float scale = p.scale * LOG2_E;
	float *s = p.scores + (sequence * p.rows + row) * p.pitch;
	float v[PACK], most = MASKED, total = 0, all;

	for (int64_t i = threadIdx.x * PACK; i < end; i += SOFTMAX_THREADS * PACK) {
		const float before = most;

		load_some(s + i, v, end - i);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			most = fmaxf(most, i + k < end ? v[k] * scale : MASKED);
		total *= power<T>(before - most);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			total += i + k < end ? power<T>(v[k] * scale - most) : 0;
	}
	all = block_max(most, share);
	total = block_sum(total * power<T>(most - all), share);
	if (threadIdx.x == 0)
		p.lse[sequence * p.lse_each + row] = all / LOG2_E + logf(total);
	total = 1 / total;
	for (int64_t from = 0; from < p.keys; from += SOFTMAX_THREADS * PACK) {
		const int64_t i = from + threadIdx.x * PACK;

		load_some(s + i, v, end - i);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] = i + k < end ? power<T>(v[k] * scale - all) * total : 0;
		__syncthreads();
		store_some(reinterpret_cast<T *>(s) + i, v, p.keys - i, false);
	}
}

/* ---- starting -------------------------------------------------------------------------------- */

template <typename K>
static void start(K kernel, const struct cuda_attention *p, int64_t own, int heads, int tiles,
	cudaStream_t stream)
{
	dim3 grid(blocks_for(own, TILE), (unsigned)heads, (unsigned)p->batch);
	int bytes = (tiles * TILE + 2 * WARP) * (p->depth + 1) * (int)sizeof(float);

	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	kernel<<<grid, WARPS * WARP, (size_t)bytes, stream>>>(*p);
}

template <int C, typename T>
static void forward(const struct cuda_attention *p, cudaStream_t stream)
{
	start(attention_kernel<C, T>, p, p->seq, p->heads, 1, stream);
}

template <int C, typename T>
static void backward(const struct cuda_attention *p, cudaStream_t stream)
{
	start(dq_kernel<C, T>, p, p->seq, p->heads, 2, stream);
	start(dkv_kernel<C, T>, p, p->keys, p->groups, 2, stream);
}

template <typename T> static void forward_of(const struct cuda_attention *p, cudaStream_t stream)
{
	if (p->depth <= 2 * WARP)
		forward<2, T>(p, stream);
	else if (p->depth <= 4 * WARP)
		forward<4, T>(p, stream);
	else
		forward<8, T>(p, stream);
}

template <typename T> static void backward_of(const struct cuda_attention *p, cudaStream_t stream)
{
	int64_t rows = p->batch * p->heads * p->seq;

	delta_kernel<T><<<blocks_for(rows, WARPS), WARPS * WARP, 0, stream>>>(*p);
	if (p->depth <= 2 * WARP)
		backward<2, T>(p, stream);
	else if (p->depth <= 4 * WARP)
		backward<4, T>(p, stream);
	else
		backward<8, T>(p, stream);
}

void cuda_attention(const struct cuda_attention *p, cudaStream_t stream)
{
	with_type(p->q.data, [&](auto t) { forward_of<decltype(t)>(p, stream); });
}

void cuda_attention_grad(const struct cuda_attention *p, cudaStream_t stream)
{
	with_type(p->q.data, [&](auto t) { backward_of<decltype(t)>(p, stream); });
}

void cuda_softmax(const struct cuda_softmax *p, cudaStream_t stream)
{
	const struct cuda_vec y = {p->scores, p->type};
	const dim3 grid((unsigned)p->rows, (unsigned)p->sequences);

	with_type(y, [&](auto t) {
		softmax_kernel<decltype(t)><<<grid, SOFTMAX_THREADS, 0, stream>>>(*p);
	});
}
