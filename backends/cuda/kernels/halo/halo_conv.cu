/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of 3 x 3 with stride 1 and pad 1 for many channels, y[B,Y,X,K] from x[B,Y,X,C] in 16
 * bits with channels last, on tensor cores of compute capability 9.0.
 *
 * A block computes 64 filters of two tiles of 256 pixels, each by a warp group, which sums over
 * slices of 64 channels. A tile is one patch of 8 x 32 pixels or two of 8 x 16. A slice of the
 * patch with the pixels around it is copied to shared memory once, and multiplied by nine taps from
 * there: a tap sees the same pixels from another row of shared memory on, and eight pixels of a
 * column of the product lie one line of the patch after those before, as descriptors of products
 * say. What lies outside of the image is copied as 0. Slices of the filter's taps pass through a
 * ring that both groups read.
 *
 * Blocks go through tiles until none is left. Results leave through the memory of the tile's last
 * slice, or of an image that is added, which is copied like one more slice. The thread that copies
 * slices sends them before it copies the next slice there, so that no product waits for that.
 */
#include <string.h>

#include "backends/cuda/kernels/hopper.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/tensor_map.h"
#include "halo_conv.h"

#define SIDE	64 /* channels of a slice, and filters of a tile */
#define TAPS	9
#define ACROSS	8		 /* columns of a patch */
#define LINE	((ACROSS + 2) * CHUNK_ROW) /* bytes of a line of a patch and the pixels beside it */
#define PIXELS	256 /* of a tile */
#define STEP	16  /* channels that an instruction sums over */
#define GROUP	128
#define GROUPS	2
#define WARPS	(GROUPS * GROUP / WARP) /* that multiply; then that of the filter, and of the patches */
#define THREADS ((WARPS + 1 + GROUPS) * WARP)
#define SLOT	(SIDE * CHUNK_ROW) /* bytes of a tap */
#define BLOCK	232448		   /* bytes of shared memory that a block may have */

/* Tiles whose patches have LINES lines. */
template <int LINES> struct tile {
	static constexpr int patches = PIXELS / ACROSS / LINES;
	static constexpr int box = (LINES + 2) * LINE;
	static constexpr int patch = (box + 1023) / 1024 * 1024; /* bytes of a patch */
	static constexpr int slice = patches * patch;
	static constexpr int depth = (BLOCK - 2048 - 2 * GROUPS * slice) / SLOT; /* taps of the ring */
	static constexpr int memory = 2 * GROUPS * slice + depth * SLOT + 1024;
};

/* Patches of an image, and what a block's tiles are made of. */
struct cuts {
	int across, down;
	int slices, filters; /* filters: tiles of them */
	int tiles;	     /* of GROUPS * PIXELS pixels and SIDE filters */
};

/* The first pixel of a patch. */
struct place {
	int column, row, image;
};

/* Addresses in shared memory: two slices of each group, the ring of taps, and barriers. */
struct places {
	uint32_t slices, ring, full, empty, ready, used; /* full, empty: of slices */
};

/* Patch k of a group's part of tile `at`. */
template <int LINES>
__device__ __forceinline__ struct place place_of(const struct cuts &g, int at, int group, int k)
{
	const int patch = (at / g.filters * GROUPS + group) * tile<LINES>::patches + k,
		  in_image = patch % (g.across * g.down);

	return {in_image % g.across * ACROSS, in_image / g.across * LINES,
		patch / (g.across * g.down)};
}

__device__ __forceinline__ int filter_of(const struct cuts &g, int at)
{
	return at % g.filters * SIDE;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The box of a filter from (column, tap, row) on. */
__device__ __forceinline__ void copy_tap(
	uint32_t to, const CUtensorMap *w, int column, int tap, int row, uint32_t bar)
{
	barrier_expect(bar, SLOT);
	copy_box(to, w, column, tap, row, bar);
}

/* Copies a box to an image; what lies outside of it is not written. */
__device__ __forceinline__ void send_pixels(
	const CUtensorMap *map, uint32_t from, int channel, const struct place &at)
{
	asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
		     "r"(channel), "r"(at.column), "r"(at.row), "r"(at.image), "r"(from)
		     : "memory");
}

