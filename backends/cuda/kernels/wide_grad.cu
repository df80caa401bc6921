/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient dw[K,C,3,3] of a filter with stride 1 and pad 1 for many channels, from x[B,Y,X,C]
 * and dy[B,Y,X,K] in 16 bits with channels last, on tensor cores of compute capability 9.0: for
 * each tap the product dy^T x over all pixels of dy, with x at the pixels that the tap sees.
 *
 * A block computes 64 filters x 64 channels x 9 taps, chunk by chunk of 64 pixels of dy: 1, 2, 4 or
 * 8 rows of a strip of the image, down the strip. Rows of x lie in a ring in shared memory, once
 * for all taps, each with the columns beside it; what lies outside of the image is copied as 0.
 * Three warp groups compute the taps of one row of the filter each. Their three taps are one
 * product with 192 columns: the 64 channels of a tap lie one pixel after those of the tap before,
 * and so the descriptor of the product says. One more warp copies, another one adds up dy for the
 * gradient of the bias, of which the blocks of all channels have equal shares.
 */
#include <string.h>

#include "hopper.cuh"
#include "tensor_map.h"
#include "wide_grad.h"
#include "wide_shares.h"

#define SIDE	64 /* channels and filters of a block */
#define TAPS	9
#define CHUNK	64 /* pixels */
#define STEP	16 /* pixels that an instruction sums over */
#define GROUP	128
#define GROUPS	3
#define COPIES	(GROUPS * GROUP / WARP) /* the warp that copies; then that of the bias */
#define THREADS ((COPIES + 2) * WARP)
#define DEPTH	8 /* chunks that are in shared memory at a time */
#define SLOT	(CHUNK * CHUNK_ROW)
#define TILE	(SIDE * SIDE * TAPS)

/* Chunks of WIDTH columns, and the boxes of x that they need: rows from that above the chunk to
 * that below it, columns from that left of it to that right of it. */
template <int WIDTH> struct ring {
	static constexpr int rows = CHUNK / WIDTH;
	/* A chunk shares boxes with the next, but for the narrowest, which is copied at once. */
	static constexpr int box_rows = WIDTH == 8 ? rows + 2 : rows;
	static constexpr int boxes = WIDTH == 8 ? 1 : rows == 1 ? 3 : 2;
	/* Rows of the first box that are not needed. */
	static constexpr int before = boxes == 2 ? rows - 2 : 0;
	static constexpr int columns = WIDTH + 2;
	static constexpr int line = columns * CHUNK_ROW;
	static constexpr int bytes = (box_rows * line + 1023) / 1024 * 1024; /* of a box */
	/* From eight pixels of a product to the next eight. */
	static constexpr int eight = WIDTH == 8 ? line : 8 * CHUNK_ROW;
	static constexpr int n = WIDTH == 8 ? 12 : 16; /* boxes */
	static constexpr int memory = n * bytes + DEPTH * (SLOT + 16);
};

/* Strips of an image, and chunks of a strip. */
struct cuts {
	int strips, down;
	bool flat; /* chunks are contiguous in dy */
};

/* Where a chunk is. */
struct place {
	int down, strip, image;
};

/* Addresses in shared memory: boxes of x, chunks of dy, and barriers. */
struct shared_memory {
	uint32_t ring, slots, full, empty;
};

/* The first box of a chunk. begin: that of the chunk before; next: the first box after it; top: the
 * chunk is the first of a strip. */
template <int WIDTH>
__device__ __forceinline__ int begin_of(bool first, bool top, int begin, int next)
{
	if (first || ring<WIDTH>::boxes == 1 || (top && ring<WIDTH>::boxes == 2))
		return next;
	return begin + 1 + top; /* strips have the row of zeros between them in common */
}

/* ---- the warp that copies -------------------------------------------------------------------- */

/* Counts of chunks that were copied and that were multiplied, and the next box to copy; the ring is
 * endless here. */
