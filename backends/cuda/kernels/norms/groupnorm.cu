/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm of x[batch,pixels,c], c fastest, with SiLU or without. A thread handles a pack of
 * channels of some pixels of an image, as in rows.cuh; blockIdx.z is the image. A pass over the
 * images leaves two sums of each channel as parts[batch][gridDim.y][2][c]; a small kernel adds them
 * up to what a group needs, in f64; and a second pass writes the result. Small images are read once
 * (groupnorm_cluster.cu).
 *
 *	forward	 sums of x - s and (x - s)^2, where s is near the mean of the channel, so that the
 *		 variance is no difference of large numbers
 *	gradient sums of e and e h, which are dbeta and dgamma, too: e = dy silu'(t), h = (x - mean)
 *		 rstd
 */
#include "groupnorm.cuh"
#include "../rows.cuh"

#define AHEAD  4    /* rows that a thread loads at a time */
#define BLOCKS 1584 /* of a pass, about: three for each of 132 multiprocessors, four times */
#define WARPS  8    /* of a block that adds parts; each has a group */

/* Of N channels of an image: t = (x - mean) scale + beta. */
template <int N> struct group_line {
	float mean[N], scale[N], beta[N], rstd[N];
};

template <int N>
__device__ __forceinline__ void line_of(const struct cuda_groups &p, int64_t at, group_line<N> &ret)
{
	const int each = p.c / p.groups;
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t group = (int64_t)blockIdx.z * p.groups + (at + k) / each;

		ret.mean[k] = p.mean[group];
		ret.rstd[k] = p.rstd[group];
		ret.scale[k] = ret.rstd[k] * p.gamma[at + k];
		ret.beta[k] = p.beta[at + k];
	}
}

template <int N, typename T> struct group_part {
	packed<N, T> x, dy;
};

/* Calls use(row, part) for all rows of a thread whose pack begins at channel `at`. */
template <bool GRAD, int N, typename T, class USE>
__device__ __forceinline__ void over_pixels(const struct cuda_groups &p, int64_t at, USE use)
{
	const int64_t first = (int64_t)blockIdx.z * p.pixels * p.c + at;
	const T *x = as<const T>(p.x) + first, *dy = as<const T>(p.y) + first;
	auto get = [&](int64_t r, group_part<N, T> &part) {
		fetch(x + r * p.c, part.x);
		if constexpr (GRAD)
			fetch(dy + r * p.c, part.dy);
	};

	over_rows<AHEAD, group_part<N, T>>(p.pixels, get, use);
}

/* ---- the first pass -------------------------------------------------------------------------- */

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS) group_sums_kernel(struct cuda_groups p)
{
	__shared__ float share[COLUMN_THREADS * N];
	const int64_t at = column_of(N), c = p.c;
	float first[N] = {}, second[N] = {}, shift[N];

	if (at < c) {
		shifts_of<N, T>(p, blockIdx.z, at, shift);
		over_pixels<false, N, T>(p, at, [&](int64_t, const group_part<N, T> &part) {
#pragma unroll
			for (int k = 0; k < N; k++) {
				const float d = part.x.at(k) - shift[k];

				first[k] += d;
				second[k] += d * d;
			}
		});
	}
	leave_parts(first, second, p.scratch + blockIdx.z * gridDim.y * 2 * c, c, share);
}

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS) group_slopes_kernel(struct cuda_groups p)
{
	__shared__ float share[COLUMN_THREADS * N];
	const int64_t at = column_of(N), c = p.c;
	float first[N] = {}, second[N] = {};

	if (at < c) {
		group_line<N> line;

		line_of(p, at, line);
		over_pixels<true, N, T>(p, at, [&](int64_t, const group_part<N, T> &part) {
#pragma unroll
			for (int k = 0; k < N; k++) {
				const float d = part.x.at(k) - line.mean[k];
				const float t = d * line.scale[k] + line.beta[k];
				const float e = slope_of<T>(p, part.dy.at(k), t);

				first[k] += e;
				second[k] += e * d;
			}
		});
#pragma unroll
		for (int k = 0; k < N; k++)
			second[k] *= line.rstd[k];
	}
	leave_parts(first, second, p.scratch + blockIdx.z * gridDim.y * 2 * c, c, share);
}

/* ---- what groups and channels need ----------------------------------------------------------- */

/* The mean over a group of what value(c, part, pair) gives for each part of each of its channels;
 * pair: the part's two sums, p.c apart. */
