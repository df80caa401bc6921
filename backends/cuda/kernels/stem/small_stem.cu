/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first layer with filters of 3 x 3: y[B,Y',X',filters] from x[B,3,Y,X] and w, and the gradient
 * dw of the filter, in 16 bits on tensor cores. Each thread copies the patch of a pixel of y, 27
 * values and 5 others, to shared memory. A warp multiplies the patches of its own 32 pixels, or, of
 * filters that are multiples of 128, those of a pair of warps, each with half of the filters.
 * Forward, three of the other values are 1, and in their place the filters have the parts of the
 * bias, whose sum has the bits of f32; else they are 0.
 */
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/kernels/mma.cuh"

#define CHANNELS CUDA_STEM_CHANNELS
#define SIDE	 CUDA_STEM_SMALL
#define TAPS	 (CHANNELS * SIDE * SIDE)
#define DEPTH	 32	      /* values of a patch with the others */
#define BIAS_PARTS 3
#define STEPS	 (DEPTH / 16) /* of instructions that sum over 16 */
#define PITCH	 (DEPTH + 8)  /* so that ldmatrix reads eight rows from different banks */
#define FILTERS	 64	      /* of a block */
#define DY_PITCH (FILTERS + 8)
#define THREADS	 (4 * WARP)
#define RESIDENT      5 /* blocks of a multiprocessor, by their registers */
#define WIDE_RESIDENT 2 /* of twice the threads */
#define GRAD_RESIDENT 3

static inline int64_t pixels_of(const struct cuda_stem *p)
{
	return (int64_t)p->batch * p->out[0] * p->out[1];
}

__device__ __forceinline__ unsigned bits(const void *x)
{
	return *reinterpret_cast<const unsigned short *>(x);
}

/* 0 if it is not inside: without a branch, so that a thread has all its loads under way. */
__device__ __forceinline__ unsigned bits_inside(const void *x, bool inside)
{
	unsigned short v;

	asm volatile("{\n"
		     ".reg .pred inside;\n"
		     "setp.ne.s32 inside, %2, 0;\n"
		     "mov.b16 %0, 0;\n"
		     "@inside ld.global.nc.b16 %0, [%1];\n"
		     "}"
		     : "=h"(v)
		     : "l"(x), "r"((int)inside));
	return v;
}

/* Value `tap` of a filter has channel, row and column in this order. */
__host__ __device__ __forceinline__ int64_t place_of_tap(const int64_t (&stride)[4], int tap)
{
	return tap / (SIDE * SIDE) * stride[1] + tap / SIDE % SIDE * stride[2] +
	       tap % SIDE * stride[3];
}

/* From the first value of a patch to each, in elements. */
struct patch {
	int at[TAPS];
};

static struct patch patch_of(const struct cuda_stem *p)
{
	struct patch o;

	for (int tap = 0; tap < TAPS; tap++)
		o.at[tap] = (int)place_of_tap(p->stride, tap);
	return o;
}

/* The patch of a pixel of y; zeros outside of the image and behind the last pixel. one: what stands
 * where the filters have the parts of the bias. */
template <typename T>
__device__ __forceinline__ void copy_patch(
	const struct cuda_stem &p, const struct patch &o, unsigned pixel, unsigned n, unsigned one,
	T *to)
{
	const unsigned row = pixel / p.out[1];
	const int top = (int)(row % p.out[0]) * p.step - p.pad[0],
		  left = (int)(pixel % p.out[1]) * p.step - p.pad[1];
	const T *x = as<const T>(p.x) + row / p.out[0] * p.stride[0] + top * p.stride[2] +
		     left * p.stride[3];
	unsigned v[DEPTH / 2] = {};
	bool in_row[SIDE], in_column[SIDE];

#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		in_row[i] = pixel < n && top + i >= 0 && top + i < p.in[0];
		in_column[i] = left + i >= 0 && left + i < p.in[1];
	}
#pragma unroll
	for (int tap = 0; tap < TAPS; tap++)
		v[tap / 2] |= bits_inside(x + o.at[tap],
				      in_row[tap / SIDE % SIDE] && in_column[tap % SIDE])
			      << tap % 2 * 16;
#pragma unroll
	for (int tap = TAPS; tap < TAPS + BIAS_PARTS; tap++)
		v[tap / 2] |= one << tap % 2 * 16;
#pragma unroll
	for (int i = 0; i < DEPTH / 8; i++)
		reinterpret_cast<uint4 *>(to)[i] =
			make_uint4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
}

/* ---- forward --------------------------------------------------------------------------------- */

/*
 * A thread's part of the filters as second operands. Of eight products the first four make eight
 * filters that follow each other of each thread of a group of four, and the others those 32 behind
 * them, so that such a group writes whole sectors.
 */
