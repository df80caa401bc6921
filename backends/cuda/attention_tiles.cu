/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of attention over qkv[B,S,(H+2G)D] in bf16, by the matrix units of compute capability
 * 9.0. As in FlashAttention, scores are computed again in tiles and never written to memory. Two kernels
 * compute them, so that no sum is split over blocks and each has one order:
 *
 *	dq	 a block owns queries and loops over tiles of keys: dq += ds k
 *	dkv	 a block owns keys and loops over tiles of queries of all heads of the group: dv += p dy, dk += ds q
 *	with p = exp(scale q k - lse), ds = p (dy v - delta), delta = sum over D of dy y; the scale of ds is
 *	applied to the sums
 *
 * One thread of a block copies tiles to shared memory; warp groups of four warps own 64 rows each
 * and multiply. The accumulators of one product have the layout of the left operand of the next, so
 * that p and ds stay in registers: a thread holds rows lane / 4 and lane / 4 + 8 of its warp's 16, and
 * of each 8 columns those at lane % 4 * 2 and the next. Where D = 256 the sums of keys and values do
 * not fit into one warp group: the first computes p and dv, and gives p to the second, which computes
 * ds and dk (pair_kernel).
 */
#include <string.h>

#include "hopper.cuh"

#define GROUP	    128 /* threads of a warp group */
#define TILE	    64	/* rows of the tiles that a block loops over, and of a warp group */
#define TILE_FLOATS (TILE / 2) /* of 64 columns: accumulators of a thread */
#define SWATH	    16 /* heads whose tiles run at the same time, the longest first: their operands stay in L2 */
#define LOG2_E	    1.4426950408889634f

struct tiles {
	int batch, seq, heads, groups, padded;
	float scale;
	bool causal;
	const float *lse, *delta; /* [B,H,padded]: lse / ln 2, after the end of the sequence infinite */
	bf16 *dqkv;
};

typedef float accumulators[TILE_FLOATS];
typedef uint32_t left_operand[TILE / 16][4];

/* ---- pieces --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float exp2_of(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ __forceinline__ uint32_t both(float low, float high)
{
	return two((const bf16 *)nullptr, low, high);
}

__device__ __forceinline__ float low_of(uint32_t x)
{
	return __uint_as_float(x << 16);
}

__device__ __forceinline__ float high_of(uint32_t x)
{
	return __uint_as_float(x & 0xffff0000u);
}

__device__ __forceinline__ int64_t pitch_of(const struct tiles &t, int depth)
{
	return (int64_t)(t.heads + 2 * t.groups) * depth;
}

/* The tile and the head (of all sequences) of a block. */
__device__ __forceinline__ void place(const struct tiles &t, int tiles, int heads, int *tile, int *head)
{
	const int all = heads * t.batch, swath = blockIdx.x / (SWATH * tiles), in = blockIdx.x % (SWATH * tiles);
	const int width = min(SWATH, all - swath * SWATH);

	*tile = in / width;
	*head = swath * SWATH + in % width;
}

/* d = rows a b^T over D; a and b have a_rows and b_rows rows in shared memory. */
template <int D>
__device__ __forceinline__ void multiply(accumulators &d, uint32_t a, int a_rows, uint32_t b, int b_rows)
{
	product_first(d, matrix_at(a, 16), matrix_at(b, 16));
#pragma unroll
	for (int k = 1; k < D / 16; k++)
		product_next(d, matrix_at(a + k / 4 * a_rows * CHUNK_ROW + k % 4 * 32, 16),
			matrix_at(b + k / 4 * b_rows * CHUNK_ROW + k % 4 * 32, 16));
	product_commit();
}

/* sum = add sum + a b over the rows of the tile b */
template <int N>
__device__ __forceinline__ void accumulate(float (&sum)[N], const left_operand &a, uint32_t b, int add)
{
	product_fence();
#pragma unroll
	for (int k = 0; k < TILE / 16; k++)
		product_rows(sum, a[k], matrix_at(b + k * 16 * CHUNK_ROW, TILE * CHUNK_ROW), k ? 1 : add);
	product_commit();
}

