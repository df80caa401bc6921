/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of attention_tiles.cu that own keys: dv and dk. */
#ifndef JM_CUDA_ATTENTION_KEYS_CUH
#define JM_CUDA_ATTENTION_KEYS_CUH

#include "tiles.cuh"

/* ---- keys and values: scores have keys as rows, queries as columns --------------------------- */

/* A block's keys, and the tiles of queries over which it loops: `count` of each head, from `first`
 * on. */
struct keys_place {
	int batch, group, row0, per_group, first, count, total;
};

__device__ __forceinline__ keys_place keys_of(const struct tiles &t, int rows)
{
	keys_place p;
	int tile, head;

	place(t, (t.keys + rows - 1) / rows, t.groups, &tile, &head);
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

/* The shared memory of a block of GROUPS warp groups: keys, values, and stages of queries and
 * dy. */
template <int D, int GROUPS, int STAGES> struct keys_memory {
	static constexpr int rows = GROUPS * TILE, own = rows * D * 2, tile = TILE * D * 2;
	static constexpr int k = 0, v = own, q = 2 * own, dy = q + STAGES * tile,
			     p = dy + STAGES * tile;
	static constexpr int lse = p + (D > 128 ? 2 * GROUP * 64 : 0),
			     delta = lse + STAGES * TILE * 4;
	static constexpr int barriers = delta + STAGES * TILE * 4, bytes = barriers + 256 + 1024;
};

/* The loop of the thread that copies. Queries and dy have barriers of their own; empty barriers
 * follow the full ones. */
template <class M, int D, int STAGES>
__device__ __forceinline__ void keys_copy(const struct tiles &t, const keys_place &p,
	const struct boxes &map, uint32_t base, uint32_t q_full, uint32_t dy_full, uint32_t start)
{
	barrier_expect(start, 2 * M::own);
	for (int r = 0; r < M::rows; r += TILE) {
		const int at = r * CHUNK_ROW, row = p.row0 + r;

		copy_tile<D>(base + M::k + at, M::rows, &map.k, p.group * D, row, p.batch,
			start);
		copy_tile<D>(base + M::v + at, M::rows, &map.v, p.group * D, row, p.batch,
			start);
	}
	for (int i = 0; i < p.total; i++) {
		const int st = i % STAGES, h = p.group * p.per_group + i / p.count,
			  row = (p.first + i % p.count) * TILE;
		const int64_t at = (int64_t)(p.batch * t.heads + h) * t.padded + row;

		if (i >= STAGES)
			barrier_wait(q_full + (STAGES + st) * 8, (i / STAGES - 1) & 1);
		barrier_expect(q_full + st * 8, M::tile + TILE * 4);
		copy_tile<D>(base + M::q + st * M::tile, TILE, &map.q, h * D, row, p.batch,
			q_full + st * 8);
		copy_bytes(base + M::lse + st * TILE * 4, t.lse + at, TILE * 4, q_full + st * 8);
		if (i >= STAGES)
			barrier_wait(dy_full + (STAGES + st) * 8, (i / STAGES - 1) & 1);
		barrier_expect(dy_full + st * 8, M::tile + TILE * 4);
		copy_tile<D>(base + M::dy + st * M::tile, TILE, &map.dy, h * D, row, p.batch,
			dy_full + st * 8);
		copy_bytes(
			base + M::delta + st * TILE * 4, t.delta + at, TILE * 4, dy_full + st * 8);
	}
}

/* ds = p (dp - delta) */
template <typename T>
__device__ __forceinline__ void keys_gradient(
	left_operand &ds, const left_operand &p, const accumulators &dp, const float *delta)
{
#pragma unroll
	for (int j = 0; j < TILE / 8; j++) {
		const float2 l =
			*reinterpret_cast<const float2 *>(delta + 8 * j + threadIdx.x % 4 * 2);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const float2 x = apart<T>(p[j / 2][j % 2 * 2 + i]);

			ds[j / 2][j % 2 * 2 + i] = both<T>(x.x * (dp[4 * j + 2 * i] - l.x),
				x.y * (dp[4 * j + 2 * i + 1] - l.y));
		}
	}
}