/* Waits until what was sent is read from shared memory. */
__device__ __forceinline__ void send_read()
{
	asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* One thread copies the taps of all tiles of the block. */
template <bool TURNED, int LINES>
__device__ __forceinline__ void copy_filters(
	const CUtensorMap *w, const struct cuts &g, const struct places &m)
{
	int slot = 0, parity = 1;

	for (int at = blockIdx.x; at < g.tiles; at += gridDim.x)
		for (int i = 0; i < g.slices * TAPS; i++) {
			const int filter = filter_of(g, at), channel = i / TAPS * SIDE;

			barrier_wait(m.used + 8 * slot, parity);
			if (TURNED)
				copy_tap(m.ring + slot * SLOT, w, filter, TAPS - 1 - i % TAPS,
					channel, m.ready + 8 * slot);
			else
				copy_tap(m.ring + slot * SLOT, w, channel, i % TAPS, filter,
					m.ready + 8 * slot);
			if (++slot == tile<LINES>::depth)
				slot = 0, parity ^= 1;
		}
}

/* What slices are copied from, and results are sent to. */
struct images {
	const CUtensorMap *x, *add, *y; /* add: NULL = none */
};

/* Copies slice i of a group's tile, or what is added, behind the last slice. */
template <int LINES>
__device__ __forceinline__ void copy_slice(const struct images &o, const struct cuts &g, int at,
	int i, int group, uint32_t to, uint32_t bar)
{
	using S = tile<LINES>;

	barrier_expect(bar, i < g.slices ? S::patches * S::box : PIXELS * CHUNK_ROW);
	for (int k = 0; k < S::patches; k++) {
		const struct place p = place_of<LINES>(g, at, group, k);

		if (i < g.slices)
			copy_pixels(to + k * S::patch, o.x, i * SIDE, p.column - 1, p.row - 1,
				p.image, bar);
		else
			copy_pixels(to + k * S::patch, o.add, filter_of(g, at), p.column, p.row,
				p.image, bar);
	}
}

/* Sends the results of a group's tile, and waits until they are read. */
template <int LINES>
__device__ __forceinline__ void send_tile(
	const struct images &o, const struct cuts &g, int at, int group, uint32_t from)
{
	for (int k = 0; k < tile<LINES>::patches; k++)
		send_pixels(o.y, from + k * tile<LINES>::patch, filter_of(g, at),
			place_of<LINES>(g, at, group, k));
	send_commit();
	send_read();
}

/* One thread copies the slices of a group's tiles, and sends the results, which are in the memory
 * of a tile's last slice once that is empty. */
template <int LINES>
__device__ __forceinline__ void copy_slices(
	const struct images &o, const struct cuts &g, const struct places &m, int group)
{
	const int slices = g.slices + (o.add ? 1 : 0);
	int n = 0, before = -1, last = -1; /* tiles that end with the last slices but one; -1: none */
	auto empty = [&](int tile_of_next) {
		const uint32_t slot = 2 * group + n % 2, at = m.slices + slot * tile<LINES>::slice;

		barrier_wait(m.empty + 8 * slot, n / 2 % 2 ^ 1);
		if (before >= 0)
			send_tile<LINES>(o, g, before, group, at);
		before = last;
		last = tile_of_next;
		n++;
		return slot;
	};

	for (int at = blockIdx.x; at < g.tiles; at += gridDim.x)
		for (int i = 0; i < slices; i++) {
			const uint32_t slot = empty(i + 1 == slices ? at : -1);

			copy_slice<LINES>(o, g, at, i, group, m.slices + slot * tile<LINES>::slice,
				m.full + 8 * slot);
		}
	for (int i = 0; i < 2; i++)
		empty(-1);
	send_wait();
}

/* ---- the warp groups that multiply ----------------------------------------------------------- */

typedef float sums[PIXELS / 2]; /* [filter][pixel], as products have them */

#define TIMES(n, type, regs, x, w, turned) \
	"{\n" WGMMA(n, type) "{" regs "}, %" x ", %" w ", 1, 1, 1, " turned ", 0;\n}"
#define PATCH_32(type)	      TIMES(256, type, REGS_128, "128", "129", "0")
#define PATCH_32_TURNED(type) TIMES(256, type, REGS_128, "128", "129", "1")
#define PATCH_16(type)	      TIMES(128, type, REGS_64, "64", "65", "0")
#define PATCH_16_TURNED(type) TIMES(128, type, REGS_64, "64", "65", "1")

/* d += w x for 16 channels; x: the first patch */
template <typename T, bool TURNED, int LINES>
__device__ __forceinline__ void multiply(sums &d, uint64_t w, uint64_t x)
{
	const uint64_t second = x + tile<LINES>::patch / 16;

	if constexpr (LINES == 32 && TURNED) {
		BY_TYPE(PATCH_32_TURNED, : OPERANDS_64("+f", 0), OPERANDS_64("+f", 64) : "l"(w), "l"(x));
	} else if constexpr (LINES == 32) {
		BY_TYPE(PATCH_32, : OPERANDS_64("+f", 0), OPERANDS_64("+f", 64) : "l"(w), "l"(x));
	} else if constexpr (TURNED) {
		BY_TYPE(PATCH_16_TURNED, : OPERANDS_64("+f", 0) : "l"(w), "l"(x));
		BY_TYPE(PATCH_16_TURNED, : OPERANDS_64("+f", 64) : "l"(w), "l"(second));
	} else {
		BY_TYPE(PATCH_16, : OPERANDS_64("+f", 0) : "l"(w), "l"(x));
		BY_TYPE(PATCH_16, : OPERANDS_64("+f", 64) : "l"(w), "l"(second));
	}
}

/* Where a warp is: its group, its row of the group's warps, and slices and taps that were read. */
struct progress {
	int group, row;
	int slices, slot, parity;
};

__device__ __forceinline__ void leave_barrier(uint32_t bar)
{
	if (threadIdx.x % WARP == 0)
		barrier_arrive(bar);
}

/* The products of one tap; x: its first pixel. */
template <typename T, bool TURNED, int LINES>
__device__ __forceinline__ void multiply_tap(sums &d, uint32_t w, uint32_t x)
{
	const uint32_t left = matrix_low(w, 0), right = matrix_low(x, 0);

	results_from_here(d);
	product_fence();
#pragma unroll
	for (int i = 0; i < SIDE; i += STEP)
		multiply<T, TURNED, LINES>(d, matrix_of(left + i * (TURNED ? CHUNK_ROW : 2) / 16),
			matrix_of<LINE>(right + i * 2 / 16));
	product_commit();
}

/* Waits for the next slice of a group and returns its slot. */
__device__ __forceinline__ int next_slice(const struct places &m, struct progress &at)
{
	const int slot = 2 * at.group + at.slices % 2;

	barrier_wait(m.full + 8 * slot, at.slices / 2 % 2);
	at.slices++;
	return slot;
}

/* Sums over all channels of a tile. What a tap has read is free when the products of the next one
 * have started. Returns the slot of the last slice, which is not freed. */
template <typename T, bool TURNED, int LINES>
__device__ __forceinline__ int multiply_tile(
	const struct cuts &g, const struct places &m, struct progress &at, sums &d)
{
	using S = tile<LINES>;
	int before = -1, slot = 0;

#pragma unroll
	for (int i = 0; i < PIXELS / 2; i++)
		d[i] = 0;
	for (int i = 0; i < g.slices; i++) {
		const int last = slot;

		slot = next_slice(m, at);
#pragma unroll
		for (int tap = 0; tap < TAPS; tap++) {
			barrier_wait(m.ready + 8 * at.slot, at.parity);
			multiply_tap<T, TURNED, LINES>(d, m.ring + at.slot * SLOT,
				m.slices + slot * S::slice + tap / 3 * LINE + tap % 3 * CHUNK_ROW);
			product_wait<1>();
			if (before >= 0)
				leave_barrier(m.used + 8 * before);
			if (i && !tap)
				leave_barrier(m.empty + 8 * last);
			before = at.slot;
			if (++at.slot == S::depth)
				at.slot = 0, at.parity ^= 1;
		}
	}
	product_wait<0>();
	results_from_here(d);
	leave_barrier(m.used + 8 * before);
	return slot;
}

/* ---- results --------------------------------------------------------------------------------- */

template <typename T>
__device__ __forceinline__ void add_pair(uint32_t pair, float *v)
{
	T pixel[2];

	memcpy(pixel, &pair, sizeof pair);
	v[0] += (float)pixel[0];
	v[1] += (float)pixel[1];
}

/* Writes the results of a group to shared memory as its patches lie in y, and adds what lies there
 * (adds), or applies a ReLU. The matrices of an instruction are 8 filters x 8 pixels: two of
 * filters, two of pixels. */
template <typename T, int LINES>
__device__ __forceinline__ void stage_tile(
	const sums &d, const float (&bias)[2], bool adds, bool relu, uint32_t stage, int row)
{
	using S = tile<LINES>;
	const int lane = threadIdx.x % WARP;

#pragma unroll
	for (int j = 0; j < PIXELS / 8; j += 2) {
		const int pixel = 8 * j + lane / 16 * 8 + lane % 8, pack = 2 * row + lane / 8 % 2;
		const uint32_t at = stage + pixel / (LINES * ACROSS) * S::patch +
				    pixel % (LINES * ACROSS) * CHUNK_ROW + (pack ^ pixel % 8) * 16;
		float v[8];

#pragma unroll
		for (int i = 0; i < 8; i++)
			v[i] = d[4 * j + i] + bias[i / 2 % 2];
		if (adds) {
			uint32_t pair[4];

			load_turned(pair, at);
#pragma unroll
			for (int i = 0; i < 4; i++)
				add_pair<T>(pair[i], v + 2 * i);
		}
		if (relu)
#pragma unroll
			for (int i = 0; i < 8; i++)
				v[i] = v[i] < 0 ? 0 : v[i];
		asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
			     "r"(two((T *)0, v[0], v[1])), "r"(two((T *)0, v[2], v[3])),
			     "r"(two((T *)0, v[4], v[5])), "r"(two((T *)0, v[6], v[7]))
			     : "memory");
	}
}

