/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of a ResNet's first layer share: a convolution of x[B,3,Y,X] with
 * w[filters,3,7,7] and stride 2, on tensor cores. Patches are not copied: rows of x lie in a ring
 * in shared memory, in which element (pixel k, column j) of the patches has the address 2 k + j in
 * pixels.
 */
#ifndef JM_CUDA_STEM_CUH
#define JM_CUDA_STEM_CUH

#include <algorithm>

#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/kernels/mma.cuh"

#define CHANNELS CUDA_STEM_CHANNELS
#define SIZE	 CUDA_STEM_SIZE
#define STEP	 CUDA_STEM_STEP
#define TILE	 112 /* pixels of dy: a multiple of 16 */
/* Rows of x: the windows of one tile and of the first tile of another image. */
#define RING	 (2 * SIZE)
#define FILTERS	 64  /* of a block */
#define M_TILES	 (FILTERS / 16)

__device__ __forceinline__ void wait_for_copies()
{
	asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
}

/* ---- tiles ----------------------------------------------------------------------------------- */

struct tile {
	int image, row, column; /* of dy */
};

__device__ __forceinline__ struct tile tile_of(const struct cuda_stem &p, int i)
{
	int strip = i / p.out[0], columns = (p.out[1] + TILE - 1) / TILE;

	return {strip / columns, i % p.out[0], strip % columns * TILE};
}

/* Two or fewer rows of x, on their way to the ring: by cp.async in f32, through registers in 16
 * bits. */
template <typename S, typename T> struct rows {
	static constexpr int MOST = (2 * S::PIXELS + S::THREADS - 1) / S::THREADS;
	uint2 v[sizeof(T) == 4 ? 1 : MOST];
	int at, n; /* the row of the ring, the number of rows */
};

template <typename T> __device__ __forceinline__ unsigned bits(const T *x)
{
	return *reinterpret_cast<const unsigned short *>(x);
}

/* Starts to load n rows of the tile's window, from row `from` of the window on. */
template <typename S, typename T>
__device__ __forceinline__ void load_rows(const struct cuda_stem &p, const struct tile &t, int from,
	int n, int at, T *ring, struct rows<S, T> &r)
{
	int first = STEP * t.row - p.pad[0] + from, left = STEP * t.column - p.pad[1];
	const T *x = as<T>(p.x) + t.image * p.stride[0];

	r.at = at + from, r.n = n;
	if constexpr (sizeof(T) == 4) {
		for (int i = threadIdx.x; i < n * S::ROW; i += S::THREADS) {
			int k = i / S::ROW, e = i % S::ROW, row = first + k,
			    column = left + e / S::PIXEL;
			bool inside = row >= 0 && row < p.in[0] && column >= 0 &&
				      column < p.in[1] && e % S::PIXEL < CHANNELS;

			copy_async<4>(shared_at(ring + (r.at + k) % RING * S::ROW + e),
				inside ? x + e % S::PIXEL * p.stride[1] + row * p.stride[2] +
						 column * p.stride[3]
				       : x,
				inside);
		}
	} else {
#pragma unroll
		for (int i = 0; i < r.MOST; i++) {
			int k = (threadIdx.x + i * S::THREADS) / S::PIXELS;
			int row = first + k,
			    column = left + (threadIdx.x + i * S::THREADS) % S::PIXELS;
			const T *pixel = x + row * p.stride[2] + column * p.stride[3];

			r.v[i] = make_uint2(0, 0);
			if (k < n && row >= 0 && row < p.in[0] && column >= 0 && column < p.in[1])
				r.v[i] = make_uint2(bits(pixel) | bits(pixel + p.stride[1]) << 16,
					bits(pixel + 2 * p.stride[1]));
		}
	}
}

template <typename S, typename T>
__device__ __forceinline__ void store_rows(T *ring, const struct rows<S, T> &r)
{
	if constexpr (sizeof(T) == 2) {
#pragma unroll
		for (int i = 0; i < r.MOST; i++) {
			int k = (threadIdx.x + i * S::THREADS) / S::PIXELS;
			int pixel = (threadIdx.x + i * S::THREADS) % S::PIXELS;

			if (k < r.n)
				*reinterpret_cast<uint2 *>(ring + (r.at + k) % RING * S::ROW +
							   pixel * S::PIXEL) = r.v[i];
		}
	}
}

/* All rows of the tile's window. */
template <typename S, typename T>
__device__ __forceinline__ void fill_ring(
	const struct cuda_stem &p, const struct tile &t, int at, T *ring)
{
	struct rows<S, T> r;

	for (int from = 0; from < SIZE; from += 2) {
		load_rows(p, t, from, min(2, SIZE - from), at, ring, r);
		store_rows(ring, r);
	}
}

/* Starts to load what tile `t` reads and the tile before it did not; at: the window of the latter,
 * then that of t. */
template <typename S, typename T>
__device__ __forceinline__ void advance(
	const struct cuda_stem &p, const struct tile &t, int *at, T *ring, struct rows<S, T> &r)
{
	*at = (*at + (t.row ? STEP : SIZE)) % RING;
	if (t.row)
		load_rows(p, t, SIZE - STEP, STEP, *at, ring, r);
	else
		fill_ring<S>(p, t, *at, ring);
}

static inline int tiles_of(const struct cuda_stem *p)
{
	return p->batch * p->out[0] * (int)blocks_for(p->out[1], TILE);
}

template <typename S> static unsigned blocks_of(const struct cuda_stem *p)
{
	return (unsigned)std::min(p->processors * S::BLOCKS, tiles_of(p));
}

#endif