struct filters {
	unsigned v[FILTERS / 8][STEPS][2];
};

template <typename T>
__device__ __forceinline__ unsigned weights(const struct cuda_stem &p, int filter, int tap)
{
	const T *w = as<const T>(p.w) + filter * p.w_stride[0];
	unsigned v = 0;

	if (filter < p.filters && tap < TAPS)
		v = bits(w + place_of_tap(p.w_stride, tap));
	if (filter < p.filters && tap + 1 < TAPS)
		v |= bits(w + place_of_tap(p.w_stride, tap + 1)) << 16;
	return v;
}

/* What a part of x leaves; an infinite one leaves nothing. */
template <typename T> __device__ __forceinline__ float rest_of(float x, T part)
{
	return isinf((float)part) ? 0 : x - (float)part;
}

/* The parts of the bias at this tap and the next, if they are there. */
template <typename T>
__device__ __forceinline__ unsigned bias_parts(const struct cuda_stem &p, int filter, int tap)
{
	const float bias = filter < p.filters && p.bias ? p.bias[filter] : 0;
	const T high = (T)bias;
	const float rest = rest_of(bias, high);
	const T middle = (T)rest, low = (T)(rest - (float)middle);

	static_assert(TAPS % 2 == 1 && BIAS_PARTS == 3, "the first stands beside the last weight");
	return tap == TAPS - 1	 ? bits(&high) << 16
	       : tap == TAPS + 1 ? bits(&middle) | bits(&low) << 16
				 : 0;
}

template <typename T>
__device__ __forceinline__ void load_filters(
	const struct cuda_stem &p, int first, struct filters &f)
{
	const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int j = 0; j < FILTERS / 8; j++)
#pragma unroll
		for (int s = 0; s < STEPS; s++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				const int filter =
					first + j / 4 * 32 + g / 2 * 8 + j % 4 * 2 + g % 2;
				const int tap = 16 * s + 8 * half + 2 * t;

				f.v[j][s][half] = weights<T>(p, filter, tap);
				if (16 * s + 8 * half + 8 > TAPS)
					f.v[j][s][half] |= bias_parts<T>(p, filter, tap);
			}
}

/* Writes eight filters of a pixel, from `filter` on. */
template <bool RELU, typename T>
__device__ __forceinline__ void store_filters(
	const struct cuda_stem &p, unsigned pixel, int filter, float (&v)[PACK])
{
	if (filter >= p.filters)
		return;
	if constexpr (RELU)
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] = v[k] < 0 ? 0 : v[k];
	store(as<T>(p.dy) + (int64_t)pixel * p.filters + filter, v);
}

/* WARPS that share their patches, and each have 64 of the filters, have come here. */
template <int WARPS> __device__ __forceinline__ void meet_warps()
{
	if constexpr (WARPS == 1)
		__syncwarp();
	else
		asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / (WARPS * WARP)),
			     "n"(WARPS * WARP)
			     : "memory");
}

/* HALVES: of the filters of a block, 64 each. */
template <typename T, int HALVES, bool RELU>
__global__ void __launch_bounds__(HALVES *THREADS, HALVES == 1 ? RESIDENT : WIDE_RESIDENT)
	small_stem_kernel(const struct cuda_stem p, const struct patch o, unsigned n)
{
	__shared__ __align__(16) T patches[HALVES * THREADS][PITCH];
	const int lane = threadIdx.x % WARP, own = threadIdx.x / (HALVES * WARP) * (HALVES * WARP),
		  first = (blockIdx.y * HALVES + threadIdx.x / WARP % HALVES) * FILTERS;
	constexpr unsigned ONE = std::is_same<T, half>::value ? 0x3c00 : 0x3f80;
	struct filters f;

	load_filters<T>(p, first, f);
	for (unsigned at = blockIdx.x * HALVES * THREADS; at < n;
		at += gridDim.x * HALVES * THREADS) {
		meet_warps<HALVES>();
		copy_patch(p, o, at + threadIdx.x, n, ONE, patches[threadIdx.x]);
		meet_warps<HALVES>();
#pragma unroll 1
		for (int m = own; m < own + HALVES * WARP; m += 16) {
			unsigned a[STEPS][4];
			float sum[FILTERS / 8][4] = {};

#pragma unroll
			for (int s = 0; s < STEPS; s++) {
				load_blocks(a[s], shared_at(&patches[m + lane % 16]
								    [16 * s + lane / 16 * 8]));
#pragma unroll
				for (int j = 0; j < FILTERS / 8; j++)
					multiply(T(), sum[j], a[s], f.v[j][s][0], f.v[j][s][1]);
			}
#pragma unroll
			for (int k = 0; k < 4; k++) {
				const unsigned pixel = at + m + lane / 4 + k / 2 * 8;
				float v[PACK];

#pragma unroll
				for (int i = 0; i < PACK; i++)
					v[i] = sum[k % 2 * 4 + i / 2][k / 2 * 2 + i % 2];
				if (pixel < n)
					store_filters<RELU, T>(p, pixel,
						first + k % 2 * 32 + lane % 4 * PACK, v);
			}
		}
	}
}