struct copies {
	int made, freed, next;
	int first[2 * DEPTH]; /* boxes of the last chunks */
};

/* Waits until the ring and the slots have room up to box `end`. */
template <int WIDTH>
__device__ __forceinline__ void make_room(const struct shared_memory &m, struct copies &c, int end)
{
	while (c.freed < c.made && (c.made - c.freed >= DEPTH ||
					   end - c.first[c.freed % (2 * DEPTH)] > ring<WIDTH>::n)) {
		barrier_wait(m.empty + 8 * (c.freed % DEPTH), c.freed / DEPTH % 2);
		c.freed++;
	}
}

template <int WIDTH>
__device__ __forceinline__ void copy_dy(const CUtensorMap *dy, const struct cuts &g,
	const struct place &at, int chunk, int filter, uint32_t to, uint32_t bar)
{
	if (g.flat)
		copy_rows(to, dy, filter, chunk * CHUNK, bar);
	else
		copy_pixels(to, dy, filter, at.strip * WIDTH, at.down * ring<WIDTH>::rows, at.image,
			bar);
}

__device__ __forceinline__ void advance(const struct cuts &g, struct place &at)
{
	if (++at.down < g.down)
		return;
	at.down = 0;
	if (++at.strip < g.strips)
		return;
	at.strip = 0;
	at.image++;
}

template <int WIDTH>
__device__ __forceinline__ void copy_chunks(const CUtensorMap *x, const CUtensorMap *dy,
	const struct cuda_filter_grad &p, const struct cuts &g, const struct cuda_wide_piece &piece,
	const struct shared_memory &m, struct copies &c)
{
	using R = ring<WIDTH>;
	const int across = p.channels / SIDE, filter = piece.tile / across * SIDE,
		  channel = piece.tile % across * SIDE;
	struct place at = {piece.begin % g.down, piece.begin / g.down % g.strips,
		piece.begin / g.down / g.strips};
	int begin = 0;

	for (int i = piece.begin; i < piece.end; i++) {
		const int slot = c.made % DEPTH;
		const uint32_t bar = m.full + 8 * slot;

		begin = begin_of<WIDTH>(i == piece.begin, !at.down, begin, c.next);
		const int end = begin + R::boxes;

		make_room<WIDTH>(m, c, end);
		c.first[c.made++ % (2 * DEPTH)] = begin;
		barrier_expect(bar, SLOT + (end - c.next) * R::box_rows * R::line);
		copy_dy<WIDTH>(dy, g, at, i, filter, m.slots + slot * SLOT, bar);
		for (; c.next < end; c.next++)
			copy_pixels(m.ring + c.next % R::n * R::bytes, x, channel,
				at.strip * WIDTH - 1,
				at.down * R::rows - 1 - R::before + (c.next - begin) * R::box_rows,
				at.image, bar);
		advance(g, at);
	}
}

/* ---- the warp groups that multiply ----------------------------------------------------------- */

/* Adds a chunk's products: begin: its first box; r: the row of the filter. */
template <int WIDTH, typename T>
__device__ __forceinline__ void multiply_chunk(const struct shared_memory &m, int slot, int begin,
	int r, bool first, float (&sum)[3 * SIDE / 2])
{
	using R = ring<WIDTH>;

	product_fence();
#pragma unroll
	for (int at = 0; at < CHUNK; at += STEP) {
		const int row = R::before + r + at / WIDTH;
		const uint32_t x = m.ring + (begin + row / R::box_rows) % R::n * R::bytes +
				   row % R::box_rows * R::line + at % WIDTH * CHUNK_ROW;

		product_columns<T>(sum, matrix_at(m.slots + slot * SLOT + at * CHUNK_ROW, 0),
			matrix_at<R::eight>(x, CHUNK_ROW), !first || at);
	}
	product_commit();
}

