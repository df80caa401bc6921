/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm of x[rows,c], channels last. Sums are taken of x less the channel's first element, so that
 * a large mean costs no digits; partial sums in f32, their sum over blocks in f64.
 */
#include "image.h"
#include "rows.cuh"

#define JM_RNG_INLINE static __device__ __forceinline__
#include "engine/rng.h"

/* dx = scale (e - first - (x - mean) second): scale = rstd gamma, first = dbeta / n, second = rstd^2 sum(e
 * (x - mean)) / n. */
struct sums {
	float *parts, *first, *second;
};

static struct sums sums_of(void *scratch, int64_t c)
{
	float *at = (float *)scratch;

	return {at + 2 * c, at, at + c};
}

size_t cuda_bn_scratch(int64_t c)
{
	return sizeof(float) * (size_t)c * (2 + 2 * (COLUMN_BLOCKS + 1));
}

/* ---- statistics ------------------------------------------------------------------------------------------ */

template <int N, typename T>
__global__ void stats_kernel(const T *__restrict__ x, float *parts, int64_t rows, int64_t c)
{
	__shared__ float share[COLUMN_THREADS * N];
	float shift[N], sum[N] = {}, squares[N] = {};
	int64_t at = column_of(N);

	if (at < c) {
		load(x + at, shift);
#pragma unroll 4
		for (int64_t r = first_row(); r < rows; r += row_step()) {
			float v[N];

			load(x + r * c + at, v);
#pragma unroll
			for (int i = 0; i < N; i++) {
				float d = v[i] - shift[i];

				sum[i] += d;
				squares[i] += d * d;
			}
		}
	}
	leave_parts(sum, squares, parts, c, share);
}

__device__ void finalize(const struct cuda_bn &p, int64_t at, double mean, double var)
{
	p.rstd[at] = (float)(1 / sqrt(var + p.eps));
	if (p.running_mean)
		p.running_mean[at] += (float)(p.momentum * (mean - p.running_mean[at]));
	if (p.running_var && p.count > 1) {
		double n = (double)p.count;

		p.running_var[at] += (float)(p.momentum * (var * (n / (n - 1)) - p.running_var[at]));
	}
}

template <typename T>
__global__ void stats_finish(struct cuda_bn p, const T *x, const float *parts, int n)
{
	__shared__ double share[WARP][WARP + 1];
	two_sums s = gather_parts(parts, n, p.c, share);
	int64_t at = gathered_channel();
	double mean, var;

	if (threadIdx.x || at >= p.c)
		return;
	mean = s.first / (double)p.rows;
	var = s.second / (double)p.rows - mean * mean;
	var = var < 0 ? 0 : var;
	p.mean[at] = (float)(mean + (float)x[at]);
	p.var[at] = (float)var;
	if (p.rstd)
		finalize(p, at, p.mean[at], p.var[at]);
}

template <int N, typename T> static void stats(const struct cuda_bn *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N);
	float *parts = sums_of(p->scratch, p->c).parts;

	stats_kernel<N><<<shape.grid, shape.block, 0, stream>>>(as<const T>(p->x), parts, p->rows, p->c);
	stats_finish<<<blocks_for(p->c, WARP), dim3(WARP, WARP), 0, stream>>>(
		*p, as<const T>(p->x), parts, (int)shape.grid.y);
}

void cuda_bn_stats(const struct cuda_bn *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	if (p->x.bf16)
		packs ? stats<PACK, bf16>(p, stream) : stats<1, bf16>(p, stream);
	else
		packs ? stats<PACK, float>(p, stream) : stats<1, float>(p, stream);
}

__global__ void finalize_kernel(struct cuda_bn p)
{
	int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (at < p.c)
		finalize(p, at, p.mean[at], p.var[at]);
}

void cuda_bn_finalize(const struct cuda_bn *p, cudaStream_t stream)
{
	finalize_kernel<<<blocks_for(p->c, COLUMN_THREADS), COLUMN_THREADS, 0, stream>>>(*p);
}

/* ---- apply ----------------------------------------------------------------------------------------------- */

/* What a norm gives of x; with one rounding less than written, always the same one. */
__device__ __forceinline__ float normed(float x, float mean, float scale, float shift)
{
	return __fmaf_rn(x - mean, scale, shift);
}

/* scale = rstd gamma of a pack of channels. */
template <int N>
__device__ __forceinline__ void load_scale(
	const float *rstd, const float *gamma, int64_t at, float (&scale)[N])
{
	float g[N];

	load(rstd + at, scale);
	load(gamma + at, g);
#pragma unroll
	for (int i = 0; i < N; i++)
		scale[i] *= g[i];
}

