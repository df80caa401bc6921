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
			if (p.tile) {
				sum_start(sum, tile, once_memory<DEPTH>::dq_tile, at.first);
			} else if (at.alone) {
				barrier_arrive(got);
			} else {
				barrier_expect(got, once_memory<DEPTH>::dq_tile);
				copy_bytes(tile, sum, once_memory<DEPTH>::dq_tile, got);
			}
			seen = false;
			if (i + SENDERS < p.keys.total) {
				const last_tile next = last_tile_of(t, p, i + SENDERS);

				seen = !next.alone && count_of(o.counts + next.at) == next.before;
			}
			if (p.tile) {
				barrier_arrive(got);
				send_wait();
				copy_fence();
			} else {
				barrier_wait(full, parity);
			}
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

		if (w >= TURNS)
			barrier_wait(kv + TURNS * 8, (w / TURNS - 1) & 1);
		reinterpret_cast<int *>(memory + M::tickets)[turn] = ticket;
		if (ticket >= o.total) {
			barrier_arrive(kv);
			return;
		}
		const once_place p = once_of<true>(t, o, ticket);

		barrier_expect(kv, 2 * M::own);
		for (int r = 0; r < OWN; r += TILE) {
			const int at = turn * M::own + r * CHUNK_ROW, row = p.keys.row0 + r,
				  column = p.keys.group * DEPTH;

			copy_box(base + M::k + at, &map.k, column, row, p.keys.batch, kv);
			copy_box(base + M::v + at, &map.v, column, row, p.keys.batch, kv);
		}
		for (int i = 0; i < p.keys.total; i++, done++) {
			const int st = done % RING,
				  h = p.keys.group * p.keys.per_group + i / p.keys.count,
				  row = (p.keys.first + i % p.keys.count) * TILE;
			const uint32_t q = bars.q + st * 8, dy = bars.dy + st * 8;
			const int64_t at = (int64_t)(p.keys.batch * t.heads + h) * t.padded + row;

			if (done >= RING)
				barrier_wait(q + RING * 8, (done / RING - 1) & 1);
			barrier_expect(q, M::tile + TILE * 4);
			copy_box(base + M::q + st * M::tile, &map.q, h * DEPTH, row, p.keys.batch,
				q);
			copy_bytes(base + M::lse + st * TILE * 4, t.lse + at, TILE * 4, q);
			if (done >= RING)
				barrier_wait(dy + RING * 8, (done / RING - 1) & 1);
			barrier_expect(dy, M::tile + TILE * 4);
			copy_box(base + M::dy + st * M::tile, &map.dy, h * DEPTH, row,
				p.keys.batch, dy);
			copy_bytes(base + M::delta + st * TILE * 4, t.delta + at, TILE * 4, dy);
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

			/* each phase is waited for: a barrier tells only two apart */
			if (!p.tile && done >= SENDERS)
				barrier_wait(full + SENDERS * 8, (done / SENDERS - 1) & 1);
			if (!p.tile) {
				barrier_wait(bars.got + to * 8, done / SENDERS & 1);
				if (!at.alone)
					once_read(dq, share);
				__syncwarp();
				if (lane == 0)
					barrier_arrive(full);
			}
			barrier_wait(bars.ds + turn * 8, done / TURNS & 1);
			once_part<T, OWN>(dq, ds0 + turn * (M::ds_tile / 16), k);
			if (lane == 0)
				barrier_arrive(bars.ds + (TURNS + turn) * 8);
			if (p.tile) {
				if (done >= SENDERS)
					barrier_wait(
						full + SENDERS * 8, (done / SENDERS - 1) & 1);
				once_write(dq, share);
				__syncwarp();
				if (lane == 0)
					barrier_arrive(full);
			} else {
				turn_back<DEPTH>(t, dq, at.row0);
				emit<DEPTH>(dq, grad_of<T>(t.q, p.keys.batch, at.head * DEPTH),
					t.q.row, at.row0, t.seq, t.scale);
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
	product_first<T>(dp, matrix_of(own.v), matrix_of(dy));
#pragma unroll
	for (int j = 1; j < DEPTH / 16; j++)
		product_next<T>(dp, matrix_of(own.v + 2 * j), matrix_of(dy + 2 * j));
	product_commit();
	once_probabilities(t, s, lse, own.row0, column0);
	pack<T>(p, s);
	product_fence();
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		product_rows<T>(dv, p[j], matrix_of(dy + j * CHUNK_ROW), 1);
	product_commit();
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
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		product_rows<T>(dk, ds[j], matrix_of(q + st * (M::tile / 16) + j * CHUNK_ROW), 1);
	product_commit();
	if (i >= TURNS)
		barrier_wait(bars.ds + (TURNS + turn) * 8, (i / TURNS - 1) & 1);
	leave(base + M::ds + turn * M::ds_tile + threadIdx.x / GROUP * TILE * CHUNK_ROW, ds);
	shared_fence();
	__syncwarp();
	if (lane == 0)
		barrier_arrive(bars.ds + turn * 8);
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
		turn_back<DEPTH>(t, dk, own.row0);
		emit<DEPTH>(dk, grad_of<T>(t.k, at.keys.batch, at.keys.group * DEPTH), t.k.row,
			own.row0, t.keys, t.scale);
		emit<DEPTH>(dv, grad_of<T>(t.v, at.keys.batch, at.keys.group * DEPTH), t.v.row,
			own.row0, t.keys, 1);
	}
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename T>
__global__ void __launch_bounds__(4 * GROUP, 1) last_kernel(
	const __grid_constant__ struct boxes map, const struct tiles t, const struct once o)
{
	typedef once_memory<DEPTH> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u, q = base + M::barriers,
		       dy = q + 16 * RING, kv = dy + 16 * RING, ds = kv + 16 * TURNS,
		       dq = ds + 16 * TURNS;
	const once_bars bars = {q, dy, kv, ds, dq, dq + 16 * SENDERS};
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0),
		  warp = threadIdx.x % GROUP / WARP;
	unsigned char *memory = raw + (base - shared_at(raw));

	if (threadIdx.x == 0) {
		once_barriers(bars.q, RING, 1, 8);
		once_barriers(bars.dy, RING, 1, 8);
		once_barriers(bars.kv, TURNS, 1, 12 + SENDERS);
		once_barriers(bars.ds, TURNS, 8, 4);
		once_barriers(bars.dq, SENDERS, 4, 1);
		once_barriers(bars.got, SENDERS, 1, 1);
		barrier_publish();
	}
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
