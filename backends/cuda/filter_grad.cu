/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient dw[K,C,3,3] of a filter from x[B,Y,X,C] and dy[B,Y',X',K] in tf32, with channels last, pad 1
 * and stride 1 or 2: for each tap (r, s) the product x^T dy over all pixels of dy, with x at the pixels that
 * the tap sees.
 *
 * A block computes 64 channels x 64 filters x 9 taps for a range of chunks of 56 pixels of dy: whole rows,
 * padded to 7, 14, 28 or 56 pixels. Three warp groups compute the taps of one row of the filter each; a fourth
 * one brings x and dy to shared memory. x lies there as in memory, in a ring of rows with a frame of zeros. A
 * thread of a product sums over 14 neighbouring pixels of a chunk, so that an element of x that it has in a
 * register serves the taps of a row. dy is transposed on the way, because wgmma needs tf32 contiguous along the
 * dimension that is summed over; the pixels of a chunk lie in the order in which the threads use them. A second
 * kernel adds the sums of all ranges in their order.
 */
#include "hopper.cuh"
#include "image.h"
#include "mma.cuh"

#define SIDE	64 /* channels and filters of a block */
#define TAPS	9
#define OWN	14 /* pixels of a thread in a chunk */
#define PIXELS	(4 * OWN)
#define STEPS	(PIXELS / 8) /* products of 8 pixels each */
#define PITCH	(SIDE + 4)   /* floats from one pixel of x to the next */
#define GROUP	128	     /* threads of a warp group */
#define THREADS (4 * GROUP)
#define SLOT	(2 * SIDE * CHUNK_ROW) /* bytes of a chunk of dy */
#define MOST	4		       /* slots */
#define SHARED	232448		       /* bytes that a block may have */

/* How the pixels of dy are divided. */
struct chunks {
	int n, depth;	 /* all chunks; slots, the chunks that are in shared memory at a time */
	int rows, wide;	 /* rows of dy of a chunk, and their pixels with the padding */
	int ring, pitch; /* rows of x in shared memory, and the floats from one to the next */
	int splits;
};

/* The rows of x of all images one after the other, with a row of zeros before each image and after the last. */
__host__ __device__ __forceinline__ int row_of(const struct cuda_filter_grad &p, int row, int r)
{
	return row / p.out[0] * (p.in[0] + 1) + row % p.out[0] * p.stride + r;
}

__device__ __forceinline__ void copies_arrive(uint32_t bar)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

/* Addresses in shared memory: chunks of dy, rows of x, and the barriers of each slot. */
struct shared_memory {
	uint32_t slots, ring, full, empty;
};

/* ---- the warp group that loads ------------------------------------------------------------------------ */

/* Thread (m, l) of 8 x 16 loads filters 4 l .. 4 l + 3 of pixels m and m + 8 of the 14 of each thread of a product. */
struct loads {
	float4 v[2][4];
};

template <int RUN>
__device__ __forceinline__ void load_dy(
	const struct cuda_filter_grad &p, const struct chunks &g, int chunk, struct loads &to)
{
	int line = p.out[1] * p.filters, pixel = p.filters, thread = threadIdx.x % GROUP;

	/* hides the values, so that the compiler keeps no addresses in registers between chunks */
	asm volatile("" : "+r"(line), "+r"(pixel), "+r"(thread), "+r"(chunk));
	const int left = p.batch * p.out[0] - chunk * g.rows;
	const float *first =
		p.dy + (int64_t)chunk * g.rows * line + blockIdx.y * SIDE + thread % 16 * 4;
	/* from a thread of a product to the next one, and to the second next one */
	const int down[2] = {RUN == OWN ? g.wide == OWN : 2, RUN == OWN ? PIXELS / 2 / g.wide : 4};
	const int right[2] = {g.wide == OWN || RUN < OWN ? 0 : OWN, g.wide == PIXELS ? 2 * OWN : 0};

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int m = thread / 16 + 8 * half;
		const float *from = first + m / RUN * line + m % RUN * pixel;
#pragma unroll
		for (int q = 0; q < 4; q++) {
			const int row = m / RUN + q % 2 * down[0] + q / 2 * down[1];
			const int column = m % RUN + q % 2 * right[0] + q / 2 * right[1];

			to.v[half][q] = make_float4(0, 0, 0, 0);
			if (m < OWN && row < left && column < p.out[1])
				to.v[half][q] = __ldg(reinterpret_cast<const float4 *>(
					from + (q % 2 * down[0] + q / 2 * down[1]) * line +
					(q % 2 * right[0] + q / 2 * right[1]) * pixel));
		}
	}
}

