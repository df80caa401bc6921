/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm of x[rows,c], channels last. The channel's first element is subtracted from x before
 * summing, so that a large mean loses no digits; partial sums in f32, their sum over blocks in f64.
 */
#include "batchnorm.cuh"

size_t cuda_bn_scratch(int64_t c)
{
	return sizeof(float) * (size_t)c * (2 + 2 * (COLUMN_BLOCKS + 1));
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* backwards: from the last row to the first, because the last ones may still be in the cache. */
template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS, COLUMN_RESIDENT(T))
	stats_kernel(const T *__restrict__ x, float *parts, int64_t rows, int64_t c, bool backwards)
{
	__shared__ float share[COLUMN_THREADS * N];
	float shift[N], sum[N] = {}, squares[N] = {};
	int64_t at = column_of(N);

	if (at < c) {
		load(x + at, shift);
		over_rows<4, raw<N, T>>(
			rows,
			[&](int64_t r, raw<N, T> &t) {
				fetch<N>(x + (backwards ? rows - 1 - r : r) * c + at, t);
			},
			[&](int64_t, const raw<N, T> &t) {
				float v[N];

				load(t.v, v);
				add_shifted(v, shift, sum, squares);
			});
	}
	leave_parts(sum, squares, parts, c, share);
}

/* x: what was subtracted from each row; NULL = nothing. */
template <typename T, typename P>
__global__ void stats_finish(struct cuda_bn p, const T *x, const P *parts, int n)
{
	__shared__ double share[WARP][WARP + 1];
	wait_for_previous();
	two_sums s = gather_parts(parts, n, p.c, share);
	int64_t at = gathered_channel();
	double mean, var;

	if (threadIdx.x || at >= p.c)
		return;
	mean = s.first / (double)p.rows;
	var = s.second / (double)p.rows - mean * mean;
	var = var < 0 ? 0 : var;
	p.mean[at] = (float)(mean + (x ? (float)x[at] : 0.0F));
	p.var[at] = (float)var;
	if (p.rstd)
		finalize(p, at, p.mean[at], p.var[at]);
}

template <int N, typename T> static void stats(const struct cuda_bn *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N, COLUMN_RESIDENT(T));
	float *parts = sums_of(p->scratch, p->c).parts;

	stats_kernel<N><<<shape.grid, shape.block, 0, stream>>>(
		as<const T>(p->x), parts, p->rows, p->c, p->backwards);
	start_finish(stats_finish<T, float>, p->c, stream, *p, as<const T>(p->x), parts,
		(int)shape.grid.y);
}

void cuda_bn_stats(const struct cuda_bn *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		packs ? stats<PACK, T>(p, stream) : stats<1, T>(p, stream);
	});
}

void cuda_bn_of_parts(const struct cuda_bn *p, const double *parts, int n, cudaStream_t stream)
{
	start_finish(stats_finish<float, double>, p->c, stream, *p, (const float *)NULL, parts, n);
}

__global__ void sums_kernel(struct cuda_bn p, const float *sum, const float *squares)
{
	int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	double mean, var;

	if (at >= p.c)
		return;
	mean = sum[at] / (double)p.rows;
	var = squares[at] / (double)p.rows - mean * mean;
	p.mean[at] = (float)mean;
	p.var[at] = (float)(var < 0 ? 0 : var);
	if (p.rstd)
		finalize(p, at, p.mean[at], p.var[at]);
}

void cuda_bn_of_sums(
	const struct cuda_bn *p, const float *sum, const float *squares, cudaStream_t stream)
{
	sums_kernel<<<blocks_for(p->c, COLUMN_THREADS), COLUMN_THREADS, 0, stream>>>(
		*p, sum, squares);
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

/* ---- apply ----------------------------------------------------------------------------------- */

/*
 * Rows are handled from the last to the first, because the last rows of the previous pass may still
 * be in the cache.
 */
template <int N, typename T, bool ADD>
__global__ void __launch_bounds__(COLUMN_THREADS, COLUMN_RESIDENT(T)) apply_kernel(struct cuda_bn p)
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
	over_rows<ADD ? 2 : 4, packs<N, T>>(
		p.rows,
		[&](int64_t r, packs<N, T> &t) {
			int64_t i = (p.rows - 1 - r) * p.c + at;

			fetch<N>(x + i, t.x);
			if (ADD)
				fetch<N>(add + i, t.add);
		},
		[&](int64_t r, const packs<N, T> &t) {
			float v[N], w[N];

			load(t.x.v, v);
			if (ADD)
				load(t.add.v, w);
#pragma unroll
			for (int i = 0; i < N; i++) {
				v[i] = normed(v[i], mean[i], scale[i], shift[i]) + (ADD ? w[i] : 0);
				if (p.relu)
					v[i] = v[i] < 0 ? 0 : v[i];
			}
			if (ADD && N == PACK && p.mask)
				p.mask[((p.rows - 1 - r) * p.c + at) / PACK] = bits_of(v);
			store_sum(y + (p.rows - 1 - r) * p.c + at, v, p.accumulate);
		});
}

template <int N, typename T> static void apply(const struct cuda_bn *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N, COLUMN_RESIDENT(T));

	if (p->add.data)
		apply_kernel<N, T, true><<<shape.grid, shape.block, 0, stream>>>(*p);
	else
		apply_kernel<N, T, false><<<shape.grid, shape.block, 0, stream>>>(*p);
}

void cuda_bn_apply(const struct cuda_bn *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		packs ? apply<PACK, T>(p, stream) : apply<1, T>(p, stream);
	});
}

