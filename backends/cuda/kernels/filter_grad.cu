/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient dw[K,C,3,3] of a filter from x[B,Y,X,C] and dy[B,Y',X',K] in tf32, with channels
 * last, pad 1 and stride 1 or 2: for each tap (r, s) the product x^T dy over all pixels of dy, with
 * x at the pixels that the tap sees.
 *
 * A block computes 64 channels x 64 filters x 9 taps for a range of chunks of 56 pixels of dy:
 * whole rows, padded to 7, 14, 28 or 56 pixels. Three warp groups compute the taps of one row of
 * the filter each; a fourth one brings x and dy to shared memory. x lies there as in memory, in a
 * ring of rows with a frame of zeros. A thread of a product sums over 14 neighbouring pixels of a
 * chunk, so that an element of x that it has in a register serves the taps of a row. dy is
 * transposed on the way, because wgmma needs tf32 contiguous along the dimension that is summed
 * over; the pixels of a chunk lie in the order in which the threads use them. A second kernel adds
 * the sums of all ranges in their order.
 */
#include <string.h>

#include "tensor_map.h"
#include "hopper.cuh"
#include "image_kernels.h"
#include "mma.cuh"

#define SIDE	64 /* channels and filters of a block */
#define TAPS	9
#define OWN	14 /* pixels of a thread in a chunk */
#define PIXELS	(4 * OWN)
#define STEPS	(PIXELS / 8) /* products of 8 pixels each */
#define HALF	32	     /* channels or filters of a box */
#define GROUP	128	     /* threads of a warp group */
#define THREADS (4 * GROUP)
#define SLOT	(2 * SIDE * CHUNK_ROW)	 /* bytes of a chunk of dy */
#define STAGE	(2 * PIXELS * CHUNK_ROW) /* bytes of a chunk of dy as it comes from memory */
#define MOST	4			 /* slots and stages */
#define SHARED	232448			 /* bytes that a block may have */

/* How the pixels of dy are divided. */
struct chunks {
	int n, depth;	 /* all chunks; slots, the chunks that are in shared memory at a time */
	int stages;	 /* chunks of dy that are on their way */
	int rows, wide;	 /* rows of dy of a chunk, and their pixels with the padding */
	int ring, pitch; /* rows of x in shared memory, and the pixels from one to the next */
	int splits;
};

/* The rows of x of all images one after the other, with a row of zeros before each image and after
 * the last. */
__host__ __device__ __forceinline__ int row_of(const struct cuda_filter_grad &p, int row, int r)
{
	return row / p.out[0] * (p.in[0] + 1) + row % p.out[0] * p.stride + r;
}

/* The row of dy of run k of thread t of a product, counted from the chunk's first one. */
template <int RUN> __device__ __forceinline__ int row_of_run(const struct chunks &g, int t, int k)
{
	return RUN == OWN ? t * OWN / g.wide : t + 4 * k;
}

/* Where copies of boxes put what would be at this address without their swizzle. */
__device__ __forceinline__ uint32_t swizzled(uint32_t at)
{
	return at ^ (at >> 3 & 0x70);
}

/* Addresses in shared memory: chunks of dy, rows of x, and the barriers of slots and of stages. */
struct shared_memory {
	uint32_t slots, stages, ring, full, empty, staged, read;
};

/* ---- the warp group that loads --------------------------------------------------------------- */

/* Starts to copy the rows of x that the chunk reads and the chunk before it did not. A warp copies
 * half of the channels of every second row. */
__device__ __forceinline__ void load_x(const CUtensorMap *boxes, const struct cuda_filter_grad &p,
	const struct chunks &g, const struct shared_memory &m, int chunk, bool first, uint32_t full)
{
	int warp = threadIdx.x / WARP % 4;

	/* hides the values, so that the compiler keeps nothing made from them in registers between
	 * chunks */
	asm volatile("" : "+r"(warp), "+r"(chunk));
	const int half = warp % 2, bytes = g.pitch * CHUNK_ROW;
	const int last = row_of(p, (chunk + 1) * g.rows - 1, 2);
	int row = warp / 2 +
		  (first ? row_of(p, chunk * g.rows, 0) : row_of(p, chunk * g.rows - 1, 2) + 1);

	barrier_expect(full, max((last - row + 2) / 2, 0) * bytes);
	for (; row <= last; row += 2)
		copy_pixels(m.ring + (half * g.ring + row % g.ring) * bytes, boxes,
			blockIdx.x * SIDE + half * HALF, -1, row % (p.in[0] + 1) - 1,
			row / (p.in[0] + 1), full);
}

