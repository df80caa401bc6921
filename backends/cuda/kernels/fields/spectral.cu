/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields on grids: truncated transforms along an axis; complex products of each frequency; the
 * relative loss. All sums are in f32 or f64.
 */
#include "../common.cuh"
#include "../spectral.h"

/* ---- a step of a transform ------------------------------------------------------------------- */

/*
 * Points n and points - n, and frequencies f and -f, have the same cosines, and sines of opposite
 * sign. So sums are made of the sum and the difference of two elements of x, and their sum and
 * difference are two elements of y: half of the products of a real axis, a quarter of those of a
 * complex one.
 *
 * A thread has two lanes: two columns of all outer x width of a real axis, WARP apart, or both
 * parts of a complex one. It adds up R cosines and R sines of each; it reads x from memory, the
 * next STEP pairs while it computes with these; a part of the table is in shared memory at a time.
 * `splits` warps of a block share their columns, and each has every splits-th STEP of pairs; their
 * sums are added in pairs.
 */
#define TEAM  8 /* warps of a block, at most */
#define LANES 2
#define STEP  2	 /* pairs of x */
#define STEPS 16 /* of a warp in a stage */

/* Where element j and its other one lie, in elements of the tensor. */
struct pairing {
	int64_t step, other, other_step; /* j step, other + j other_step */
	int count;			 /* of j */
	int end;			 /* j from there on have only the other one */
	int begin, lone;		 /* j before begin, and 2 j = lone, have no other one */
};

struct step_shape {
	struct pairing x, y;
	int splits;
};

static __device__ __forceinline__ bool has_first(const struct pairing &p, int j)
{
	return j < p.end;
}

static __device__ __forceinline__ bool has_other(const struct pairing &p, int j)
{
	return j < p.count && j >= p.begin && 2 * j != p.lone;
}

struct step_lanes {
	int64_t from[LANES], to[LANES]; /* elements of x and y; below 0 = none */
};

__device__ __forceinline__ step_lanes lanes_of(
	const struct cuda_transform_step &p, int64_t first, int64_t x_rows, int64_t y_rows)
{
	const int64_t x_part = p.back ? 2 * p.modes * p.width : p.width,
		      y_part = p.back ? p.width : 2 * p.modes * p.width;
	struct step_lanes ret;

#pragma unroll
	for (int c = 0; c < LANES; c++) {
		const int64_t column = first + (p.is_real ? WARP * c : 0), outer = column / p.width,
			      rest = column - outer * p.width;
		const int64_t x_more = p.is_real ? 0 : c * x_part,
			      y_more = p.is_real ? 0 : c * y_part;
		const bool is_there = outer < p.outer;

		ret.from[c] = is_there ? outer * x_rows * p.width + rest + x_more : -1;
		ret.to[c] = is_there ? outer * y_rows * p.width + rest + y_more : -1;
	}
	return ret;
}

/* Elements that are not there count as 0; another one is read in their place, because a condition
 * would make each read wait for the one before it. */
template <typename X>
__device__ __forceinline__ void fetch_pairs(const struct cuda_transform_step &p,
	const struct pairing &at, const struct step_lanes &lanes, int j0, float (&a)[STEP][LANES],
	float (&b)[STEP][LANES])
{
#pragma unroll
	for (int i = 0; i < STEP; i++) {
		const int j = j0 + i;
		const bool first = has_first(at, j), other = has_other(at, j);
		const int64_t to_first = first ? j * at.step : 0,
			      to_other = other ? at.other + j * at.other_step : 0;

#pragma unroll
		for (int c = 0; c < LANES; c++) {
			const bool is_there = lanes.from[c] >= 0;
			const X *x = as<const X>(p.x) + (is_there ? lanes.from[c] : 0);
			const float one = (float)x[to_first], two = (float)x[to_other];

			a[i][c] = is_there && first ? one : 0;
			b[i][c] = is_there && other ? two : 0;
		}
	}
}

/* Pairs j0 to j0 + count - 1 of the table, R cosines and R sines from row0 on of each. */
template <int R>
__device__ __forceinline__ void stage_table(const struct cuda_transform_step &p, int pairs,
	int rows, int j0, int count, int row0, float *to)
{
	const int stride = (rows + CUDA_STEP_ROWS - 1) / CUDA_STEP_ROWS * CUDA_STEP_ROWS;

	for (int i = threadIdx.y * WARP + threadIdx.x; i < count * (2 * R / 4);
		i += WARP * blockDim.y) {
		const int j = i / (2 * R / 4), part = i / (R / 4) % 2, r = i % (R / 4) * 4;
		const bool is_there = j0 + j < pairs && row0 + r < stride;

		reinterpret_cast<float4 *>(to)[i] =
			is_there ? *reinterpret_cast<const float4 *>(
					   p.m + (int64_t)((j0 + j) * 2 + part) * stride + row0 + r)
				 : make_float4(0, 0, 0, 0);
	}
}