/* Two neighbouring channels of one filter. */
__device__ __forceinline__ void store_pair(
	const struct cuda_filter_grad &p, float *to, float a, float b)
{
	if (p.accumulate)
		a += to[0], b += to[p.w_stride[1]];
	if (p.w_stride[1] == 1) {
		*reinterpret_cast<float2 *>(to) = make_float2(a, b);
	} else {
		to[0] = a;
		to[p.w_stride[1]] = b;
	}
}

/* eight: from a filter to the eighth after it; tap: from a tap to the next. */
__device__ __forceinline__ void store_pairs(
	float *to, int64_t eight, int64_t tap, const float (&sum)[3 * SIDE / 2])
{
#pragma unroll
	for (int i = 0; i < 3 * SIDE / 4; i++)
		*reinterpret_cast<float2 *>(to + i % 2 * eight + i / 16 * tap + i / 2 % 8 * 8) =
			make_float2(sum[2 * i], sum[2 * i + 1]);
}

/* To dw, or to the sums of a part of a tile: [filter][tap][channel]. */
__device__ __forceinline__ void store_sums(const struct cuda_filter_grad &p,
	const struct cuda_wide_piece &piece, const float (&sum)[3 * SIDE / 2])
{
	const int lane = threadIdx.x % WARP, r = threadIdx.x / GROUP, across = p.channels / SIDE;
	const int filter = threadIdx.x / WARP % 4 * 16 + lane / 4, channel = lane % 4 * 2;
	float *part = p.partial + (int64_t)piece.slot * TILE + filter * TAPS * SIDE + 3 * r * SIDE +
		      channel;
	float *dw = p.dw + (piece.tile / across * SIDE + filter) * p.w_stride[0] +
		    (piece.tile % across * SIDE + channel) * p.w_stride[1] + r * p.w_stride[2];

	if (piece.slot >= 0)
		store_pairs(part, 8 * TAPS * SIDE, SIDE, sum);
	else if (p.w_stride[1] == 1 && !p.accumulate)
		store_pairs(dw, 8 * p.w_stride[0], p.w_stride[3], sum);
	else
#pragma unroll
		for (int i = 0; i < 3 * SIDE / 4; i++)
			store_pair(p,
				dw + i % 2 * 8 * p.w_stride[0] + i / 16 * p.w_stride[3] +
					i / 2 % 8 * 8 * p.w_stride[1],
				sum[2 * i], sum[2 * i + 1]);
}

/* n: chunks that the block has added before; next: the box after theirs. */
template <int WIDTH, typename T>
__device__ __forceinline__ void add_piece(const struct cuda_filter_grad &p, const struct cuts &g,
	const struct cuda_wide_piece &piece, const struct shared_memory &m, int &n, int &next)
{
	const int r = threadIdx.x / GROUP, lane = threadIdx.x % WARP;
	int begin = 0, down = piece.begin % g.down;
	float sum[3 * SIDE / 2];

	for (int i = piece.begin; i < piece.end; i++, n++) {
		begin = begin_of<WIDTH>(i == piece.begin, !down, begin, next);
		next = begin + ring<WIDTH>::boxes;
		down = down + 1 < g.down ? down + 1 : 0;
		barrier_wait(m.full + 8 * (n % DEPTH), n / DEPTH % 2);
		multiply_chunk<WIDTH, T>(m, n % DEPTH, begin, r, i == piece.begin, sum);
		product_wait<1>();
		if (i > piece.begin && lane == 0)
			barrier_arrive(m.empty + 8 * ((n - 1) % DEPTH));
	}
	product_wait<0>();
	if (lane == 0)
		barrier_arrive(m.empty + 8 * ((n - 1) % DEPTH));
	results_from_here(sum);
	store_sums(p, piece, sum);
}

/* ---- the warp that adds up dy ---------------------------------------------------------------- */

/* A lane adds 8 filters of every fourth pixel. */
template <typename T>
__device__ __forceinline__ void add_pixels(const unsigned char *slot, float (&sum)[PACK])
{
	const int lane = threadIdx.x % WARP;

#pragma unroll 4
	for (int i = lane / 8; i < CHUNK; i += WARP / 8) {
		float v[PACK];

		load(reinterpret_cast<const T *>(slot + i * CHUNK_ROW + (lane % 8 ^ i % 8) * 16),
			v);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			sum[k] += v[k];
	}
}