/* ---- gradient -------------------------------------------------------------------------------- */

template <enum mask M, int N, typename T>
__device__ __forceinline__ void fetch_both(const struct cuda_bn_grad &p, int64_t i, packs<N, T> &t)
{
	fetch<N>((const T *)(M == MASK_KEPT ? p.dadd.data : p.dy.data) + i, t.dy);
	fetch<N>((const T *)p.x.data + i, t.x);
	if (M == MASK_Y)
		fetch<N>((const T *)p.y.data + i, t.y);
	if (M == MASK_BITS)
		t.open = p.mask[i / PACK];
}

/* KEEP: this pass stores e in dadd. */
template <int N, typename T, enum mask M, bool KEEP>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT)
	grad_sums(struct cuda_bn_grad p, float *parts)
{
	__shared__ float share[COLUMN_THREADS * N];
	float sum[N] = {}, product[N] = {};
	int64_t at = column_of(N);
	channels<N> c;

	if (at < p.c) {
		load_channels<N, M>(p, at, c);
		over_rows<GRAD_AHEAD(T), packs<N, T>>(
			p.rows,
			[&](int64_t r, packs<N, T> &t) { fetch_both<M>(p, r * p.c + at, t); },
			[&](int64_t r, const packs<N, T> &t) {
				float e[N], v[N];

				widen_both<M>(t, c, e, v);
				if (KEEP)
					store((T *)p.dadd.data + r * p.c + at, e);
#pragma unroll
				for (int i = 0; i < N; i++) {
					sum[i] += e[i];
					product[i] += e[i] * v[i];
				}
			});
	}
	leave_parts(sum, product, parts, p.c, share);
}

/* Rows are handled from the last to the first, as in apply_kernel. */
template <int N, typename T, enum mask M, bool AGAIN>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT)
	grad_kernel(struct cuda_bn_grad p, struct sums s)
{
	float first[N], second[N];
	int64_t at = column_of(N);
	channels<N> c;

	wait_for_previous();
	if (at >= p.c)
		return;
	load_channels<N, M, AGAIN>(p, at, c);
	load(s.first + at, first);
	load(s.second + at, second);
	over_rows<GRAD_AHEAD(T), packs<N, T>>(
		p.rows,
		[&](int64_t r, packs<N, T> &t) {
			fetch_both<M>(p, (p.rows - 1 - r) * p.c + at, t);
		},
		[&](int64_t r, const packs<N, T> &t) {
			int64_t i = (p.rows - 1 - r) * p.c + at;
			float e[N], v[N];

			widen_both<M>(t, c, e, v);
			if constexpr (AGAIN)
				store_normed((T *)p.again.data + i, c, v);
#pragma unroll
			for (int k = 0; k < N; k++)
				v[k] = c.scale[k] * (e[k] - first[k] - v[k] * second[k]);
			store_sum((T *)p.dx.data + i, v, p.accumulate & JM_ADD_OUT);
			if (M != MASK_KEPT && p.dadd.data)
				store_sum((T *)p.dadd.data + i, e, p.accumulate & JM_ADD_NORM_DADD);
		});
}

template <int N, typename T, enum mask M, bool KEEP>
static void grad_masked(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, N, GRAD_RESIDENT);
	struct sums s = sums_of(p->scratch, p->c);

	grad_sums<N, T, M, KEEP><<<shape.grid, shape.block, 0, stream>>>(*p, s.parts);
	start_finish(grad_finish, p->c, stream, *p, s, (int)shape.grid.y);
	if (M == MASK_X && p->again.data)
		start_overlapping(
			grad_kernel<N, T, M, true>, shape.grid, shape.block, 0, stream, *p, s);
	else
		start_overlapping(grad_kernel<N, T, KEEP ? MASK_KEPT : M, false>, shape.grid,
			shape.block, 0, stream, *p, s);
}

/* Finds e by y or by the bits. */
template <int N, typename T, enum mask M>
static void grad_kept(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	if (p->dadd.data && !(p->accumulate & JM_ADD_NORM_DADD))
		grad_masked<N, T, M, true>(p, stream);
	else
		grad_masked<N, T, M, false>(p, stream);
}

void cuda_bn_grad_of_parts(
	const struct cuda_bn_grad *p, struct cuda_vec e, int n, cudaStream_t stream)
{
	struct sums s = sums_of(p->scratch, p->c);
	struct cuda_bn_grad q = *p;

	q.dadd = e;
	start_finish(grad_finish, p->c, stream, *p, s, n);
	with_type(p->x, [&](auto t) {
		using T = decltype(t);
		struct columns shape = columns_of(p->rows, p->c, PACK, GRAD_RESIDENT);

		start_overlapping(p->again.data ? grad_kernel<PACK, T, MASK_KEPT, true>
						: grad_kernel<PACK, T, MASK_KEPT, false>,
			shape.grid, shape.block, 0, stream, q, s);
	});
}

template <int N, typename T> static void grad(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	if (p->beta)
		grad_masked<N, T, MASK_X, false>(p, stream);
	else if (!p->y.data)
		grad_masked<N, T, MASK_NONE, false>(p, stream);
	else if (N == PACK && p->mask)
		grad_kept<N, T, N == PACK ? MASK_BITS : MASK_Y>(p, stream);
	else
		grad_kept<N, T, MASK_Y>(p, stream);
}

void cuda_bn_grad(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		packs ? grad<PACK, T>(p, stream) : grad<1, T>(p, stream);
	});
}