__device__ __forceinline__ void pack(left_operand &to, const accumulators &from)
{
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			to[j][i] = both(from[8 * j + 2 * i], from[8 * j + 2 * i + 1]);
}

/* Copies a tile of 64 rows and D columns. */
template <int D>
__device__ __forceinline__ void copy_tile(
	uint32_t to, int rows, const CUtensorMap *map, int column, int row, int batch, uint32_t bar)
{
	for (int c = 0; c < D / 64; c++)
		copy_box(to + c * rows * CHUNK_ROW, map, column + c * 64, row, batch, bar);
}

/* Writes factor times the sums as rows from row0 on. Two lanes exchange halves, so that each writes 8
 * bytes. */
template <int D>
__device__ __forceinline__ void emit(
	const float (&sum)[D / 2], bf16 *to, int64_t pitch, int row0, int rows, float factor)
{
	const int lane = threadIdx.x % WARP, odd = lane & 1;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4 + 8 * half;
#pragma unroll
		for (int j = 0; j < D / 8; j += 2) {
			const float *at = sum + 4 * j + 2 * half;
			const uint32_t low = both(at[0] * factor, at[1] * factor), high = both(at[4] * factor, at[5] * factor);
			const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);

			if (row < rows)
				*reinterpret_cast<uint2 *>(to + row * pitch + 8 * (j + odd) + lane % 4 / 2 * 4) =
					odd ? make_uint2(other, high) : make_uint2(low, other);
		}
	}
}

/* ---- keys and values: scores have keys as rows, queries as columns --------------------------------------------- */

/* A block's keys, and the tiles of queries over which it loops: `count` of each head, from `first` on. */
struct keys_place {
	int batch, group, row0, per_group, first, count, total;
};

__device__ __forceinline__ keys_place keys_of(const struct tiles &t, int rows)
{
	keys_place p;
	int tile, head;

	place(t, (t.seq + rows - 1) / rows, t.groups, &tile, &head);
	p.batch = head / t.groups;
	p.group = head % t.groups;
	p.row0 = tile * rows;
	p.per_group = t.heads / t.groups;
	p.first = t.causal ? p.row0 / TILE : 0;
	p.count = (t.seq + TILE - 1) / TILE - p.first;
	p.total = p.count * p.per_group;
	return p;
}

/* p = exp(scores - lse) of 64 keys from row0 on and the tile of queries from column0 on. */
__device__ __forceinline__ void keys_probabilities(
	const struct tiles &t, accumulators &s, const float *lse, int row0, int column0)
{
	const int lane = threadIdx.x % WARP, row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	const float factor = t.scale * LOG2_E;
#pragma unroll
	for (int j = 0; j < TILE / 8; j++) {
		const float2 l = *reinterpret_cast<const float2 *>(lse + 8 * j + lane % 4 * 2);
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[4 * j + i] = exp2_of(s[4 * j + i] * factor - (i % 2 ? l.y : l.x));
	}
	if (!t.causal || column0 >= row0 + TILE - 1)
		return;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++)
		if (row + j / 2 % 2 * 8 > column0 + j / 4 * 8 + lane % 4 * 2 + j % 2)
			s[j] = 0;
}

/* The shared memory of a block of GROUPS warp groups: keys, values, and stages of queries and dy. */
template <int D, int GROUPS, int STAGES> struct keys_memory {
	static constexpr int rows = GROUPS * TILE, own = rows * D * 2, tile = TILE * D * 2;
	static constexpr int k = 0, v = own, q = 2 * own, dy = q + STAGES * tile, p = dy + STAGES * tile;
	static constexpr int lse = p + (D > 128 ? 2 * GROUP * 64 : 0), delta = lse + STAGES * TILE * 4;
	static constexpr int barriers = delta + STAGES * TILE * 4, bytes = barriers + 256 + 1024;
};

/* The loop of the thread that copies. Queries and dy have barriers of their own; empty barriers
 * follow the full ones. */
