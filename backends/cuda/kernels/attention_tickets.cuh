/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the warp groups of attention_once.cuh and attention_wide.cuh share: the keys of a ticket,
 * shared memory and its barriers, the sums of dq in global memory, and the threads that copy.
 */
#ifndef JM_CUDA_ATTENTION_TICKETS_CUH
#define JM_CUDA_ATTENTION_TICKETS_CUH

#include "attention_keys.cuh"

#define OWN  (2 * TILE) /* keys of a block */
#define PART 64		/* columns of a part of dq */

/* What blocks share. */
struct once {
	float *sums; /* [slots, heads of a group, tiles of queries, parts, TILE, PART], as threads
			hold them */
	int *counts; /* [slots, heads of a group, tiles of queries], 0 at first */
	int *ticket; /* 0 at first */
	int slots, side, total; /* side: groups of heads whose tickets alternate; total: tickets */
};

/* Keys of a ticket. tile: which 128 of the head's, last: the last; slot, generation: of the sums */
struct once_place {
	keys_place keys;
	int tiles, slot, generation, tile, last;
};

/* Tickets of a band of heads begin with their first keys, or with their LAST. */
template <bool LAST = false>
__device__ __forceinline__ once_place once_of(
	const struct tiles &t, const struct once &o, int ticket)
{
	const int n = (t.keys + OWN - 1) / OWN, all = t.groups * t.batch;
	const int band = ticket / (o.side * n), in = ticket % (o.side * n);
	const int width = min(o.side, all - band * o.side), head = band * o.side + in % width;
	once_place p;

	p.tile = LAST ? n - 1 - in / width : in / width;
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

/* The tile of queries of the i-th tile of a ticket. */
__device__ __forceinline__ int once_queries_of(const once_place &p, int i)
{
	return p.tiles - 1 - i / p.keys.per_group;
}

/* A tile of dq: its index in what blocks share, its head and first query, the count to wait for.
 * first, last: whether these keys' part is the first, or the last; half: none of its queries sees
 * the second half of the keys, which is left out. */
struct once_tile {
	int at, head, row0, before;
	bool first, last, half;
};

/* Tile `i` of those of a ticket. */
__device__ __forceinline__ once_tile once_tile_of(
	const struct tiles &t, const once_place &p, int i)
{
	const int h = i % p.keys.per_group, m = once_queries_of(p, i);
	const int top = t.causal ? min(p.last, m / (OWN / TILE)) : p.last;

	return {(p.slot * p.keys.per_group + h) * p.tiles + m, p.keys.group * p.keys.per_group + h,
		m * TILE, p.generation * (top + 1) + p.tile, p.tile == 0, p.tile == top,
		t.causal && m == p.keys.first};
}

/* Shared memory: how many keys and values (owns), tiles of queries and of dy (ring), tiles of ds
 * (turns) and of dq (senders, with a thread each) it has, and offsets. */
template <int D> struct once_memory {
	static constexpr bool wide = D > 64;
	static constexpr int owns = wide ? 1 : 2, ring = wide ? 2 : 4, turns = 2,
			     senders = wide ? 2 : 3;
	static constexpr int own = OWN * D * 2, tile = TILE * D * 2, ds_tile = OWN * TILE * 2,
			     dq_tile = TILE * D * 4;
	static constexpr int k = 0, v = owns * own, q = 2 * owns * own, dy = q + ring * tile,
			     ds = dy + ring * tile, dq = ds + turns * ds_tile;
	static constexpr int lse = dq + senders * dq_tile, delta = lse + ring * TILE * 4,
			     barriers = delta + ring * TILE * 4,
			     tickets = barriers + 16 * (2 * ring + owns + turns + 2 * senders);
	static constexpr int bytes = tickets + owns * 4 + 1024;
};

/* Barriers of each stage or turn: the full ones, then the empty ones. got: a sum was read. */
struct once_bars {
	uint32_t q, dy, kv, ds, dq, got;
};

/* The barriers that lie in shared memory from `at` on. */
template <int D> __device__ __forceinline__ once_bars once_bars_of(uint32_t at)
{
	typedef once_memory<D> M;
	const uint32_t q = at, dy = q + 16 * M::ring, kv = dy + 16 * M::ring,
		       ds = kv + 16 * M::owns, dq = ds + 16 * M::turns;

	return {q, dy, kv, ds, dq, dq + 16 * M::senders};
}

/* `n` full barriers, each of `full` arrivals, and then the empty ones. */
__device__ __forceinline__ void once_barriers(uint32_t at, int n, int full, int empty)
{
	for (int i = 0; i < n; i++) {
		barrier_init(at + i * 8, full);
		barrier_init(at + (n + i) * 8, empty);
	}
}

/* Makes them. Who arrives: threads that copy or send, 8 warps of keys, 4 warps of queries. */
template <int D> __device__ __forceinline__ void once_start(const once_bars &bars)
{
	typedef once_memory<D> M;

	once_barriers(bars.q, M::ring, 1, 8);
	once_barriers(bars.dy, M::ring, 1, 8);
	once_barriers(bars.kv, M::owns, 1, 12 + M::senders);
	once_barriers(bars.ds, M::turns, 8, 4);
	once_barriers(bars.dq, M::senders, 4, 1);
	once_barriers(bars.got, M::senders, 1, 1);
	barrier_publish();
}

/* Waits until turn i of N is empty; full: the full barrier of that turn. */
template <int N> __device__ __forceinline__ void wait_empty(uint32_t full, int i)
{
	if (i >= N)
		barrier_wait(full + N * 8, (i / N - 1) & 1);
}

/* All lanes of a warp have come here, and one arrives for them. */
__device__ __forceinline__ void warp_arrive(uint32_t bar)
{
	__syncwarp();
	if (threadIdx.x % WARP == 0)
		barrier_arrive(bar);
}

/* ---- counts and sums ------------------------------------------------------------------------- */

__device__ __forceinline__ int count_of(const int *count)
{
	int is;

	asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is) : "l"(count) : "memory");
	return is;
}

