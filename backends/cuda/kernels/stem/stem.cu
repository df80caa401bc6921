/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first layer of a ResNet: y[B,Y',X',filters] from x and w (stem.cuh). A block holds 64 filters
 * in shared memory and computes a range of tiles, each up to TILE pixels of one row of y.
 */
#include "stem.cuh"

/*
 * y[pixels,filters] = patches times the filter: four warps share a tile, each computes 32 filters
 * of TILE / 2 pixels. The filter lies in shared memory as the instructions read it: [STEPS][4][32
 * threads][4 registers]. A pixel of the ring has four channels, the last of them zero, so that a
 * step of the stride is DEPTH or DEPTH / 2 columns.
 */
template <typename T> struct forward {
	static constexpr int DEPTH = sizeof(T) == 4 ? 8 : 16, PIXEL = 4, THREADS = 4 * WARP,
			     BLOCKS = sizeof(T) == 4 ? 2 : 4;
	static constexpr int COLUMNS = 8 * PIXEL; /* of a row of the filter, with zeros */
	static constexpr int STEPS = SIZE * COLUMNS / DEPTH;
	static constexpr int ROW = PIXEL * (STEP * (TILE - 1) + 8), PIXELS = ROW / PIXEL;
	static constexpr int VECTORS = STEPS * M_TILES * WARP;
	static constexpr size_t MEMORY = 16 * VECTORS + sizeof(T) * RING * ROW;
};

#define N_TILES (TILE / 2 / 8)

/* An element of the filter; 0 outside it. column: of a row, in pixels of the ring. */
template <typename T>
__device__ __forceinline__ float weight(const struct cuda_stem &p, int filter, int row, int column)
{
	int c = column % forward<T>::PIXEL, x = column / forward<T>::PIXEL;

	if (filter >= p.filters || c >= CHANNELS || x >= SIZE)
		return 0;
	return (float)as<T>(p.w)[filter * p.w_stride[0] + c * p.w_stride[1] + row * p.w_stride[2] +
				 x * p.w_stride[3]];
}

/* Register i of a thread for step s: filters 4 g + 2 m + half of 32, columns that its B operand
 * has. */
template <typename T>
__device__ __forceinline__ unsigned weights(
	const struct cuda_stem &p, int s, int m, int lane, int i)
{
	using S = forward<T>;
	int filter = blockIdx.y * FILTERS + m / 2 * 32 + lane / 4 * 4 + m % 2 * 2 + i % 2;
	int row = s * S::DEPTH / S::COLUMNS, column = s * S::DEPTH % S::COLUMNS + lane % 4 * 2;

	if constexpr (sizeof(T) == 4)
		return tf32(weight<T>(p, filter, row, column + i / 2));
	else
		return two((const T *)nullptr, weight<T>(p, filter, row, column + i / 2 * 8),
			weight<T>(p, filter, row, column + i / 2 * 8 + 1));
}

template <typename T>
__device__ __forceinline__ void load_weights(const struct cuda_stem &p, uint4 *to)
{
	for (int i = threadIdx.x; i < forward<T>::VECTORS; i += forward<T>::THREADS) {
		int lane = i % WARP, m = i / WARP % M_TILES, s = i / WARP / M_TILES;

		to[i] = make_uint4(weights<T>(p, s, m, lane, 0), weights<T>(p, s, m, lane, 1),
			weights<T>(p, s, m, lane, 2), weights<T>(p, s, m, lane, 3));
	}
}

/* Columns [32 columns of a row of the filter] of 8 pixels: b[step][register]. row: the warp's first
 * pixel. */
__device__ __forceinline__ void load_patches(const float *row, int pixel, unsigned (&b)[4][2])
{
	int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int s = 0; s < 4; s++) {
		float2 v = *reinterpret_cast<const float2 *>(
			row + STEP * 4 * (pixel + g) + 8 * s + 2 * t);

		b[s][0] = tf32(v.x), b[s][1] = tf32(v.y);
	}
}

template <typename T>
__device__ __forceinline__ void load_patches(const T *row, int pixel, unsigned (&b)[2][2])
{
	int lane = threadIdx.x % WARP;
	unsigned v[4];

	load_blocks(v, shared_at(row + STEP * 4 * (pixel + lane % 8) + lane / 8 * 8));
	b[0][0] = v[0], b[0][1] = v[1], b[1][0] = v[2], b[1][1] = v[3];
}