template <class M, int D, int STAGES>
__device__ __forceinline__ void keys_copy(const struct tiles &t, const keys_place &p, const CUtensorMap *qkv,
	const CUtensorMap *dy, uint32_t base, uint32_t q_full, uint32_t dy_full, uint32_t start)
{
	barrier_expect(start, 2 * M::own);
	for (int r = 0; r < M::rows; r += TILE) {
		const int at = r * CHUNK_ROW, row = p.row0 + r;

		copy_tile<D>(base + M::k + at, M::rows, qkv, (t.heads + p.group) * D, row, p.batch, start);
		copy_tile<D>(base + M::v + at, M::rows, qkv, (t.heads + t.groups + p.group) * D, row, p.batch, start);
	}
	for (int i = 0; i < p.total; i++) {
		const int st = i % STAGES, h = p.group * p.per_group + i / p.count, row = (p.first + i % p.count) * TILE;
		const int64_t at = (int64_t)(p.batch * t.heads + h) * t.padded + row;

		if (i >= STAGES)
			barrier_wait(q_full + (STAGES + st) * 8, (i / STAGES - 1) & 1);
		barrier_expect(q_full + st * 8, M::tile + TILE * 4);
		copy_tile<D>(base + M::q + st * M::tile, TILE, qkv, h * D, row, p.batch, q_full + st * 8);
		copy_bytes(base + M::lse + st * TILE * 4, t.lse + at, TILE * 4, q_full + st * 8);
		if (i >= STAGES)
			barrier_wait(dy_full + (STAGES + st) * 8, (i / STAGES - 1) & 1);
		barrier_expect(dy_full + st * 8, M::tile + TILE * 4);
		copy_tile<D>(base + M::dy + st * M::tile, TILE, dy, h * D, row, p.batch, dy_full + st * 8);
		copy_bytes(base + M::delta + st * TILE * 4, t.delta + at, TILE * 4, dy_full + st * 8);
	}
}

/* ds = p (dp - delta) */
__device__ __forceinline__ void keys_gradient(
	left_operand &ds, const left_operand &p, const accumulators &dp, const float *delta)
{
#pragma unroll
	for (int j = 0; j < TILE / 8; j++) {
		const float2 l = *reinterpret_cast<const float2 *>(delta + 8 * j + threadIdx.x % 4 * 2);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const uint32_t x = p[j / 2][j % 2 * 2 + i];

			ds[j / 2][j % 2 * 2 + i] = both(low_of(x) * (dp[4 * j + 2 * i] - l.x),
				high_of(x) * (dp[4 * j + 2 * i + 1] - l.y));
		}
	}
}

/* The sums of a warp group over all tiles. */
template <class M, int D, int STAGES>
__device__ __forceinline__ void keys_sums(const struct tiles &t, const keys_place &at, const unsigned char *memory,
	uint32_t base, uint32_t q_full, uint32_t dy_full, float (&dk)[D / 2], float (&dv)[D / 2])
{
	const int lane = threadIdx.x % WARP, mine = threadIdx.x / GROUP * TILE;
	const uint32_t k = base + M::k + mine * CHUNK_ROW, v = base + M::v + mine * CHUNK_ROW;
	int i = 0;

	do {
		const int st = i % STAGES, last = (i + STAGES - 1) % STAGES, parity = i / STAGES & 1;
		const uint32_t q = base + M::q + st * M::tile, dy = base + M::dy + st * M::tile;
		accumulators s, dp;
		left_operand p, ds;

		barrier_wait(q_full + st * 8, parity);
		product_fence();
		multiply<D>(s, k, M::rows, q, TILE);
		product_wait<1>(); /* until the products of the last tile are done */
		__syncwarp();	   /* and all lanes have read its lse and delta */
		if (lane == 0 && i) {
			barrier_arrive(q_full + (STAGES + last) * 8);
			barrier_arrive(dy_full + (STAGES + last) * 8);
		}
		barrier_wait(dy_full + st * 8, parity);
		product_fence();
		multiply<D>(dp, v, M::rows, dy, TILE);
		product_wait<1>();
		results_from_here(s);
		keys_probabilities(t, s, reinterpret_cast<const float *>(memory + M::lse) + st * TILE, at.row0 + mine,
			(at.first + i % at.count) * TILE);
		pack(p, s);
		accumulate(dv, p, dy, i > 0);
		product_wait<1>();
		results_from_here(dp);
		keys_gradient(ds, p, dp, reinterpret_cast<const float *>(memory + M::delta) + st * TILE);
		accumulate(dk, ds, q, i > 0);
	} while (++i < at.total);
	product_wait<0>();
	results_from_here(dk);
	results_from_here(dv);
}