/* For loops that wait: what is read after it may be older than the count, until count_of. */
__device__ __forceinline__ int count_near(const int *count)
{
	int is;

	asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(is) : "l"(count) : "memory");
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

/* Ends it: the tile in shared memory may be written, what was summed be read by other blocks. */
__device__ __forceinline__ void sum_finish(uint32_t got)
{
	barrier_arrive(got);
	send_wait();
	copy_fence();
}

/* Brings the sum of a tile of dq to shared memory, unless its part is alone. */
__device__ __forceinline__ void sum_bring(
	uint32_t to, const float *from, int bytes, bool alone, uint32_t got)
{
	if (alone) {
		barrier_arrive(got);
	} else {
		barrier_expect(got, bytes);
		copy_bytes(to, from, bytes, got);
	}
}

/* The next keys of a block: false if there are none. */
template <int D, bool LAST = false>
__device__ __forceinline__ bool once_next(const struct tiles &t, const struct once &o,
	const unsigned char *memory, const once_bars &bars, int w, once_place *ret)
{
	typedef once_memory<D> M;

	barrier_wait(bars.kv + w % M::owns * 8, w / M::owns & 1);

	const int ticket =
		reinterpret_cast<const volatile int *>(memory + M::tickets)[w % M::owns];

	if (ticket < o.total)
		*ret = once_of<LAST>(t, o, ticket);
	return ticket < o.total;
}