/* Starts to copy dy of the chunk to its stage; n: number of the chunk in this block. Two warps copy
 * half of the filters each. */
__device__ __forceinline__ void load_dy(const CUtensorMap *boxes, const struct chunks &g,
	const struct shared_memory &m, int chunk, int n)
{
	const int half = threadIdx.x / WARP % 2, stage = n % g.stages;
	const uint32_t bar = m.staged + 8 * stage;

	if (n >= g.stages)
		barrier_wait(m.read + 8 * stage, (n / g.stages - 1) & 1);
	barrier_expect(bar, STAGE / 2);
	copy_box(m.stages + stage * STAGE + half * (STAGE / 2), boxes,
		blockIdx.y * SIDE + half * HALF, 0, chunk * g.rows, bar);
}

/* Thread (n, l) of 8 x 16 brings filters 4 l .. 4 l + 3 of pixels n and n + 8 of the 14 of each
 * thread of a product to its slot. */
struct pixels {
	float4 v[2][4];
};

template <int RUN> __device__ __forceinline__ void read_dy(uint32_t stage, struct pixels &to)
{
	int thread = threadIdx.x % GROUP;

	asm volatile("" : "+r"(thread)); /* as in load_x */
	const int l = thread % 16;
	const uint32_t from = stage + l / 8 * (STAGE / 2) + l % 8 * 16;

#pragma unroll
	for (int half = 0; half < 2; half++)
#pragma unroll
		for (int q = 0; q < 4; q++) {
			const int n = thread / 16 + 8 * half;
			const int pixel = q * RUN + n % RUN + n / RUN * 4 * RUN;
			float4 &v = to.v[half][q];

			if (n < OWN)
				asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
					     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
					     : "r"(swizzled(from + pixel * CHUNK_ROW)));
		}
}

__device__ __forceinline__ void store_rounded(uint32_t to, float a, float b, float c, float d)
{
	asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(tf32(a)),
		     "r"(tf32(b)), "r"(tf32(c)), "r"(tf32(d))
		     : "memory");
}

/* Row 16 i + l of the slot is filter 4 l + i; its chunks of 16 bytes are swizzled. */
__device__ __forceinline__ void store_dy(const struct pixels &from, uint32_t slot)
{
	int thread = threadIdx.x % GROUP;

	asm volatile("" : "+r"(thread)); /* as in load_x */
	const int l = thread % 16;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int n = thread / 16;
		const float4(&v)[4] = from.v[half];
		const uint32_t to =
			slot + half * SIDE * CHUNK_ROW + l * CHUNK_ROW + (n ^ l % 8) * 16;

		if (n + 8 * half >= OWN)
			continue;
		store_rounded(to, v[0].x, v[1].x, v[2].x, v[3].x);
		store_rounded(to + 16 * CHUNK_ROW, v[0].y, v[1].y, v[2].y, v[3].y);
		store_rounded(to + 32 * CHUNK_ROW, v[0].z, v[1].z, v[2].z, v[3].z);
		store_rounded(to + 48 * CHUNK_ROW, v[0].w, v[1].w, v[2].w, v[3].w);
	}
}

