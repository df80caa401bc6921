/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of 3 x 3 in which each channel has a filter of its own, for images with channels
 * last. The time is that of reading and writing the images. A thread has a pack of channels and
 * walks down rows, of which it keeps three.
 */
#include "depthwise.h"
#include "common.cuh"

#define THREADS 256
#define TAPS	9
#define COLUMNS 2  /* of y, of a thread */
#define ROWS	16 /* that it walks down */

/* Three rows of N columns of x, of a pack of channels. */
template <int N, typename T> struct window {
	packed<PACK, T> v[3][N];
};

/* The first column and the pack of a window in an image. */
template <typename T> struct place {
	const T *x;
	int column;
};

template <typename T>
__device__ __forceinline__ struct place<T> place_of(
	const struct cuda_depthwise &p, int image, int column, int channel)
{
	const int64_t pixels = (int64_t)p.in[0] * p.in[1];

	return {as<const T>(p.x) + image * pixels * p.channels + channel, column};
}

/* Loads the row to the third of the window; outside of the image all is 0. */
template <int N, typename T>
__device__ __forceinline__ void load_row(const struct cuda_depthwise &p, const struct place<T> &at,
	int row, struct window<N, T> &ret)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		const int column = at.column + i;

		if (row >= 0 && row < p.in[0] && column >= 0 && column < p.in[1])
			fetch(at.x + ((int64_t)row * p.in[1] + column) * p.channels, ret.v[2][i]);
		else
			ret.v[2][i] = {};
	}
}

template <int N, typename T> __device__ __forceinline__ void move_up(struct window<N, T> &w)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		w.v[0][i] = w.v[1][i];
		w.v[1][i] = w.v[2][i];
	}
}

/* filter[channel * TAPS + tap] of a pack of channels. */
template <typename T>
__device__ __forceinline__ void load_filter(
	const struct cuda_depthwise &p, int channel, float (&filter)[PACK * TAPS])
{
	load(as<const T>(p.w) + channel * TAPS, filter);
	if (!p.turned)
		return;
#pragma unroll
	for (int k = 0; k < PACK; k++)
#pragma unroll
		for (int t = 0; t < TAPS / 2; t++) {
			const float other = filter[k * TAPS + t];

			filter[k * TAPS + t] = filter[k * TAPS + TAPS - 1 - t];
			filter[k * TAPS + TAPS - 1 - t] = other;
		}
}

template <typename T>
__global__ void __launch_bounds__(THREADS) depthwise_kernel(struct cuda_depthwise p)
{
	const int packs = p.channels / PACK, strips = (p.in[1] + COLUMNS - 1) / COLUMNS,
		  runs = (p.in[0] + ROWS - 1) / ROWS;
	const int64_t at = blockIdx.x * (int64_t)THREADS + threadIdx.x, strip = at / packs;
	const int channel = (int)(at % packs) * PACK, column = (int)(strip % strips) * COLUMNS,
		  first = (int)(strip / strips % runs) * ROWS, image = (int)(strip / strips / runs);
	const struct place<T> from = place_of<T>(p, image, column - 1, channel);
	struct window<COLUMNS + 2, T> x;
	float filter[PACK * TAPS];
	T *y = as<T>(p.y) + (from.x - as<const T>(p.x));

	if (image >= p.batch)
		return;
	load_filter<T>(p, channel, filter);
	load_row(p, from, first - 1, x);
	move_up(x);
	load_row(p, from, first, x);
	for (int row = first; row < first + ROWS && row < p.in[0]; row++) {
		move_up(x);
		load_row(p, from, row + 1, x);
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			float sum[PACK] = {};

#pragma unroll
			for (int t = 0; t < TAPS; t++)
#pragma unroll
				for (int k = 0; k < PACK; k++)
					sum[k] += x.v[t / 3][i + t % 3].at(k) *
						  filter[k * TAPS + t];
			if (column + i < p.in[1])
				store_sum(y + ((int64_t)row * p.in[1] + column + i) * p.channels,
					sum, p.accumulate);
		}
	}
}

/* Packs of channels of a block, a power of two: the other threads share its columns. */
static int lanes_of(const struct cuda_depthwise *p)
{
	int lanes = WARP;

	while (lanes > 1 && lanes > p->channels / PACK)
		lanes /= 2;
	return lanes;
}

