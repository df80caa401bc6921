/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attention_forward.cu has in shared memory, the items that a block takes, and the thread that
 * copies their queries, keys and values.
 */
#ifndef JM_CUDA_ATTENTION_FORWARD_CUH
#define JM_CUDA_ATTENTION_FORWARD_CUH

#include "tiles.cuh"

#define KEYS  128  /* of a tile */
#define TURNS 2	   /* items whose queries are in shared memory */
#define NOTES 4	   /* of items in shared memory */
#define FLAGS 32   /* words with a bit for an item to do again; more items share them */

/* Of q, k and v, as cuda_attention_forward has them. */
struct maps {
	CUtensorMap q, k, v;
};

struct forward {
	int batch, seq, keys, heads, groups;
	int blocks, items; /* items of a head, and of all */
	float scale;
	bool causal;
	void *y;
	float *lse;
};

/* ---- shared memory --------------------------------------------------------------------------- */

template <int WIDTH> struct shape {
	static constexpr int D = WIDTH;
	static constexpr int owners = D == 64 ? 3 : 2; /* warp groups that multiply */
	static constexpr int stages = D == 64 ? 4 : 2; /* tiles of keys, and of values */
	static constexpr int rows = owners * TILE, row_tile = TILE * D * 2, own = rows * D * 2,
			     tile = KEYS * D * 2;
	static constexpr bool ones = D == 64;
	static constexpr int floats = D / 2 + (ones ? 4 : 0); /* sums of a thread */
	/* offsets */
	static constexpr int q = 0, k = TURNS * own, v = k + stages * tile, one = v + stages * tile,
			     full = one + (ones ? 16 * CHUNK_ROW : 0),
			     notes = full + 32 * stages + 16 * TURNS, flags = notes + 16 * NOTES;
	static constexpr int bytes = flags + 4 * FLAGS + 1024;
	/* registers of a thread that copies, and of others */
	static constexpr int few = owners == 3 ? 32 : 40, many = owners == 3 ? 160 : 232;
};

/* What a thread has of the block. */
template <class S> struct block {
	const forward &f;
	uint32_t base;	 /* of shared memory */
	unsigned *flags; /* there */

	/* Barriers of a stage: of keys, values (part 1), then of queries (part 2). */
	__device__ __forceinline__ uint32_t full(int part, unsigned i) const
	{
		return base + S::full + 16 * S::stages * part +
		       i % (part == 2 ? TURNS : S::stages) * 8;
	}

	__device__ __forceinline__ uint32_t empty(int part, unsigned i) const
	{
		return full(part, i) + 8 * (part == 2 ? TURNS : S::stages);
	}

	__device__ __forceinline__ void wait_full(int part, unsigned i) const
	{
		barrier_wait(full(part, i), i / (part == 2 ? TURNS : S::stages) & 1);
	}

	/* Until stage `i` may be written. */
	__device__ __forceinline__ void wait_empty(int part, unsigned i) const
	{
		const unsigned n = part == 2 ? TURNS : S::stages;

		if (i >= n)
			barrier_wait(empty(part, i), (i / n - 1) & 1);
	}

	/* A warp needs stage `i` no longer. */
	__device__ __forceinline__ void release(int part, unsigned i) const
	{
		__syncwarp();
		if (threadIdx.x % WARP == 0)
			barrier_arrive(empty(part, i));
	}
};

enum { OF_KEYS, OF_VALUES, OF_QUERIES };

/* ---- items ----------------------------------------------------------------------------------- */

/* The first row of an item, its sequence and head. */
struct note {
	int row0, batch, head;
};

template <class S> __device__ __forceinline__ note item_of(const forward &f, int number)
{
	const int all = f.heads * f.batch, swath = number / (SWATH * f.blocks),
		  in = number % (SWATH * f.blocks);
	const int width = min(SWATH, all - swath * SWATH), head = swath * SWATH + in % width;

	return {(f.blocks - 1 - in / width) * S::rows, head / f.heads, head % f.heads};
}

/* Item `i` of a block, counted from 0. */
__device__ __forceinline__ int number_of(int i)
{
	return i * (int)gridDim.x + (int)blockIdx.x;
}

/* The item after `i`; AGAIN: that is to do again. */
template <bool AGAIN>
__device__ __forceinline__ int item_after(const forward &f, const unsigned *flags, int i)
{
	i++;
	while (AGAIN && number_of(i) < f.items && !(flags[i / 32 % FLAGS] >> i % 32 & 1))
		i++;
	return i;
}

/* Tiles of keys that rows before `end` see. */
__device__ __forceinline__ int tiles_before(const forward &f, int end)
{
	return ((f.causal ? min(f.keys, end) : f.keys) + KEYS - 1) / KEYS;
}

template <class S>
__device__ __forceinline__ void tell(const block<S> &b, unsigned turn, const note &n)
{
	asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %1};" ::"r"(
			     b.base + S::notes + turn % NOTES * 16),
		     "r"(n.row0), "r"(n.batch), "r"(n.head)
		     : "memory");
}

template <class S> __device__ __forceinline__ note told(const block<S> &b, unsigned turn)
{
	note n;
	int none;

	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(n.row0), "=r"(n.batch), "=r"(n.head), "=r"(none)
		     : "r"(b.base + S::notes + turn % NOTES * 16)
		     : "memory");
	return n;
}

/* Items and tiles that a thread is at, both counted over all items. */
struct progress {
	unsigned turn, at;
};

/* ---- copies ---------------------------------------------------------------------------------- */

template <class S>
__device__ __forceinline__ void copy_keys(const block<S> &b, int part, const CUtensorMap *map,
	uint32_t to, int column, int row, int batch, unsigned at)
{
	const uint32_t full = b.full(part, at);

	b.wait_empty(part, at);
	barrier_expect(full, S::tile);
	for (int r = 0; r < KEYS; r += TILE)
		copy_tile<S::D>(b.base + to + at % S::stages * S::tile + r * CHUNK_ROW, KEYS, map,
			column, row + r, batch, full);
}

/* The thread that copies. */
template <class S, bool AGAIN>
__device__ __forceinline__ void copy_items(const block<S> &b, const maps &map, progress &p)
{
	for (int i = item_after<AGAIN>(b.f, b.flags, -1); number_of(i) < b.f.items;
		i = item_after<AGAIN>(b.f, b.flags, i), p.turn++) {
		const note n = item_of<S>(b.f, number_of(i));
		const int tiles = tiles_before(b.f, n.row0 + S::rows),
			  column = n.head / (b.f.heads / b.f.groups) * S::D;
		const uint32_t full = b.full(OF_QUERIES, p.turn);

		b.wait_empty(OF_QUERIES, p.turn);
		tell(b, p.turn, n);
		barrier_expect(full, S::own);
		for (int r = 0; r < S::rows; r += TILE)
			copy_tile<S::D>(
				b.base + S::q + p.turn % TURNS * S::own + r / TILE * S::row_tile,
				TILE, &map.q, n.head * S::D, n.row0 + r, n.batch, full);
#pragma unroll 1
		for (int tile = 0; tile < tiles; tile++, p.at++) {
			const int row = tile * KEYS;

			copy_keys(b, OF_KEYS, &map.k, S::k, column, row, n.batch, p.at);
			copy_keys(b, OF_VALUES, &map.v, S::v, column, row, n.batch, p.at);
		}
	}
}

#endif
