/* SPDX-License-Identifier: Apache-2.0 */
/* Rearranges squares of pixels of images with few channels into channels, and gradients of filters
 * back; adds images to every n-th pixel of others. */
#include "image_kernels.h"
#include "common.cuh"

#define THREADS 256

/* Channels [at, at + PACK) of pixel (i, j) of the folded image: (row in the square, column,
 * channel). */
template <int C, int STEP, typename X>
__device__ __forceinline__ void gather(
	const struct cuda_fold &p, const X *x, int i, int j, int at, float (&v)[PACK])
{
	const int channels = C ? C : p.c, high = STEP ? STEP : p.step[0],
		  wide = STEP ? STEP : p.step[1];

#pragma unroll
	for (int k = 0; k < PACK; k++) {
		int c = (at + k) % channels, square = (at + k) / channels;
		int row = high * i + square / wide + p.shift[0];
		int column = wide * j + square % wide + p.shift[1];
		bool inside = square < high * wide && row >= 0 && row < p.in[0] &&
			      column >= 0 && column < p.in[1];

		v[k] = inside ? (float)x[c * p.stride[1] + row * p.stride[2] + column * p.stride[3]]
			      : 0;
	}
}

/* A thread writes one pack of channels. C, STEP: constants for the compiler; 0 = given at run
 * time. */
template <int C, int STEP, typename X, typename Y>
__global__ void fold_kernel(struct cuda_fold p, unsigned n)
{
	unsigned index = blockIdx.x * blockDim.x + threadIdx.x, packs = p.wide / PACK, i = index;
	float v[PACK];

	if (index >= n)
		return;
	int at = (int)(i % packs) * PACK;
	i /= packs;
	int column = (int)(i % (unsigned)p.out[1]);
	i /= (unsigned)p.out[1];
	int row = (int)(i % (unsigned)p.out[0]);
	const X *x = (const X *)p.x.data + i / (unsigned)p.out[0] * p.stride[0];

	gather<C, STEP>(p, x, row, column, at, v);
	store((Y *)p.y.data + (int64_t)index * PACK, v);
}

template <typename X, typename Y> static void fold(const struct cuda_fold *p, cudaStream_t stream)
{
	int64_t n = (int64_t)p->batch * p->out[0] * p->out[1] * (p->wide / PACK);

	unsigned blocks = blocks_for(n, THREADS);

	if (p->c == 3 && p->step[0] == 2 && p->step[1] == 2)
		fold_kernel<3, 2, X, Y><<<blocks, THREADS, 0, stream>>>(*p, (unsigned)n);
	else
		fold_kernel<0, 0, X, Y><<<blocks, THREADS, 0, stream>>>(*p, (unsigned)n);
}

void cuda_fold(const struct cuda_fold *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) { fold<decltype(t), decltype(t)>(p, stream); });
}

/* A thread handles one element of dw: its batch, channel, row and column, ordered by stride. */
template <typename T> __global__ void unfold_kernel(struct cuda_fold p, int64_t n)
{
	const T *y = (const T *)p.y.data;
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, k = i;
	float *dw = (float *)p.x.data;
	int c, row, column;

	if (i >= n)
		return;
	if (p.stride[1] == 1) {
		c = (int)(k % p.c);
		k /= p.c;
	}
	column = (int)(k % p.in[1]);
	k /= p.in[1];
	row = (int)(k % p.in[0]);
	k /= p.in[0];
	if (p.stride[1] != 1) {
		c = (int)(k % p.c);
		k /= p.c;
	}
	row -= p.shift[0];
	column -= p.shift[1];
	int square = row % p.step[0] * p.step[1] + column % p.step[1];
	int64_t from = ((k * p.out[0] + row / p.step[0]) * p.out[1] + column / p.step[1]) * p.wide;

	dw[i] = (float)y[from + square * p.c + c] + (p.accumulate ? dw[i] : 0);
}

void cuda_unfold(const struct cuda_fold *p, cudaStream_t stream)
{
	int64_t n = (int64_t)p->batch * p->c * p->in[0] * p->in[1];
	unsigned blocks = blocks_for(n, THREADS);

	with_type(p->y, [&](auto t) {
		unfold_kernel<decltype(t)><<<blocks, THREADS, 0, stream>>>(*p, n);
	});
}

/* ---- pixels of a strided image --------------------------------------------------------------- */

/* A thread adds one pack of channels. */
template <typename T> __global__ void scatter_kernel(struct cuda_scatter p, unsigned n)
{
	unsigned index = blockIdx.x * blockDim.x + threadIdx.x, packs = p.c / PACK,
		 i = index / packs;
	float v[PACK];

	if (index >= n)
		return;
	unsigned column = i % (unsigned)p.from[1], rows = i / (unsigned)p.from[1],
		 row = rows % (unsigned)p.from[0];
	int64_t image = rows / (unsigned)p.from[0];
	int64_t pixel = (image * p.to[0] + row * p.step[0]) * p.to[1] + column * p.step[1];

	load(p.x + (int64_t)index * PACK, v);
	store_sum((T *)p.y.data + pixel * p.c + index % packs * PACK, v, true);
}

void cuda_scatter_add(const struct cuda_scatter *p, cudaStream_t stream)
{
	int64_t n = (int64_t)p->batch * p->from[0] * p->from[1] * (p->c / PACK);

	with_type(p->y, [&](auto t) {
		scatter_kernel<decltype(t)>
			<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(*p, (unsigned)n);
	});
}