/* m: R cosines and R sines of each pair. */
template <int R>
__device__ __forceinline__ void add_pairs(const float *m, bool folds, const float (&a)[STEP][LANES],
	const float (&b)[STEP][LANES], float (&cosines)[R][LANES], float (&sines)[R][LANES])
{
#pragma unroll
	for (int i = 0; i < STEP; i++) {
		float even[LANES], odd[LANES];

#pragma unroll
		for (int c = 0; c < LANES; c++) {
			even[c] = folds ? a[i][c] + b[i][c] : a[i][c];
			odd[c] = folds ? a[i][c] - b[i][c] : b[i][c];
		}
#pragma unroll
		for (int r0 = 0; r0 < R; r0 += 4) {
			float cosine[4], sine[4];

			load(m + 2 * i * R + r0, cosine);
			load(m + (2 * i + 1) * R + r0, sine);
#pragma unroll
			for (int r = 0; r < 4; r++)
#pragma unroll
				for (int c = 0; c < LANES; c++) {
					cosines[r0 + r][c] += cosine[r] * even[c];
					sines[r0 + r][c] += sine[r] * odd[c];
				}
		}
	}
}

/* Adds the sums of warps that share columns, in pairs; the first warp has the result. */
template <int R>
__device__ __forceinline__ void join_splits(
	float *share, int split, int splits, float (&cosines)[R][LANES], float (&sines)[R][LANES])
{
	constexpr int all = 2 * R * LANES;
	const int group = threadIdx.y / splits;

	for (int half = splits / 2; half; half /= 2) {
		float *mine =
			share + (group * (splits / 2) + split % half) * all * WARP + threadIdx.x;

		__syncthreads();
		if (split >= half && split < 2 * half)
#pragma unroll
			for (int i = 0; i < R * LANES; i++) {
				mine[2 * i * WARP] = cosines[i / LANES][i % LANES];
				mine[(2 * i + 1) * WARP] = sines[i / LANES][i % LANES];
			}
		__syncthreads();
		if (split < half)
#pragma unroll
			for (int i = 0; i < R * LANES; i++) {
				cosines[i / LANES][i % LANES] += mine[2 * i * WARP];
				sines[i / LANES][i % LANES] += mine[(2 * i + 1) * WARP];
			}
	}
}

/* Makes of both sums the element of y and its other one. */
template <int R>
__device__ __forceinline__ void combine(
	const struct cuda_transform_step &p, float (&cosines)[R][LANES], float (&sines)[R][LANES])
{
	if (p.is_real && !p.back)
		return;
#pragma unroll
	for (int r = 0; r < R; r++) {
		const float re = cosines[r][0], im = cosines[r][1];
		const float first = p.is_real ? sines[r][0] : sines[r][1],
			    second = p.is_real ? sines[r][1] : -sines[r][0];

		cosines[r][0] = re + first;
		cosines[r][1] = im + second;
		sines[r][0] = re - first;
		sines[r][1] = im - second;
	}
}

/* What is to be added to is read before anything is written, so that no read waits for a write,
 * and without a condition (fetch_pairs). */
template <int R, typename Y>
__device__ __forceinline__ void store_pairs(const struct cuda_transform_step &p,
	const struct pairing &at, const struct step_lanes &lanes, int row0,
	float (&first)[R][LANES], float (&other)[R][LANES])
{
	if (p.accumulate)
#pragma unroll
		for (int r = 0; r < R; r++) {
			const int j = row0 + r;
			const int64_t to_first = has_first(at, j) ? j * at.step : 0,
				      to_other =
					      has_other(at, j) ? at.other + j * at.other_step : 0;

#pragma unroll
			for (int c = 0; c < LANES; c++) {
				const Y *y = as<const Y>(p.y) + max(lanes.to[c], (int64_t)0);

				first[r][c] += (float)y[to_first];
				other[r][c] += (float)y[to_other];
			}
		}
#pragma unroll
	for (int r = 0; r < R; r++) {
		const int j = row0 + r;

#pragma unroll
		for (int c = 0; c < LANES; c++) {
			Y *y = as<Y>(p.y) + lanes.to[c];

			if (lanes.to[c] >= 0 && has_first(at, j))
				y[j * at.step] = (Y)first[r][c];
			if (lanes.to[c] >= 0 && has_other(at, j))
				y[at.other + j * at.other_step] = (Y)other[r][c];
		}
	}
}

