/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of 5 to 8 rows (others: few_rows.cu) by blocks that stay: one on each multiprocessor
 * takes 16 columns of y after the other. A warp has its part of what is summed over, and keeps
 * these elements of x in registers. It reads the lines that come next, also those of the next
 * columns, into the registers of those that it has just multiplied, so that reads do not pause.
 * Where x is too wide, two blocks of a cluster have halves of it, and add up their sums at the end.
 * The product may end with SwiGLU.
 */
#include "../few_rows.h"
#include "few_rows.cuh"

#include <cooperative_groups.h>

#define WARPS  8
#define LINE   128	     /* bytes of a row of w that 8 lanes read at a time */
#define TILE   (COLUMNS * 8) /* elements of y that a block computes at a time */
#define FEWER  4	     /* rows at most, for which few_rows.cu is faster */
#define ROUNDS 8	     /* tiles of a block in a cluster, at most */

/* Of a kernel: the units of a warp, each a line of 8 rows of w; how many are read ahead; the blocks
 * of a cluster. */
template <int UNITS, int AHEAD, int BLOCKS> struct holding {
	static constexpr int units = UNITS, ahead = AHEAD, blocks = BLOCKS;
};

/* Where element i of a tile is. */
__device__ __forceinline__ int column_of(int i)
{
	return i % 4 * 4 + i / 4 % 4;
}

__device__ __forceinline__ int row_of(int i)
{
	return i / 16;
}

/* Writes element i of a tile. Of a gated one, elements i and i + 2 are a gate and its factor; all
 * lanes of the warp call. */
template <typename T, bool GATED>
__device__ __forceinline__ void store_element(
	const struct cuda_few_rows &p, int tile, int i, float sum)
{
	const int row = row_of(i);
	T *y = as<T>(p.y);

	if constexpr (GATED) {
		const float gate = (float)(T)sum, up = __shfl_down_sync(0xffffffffu, gate, 2);

		if (i % 4 < 2 && row < p.rows)
			y[row * (p.to / 2) + tile * (COLUMNS / 2) + column_of(i)] =
				(T)(gate * sigmoid<T>(gate) * up);
	} else if (row < p.rows) {
		y[row * p.to + tile * COLUMNS + column_of(i)] = (T)sum;
	}
}

/* Blocks r, r + blocks ... of a cluster write tiles r, r + blocks ... of those that they share. */
template <typename T, int BLOCKS>
__device__ __forceinline__ void store_shared(
	const struct cuda_few_rows &p, float *kept, int first, int step, int rounds)
{
#if __CUDA_ARCH__ >= 900
	cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();

	cluster.sync();
	for (int r = (int)cluster.block_rank(); r < rounds; r += BLOCKS)
		if (threadIdx.x < TILE) {
			const int i = threadIdx.x;
			float sum = 0;

#pragma unroll
			for (int k = 0; k < BLOCKS; k++)
				sum += cluster.map_shared_rank(kept, k)[r * TILE + i];
			store_element<T, false>(p, first + r * step, i, sum);
		}
	cluster.sync(); /* a block's memory ends with it */
#endif
}

/* Lines of 8 rows of x as left factors: as 8 rows with their first halves, and 8 with the others.
 * The right factor has the two halves of a line of w as two columns, so of the 16 x 8 sums those of
 * a half by the same half count. */
struct held {
	unsigned first[4], second[4];
};

template <typename T>
__device__ __forceinline__ struct held take_line(const T *x, int line, bool exists)
{
	const struct words u = read_words(x, exists), v = read_words(x + line / 2, exists);

	return {{u.w[0], v.w[0], u.w[1], v.w[1]}, {u.w[2], v.w[2], u.w[3], v.w[3]}};
}

/* Adds the products of a unit to the sums of two sets of four rows of w. */
template <typename T>
__device__ __forceinline__ void multiply_unit(
	float (*sums)[4], const struct held &left, const struct words (&unit)[2])
{
#pragma unroll
	for (int k = 0; k < 2; k++) {
		const unsigned(&right)[4] = unit[k].w;
		float(&sum)[4] = sums[k];

		multiply(T(), sum, left.first, right[0], right[1]);
		multiply(T(), sum, left.second, right[2], right[3]);
		/* the compiler would move products behind later reads */
		asm volatile("" : "+f"(sum[0]), "+f"(sum[3]));
	}
}

/* Multiplies a tile of w and writes this warp's sums to `to`. As soon as a unit is multiplied, read
 * fills its registers with the unit H::ahead further on; MORE: also with those of the next tile. */
template <typename T, class H, bool MORE, class READ>
__device__ __forceinline__ void multiply_tile(float *to, const struct held (&held)[H::units / 2],
	const struct words (&unit)[H::ahead][2], const T *tile, const T *next, READ read)
{
	float d[4][4] = {};

#pragma unroll
	for (int i = 0; i < H::units; i++) {
		multiply_unit<T>(d + i % 2 * 2, held[i / 2], unit[i % H::ahead]);
		if (i + H::ahead < H::units)
			read(tile, i + H::ahead);
		else if (MORE)
			read(next, i + H::ahead - H::units);
	}
	*reinterpret_cast<float4 *>(to + threadIdx.x % WARP * 4) = make_float4(
		d[0][0] + d[0][3], d[1][0] + d[1][3], d[2][0] + d[2][3], d[3][0] + d[3][3]);
}

/* Adds up the sums of all warps for each element of a tile, by half of the warps in turn: to y, or
 * to `kept` where blocks share the sums. */