/* The sums of a warp group over all tiles; its keys are those from `mine` on of the block. */
template <class M, typename T, int D, int STAGES>
__device__ __forceinline__ void keys_sums(const struct tiles &t, const keys_place &at,
	const unsigned char *memory, uint32_t base, uint32_t q_full, uint32_t dy_full, int mine,
	float (&dk)[D / 2], float (&dv)[D / 2])
{
	const int lane = threadIdx.x % WARP;
	const uint32_t k = base + M::k + mine * CHUNK_ROW, v = base + M::v + mine * CHUNK_ROW;
	int i = 0, m = 0;

	do {
		const int st = i % STAGES, last = (i + STAGES - 1) % STAGES,
			  parity = i / STAGES & 1;
		const uint32_t q = base + M::q + st * M::tile, dy = base + M::dy + st * M::tile;
		accumulators s, dp;
		left_operand p, ds;

		barrier_wait(q_full + st * 8, parity);
		product_fence();
		multiply<D, T>(s, k, M::rows, q, TILE);
		product_wait<1>(); /* until the products of the last tile are done */
		__syncwarp();	   /* and all lanes have read its lse and delta */
		if (lane == 0 && i) {
			barrier_arrive(q_full + (STAGES + last) * 8);
			barrier_arrive(dy_full + (STAGES + last) * 8);
		}
		barrier_wait(dy_full + st * 8, parity);
		product_fence();
		multiply<D, T>(dp, v, M::rows, dy, TILE);
		product_wait<1>();
		results_from_here(s);
		keys_probabilities(t, s,
			reinterpret_cast<const float *>(memory + M::lse) + st * TILE,
			at.row0 + mine, (at.first + m) * TILE);
		m = m + 1 == at.count ? 0 : m + 1;
		pack<T>(p, s);
		accumulate<T>(dv, p, dy, i > 0);
		product_wait<1>();
		results_from_here(dp);
		keys_gradient<T>(
			ds, p, dp, reinterpret_cast<const float *>(memory + M::delta) + st * TILE);
		accumulate<T>(dk, ds, q, i > 0);
	} while (++i < at.total);
	product_wait<0>();
	results_from_here(dk);
	results_from_here(dv);
}

template <int D, int STAGES>
__device__ __forceinline__ void keys_barriers(
	uint32_t q_full, uint32_t dy_full, uint32_t start, int warps)
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

template <typename T, int D, int STAGES>
__global__ void __launch_bounds__(3 * GROUP, 1)
	dkv_kernel(const __grid_constant__ struct boxes map, const struct tiles t)
{
	typedef keys_memory<D, 2, STAGES> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const uint32_t q_full = base + M::barriers, dy_full = q_full + 2 * STAGES * 8,
		       start = dy_full + 2 * STAGES * 8;
	const keys_place p = keys_of(t, M::rows);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	float dk[D / 2], dv[D / 2];

	keys_barriers<D, STAGES>(q_full, dy_full, start, 8);
	__syncthreads();
	if (group == 2) {
		fewer_registers<24>();
		if (threadIdx.x == 2 * GROUP)
			keys_copy<M, D, STAGES>(t, p, map, base, q_full, dy_full, start);
		return;
	}
	more_registers<240>();
	barrier_wait(start, 0);
	keys_sums<M, T, D, STAGES>(
		t, p, raw + (base - shared_at(raw)), base, q_full, dy_full, group * TILE, dk, dv);
	turn_back<D>(t, dk, p.row0 + group * TILE);
	emit<D>(dk, grad_of<T>(t.k, p.batch, p.group * D), t.k.row, p.row0 + group * TILE, t.keys,
		t.scale);
	emit<D>(dv, grad_of<T>(t.v, p.batch, p.group * D), t.v.row, p.row0 + group * TILE, t.keys,
		1);
}

/* ---- the same for wide heads, where one warp group sums dv and another dk of the same keys --- */

