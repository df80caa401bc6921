/* SPDX-License-Identifier: Apache-2.0 */
/* Rearranges squares of pixels of images with few channels into channels, and gradients of filters
 * back; adds images to every n-th pixel of others; filters of images that grow, as those of a
 * convolution with a stride. */
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
		bool inside = square < high * wide && row >= 0 && row < p.in[0] && column >= 0 &&
			      column < p.in[1];

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

#define FEW 4 /* elements of a thread: 16 bytes of dw */

/* dw and y have their elements in the same order. */
template <typename T>
__global__ void unfold_same_kernel(const T *y, float *dw, int64_t n, bool accumulate)
{
	const int64_t i = FEW * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	float v[FEW];

	if (i >= n)
		return;
	load(y + i, v);
	store_sum(dw + i, v, accumulate);
}

/* True if nothing was folded, and both have channels last. */
static bool unfolds_same(const struct cuda_fold *p)
{
	bool same = p->stride[1] == 1 && p->wide == p->c && p->c % FEW == 0;

	for (int i = 0; i < 2; i++)
		same = same && p->step[i] == 1 && p->shift[i] == 0 && p->in[i] == p->out[i];
	return same;
}

void cuda_unfold(const struct cuda_fold *p, cudaStream_t stream)
{
	const int64_t n = (int64_t)p->batch * p->c * p->in[0] * p->in[1];

	with_type(p->y, [&](auto t) {
		using T = decltype(t);

		if (unfolds_same(p))
			unfold_same_kernel<<<blocks_for(n, FEW * THREADS), THREADS, 0, stream>>>(
				as<const T>(p->y), as<float>(p->x), n, p->accumulate);
		else
			unfold_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, stream>>>(*p, n);
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

/* ---- filters of images that grow ------------------------------------------------------------- */

#define TAPS   9
#define WIDE   4 /* rows and columns of the wide filter */
#define TILE   32
#define TILE_Y 8 /* threads of a block along the other side of a tile */

/* True if row r of the filter meets the same pixel as row t of the wide one. */
__device__ __forceinline__ bool meet(int r, int t)
{
	return r == 2 ? t < 2 : r == 1 ? t == 1 || t == 2 : t > 1;
}

/* Calls use(i, side) for the elements of a thread along the slower side of a tile of channels and
 * filters. */
template <class USE> __device__ __forceinline__ void over_tile(int from, int end, USE use)
{
	for (int i = threadIdx.y; i < TILE; i += TILE_Y)
		if (from + i < end)
			use(i, (int64_t)from + i);
}

/* A block handles TILE filters and TILE channels, which change places. */
template <typename T> __global__ void grow_kernel(struct cuda_grown p)
{
	__shared__ T tile[TAPS][TILE][TILE + 1];
	const int filter = blockIdx.x * TILE, channel = blockIdx.y * TILE;
	const T *w = static_cast<const T *>(p.w.data);
	T *wide = static_cast<T *>(p.wide.data);

	if (channel + (int)threadIdx.x < p.channels)
		over_tile(filter, p.filters, [&](int i, int64_t k) {
			const T *at = w + k * TAPS * p.channels + channel + threadIdx.x;
#pragma unroll
			for (int tap = 0; tap < TAPS; tap++)
				tile[tap][i][threadIdx.x] = at[(int64_t)tap * p.channels];
		});
	__syncthreads();
	if (filter + (int)threadIdx.x >= p.filters)
		return;
	over_tile(channel, p.channels, [&](int i, int64_t c) {
		T *at = wide + c * WIDE * WIDE * p.filters + filter + threadIdx.x;
#pragma unroll
		for (int tap = 0; tap < WIDE * WIDE; tap++) {
			float sum = 0;
#pragma unroll
			for (int from = 0; from < TAPS; from++)
				if (meet(from / 3, tap / WIDE) && meet(from % 3, tap % WIDE))
					sum += (float)tile[from][threadIdx.x][i];
			at[(int64_t)tap * p.filters] = (T)sum;
		}
	});
}

template <typename T> __global__ void grown_grad_kernel(struct cuda_grown p)
{
	__shared__ T tile[WIDE * WIDE][TILE][TILE + 1];
	const int filter = blockIdx.x * TILE, channel = blockIdx.y * TILE;
	const T *wide = static_cast<const T *>(p.wide.data);

	if (filter + (int)threadIdx.x < p.filters)
		over_tile(channel, p.channels, [&](int i, int64_t c) {
			const T *at = wide + c * WIDE * WIDE * p.filters + filter + threadIdx.x;
#pragma unroll
			for (int tap = 0; tap < WIDE * WIDE; tap++)
				tile[tap][i][threadIdx.x] = at[(int64_t)tap * p.filters];
		});
	__syncthreads();
	if (channel + (int)threadIdx.x >= p.channels)
		return;
	over_tile(filter, p.filters, [&](int i, int64_t k) {
		float *at = p.dw + k * p.stride[0] + (channel + threadIdx.x) * p.stride[1];
#pragma unroll
		for (int to = 0; to < TAPS; to++) {
			float *dw = at + to / 3 * p.stride[2] + to % 3 * p.stride[3];
			float sum = 0;
#pragma unroll
			for (int tap = 0; tap < WIDE * WIDE; tap++)
				if (meet(to / 3, tap / WIDE) && meet(to % 3, tap % WIDE))
					sum += (float)tile[tap][threadIdx.x][i];
			*dw = sum + (p.accumulate ? *dw : 0);
		}
	});
}

static dim3 tiles_of(const struct cuda_grown *p)
{
	return dim3(blocks_for(p->filters, TILE), blocks_for(p->channels, TILE));
}

void cuda_grow_filter(const struct cuda_grown *p, cudaStream_t stream)
{
	const dim3 threads(TILE, TILE_Y);

	if (p->w.type == CUDA_BF16)
		grow_kernel<bf16><<<tiles_of(p), threads, 0, stream>>>(*p);
	else
		grow_kernel<half><<<tiles_of(p), threads, 0, stream>>>(*p);
}

void cuda_grown_grad(const struct cuda_grown *p, cudaStream_t stream)
{
	const dim3 threads(TILE, TILE_Y);

	if (p->wide.type == CUDA_BF16)
		grown_grad_kernel<bf16><<<tiles_of(p), threads, 0, stream>>>(*p);
	else
		grown_grad_kernel<half><<<tiles_of(p), threads, 0, stream>>>(*p);
}
