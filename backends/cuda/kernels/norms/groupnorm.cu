/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm of x[batch,pixels,c], c fastest, with SiLU or without. A thread handles a pack of
 * channels of some pixels of an image, as in rows.cuh; blockIdx.z is the image. A pass over the
 * images leaves two sums of each channel as parts[batch][gridDim.y][2][c]; a small kernel adds them
 * up to what a group needs, in f64; and a second pass writes the result, of the last images first,
 * which may still be in the cache. Small images are read once (groupnorm_cluster.cu).
 *
 *	forward	 sums of x - s and (x - s)^2, where s is near the mean of the channel, so that the
 *		 variance is no difference of large numbers
 *	gradient sums of e and e h, which are dbeta and dgamma, too: e = dy silu'(t), h = (x - mean)
 *		 rstd
 */
#include "groupnorm.cuh"
#include "rows_ahead.cuh"

#define LEAST_ROWS 4	/* of a thread, if there are enough blocks */
#define RESIDENT   2	/* blocks of a pass on a multiprocessor */
#define BLOCKS	   1584 /* of a pass, about: those of 132 multiprocessors, six times */
#define WARPS	   8	/* of a block that adds parts; each has a group */

/* Of N channels of an image: t = (x - mean) scale + beta. */
template <int N> struct group_line {
	float mean[N], scale[N], beta[N];
};

/* The group of a channel of an image. */
__device__ __forceinline__ int64_t group_of(const struct cuda_groups &p, int64_t image, int64_t c)
{
	return image * p.groups + (int)c / (p.c / p.groups);
}

template <int N>
__device__ __forceinline__ void line_of(
	const struct cuda_groups &p, int64_t image, int64_t at, group_line<N> &ret)
{
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t group = group_of(p, image, at + k);

		ret.mean[k] = p.mean[group];
		ret.scale[k] = p.rstd[group] * p.gamma[at + k];
		ret.beta[k] = p.beta[at + k];
	}
}

/* The image of a block in the second pass. */
__device__ __forceinline__ int64_t image_again()
{
	return gridDim.z - 1 - blockIdx.z;
}

/* ---- the first pass -------------------------------------------------------------------------- */

/* Adds x - shift and its square. */
template <int N, typename T>
__device__ __forceinline__ void add_row(
	const packed<N, T> &x, const float (&shift)[N], float (&first)[N], float (&second)[N])
{
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float d = x.at(k) - shift[k];

		first[k] += d;
		second[k] += d * d;
	}
}

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS, RESIDENT)
	group_sums_kernel(struct cuda_groups p)
{
	__shared__ union {
		rows_ahead<1, N, T> ahead;
		float sums[COLUMN_THREADS * N];
	} share;
	const int64_t at = column_of(N), c = p.c;
	const T *const images[] = {as<const T>(p.x) + blockIdx.z * p.pixels * c + at};
	float first[N] = {}, second[N] = {}, shift[N];

	if (at < c) {
		shifts_of<N, T>(p, blockIdx.z, at, shift);
		over_ahead(p.pixels, c, images, share.ahead, [&](const packed<N, T> *row) {
			add_row(*row, shift, first, second);
		});
	}
	leave_parts(first, second, p.scratch + blockIdx.z * gridDim.y * 2 * c, c, share.sums);
}

