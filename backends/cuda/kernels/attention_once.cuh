/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of attention_tiles.cu that computes scores once, for heads of 64 and 128: dq, dk and
 * dv.
 *
 * A block takes tickets, each of 128 keys of a head, and walks over tiles of 64 queries. Two warp
 * groups own 64 keys each and sum dk and dv as in attention_keys.cuh; they leave ds in shared
 * memory, from where a third computes the part of dq that is due to these keys. Parts are added in
 * global memory, in f32, and always in the same order: a tile of dq counts what was added, and a
 * block adds its part when the count is that of the blocks before it. The last block of a tile
 * reads the sum, adds its own part and writes dq.
 *
 * Tickets of the first keys come first, and tiles of the last queries, of all heads of a group:
 * of a causal head the longest tickets begin first, and a block begins with tiles with which the
 * block before it began. attention_last.cuh has the other order.
 *
 * A part needs only those of blocks with smaller tickets, which are running or done, so no block
 * waits forever. Sums lie in slots, as many as heads that may be under way; a slot's counts go on
 * where the head before ended.
 */
#ifndef JM_CUDA_ATTENTION_ONCE_CUH
#define JM_CUDA_ATTENTION_ONCE_CUH

#include "attention_wide.cuh"

#define DEPTH 64

/* ---- dq -------------------------------------------------------------------------------------- */

/* A tile of dq begins with the sum of the parts before it, unless there is none. Then the thread
 * that sends may have its place. A thread's packs are GROUP apart. */
__device__ __forceinline__ void once_take(
	accumulators &dq, const float4 *share, bool none, uint32_t full)
{
	if (!none)
#pragma unroll
		for (int j = 0; j < DEPTH / 8; j++) {
			const float4 x = share[j * GROUP];

			dq[4 * j] = x.x, dq[4 * j + 1] = x.y;
			dq[4 * j + 2] = x.z, dq[4 * j + 3] = x.w;
		}
	warp_arrive(full);
}

/* Writes dq of head `h` from row0 on. */
template <typename T>
__device__ __forceinline__ void once_emit_queries(
	const struct tiles &t, int batch, int h, int row0, accumulators &dq)
{
	turn_back<DEPTH>(t, dq, row0);
	emit<DEPTH>(dq, grad_of<T>(t.q, batch, h * DEPTH), t.q.row, row0, t.seq, t.scale);
}

/* The warp group that computes dq. */
template <typename T>
__device__ __forceinline__ void once_queries(const struct tiles &t, const struct once &o,
	unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory<DEPTH> M;
	const int lane = threadIdx.x % WARP;
	const uint32_t k0 = matrix_low(base + M::k, 16), ds0 = matrix_low(base + M::ds, 16);
	once_place p;
	int done = 0;

	for (int w = 0; once_next<DEPTH>(t, o, memory, bars, w, &p); w++) {
		const uint32_t k = k0 + w % M::owns * (M::own / 16);

		for (int i = 0; i < p.keys.total; i++, done++) {
			const int turn = done % M::turns, to = done % M::senders;
			const uint32_t full = bars.dq + to * 8;
			const once_tile at = once_tile_of(t, p, i);
			float4 *share =
				reinterpret_cast<float4 *>(memory + M::dq + to * M::dq_tile) +
				threadIdx.x % GROUP;
			accumulators dq = {};

			if (at.last) {
				/* each phase is waited for: a barrier tells only two apart */
				wait_empty<M::senders>(full, done);
				barrier_wait(bars.got + to * 8, done / M::senders & 1);
				once_take(dq, share, at.first, full);
			}
			barrier_wait(bars.ds + turn * 8, done / M::turns & 1);
			if (at.half)
				once_part<T, TILE>(dq, ds0 + turn * (M::ds_tile / 16), k);
			else
				once_part<T, OWN>(dq, ds0 + turn * (M::ds_tile / 16), k);
			if (lane == 0)
				barrier_arrive(bars.ds + (M::turns + turn) * 8);
			if (!at.last) {
				wait_empty<M::senders>(full, done);
				once_write(dq, share);
				warp_arrive(full);
			} else {
				once_emit_queries<T>(t, p.keys.batch, at.head, at.row0, dq);
			}
		}
		if (lane == 0)
			barrier_arrive(bars.kv + (M::owns + w % M::owns) * 8);
	}
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

__device__ __forceinline__ void fetch(left_operand &a, uint32_t at)
{
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
			     : "=r"(a[j][0]), "=r"(a[j][1]), "=r"(a[j][2]), "=r"(a[j][3])
			     : "r"(fragment_at(at, j))
			     : "memory");
}

