/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of a norm, with or without ReLU, whose result x[B,Y,X,C] is max-pooled with windows
 * of 3 x 3, stride 2 and pad 1: both passes compute the gradient of the pooling from dy and the
 * saved positions, so that it is not stored. A thread handles four pixels, which lie in four
 * windows, and one pack of channels.
 */
#include "batchnorm.cuh"
#include "pool.cuh"

/* Calls use(element, e, x - mean) for all packs of the thread's channels; e is the gradient before
 * the ReLU. last: from the last pixels to the first, which may still be in the cache. */
template <typename T, enum mask M, class USE>
__device__ __forceinline__ void over_quads(
	const struct cuda_bn_grad &p, const struct cuda_pool &q, int64_t at, bool last, USE use)
{
	const int half[2] = {(q.in[0] + 1) / 2, (q.in[1] + 1) / 2};
	int64_t quads = (int64_t)q.batch * half[0] * half[1];
	channels<PACK> c;

	load_channels<PACK, M>(p, at, c);
	for (int64_t r = first_row(); r < quads; r += row_step()) {
		unsigned i = (unsigned)(last ? quads - 1 - r : r);
		place from = {(int)(i / half[1] / half[0]), (int)(i / half[1] % half[0]),
			(int)(i % half[1]), (int)at};
		float e[2][2][PACK];
		raw<PACK, T> x[4];

#pragma unroll
		for (int k = 0; k < 4; k++)
			if (2 * from.y + k / 2 < q.in[0] && 2 * from.x + k % 2 < q.in[1])
				fetch<PACK>(as<const T>(p.x) + offset(q.in, q.c, from.b,
								       2 * from.y + k / 2,
								       2 * from.x + k % 2, from.c),
					x[k]);
		four_gradients<T>(q, from, e);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			float v[PACK];

			if (2 * from.y + k / 2 >= q.in[0] || 2 * from.x + k % 2 >= q.in[1])
				continue;
			load(x[k].v, v);
#pragma unroll
			for (int j = 0; j < PACK; j++) {
				if (M == MASK_X &&
					!(normed(v[j], c.mean[j], c.scale[j], c.shift[j]) > 0))
					e[k / 2][k % 2][j] = 0;
				v[j] -= c.mean[j];
			}
			use(offset(q.in, q.c, from.b, 2 * from.y + k / 2, 2 * from.x + k % 2,
				    from.c),
				e[k / 2][k % 2], v, c);
		}
	}
}

template <typename T, enum mask M>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT)
	pooled_sums(struct cuda_bn_grad p, struct cuda_pool q, float *parts)
{
	__shared__ float share[COLUMN_THREADS * PACK];
	float sum[PACK] = {}, product[PACK] = {};
	int64_t at = column_of(PACK);

	if (at < p.c)
		over_quads<T, M>(p, q, at, false,
			[&](int64_t, const float(&e)[PACK], const float(&v)[PACK],
				const channels<PACK> &) {
#pragma unroll
				for (int i = 0; i < PACK; i++) {
					sum[i] += e[i];
					product[i] += e[i] * v[i];
				}
			});
	leave_parts(sum, product, parts, p.c, share);
}

template <typename T, enum mask M>
__global__ void __launch_bounds__(COLUMN_THREADS, GRAD_RESIDENT)
	pooled_kernel(struct cuda_bn_grad p, struct cuda_pool q, struct sums s)
{
	float first[PACK], second[PACK];
	int64_t at = column_of(PACK);

	wait_for_previous();
	if (at >= p.c)
		return;
	load(s.first + at, first);
	load(s.second + at, second);
	over_quads<T, M>(p, q, at, true,
		[&](int64_t i, const float(&e)[PACK], float(&v)[PACK], const channels<PACK> &c) {
#pragma unroll
			for (int k = 0; k < PACK; k++)
				v[k] = c.scale[k] * (e[k] - first[k] - v[k] * second[k]);
			store_sum(as<T>(p.dx) + i, v, p.accumulate & JM_ADD_OUT);
		});
}

template <typename T, enum mask M>
static void pooled(const struct cuda_bn_grad *p, const struct cuda_pool *q, cudaStream_t stream)
{
	int64_t quads = (int64_t)q->batch * ((q->in[0] + 1) / 2) * ((q->in[1] + 1) / 2);
	struct columns shape = columns_of(quads, p->c, PACK, GRAD_RESIDENT);
	struct sums s = sums_of(p->scratch, p->c);

	pooled_sums<T, M><<<shape.grid, shape.block, 0, stream>>>(*p, *q, s.parts);
	start_finish(grad_finish, p->c, stream, *p, s, (int)shape.grid.y);
	start_overlapping(pooled_kernel<T, M>, shape.grid, shape.block, 0, stream, *p, *q, s);
}

void cuda_bn_grad_pooled(
	const struct cuda_bn_grad *p, const struct cuda_pool *q, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		p->beta ? pooled<T, MASK_X>(p, q, stream) : pooled<T, MASK_NONE>(p, q, stream);
	});
}