/* Where the sums for the biases of a piece lie, behind those of parts of tiles. */
__device__ __forceinline__ float *bias_part(
	const struct cuda_filter_grad &p, const struct cuda_wide_shares &s, int tile, int slot)
{
	return p.partial + (int64_t)s.slots * TILE +
	       (int64_t)(slot < 0 ? tile : s.tiles + slot) * SIDE;
}

/* The blocks of all channels share the chunks. n as in add_piece. */
template <typename T>
__device__ __forceinline__ void add_bias(const struct cuda_filter_grad &p,
	const struct cuda_wide_shares &s, const struct cuda_wide_piece &piece,
	const struct shared_memory &m, const unsigned char *slots, int &n)
{
	const int across = p.channels / SIDE, lane = threadIdx.x % WARP;
	float sum[PACK] = {};

	for (int i = piece.begin; i < piece.end; i++, n++) {
		barrier_wait(m.full + 8 * (n % DEPTH), n / DEPTH % 2);
		if (i % across == piece.tile % across)
			add_pixels<T>(slots + n % DEPTH * SLOT, sum);
		__syncwarp();
		if (lane == 0)
			barrier_arrive(m.empty + 8 * (n % DEPTH));
	}
#pragma unroll
	for (int k = 0; k < PACK; k++)
		for (int far = WARP / 2; far >= 8; far /= 2)
			sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], far);
	if (lane < SIDE / PACK)
		store(bias_part(p, s, piece.tile, piece.slot) + lane * PACK, sum);
}

template <int WIDTH, typename T>
__global__ void __launch_bounds__(THREADS, 1) wide_kernel(const __grid_constant__ CUtensorMap x,
	const __grid_constant__ CUtensorMap dy, const struct cuda_filter_grad p, bool bias,
	const struct cuts g, const struct cuda_wide_shares s)
{
	extern __shared__ __align__(1024) unsigned char memory[];
	const uint32_t ring_at = shared_at(memory),
		       slots = ring_at + ring<WIDTH>::n * ring<WIDTH>::bytes,
		       full = slots + DEPTH * SLOT;
	const struct shared_memory m = {ring_at, slots, full, full + 8 * DEPTH};
	const int warp = __shfl_sync(0xffffffffu, threadIdx.x / WARP, 0);
	struct cuda_wide_piece piece;
	int n = 0, next = 0;

	if (threadIdx.x == 0) {
		for (int i = 0; i < DEPTH; i++) {
			barrier_init(m.full + 8 * i, 1);
			barrier_init(m.empty + 8 * i, COPIES + bias);
		}
		barrier_publish();
	}
	__syncthreads();
	if (warp == COPIES) {
		struct copies c = {};

		for (int k = 0;
			threadIdx.x % WARP == 0 && cuda_wide_piece(&s, blockIdx.x, k, &piece); k++)
			copy_chunks<WIDTH>(&x, &dy, p, g, piece, m, c);
		return;
	}
	if (warp > COPIES) {
		for (int k = 0; bias && cuda_wide_piece(&s, blockIdx.x, k, &piece); k++)
			add_bias<T>(
				p, s, piece, m, memory + ring<WIDTH>::n * ring<WIDTH>::bytes, n);
		return;
	}
	for (int k = 0; cuda_wide_piece(&s, blockIdx.x, k, &piece); k++)
		add_piece<WIDTH, T>(p, g, piece, m, n, next);
}

/* ---- the sums of parts of tiles -------------------------------------------------------------- */

#define ADD_THREADS 256

template <int N> __device__ __forceinline__ void add_part(const float *part, float (&sum)[N])
{
	float v[N];

	load(part, v);
#pragma unroll
	for (int k = 0; k < N; k++)
		sum[k] += v[k];
}