template <int RUN>
__device__ __forceinline__ void load_chunks(const CUtensorMap *x_boxes, const CUtensorMap *dy_boxes,
	const struct cuda_filter_grad &p, const struct chunks &g, const struct shared_memory &m,
	int begin, int end)
{
	const bool copies = threadIdx.x % WARP == 0,
		   copies_dy = copies && threadIdx.x / WARP % 4 >= 2;
	int slot = 0, parity = 1, stage = 0, staged = 0;

	for (int n = 0; copies_dy && n < g.stages - 1 && begin + n < end; n++)
		load_dy(dy_boxes, g, m, begin + n, n);
	for (int i = begin; i < end; i++) {
		struct pixels dy;

		barrier_wait(m.empty + 8 * slot, parity);
		if (copies)
			load_x(x_boxes, p, g, m, i, i == begin, m.full + 8 * slot);
		if (copies_dy && i + g.stages - 1 < end)
			load_dy(dy_boxes, g, m, i + g.stages - 1, i - begin + g.stages - 1);
		__syncwarp();
		barrier_wait(m.staged + 8 * stage, staged);
		read_dy<RUN>(m.stages + stage * STAGE, dy);
		store_dy(dy, m.slots + slot * SLOT);
		asm volatile("fence.proxy.async;" ::: "memory");
		barrier_arrive(m.full + 8 * slot);
		barrier_arrive(m.read + 8 * stage);
		if (++slot == g.depth)
			slot = 0, parity ^= 1;
		if (++stage == g.stages)
			stage = 0, staged ^= 1;
	}
}

/* ---- the warp groups that multiply ----------------------------------------------------------- */

/* Where a thread's pixels of a run are: the row of dy in its image and the row of x in the ring. */
struct run {
	int y, slot;
};

__device__ __forceinline__ void advance(
	const struct cuda_filter_grad &p, const struct chunks &g, struct run &at)
{
	at.y += g.rows;
	at.slot += g.rows * p.stride;
	while (at.y >= p.out[0]) {
		at.y -= p.out[0];
		at.slot += p.in[0] + 1 - p.out[0] * p.stride;
	}
	while (at.slot >= g.ring)
		at.slot -= g.ring;
}

/* Two channels of a pixel of x. */
__device__ __forceinline__ void load_pixel(uint32_t from, unsigned (&to)[2])
{
	float low, high;

	asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high) : "r"(from));
	to[0] = tf32(low), to[1] = tf32(high);
}

/* Two channels of the pixel that lies some columns after the one at `from`. */
__device__ __forceinline__ void load_column(uint32_t from, int column, unsigned (&to)[2])
{
	load_pixel(swizzled(from + column % 8 * CHUNK_ROW) + column / 8 * 8 * CHUNK_ROW, to);
}

/* Starts N products from step FROM on; x is loaded once for neighbouring pixels. */
template <int STEP, int RUN, int FROM, int N>
__device__ __forceinline__ void multiply_steps(
	uint32_t (&from)[OWN / RUN], uint64_t dy, float (&sum)[3][SIDE / 2])
{
	unsigned a[2 * N][3][2];

#pragma unroll
	for (int k = 0; k < OWN / RUN; k++)
		asm volatile("" : "+r"(from[k])); /* so that no addresses stay in registers */
#pragma unroll
	for (int i = 0; i < 2 * N; i++)
#pragma unroll
		for (int s = 0; s < 3; s++) {
			const int m = 2 * FROM + i;

			if (i && m % RUN && s + STEP < 3)
				a[i][s][0] = a[i - 1][s + STEP][0],
				a[i][s][1] = a[i - 1][s + STEP][1];
			else
				load_column(from[m / RUN], m % RUN * STEP + s, a[i][s]);
		}
	product_fence();
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int j = FROM + k;
		const uint64_t b = dy + (j / 4 * SIDE * CHUNK_ROW + j % 4 * 32) / 16;
#pragma unroll
		for (int s = 0; s < 3; s++) {
			const uint32_t left[4] = {a[2 * k][s][0], a[2 * k][s][1],
				a[2 * k + 1][s][0], a[2 * k + 1][s][1]};

			product_tf32(sum[s], left, b);
		}
	}
	product_commit();
}