__device__ __forceinline__ void leave(uint32_t to, const left_operand &a)
{
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
			     :
			     : "r"(fragment_at(to, j)), "r"(a[j][0]), "r"(a[j][1]), "r"(a[j][2]),
			     "r"(a[j][3])
			     : "memory");
}

/* A warp group's keys: k in registers, v in shared memory (matrix_low). */
struct once_own {
	left_operand k;
	uint32_t v;
	int mine, row0;
};

/* s = k q^T of the stage of queries */
template <typename T>
__device__ __forceinline__ void once_scores(accumulators &s, const left_operand &k, uint32_t q)
{
	product_fence();
#pragma unroll
	for (int j = 0; j < DEPTH / 16; j++)
		product_kept<T>(s, k[j], matrix_of(q + 2 * j), j);
	product_commit();
}

/* dp = v dy^T of the stage of dy; both in shared memory (matrix_low) */
template <typename T>
__device__ __forceinline__ void once_gradients(accumulators &dp, uint32_t v, uint32_t dy)
{
	product_first<T>(dp, matrix_of(v), matrix_of(dy));
#pragma unroll
	for (int j = 1; j < DEPTH / 16; j++)
		product_next<T>(dp, matrix_of(v + 2 * j), matrix_of(dy + 2 * j));
	product_commit();
}

/* sum += a b of a stage of queries or dy */
template <typename T>
__device__ __forceinline__ void once_add(accumulators &sum, const left_operand &a, uint32_t b)
{
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		product_rows<T>(sum, a[j], matrix_of(b + j * CHUNK_ROW), 1);
	product_commit();
}

/* s = exp(scores - lse); 0 where a key is masked. lse: from this lane's column on */
__device__ __forceinline__ void once_probabilities(const struct tiles &t, accumulators &s,
	const float *lse, int row0, int column0)
{
	const int lane = threadIdx.x % WARP, row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4,
		  column = t.causal ? column0 + lane % 4 * 2 : 1 << 30;
	const float factor = t.scale * LOG2_E;
#pragma unroll
	for (int j = 0; j < TILE / 8; j++) {
		const float2 l = *reinterpret_cast<const float2 *>(lse + 8 * j);
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[4 * j + i] = exp2_of(s[4 * j + i] * factor - (i % 2 ? l.y : l.x));
	}
	if (row0 + TILE <= t.keys && (!t.causal || column0 >= row0 + TILE - 1))
		return;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++)
		if (row + j / 2 % 2 * 8 >= min(t.keys, column + j / 4 * 8 + j % 2 + 1))
			s[j] = 0;
}

/* ds = p (dp - delta) */
template <typename T>
__device__ __forceinline__ void once_gradient(
	left_operand &ds, const accumulators &p, const accumulators &dp, const float *delta)
{
#pragma unroll
	for (int j = 0; j < TILE / 8; j++) {
		const float2 l = *reinterpret_cast<const float2 *>(delta + 8 * j);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int at = 4 * j + 2 * i;

			ds[j / 2][j % 2 * 2 + i] =
				both<T>(p[at] * (dp[at] - l.x), p[at + 1] * (dp[at + 1] - l.y));
		}
	}
}

/* A warp needs the queries and dy of tile `i` no longer. */
__device__ __forceinline__ void once_release(const once_bars &bars, int i)
{
	typedef once_memory<DEPTH> M;

	__syncwarp();
	if (threadIdx.x % WARP == 0) {
		barrier_arrive(bars.q + (M::ring + i % M::ring) * 8);
		barrier_arrive(bars.dy + (M::ring + i % M::ring) * 8);
	}
}

/* Tile `i` of those of the block, whose scores are in s; then the scores of the next one if there
 * are MORE. */
template <typename T, bool MORE>
__device__ __forceinline__ void once_step(const struct tiles &t, const once_own &own,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int i, bool first,
	int column0, accumulators &s, left_operand &p, left_operand &ds, accumulators &dk,
	accumulators &dv)
{
	typedef once_memory<DEPTH> M;
	const int lane = threadIdx.x % WARP, st = i % M::ring, next = (i + 1) % M::ring,
		  turn = i % M::turns;
	const uint32_t q = matrix_low(base + M::q, 16),
		       dy = matrix_low(base + M::dy, 16) + st * (M::tile / 16);
	const float *lse = reinterpret_cast<const float *>(memory + M::lse) + st * TILE +
			   lane % 4 * 2,
		    *delta = lse + M::ring * TILE;
	accumulators dp;

	barrier_wait(bars.dy + st * 8, i / M::ring & 1);
	product_fence();
	once_gradients<T>(dp, own.v, dy);
	once_probabilities(t, s, lse, own.row0, column0);
	pack<T>(p, s);
	product_fence();
	once_add<T>(dv, p, dy);
	product_wait<1>(); /* until dp, and dk of the tile before, are done */
	results_from_here(dp);
	if (!first)
		once_release(bars, i - 1);
	once_gradient<T>(ds, s, dp, delta);
	if (MORE) {
		barrier_wait(bars.q + next * 8, (i + 1) / M::ring & 1);
		once_scores<T>(s, own.k, q + next * (M::tile / 16));
	} else {
		product_fence();
	}
	once_add<T>(dk, ds, q + st * (M::tile / 16));
	wait_empty<M::turns>(bars.ds + turn * 8, i);
	leave(base + M::ds + turn * M::ds_tile + own.mine * CHUNK_ROW, ds);
	shared_fence();
	warp_arrive(bars.ds + turn * 8);
	product_wait<MORE>(); /* until the next scores are done */
	results_from_here(s);
}