/* Adds, in the order of the parts, what of each is `at` elements from its beginning. */
template <int N>
__device__ __forceinline__ void add_parts(const struct cuda_filter_grad &p,
	const struct cuda_wide_shares &s, int tile, int at, float (&sum)[N])
{
	const float *from = p.partial + at;
	struct cuda_wide_piece piece;

	for (int i = 0; i < s.runs; i++)
		if (cuda_wide_run(&s, tile, i, &piece))
			add_part(from + (int64_t)piece.slot * TILE, sum);
	for (int i = cuda_wide_helper(&s, tile); i < cuda_wide_helper(&s, tile + 1) + 2; i++)
		if (cuda_wide_help(&s, tile, i, &piece))
			add_part(from + (int64_t)piece.slot * TILE, sum);
}

/* Block (PACK elements of a thread, left tile). */
__global__ void wide_sums_kernel(const struct cuda_filter_grad p, const struct cuda_wide_shares s)
{
	const int at = (blockIdx.x * ADD_THREADS + threadIdx.x) * PACK, across = p.channels / SIDE,
		  tile = s.rounds * s.blocks + blockIdx.y;
	const int filter = tile / across * SIDE + at / (TAPS * SIDE), tap = at / SIDE % TAPS,
		  channel = tile % across * SIDE + at % SIDE;
	float sum[PACK] = {};

	add_parts(p, s, blockIdx.y, at, sum);
#pragma unroll
	for (int k = 0; k < PACK; k += 2)
		store_pair(p,
			p.dw + filter * p.w_stride[0] + (channel + k) * p.w_stride[1] +
				tap / 3 * p.w_stride[2] + tap % 3 * p.w_stride[3],
			sum[k], sum[k + 1]);
}

#define SHARES 8

/* Block (64 filters), thread (filter, share of the channels): adds what the tiles have. */
__global__ void wide_bias_kernel(const struct cuda_filter_grad p, const struct cuda_wide_bias bias,
	const struct cuda_wide_shares s)
{
	__shared__ float share[SHARES][SIDE];
	const int across = p.channels / SIDE, whole = s.rounds * s.blocks;
	struct cuda_wide_piece piece;
	float sum = 0;

	for (int i = threadIdx.y; i < across; i += SHARES) {
		const int tile = blockIdx.x * across + i, left = tile - whole;

		if (left < 0 || !s.slots) {
			sum += bias_part(p, s, tile, -1)[threadIdx.x];
			continue;
		}
		for (int k = 0; k < s.runs; k++)
			if (cuda_wide_run(&s, left, k, &piece))
				sum += bias_part(p, s, tile, piece.slot)[threadIdx.x];
		for (int k = cuda_wide_helper(&s, left); k < cuda_wide_helper(&s, left + 1) + 2;
			k++)
			if (cuda_wide_help(&s, left, k, &piece))
				sum += bias_part(p, s, tile, piece.slot)[threadIdx.x];
	}
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y)
		return;
	for (int i = 1; i < SHARES; i++)
		sum += share[i][threadIdx.x];
	float *to = bias.grad + blockIdx.x * SIDE + threadIdx.x;

	*to = sum + (bias.accumulate ? *to : 0);
}

/* ---- start ----------------------------------------------------------------------------------- */

static int64_t padded(int n, int unit)
{
	return (int64_t)blocks_for(n, unit) * unit;
}

/* The columns of a chunk with which the fewest pixels are added that do not exist. */
static int width_of(const struct cuda_filter_grad *p)
{
	int64_t least = INT64_MAX;
	int best = CHUNK;

	for (int width = CHUNK; width >= 8; width /= 2) {
		const int64_t pixels = padded(p->out[1], width) * padded(p->out[0], CHUNK / width);

		if (pixels < least)
			least = pixels, best = width;
	}
	return best;
}

static struct cuts cuts_of(const struct cuda_filter_grad *p)
{
	const int width = width_of(p), rows = CHUNK / width;

