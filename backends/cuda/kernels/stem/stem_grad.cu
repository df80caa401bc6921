/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient dw[filters,3,7,7] of the filter of a ResNet's first layer from x and
 * dy[B,Y',X',filters] (stem.cuh): the product dy^T times the patches of x, which sums over all
 * pixels. A block computes 64 filters for a range of tiles, each up to TILE pixels of one row of
 * dy, and writes its sums; a second kernel adds those of all blocks in their order.
 */
#include "stem.cuh"

/*
 * The sizes for one type. DEPTH: pixels that an instruction multiplies. SPLIT: warps that share the
 * 64 filters; in f32 two are faster, because their sums leave registers for operands of the next
 * step (0.67 ms with two, 0.91 with one for ResNet-50 with batch 256 on an H100), in 16 bits one.
 * PIXEL: elements from one pixel of the ring to the next; in 16 bits there are four, so that
 * ldmatrix can read two pixels at a time. GROUPS x 8: columns of a row of the filter that are
 * computed. BLOCKS: of a multiprocessor. PITCH: from one pixel of dy to the next, so that no two
 * threads read one bank.
 */
template <typename T> struct form {
	static constexpr int DEPTH = 16, SPLIT = 1, PIXEL = 4, GROUPS = 4, BLOCKS = 3;
};
template <> struct form<float> {
	static constexpr int DEPTH = 8, SPLIT = 2, PIXEL = 3, GROUPS = 3, BLOCKS = 2;
};
template <typename T> struct sizes : form<T> {
	using F = form<T>;
	static constexpr int THREADS = WARP * F::GROUPS * F::SPLIT, WIDTH = 8 * F::GROUPS,
			     PITCH = FILTERS + 8;
	/* elements of a row in the ring, in whole vectors of 16 bytes, and its pixels */
	static constexpr int ROW = (STEP * F::PIXEL * (TILE - 1) + WIDTH + 3) / 4 * 4;
	static constexpr int PIXELS = ROW / F::PIXEL;
	static constexpr size_t MEMORY = sizeof(T) * (RING * ROW + 2 * TILE * PITCH);
	static constexpr int SUMS = FILTERS * SIZE * WIDTH,
			     TILES = M_TILES / F::SPLIT; /* of 16 filters, of a warp */
};

/* The tile's pixels of dy; zeros beyond the row's end and the last filter. */
template <typename T>
__device__ __forceinline__ void load_dy(const struct cuda_stem &p, const struct tile &t, T *to)
{
	constexpr int VECTOR = 16 / sizeof(T), PACKS = FILTERS / VECTOR;
	int filter = blockIdx.y * FILTERS + threadIdx.x % PACKS * VECTOR;
	const T *dy = as<T>(p.dy) +
		      ((int64_t)(t.image * p.out[0] + t.row) * p.out[1] + t.column) * p.filters +
		      filter;

	static_assert(sizes<T>::THREADS % PACKS == 0, "a thread's filters do not change");
	for (int k = threadIdx.x / PACKS; k < TILE; k += sizes<T>::THREADS / PACKS) {
		bool inside = filter < p.filters && t.column + k < p.out[1];

		copy_async<16>(shared_at(to + k * sizes<T>::PITCH + threadIdx.x % PACKS * VECTOR),
			inside ? dy + (int64_t)k * p.filters : as<T>(p.dy), inside);
	}
}

/* ---- products -------------------------------------------------------------------------------- */

/* What a warp computes: the columns and the filters. */
struct part {
	int group, split;
};

/* sum[m][row of the filter]: 16 filters x 8 columns. In f32 thread (g, t) of a warp has filters 4 g
 * .. 4 g + 3 of each half of the 64, so that it loads vectors. */