template <int R, typename X, typename Y>
__global__ void __launch_bounds__(WARP *TEAM)
	step_kernel(struct cuda_transform_step p, struct step_shape s)
{
	extern __shared__ float4 memory[];
	float *share = reinterpret_cast<float *>(memory);
	const int split = threadIdx.y % s.splits, groups = blockDim.y / s.splits,
		  most = STEPS * STEP * s.splits, row0 = blockIdx.y * R;
	const int64_t point_rows = p.points * (p.is_real ? 1 : 2),
		      other_rows = p.modes * (p.is_real ? 2 : 4),
		      group = (int64_t)blockIdx.x * groups + threadIdx.y / s.splits;
	const struct step_lanes lanes =
		lanes_of(p, group * WARP * (p.is_real ? LANES : 1) + threadIdx.x,
			p.back ? other_rows : point_rows, p.back ? point_rows : other_rows);
	const bool folds = !(p.is_real && p.back);
	float cosines[R][LANES] = {}, sines[R][LANES] = {}, a[STEP][LANES], b[STEP][LANES];

	fetch_pairs<X>(p, s.x, lanes, split * STEP, a, b);
	for (int j0 = 0; j0 < s.x.count; j0 += most) {
		const int count = min(s.x.count - j0, most), even = STEP * s.splits;

		__syncthreads();
		stage_table<R>(
			p, s.x.count, s.y.count, j0, (count + even - 1) / even * even, row0, share);
		__syncthreads();
		for (int j = split * STEP; j < count; j += even) {
			float a_now[STEP][LANES], b_now[STEP][LANES];

#pragma unroll
			for (int i = 0; i < STEP * LANES; i++) {
				a_now[i / LANES][i % LANES] = a[i / LANES][i % LANES];
				b_now[i / LANES][i % LANES] = b[i / LANES][i % LANES];
			}
			fetch_pairs<X>(p, s.x, lanes, j0 + j + even, a, b);
			add_pairs<R>(share + j * 2 * R, folds, a_now, b_now, cosines, sines);
		}
	}
	join_splits<R>(share, split, s.splits, cosines, sines);
	if (split)
		return;
	combine<R>(p, cosines, sines);
	store_pairs<R, Y>(p, s.y, lanes, row0, cosines, sines);
}

/* Points n and points - n. */
static struct pairing points_of(const struct cuda_transform_step *p)
{
	const int64_t step = p->width * (p->is_real ? 1 : 2);
	const int count = cuda_step_points(p);

	return (struct pairing){.step = step,
		.other = p->points * step,
		.other_step = -step,
		.count = count,
		.end = count,
		.begin = 1,
		.lone = (int)p->points};
}

/* Frequencies f and -f, or of a real axis both parts of one. */
static struct pairing frequencies_of(const struct cuda_transform_step *p)
{
	const int count = cuda_step_frequencies(p);

	if (p->is_real)
		return (struct pairing){.step = p->width,
			.other = p->modes * p->width,
			.other_step = p->width,
			.count = count,
			.end = count,
			.begin = 0,
			.lone = -1};
	return (struct pairing){.step = p->width,
		.other = 2 * p->modes * p->width,
		.other_step = -p->width,
		.count = count,
		.end = (int)p->modes,
		.begin = 1,
		.lone = -1};
}

template <int R>
static void step_start(const struct cuda_transform_step *p, const struct step_shape &s,
	int64_t columns, cudaStream_t stream)
{
	const int warps = s.splits > 4 ? s.splits : 4, groups = warps / s.splits;
	const dim3 blocks(blocks_for(columns, groups * WARP), blocks_for(s.y.count, R)),
		threads(WARP, (unsigned)warps);
	const int stage = STEPS * STEP * s.splits * 2 * R,
		  join = s.splits > 1 ? warps / 2 * 2 * R * LANES * WARP : 0,
		  floats = join > stage ? join : stage;

	with_types(p->x, p->y, [&](auto x, auto y) {
		step_kernel<R, decltype(x), decltype(y)>
			<<<blocks, threads, floats * sizeof(float), stream>>>(*p, s);
	});
}