/* Row g of a warp's 16 rows of the sums is channel 2 g, row 8 + g channel 2 g + 1. */
__device__ __forceinline__ void store_sums(
	const struct chunks &g, const struct cuda_filter_grad &p, const float (&sum)[3][SIDE / 2])
{
	const int lane = threadIdx.x % WARP, r = threadIdx.x / GROUP;
	float *to = p.partial +
		    ((int64_t)(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) *
			    TAPS * SIDE * SIDE +
		    3 * r * SIDE * SIDE + threadIdx.x / WARP % 4 * 16 + lane / 4 * 2;

#pragma unroll
	for (int s = 0; s < 3; s++)
#pragma unroll
		for (int b = 0; b < 8; b++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const int row = 8 * b + lane % 4 * 2 + e,
					  filter = row % 16 * 4 + row / 16;

				*reinterpret_cast<float2 *>(to + (s * SIDE + filter) * SIDE) =
					make_float2(sum[s][4 * b + e], sum[s][4 * b + 2 + e]);
			}
}

/* While a warp group loads pixels, the products of the others run. */
template <int STEP, int RUN>
__device__ __forceinline__ void multiply_chunks(const struct cuda_filter_grad &p,
	const struct chunks &g, const struct shared_memory &m, int begin, int end)
{
	const int lane = threadIdx.x % WARP, t = lane % 4, r = threadIdx.x / GROUP;
	const int warp = threadIdx.x / WARP % 4, line = g.pitch * CHUNK_ROW;
	const uint32_t x = m.ring + warp / 2 * g.ring * line +
			   (RUN == OWN ? t * OWN % g.wide * STEP * CHUNK_ROW : 0) +
			   (warp % 2 * 16 + lane / 4 * 2) * (int)sizeof(float);
	struct run at[OWN / RUN];
	float sum[3][SIDE / 2] = {};
	int slot = 0, parity = 0;

#pragma unroll
	for (int k = 0; k < OWN / RUN; k++) {
		const int row = begin * g.rows + row_of_run<RUN>(g, t, k);

		at[k].y = row % p.out[0];
		at[k].slot = row_of(p, row, r) % g.ring;
	}
	for (int i = begin; i < end; i++) {
		const uint64_t dy = matrix_at(m.slots + slot * SLOT, 16);
		uint32_t from[OWN / RUN];
		const int before = slot ? slot - 1 : g.depth - 1;

#pragma unroll
		for (int k = 0; k < OWN / RUN; k++)
			from[k] = x + at[k].slot * line;
		product_wait<0>();
		if (i > begin && lane == 0)
			barrier_arrive(m.empty + 8 * before);
		barrier_wait(m.full + 8 * slot, parity);
		multiply_steps<STEP, RUN, 0, 2>(from, dy, sum);
		product_wait<0>();
		multiply_steps<STEP, RUN, 2, 2>(from, dy, sum);
		product_wait<0>();
		multiply_steps<STEP, RUN, 4, 2>(from, dy, sum);
		product_wait<0>();
		multiply_steps<STEP, RUN, 6, 1>(from, dy, sum);
#pragma unroll
		for (int k = 0; k < OWN / RUN; k++)
			advance(p, g, at[k]);
		if (++slot == g.depth)
			slot = 0, parity ^= 1;
	}
	product_wait<0>();
#pragma unroll
	for (int s = 0; s < 3; s++)
		results_from_here(sum[s]);
	store_sums(g, p, sum);
}

/* Block (channels, filters, split): a range of the chunks. */
template <int STEP, int RUN>
__global__ void __launch_bounds__(THREADS, 1)
	filter_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap dy,
		const struct cuda_filter_grad p, const struct chunks g)
{
	extern __shared__ __align__(1024) unsigned char memory[];
	const int begin = (int)((int64_t)g.n * blockIdx.z / g.splits),
		  end = (int)((int64_t)g.n * (blockIdx.z + 1) / g.splits);
	const uint32_t slots = shared_at(memory), stages = slots + g.depth * SLOT,
		       ring = stages + g.stages * STAGE,
		       full = ring + 2 * g.ring * g.pitch * CHUNK_ROW;
	const struct shared_memory m = {slots, stages, ring, full, full + 8 * MOST,
		full + 16 * MOST, full + 24 * MOST};

	if (threadIdx.x == 0) {
		for (int i = 0; i < MOST; i++) {
			barrier_init(m.full + 8 * i, GROUP + 4);
			barrier_init(m.empty + 8 * i, 3 * GROUP / WARP);
			barrier_init(m.staged + 8 * i, 2);
			barrier_init(m.read + 8 * i, GROUP);
		}
		barrier_publish();
	}
	__syncthreads();
	if (__shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0) == 3) {
		fewer_registers<56>();
		load_chunks<RUN>(&x, &dy, p, g, m, begin, end);
		return;
	}
	more_registers<152>();
	multiply_chunks<STEP, RUN>(p, g, m, begin, end);
}

