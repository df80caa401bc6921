/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields on grids: products with constant matrices, y[outer,rows,width] = m[rows,n]
 * x[outer,n,width], of which truncated transforms consist; complex products of each frequency; the
 * relative loss. All sums are in f32 or f64.
 */
#include "../common.cuh"
#include "../spectral.h"

/* ---- products with a constant matrix --------------------------------------------------------- */

/*
 * A column is one of all outer x width. A thread adds up R rows of y for C columns, WARP apart.
 * It reads x from memory, the next STEP rows while it computes with these; a part of m is in shared
 * memory at a time. `splits` warps of a block share their columns, and each has every splits-th
 * STEP of rows of x; their sums are added in pairs.
 */
#define TEAM  8	 /* warps of a block, at most */
#define STEP  8	 /* rows of x */
#define STEPS 4	 /* of a warp in a stage */
#define RUN   64 /* rows of x that are added before their sum is added to the others' */

/* Columns of a thread. */
template <int C> struct fixed_columns {
	int64_t from[C], to[C]; /* elements of x and y; below 0 = none */

	__device__ __forceinline__ fixed_columns(const struct cuda_fixed_product &p, int64_t first)
	{
#pragma unroll
		for (int c = 0; c < C; c++) {
			const int64_t column = first + WARP * c, outer = column / p.width,
				      rest = column - outer * p.width;
			const bool is_there = outer < p.outer;

			from[c] = is_there ? outer * p.n * p.width + rest : -1;
			to[c] = is_there ? outer * p.rows * p.width + rest : -1;
		}
	}
};

template <int C, typename X>
__device__ __forceinline__ void fixed_fetch(const struct cuda_fixed_product &p,
	const struct fixed_columns<C> &columns, int64_t k0, float (&x)[STEP][C])
{
	const X *data = as<const X>(p.x);

#pragma unroll
	for (int k = 0; k < STEP; k++)
#pragma unroll
		for (int c = 0; c < C; c++)
			x[k][c] = k0 + k < p.n && columns.from[c] >= 0
					  ? (float)data[columns.from[c] + (k0 + k) * p.width]
					  : 0;
}

/* Rows k0 to k0 + count - 1 of the transposed m, columns row0 to row0 + R - 1. */
template <int R>
__device__ __forceinline__ void fixed_stage(
	const struct cuda_fixed_product &p, int64_t k0, int count, int64_t row0, float *to)
{
	const int64_t stride = (p.rows + CUDA_FIXED_ROWS - 1) / CUDA_FIXED_ROWS * CUDA_FIXED_ROWS;
	const int threads = WARP * blockDim.y;

	for (int i = threadIdx.y * WARP + threadIdx.x; i < count * (R / 4); i += threads) {
		const int k = i / (R / 4), r = i % (R / 4) * 4;
		const bool is_there = k0 + k < p.n && row0 + r < stride;

		reinterpret_cast<float4 *>(to)[i] =
			is_there ? *reinterpret_cast<const float4 *>(
					   p.m + (k0 + k) * stride + row0 + r)
				 : make_float4(0, 0, 0, 0);
	}
}

template <int R, int C>
__device__ __forceinline__ void fixed_add(
	const float *m, int64_t left, const float (&x)[STEP][C], float (&sum)[R][C])
{
#pragma unroll
	for (int k = 0; k < STEP; k++) {
		float row[R];

		if (k >= left)
			break;

		load(m + k * R, row);
#pragma unroll
		for (int r = 0; r < R; r++)
#pragma unroll
			for (int c = 0; c < C; c++)
				sum[r][c] += row[r] * x[k][c];
	}
}

template <int R, int C>
__device__ __forceinline__ void fixed_flush(float (&all)[R][C], float (&sum)[R][C])
{
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int c = 0; c < C; c++) {
			all[r][c] += sum[r][c];
			sum[r][c] = 0;
		}
}

/* Adds the sums of warps that share columns, in pairs; the first warp has the result. */
template <int R, int C>
__device__ __forceinline__ void fixed_join(float *share, int split, int splits, float (&sum)[R][C])
{
	const int group = threadIdx.y / splits;

	for (int half = splits / 2; half; half /= 2) {
		float *mine = share + (group * (splits / 2) + split % half) * R * C * WARP;

		__syncthreads();
#pragma unroll
		for (int i = 0; i < R * C; i++)
			if (split >= half && split < 2 * half)
				mine[i * WARP + threadIdx.x] = sum[i / C][i % C];
		__syncthreads();
#pragma unroll
		for (int i = 0; i < R * C; i++)
			if (split < half)
				sum[i / C][i % C] += mine[i * WARP + threadIdx.x];
	}
}

