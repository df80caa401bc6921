/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of attention_tiles.cu that computes scores once, for heads of 64: dq, dk and dv.
 *
 * A block takes 128 keys of a head after another, by tickets, and walks over tiles of 64 queries.
 * Two warp groups own 64 keys each and sum dk and dv as in attention_keys.cuh; they leave ds in
 * shared memory, from where a third computes the part of dq that is due to these keys. Parts are
 * added in global memory, in f32, and always in the same order: a tile of dq counts what was added,
 * and a block adds its part when the count is that of the blocks before it, which are those of
 * later keys. The block of the first keys reads the sum, adds its own part and writes dq.
 *
 * A part needs only those of blocks with smaller tickets, which are running or done, so no block
 * waits forever. Sums lie in slots, as many as heads that may be under way; a slot's counts go on
 * where the head before ended.
 */
#ifndef JM_CUDA_ATTENTION_ONCE_CUH
#define JM_CUDA_ATTENTION_ONCE_CUH

#include "attention_keys.cuh"

#define DEPTH	64
#define OWN	(2 * TILE) /* keys of a block */
#define RING	4	   /* tiles of queries, and of dy, in shared memory */
#define TURNS	2	   /* keys, and tiles of ds, in shared memory */
#define SENDERS 3	   /* tiles of dq in shared memory, with a thread each */

/* What blocks share. */
struct once {
	float *sums; /* [slots, heads of a group, tiles of queries, TILE, DEPTH], as threads hold
			them */
	int *counts; /* [slots, heads of a group, tiles of queries], 0 at first */
	int *ticket; /* 0 at first */
	int slots, side, total; /* side: groups of heads whose tickets alternate; total: tickets */
};

/* Keys of a ticket. tile: their number, last: that of the last ones. */
struct once_place {
	keys_place keys;
	int tiles, slot, generation, tile, last;
};

/* Tickets of a band of heads begin with their last keys. */
__device__ __forceinline__ once_place once_of(
	const struct tiles &t, const struct once &o, int ticket)
{
	const int n = (t.keys + OWN - 1) / OWN, all = t.groups * t.batch;
	const int band = ticket / (o.side * n), in = ticket % (o.side * n);
	const int width = min(o.side, all - band * o.side), head = band * o.side + in % width;
	once_place p;

	p.tile = n - 1 - in / width;
	p.last = n - 1;
	p.keys.batch = head / t.groups;
	p.keys.group = head % t.groups;
	p.keys.row0 = p.tile * OWN;
	p.keys.per_group = t.heads / t.groups;
	p.tiles = (t.seq + TILE - 1) / TILE;
	p.keys.first = t.causal ? p.keys.row0 / TILE : 0;
	p.keys.count = p.tiles - p.keys.first;
	p.keys.total = p.keys.count * p.keys.per_group;
	p.slot = head % o.slots;
	p.generation = head / o.slots;
	return p;
}

/* A tile of dq: its index in what blocks share, its head and first query, the count to wait for;
 * alone: there is only one part. */
struct once_tile {
	int at, head, row0, before;
	bool first, alone;
};

__device__ __forceinline__ once_tile once_tile_of(
	const struct tiles &t, const once_place &p, int i)
{
	const int h = i / p.keys.count, m = p.keys.first + i % p.keys.count;
	const int top = t.causal ? min(p.last, m / (OWN / TILE)) : p.last;

	return {(p.slot * p.keys.per_group + h) * p.tiles + m, p.keys.group * p.keys.per_group + h,
		m * TILE, p.generation * (top + 1) + top - p.tile, p.tile == top, top == 0};
}

/* Offsets in shared memory. */
struct once_memory {
	static constexpr int own = OWN * DEPTH * 2, tile = TILE * DEPTH * 2,
			     ds_tile = OWN * TILE * 2, dq_tile = TILE * DEPTH * 4;
	static constexpr int k = 0, v = TURNS * own, q = 2 * TURNS * own, dy = q + RING * tile,
			     ds = dy + RING * tile, dq = ds + TURNS * ds_tile;
	static constexpr int lse = dq + SENDERS * dq_tile, delta = lse + RING * TILE * 4,
			     barriers = delta + RING * TILE * 4,
			     tickets = barriers + 32 * (RING + TURNS + SENDERS);
	static constexpr int bytes = tickets + TURNS * 4 + 1024;
};

/* Barriers of each stage or turn: the full ones, then the empty ones. got: a sum was read. */
struct once_bars {
	uint32_t q, dy, kv, ds, dq, got;
};

/* ---- counts and sums ------------------------------------------------------------------------- */

__device__ __forceinline__ int count_of(const int *count)
{
	int is;

	asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is) : "l"(count) : "memory");
	return is;
}

__device__ __forceinline__ void count_add(int *count)
{
	asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}

/* Writes a tile of dq from shared memory, or adds it. */
__device__ __forceinline__ void sum_start(float *to, uint32_t from, int bytes, bool first)
{
	if (first)
		send_bytes(to, from, bytes);
	else
		add_bytes(to, from, bytes);
	send_commit();
}

/* The next keys of a block: false if there are none. */
__device__ __forceinline__ bool once_next(const struct tiles &t, const struct once &o,
	const unsigned char *memory, const once_bars &bars, int w, once_place *ret)
{
	barrier_wait(bars.kv + w % TURNS * 8, w / TURNS & 1);

	const int ticket = reinterpret_cast<const volatile int *>(
		memory + once_memory::tickets)[w % TURNS];

	if (ticket < o.total)
		*ret = once_of(t, o, ticket);
	return ticket < o.total;
}