template <typename T, bool GATED, int BLOCKS>
__device__ __forceinline__ void add_warps(const struct cuda_few_rows &p,
	const float (*sums)[TILE], float (*kept)[TILE], int tile, int round)
{
	const int i = threadIdx.x - round % 2 * TILE;

	if (i >= 0 && i < TILE) {
		float sum = 0;

#pragma unroll
		for (int k = 0; k < WARPS; k++)
			sum += sums[k][i];
		if constexpr (BLOCKS > 1)
			kept[round][i] = sum;
		else
			store_element<T, GATED>(p, tile, i, sum);
	}
}

/* H: a holding. GATED: rows j and j + to / 2 of w are those of a gate and its factor. */
template <typename T, class H, bool GATED>
__global__ void __launch_bounds__(WARPS *WARP, 1) few_rows_held_kernel(struct cuda_few_rows p)
{
	__shared__ float share[2][WARPS][TILE], kept[H::blocks > 1 ? ROUNDS : 1][TILE];
	constexpr int line = LINE / sizeof(T); /* elements */
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const int rank = blockIdx.x % H::blocks, first = blockIdx.x / H::blocks;
	const int step = gridDim.x / H::blocks, tiles = p.to / COLUMNS;
	const int begin = (rank * WARPS + warp) * (H::units / 2) * line;
	/* from a tile to the next, and from a unit to the one with the other eight rows */
	const int64_t apart = (int64_t)(GATED ? COLUMNS / 2 : COLUMNS) * p.from;
	const int64_t other = (int64_t)(GATED ? p.to / 2 : COLUMNS / 2) * p.from;
	const T *w = as<const T>(p.w) + first * apart + (int64_t)(lane / 8) * p.from + begin +
		     lane % 8 * (line / 8);
	const T *const x =
		as<const T>(p.x) + (int64_t)(lane / 4) * p.from + begin + lane % 4 * (line / 8);
	struct words unit[H::ahead][2]; /* of two sets of four rows */
	struct held held[H::units / 2];
	int round = 0;
	auto read_unit = [&](const T *tile, int i) {
		const T *at = tile + i / 2 * line + i % 2 * other;

		unit[i % H::ahead][0] = read_once(at, true);
		unit[i % H::ahead][1] = read_once(at + 4 * p.from, true);
	};

	if (first < tiles)
#pragma unroll
		for (int i = 0; i < H::ahead; i++)
			read_unit(w, i);
	wait_for_previous();
	start_next();
#pragma unroll
	for (int i = 0; i < H::units / 2; i++)
		held[i] = take_line(x + i * line, line, lane / 4 < p.rows);
	auto take_tile = [&](int tile, auto more) {
		float(*sums)[TILE] = share[round % 2];

		multiply_tile<T, H, more.value>(
			sums[warp], held, unit, w, w + step * apart, read_unit);
		__syncthreads();
		add_warps<T, GATED, H::blocks>(p, sums, kept, tile, round);
		w += step * apart;
		round++;
	};
	int tile = first;

	for (; tile + step < tiles; tile += step)
		take_tile(tile, std::true_type());
	if (tile < tiles)
		take_tile(tile, std::false_type());
	if constexpr (H::blocks > 1)
		store_shared<T, H::blocks>(p, kept[0], first, step, round);
}

/* ---- starting them --------------------------------------------------------------------------- */

template <typename T, class H, bool GATED>
static void start_held(const struct cuda_few_held *p, cudaStream_t stream)
{
	cudaLaunchAttribute how[2] = {};
	cudaLaunchConfig_t launch = {};

	how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	how[0].val.programmaticStreamSerializationAllowed = 1;
	how[1].id = cudaLaunchAttributeClusterDimension;
	how[1].val.clusterDim = {H::blocks, 1, 1};
	launch.gridDim = (unsigned)(p->processors / H::blocks * H::blocks);
	launch.blockDim = WARPS * WARP;
	launch.stream = stream;
	launch.attrs = how;
	launch.numAttrs = H::blocks > 1 ? 2 : 1;
	cudaLaunchKernelEx(&launch, few_rows_held_kernel<T, H, GATED>, p->of);
}

/* Calls f(a holding) for the width of x, unless there is none. */
template <class F> static bool with_holding(const struct cuda_few_held *p, F f)
{
	const int lines = p->of.from * 2 / LINE; /* of a row */

	switch (p->of.from * 2 % (WARPS * LINE) ? 0 : 2 * lines / WARPS) {
	case 8:
		f(holding<8, 8, 1>());
		return true;
	case 12:
		f(holding<12, 6, 1>());
		return true;
	case 16:
		f(holding<16, 8, 1>());
		return true;
	case 28:
		f(holding<28, 7, 1>());
		return true;
	case 32:
		f(holding<16, 8, 2>());
		return true;
	case 56:
		f(holding<28, 7, 2>());
		return true;
	}
	return false;
}

bool cuda_few_held_knows(const struct cuda_few_held *p)
{
	const int tiles = p->of.to / COLUMNS;
	bool knows = false;

	with_holding(p, [&](auto h) {
		constexpr int blocks = decltype(h)::blocks;

		knows = blocks == 1 || (!p->gated && tiles <= p->processors / blocks * ROUNDS);
	});
	return knows && p->of.w_stays && p->processors > 1 && p->of.rows > FEWER &&
	       p->of.rows <= 8 && p->of.to % (2 * COLUMNS) == 0 && p->of.y.type != CUDA_F32 &&
	       !p->of.ws;
}

template <typename T> static void held(const struct cuda_few_held *p, cudaStream_t stream)
{
	with_holding(p, [&](auto h) {
		using H = decltype(h);

		if constexpr (H::blocks == 1) {
			if (p->gated)
				return start_held<T, H, true>(p, stream);
		}
		start_held<T, H, false>(p, stream);
	});
}

void cuda_few_held(const struct cuda_few_held *p, cudaStream_t stream)
{
	p->of.y.type == CUDA_BF16 ? held<bf16>(p, stream) : held<half>(p, stream);
}