__device__ __forceinline__ void store_rounded(uint32_t to, float a, float b, float c, float d)
{
	asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(tf32(a)),
		     "r"(tf32(b)), "r"(tf32(c)), "r"(tf32(d))
		     : "memory");
}

/* Row 16 i + l of the slot is filter 4 l + i; its chunks of 16 bytes are swizzled. */
__device__ __forceinline__ void store_dy(const struct loads &from, uint32_t slot)
{
	int thread = threadIdx.x % GROUP;

	asm volatile("" : "+r"(thread)); /* as in load_dy */
	const int m = thread / 16, l = thread % 16;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const float4(&v)[4] = from.v[half];
		const uint32_t to =
			slot + half * SIDE * CHUNK_ROW + l * CHUNK_ROW + (m ^ l % 8) * 16;

		if (m + 8 * half >= OWN)
			continue;
		store_rounded(to, v[0].x, v[1].x, v[2].x, v[3].x);
		store_rounded(to + 16 * CHUNK_ROW, v[0].y, v[1].y, v[2].y, v[3].y);
		store_rounded(to + 32 * CHUNK_ROW, v[0].z, v[1].z, v[2].z, v[3].z);
		store_rounded(to + 48 * CHUNK_ROW, v[0].w, v[1].w, v[2].w, v[3].w);
	}
}

/* The last row of x that a chunk reads. */
__device__ __forceinline__ int last_of(
	const struct cuda_filter_grad &p, const struct chunks &g, int chunk)
{
	return row_of(p, min((chunk + 1) * g.rows, p.batch * p.out[0]) - 1, 2);
}

/* Starts to load the rows of x that the chunk reads and the chunk before it did not. */
__device__ __forceinline__ void load_x(const struct cuda_filter_grad &p, const struct chunks &g,
	int chunk, bool first, uint32_t ring)
{
	int id = threadIdx.x % GROUP;

	asm volatile("" : "+r"(chunk), "+r"(id)); /* as in load_dy */
	const int last = last_of(p, g, chunk), thread = id / 16, line = p.in[1] * p.channels;
	int row = first ? row_of(p, chunk * g.rows, 0) : last_of(p, g, chunk - 1) + 1;
	int slot = row % g.ring, in_image = row % (p.in[0] + 1);
	const float *from =
		p.x + ((int64_t)(row / (p.in[0] + 1)) * p.in[0] + max(in_image - 1, 0)) * line +
		thread * p.channels + blockIdx.x * SIDE + id % 16 * 4;

	for (; row <= last; row++) {
		const bool inside = in_image > 0; /* else a row of zeros */
		const float *pixel = inside ? from : p.x;
		uint32_t to = ring + (slot * g.pitch + (thread + 1) * PITCH + id % 16 * 4) *
					     (int)sizeof(float);

		for (int i = thread; i < p.in[1]; i += 8) {
			copy_async<16>(to, pixel, inside);
			pixel += inside ? 8 * p.channels : 0;
			to += 8 * PITCH * sizeof(float);
		}
		from += inside ? line : 0;
		in_image = in_image < p.in[0] ? in_image + 1 : 0;
		slot = slot + 1 < g.ring ? slot + 1 : 0;
	}
}

template <int RUN>
__device__ __forceinline__ void load_chunks(const struct cuda_filter_grad &p,
	const struct chunks &g, const struct shared_memory &m, int begin, int end)
{
	struct loads dy;
	int slot = 0, parity = 1;

	load_dy<RUN>(p, g, begin, dy);
	for (int i = begin; i < end; i++) {
		barrier_wait(m.empty + 8 * slot, parity);
		store_dy(dy, m.slots + slot * SLOT);
		asm volatile("fence.proxy.async;" ::: "memory");
		barrier_arrive(m.full + 8 * slot);
		load_x(p, g, i, i == begin, m.ring);
		copies_arrive(m.full + 8 * slot);
		if (i + 1 < end)
			load_dy<RUN>(p, g, i + 1, dy);
		if (++slot == g.depth)
			slot = 0, parity ^= 1;
	}
}

/* ---- the warp groups that multiply -------------------------------------------------------------------- */

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