/* A thread that sends every SENDERS-th tile of dq. Of the first keys' tiles it brings the sum. */
__device__ __forceinline__ void once_send(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int turn)
{
	const uint32_t full = bars.dq + turn * 8, got = bars.got + turn * 8,
		       tile = base + once_memory::dq + turn * once_memory::dq_tile;
	once_place p;
	int done = 0;

	for (int w = 0; once_next(t, o, memory, bars, w, &p); w++) {
		bool seen = false;

		barrier_arrive(bars.kv + (TURNS + w % TURNS) * 8);
		for (int i = (turn + SENDERS - done % SENDERS) % SENDERS; i < p.keys.total;
			i += SENDERS) {
			const once_tile at = once_tile_of(t, p, i);
			float *sum = o.sums + (int64_t)at.at * TILE * DEPTH;
			const int parity = (done + i) / SENDERS & 1;

			if (p.tile)
				barrier_wait(full, parity);
			while (!seen && !at.alone && count_of(o.counts + at.at) != at.before)
				;
			copy_fence();
			if (p.tile) {
				sum_start(sum, tile, once_memory::dq_tile, at.first);
			} else if (at.alone) {
				barrier_arrive(got);
			} else {
				barrier_expect(got, once_memory::dq_tile);
				copy_bytes(tile, sum, once_memory::dq_tile, got);
			}
			seen = false;
			if (i + SENDERS < p.keys.total) {
				const once_tile next = once_tile_of(t, p, i + SENDERS);

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
__device__ __forceinline__ void once_copy(const struct tiles &t, const struct once &o,
	const struct boxes &map, unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory M;
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
		const once_place p = once_of(t, o, ticket);

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

/* dq += ds k, the rows of ds are keys; both in shared memory (matrix_low). */
template <typename T>
__device__ __forceinline__ void once_part(accumulators &dq, uint32_t ds, uint32_t k)
{
	product_fence();
#pragma unroll
	for (int j = 0; j < OWN / 16; j++)
		product_columns<T>(dq, matrix_of(ds + j * CHUNK_ROW), matrix_of(k + j * CHUNK_ROW));
	product_commit();
	product_wait<0>();
	results_from_here(dq);
}

/* The sums of a tile as threads hold them; a thread's packs are GROUP apart. */
__device__ __forceinline__ void once_read(accumulators &dq, const float4 *share)
{
#pragma unroll
	for (int j = 0; j < DEPTH / 8; j++) {
		const float4 x = share[j * GROUP];

		dq[4 * j] = x.x, dq[4 * j + 1] = x.y;
		dq[4 * j + 2] = x.z, dq[4 * j + 3] = x.w;
	}
}

__device__ __forceinline__ void once_write(const accumulators &dq, float4 *share)
{
#pragma unroll
	for (int j = 0; j < DEPTH / 8; j++)
		share[j * GROUP] =
			make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
	shared_fence();
}

/* The warp group that computes dq. */
template <typename T>
__device__ __forceinline__ void once_queries(const struct tiles &t, const struct once &o,
	unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory M;
	const int lane = threadIdx.x % WARP;
	const uint32_t k0 = matrix_low(base + M::k, 16), ds0 = matrix_low(base + M::ds, 16);
	once_place p;
	int done = 0;

	for (int w = 0; once_next(t, o, memory, bars, w, &p); w++) {
		const uint32_t k = k0 + w % TURNS * (M::own / 16);

		for (int i = 0; i < p.keys.total; i++, done++) {
			const int turn = done % TURNS, to = done % SENDERS;
			const uint32_t full = bars.dq + to * 8;
			const once_tile at = once_tile_of(t, p, i);
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
			once_part<T>(dq, ds0 + turn * (M::ds_tile / 16), k);
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

/* The address of this lane's 16 bytes of columns 16 j to 16 j + 15 of the 64 rows of a warp group,
 * for ldmatrix and stmatrix. */
__device__ __forceinline__ uint32_t fragment_at(uint32_t at, int j)
{
	const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP % 4 * 16 + lane % 16;

	return at + row * CHUNK_ROW + (((2 * j + lane / 16) ^ (row % 8)) * 16);
}

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
	int row0;
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

/* Tile `i` of those of the block, whose scores are in s; then the scores of tile `next`. */
template <typename T>
__device__ __forceinline__ void once_step(const struct tiles &t, const once_own &own,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int i, int next,
	bool first, int column0, accumulators &s, left_operand &p, left_operand &ds,
	accumulators &dk, accumulators &dv)
{
	typedef once_memory M;
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
__device__ __forceinline__ void once_keys(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory M;
	const int mine = threadIdx.x / GROUP * TILE;
	once_place at;
	int done = 0;

	for (int w = 0; once_next(t, o, memory, bars, w, &at); w++) {
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
			once_step<T>(t, own, memory, base, bars, done + i,
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

/* Full and empty barriers of `n` turns. */
__device__ __forceinline__ void once_barriers(uint32_t at, int n, int full, int empty)
{
	for (int i = 0; i < n; i++) {
		barrier_init(at + i * 8, full);
		barrier_init(at + (n + i) * 8, empty);
	}
}

template <typename T>
__global__ void __launch_bounds__(4 * GROUP, 1) once_kernel(
	const __grid_constant__ struct boxes map, const struct tiles t, const struct once o)
{
	typedef once_memory M;
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
			once_copy(t, o, map, memory, base, bars);
		else if (threadIdx.x % WARP == 0 && warp <= SENDERS)
			once_send(t, o, memory, base, bars, warp - 1);
	} else if (group == 2) {
		fewer_registers<64>();
		once_queries<T>(t, o, memory, base, bars);
	} else {
		more_registers<208>();
		once_keys<T>(t, o, memory, base, bars);
	}
}

#endif