template <class VALUE>
__device__ __forceinline__ double group_mean(
	const struct cuda_groups &p, int parts, int64_t group, VALUE value)
{
	const int each = p.c / p.groups, from = (int)(group % p.groups) * each;
	const float *data = p.scratch + group / p.groups * parts * 2 * p.c;
	double sum = 0;

	for (int i = threadIdx.x % WARP; i < parts * each; i += WARP) {
		const int c = from + i % each, part = i / each;

		sum += value(c, part, data + (int64_t)part * 2 * p.c + c);
	}
	return warp_sum(sum) / ((double)p.pixels * each);
}

__device__ __forceinline__ int64_t group_of_warp()
{
	return (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
}

template <typename T> __global__ void group_means_kernel(struct cuda_groups p, int parts)
{
	const int64_t group = group_of_warp();

	if (group >= (int64_t)p.batch * p.groups)
		return;
	auto shift_of = [&](int c) {
		float shift[1];

		shifts_of<1, T>(p, group / p.groups, c, shift);
		return (double)shift[0];
	};
	const double mean = group_mean(p, parts, group, [&](int c, int part, const float *pair) {
		return (double)pair[0] + (part ? 0 : (double)p.pixels * shift_of(c));
	});
	/* of (x - mean)^2 = (x - s)^2 - 2 d (x - s) + d^2, where d = mean - s */
	const double square = group_mean(p, parts, group, [&](int c, int part, const float *pair) {
		const double d = mean - shift_of(c);

		return (double)pair[p.c] - 2 * d * (double)pair[0] +
		       (part ? 0 : (double)p.pixels * d * d);
	});

	if (threadIdx.x % WARP)
		return;
	p.mean[group] = (float)mean;
	p.rstd[group] = rstd_of(square, p.eps);
}

/* The means of e gamma and e gamma h, which follow the parts. */
__global__ void group_ends_kernel(struct cuda_groups p, int parts, float *ends)
{
	const int64_t group = group_of_warp();

	if (group >= (int64_t)p.batch * p.groups)
		return;
	for (int k = 0; k < 2; k++) {
		const double mean = group_mean(p, parts, group, [&](int c, int, const float *pair) {
			return (double)p.gamma[c] * (double)pair[k * p.c];
		});

		if (threadIdx.x % WARP == 0)
			ends[2 * group + k] = (float)mean;
	}
}

/* dgamma and dbeta: the sums over all parts of all images. */
__global__ void group_columns_kernel(struct cuda_groups p, int parts)
{
	__shared__ double share[WARP][WARP + 1];
	const two_sums s = gather_parts(p.scratch, p.batch * parts, p.c, share);
	const int64_t c = gathered_channel();

	if (threadIdx.x || c >= p.c)
		return;
	p.dgamma[c] = (float)s.second + (p.accumulate & JM_ADD_NORM_DGAMMA ? p.dgamma[c] : 0);
	p.dbeta[c] = (float)s.first + (p.accumulate & JM_ADD_NORM_DBETA ? p.dbeta[c] : 0);
}

/* ---- the second pass ------------------------------------------------------------------------- */

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS) group_apply_kernel(struct cuda_groups p)
{
	const int64_t at = column_of(N), c = p.c;
	T *y = as<T>(p.y) + blockIdx.z * p.pixels * c + at;
	group_line<N> line;

	if (at >= c)
		return;
	line_of(p, at, line);
	over_pixels<false, N, T>(p, at, [&](int64_t r, const group_part<N, T> &part) {
		float v[N];
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float t =
				(part.x.at(k) - line.mean[k]) * line.scale[k] + line.beta[k];

			v[k] = p.silu ? t * sigmoid<T>(t) : t;
		}
		store_sum(y + r * c, v, p.accumulate & JM_ADD_OUT);
	});
}

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS)
	group_grad_kernel(struct cuda_groups p, const float *ends)
{
	const int64_t at = column_of(N), c = p.c;
	T *dx = as<T>(p.dx) + blockIdx.z * p.pixels * c + at;
	float mean[N], product[N];
	group_line<N> line;

	if (at >= c)
		return;
	line_of(p, at, line);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float *end = ends + 2 * (blockIdx.z * p.groups + (at + k) / (c / p.groups));

		mean[k] = line.rstd[k] * end[0];
		product[k] = line.rstd[k] * line.rstd[k] * end[1];
	}
	over_pixels<true, N, T>(p, at, [&](int64_t r, const group_part<N, T> &part) {
		float v[N];
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float d = part.x.at(k) - line.mean[k];
			const float t = d * line.scale[k] + line.beta[k];
			const float e = slope_of<T>(p, part.dy.at(k), t);

			v[k] = e * line.scale[k] - mean[k] - d * product[k];
		}
		store_sum(dx + r * c, v, p.accumulate & JM_ADD_OUT);
	});
}