template <int TILES>
__device__ __forceinline__ void multiply_tile(const float *dy, const float *ring, int at,
	const struct part &w, float (&sum)[TILES][SIZE][4])
{
	using S = sizes<float>;
	int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
	const float *a_at = dy + t * S::PITCH + 4 * g + 16 * TILES * w.split, *row[SIZE];

	for (int i = 0; i < SIZE; i++)
		row[i] = ring + (at + i) % RING * S::ROW + STEP * S::PIXEL * t + 8 * w.group + g;
#pragma unroll
	for (int s = 0; s < TILE / S::DEPTH; s++) {
		unsigned a[TILES][4];
#pragma unroll
		for (int m = 0; m < TILES; m += 2) {
#pragma unroll
			for (int k = 0; k < 2; k++) {
				float4 v = *reinterpret_cast<const float4 *>(
					a_at + (s * S::DEPTH + 4 * k) * S::PITCH + 16 * m);

				a[m][2 * k] = tf32(v.x), a[m][2 * k + 1] = tf32(v.y);
				a[m + 1][2 * k] = tf32(v.z), a[m + 1][2 * k + 1] = tf32(v.w);
			}
		}
#pragma unroll
		for (int i = 0; i < SIZE; i++) {
			unsigned b0 = tf32(row[i][STEP * S::PIXEL * S::DEPTH * s]);
			unsigned b1 = tf32(row[i][STEP * S::PIXEL * (S::DEPTH * s + 4)]);
#pragma unroll
			for (int m = 0; m < TILES; m++)
				multiply(0.f, sum[m][i], a[m], b0, b1);
		}
	}
}

