/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm of x[rows,c], channels last. Sums are taken of x less the channel's first element, so that
 * a large mean costs no digits; partial sums in f32, their sum over blocks in f64.
 */
#include "image.h"
#include "rows.cuh"

#define JM_RNG_INLINE static __device__ __forceinline__
#include "engine/rng.h"

/* dx = scale (e - first - (x - mean) second): first = dbeta / n, second = rstd^2 sum(e (x - mean)) / n. */
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

template <int N, typename T> __global__ void apply_kernel(struct cuda_bn p)
{
	const T *x = (const T *)p.x.data, *add = (const T *)p.add.data;
	float mean[N], scale[N], shift[N];
	int64_t at = column_of(N);
	T *y = (T *)p.y.data;

	if (at >= p.c)
		return;
	load(p.mean + at, mean);
	load(p.rstd + at, scale);
	load(p.gamma + at, shift);
#pragma unroll
	for (int i = 0; i < N; i++)
		scale[i] *= shift[i];
	load(p.beta + at, shift);
#pragma unroll 2
	for (int64_t r = first_row(); r < p.rows; r += row_step()) {
		float v[N], w[N];

		load(x + r * p.c + at, v);
		if (add)
			load(add + r * p.c + at, w);
#pragma unroll
		for (int i = 0; i < N; i++) {
			v[i] = (v[i] - mean[i]) * scale[i] + shift[i] + (add ? w[i] : 0);
			if (p.relu)
				v[i] = v[i] < 0 ? 0 : v[i];
		}
		store_sum(y + r * p.c + at, v, p.accumulate);
	}
}

template <int N, typename T> static void apply(const struct cuda_bn *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N);

	apply_kernel<N, T><<<shape.grid, shape.block, 0, stream>>>(*p);
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

/* e: what the ReLU lets through of dy. */
template <int N, typename T>
__device__ __forceinline__ void load_e(const T *dy, const T *y, int64_t i, float (&e)[N])
{
	float w[N];

	load(dy + i, e);
	if (!y)
		return;
	load(y + i, w);
#pragma unroll
	for (int k = 0; k < N; k++)
		e[k] = w[k] > 0 ? e[k] : 0;
}

template <int N, typename T> __global__ void grad_sums(struct cuda_bn_grad p, float *parts)
{
	const T *dy = (const T *)p.dy.data, *x = (const T *)p.x.data, *y = (const T *)p.y.data;
	__shared__ float share[COLUMN_THREADS * N];
	float mean[N], sum[N] = {}, product[N] = {};
	int64_t at = column_of(N);

	if (at < p.c) {
		load(p.mean + at, mean);
#pragma unroll 2
		for (int64_t r = first_row(); r < p.rows; r += row_step()) {
			float e[N], v[N];

			load_e(dy, y, r * p.c + at, e);
			load(x + r * p.c + at, v);
#pragma unroll
			for (int i = 0; i < N; i++) {
				sum[i] += e[i];
				product[i] += e[i] * (v[i] - mean[i]);
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

template <int N, typename T> __global__ void grad_kernel(struct cuda_bn_grad p, struct sums s)
{
	const T *dy = (const T *)p.dy.data, *x = (const T *)p.x.data, *y = (const T *)p.y.data;
	float mean[N], scale[N], first[N], second[N];
	T *dx = (T *)p.dx.data, *dadd = (T *)p.dadd.data;
	int64_t at = column_of(N);

	if (at >= p.c)
		return;
	load(p.gamma + at, first);
	load(p.rstd + at, scale);
#pragma unroll
	for (int i = 0; i < N; i++)
		scale[i] *= first[i];
	load(p.mean + at, mean);
	load(s.first + at, first);
	load(s.second + at, second);
#pragma unroll 2
	for (int64_t r = first_row(); r < p.rows; r += row_step()) {
		int64_t i = r * p.c + at;
		float e[N], v[N];

		load_e(dy, y, i, e);
		load(x + i, v);
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] = scale[k] * (e[k] - first[k] - (v[k] - mean[k]) * second[k]);
		store_sum(dx + i, v, p.accumulate & 1);
		if (dadd)
			store_sum(dadd + i, e, p.accumulate & 8);
	}
}

template <int N, typename T> static void grad(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N);
	struct sums s = sums_of(p->scratch, p->c);

	grad_sums<N, T><<<shape.grid, shape.block, 0, stream>>>(*p, s.parts);
	grad_finish<<<blocks_for(p->c, WARP), dim3(WARP, WARP), 0, stream>>>(
		*p, s, (int)shape.grid.y);
	grad_kernel<N, T><<<shape.grid, shape.block, 0, stream>>>(*p, s);
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
	int64_t place = i % p.window, c = i / p.window % p.c, k = i / (p.window * p.c);

	if (i < n)
		p.dw[i] = (float)from[(k * p.window + place) * p.c + c] + (p.accumulate ? p.dw[i] : 0);
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