template <int D, int STAGES>
__device__ __forceinline__ void keys_barriers(uint32_t q_full, uint32_t dy_full, uint32_t start, int warps)
{
	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			barrier_init(q_full + i * 8, 1);
			barrier_init(q_full + (STAGES + i) * 8, warps);
			barrier_init(dy_full + i * 8, 1);
			barrier_init(dy_full + (STAGES + i) * 8, warps);
		}
		barrier_init(start, 1);
		barrier_publish();
	}
}

template <int D, int STAGES> __global__ void __launch_bounds__(3 * GROUP, 1)
dkv_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy, const struct tiles t)
{
	typedef keys_memory<D, 2, STAGES> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const uint32_t q_full = base + M::barriers, dy_full = q_full + 2 * STAGES * 8, start = dy_full + 2 * STAGES * 8;
	const keys_place p = keys_of(t, M::rows);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	float dk[D / 2], dv[D / 2];

	keys_barriers<D, STAGES>(q_full, dy_full, start, 8);
	__syncthreads();
	if (group == 2) {
		fewer_registers<24>();
		if (threadIdx.x == 2 * GROUP)
			keys_copy<M, D, STAGES>(t, p, &qkv, &dy, base, q_full, dy_full, start);
		return;
	}
	more_registers<240>();
	barrier_wait(start, 0);
	keys_sums<M, D, STAGES>(t, p, raw + (base - shared_at(raw)), base, q_full, dy_full, dk, dv);
	bf16 *to = t.dqkv + (int64_t)p.batch * t.seq * pitch_of(t, D) + (int64_t)(t.heads + p.group) * D;
	emit<D>(dk, to, pitch_of(t, D), p.row0 + group * TILE, t.seq, t.scale);
	emit<D>(dv, to + t.groups * D, pitch_of(t, D), p.row0 + group * TILE, t.seq, 1);
}

/* ---- the same for wide heads, where one warp group sums dv and another dk of the same keys -------------------- */

template <class M, int D, int STAGES>
__device__ __forceinline__ void pair_values(const struct tiles &t, const keys_place &at, unsigned char *memory,
	uint32_t base, uint32_t q_full, uint32_t dy_full, uint32_t p_full, float (&dv)[D / 2])
{
	const int lane = threadIdx.x % WARP;
	uint4 *share = reinterpret_cast<uint4 *>(memory + M::p) + threadIdx.x % GROUP;
	int i = 0;

	do {
		const int st = i % STAGES, turn = i % 2;
		accumulators s;
		left_operand p;

		barrier_wait(q_full + st * 8, i / STAGES & 1);
		product_fence();
		multiply<D>(s, base + M::k, TILE, base + M::q + st * M::tile, TILE);
		product_wait<1>();
		if (lane == 0 && i)
			barrier_arrive(dy_full + (STAGES + (i + STAGES - 1) % STAGES) * 8);
		product_wait<0>();
		results_from_here(s);
		keys_probabilities(t, s, reinterpret_cast<const float *>(memory + M::lse) + st * TILE, at.row0,
			(at.first + i % at.count) * TILE);
		pack(p, s);
		__syncwarp();
		if (lane == 0)
			barrier_arrive(q_full + (STAGES + st) * 8);
		barrier_wait(dy_full + st * 8, i / STAGES & 1);
		accumulate(dv, p, base + M::dy + st * M::tile, i > 0);
		if (i >= 2)
			barrier_wait(p_full + (2 + turn) * 8, (i / 2 - 1) & 1);
#pragma unroll
		for (int j = 0; j < TILE / 16; j++)
			share[(turn * 4 + j) * GROUP] = make_uint4(p[j][0], p[j][1], p[j][2], p[j][3]);
		__syncwarp();
		if (lane == 0)
			barrier_arrive(p_full + turn * 8);
	} while (++i < at.total);
	product_wait<0>();
	results_from_here(dv);
}