template <class M, typename T, int D, int STAGES>
__device__ __forceinline__ void pair_values(const struct tiles &t, const keys_place &at,
	unsigned char *memory, uint32_t base, uint32_t q_full, uint32_t dy_full, uint32_t p_full,
	float (&dv)[D / 2])
{
	const int lane = threadIdx.x % WARP;
	uint4 *share = reinterpret_cast<uint4 *>(memory + M::p) + threadIdx.x % GROUP;
	int i = 0, m = 0;

	do {
		const int st = i % STAGES, turn = i % 2;
		accumulators s;
		left_operand p;

		barrier_wait(q_full + st * 8, i / STAGES & 1);
		product_fence();
		multiply<D, T>(s, base + M::k, TILE, base + M::q + st * M::tile, TILE);
		product_wait<1>();
		if (lane == 0 && i)
			barrier_arrive(dy_full + (STAGES + (i + STAGES - 1) % STAGES) * 8);
		product_wait<0>();
		results_from_here(s);
		keys_probabilities(t, s,
			reinterpret_cast<const float *>(memory + M::lse) + st * TILE, at.row0,
			(at.first + m) * TILE);
		m = m + 1 == at.count ? 0 : m + 1;
		pack<T>(p, s);
		__syncwarp();
		if (lane == 0)
			barrier_arrive(q_full + (STAGES + st) * 8);
		barrier_wait(dy_full + st * 8, i / STAGES & 1);
		accumulate<T>(dv, p, base + M::dy + st * M::tile, i > 0);
		if (i >= 2)
			barrier_wait(p_full + (2 + turn) * 8, (i / 2 - 1) & 1);
#pragma unroll
		for (int j = 0; j < TILE / 16; j++)
			share[(turn * 4 + j) * GROUP] =
				make_uint4(p[j][0], p[j][1], p[j][2], p[j][3]);
		__syncwarp();
		if (lane == 0)
			barrier_arrive(p_full + turn * 8);
	} while (++i < at.total);
	product_wait<0>();
	results_from_here(dv);
}

template <class M, typename T, int D, int STAGES>
__device__ __forceinline__ void pair_keys(const keys_place &at, const unsigned char *memory,
	uint32_t base, uint32_t q_full, uint32_t dy_full, uint32_t p_full, float (&dk)[D / 2])
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
		multiply<D, T>(dp, base + M::v, TILE, base + M::dy + st * M::tile, TILE);
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
		keys_gradient<T>(
			ds, p, dp, reinterpret_cast<const float *>(memory + M::delta) + st * TILE);
		__syncwarp();
		if (lane == 0) {
			barrier_arrive(p_full + (2 + turn) * 8);
			barrier_arrive(dy_full + (STAGES + st) * 8);
		}
		barrier_wait(q_full + st * 8, i / STAGES & 1);
		accumulate<T>(dk, ds, base + M::q + st * M::tile, i > 0);
	} while (++i < at.total);
	product_wait<0>();
	results_from_here(dk);
}

template <typename T, int D, int STAGES>
__global__ void __launch_bounds__(3 * GROUP, 1)
	pair_kernel(const __grid_constant__ struct boxes map, const struct tiles t)
{
	typedef keys_memory<D, 1, STAGES> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const uint32_t q_full = base + M::barriers, dy_full = q_full + 2 * STAGES * 8,
		       start = dy_full + 2 * STAGES * 8;
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
			keys_copy<M, D, STAGES>(t, p, map, base, q_full, dy_full, start);
		return;
	}
	more_registers<240>();
	barrier_wait(start, 0);
	if (group == 0) {
		pair_values<M, T, D, STAGES>(t, p, memory, base, q_full, dy_full, p_full, sum);
		emit<D>(sum, grad_of<T>(t.v, p.batch, p.group * D), t.v.row, p.row0,
			t.keys, 1);
	} else {
		pair_keys<M, T, D, STAGES>(p, memory, base, q_full, dy_full, p_full, sum);
		turn_back<D>(t, sum, p.row0);
		emit<D>(sum, grad_of<T>(t.k, p.batch, p.group * D), t.k.row, p.row0,
			t.keys, t.scale);
	}
}

#endif