template <int TILES, typename T>
__device__ __forceinline__ void multiply_tile(
	const T *dy, const T *ring, int at, const struct part &w, float (&sum)[TILES][SIZE][4])
{
	using S = sizes<T>;
	int lane = threadIdx.x % WARP, low = lane % 8, high = lane / 16, middle = lane / 8 % 2;
	const T *a_at = dy + (low + 8 * high) * S::PITCH + 8 * middle + 16 * TILES * w.split,
		*row[(SIZE + 1) / 2];

	for (int i = 0; i < (SIZE + 1) / 2; i++)
		row[i] = ring + (at + 2 * i + high) % RING * S::ROW +
			 STEP * S::PIXEL * (low + 8 * middle + w.group);
#pragma unroll
	for (int s = 0; s < TILE / S::DEPTH; s++) {
		unsigned a[TILES][4];
#pragma unroll
		for (int m = 0; m < TILES; m++)
			load_turned(a[m], shared_at(a_at + s * S::DEPTH * S::PITCH + 16 * m));
#pragma unroll
		for (int i = 0; i < SIZE; i += 2) {
			unsigned b[4];

			load_turned(b, shared_at(row[i / 2] + STEP * S::PIXEL * S::DEPTH * s));
#pragma unroll
			for (int m = 0; m < TILES; m++) {
				multiply(T(), sum[m][i], a[m], b[0], b[1]);
				if (i + 1 < SIZE)
					multiply(T(), sum[m][i + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The sums of a block: [FILTERS,SIZE,WIDTH]. */
template <typename T> __device__ __forceinline__ int filter_of(int m, int half, int g)
{
	return sizeof(T) == 4 ? m / 2 * 32 + 4 * g + m % 2 * 2 + half : 16 * m + 8 * half + g;
}

template <typename T>
__device__ __forceinline__ void store_sums(const struct cuda_stem &p, const struct part &w,
	const float (&sum)[sizes<T>::TILES][SIZE][4])
{
	int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
	float *to = p.partial + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * sizes<T>::SUMS +
		    8 * w.group + 2 * t;

#pragma unroll
	for (int m = 0; m < sizes<T>::TILES; m++)
#pragma unroll
		for (int k = 0; k < SIZE; k++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				int filter = filter_of<T>(m + w.split * sizes<T>::TILES, half, g);

				*reinterpret_cast<float2 *>(
					to + (filter * SIZE + k) * sizes<T>::WIDTH) =
					make_float2(sum[m][k][2 * half], sum[m][k][2 * half + 1]);
			}
}

template <typename T>
__global__ void __launch_bounds__(sizes<T>::THREADS, sizes<T>::BLOCKS)
	stem_kernel(const struct cuda_stem p, int tiles)
{
	extern __shared__ __align__(16) unsigned char memory[];
	using S = sizes<T>;
	T *ring = reinterpret_cast<T *>(memory), *dy = ring + RING * S::ROW;
	int begin = (int)((int64_t)tiles * blockIdx.x / gridDim.x),
	    end = (int)((int64_t)tiles * (blockIdx.x + 1) / gridDim.x);
	int warp = threadIdx.x / WARP, at = 0;
	const struct part w = {warp % S::GROUPS, warp / S::GROUPS};
	float sum[S::TILES][SIZE][4] = {};

	if (begin < end) {
		fill_ring<S>(p, tile_of(p, begin), at, ring);
		load_dy(p, tile_of(p, begin), dy);
	}
	for (int i = begin; i < end; i++) {
		struct tile next = tile_of(p, i + 1);
		int here = at;
		struct rows<S, T> r;

		r.n = 0;
		wait_for_copies();
		__syncthreads();
		if (i + 1 < end) {
			advance(p, next, &at, ring, r);
			load_dy(p, next, dy + (i + 1 - begin) % 2 * TILE * S::PITCH);
		}
		multiply_tile(dy + (i - begin) % 2 * TILE * S::PITCH, ring, here, w, sum);
		store_rows(ring, r);
	}
	store_sums<T>(p, w, sum);
}

#define SEGMENTS 8

/* Threads (element, segment) add a segment's parts, then the first of them the segments. */
template <typename T> __global__ void stem_sums_kernel(const struct cuda_stem p, int parts)
{
	constexpr int WIDTH = sizes<T>::WIDTH, PIXEL = sizes<T>::PIXEL;
	__shared__ double share[SEGMENTS][WARP];
	int i = blockIdx.x * WARP + threadIdx.x, filter = blockIdx.y * FILTERS + i / (SIZE * WIDTH);
	const float *from = p.partial + (int64_t)blockIdx.y * parts * sizes<T>::SUMS + i;
	int column = i % WIDTH / PIXEL, c = i % WIDTH % PIXEL, row = i / WIDTH % SIZE;
	double sum = 0;

#pragma unroll 8
	for (int k = threadIdx.y; k < parts; k += SEGMENTS)
		sum += from[(int64_t)k * sizes<T>::SUMS];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || filter >= p.filters || column >= SIZE || c >= CHANNELS)
		return;
	for (int k = 1; k < SEGMENTS; k++)
		sum += share[k][threadIdx.x];
	float *dw = p.dw + filter * p.w_stride[0] + c * p.w_stride[1] + row * p.w_stride[2] +
		    column * p.w_stride[3];

	*dw = (float)sum + (p.accumulate ? *dw : 0);
}

template <typename T> static cudaError_t grad(const struct cuda_stem *p, cudaStream_t stream)
{
	unsigned groups = blocks_for(p->filters, FILTERS), blocks = blocks_of<sizes<T>>(p);
	constexpr int memory = (int)sizes<T>::MEMORY;
	cudaError_t rc = cudaFuncSetAttribute(
		stem_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, memory);

	if (rc)
		return rc;
	stem_kernel<T>
		<<<dim3(blocks, groups), sizes<T>::THREADS, memory, stream>>>(*p, tiles_of(p));
	stem_sums_kernel<T>
		<<<dim3(sizes<T>::SUMS / WARP, groups), dim3(WARP, SEGMENTS), 0, stream>>>(
			*p, (int)blocks);
	return cudaSuccess;
}

cudaError_t cuda_stem_grad(const struct cuda_stem *p, cudaStream_t stream)
{
	cudaError_t rc = cudaSuccess;

	with_type(p->x, [&](auto t) { rc = grad<decltype(t)>(p, stream); });
	return rc;
}

size_t cuda_stem_scratch(const struct cuda_stem *p)
{
	size_t bytes = 0;

	with_type(p->x, [&](auto t) {
		using S = sizes<decltype(t)>;

		bytes = sizeof(float) * S::SUMS * blocks_of<S>(p) * blocks_for(p->filters, FILTERS);
	});
	return bytes;
}