/* What is to be added to is read before anything is written, so that no read waits for a write. */
template <int R, int C, typename Y>
__device__ __forceinline__ void fixed_store(const struct cuda_fixed_product &p,
	const struct fixed_columns<C> &columns, int64_t row0, float (&sum)[R][C])
{
	Y *y = as<Y>(p.y) + row0 * p.width;

	if (p.accumulate)
#pragma unroll
		for (int i = 0; i < R * C; i++)
			if (columns.to[i % C] >= 0 && row0 + i / C < p.rows)
				sum[i / C][i % C] += (float)y[columns.to[i % C] + i / C * p.width];
#pragma unroll
	for (int i = 0; i < R * C; i++)
		if (columns.to[i % C] >= 0 && row0 + i / C < p.rows)
			y[columns.to[i % C] + i / C * p.width] = (Y)sum[i / C][i % C];
}

/* LONG: a warp has more than RUN rows of x. */
template <int R, int C, bool LONG, typename X, typename Y>
__global__ void __launch_bounds__(WARP *TEAM) fixed_kernel(struct cuda_fixed_product p, int splits)
{
	extern __shared__ float4 memory[];
	float *share = reinterpret_cast<float *>(memory);
	const int split = threadIdx.y % splits, groups = blockDim.y / splits;
	const int64_t row0 = (int64_t)blockIdx.y * R,
		      first = ((int64_t)blockIdx.x * groups + threadIdx.y / splits) * WARP * C;
	const struct fixed_columns<C> columns(p, first + threadIdx.x);
	float sum[R][C] = {}, all[R][C] = {}, next[STEP][C];

	fixed_fetch<C, X>(p, columns, split * STEP, next);
	for (int64_t k0 = 0; k0 < p.n; k0 += STEPS * splits * STEP) {
		const int64_t left = p.n - k0;
		const int count = left < STEPS * splits * STEP ? (int)left : STEPS * splits * STEP;

		__syncthreads();
		fixed_stage<R>(p, k0, (count + STEP * splits - 1) / (STEP * splits) * STEP * splits,
			row0, share);
		__syncthreads();
		for (int k = split * STEP; k < count; k += splits * STEP) {
			float x[STEP][C];

#pragma unroll
			for (int i = 0; i < STEP * C; i++)
				x[i / C][i % C] = next[i / C][i % C];
			fixed_fetch<C, X>(p, columns, k0 + k + splits * STEP, next);
			fixed_add<R, C>(share + k * R, left - k, x, sum);
		}
		if (LONG && (k0 / (STEPS * splits * STEP) + 1) * STEPS * STEP % RUN == 0)
			fixed_flush(all, sum);
	}
	if (LONG)
		fixed_flush(sum, all);
	fixed_join(share, split, splits, sum);
	if (split == 0)
		fixed_store<R, C, Y>(p, columns, row0, sum);
}

struct fixed_shape {
	int rows, columns, warps, splits;
};

template <int R, int C>
static void fixed_start(
	const struct cuda_fixed_product *p, const struct fixed_shape &s, cudaStream_t stream)
{
	const int groups = s.warps / s.splits;
	const dim3 blocks(
		blocks_for(p->outer * p->width, groups * WARP * C), blocks_for(p->rows, R)),
		threads(WARP, (unsigned)s.warps);
	const int stage = STEPS * STEP * s.splits * R, join = s.warps / 2 * R * C * WARP,
		  floats = s.splits > 1 && join > stage ? join : stage;

	with_types(p->x, p->y, [&](auto x, auto y) {
		using X = decltype(x);
		using Y = decltype(y);

		if (p->n > RUN * s.splits)
			fixed_kernel<R, C, true, X, Y>
				<<<blocks, threads, floats * sizeof(float), stream>>>(*p, s.splits);
		else
			fixed_kernel<R, C, false, X, Y>
				<<<blocks, threads, floats * sizeof(float), stream>>>(*p, s.splits);
	});
}

template <int C>
static void fixed_rows(
	const struct cuda_fixed_product *p, const struct fixed_shape &s, cudaStream_t stream)
{
	switch (s.rows) {
	case 8:
		return fixed_start<8, C>(p, s, stream);
	case 12:
		return fixed_start<12, C>(p, s, stream);
	default:
		return fixed_start<16, C>(p, s, stream);
	}
}

void cuda_fixed_product(const struct cuda_fixed_product *p, int processors, cudaStream_t stream)
{
	const int64_t warps = (p->outer * p->width + WARP - 1) / WARP;
	struct fixed_shape s = {.rows = p->rows <= 8	? 8
					: p->rows <= 24 ? 12
							: 16,
		.columns = 2,
		.warps = 4,
		.splits = 1};
	const int64_t all = warps / s.columns * ((p->rows + s.rows - 1) / s.rows);

	while (s.splits < TEAM && s.splits * 2 * STEP <= p->n && all * s.splits < 8 * processors)
		s.splits *= 2;
	s.warps = s.splits > 4 ? s.splits : 4;
	fixed_rows<2>(p, s, stream);
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

				if (row0 + r >= p.rows) /* the same in a warp */
					break;
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

#define SUMMERS 256 /* threads of a block that adds, and its most channels */
#define SHARE	256 /* points that a block adds */
#define PARTS	64  /* blocks that share the points of a norm, at most */
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

#pragma unroll 8
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
