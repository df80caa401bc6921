/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of attention_once.cuh for heads of 64 with last keys and first queries first: no block
 * of a causal head waits at its start, but the longest tickets come last. One kernel with both
 * orders was 3 to 6 % slower in this one, which attention_tiles.cu takes where no ticket is long.
 */
#ifndef JM_CUDA_ATTENTION_LAST_CUH
#define JM_CUDA_ATTENTION_LAST_CUH

#include "attention_once.cuh"

#define RING	once_memory<DEPTH>::ring
#define TURNS	once_memory<DEPTH>::turns /* also of keys */
#define SENDERS once_memory<DEPTH>::senders

static_assert(TURNS == once_memory<DEPTH>::owns, "keys take turns as tiles of ds do");

/* A tile of dq: its index in what blocks share, its head and first query, the count to wait for;
 * alone: there is only one part. */
struct last_tile {
	int at, head, row0, before;
	bool first, alone;
};

__device__ __forceinline__ last_tile last_tile_of(
	const struct tiles &t, const once_place &p, int i)
{
	const int h = i / p.keys.count, m = p.keys.first + i % p.keys.count;
	const int top = t.causal ? min(p.last, m / (OWN / TILE)) : p.last;

	return {(p.slot * p.keys.per_group + h) * p.tiles + m, p.keys.group * p.keys.per_group + h,
		m * TILE, p.generation * (top + 1) + top - p.tile, p.tile == top, top == 0};
}