/* ---- starting -------------------------------------------------------------------------------- */

static int pack_of(const struct cuda_groups *p)
{
	return p->c % PACK ? 1 : PACK;
}

/* As many threads along the channels as leave few without work. */
static struct columns shape_of(const struct cuda_groups *p)
{
	const int64_t packs = p->c / pack_of(p);
	int64_t tx = WARP, most, want;
	struct columns ret;

	while (tx > PACK && packs % tx)
		tx /= 2;
	ret.block = dim3((unsigned)tx, (unsigned)(COLUMN_THREADS / tx));
	ret.grid = dim3((unsigned)((packs + tx - 1) / tx), 1, 1);
	most = BLOCKS / ((int64_t)ret.grid.x * p->batch);
	want = p->pixels / (AHEAD * ret.block.y);
	if (want > 1 && most > 1)
		ret.grid.y = (unsigned)(want < most ? want : most);
	return ret;
}

size_t cuda_groups_scratch(const struct cuda_groups *p)
{
	const int64_t parts = shape_of(p).grid.y, each = 2 * (parts * p->c + p->groups);

	return (size_t)(p->batch * each) * sizeof(float);
}

/* Calls start(some, grid, first) for images of the batch. */
template <class START>
static void by_groups(const struct cuda_groups *p, const struct columns &s, START start)
{
	by_images(p->batch, 1, [&](int64_t first, int images) {
		const int64_t n = first * p->pixels * p->c;
		struct cuda_groups some = *p;

		some.batch = images;
		some.x = from(p->x, n);
		some.y = from(p->y, n);
		some.dx = from(p->dx, n);
		some.mean += first * p->groups;
		some.rstd += first * p->groups;
		some.scratch += first * s.grid.y * 2 * p->c;
		start(some, dim3(s.grid.x, s.grid.y, (unsigned)images), first);
	});
}

template <int N, typename T>
static void groupnorm(const struct cuda_groups *p, const struct columns &s, cudaStream_t stream)
{
	by_groups(p, s, [&](const struct cuda_groups &some, dim3 grid, int64_t) {
		group_sums_kernel<N, T><<<grid, s.block, 0, stream>>>(some);
	});
	group_means_kernel<T>
		<<<blocks_for((int64_t)p->batch * p->groups, WARPS), WARPS * WARP, 0, stream>>>(
			*p, (int)s.grid.y);
	by_groups(p, s, [&](const struct cuda_groups &some, dim3 grid, int64_t) {
		group_apply_kernel<N, T><<<grid, s.block, 0, stream>>>(some);
	});
}

template <int N, typename T>
static void groupnorm_grad(
	const struct cuda_groups *p, const struct columns &s, cudaStream_t stream)
{
	const int parts = (int)s.grid.y;
	float *ends = p->scratch + (int64_t)p->batch * parts * 2 * p->c;

	by_groups(p, s, [&](const struct cuda_groups &some, dim3 grid, int64_t) {
		group_slopes_kernel<N, T><<<grid, s.block, 0, stream>>>(some);
	});
	group_ends_kernel<<<blocks_for((int64_t)p->batch * p->groups, WARPS), WARPS * WARP, 0,
		stream>>>(*p, parts, ends);
	group_columns_kernel<<<blocks_for(p->c, WARP), dim3(WARP, WARP), 0, stream>>>(*p, parts);
	by_groups(p, s, [&](const struct cuda_groups &some, dim3 grid, int64_t first) {
		group_grad_kernel<N, T>
			<<<grid, s.block, 0, stream>>>(some, ends + first * 2 * p->groups);
	});
}

void cuda_groupnorm(const struct cuda_groups *p, cudaStream_t stream)
{
	const struct columns s = shape_of(p);

	if (cuda_groups_cluster(p, stream))
		return;
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		pack_of(p) == PACK ? groupnorm<PACK, T>(p, s, stream)
				   : groupnorm<1, T>(p, s, stream);
	});
}

void cuda_groupnorm_grad(const struct cuda_groups *p, cudaStream_t stream)
{
	const struct columns s = shape_of(p);

	if (cuda_groups_cluster_grad(p, stream)) {
		group_columns_kernel<<<blocks_for(p->c, WARP), dim3(WARP, WARP), 0, stream>>>(
			*p, 1);
		return;
	}
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		pack_of(p) == PACK ? groupnorm_grad<PACK, T>(p, s, stream)
				   : groupnorm_grad<1, T>(p, s, stream);
	});
}