/* Leaves the results of a group in the memory of the last slice, or of what is added. */
template <typename T, int LINES>
__device__ __forceinline__ void leave_tile(const sums &d, const struct cuda_halo_conv &p,
	const struct places &m, int filter, struct progress &at, int slot)
{
	const bool adds = p.add.data;
	float bias[2];

	filter += at.row * 16 + threadIdx.x % WARP / 4;
	for (int i = 0; i < 2; i++)
		bias[i] = p.bias && filter + 8 * i < p.filters ? p.bias[filter + 8 * i] : 0;
	if (adds) {
		leave_barrier(m.empty + 8 * slot);
		slot = next_slice(m, at);
	} else {
		wait_together<GROUP>(1); /* all warps have read the slice */
	}
	stage_tile<T, LINES>(
		d, bias, adds, p.relu, m.slices + slot * tile<LINES>::slice, at.row);
	shared_fence();
	__syncwarp();
	leave_barrier(m.empty + 8 * slot);
}

/* The tiles of a group. */
template <typename T, bool TURNED, int LINES>
__device__ __forceinline__ void compute_tiles(
	const struct cuda_halo_conv &p, const struct cuts &g, const struct places &m, int warp)
{
	struct progress at = {warp / (GROUP / WARP), warp % (GROUP / WARP)};
	sums d;

	for (int i = blockIdx.x; i < g.tiles; i += gridDim.x) {
		const int slot = multiply_tile<T, TURNED, LINES>(g, m, at, d);

		leave_tile<T, LINES>(d, p, m, filter_of(g, i), at, slot);
	}
}

