/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields on grids: products with constant matrices, y[outer,rows,width] = m[rows,n]
 * x[outer,n,width], of which truncated transforms consist; complex products of each frequency; the
 * relative loss. All sums are in f32 or f64.
 */
#include <cuda_pipeline.h>

#include "common.cuh"
#include "spectral.h"

/* ---- products with a constant matrix --------------------------------------------------------- */

#define DEEP  8	 /* rows of x that are in shared memory at a time, twice */
#define WARPS 8	 /* of a block, at most; each computes CUDA_FIXED_ROWS rows of y */
#define RUN   64 /* rows of x that are added before their sum is added to the others' */
#define ROWS  CUDA_FIXED_ROWS

/* A column is one of all outer x width; a thread has N of them, WARP apart. */
template <int N> struct alignas(16) fixed_tiles {
	float m[2][DEEP][ROWS * WARPS];
	float x[2][DEEP][WARP * N];
};

/* to = *from, or 0; f32 is copied asynchronously. */
template <typename X>
__device__ __forceinline__ void fixed_copy(float *to, const X *from, bool is_there)
{
	if constexpr (std::is_same_v<X, float>)
		__pipeline_memcpy_async(to, from, sizeof(float), is_there ? 0 : sizeof(float));
	else
		*to = is_there ? (float)*from : 0;
}

/* Rows k0 to k0 + DEEP - 1 of x and of the transposed m. at: of the thread's columns in x; below 0
 * = none. */
template <int N, typename X>
__device__ __forceinline__ void fixed_load(const struct cuda_fixed_product &p,
	struct fixed_tiles<N> &tiles, const int64_t (&at)[N], int64_t k0)
{
	const int lane = threadIdx.x, warps = blockDim.y, half = k0 / DEEP % 2;
	const int64_t row0 = (int64_t)blockIdx.y * ROWS * warps,
		      stride = (p.rows + ROWS - 1) / ROWS * ROWS;
	const X *x = as<const X>(p.x);

	for (int k = threadIdx.y; k < DEEP; k += warps) {
		const bool is_row = k0 + k < p.n;
#pragma unroll
		for (int i = 0; i < N; i++) {
			const bool is_there = is_row && at[i] >= 0;

			fixed_copy(&tiles.x[half][k][lane + WARP * i],
				is_there ? x + at[i] + (k0 + k) * p.width : x, is_there);
		}
		for (int r = lane; r < ROWS * warps; r += WARP) {
			const bool is_there = is_row && row0 + r < stride;

			fixed_copy(&tiles.m[half][k][r],
				is_there ? p.m + (k0 + k) * stride + row0 + r : p.m, is_there);
		}
	}
	__pipeline_commit();
}

template <int N>
__device__ __forceinline__ void fixed_add(
	const struct fixed_tiles<N> &tiles, int half, float (&sum)[ROWS][N])
{
#pragma unroll
	for (int k = 0; k < DEEP; k++) {
		float m[ROWS], x[N];

		load(&tiles.m[half][k][ROWS * threadIdx.y], m);
#pragma unroll
		for (int i = 0; i < N; i++)
			x[i] = tiles.x[half][k][threadIdx.x + WARP * i];
#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int i = 0; i < N; i++)
				sum[r][i] += m[r] * x[i];
	}
}

template <int N>
__device__ __forceinline__ void fixed_flush(float (&all)[ROWS][N], float (&sum)[ROWS][N])
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int i = 0; i < N; i++) {
			all[r][i] += sum[r][i];
			sum[r][i] = 0;
		}
}

/* LONG: n is above RUN. */
template <int N, bool LONG, typename X, typename Y>
__global__ void __launch_bounds__(WARP *WARPS) fixed_kernel(struct cuda_fixed_product p)
{
	__shared__ struct fixed_tiles<N> tiles;
	const int64_t row0 = ((int64_t)blockIdx.y * blockDim.y + threadIdx.y) * ROWS;
	float sum[ROWS][N] = {}, all[ROWS][N] = {};
	int64_t from[N], to[N];

#pragma unroll
	for (int i = 0; i < N; i++) {
		const int64_t column = ((int64_t)blockIdx.x * N + i) * WARP + threadIdx.x,
			      outer = column / p.width;

		from[i] = outer < p.outer ? outer * p.n * p.width + column % p.width : -1;
		to[i] = outer * p.rows * p.width + column % p.width;
	}
	fixed_load<N, X>(p, tiles, from, 0);
	for (int64_t k = 0; k < p.n; k += DEEP) {
		fixed_load<N, X>(p, tiles, from, k + DEEP);
		__pipeline_wait_prior(1);
		__syncthreads();
		fixed_add(tiles, k / DEEP % 2, sum);
		__syncthreads();
		if (LONG && (k + DEEP) % RUN == 0)
			fixed_flush(all, sum);
	}
	if (LONG)
		fixed_flush(sum, all);
	for (int r = 0; r < ROWS && row0 + r < p.rows; r++)
#pragma unroll
		for (int i = 0; i < N; i++) {
			Y *y = as<Y>(p.y) + to[i] + (row0 + r) * p.width;

			if (from[i] >= 0)
				*y = (Y)(sum[r][i] + (p.accumulate ? (float)*y : 0));
		}
}