/*
 * Rows from the last to the first: what the pass before read last may still be in the cache.
 */
template <int N, typename T, bool ADD> __global__ void apply_kernel(struct cuda_bn p)
{
	const T *x = (const T *)p.x.data, *add = (const T *)p.add.data;
	float mean[N], scale[N], shift[N];
	int64_t at = column_of(N);
	T *y = (T *)p.y.data;

	if (at >= p.c)
		return;
	load(p.mean + at, mean);
	load_scale(p.rstd, p.gamma, at, scale);
	load(p.beta + at, shift);
#pragma unroll 2
	for (int64_t r = p.rows - 1 - first_row(); r >= 0; r -= row_step()) {
		float v[N], w[N];

		load(x + r * p.c + at, v);
		if (ADD)
			load(add + r * p.c + at, w);
#pragma unroll
		for (int i = 0; i < N; i++) {
			v[i] = normed(v[i], mean[i], scale[i], shift[i]) + (ADD ? w[i] : 0);
			if (p.relu)
				v[i] = v[i] < 0 ? 0 : v[i];
		}
		store_sum(y + r * p.c + at, v, p.accumulate);
	}
}

template <int N, typename T> static void apply(const struct cuda_bn *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N);

	if (p->add.data)
		apply_kernel<N, T, true><<<shape.grid, shape.block, 0, stream>>>(*p);
	else
		apply_kernel<N, T, false><<<shape.grid, shape.block, 0, stream>>>(*p);
}

void cuda_bn_apply(const struct cuda_bn *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	if (p->x.bf16)
		packs ? apply<PACK, bf16>(p, stream) : apply<1, bf16>(p, stream);
	else
		packs ? apply<PACK, float>(p, stream) : apply<1, float>(p, stream);
}

/* ---- gradient --------------------------------------------------------------------------------------------- */

/*
 * e is what the ReLU lets through of dy, and how it is found: dy itself without ReLU; where y > 0; where
 * the norm of x is, when nothing was added to it, which spares reading y; or from where the first pass
 * left it, dadd.
 */
enum mask { MASK_NONE, MASK_Y, MASK_X, MASK_KEPT };

template <int N> struct channels {
	float mean[N], scale[N], shift[N];
};

template <int N, enum mask M>
__device__ __forceinline__ void load_channels(
	const struct cuda_bn_grad &p, int64_t at, channels<N> &ret)
{
	load(p.mean + at, ret.mean);
	load_scale(p.rstd, p.gamma, at, ret.scale);
	if (M == MASK_X)
		load(p.beta + at, ret.shift);
}

template <int N, typename T, enum mask M>
__device__ __forceinline__ void load_both(
	const struct cuda_bn_grad &p, int64_t i, const channels<N> &c, float (&e)[N], float (&v)[N])
{
	float w[N];

	load((const T *)(M == MASK_KEPT ? p.dadd.data : p.dy.data) + i, e);
	load((const T *)p.x.data + i, v);
	if (M == MASK_Y)
		load((const T *)p.y.data + i, w);
#pragma unroll
	for (int k = 0; k < N; k++) {
		if (M == MASK_Y)
			e[k] = w[k] > 0 ? e[k] : 0;
		if (M == MASK_X)
			e[k] = normed(v[k], c.mean[k], c.scale[k], c.shift[k]) > 0 ? e[k] : 0;
	}
}

/* KEEP: e goes to dadd already here. */
template <int N, typename T, enum mask M, bool KEEP>
__global__ void grad_sums(struct cuda_bn_grad p, float *parts)
{
	__shared__ float share[COLUMN_THREADS * N];
	float sum[N] = {}, product[N] = {};
	int64_t at = column_of(N);
	channels<N> c;

	if (at < p.c) {
		load_channels<N, M>(p, at, c);
#pragma unroll 2
		for (int64_t r = first_row(); r < p.rows; r += row_step()) {
			float e[N], v[N];

			load_both<N, T, M>(p, r * p.c + at, c, e, v);
			if (KEEP)
				store((T *)p.dadd.data + r * p.c + at, e);
#pragma unroll
			for (int i = 0; i < N; i++) {
				sum[i] += e[i];
				product[i] += e[i] * (v[i] - c.mean[i]);
			}
		}
	}
	leave_parts(sum, product, parts, p.c, share);
}