template <class M, int D, int STAGES>
__device__ __forceinline__ void pair_keys(const keys_place &at, const unsigned char *memory, uint32_t base,
	uint32_t q_full, uint32_t dy_full, uint32_t p_full, float (&dk)[D / 2])
{
	const int lane = threadIdx.x % WARP;
	const uint4 *share = reinterpret_cast<const uint4 *>(memory + M::p) + threadIdx.x % GROUP;
	int i = 0;

	do {
		const int st = i % STAGES, turn = i % 2;
		accumulators dp;
		left_operand p, ds;

		barrier_wait(dy_full + st * 8, i / STAGES & 1);
		product_fence();
		multiply<D>(dp, base + M::v, TILE, base + M::dy + st * M::tile, TILE);
		product_wait<1>();
		if (lane == 0 && i)
			barrier_arrive(q_full + (STAGES + (i + STAGES - 1) % STAGES) * 8);
		product_wait<0>();
		results_from_here(dp);
		barrier_wait(p_full + turn * 8, i / 2 & 1);
#pragma unroll
		for (int j = 0; j < TILE / 16; j++) {
			const uint4 x = share[(turn * 4 + j) * GROUP];

			p[j][0] = x.x, p[j][1] = x.y, p[j][2] = x.z, p[j][3] = x.w;
		}
		keys_gradient(ds, p, dp, reinterpret_cast<const float *>(memory + M::delta) + st * TILE);
		__syncwarp();
		if (lane == 0) {
			barrier_arrive(p_full + (2 + turn) * 8);
			barrier_arrive(dy_full + (STAGES + st) * 8);
		}
		barrier_wait(q_full + st * 8, i / STAGES & 1);
		accumulate(dk, ds, base + M::q + st * M::tile, i > 0);
	} while (++i < at.total);
	product_wait<0>();
	results_from_here(dk);
}

template <int D, int STAGES> __global__ void __launch_bounds__(3 * GROUP, 1)
pair_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy, const struct tiles t)
{
	typedef keys_memory<D, 1, STAGES> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const uint32_t q_full = base + M::barriers, dy_full = q_full + 2 * STAGES * 8, start = dy_full + 2 * STAGES * 8;
	const uint32_t p_full = start + 8;
	const keys_place p = keys_of(t, M::rows);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	unsigned char *memory = raw + (base - shared_at(raw));
	float sum[D / 2];

	if (threadIdx.x == 0)
		for (int i = 0; i < 4; i++)
			barrier_init(p_full + i * 8, 4);
	keys_barriers<D, STAGES>(q_full, dy_full, start, 8);
	__syncthreads();
	if (group == 2) {
		fewer_registers<24>();
		if (threadIdx.x == 2 * GROUP)
			keys_copy<M, D, STAGES>(t, p, &qkv, &dy, base, q_full, dy_full, start);
		return;
	}
	more_registers<240>();
	barrier_wait(start, 0);
	bf16 *to = t.dqkv + (int64_t)p.batch * t.seq * pitch_of(t, D) + (int64_t)(t.heads + p.group) * D;
	if (group == 0) {
		pair_values<M, D, STAGES>(t, p, memory, base, q_full, dy_full, p_full, sum);
		emit<D>(sum, to + t.groups * D, pitch_of(t, D), p.row0, t.seq, 1);
	} else {
		pair_keys<M, D, STAGES>(p, memory, base, q_full, dy_full, p_full, sum);
		emit<D>(sum, to, pitch_of(t, D), p.row0, t.seq, t.scale);
	}
}

/* ---- queries: scores have queries as rows, keys as columns -------------------------------------------------------- */

/* A block's queries, and the number of tiles of keys over which it loops. */
struct queries_place {
	int batch, head, all_head, group, row0, total;
};