/* halves: of the threads and filters of a block. */
static dim3 grid_of(const struct cuda_stem *p, int resident, int halves = 1)
{
	const unsigned tiles = blocks_for(pixels_of(p), THREADS * halves),
		       most = (unsigned)(resident * p->processors);

	return dim3(tiles < most ? tiles : most, blocks_for(p->filters, FILTERS * halves));
}

template <typename T, bool RELU>
static void convolution(const struct cuda_stem *p, cudaStream_t stream)
{
	const unsigned n = (unsigned)pixels_of(p);

	if (p->filters % (2 * FILTERS) == 0)
		small_stem_kernel<T, 2, RELU>
			<<<grid_of(p, WIDE_RESIDENT, 2), 2 * THREADS, 0, stream>>>(
				*p, patch_of(p), n);
	else
		small_stem_kernel<T, 1, RELU>
			<<<grid_of(p, RESIDENT), THREADS, 0, stream>>>(*p, patch_of(p), n);
}

template <typename T> static void convolution(const struct cuda_stem *p, cudaStream_t stream)
{
	p->relu ? convolution<T, true>(p, stream) : convolution<T, false>(p, stream);
}

void cuda_small_stem(const struct cuda_stem *p, cudaStream_t stream)
{
	p->x.type == CUDA_BF16 ? convolution<bf16>(p, stream) : convolution<half>(p, stream);
}

/* ---- gradient -------------------------------------------------------------------------------- */

#define SUMS (FILTERS * DEPTH + FILTERS) /* of a block: of the filter and of the bias */

/* The pack's elements of dy whose place in `open` is above 0, and their sums. */
template <typename T>
__device__ __forceinline__ void open_pack(T *dy, const T *open, float (&sum)[PACK], bool opens)
{
	float v[PACK], y[PACK];

	load(dy, v);
	if (opens)
		load(open, y);
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		v[k] = !opens || y[k] > 0 ? v[k] : 0;
		sum[k] += v[k];
	}
	store(dy, v);
}

/* The warp's 32 pixels of dy; a thread has the same filters of each. */
template <typename T>
__device__ __forceinline__ void copy_dy(const struct cuda_stem &p, unsigned first, unsigned n,
	T (*to)[DY_PITCH], float (&bias)[PACK])
{
	const int pack = threadIdx.x % 8 * PACK, filter = blockIdx.y * FILTERS + pack;
	uint4 dy[8], y[8] = {};

#pragma unroll
	for (int i = 0; i < 8; i++) {
		const unsigned pixel = first + threadIdx.x % WARP / 8 + 4 * i;
		const int64_t at = (int64_t)pixel * p.filters + filter;

		dy[i] = make_uint4(0, 0, 0, 0);
		if (pixel >= n || filter >= p.filters)
			continue;
		dy[i] = *reinterpret_cast<const uint4 *>(as<const T>(p.dy) + at);
		if (p.open.data)
			y[i] = *reinterpret_cast<const uint4 *>(as<const T>(p.open) + at);
	}
#pragma unroll
	for (int i = 0; i < 8; i++) {
		if (p.dbias)
			open_pack(reinterpret_cast<T *>(&dy[i]), reinterpret_cast<const T *>(&y[i]),
				bias, p.open.data != NULL);
		*reinterpret_cast<uint4 *>(&to[threadIdx.x % WARP / 8 + 4 * i][pack]) = dy[i];
	}
}

/* Adds the sums of the block's warps one after the other and writes those of the block. */
__device__ __forceinline__ void leave_sums(const struct cuda_stem &p, float *share,
	const float (&sum)[FILTERS / 16][DEPTH / 8][4], float (&bias)[PACK])
{
	const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
	float *to = p.partial + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * SUMS;

#pragma unroll
	for (int k = 0; k < PACK; k++) {
		bias[k] += __shfl_xor_sync(0xffffffffu, bias[k], 8);
		bias[k] += __shfl_xor_sync(0xffffffffu, bias[k], 16);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < SUMS; i += THREADS)
		share[i] = 0;
	for (int warp = 0; warp < THREADS / WARP; warp++) {
		__syncthreads();
		if (threadIdx.x / WARP != warp)
			continue;
#pragma unroll
		for (int m = 0; m < FILTERS / 16; m++)
#pragma unroll
			for (int j = 0; j < DEPTH / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++) {
					const int filter = 16 * m + g + i / 2 * 8;

					share[filter * DEPTH + 8 * j + 2 * t + i % 2] +=
						sum[m][j][i];
				}
		if (lane < 8)
#pragma unroll
			for (int k = 0; k < PACK; k++)
				share[FILTERS * DEPTH + lane * PACK + k] += bias[k];
	}
	__syncthreads();
	for (int i = threadIdx.x; i < SUMS; i += THREADS)
		to[i] = share[i];
}