/* The same of x that is made, and written. */
template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS, RESIDENT)
	group_made_kernel(struct cuda_groups p)
{
	__shared__ union {
		rows_ahead<2, N, T> ahead;
		float sums[COLUMN_THREADS * N];
	} share;
	const int64_t at = column_of(N), c = p.c, image = blockIdx.z,
		      first_at = image * p.pixels * c + at;
	float first[N] = {}, second[N] = {}, shift[N];

	if (at < c) {
		const group_place<T> from = place_of<T>(p, p.sum[0], image, 0, (int)at);
		const T *b = as<const T>(p.sum[1]) + (p.grows ? image * c + at : first_at);
		const T *const images[] = {from.at, p.n_parts || p.grows ? NULL : b};
		T *x = as<T>(p.x) + first_at;
		packed<N, T> same = {};
		auto make = [&](const packed<N, T> &row, const packed<N, T> &other) {
			packed<N, T> ret;
			float v[N];

#pragma unroll
			for (int k = 0; k < N; k++)
				v[k] = row.at(k) + other.at(k);
			store(reinterpret_cast<T *>(&ret), v);
			return ret;
		};

		if (p.grows)
			fetch(b, same);
		shifts_by<N, T>(p.pixels, shift, [&](int64_t pixel, packed<N, T> &part) {
			packed<N, T> other = same;

			fetch(images[0] + pixel * from.c, part);
			if (images[1])
				fetch(images[1] + pixel * c, other);
			part = make(part, other);
		});
		x += first_row() * c;
		over_ahead(p.pixels, from.c, images, share.ahead, [&](const packed<N, T> *row) {
			packed<N, T> made = same;

			if (images[1])
				made = row[1];
			made = make(row[0], made);
			*reinterpret_cast<packed<N, T> *>(x) = made;
			x += row_step() * c;
			add_row(made, shift, first, second);
		});
	}
	leave_parts(first, second, p.scratch + image * gridDim.y * 2 * c, c, share.sums);
}

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS, RESIDENT)
	group_slopes_kernel(struct cuda_groups p)
{
	__shared__ union {
		rows_ahead<2, N, T> ahead;
		float sums[COLUMN_THREADS * N];
	} share;
	const int64_t at = column_of(N), c = p.c, first_at = blockIdx.z * p.pixels * c + at;
	const T *const images[] = {as<const T>(p.x) + first_at, as<const T>(p.y) + first_at};
	float first[N] = {}, second[N] = {};

	if (at < c) {
		group_line<N> line;

		line_of(p, blockIdx.z, at, line);
		over_ahead(p.pixels, c, images, share.ahead, [&](const packed<N, T> *row) {
#pragma unroll
			for (int k = 0; k < N; k++) {
				const float d = row[0].at(k) - line.mean[k];
				const float t = d * line.scale[k] + line.beta[k];
				const float e = slope_of<T>(p, row[1].at(k), t);

				first[k] += e;
				second[k] += e * d;
			}
		});
#pragma unroll
		for (int k = 0; k < N; k++)
			second[k] *= p.rstd[group_of(p, blockIdx.z, at + k)];
	}
	leave_parts(first, second, p.scratch + blockIdx.z * gridDim.y * 2 * c, c, share.sums);
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
__global__ void __launch_bounds__(COLUMN_THREADS, RESIDENT)
	group_apply_kernel(struct cuda_groups p)
{
	__shared__ rows_ahead<2, N, T> ahead;
	const bool add = p.accumulate & JM_ADD_OUT;
	const int64_t at = column_of(N), first = image_again() * p.pixels * p.c + at;
	T *y = as<T>(p.y) + first;
	const T *const images[] = {as<const T>(p.x) + first, add ? y : NULL};
	group_line<N> line;

	if (at >= p.c)
		return;
	line_of(p, image_again(), at, line);
	y += first_row() * p.c;
	over_ahead(p.pixels, p.c, images, ahead, [&](const packed<N, T> *row) {
		float v[N];
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float t =
				(row[0].at(k) - line.mean[k]) * line.scale[k] + line.beta[k];

			v[k] = p.silu ? t * sigmoid<T>(t) : t;
		}
		if (add)
			add_row(row[1], v);
		store(y, v);
		y += row_step() * p.c;
	});
}

template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS, RESIDENT)
	group_grad_kernel(struct cuda_groups p, const float *ends)
{
	__shared__ rows_ahead<3, N, T> ahead;
	const bool add = p.accumulate & JM_ADD_OUT;
	const int64_t at = column_of(N), first = image_again() * p.pixels * p.c + at;
	const T *const images[] = {as<const T>(p.x) + first, as<const T>(p.y) + first,
		add ? as<const T>(p.dx) + first : NULL};
	float mean[N], product[N];
	group_line<N> line;
	group_place<T> dx;

	if (at >= p.c)
		return;
	dx = place_of<T>(p, p.dx, image_again(), first_row(), (int)at);
	if (!dx.at)
		return;
	line_of(p, image_again(), at, line);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t group = group_of(p, image_again(), at + k);
		const float rstd = p.rstd[group];

		mean[k] = rstd * ends[2 * group];
		product[k] = rstd * rstd * ends[2 * group + 1];
	}
	over_ahead(p.pixels, p.c, images, ahead, [&](const packed<N, T> *row) {
		float v[N];
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float d = row[0].at(k) - line.mean[k];
			const float t = d * line.scale[k] + line.beta[k];
			const float e = slope_of<T>(p, row[1].at(k), t);

			v[k] = e * line.scale[k] - mean[k] - d * product[k];
		}
		if (add)
			add_row(row[2], v);
		store(dx.at, v);
		dx.at += row_step() * dx.c;
	});
}

/* ---- starting -------------------------------------------------------------------------------- */

static int pack_of(const struct cuda_groups *p)
{
	for (int i = 0; i < p->n_parts; i++)
		if (p->width[i] % PACK)
			return 1;
	return p->c % PACK ? 1 : PACK;
}

static bool is_made(const struct cuda_groups *p)
{
	return p->sum[0].data || p->n_parts;
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
	want = p->pixels / (LEAST_ROWS * ret.block.y);
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
		some.sum[0] = from(p->sum[0], n);
		some.sum[1] = from(p->sum[1], p->grows ? first * p->c : n);
		some.dx = from(p->dx, n);
		for (int i = 0; i < p->n_parts; i++)
			some.part[i] = from(p->part[i], first * p->pixels * p->width[i]);
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
		if (is_made(p))
			group_made_kernel<N, T><<<grid, s.block, 0, stream>>>(some);
		else
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

	if (!is_made(p) && cuda_groups_cluster(p, stream))
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