void cuda_transform_step(const struct cuda_transform_step *p, int processors, cudaStream_t stream)
{
	const struct pairing points = points_of(p), frequencies = frequencies_of(p);
	struct step_shape s = {.x = p->back ? frequencies : points,
		.y = p->back ? points : frequencies,
		.splits = 1};
	const int64_t all = p->outer * p->width, columns = p->is_real ? (all + 1) / LANES : all;
	const int rows = s.y.count <= 8 ? 8 : s.y.count <= 12 || s.y.count > 16 ? 12 : 16;
	const int64_t warps = (columns + WARP - 1) / WARP * ((s.y.count + rows - 1) / rows);

	while (s.splits < TEAM && s.splits * 2 * STEP <= s.x.count &&
		warps * s.splits < 8 * processors)
		s.splits *= 2;
	if (rows == 8)
		step_start<8>(p, s, columns, stream);
	else if (rows == 12)
		step_start<12>(p, s, columns, stream);
	else
		step_start<16>(p, s, columns, stream);
}

/* ---- complex products of each frequency ------------------------------------------------------ */

#define SIDE  32 /* of the tiles of a, b and y */
#define LINES 8	 /* threads are SIDE x LINES */

struct complex_tile {
	float re[SIDE][SIDE + 1], im[SIDE][SIDE + 1];
};

/* Elements [row0..,column0..] of a matrix, as many as it has there; the others are not written. */
template <typename T>
__device__ __forceinline__ void complex_load(const struct cuda_complex &c, int64_t row0,
	int64_t rows, int64_t column0, int64_t columns, struct complex_tile &ret)
{
	const bool by_row = c.column == 1; /* adjacent threads read adjacent columns, else rows */
	const int n_rows = (int)min(rows - row0, (int64_t)SIDE),
		  n_columns = (int)min(columns - column0, (int64_t)SIDE);
	const int lines = by_row ? n_rows : n_columns, width = by_row ? n_columns : n_rows;
	const int64_t step = by_row ? c.row : c.column;
	const T *from = as<const T>(c.data) + (int64_t)blockIdx.x * c.each + row0 * c.row +
			column0 * c.column + threadIdx.x + threadIdx.y * step;

	if ((int)threadIdx.x >= width)
		return;
#pragma unroll
	for (int n = 0; n < SIDE / LINES; n++) {
		const int i = threadIdx.y + LINES * n, r = by_row ? i : threadIdx.x,
			  k = by_row ? threadIdx.x : i;

		if (i >= lines)
			break;
		const float re = (float)from[n * LINES * step],
			    im = (float)from[n * LINES * step + c.imaginary];

		ret.re[r][k] = re;
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

/* The loss, and the factor of each norm's gradient. `team` threads of a warp share a norm. */
__global__ void __launch_bounds__(ENDERS)
	relative_end_kernel(struct cuda_relative p, int parts, int team)
{
	__shared__ double share[WARP];
	const double norms = (double)(p.outer * p.channels),
		     scale = p.scale / norms * (p.loss_scale ? (double)p.loss_scale[0] : 1);
	const int mine = threadIdx.x % team;
	double sum = 0;

	for (int64_t m0 = 0; m0 < p.outer * p.channels; m0 += ENDERS / team) {
		const int64_t m = m0 + threadIdx.x / team;
		const bool is_there = m < p.outer * p.channels;
		const double *from =
			p.partial + 2 * (m / p.channels * parts * p.channels + m % p.channels);
		double off = 0, size = 0;

#pragma unroll 8
		for (int i = mine; is_there && i < parts; i += team) {
			off += from[2 * p.channels * i];
			size += from[2 * p.channels * i + 1];
		}
		for (int other = team / 2; other; other /= 2) {
			off += __shfl_xor_sync(~0u, off, other);
			size += __shfl_xor_sync(~0u, size, other);
		}
		if (!is_there || mine)
			continue;
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
	relative_end_kernel<<<1, ENDERS, 0, stream>>>(*p, parts, parts >= PARTS ? 8 : 1);
	if (!p->dy.data)
		return;
	with_types(p->y, p->target, [&](auto y, auto target) {
		relative_grad_kernel<decltype(y), decltype(target)>
			<<<blocks_for(p->outer * p->points * p->channels, 256), 256, 0, stream>>>(
				*p);
	});
}