template <int ROWS_OF_BLOCK> __device__ __forceinline__ queries_place queries_of(const struct tiles &t)
{
	const int tiles = (t.seq + ROWS_OF_BLOCK - 1) / ROWS_OF_BLOCK, all = (t.seq + TILE - 1) / TILE;
	queries_place p;
	int tile;

	place(t, tiles, t.heads, &tile, &p.all_head);
	p.batch = p.all_head / t.heads;
	p.head = p.all_head % t.heads;
	p.group = p.head / (t.heads / t.groups);
	p.row0 = (tiles - 1 - tile) * ROWS_OF_BLOCK;
	p.total = t.causal ? min(all, (p.row0 + ROWS_OF_BLOCK) / TILE) : all;
	return p;
}

template <int D, int GROUPS, int K_STAGES, int V_STAGES> struct queries_memory {
	static constexpr int rows = GROUPS * TILE, own = rows * D * 2, tile = TILE * D * 2;
	static constexpr int q = 0, dy = own, k = 2 * own, v = k + K_STAGES * tile, barriers = v + V_STAGES * tile;
	static constexpr int bytes = barriers + 256 + 1024;
};

template <class M, int D, int K_STAGES, int V_STAGES>
__device__ __forceinline__ void queries_copy(const struct tiles &t, const queries_place &p, const CUtensorMap *qkv,
	const CUtensorMap *dy, uint32_t base, uint32_t k_full, uint32_t v_full, uint32_t start)
{
	barrier_expect(start, 2 * M::own);
	for (int r = 0; r < M::rows; r += TILE) {
		copy_tile<D>(base + M::q + r * CHUNK_ROW, M::rows, qkv, p.head * D, p.row0 + r, p.batch, start);
		copy_tile<D>(base + M::dy + r * CHUNK_ROW, M::rows, dy, p.head * D, p.row0 + r, p.batch, start);
	}
	for (int i = 0; i < p.total; i++) {
		const int k = i % K_STAGES, v = i % V_STAGES;

		if (i >= K_STAGES)
			barrier_wait(k_full + (K_STAGES + k) * 8, (i / K_STAGES - 1) & 1);
		barrier_expect(k_full + k * 8, M::tile);
		copy_tile<D>(base + M::k + k * M::tile, TILE, qkv, (t.heads + p.group) * D, i * TILE, p.batch, k_full + k * 8);
		if (i >= V_STAGES)
			barrier_wait(v_full + (V_STAGES + v) * 8, (i / V_STAGES - 1) & 1);
		barrier_expect(v_full + v * 8, M::tile);
		copy_tile<D>(base + M::v + v * M::tile, TILE, qkv, (t.heads + t.groups + p.group) * D, i * TILE, p.batch,
			v_full + v * 8);
	}
}

/* s = exp(s - lse) of the rows from `row` on and the keys from column0 on */
__device__ __forceinline__ void queries_probabilities(
	const struct tiles &t, accumulators &s, const float (&lse)[2], int row0, int column0)
{
	const int lane = threadIdx.x % WARP, row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	const float factor = t.scale * LOG2_E;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++)
		s[j] = exp2_of(s[j] * factor - lse[j / 2 % 2]);
	if (!(t.causal && column0 + TILE > row0 + 1) && column0 + TILE <= t.seq)
		return;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++) {
		const int key = column0 + j / 4 * 8 + lane % 4 * 2 + j % 2;

		if (key >= t.seq || (t.causal && key > row + j / 2 % 2 * 8))
			s[j] = 0;
	}
}