template <typename T> struct tile_memory {
	T dy[THREADS][DY_PITCH], patches[THREADS][PITCH];
};

template <typename T>
__global__ void __launch_bounds__(THREADS, GRAD_RESIDENT)
	small_stem_grad_kernel(const struct cuda_stem p, const struct patch o, unsigned n)
{
	__shared__ __align__(16) struct tile_memory<T> tile;
	const int lane = threadIdx.x % WARP, own = threadIdx.x - lane, pixel = own + lane % 16;
	float sum[FILTERS / 16][DEPTH / 8][4] = {}, bias[PACK] = {};

	static_assert(sizeof(tile) >= SUMS * sizeof(float), "the sums lie over the tile");
	for (unsigned at = blockIdx.x * THREADS; at < n; at += gridDim.x * THREADS) {
		__syncwarp();
		copy_dy(p, at + own, n, tile.dy + own, bias);
		copy_patch(p, o, at + threadIdx.x, n, 0u, tile.patches[threadIdx.x]);
		__syncwarp();
#pragma unroll
		for (int s = 0; s < WARP; s += 16) {
			unsigned a[FILTERS / 16][4], b[DEPTH / 16][4];

#pragma unroll
			for (int m = 0; m < FILTERS / 16; m++)
				load_turned(a[m],
					shared_at(&tile.dy[own + s + lane % 8 + lane / 16 * 8]
							  [16 * m + lane / 8 % 2 * 8]));
#pragma unroll
			for (int j = 0; j < DEPTH / 16; j++) {
				load_turned(b[j], shared_at(&tile.patches[pixel + s]
									 [16 * j + lane / 16 * 8]));
#pragma unroll
				for (int m = 0; m < FILTERS / 16; m++) {
					multiply(T(), sum[m][2 * j], a[m], b[j][0], b[j][1]);
					multiply(T(), sum[m][2 * j + 1], a[m], b[j][2], b[j][3]);
				}
			}
		}
	}
	leave_sums(p, reinterpret_cast<float *>(&tile), sum, bias);
}

#define SEGMENTS 8

/* Threads (element, segment) add a segment's parts, then the first of them the segments. */
__global__ void small_stem_sums_kernel(const struct cuda_stem p, int parts)
{
	__shared__ double share[SEGMENTS][WARP];
	const int i = blockIdx.x * WARP + threadIdx.x, first = blockIdx.y * FILTERS;
	const float *from = p.partial + (int64_t)blockIdx.y * parts * SUMS + i;
	double sum = 0;

	for (int k = threadIdx.y; k < parts; k += SEGMENTS)
		sum += from[(int64_t)k * SUMS];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y)
		return;
	for (int k = 1; k < SEGMENTS; k++)
		sum += share[k][threadIdx.x];
	if (i >= FILTERS * DEPTH) {
		const int filter = first + i - FILTERS * DEPTH;

		if (p.dbias && filter < p.filters)
			p.dbias[filter] = (float)sum + (p.accumulate_bias ? p.dbias[filter] : 0);
	} else if (first + i / DEPTH < p.filters && i % DEPTH < TAPS) {
		float *dw = p.dw + (first + i / DEPTH) * p.w_stride[0] +
			    place_of_tap(p.w_stride, i % DEPTH);

		*dw = (float)sum + (p.accumulate ? *dw : 0);
	}
}

size_t cuda_small_stem_scratch(const struct cuda_stem *p)
{
	const dim3 grid = grid_of(p, GRAD_RESIDENT);

	return sizeof(float) * SUMS * grid.x * grid.y;
}

void cuda_small_stem_grad(const struct cuda_stem *p, cudaStream_t stream)
{
	const dim3 grid = grid_of(p, GRAD_RESIDENT);
	const unsigned n = (unsigned)pixels_of(p);

	static_assert(SUMS % WARP == 0, "whole warps of sums");
	if (p->x.type == CUDA_BF16)
		small_stem_grad_kernel<bf16><<<grid, THREADS, 0, stream>>>(*p, patch_of(p), n);
	else
		small_stem_grad_kernel<half><<<grid, THREADS, 0, stream>>>(*p, patch_of(p), n);
	small_stem_sums_kernel<<<dim3(SUMS / WARP, grid.y), dim3(WARP, SEGMENTS), 0, stream>>>(
		*p, (int)grid.x);
}