/* ---- the sum over the splits ----------------------------------------------------------------- */

#define SEGMENTS 8

/* Threads (4 channels, segment) add a segment's parts, then the first of them the segments. */
__global__ void filter_sums_kernel(const struct cuda_filter_grad p, int splits)
{
	__shared__ double share[SEGMENTS][4][WARP];
	const int i = blockIdx.x * WARP + threadIdx.x, n = gridDim.x * WARP;
	const int tile = i / (TAPS * SIDE * SIDE / 4), tap = i / (SIDE * SIDE / 4) % TAPS;
	const int across = p.channels / SIDE;
	const int filter = tile / across * SIDE + i / (SIDE / 4) % SIDE,
		  channel = tile % across * SIDE + i % (SIDE / 4) * 4;
	const float4 *from = reinterpret_cast<const float4 *>(p.partial) + i;
	double sum[4] = {};

#pragma unroll 4
	for (int k = threadIdx.y; k < splits; k += blockDim.y) {
		const float4 v = from[(int64_t)k * n];

		sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
	}
	for (int k = 0; k < 4; k++)
		share[threadIdx.y][k][threadIdx.x] = sum[k];
	__syncthreads();
	if (threadIdx.y)
		return;
	for (int k = 0; k < 4; k++) {
		float *dw = p.dw + filter * p.w_stride[0] + (channel + k) * p.w_stride[1] +
			    tap / 3 * p.w_stride[2] + tap % 3 * p.w_stride[3];

		for (int s = 1; s < (int)blockDim.y; s++)
			sum[k] += share[s][k][threadIdx.x];
		*dw = (float)sum[k] + (p.accumulate ? *dw : 0);
	}
}

/* ---- start ----------------------------------------------------------------------------------- */

/* The pixels between rows of x that let four threads read different banks where the shape allows
 * it. */
static int pitch_of(const struct cuda_filter_grad *p, int wide)
{
	const int columns = p->stride * (wide - 1) + 3;
	const int wanted = wide == 28 ? 4 : 2, period = wide == 28 ? 8 : 4;
	int pitch = columns;

	if (p->stride == 2)
		return columns; /* odd */
	while (wide < PIXELS && pitch % period != wanted)
		pitch++;
	return pitch;
}

static int memory_of(const struct chunks *g)
{
	return g->depth * SLOT + g->stages * STAGE + 2 * g->ring * g->pitch * CHUNK_ROW +
	       4 * MOST * 8;
}

static int tiles_of(const struct cuda_filter_grad *p)
{
	return p->channels / SIDE * (p->filters / SIDE);
}

/* The splits that end first, if each costs the time of a few chunks more. */
static int splits_of(const struct cuda_filter_grad *p, int chunks)
{
	const int tiles = tiles_of(p), most = 2 * p->processors / tiles + 1;
	int64_t least = INT64_MAX;
	int best = 1;

	for (int s = 1; s <= most && s <= chunks; s++) {
		int64_t cost = (int64_t)blocks_for((int64_t)tiles * s, p->processors) *
			       (blocks_for(chunks, s) + 6);

		if (cost < least)
			least = cost, best = s;
	}
	return best;
}

