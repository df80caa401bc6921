/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two norms of x[rows,c] whose sum goes through a ReLU, those at the end of a residual block with a
 * convolution in both branches. The result of the second norm and the gradient that both share are
 * not stored. In f32 all values are those of batchnorm.cu, bit by bit; in 16 bits the result of the
 * second norm is not rounded.
 */
#include "batchnorm.cuh"

/* Rows that a thread of pair_kernel loads before it uses the first. In packs, add is x of the other
 * norm. */
#define GRAD_PAIR_AHEAD 2

/* ---- apply ----------------------------------------------------------------------------------- */

template <int N>
__device__ __forceinline__ void load_norm(const struct cuda_bn &p, int64_t at, channels<N> &ret)
{
	load(p.mean + at, ret.mean);
	load_scale(p.rstd, p.gamma, at, ret.scale);
	load(p.beta + at, ret.shift);
}

/* p: the norm that the result of the other one is added to. */
template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT)
	apply_pair_kernel(struct cuda_bn p, struct cuda_bn other)
{
	const T *x = as<const T>(p.x), *x2 = as<const T>(other.x);
	int64_t at = column_of(N);
	channels<N> a, b;

	if (at >= p.c)
		return;
	load_norm(p, at, a);
	load_norm(other, at, b);
	over_rows<GRAD_AHEAD(T), packs<N, T>>(
		p.rows,
		[&](int64_t r, packs<N, T> &t) {
			int64_t i = (p.rows - 1 - r) * p.c + at;

			fetch<N>(x + i, t.x);
			fetch<N>(x2 + i, t.add);
		},
		[&](int64_t r, const packs<N, T> &t) {
			int64_t i = (p.rows - 1 - r) * p.c + at;
			float v[N], w[N];

			load(t.x.v, v);
			load(t.add.v, w);
#pragma unroll
			for (int k = 0; k < N; k++) {
				w[k] = normed(w[k], b.mean[k], b.scale[k], b.shift[k]);
				v[k] = normed(v[k], a.mean[k], a.scale[k], a.shift[k]) + w[k];
				if (p.relu)
					v[k] = v[k] < 0 ? 0 : v[k];
			}
			if (p.mask)
				p.mask[i / PACK] = bits_of(v);
			store_sum(as<T>(p.y) + i, v, p.accumulate);
		});
}

void cuda_bn_apply_pair(const struct cuda_bn *p, const struct cuda_bn *other, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, PACK, GRAD_RESIDENT);

	with_type(p->x, [&](auto t) {
		apply_pair_kernel<PACK, decltype(t)>
			<<<shape.grid, shape.block, 0, stream>>>(*p, *other);
	});
}

/* ---- gradient -------------------------------------------------------------------------------- */

template <enum mask M, int N, typename T>
__device__ __forceinline__ void fetch_pair(
	const struct cuda_bn_grad &p, const void *other, int64_t i, packs<N, T> &t)
{
	fetch<N>(as<const T>(p.dy) + i, t.dy);
	fetch<N>(as<const T>(p.x) + i, t.x);
	fetch<N>((const T *)other + i, t.add);
	if (M == MASK_Y)
		fetch<N>(as<const T>(p.y) + i, t.y);
	else
		t.open = p.mask[i / PACK];
}

/* Loads the gradient before the ReLU. */
template <enum mask M, int N, typename T>
__device__ __forceinline__ void widen_masked(const packs<N, T> &t, float (&e)[N])
{
	float y[N];

	load(t.dy.v, e);
	if (M == MASK_Y)
		load(t.y.v, y);
#pragma unroll
	for (int k = 0; k < N; k++)
		e[k] = (M == MASK_Y ? y[k] > 0 : t.open >> k & 1) ? e[k] : 0;
}

/* The sums for both norms, each in parts of its own. */
template <int N, typename T, enum mask M>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT) pair_sums(
	struct cuda_bn_grad p, struct cuda_bn_grad other, float *parts, float *other_parts)
{
	__shared__ float share[COLUMN_THREADS * N];
	float sum[N] = {}, copy[N], product[N] = {}, product2[N] = {}, mean[N], mean2[N];
	int64_t at = column_of(N);