__global__ void grad_finish(struct cuda_bn_grad p, struct sums to, int n)
{
	__shared__ double share[WARP][WARP + 1];
	two_sums s = gather_parts(to.parts, n, p.c, share);
	int64_t at = gathered_channel();
	float dgamma, dbeta;
	double rstd;

	if (threadIdx.x || at >= p.c)
		return;
	rstd = p.rstd[at];
	dgamma = (float)(s.second * rstd);
	dbeta = (float)s.first;
	to.first[at] = (float)(s.first / (double)p.rows);
	to.second[at] = (float)(s.second * rstd * rstd / (double)p.rows);
	p.dgamma[at] = dgamma + (p.accumulate & 2 ? p.dgamma[at] : 0);
	p.dbeta[at] = dbeta + (p.accumulate & 4 ? p.dbeta[at] : 0);
}

/* From the last row to the first, as apply_kernel. */
template <int N, typename T, enum mask M>
__global__ void grad_kernel(struct cuda_bn_grad p, struct sums s)
{
	float first[N], second[N];
	int64_t at = column_of(N);
	channels<N> c;

	if (at >= p.c)
		return;
	load_channels<N, M>(p, at, c);
	load(s.first + at, first);
	load(s.second + at, second);
#pragma unroll 2
	for (int64_t r = p.rows - 1 - first_row(); r >= 0; r -= row_step()) {
		int64_t i = r * p.c + at;
		float e[N], v[N];

		load_both<N, T, M>(p, i, c, e, v);
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] = c.scale[k] * (e[k] - first[k] - (v[k] - c.mean[k]) * second[k]);
		store_sum((T *)p.dx.data + i, v, p.accumulate & 1);
		if (M != MASK_KEPT && p.dadd.data)
			store_sum((T *)p.dadd.data + i, e, p.accumulate & 8);
	}
}

template <int N, typename T, enum mask M, bool KEEP>
static void grad_masked(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N);
	struct sums s = sums_of(p->scratch, p->c);

	grad_sums<N, T, M, KEEP><<<shape.grid, shape.block, 0, stream>>>(*p, s.parts);
	grad_finish<<<blocks_for(p->c, WARP), dim3(WARP, WARP), 0, stream>>>(
		*p, s, (int)shape.grid.y);
	grad_kernel<N, T, KEEP ? MASK_KEPT : M><<<shape.grid, shape.block, 0, stream>>>(*p, s);
}

template <int N, typename T> static void grad(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	bool keep = p->dadd.data && !(p->accumulate & 8);

	if (!p->y.data)
		grad_masked<N, T, MASK_NONE, false>(p, stream);
	else if (p->beta)
		grad_masked<N, T, MASK_X, false>(p, stream);
	else if (keep)
		grad_masked<N, T, MASK_Y, true>(p, stream);
	else
		grad_masked<N, T, MASK_Y, false>(p, stream);
}

void cuda_bn_grad(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	if (p->x.bf16)
		packs ? grad<PACK, bf16>(p, stream) : grad<1, bf16>(p, stream);
	else
		packs ? grad<PACK, float>(p, stream) : grad<1, float>(p, stream);
}

/* ---- bias of a convolution -------------------------------------------------------------------------------- */

__global__ void bias_finish(float *dbias, const float *parts, int n, int64_t c, bool add)
{
	__shared__ double share[WARP][WARP + 1];
	two_sums s = gather_parts(parts, n, c, share);
	int64_t at = gathered_channel();

	if (!threadIdx.x && at < c)
		dbias[at] = (float)s.first + (add ? dbias[at] : 0);
}

template <int N, typename T> __global__ void bias_sums(const T *dy, float *parts, int64_t rows, int64_t c)
{
	__shared__ float share[COLUMN_THREADS * N];
	float sum[N] = {}, none[N] = {};
	int64_t at = column_of(N);

	if (at < c)
		for (int64_t r = first_row(); r < rows; r += row_step()) {
			float v[N];

			load(dy + r * c + at, v);
#pragma unroll
			for (int i = 0; i < N; i++)
				sum[i] += v[i];
		}
	leave_parts(sum, none, parts, c, share);
}

template <typename T>
static void bias_grad(const T *dy, float *dbias, int64_t rows, int64_t c, bool add, void *scratch,
	cudaStream_t stream)
{
	bool packs = c % PACK == 0;
	struct columns shape = columns_of(rows, c, packs ? PACK : 1);
	float *parts = sums_of(scratch, c).parts;

	if (packs)
		bias_sums<PACK><<<shape.grid, shape.block, 0, stream>>>(dy, parts, rows, c);
	else
		bias_sums<1><<<shape.grid, shape.block, 0, stream>>>(dy, parts, rows, c);
	bias_finish<<<blocks_for(c, WARP), dim3(WARP, WARP), 0, stream>>>(
		dbias, parts, (int)shape.grid.y, c, add);
}