/* False where shared memory does not suffice. */
static bool divide(const struct cuda_filter_grad *p, struct chunks *ret)
{
	struct chunks g = {};

	g.wide = 7;
	while (g.wide < p->out[1])
		g.wide *= 2;
	if (g.wide > PIXELS)
		return false;
	g.rows = PIXELS / g.wide;
	g.n = (int)blocks_for((int64_t)p->batch * p->out[0], g.rows);
	g.pitch = pitch_of(p, g.wide);
	g.splits = splits_of(p, g.n);
	for (g.depth = MOST; g.depth > 1; g.depth--) {
		const int rows = g.depth * g.rows;

		/* the rows of x of these rows of dy, with those of zeros between images */
		g.ring = (rows - 1) * p->stride + 3 + (rows - 2 + p->out[0]) / p->out[0];
		for (g.stages = 3; g.stages > 1 && memory_of(&g) > SHARED;)
			g.stages--;
		if (g.stages > 1)
			break;
	}
	*ret = g;
	return g.depth > 1;
}

bool cuda_filter_knows(const struct cuda_filter_grad *p)
{
	struct chunks g;

	return (p->stride == 1 || p->stride == 2) && p->channels % SIDE == 0 &&
	       p->filters % SIDE == 0 && divide(p, &g) && cuda_tensor_map_exist();
}

size_t cuda_filter_scratch(const struct cuda_filter_grad *p)
{
	struct chunks g;

	divide(p, &g);
	return sizeof(float) * TAPS * SIDE * SIDE * (size_t)tiles_of(p) * (size_t)g.splits;
}

/* Describes x and dy to the copies. */
static bool describe(const struct cuda_filter_grad *p, const struct chunks *g, CUtensorMap *ret_x,
	CUtensorMap *ret_dy)
{
	const struct cuda_tensor_map_shape x = {true, 4,
		{p->channels, p->in[1], p->in[0], p->batch}, {HALF, g->pitch, 1, 1}};
	const struct cuda_tensor_map_shape dy = {true, 3,
		{p->filters, p->out[1], (int64_t)p->batch * p->out[0]}, {HALF, g->wide, g->rows}};
	struct cuda_tensor_map boxes[2];

	if (!cuda_tensor_map_describe(&x, p->x.data, &boxes[0]) ||
		!cuda_tensor_map_describe(&dy, p->dy.data, &boxes[1]))
		return false;
	memcpy(ret_x, &boxes[0], sizeof *ret_x);
	memcpy(ret_dy, &boxes[1], sizeof *ret_dy);
	return true;
}

template <int STEP, int RUN>
static cudaError_t grad(
	const struct cuda_filter_grad *p, const struct chunks *g, cudaStream_t stream)
{
	const unsigned tiles = (unsigned)tiles_of(p);
	CUtensorMap x, dy;
	cudaError_t rc = cudaFuncSetAttribute(filter_kernel<STEP, RUN>,
		cudaFuncAttributeMaxDynamicSharedMemorySize, memory_of(g));

	if (rc)
		return rc;
	if (!describe(p, g, &x, &dy))
		return cudaErrorNotSupported;
	filter_kernel<STEP, RUN><<<dim3((unsigned)(p->channels / SIDE),
					   (unsigned)(p->filters / SIDE), (unsigned)g->splits),
		THREADS, memory_of(g), stream>>>(x, dy, *p, *g);
	filter_sums_kernel<<<tiles * TAPS * SIDE * SIDE / 4 / WARP,
		dim3(WARP, (unsigned)(g->splits < SEGMENTS ? g->splits : SEGMENTS)), 0, stream>>>(
		*p, g->splits);
	return cudaSuccess;
}

cudaError_t cuda_filter_grad(const struct cuda_filter_grad *p, cudaStream_t stream)
{
	struct chunks g;

	if (!divide(p, &g))
		return cudaErrorInvalidValue;
	if (p->stride == 1)
		return g.wide < OWN ? grad<1, OWN / 2>(p, &g, stream) : grad<1, OWN>(p, &g, stream);
	return g.wide < OWN ? grad<2, OWN / 2>(p, &g, stream) : grad<2, OWN>(p, &g, stream);
}