template <int LINES> __device__ __forceinline__ struct places places_of(uint32_t memory)
{
	using S = tile<LINES>;
	const uint32_t ring = memory + 2 * GROUPS * S::slice, full = ring + S::depth * SLOT,
		       empty = full + 8 * 2 * GROUPS, ready = empty + 8 * 2 * GROUPS,
		       used = ready + 8 * S::depth;

	return {memory, ring, full, empty, ready, used};
}

template <int LINES> __device__ __forceinline__ void init_barriers(const struct places &m)
{
	for (int i = 0; i < 2 * GROUPS; i++) {
		barrier_init(m.full + 8 * i, 1);
		barrier_init(m.empty + 8 * i, GROUP / WARP);
	}
	for (int i = 0; i < tile<LINES>::depth; i++) {
		barrier_init(m.ready + 8 * i, 1);
		barrier_init(m.used + 8 * i, WARPS);
	}
	barrier_publish();
}

template <typename T, bool TURNED, int LINES>
__global__ void __launch_bounds__(THREADS, 1) halo_kernel(const __grid_constant__ CUtensorMap x,
	const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap y,
	const __grid_constant__ CUtensorMap add, const struct cuda_halo_conv p, const struct cuts g)
{
	extern __shared__ __align__(1024) unsigned char memory[];
	const struct places m = places_of<LINES>(shared_at(memory));
	const int warp = __shfl_sync(0xffffffffu, threadIdx.x / WARP, 0);
	const bool copies = threadIdx.x % WARP == 0;

	if (threadIdx.x == 0)
		init_barriers<LINES>(m);
	__syncthreads();
	if (warp < WARPS)
		compute_tiles<T, TURNED, LINES>(p, g, m, warp);
	else if (warp == WARPS && copies)
		copy_filters<TURNED, LINES>(&w, g, m);
	else if (copies)
		copy_slices<LINES>(
			{&x, p.add.data ? &add : NULL, &y}, g, m, warp - WARPS - 1);
}