template <int N> static void fixed_start(const struct cuda_fixed_product *p, cudaStream_t stream)
{
	const int64_t groups = (p->rows + ROWS - 1) / ROWS, each = (groups + WARPS - 1) / WARPS;
	const dim3 blocks(blocks_for(p->outer * p->width, WARP * N), (unsigned)each),
		threads(WARP, (unsigned)((groups + each - 1) / each));

	with_types(p->x, p->y, [&](auto x, auto y) {
		using X = decltype(x);
		using Y = decltype(y);

		if (p->n > RUN)
			fixed_kernel<N, true, X, Y><<<blocks, threads, 0, stream>>>(*p);
		else
			fixed_kernel<N, false, X, Y><<<blocks, threads, 0, stream>>>(*p);
	});
}

#define MANY 4 /* columns of a thread where these are enough for all processors */

void cuda_fixed_product(const struct cuda_fixed_product *p, int processors, cudaStream_t stream)
{
	if (p->outer * p->width >= (int64_t)2 * processors * WARP * MANY)
		fixed_start<MANY>(p, stream);
	else
		fixed_start<1>(p, stream);
}

/* ---- complex products of each frequency ------------------------------------------------------ */

#define SIDE  32 /* of the tiles of a, b and y */
#define LINES 8	 /* threads are SIDE x LINES */

struct complex_tile {
	float re[SIDE][SIDE + 1], im[SIDE][SIDE + 1];
};

/* Elements [row0..,column0..] of a matrix with these rows and columns; 0 beyond it. */
template <typename T>
__device__ __forceinline__ void complex_load(const struct cuda_complex &c, int64_t row0,
	int64_t rows, int64_t column0, int64_t columns, struct complex_tile &ret)
{
	const T *data = as<const T>(c.data) + (int64_t)blockIdx.x * c.each;

	for (int i = threadIdx.y; i < SIDE; i += LINES) {
		const int r = c.column == 1 ? i : threadIdx.x, k = c.column == 1 ? threadIdx.x : i;
		const int64_t at = (row0 + r) * c.row + (column0 + k) * c.column;
		const bool is_there = row0 + r < rows && column0 + k < columns;
		const float im = is_there ? (float)data[at + c.imaginary] : 0;

		ret.re[r][k] = is_there ? (float)data[at] : 0;
		ret.im[r][k] = c.conjugate ? -im : im;
	}
}

template <typename T, typename Y>
__global__ void __launch_bounds__(SIDE *LINES) complex_kernel(struct cuda_complex_product p)
{
	__shared__ struct complex_tile a, b;
	const int64_t row0 = (int64_t)blockIdx.z * SIDE, column0 = (int64_t)blockIdx.y * SIDE;
	const int64_t column = column0 + threadIdx.x;
	float re[SIDE / LINES] = {}, im[SIDE / LINES] = {};

	for (int64_t k0 = 0; k0 < p.n; k0 += SIDE) {
		const int most = p.n - k0 < SIDE ? (int)(p.n - k0) : SIDE;

		complex_load<T>(p.a, row0, p.rows, k0, p.n, a);
		complex_load<T>(p.b, k0, p.n, column0, p.columns, b);
		__syncthreads();
		for (int k = 0; k < most; k++)
#pragma unroll
			for (int i = 0; i < SIDE / LINES; i++) {
				const int r = threadIdx.y + LINES * i;

				re[i] += a.re[r][k] * b.re[k][threadIdx.x];
				re[i] -= a.im[r][k] * b.im[k][threadIdx.x];
				im[i] += a.re[r][k] * b.im[k][threadIdx.x];
				im[i] += a.im[r][k] * b.re[k][threadIdx.x];
			}
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < SIDE / LINES; i++) {
		const int64_t row = row0 + threadIdx.y + LINES * i;
		Y *y = as<Y>(p.y.data) + (int64_t)blockIdx.x * p.y.each + row * p.y.row + column;

		if (row >= p.rows || column >= p.columns)
			continue;
		y[0] = (Y)(re[i] + (p.accumulate ? (float)y[0] : 0));
		y[p.y.imaginary] = (Y)(im[i] + (p.accumulate ? (float)y[p.y.imaginary] : 0));
	}
}