/* Loops over the tiles that the warp group needs. Returns their number. */
template <class M, int D, int K_STAGES, int V_STAGES>
__device__ __forceinline__ int queries_sums(const struct tiles &t, const queries_place &p, uint32_t base,
	uint32_t k_full, uint32_t v_full, float (&dq)[D / 2])
{
	const int lane = threadIdx.x % WARP, mine = threadIdx.x / GROUP * TILE, row0 = p.row0 + mine;
	const int todo = t.causal ? min(p.total, row0 / TILE + 1) : p.total;
	const int row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	float lse[2] = {}, delta[2] = {};
	int i = 0;

	for (int half = 0; half < 2; half++)
		if (row + half * 8 < t.padded) {
			lse[half] = t.lse[(int64_t)p.all_head * t.padded + row + half * 8];
			delta[half] = t.delta[(int64_t)p.all_head * t.padded + row + half * 8];
		}
	do {
		const int k = i % K_STAGES, v = i % V_STAGES, last = (i + K_STAGES - 1) % K_STAGES;
		accumulators s, dp;
		left_operand ds;

		barrier_wait(k_full + k * 8, i / K_STAGES & 1);
		product_fence();
		multiply<D>(s, base + M::q + mine * CHUNK_ROW, M::rows, base + M::k + k * M::tile, TILE);
		barrier_wait(v_full + v * 8, i / V_STAGES & 1);
		product_wait<1>();
		if (lane == 0 && i)
			barrier_arrive(k_full + (K_STAGES + last) * 8);
		product_fence();
		multiply<D>(dp, base + M::dy + mine * CHUNK_ROW, M::rows, base + M::v + v * M::tile, TILE);
		product_wait<1>();
		results_from_here(s);
		queries_probabilities(t, s, lse, row0, i * TILE);
		product_wait<0>();
		results_from_here(dp);
		if (lane == 0)
			barrier_arrive(v_full + (V_STAGES + v) * 8);
#pragma unroll
		for (int j = 0; j < TILE_FLOATS; j++)
			s[j] *= dp[j] - delta[j / 2 % 2];
		pack(ds, s);
		accumulate(dq, ds, base + M::k + k * M::tile, i > 0);
	} while (++i < todo);
	product_wait<0>();
	results_from_here(dq);
	if (lane == 0)
		barrier_arrive(k_full + (K_STAGES + (todo - 1) % K_STAGES) * 8);
	return todo;
}

template <int D, int GROUPS, int K_STAGES, int V_STAGES> __global__ void __launch_bounds__((GROUPS + 1) * GROUP, 1)
dq_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy, const struct tiles t)
{
	typedef queries_memory<D, GROUPS, K_STAGES, V_STAGES> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const uint32_t k_full = base + M::barriers, v_full = k_full + 2 * K_STAGES * 8, start = v_full + 2 * V_STAGES * 8;
	const queries_place p = queries_of<M::rows>(t);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	float dq[D / 2];

	if (threadIdx.x == 0) {
		for (int i = 0; i < 2 * K_STAGES; i++)
			barrier_init(k_full + i * 8, i < K_STAGES ? 1 : 4 * GROUPS);
		for (int i = 0; i < 2 * V_STAGES; i++)
			barrier_init(v_full + i * 8, i < V_STAGES ? 1 : 4 * GROUPS);
		barrier_init(start, 1);
		barrier_publish();
	}
	__syncthreads();
	if (group == GROUPS) {
		fewer_registers<GROUPS == 3 ? 32 : 24>();
		if (threadIdx.x == GROUPS * GROUP)
			queries_copy<M, D, K_STAGES, V_STAGES>(t, p, &qkv, &dy, base, k_full, v_full, start);
		return;
	}
	more_registers<GROUPS == 3 ? 160 : 240>();
	barrier_wait(start, 0);
	int i = queries_sums<M, D, K_STAGES, V_STAGES>(t, p, base, k_full, v_full, dq);
	for (; i < p.total; i++) { /* tiles that only warp groups of later queries need */
		barrier_wait(k_full + i % K_STAGES * 8, i / K_STAGES & 1);
		barrier_wait(v_full + i % V_STAGES * 8, i / V_STAGES & 1);
		__syncwarp();
		if (threadIdx.x % WARP == 0) {
			barrier_arrive(k_full + (K_STAGES + i % K_STAGES) * 8);
			barrier_arrive(v_full + (V_STAGES + i % V_STAGES) * 8);
		}
	}
	emit<D>(dq, t.dqkv + (int64_t)p.batch * t.seq * pitch_of(t, D) + (int64_t)p.head * D, pitch_of(t, D),
		p.row0 + group * TILE, t.seq, t.scale);
}

/* ---- delta, and lse in the unit that the kernels above take ----------------------------------------------------------- */

struct rows_of {
	int batch, seq, heads, padded;
	const bf16 *y, *dy;
	const float *lse;
	float *scaled, *delta;
};