/* ---- start ----------------------------------------------------------------------------------- */

static int64_t padded(int n, int unit)
{
	return (int64_t)blocks_for(n, unit) * unit;
}

/* The lines of a patch with which fewer pixels are computed that do not exist. */
static int lines_of(const struct cuda_halo_conv *p)
{
	return padded(p->in[0], 32) > padded(p->in[0], 16) ? 16 : 32;
}

static int64_t tiles_of(const struct cuda_halo_conv *p)
{
	const int64_t patches = (int64_t)p->batch * blocks_for(p->in[1], ACROSS) *
				blocks_for(p->in[0], lines_of(p));

	return blocks_for(patches * lines_of(p) * ACROSS, GROUPS * PIXELS) *
	       (int64_t)blocks_for(p->filters, SIDE);
}

bool cuda_halo_knows(const struct cuda_halo_conv *p)
{
	return p->x.type != CUDA_F32 && p->channels % 8 == 0 && p->filters % 8 == 0 &&
	       tiles_of(p) < INT32_MAX / 64 && cuda_tensor_map_exist();
}

static bool describe(const struct cuda_tensor_map_shape *shape, const void *data, CUtensorMap *ret)
{
	struct cuda_tensor_map map;

	if (!cuda_tensor_map_describe(shape, data, &map))
		return false;
	memcpy(ret, &map, sizeof *ret);
	return true;
}

struct maps {
	CUtensorMap x, w, y, add;
};

static bool describe_all(const struct cuda_halo_conv *p, int lines, struct maps *ret)
{
	const struct cuda_tensor_map_shape x = {false, 4,
		{p->channels, p->in[1], p->in[0], p->batch}, {SIDE, ACROSS + 2, lines + 2, 1}};
	const struct cuda_tensor_map_shape y = {
		false, 4, {p->filters, p->in[1], p->in[0], p->batch}, {SIDE, ACROSS, lines, 1}};
	const struct cuda_tensor_map_shape w = {false, 3,
		{p->turned ? p->filters : p->channels, TAPS,
			p->turned ? p->channels : p->filters},
		{SIDE, 1, SIDE}};

	return describe(&x, p->x.data, &ret->x) && describe(&w, p->w.data, &ret->w) &&
	       describe(&y, p->y.data, &ret->y) &&
	       describe(&y, p->add.data ? p->add.data : p->y.data, &ret->add);
}

template <typename T, bool TURNED, int LINES>
static cudaError_t start(const struct cuda_halo_conv *p, cudaStream_t stream)
{
	const int tiles = (int)tiles_of(p);
	const struct cuts g = {(int)blocks_for(p->in[1], ACROSS), (int)blocks_for(p->in[0], LINES),
		(int)blocks_for(p->channels, SIDE), (int)blocks_for(p->filters, SIDE), tiles};
	struct maps m;
	cudaError_t rc = cudaFuncSetAttribute(halo_kernel<T, TURNED, LINES>,
		cudaFuncAttributeMaxDynamicSharedMemorySize, tile<LINES>::memory);

	if (rc)
		return rc;
	if (!describe_all(p, LINES, &m))
		return cudaErrorNotSupported;
	halo_kernel<T, TURNED, LINES>
		<<<(unsigned)(tiles < p->processors ? tiles : p->processors), THREADS,
			tile<LINES>::memory, stream>>>(m.x, m.w, m.y, m.add, *p, g);
	return cudaGetLastError();
}

template <typename T>
static cudaError_t start_of_type(const struct cuda_halo_conv *p, cudaStream_t stream)
{
	if (lines_of(p) == 32)
		return p->turned ? start<T, true, 32>(p, stream) : start<T, false, 32>(p, stream);
	return p->turned ? start<T, true, 16>(p, stream) : start<T, false, 16>(p, stream);
}

cudaError_t cuda_halo_conv(const struct cuda_halo_conv *p, cudaStream_t stream)
{
	return p->x.type == CUDA_BF16 ? start_of_type<bf16>(p, stream)
				      : start_of_type<half>(p, stream);
}