void cuda_complex_product(const struct cuda_complex_product *p, cudaStream_t stream)
{
	const dim3 blocks(
		(unsigned)p->frequencies, blocks_for(p->columns, SIDE), blocks_for(p->rows, SIDE));

	with_types(p->a.data, p->y.data, [&](auto t, auto y) {
		complex_kernel<decltype(t), decltype(y)>
			<<<blocks, dim3(SIDE, LINES), 0, stream>>>(*p);
	});
}

/* ---- the relative loss ----------------------------------------------------------------------- */

#define SUMMERS 256  /* threads of a block that adds, and its most channels */
#define SHARE	2048 /* points that a block adds */
#define PARTS	64   /* blocks that share the points of a norm, at most */
#define ENDERS	1024

int cuda_relative_parts(int64_t points)
{
	int64_t parts = (points + SHARE - 1) / SHARE;

	return parts < PARTS ? (int)parts : PARTS;
}

/* Squares of one part of the points: of the differences and of the target. */
template <typename T, typename U>
__global__ void __launch_bounds__(SUMMERS) relative_kernel(struct cuda_relative p, int parts)
{
	__shared__ double off[SUMMERS], size[SUMMERS];
	const int64_t outer = blockIdx.x / parts, part = blockIdx.x % parts,
		      first = blockIdx.y * SUMMERS;
	const int64_t left = p.channels - first, each = (p.points + parts - 1) / parts;
	const int width = left < SUMMERS ? (int)left : SUMMERS, lines = SUMMERS / width;
	const int line = threadIdx.x / width, channel = threadIdx.x % width;
	const int64_t end = (part + 1) * each < p.points ? (part + 1) * each : p.points;
	double a = 0, b = 0;

	for (int64_t i = part * each + line; line < lines && i < end; i += lines) {
		const int64_t at = (outer * p.points + i) * p.channels + first + channel;
		const float target = (float)as<const U>(p.target)[at],
			    d = (float)as<const T>(p.y)[at] - target;

		a += (double)d * (double)d;
		b += (double)target * (double)target;
	}
	off[threadIdx.x] = a;
	size[threadIdx.x] = b;
	__syncthreads();
	if (threadIdx.x >= width)
		return;
	for (int i = 1; i < lines; i++) {
		a += off[i * width + threadIdx.x];
		b += size[i * width + threadIdx.x];
	}
	double *to = p.partial + 2 * (blockIdx.x * p.channels + first + threadIdx.x);

	to[0] = a;
	to[1] = b;
}

/* The loss, and the factor of each norm's gradient. */
__global__ void __launch_bounds__(ENDERS) relative_end_kernel(struct cuda_relative p, int parts)
{
	__shared__ double share[WARP];
	const double norms = (double)(p.outer * p.channels),
		     scale = p.scale / norms * (p.loss_scale ? (double)p.loss_scale[0] : 1);
	double sum = 0;

	for (int64_t m = threadIdx.x; m < p.outer * p.channels; m += ENDERS) {
		const double *from =
			p.partial + 2 * (m / p.channels * parts * p.channels + m % p.channels);
		double off = 0, size = 0;

		for (int i = 0; i < parts; i++, from += 2 * p.channels) {
			off += from[0];
			size += from[1];
		}
		p.factor[m] = off > 0 ? scale / (sqrt(off) * sqrt(size)) : 0;
		sum += sqrt(off) / sqrt(size);
	}
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		*p.loss = (float)(p.weight * sum / norms + (p.add_loss ? (double)*p.loss : 0));
}

template <typename T, typename U> __global__ void relative_grad_kernel(struct cuda_relative p)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,
		      each = p.points * p.channels;

	if (i >= p.outer * each)
		return;
	const float d = (float)as<const T>(p.y)[i] - (float)as<const U>(p.target)[i];
	const float dy = (float)((double)d * p.factor[i / each * p.channels + i % p.channels]);
	T *to = as<T>(p.dy) + i;

	*to = (T)(dy + (p.add_dy ? (float)*to : 0));
}

void cuda_relative(const struct cuda_relative *p, cudaStream_t stream)
{
	const int parts = cuda_relative_parts(p->points);
	const dim3 blocks((unsigned)(p->outer * parts), blocks_for(p->channels, SUMMERS));

	with_types(p->y, p->target, [&](auto y, auto target) {
		relative_kernel<decltype(y), decltype(target)>
			<<<blocks, SUMMERS, 0, stream>>>(*p, parts);
	});
	relative_end_kernel<<<1, ENDERS, 0, stream>>>(*p, parts);
	if (!p->dy.data)
		return;
	with_types(p->y, p->target, [&](auto y, auto target) {
		relative_grad_kernel<decltype(y), decltype(target)>
			<<<blocks_for(p->outer * p->points * p->channels, 256), 256, 0, stream>>>(
				*p);
	});
}