/* A thread that sends every senders-th tile of dq. Where the part is the last it brings the sum. */
template <int D>
__device__ __forceinline__ void once_send(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int turn)
{
	typedef once_memory<D> M;
	const uint32_t full = bars.dq + turn * 8, got = bars.got + turn * 8,
		       tile = base + M::dq + turn * M::dq_tile;
	once_place p;
	int done = 0;

	for (int w = 0; once_next<D>(t, o, memory, bars, w, &p); w++) {
		bool seen = false;

		barrier_arrive(bars.kv + (M::owns + w % M::owns) * 8);
		for (int i = (turn + M::senders - done % M::senders) % M::senders; i < p.keys.total;
			i += M::senders) {
			const once_tile at = once_tile_of(t, p, i);
			float *sum = o.sums + (int64_t)at.at * TILE * D;
			const int parity = (done + i) / M::senders & 1;
			const bool alone = at.first && at.last;

			if (!at.last)
				barrier_wait(full, parity);
			if (!seen && !alone) {
				while (count_near(o.counts + at.at) != at.before)
					;
				count_of(o.counts + at.at);
			}
			copy_fence();
			if (!at.last)
				sum_start(sum, tile, M::dq_tile, at.first);
			else
				sum_bring(tile, sum, M::dq_tile, alone, got);
			seen = false;
			if (i + M::senders < p.keys.total) {
				const once_tile next = once_tile_of(t, p, i + M::senders);

				seen = count_of(o.counts + next.at) == next.before;
			}
			if (!at.last)
				sum_finish(got);
			else
				barrier_wait(full, parity);
			if (!alone)
				count_add(o.counts + at.at);
			barrier_arrive(full + M::senders * 8);
		}
		done += p.keys.total;
	}
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies a tile of queries and of dy of head `h` from `row` on, the n-th of the block. */
template <int D>
__device__ __forceinline__ void once_copy_rows(const struct tiles &t, const struct boxes &map,
	uint32_t base, const once_bars &bars, int batch, int h, int row, int n)
{
	typedef once_memory<D> M;
	const int st = n % M::ring;
	const uint32_t q = bars.q + st * 8, dy = bars.dy + st * 8;
	const int64_t at = (int64_t)(batch * t.heads + h) * t.padded + row;

	wait_empty<M::ring>(q, n);
	barrier_expect(q, M::tile + TILE * 4);
	copy_tile<D>(base + M::q + st * M::tile, TILE, &map.q, h * D, row, batch, q);
	copy_bytes(base + M::lse + st * TILE * 4, t.lse + at, TILE * 4, q);
	wait_empty<M::ring>(dy, n);
	barrier_expect(dy, M::tile + TILE * 4);
	copy_tile<D>(base + M::dy + st * M::tile, TILE, &map.dy, h * D, row, batch, dy);
	copy_bytes(base + M::delta + st * TILE * 4, t.delta + at, TILE * 4, dy);
}

/* The same of tile `i` of those of a ticket. */
template <int D>
__device__ __forceinline__ void once_copy_tile(const struct tiles &t, const once_place &p,
	const struct boxes &map, uint32_t base, const once_bars &bars, int i, int n)
{
	const int h = p.keys.group * p.keys.per_group + i % p.keys.per_group,
		  row = once_queries_of(p, i) * TILE;

	once_copy_rows<D>(t, map, base, bars, p.keys.batch, h, row, n);
}

/* Copies the keys and values of a ticket. */
template <int D>
__device__ __forceinline__ void once_copy_keys(
	const once_place &p, const struct boxes &map, uint32_t to, uint32_t kv)
{
	typedef once_memory<D> M;

	barrier_expect(kv, 2 * M::own);
	for (int r = 0; r < OWN; r += TILE) {
		const uint32_t at = to + r * CHUNK_ROW;

		copy_tile<D>(at + M::k, OWN, &map.k, p.keys.group * D, p.keys.row0 + r,
			p.keys.batch, kv);
		copy_tile<D>(at + M::v, OWN, &map.v, p.keys.group * D, p.keys.row0 + r,
			p.keys.batch, kv);
	}
}

/* The thread that copies takes tickets until there are none. */
template <int D>
__device__ __forceinline__ void once_copy(const struct tiles &t, const struct once &o,
	const struct boxes &map, unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory<D> M;
	constexpr int early = M::owns == 1; /* tiles before their keys, whose place is in use */
	int done = 0;

	for (int w = 0;; w++) {
		const int turn = w % M::owns, ticket = atomicAdd(o.ticket, 1);
		const uint32_t kv = bars.kv + turn * 8;
		const bool more = ticket < o.total;
		const once_place p = once_of(t, o, more ? ticket : 0);

		if (early && more)
			once_copy_tile<D>(t, p, map, base, bars, 0, done);
		wait_empty<M::owns>(kv, w);
		reinterpret_cast<int *>(memory + M::tickets)[turn] = ticket;
		if (!more) {
			barrier_arrive(kv);
			return;
		}
		once_copy_keys<D>(p, map, base + turn * M::own, kv);
		for (int i = early; i < p.keys.total; i++)
			once_copy_tile<D>(t, p, map, base, bars, i, done + i);
		done += p.keys.total;
	}
}

/* ---- a warp group that multiplies ------------------------------------------------------------ */

/* The address of this lane's 16 bytes of columns 16 j to 16 j + 15 of the 64 rows of a warp group,
 * for ldmatrix and stmatrix. */
__device__ __forceinline__ uint32_t fragment_at(uint32_t at, int j)
{
	const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP % 4 * 16 + lane % 16;

	return (at + row * CHUNK_ROW + ((lane / 16) ^ (row % 8)) * 16) ^ (j * 32);
}

/* dq += ds k, the rows of ds are keys; both in shared memory (matrix_low). */
template <typename T, int KEYS>
__device__ __forceinline__ void once_part(accumulators &dq, uint32_t ds, uint32_t k)
{
	product_fence();
#pragma unroll
	for (int j = 0; j < KEYS / 16; j++)
		product_columns<T>(dq, matrix_of(ds + j * CHUNK_ROW), matrix_of(k + j * CHUNK_ROW));
	product_commit();
	product_wait<0>();
	results_from_here(dq);
}

/* A part of dq as threads hold it; a thread's packs are GROUP apart. */
__device__ __forceinline__ void once_write(const accumulators &dq, float4 *share)
{
#pragma unroll
	for (int j = 0; j < PART / 8; j++)
		share[j * GROUP] =
			make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
	shared_fence();
}

/* Leaves tile `i` out: none of its queries sees the keys of this warp group. */
template <int D> __device__ __forceinline__ void once_pass(const once_bars &bars, int i)
{
	typedef once_memory<D> M;
	const uint32_t q = bars.q + i % M::ring * 8, dy = bars.dy + i % M::ring * 8,
		       ds = bars.ds + i % M::turns * 8;

	barrier_wait(q, i / M::ring & 1);
	barrier_wait(dy, i / M::ring & 1);
	wait_empty<M::turns>(ds, i);
	if (threadIdx.x % WARP == 0) {
		barrier_arrive(q + M::ring * 8);
		barrier_arrive(dy + M::ring * 8);
		barrier_arrive(ds);
	}
}

#endif