void cuda_bias_grad(struct cuda_vec dy, float *dbias, int64_t rows, int64_t c, bool accumulate,
	void *scratch, cudaStream_t stream)
{
	if (dy.bf16)
		bias_grad(as<const bf16>(dy), dbias, rows, c, accumulate, scratch, stream);
	else
		bias_grad(as<const float>(dy), dbias, rows, c, accumulate, scratch, stream);
}

template <typename T>
__global__ void bias_kernel(T *y, const float *bias, int64_t n, int64_t c)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i < n)
		y[i] = (T)((float)y[i] + bias[i % c]);
}

void cuda_bias_add(struct cuda_vec y, const float *bias, int64_t rows, int64_t c, cudaStream_t stream)
{
	unsigned blocks = blocks_for(rows * c, COLUMN_THREADS);

	if (y.bf16)
		bias_kernel<<<blocks, COLUMN_THREADS, 0, stream>>>(as<bf16>(y), bias, rows * c, c);
	else
		bias_kernel<<<blocks, COLUMN_THREADS, 0, stream>>>(as<float>(y), bias, rows * c, c);
}

/* ---- a filter's gradient ---------------------------------------------------------------------------------- */

template <typename T> __global__ void filter_kernel(struct cuda_filter p, int64_t n)
{
	const T *from = (const T *)p.from.data;
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	int64_t k = i / (p.window * p.c), place = i / p.c % p.window, c = i % p.c;

	if (!p.last) {
		place = i % p.window;
		c = i / p.window % p.c;
	}
	if (i < n)
		p.dw[i] = (float)from[(k * p.window + place) * p.stride + c] +
			  (p.accumulate ? p.dw[i] : 0);
}

void cuda_filter_grad(const struct cuda_filter *p, cudaStream_t stream)
{
	int64_t n = p->k * p->c * p->window;
	unsigned blocks = blocks_for(n, COLUMN_THREADS);

	if (p->from.bf16)
		filter_kernel<bf16><<<blocks, COLUMN_THREADS, 0, stream>>>(*p, n);
	else
		filter_kernel<float><<<blocks, COLUMN_THREADS, 0, stream>>>(*p, n);
}

/* ---- images of few channels --------------------------------------------------------------------------------- */

/* A thread writes one pixel: `from` channels of x as it lies, and zeros up to N. */
template <int N, typename X, typename Y> __global__ void widen_kernel(struct cuda_widen p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, b = i / p.pixels;
	const X *x = (const X *)p.x.data + b * p.c * p.pixels;
	int64_t at = i - b * p.pixels;
	float v[N];

	if (i >= n)
		return;
#pragma unroll
	for (int c = 0; c < N; c++)
		v[c] = c < p.c ? (float)x[p.last ? at * p.c + c : c * p.pixels + at] : 0;
	store((Y *)p.y.data + i * N, v);
}

template <typename X, typename Y> static void widen(const struct cuda_widen *p, cudaStream_t stream)
{
	int64_t n = p->batch * p->pixels;

	widen_kernel<CUDA_WIDE, X, Y><<<blocks_for(n, COLUMN_THREADS), COLUMN_THREADS, 0, stream>>>(*p, n);
}

void cuda_widen(const struct cuda_widen *p, cudaStream_t stream)
{
	if (p->x.bf16 && p->y.bf16)
		widen<bf16, bf16>(p, stream);
	else if (p->y.bf16)
		widen<float, bf16>(p, stream);
	else
		widen<float, float>(p, stream);
}

/* ---- data to time on --------------------------------------------------------------------------------------- */

template <typename T> __global__ void random_kernel(T *x, int64_t n, uint64_t seed)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	uint64_t bits = jm_rng(seed, (uint64_t)i);
	float u = ((float)(bits >> 40) + 1) * 0x1p-24f, angle = (float)(bits & 0xffffff) * 0x1p-23f;

	x[i] = (T)(sqrtf(-2 * logf(u)) * cospif(angle)); /* Box and Muller */
}

void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	unsigned blocks = blocks_for(n, COLUMN_THREADS);

	if (x.bf16)
		random_kernel<<<blocks, COLUMN_THREADS, 0, stream>>>(as<bf16>(x), n, seed);
	else
		random_kernel<<<blocks, COLUMN_THREADS, 0, stream>>>(as<float>(x), n, seed);
}