/* Writes dk and dv of a warp group's keys. */
template <typename T>
__device__ __forceinline__ void once_emit(const struct tiles &t, const keys_place &at, int row0,
	accumulators &dk, const accumulators &dv)
{
	turn_back<DEPTH>(t, dk, row0);
	emit<DEPTH>(dk, grad_of<T>(t.k, at.batch, at.group * DEPTH), t.k.row, row0, t.keys,
		t.scale);
	emit<DEPTH>(dv, grad_of<T>(t.v, at.batch, at.group * DEPTH), t.v.row, row0, t.keys, 1);
}

/* Two warp groups, each of which sums dk and dv of 64 keys, those of the block from `mine` on. */
template <typename T>
__device__ __forceinline__ void once_keys(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int mine)
{
	typedef once_memory<DEPTH> M;
	once_place at;
	int done = 0;

	for (int w = 0; once_next<DEPTH>(t, o, memory, bars, w, &at); w++) {
		const int own_at = w % M::owns * M::own + mine * CHUNK_ROW,
			  end = done + at.keys.total,
			  todo = t.causal && mine ? end - at.keys.per_group : end;
		once_own own = {
			{}, matrix_low(base + M::v + own_at, 16), mine, at.keys.row0 + mine};
		accumulators s, dk = {}, dv = {};
		left_operand p, ds;
		int i = done, h = 0, column0 = once_queries_of(at, 0) * TILE;

		if (i < todo) {
			fetch(own.k, base + M::k + own_at);
			barrier_wait(bars.q + i % M::ring * 8, i / M::ring & 1);
			once_scores<T>(s, own.k,
				matrix_low(base + M::q + i % M::ring * M::tile, 16));
			product_wait<0>();
			results_from_here(s);
		}
		for (; i < todo - 1; i++) {
			once_step<T, true>(t, own, memory, base, bars, i, i == done, column0, s, p,
				ds, dk, dv);
			if (++h == at.keys.per_group)
				h = 0, column0 -= TILE;
		}
		if (i < todo)
			once_step<T, false>(t, own, memory, base, bars, i, i == done, column0, s, p,
				ds, dk, dv);
		product_wait<0>();
		results_from_here(dk);
		results_from_here(dv);
		if (i < todo)
			once_release(bars, i++);
		for (; i < end; i++)
			once_pass<DEPTH>(bars, i);
		done = end;
		if (threadIdx.x % WARP == 0)
			barrier_arrive(bars.kv + (M::owns + w % M::owns) * 8);
		once_emit<T>(t, at.keys, own.row0, dk, dv);
	}
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename T, int D>
__global__ void __launch_bounds__(4 * GROUP, 1) once_kernel(
	const __grid_constant__ struct boxes map, const struct tiles t, const struct once o)
{
	typedef once_memory<D> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const once_bars bars = once_bars_of<D>(base + M::barriers);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0),
		  warp = threadIdx.x % GROUP / WARP;
	unsigned char *memory = raw + (base - shared_at(raw));

	if (threadIdx.x == 0)
		once_start<D>(bars);
	__syncthreads();
	if (group == 3) {
		fewer_registers<32>();
		if (threadIdx.x % WARP == 0 && warp == 0)
			once_copy<D>(t, o, map, memory, base, bars);
		else if (threadIdx.x % WARP == 0 && warp <= M::senders)
			once_send<D>(t, o, memory, base, bars, warp - 1);
	} else if (group == 2) {
		fewer_registers<64>();
		if constexpr (M::wide)
			wide_queries<T>(t, o, memory, base, bars);
		else
			once_queries<T>(t, o, memory, base, bars);
	} else {
		more_registers<208>();
		if constexpr (M::wide)
			wide_keys<T>(t, o, memory, base, bars, group * TILE);
		else
			once_keys<T>(t, o, memory, base, bars, group * TILE);
	}
}

#endif