/* Starts N products from step FROM on; x is loaded once for neighbouring pixels. */
template <int STEP, int RUN, int FROM, int N>
__device__ __forceinline__ void multiply_steps(
	const uint32_t (&from)[OWN / RUN], uint64_t dy, float (&sum)[3][SIDE / 2])
{
	unsigned a[2 * N][3][2];

#pragma unroll
	for (int i = 0; i < 2 * N; i++)
#pragma unroll
		for (int s = 0; s < 3; s++) {
			const int m = 2 * FROM + i;

			if (i && m % RUN && s + STEP < 3)
				a[i][s][0] = a[i - 1][s + STEP][0],
				a[i][s][1] = a[i - 1][s + STEP][1];
			else
				load_pixel(from[m / RUN] + (m % RUN * STEP + s) * PITCH *
								   (int)sizeof(float),
					a[i][s]);
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
	const int across = g.wide / OWN;
	const uint32_t x = m.ring + (threadIdx.x / WARP % 4 * 16 + lane / 4 * 2 +
					    (RUN == OWN ? t % across * OWN * STEP * PITCH : 0)) *
					    (int)sizeof(float);
	struct run at[OWN / RUN];
	float sum[3][SIDE / 2] = {};
	int slot = 0, parity = 0;

#pragma unroll
	for (int k = 0; k < OWN / RUN; k++) {
		const int row = begin * g.rows + (RUN == OWN ? t / across : 2 * t + k);

		at[k].y = row % p.out[0];
		at[k].slot = row_of(p, row, r) % g.ring;
	}
	for (int i = begin; i < end; i++) {
		const uint64_t dy = matrix_at(m.slots + slot * SLOT, 16);
		uint32_t from[OWN / RUN];
		const int before = slot ? slot - 1 : g.depth - 1;

#pragma unroll
		for (int k = 0; k < OWN / RUN; k++)
			from[k] = x + at[k].slot * g.pitch * (int)sizeof(float);
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
	filter_kernel(const struct cuda_filter_grad p, const struct chunks g)
{
	extern __shared__ __align__(1024) unsigned char memory[];
	const int begin = (int)((int64_t)g.n * blockIdx.z / g.splits),
		  end = (int)((int64_t)g.n * (blockIdx.z + 1) / g.splits);
	const uint32_t slots = shared_at(memory), ring = slots + g.depth * SLOT,
		       full = ring + g.ring * g.pitch * (int)sizeof(float);
	const struct shared_memory m = {slots, ring, full, full + 8 * MOST};

	for (int i = threadIdx.x; i < g.ring * g.pitch / 4; i += THREADS)
		reinterpret_cast<float4 *>(memory + g.depth * SLOT)[i] = make_float4(0, 0, 0, 0);
	if (threadIdx.x == 0) {
		for (int i = 0; i < g.depth; i++) {
			barrier_init(m.full + 8 * i, 2 * GROUP);
			barrier_init(m.empty + 8 * i, 3 * GROUP / WARP);
		}
		barrier_publish();
	}
	__syncthreads();
	if (__shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0) == 3) {
		fewer_registers<56>();
		load_chunks<RUN>(p, g, m, begin, end);
		return;
	}
	more_registers<152>();
	multiply_chunks<STEP, RUN>(p, g, m, begin, end);
}

/* ---- the sum over the splits --------------------------------------------------------------------------- */

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

/* ---- start ------------------------------------------------------------------------------------------------ */

/* The floats between rows of x that let four threads read different banks where the shape allows it. */
static int pitch_of(const struct cuda_filter_grad *p, int wide)
{
	const int columns = p->stride * (wide - 1) + 3;
	int pitch = columns * PITCH, wanted = wide == 28 ? 16 : wide == 14 ? 8 : 4;

	if (p->stride == 2)
		wanted = 4;
	while (wide < PIXELS && pitch % (p->stride == 2 ? 16 : 32) != wanted)
		pitch += 4;
	return pitch;
}

static int memory_of(const struct chunks *g)
{
	return g->depth * SLOT + g->ring * g->pitch * (int)sizeof(float) + 2 * MOST * 8;
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
		if (memory_of(&g) <= SHARED)
			break;
	}
	*ret = g;
	return g.depth > 1;
}

bool cuda_filter_knows(const struct cuda_filter_grad *p)
{
	struct chunks g;

	return (p->stride == 1 || p->stride == 2) && p->channels % SIDE == 0 &&
	       p->filters % SIDE == 0 && divide(p, &g);
}

size_t cuda_filter_scratch(const struct cuda_filter_grad *p)
{
	struct chunks g;

	divide(p, &g);
	return sizeof(float) * TAPS * SIDE * SIDE * (size_t)tiles_of(p) * (size_t)g.splits;
}

template <int STEP, int RUN>
static cudaError_t grad(
	const struct cuda_filter_grad *p, const struct chunks *g, cudaStream_t stream)
{
	const unsigned tiles = (unsigned)tiles_of(p);
	cudaError_t rc = cudaFuncSetAttribute(filter_kernel<STEP, RUN>,
		cudaFuncAttributeMaxDynamicSharedMemorySize, memory_of(g));

	if (rc)
		return rc;
	filter_kernel<STEP, RUN><<<dim3((unsigned)(p->channels / SIDE),
					   (unsigned)(p->filters / SIDE), (unsigned)g->splits),
		THREADS, memory_of(g), stream>>>(*p, *g);
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