template <typename T>
__device__ __forceinline__ void convolve(
	const uint4 *w, const T *ring, int at, int half, int first, float (&sum)[2][N_TILES][4])
{
	using S = forward<T>;
	constexpr int STEPS = S::COLUMNS / S::DEPTH; /* of a row of the filter */

#pragma unroll
	for (int i = 0; i < SIZE; i++) {
		const T *row = ring + (at + i) % RING * S::ROW;
		unsigned a[STEPS][2][4];

#pragma unroll
		for (int s = 0; s < STEPS; s++)
#pragma unroll
			for (int m = 0; m < 2; m++) {
				uint4 v = w[((i * STEPS + s) * M_TILES + 2 * half + m) * WARP +
					    threadIdx.x % WARP];

				a[s][m][0] = v.x, a[s][m][1] = v.y, a[s][m][2] = v.z,
				a[s][m][3] = v.w;
			}
#pragma unroll
		for (int n = 0; n < N_TILES; n++) {
			unsigned b[STEPS][2];

			load_patches(row, first + 8 * n, b);
#pragma unroll
			for (int s = 0; s < STEPS; s++)
#pragma unroll
				for (int m = 0; m < 2; m++)
					multiply(T(), sum[m][n], a[s][m], b[s][0], b[s][1]);
		}
	}
}

/* Each thread has four filters of two pixels of each tile of 8. */
template <typename T>
__device__ __forceinline__ void store_pixels(const struct cuda_stem &p, const struct tile &t,
	int half, int first, const float (&sum)[2][N_TILES][4])
{
	int filter = blockIdx.y * FILTERS + 32 * half + threadIdx.x % WARP / 4 * 4;
	T *y = as<T>(p.dy) + ((int64_t)(t.image * p.out[0] + t.row) * p.out[1]) * p.filters +
	       filter;

	if (filter >= p.filters)
		return;
#pragma unroll
	for (int n = 0; n < N_TILES; n++)
#pragma unroll
		for (int k = 0; k < 2; k++) {
			int column = t.column + first + 8 * n + threadIdx.x % 4 * 2 + k;
			float v[4] = {
				sum[0][n][k], sum[0][n][2 + k], sum[1][n][k], sum[1][n][2 + k]};

			if (column >= p.out[1])
				continue;
			T *to = y + (int64_t)column * p.filters;
			if constexpr (sizeof(T) == 4)
				store(to, v);
			else
				*reinterpret_cast<uint2 *>(to) =
					make_uint2(two(to, v[0], v[1]), two(to, v[2], v[3]));
		}
}

template <typename T>
__global__ void __launch_bounds__(forward<T>::THREADS, forward<T>::BLOCKS)
	stem_forward_kernel(const struct cuda_stem p, int tiles)
{
	extern __shared__ __align__(16) unsigned char memory[];
	using S = forward<T>;
	uint4 *w = reinterpret_cast<uint4 *>(memory);
	T *ring = reinterpret_cast<T *>(w + S::VECTORS);
	int begin = (int)((int64_t)tiles * blockIdx.x / gridDim.x),
	    end = (int)((int64_t)tiles * (blockIdx.x + 1) / gridDim.x);
	int half = threadIdx.x / WARP % 2, first = threadIdx.x / WARP / 2 * (TILE / 2), at = 0;

	load_weights<T>(p, w);
	fill_ring<S>(p, tile_of(p, begin), at, ring);
	for (int i = begin; i < end; i++) {
		float sum[2][N_TILES][4] = {};
		struct rows<S, T> r;
		int here = at;

		r.n = 0;
		wait_for_copies();
		__syncthreads();
		if (i + 1 < end)
			advance(p, tile_of(p, i + 1), &at, ring, r);
		convolve(w, ring, here, half, first, sum);
		store_rows(ring, r);
		store_pixels<T>(p, tile_of(p, i), half, first, sum);
	}
}

template <typename T> static cudaError_t convolution(const struct cuda_stem *p, cudaStream_t stream)
{
	using S = forward<T>;
	cudaError_t rc = cudaFuncSetAttribute(stem_forward_kernel<T>,
		cudaFuncAttributeMaxDynamicSharedMemorySize, (int)S::MEMORY);

	if (!rc)
		stem_forward_kernel<T><<<dim3(blocks_of<S>(p), blocks_for(p->filters, FILTERS)),
			S::THREADS, S::MEMORY, stream>>>(*p, tiles_of(p));
	return rc;
}

cudaError_t cuda_stem(const struct cuda_stem *p, cudaStream_t stream)
{
	cudaError_t rc = cudaSuccess;

	with_type(p->x, [&](auto t) { rc = convolution<decltype(t)>(p, stream); });
	return rc;
}