	return {(int)blocks_for(p->out[1], width), (int)blocks_for(p->out[0], rows),
		p->out[1] == width && p->out[0] % rows == 0};
}

static struct cuda_wide_shares shares_of(const struct cuda_filter_grad *p)
{
	const struct cuts g = cuts_of(p);

	return cuda_wide_divide(p->channels / SIDE * (p->filters / SIDE),
		p->batch * g.strips * g.down, p->processors);
}

bool cuda_wide_knows(const struct cuda_filter_grad *p)
{
	return p->x.type != CUDA_F32 && p->channels % SIDE == 0 && p->filters % SIDE == 0 &&
	       cuda_tensor_map_exist();
}

size_t cuda_wide_scratch(const struct cuda_filter_grad *p)
{
	const struct cuda_wide_shares s = shares_of(p);

	return sizeof(float) * ((size_t)s.slots * TILE + (size_t)(s.tiles + s.slots) * SIDE);
}

/* Describes images to the copies of boxes; flat: as rows of pixels. */
static bool describe(const struct cuda_filter_grad *p, bool flat, int channels, const void *data,
	int columns, int rows, CUtensorMap *ret)
{
	const struct cuda_tensor_map_shape images = {
		false, 4, {channels, p->in[1], p->in[0], p->batch}, {SIDE, columns, rows, 1}};
	const struct cuda_tensor_map_shape row = {
		false, 2, {channels, (int64_t)p->batch * p->in[0] * p->in[1]}, {SIDE, CHUNK}};
	struct cuda_tensor_map map;

	if (!cuda_tensor_map_describe(flat ? &row : &images, data, &map))
		return false;
	memcpy(ret, &map, sizeof *ret);
	return true;
}

template <int WIDTH, typename T>
static cudaError_t grad(
	const struct cuda_filter_grad *p, const struct cuda_wide_bias *bias, cudaStream_t stream)
{
	using R = ring<WIDTH>;
	const struct cuda_wide_shares s = shares_of(p);
	const struct cuts g = cuts_of(p);
	CUtensorMap x, dy;
	cudaError_t rc = cudaFuncSetAttribute(
		wide_kernel<WIDTH, T>, cudaFuncAttributeMaxDynamicSharedMemorySize, R::memory);

	if (rc)
		return rc;
	if (!describe(p, false, p->channels, p->x.data, R::columns, R::box_rows, &x) ||
		!describe(p, g.flat, p->filters, p->dy.data, WIDTH, R::rows, &dy))
		return cudaErrorNotSupported;
	wide_kernel<WIDTH, T><<<(unsigned)s.blocks, THREADS, R::memory, stream>>>(
		x, dy, *p, bias->grad != NULL, g, s);
	if (s.slots)
		wide_sums_kernel<<<dim3(TILE / PACK / ADD_THREADS, (unsigned)s.left), ADD_THREADS,
			0, stream>>>(*p, s);
	if (bias->grad)
		wide_bias_kernel<<<(unsigned)(p->filters / SIDE), dim3(SIDE, SHARES), 0, stream>>>(
			*p, *bias, s);
	return cudaGetLastError();
}

template <typename T>
static cudaError_t grad_of_width(
	const struct cuda_filter_grad *p, const struct cuda_wide_bias *bias, cudaStream_t stream)
{
	switch (width_of(p)) {
	case 64:
		return grad<64, T>(p, bias, stream);
	case 32:
		return grad<32, T>(p, bias, stream);
	case 16:
		return grad<16, T>(p, bias, stream);
	default:
		return grad<8, T>(p, bias, stream);
	}
}

cudaError_t cuda_wide_grad(
	const struct cuda_filter_grad *p, const struct cuda_wide_bias *bias, cudaStream_t stream)
{
	return p->x.type == CUDA_BF16 ? grad_of_width<bf16>(p, bias, stream)
				      : grad_of_width<half>(p, bias, stream);
}