	if (at < p.c) {
		load(p.mean + at, mean);
		load(other.mean + at, mean2);
		over_rows<GRAD_AHEAD(T), packs<N, T>>(
			p.rows,
			[&](int64_t r, packs<N, T> &t) {
				fetch_pair<M>(p, other.x.data, r * p.c + at, t);
			},
			[&](int64_t, const packs<N, T> &t) {
				float e[N], v[N], w[N];

				widen_masked<M>(t, e);
				load(t.x.v, v);
				load(t.add.v, w);
#pragma unroll
				for (int i = 0; i < N; i++) {
					sum[i] += e[i];
					product[i] += e[i] * (v[i] - mean[i]);
					product2[i] += e[i] * (w[i] - mean2[i]);
				}
			});
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		copy[i] = sum[i];
	leave_parts(sum, product, parts, p.c, share);
	leave_parts(copy, product2, other_parts, p.c, share);
}

template <int N>
__device__ __forceinline__ void gradient_of(
	const float (&e)[N], const channels<N> &c, const float (&first)[N], float (&v)[N])
{
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = c.scale[k] * (e[k] - first[k] - (v[k] - c.mean[k]) * c.shift[k]);
}

/* shift: the second sum. */
template <int N>
__device__ __forceinline__ void load_gradient(
	const struct cuda_bn_grad &p, const struct sums &s, int64_t at, channels<N> &ret)
{
	load(p.mean + at, ret.mean);
	load_scale(p.rstd, p.gamma, at, ret.scale);
	load(s.second + at, ret.shift);
}

/* Rows are handled from the last to the first, as in apply_pair_kernel. */
template <int N, typename T, enum mask M>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT)
	pair_kernel(struct cuda_bn_grad p, struct cuda_bn_grad other, struct sums s, struct sums s2)
{
	int64_t at = column_of(N);
	channels<N> a, b;
	float first[N];

	if (at >= p.c)
		return;
	load_gradient(p, s, at, a);
	load_gradient(other, s2, at, b);
	load(s.first + at, first); /* both norms have the same sum of e */
	over_rows<GRAD_PAIR_AHEAD, packs<N, T>>(
		p.rows,
		[&](int64_t r, packs<N, T> &t) {
			fetch_pair<M>(p, other.x.data, (p.rows - 1 - r) * p.c + at, t);
		},
		[&](int64_t r, const packs<N, T> &t) {
			int64_t i = (p.rows - 1 - r) * p.c + at;
			float e[N], v[N];

			widen_masked<M>(t, e);
			load(t.x.v, v);
			gradient_of(e, a, first, v);
			store_sum(as<T>(p.dx) + i, v, p.accumulate & JM_ADD_OUT);
			load(t.add.v, v);
			gradient_of(e, b, first, v);
			store_sum(as<T>(other.dx) + i, v, other.accumulate & JM_ADD_OUT);
		});
}

template <typename T, enum mask M>
static void grad_pair(
	const struct cuda_bn_grad *p, const struct cuda_bn_grad *other, cudaStream_t stream)
{
	struct columns shape = columns_of(p->rows, p->c, PACK, GRAD_RESIDENT);
	struct sums s = sums_of(p->scratch, p->c), s2 = sums_of(other->scratch, p->c);
	dim3 grid(blocks_for(p->c, WARP)), block(WARP, WARP);

	pair_sums<PACK, T, M>
		<<<shape.grid, shape.block, 0, stream>>>(*p, *other, s.parts, s2.parts);
	grad_finish<<<grid, block, 0, stream>>>(*p, s, (int)shape.grid.y);
	grad_finish<<<grid, block, 0, stream>>>(*other, s2, (int)shape.grid.y);
	pair_kernel<PACK, T, M><<<shape.grid, shape.block, 0, stream>>>(*p, *other, s, s2);
}

void cuda_bn_grad_pair(
	const struct cuda_bn_grad *p, const struct cuda_bn_grad *other, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		p->mask ? grad_pair<T, MASK_BITS>(p, other, stream)
			: grad_pair<T, MASK_Y>(p, other, stream);
	});
}