/* A thread that sends every SENDERS-th tile of dq. Of the first keys' tiles it brings the sum. */
__device__ __forceinline__ void last_send(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int turn)
{
	const uint32_t full = bars.dq + turn * 8, got = bars.got + turn * 8,
		       tile = base + once_memory<DEPTH>::dq + turn * once_memory<DEPTH>::dq_tile;
	once_place p;
	int done = 0;

	for (int w = 0; once_next<DEPTH, true>(t, o, memory, bars, w, &p); w++) {
		bool seen = false;

		barrier_arrive(bars.kv + (TURNS + w % TURNS) * 8);
		for (int i = (turn + SENDERS - done % SENDERS) % SENDERS; i < p.keys.total;
			i += SENDERS) {
			const last_tile at = last_tile_of(t, p, i);
			float *sum = o.sums + (int64_t)at.at * TILE * DEPTH;
			const int parity = (done + i) / SENDERS & 1;

			if (p.tile)
				barrier_wait(full, parity);
			while (!seen && !at.alone && count_of(o.counts + at.at) != at.before)
				;
			copy_fence();
			if (p.tile)
				sum_start(sum, tile, once_memory<DEPTH>::dq_tile, at.first);
			else
				sum_bring(tile, sum, once_memory<DEPTH>::dq_tile, at.alone, got);
			seen = false;
			if (i + SENDERS < p.keys.total) {
				const last_tile next = last_tile_of(t, p, i + SENDERS);

				seen = !next.alone && count_of(o.counts + next.at) == next.before;
			}
			if (p.tile)
				sum_finish(got);
			else
				barrier_wait(full, parity);
			if (!at.alone)
				count_add(o.counts + at.at);
			barrier_arrive(full + SENDERS * 8);
		}
		done += p.keys.total;
	}
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The thread that copies takes tickets until there are none. */
__device__ __forceinline__ void last_copy(const struct tiles &t, const struct once &o,
	const struct boxes &map, unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory<DEPTH> M;
	int done = 0;

	for (int w = 0;; w++) {
		const int turn = w % TURNS, ticket = atomicAdd(o.ticket, 1);
		const uint32_t kv = bars.kv + turn * 8;

		wait_empty<TURNS>(kv, w);
		reinterpret_cast<int *>(memory + M::tickets)[turn] = ticket;
		if (ticket >= o.total) {
			barrier_arrive(kv);
			return;
		}
		const once_place p = once_of<true>(t, o, ticket);

		once_copy_keys<DEPTH>(p, map, base + turn * M::own, kv);
		for (int i = 0; i < p.keys.total; i++, done++) {
			const int h = p.keys.group * p.keys.per_group + i / p.keys.count,
				  row = (p.keys.first + i % p.keys.count) * TILE;

			once_copy_rows<DEPTH>(t, map, base, bars, p.keys.batch, h, row, done);
		}
	}
}

/* ---- dq -------------------------------------------------------------------------------------- */

/* The warp group that computes dq. */
template <typename T>
__device__ __forceinline__ void last_queries(const struct tiles &t, const struct once &o,
	unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory<DEPTH> M;
	const int lane = threadIdx.x % WARP;
	const uint32_t k0 = matrix_low(base + M::k, 16), ds0 = matrix_low(base + M::ds, 16);
	once_place p;
	int done = 0;

	for (int w = 0; once_next<DEPTH, true>(t, o, memory, bars, w, &p); w++) {
		const uint32_t k = k0 + w % TURNS * (M::own / 16);

		for (int i = 0; i < p.keys.total; i++, done++) {
			const int turn = done % TURNS, to = done % SENDERS;
			const uint32_t full = bars.dq + to * 8;
			const last_tile at = last_tile_of(t, p, i);
			float4 *share =
				reinterpret_cast<float4 *>(memory + M::dq + to * M::dq_tile) +
				threadIdx.x % GROUP;
			accumulators dq = {};

			/* each phase is waited for: a barrier tells only two apart. With one `if`
			 * the compiler makes other code of this loop. */
			if (!p.tile)
				wait_empty<SENDERS>(full, done);
			if (!p.tile) {
				barrier_wait(bars.got + to * 8, done / SENDERS & 1);
				once_take(dq, share, at.alone, full);
			}
			barrier_wait(bars.ds + turn * 8, done / TURNS & 1);
			once_part<T, OWN>(dq, ds0 + turn * (M::ds_tile / 16), k);
			if (lane == 0)
				barrier_arrive(bars.ds + (TURNS + turn) * 8);
			if (p.tile) {
				wait_empty<SENDERS>(full, done);
				once_write(dq, share);
				warp_arrive(full);
			} else {
				once_emit_queries<T>(t, p.keys.batch, at.head, at.row0, dq);
			}
		}
		if (lane == 0)
			barrier_arrive(bars.kv + (TURNS + w % TURNS) * 8);
	}
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

/* Tile `i` of those of the block, whose scores are in s; then the scores of tile `next`. */
template <typename T>
__device__ __forceinline__ void last_step(const struct tiles &t, const once_own &own,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int i, int next,
	bool first, int column0, accumulators &s, left_operand &p, left_operand &ds,
	accumulators &dk, accumulators &dv)
{
	typedef once_memory<DEPTH> M;
	const int lane = threadIdx.x % WARP, st = i % RING, before = (i + RING - 1) % RING,
		  turn = i % TURNS;
	const uint32_t q = matrix_low(base + M::q, 16),
		       dy = matrix_low(base + M::dy, 16) + st * (M::tile / 16);
	const float *lse = reinterpret_cast<const float *>(memory + M::lse) + st * TILE +
			   lane % 4 * 2,
		    *delta = lse + RING * TILE;
	accumulators dp;

	barrier_wait(bars.dy + st * 8, i / RING & 1);
	product_fence();
	once_gradients<T>(dp, own.v, dy);
	once_probabilities(t, s, lse, own.row0, column0);
	pack<T>(p, s);
	product_fence();
	once_add<T>(dv, p, dy);
	product_wait<1>(); /* until dp, and dk of the tile before, are done */
	results_from_here(dp);
	__syncwarp();
	if (lane == 0 && !first) {
		barrier_arrive(bars.q + (RING + before) * 8);
		barrier_arrive(bars.dy + (RING + before) * 8);
	}
	once_gradient<T>(ds, s, dp, delta);
	barrier_wait(bars.q + next % RING * 8, next / RING & 1);
	once_scores<T>(s, own.k, q + next % RING * (M::tile / 16));
	once_add<T>(dk, ds, q + st * (M::tile / 16));
	wait_empty<TURNS>(bars.ds + turn * 8, i);
	leave(base + M::ds + turn * M::ds_tile + threadIdx.x / GROUP * TILE * CHUNK_ROW, ds);
	shared_fence();
	warp_arrive(bars.ds + turn * 8);
	product_wait<1>(); /* until the next scores are done */
	results_from_here(s);
}

/* Two warp groups, each of which sums dk and dv of 64 keys. */
template <typename T>
__device__ __forceinline__ void last_keys(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory<DEPTH> M;
	const int mine = threadIdx.x / GROUP * TILE;
	once_place at;
	int done = 0;

	for (int w = 0; once_next<DEPTH, true>(t, o, memory, bars, w, &at); w++) {
		const int own_at = w % TURNS * M::own + mine * CHUNK_ROW;
		once_own own;
		accumulators s, dk = {}, dv = {};
		left_operand p, ds;
		int m = 0;

		own.v = matrix_low(base + M::v + own_at, 16);
		own.row0 = at.keys.row0 + mine;
		fetch(own.k, base + M::k + own_at);
		barrier_wait(bars.q + done % RING * 8, done / RING & 1);
		once_scores<T>(
			s, own.k, matrix_low(base + M::q, 16) + done % RING * (M::tile / 16));
		product_wait<0>();
		results_from_here(s);
		for (int i = 0; i < at.keys.total; i++) {
			last_step<T>(t, own, memory, base, bars, done + i,
				done + min(i + 1, at.keys.total - 1), i == 0,
				(at.keys.first + m) * TILE, s, p, ds, dk, dv);
			m = m + 1 == at.keys.count ? 0 : m + 1;
		}
		product_wait<0>();
		results_from_here(dk);
		results_from_here(dv);
		done += at.keys.total;
		__syncwarp();
		if (threadIdx.x % WARP == 0) {
			barrier_arrive(bars.q + (RING + (done - 1) % RING) * 8);
			barrier_arrive(bars.dy + (RING + (done - 1) % RING) * 8);
			barrier_arrive(bars.kv + (TURNS + w % TURNS) * 8);
		}
		once_emit<T>(t, at.keys, own.row0, dk, dv);
	}
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename T>
__global__ void __launch_bounds__(4 * GROUP, 1) last_kernel(
	const __grid_constant__ struct boxes map, const struct tiles t, const struct once o)
{
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const once_bars bars = once_bars_of<DEPTH>(base + once_memory<DEPTH>::barriers);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0),
		  warp = threadIdx.x % GROUP / WARP;
	unsigned char *memory = raw + (base - shared_at(raw));

	if (threadIdx.x == 0)
		once_start<DEPTH>(bars);
	__syncthreads();
	if (group == 3) {
		fewer_registers<32>();
		if (threadIdx.x % WARP == 0 && warp == 0)
			last_copy(t, o, map, memory, base, bars);
		else if (threadIdx.x % WARP == 0 && warp <= SENDERS)
			last_send(t, o, memory, base, bars, warp - 1);
	} else if (group == 2) {
		fewer_registers<64>();
		last_queries<T>(t, o, memory, base, bars);
	} else {
		more_registers<208>();
		last_keys<T>(t, o, memory, base, bars);
	}
}

#endif