/* A thread handles 8 columns. After the end of a sequence lse is infinite, so that p is 0. */
template <int D> __global__ void rows_kernel(struct rows_of p)
{
	const int64_t pack = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, columns = p.heads * (D / PACK);
	const int64_t row = pack / columns, b = row / p.padded, s = row % p.padded;
	const int at = (int)(pack % columns), h = at / (D / PACK);
	float sum = 0;

	if (b >= p.batch)
		return;
	if (s < p.seq) {
		const int64_t from = ((b * p.seq + s) * columns + at) * PACK;
		float y[PACK], dy[PACK];

		load(p.y + from, y);
		load(p.dy + from, dy);
#pragma unroll
		for (int i = 0; i < PACK; i++)
			sum += y[i] * dy[i];
	}
#pragma unroll
	for (int i = D / PACK / 2; i; i /= 2)
		sum += __shfl_xor_sync(0xffffffffu, sum, i, D / PACK);
	if (at % (D / PACK) == 0) {
		const int64_t to = (b * p.heads + h) * p.padded + s;

		p.delta[to] = sum;
		p.scaled[to] = s < p.seq ? p.lse[(b * p.heads + h) * p.seq + s] * LOG2_E : INFINITY;
	}
}

/* ---- starting ----------------------------------------------------------------------------------------------------------- */

template <class M, class K> static void start(K kernel, const struct cuda_attention_tiles *p, const struct tiles &t,
	int heads, int groups, cudaStream_t stream)
{
	CUtensorMap qkv, dy;

	memcpy(&qkv, &p->qkv_boxes, sizeof qkv);
	memcpy(&dy, &p->dy_boxes, sizeof dy);
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, M::bytes);
	kernel<<<blocks_for(t.seq, M::rows) * (unsigned)(heads * t.batch), (groups + 1) * GROUP, M::bytes, stream>>>(
		qkv, dy, t);
}

template <int D, int GROUPS, int K_STAGES, int V_STAGES>
static void start_queries(const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	start<queries_memory<D, GROUPS, K_STAGES, V_STAGES>>(
		dq_kernel<D, GROUPS, K_STAGES, V_STAGES>, p, t, t.heads, GROUPS, stream);
}

template <int D, int STAGES>
static void start_keys(const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	if constexpr (D > 128)
		start<keys_memory<D, 1, STAGES>>(pair_kernel<D, STAGES>, p, t, t.groups, 2, stream);
	else
		start<keys_memory<D, 2, STAGES>>(dkv_kernel<D, STAGES>, p, t, t.groups, 2, stream);
}

template <int D> static void start_rows(const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	const int64_t packs = (int64_t)t.batch * t.padded * t.heads * (D / PACK);
	const struct rows_of rows = {t.batch, t.seq, t.heads, t.padded, static_cast<const bf16 *>(p->y),
		static_cast<const bf16 *>(p->dy), p->lse, const_cast<float *>(t.lse), const_cast<float *>(t.delta)};

	rows_kernel<D><<<blocks_for(packs, 256), 256, 0, stream>>>(rows);
}

void cuda_attention_tiles(const struct cuda_attention_tiles *p, cudaStream_t stream)
{
	const int64_t padded = cuda_attention_padded(p->seq), rows = p->batch * p->heads * padded;
	const struct tiles t = {p->batch, p->seq, p->heads, p->groups, (int)padded, p->scale, p->causal, p->rows,
		p->rows + rows, static_cast<bf16 *>(p->dqkv)};

	if (p->depth == 64) {
		start_rows<64>(p, t, stream);
		p->tall ? start_queries<64, 3, 4, 3>(p, t, stream) : start_queries<64, 2, 4, 3>(p, t, stream);
		start_keys<64, 3>(p, t, stream);
	} else if (p->depth == 128) {
		start_rows<128>(p, t, stream);
		start_queries<128, 2, 3, 2>(p, t, stream);
		start_keys<128, 2>(p, t, stream);
	} else {
		start_rows<256>(p, t, stream);
		start_queries<256, 2, 2, 1>(p, t, stream);
		start_keys<256, 2>(p, t, stream);
	}
}