static dim3 grid_of(const struct cuda_depthwise *p)
{
	const unsigned across = blocks_for(p->channels / PACK, lanes_of(p));
	const unsigned parts = (unsigned)(4 * p->processors) / across;

	return dim3(across, parts ? parts : 1);
}

size_t cuda_depthwise_scratch(const struct cuda_depthwise *p)
{
	return grid_of(p).y * sizeof(float) * TAPS * (size_t)p->channels;
}

/* Adds the products of a column of dy and the window around it. */
template <typename T>
__device__ __forceinline__ void add_column(const struct cuda_depthwise &p, int image, int column,
	int channel, float (&sum)[TAPS][PACK])
{
	const struct place<T> from = place_of<T>(p, image, column - 1, channel);
	const T *dy = as<const T>(p.y) + (from.x - as<const T>(p.x)) + (int64_t)column * p.channels;
	struct window<3, T> x;

	load_row(p, from, -1, x);
	move_up(x);
	load_row(p, from, 0, x);
	for (int row = 0; row < p.in[0]; row++) {
		packed<PACK, T> d;

		fetch(dy + (int64_t)row * p.in[1] * p.channels, d);
		move_up(x);
		load_row(p, from, row + 1, x);
#pragma unroll
		for (int t = 0; t < TAPS; t++)
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum[t][k] += x.v[t / 3][t % 3].at(k) * d.at(k);
	}
}

/* partial[blockIdx.y,channels,TAPS] of the columns of a block. */
template <typename T>
__global__ void __launch_bounds__(THREADS) depthwise_grad_kernel(struct cuda_depthwise p, int lanes)
{
	__shared__ float share[THREADS][PACK];
	const int lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = THREADS / lanes;
	const int first = blockIdx.x * lanes * PACK, channel = first + lane * PACK;
	float *partial = p.partial + (int64_t)blockIdx.y * p.channels * TAPS;
	float sum[TAPS][PACK] = {};

	if (channel < p.channels)
		for (int i = blockIdx.y * slots + slot; i < p.batch * p.in[1];
			i += gridDim.y * slots)
			add_column<T>(p, i / p.in[1], i % p.in[1], channel, sum);
#pragma unroll
	for (int t = 0; t < TAPS; t++) {
		__syncthreads();
#pragma unroll
		for (int k = 0; k < PACK; k++)
			share[threadIdx.x][k] = sum[t][k];
		__syncthreads();
		for (int j = threadIdx.x; j < lanes * PACK && first + j < p.channels;
			j += THREADS) {
			float all = 0;

			for (int s = 0; s < slots; s++)
				all += share[s * lanes + j / PACK][j % PACK];
			partial[(first + j) * TAPS + t] = all;
		}
	}
}

__global__ void depthwise_finish(struct cuda_depthwise p, int parts)
{
	const int n = p.channels * TAPS, i = blockIdx.x * THREADS + threadIdx.x;
	float sum = 0;

	if (i >= n)
		return;
	for (int part = 0; part < parts; part++)
		sum += p.partial[(int64_t)part * n + i];
	p.dw[i] = sum + (p.accumulate ? p.dw[i] : 0);
}

void cuda_depthwise(const struct cuda_depthwise *p, cudaStream_t stream)
{
	int64_t strips = (p->in[1] + COLUMNS - 1) / COLUMNS, runs = (p->in[0] + ROWS - 1) / ROWS;
	unsigned blocks = blocks_for(p->batch * runs * strips * (p->channels / PACK), THREADS);

	with_type(p->x, [&](auto t) {
		depthwise_kernel<decltype(t)><<<blocks, THREADS, 0, stream>>>(*p);
	});
}

void cuda_depthwise_grad(const struct cuda_depthwise *p, cudaStream_t stream)
{
	const dim3 grid = grid_of(p);

	with_type(p->x, [&](auto t) {
		depthwise_grad_kernel<decltype(t)>
			<<<grid, THREADS, 0, stream>>>(*p, lanes_of(p));
	});
	depthwise_finish<<<blocks_for(p->channels * TAPS, THREADS), THREADS, 0, stream>>>(
		*p, (int)grid.y);
}
