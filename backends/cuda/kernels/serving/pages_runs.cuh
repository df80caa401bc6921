/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages by tiles (pages_tiles.cu): the runs of rows that a block takes, and what its
 * last warp group does, which copies their queries, keys and values to shared memory.
 */
#ifndef JM_CUDA_PAGES_RUNS_CUH
#define JM_CUDA_PAGES_RUNS_CUH

#include "backends/cuda/kernels/tiles.cuh"
#include "pages_common.cuh"

#define OWNERS 2   /* warp groups with a head each */
#define KEYS   128 /* of a tile */
#define PAGE   16  /* tokens */
#define PAGES  (KEYS / PAGE)
#define STAGES 2 /* tiles of keys, and of values */
#define RUNS   2 /* whose queries are in shared memory */

/* Values are multiplied in 16 bits, keys as they are in the cache. A row of keys of 8 bits has 128
 * bytes, which are those of 128 / D groups. */
template <typename K, int D> struct memory {
	static constexpr int own = OWNERS * TILE * D * 2, tile = KEYS * D * 2,
			     keys = is_f8<K> ? KEYS * CHUNK_ROW : tile;
	static constexpr int q = 0, k = RUNS * own, v = k + STAGES * keys,
			     barriers = v + STAGES * tile, runs = barriers + 128,
			     item = runs + RUNS * 16;
	static constexpr int bytes = barriers + 256 + 1024;
};

/* Barriers, 8 bytes each: of each stage `full` and `free`; the same of the queries. */
struct barriers {
	uint32_t k, v, q;
};

__device__ __forceinline__ uint32_t full(uint32_t of, unsigned i)
{
	return of + i % STAGES * 8;
}

__device__ __forceinline__ uint32_t free_again(uint32_t of, unsigned i)
{
	return of + (STAGES + i % STAGES) * 8;
}

static_assert(RUNS == STAGES, "queries have barriers as keys have them");

/* What this thread wrote to shared memory is known to products and copies. */
__device__ __forceinline__ void publish_shared()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Rows of one request at positions that follow each other, within 64 positions; n = 0: none. */
struct run {
	int row, n, first; /* first: the position of the first row */
	int head;	   /* the first of the block's */
};

/* Whether the first half of the last tile of keys is enough. */
__device__ __forceinline__ bool ends_in_half(const struct run &r)
{
	return (unsigned)(r.first + r.n - 1) % KEYS < KEYS / 2;
}

/* Bit i: row `row` + i goes on with the run of the row before it. The same in all lanes. */
__device__ __forceinline__ unsigned goes_on(const struct cuda_pages &p, int row)
{
	const int at = row + threadIdx.x % WARP;

	return __ballot_sync(0xffffffffu, at > 0 && at < p.rows && p.position[at] > 0 &&
						  p.position[at] % TILE &&
						  p.position[at] == p.position[at - 1] + 1 &&
						  p.request[at] == p.request[at - 1]);
}

/* Whether rows go on, of the 64 rows of a block and the 64 behind them. */
struct follows {
	uint64_t here, behind;
};

__device__ __forceinline__ struct follows follows_of(const struct cuda_pages &p, int row)
{
	return {goes_on(p, row) | (uint64_t)goes_on(p, row + 32) << 32,
		goes_on(p, row + 64) | (uint64_t)goes_on(p, row + 96) << 32};
}

/* Of the rows of a block: which begin a run of more than `few` rows (at least 1). */
__device__ __forceinline__ uint64_t begins_of(const struct follows &f, int few)
{
	uint64_t begin = ~f.here;

	for (int k = 1; k <= few; k++)
		begin &= f.here >> k | f.behind << (TILE - k);
	return begin;
}

/* The run that begins at row `at` of a block whose first row is `row`. */
__device__ __forceinline__ struct run run_at(
	const struct cuda_pages &p, const struct follows &f, int row, int at, int head)
{
	const uint64_t rest =
		~(at == TILE - 1 ? f.behind : f.here >> (at + 1) | f.behind << (TILE - 1 - at));

	return {row + at, rest ? __ffsll((long long)rest) : TILE, p.position[row + at], head};
}

/* The last warp group tells the others, by shared memory. */
__device__ __forceinline__ void tell_run(uint32_t to, const struct run &r)
{
	asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r.row), "r"(r.n),
		     "r"(r.first), "r"(r.head)
		     : "memory");
}

__device__ __forceinline__ struct run told_run(uint32_t from)
{
	struct run r;

	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r.row), "=r"(r.n), "=r"(r.first), "=r"(r.head)
		     : "r"(from)
		     : "memory");
	/* so that the compiler knows that all lanes have the same */
	return {__shfl_sync(0xffffffffu, r.row, 0), __shfl_sync(0xffffffffu, r.n, 0),
		__shfl_sync(0xffffffffu, r.first, 0), __shfl_sync(0xffffffffu, r.head, 0)};
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Of cuda_page_boxes. */
struct maps {
	CUtensorMap q, keys, values;
};

/* The pages of a run: their numbers, the last one, tiles of keys, and the group of its heads. */
struct pages {
	const int32_t *number;
	int last, tiles, group;
};

__device__ __forceinline__ struct pages pages_of(const struct cuda_pages &p, const struct run &r)
{
	const int last = (r.first + r.n - 1) / PAGE;

	return {p.page + p.request[r.row] * p.each, last, last / PAGES + 1,
		r.head / (p.heads / p.groups)};
}

/* Waits until stage `at` is free. */
__device__ __forceinline__ void wait_free(uint32_t of, int at)
{
	if (at >= STAGES)
		barrier_wait(free_again(of, at), (at / STAGES - 1) & 1);
}

/* Each lane copies a part of a page. column: in units of 2 bytes. */
template <int CHUNKS>
__device__ __forceinline__ void copy_pages(
	uint32_t to, const CUtensorMap *map, int column, int page, uint32_t bar)
{
	const int lane = threadIdx.x % WARP, chunk = lane / PAGES, row = lane % PAGES * PAGE;

	if (lane == 0)
		barrier_expect(bar, CHUNKS * KEYS * CHUNK_ROW);
	__syncwarp();
	if (chunk < CHUNKS)
		copy_box(to + (chunk * KEYS + row) * CHUNK_ROW, map, column + chunk * 64,
			page * PAGE, 0, bar);
}

/* The page of which a lane copies a part. */
__device__ __forceinline__ int page_of(const struct pages &g, int tile)
{
	return g.number[min(tile * PAGES + (int)threadIdx.x % PAGES, g.last)];
}

/* at: tiles of earlier runs. Returns those with this one. For a warp. */
template <typename K, int D>
__device__ __forceinline__ int copy_keys(const struct cuda_pages &p, const struct run &r, int at,
	const struct maps &map, uint32_t base, const struct barriers &b)
{
	typedef memory<K, D> M;
	const struct pages g = pages_of(p, r);
	const int column = g.group * D;

	for (int i = 0; i < g.tiles; i++, at++) {
		const int page = page_of(g, i);

		wait_free(b.k, at);
		copy_pages<D / 64>(base + M::k + at % STAGES * M::keys, &map.keys, column, page,
			full(b.k, at));
		wait_free(b.v, at);
		copy_pages<D / 64>(base + M::v + at % STAGES * M::tile, &map.values, column, page,
			full(b.v, at));
	}
	return at;
}

/* The codes of values of a tile that a thread of a warp group has: 16 of each of EACH rows, which
 * are ROWS apart. Of 8 lanes, four have neighbours of a row and four those of the next row, which
 * write to other banks. */
template <int D> struct codes {
	static constexpr int chunks = D / 16, rows = GROUP / chunks, each = KEYS / rows;

	static __device__ __forceinline__ int chunk()
	{
		return threadIdx.x / 8 % (chunks / 4) * 4 + threadIdx.x % 4;
	}

	static __device__ __forceinline__ int row()
	{
		return threadIdx.x % GROUP / (2 * chunks) * 2 + threadIdx.x / 4 % 2;
	}
};

/* Writes 16 codes as halves. */
__device__ __forceinline__ void widen_codes(uint32_t to, const uint4 &given, int row, int chunk)
{
	const unsigned w[4] = {given.x, given.y, given.z, given.w};

#pragma unroll
	for (int k = 0; k < 2; k++) {
		unsigned h[4];

		widen(w[2 * k], h[0], h[1]);
		widen(w[2 * k + 1], h[2], h[3]);
		asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(
				     to + ((chunk % 4 * 2 + k) ^ (row & 7)) * 16),
			     "r"(h[0]), "r"(h[1]), "r"(h[2]), "r"(h[3])
			     : "memory");
	}
}

/* As copy_keys, of codes of 8 bits: values become halves. For a warp group, whose first warp copies
 * the keys. Codes of the next tile are read as those of this one are written, behind the last tile
 * those of the last page. */
template <int D>
__device__ __forceinline__ int convert_values(const struct cuda_pages &p, const struct run &r,
	int at, const struct maps &map, uint32_t base, const struct barriers &b)
{
	typedef memory<e4m3, D> M;
	typedef struct codes<D> C;
	const struct pages g = pages_of(p, r);
	const bool copies = threadIdx.x < OWNERS * GROUP + WARP;
	const int64_t apart = (int64_t)PAGE * p.groups * D;
	const char *v = as<const char>(p.values) +
			(g.group + C::row() % PAGE * p.groups) * D + C::chunk() * 16;
	const uint32_t to = base + M::v + (C::chunk() / 4 * KEYS + C::row()) * CHUNK_ROW;
	int here = page_of(g, 0), next;
	uint4 code[C::each];
	auto read = [&](int page, int j) { /* page: of which this lane copies a part */
		const int of_row = __shfl_sync(0xffffffffu, page, (j * C::rows + C::row()) / PAGE);

		code[j] = *reinterpret_cast<const uint4 *>(v + of_row * apart);
	};

#pragma unroll
	for (int j = 0; j < C::each; j++)
		read(here, j);
	for (int i = 0; i < g.tiles; i++, at++, here = next) {
		next = page_of(g, i + 1);
		if (copies) {
			wait_free(b.k, at);
			copy_pages<1>(base + M::k + at % STAGES * M::keys, &map.keys,
				g.group * D / CHUNK_ROW * 64, here, full(b.k, at));
		}
		wait_free(b.v, at);
#pragma unroll
		for (int j = 0; j < C::each; j++) {
			widen_codes(to + at % STAGES * M::tile + j * C::rows * CHUNK_ROW, code[j],
				C::row(), C::chunk());
			read(next, j);
		}
		publish_shared();
		barrier_arrive(full(b.v, at));
	}
	return at;
}

/* number: runs before this one. */
template <typename K, int D>
__device__ __forceinline__ int copy_run(const struct cuda_pages &p, const struct run &r, int number,
	int at, const struct maps &map, uint32_t base, const struct barriers &b)
{
	typedef memory<K, D> M;
	const uint32_t bar = full(b.q, number), to = base + M::q + number % RUNS * M::own;

	wait_free(b.q, number);
	if (threadIdx.x == OWNERS * GROUP) {
		tell_run(base + M::runs + number % RUNS * 16, r);
		barrier_expect(bar, M::own);
		for (int i = 0; i < OWNERS; i++)
			copy_tile<D>(to + i * TILE * CHUNK_ROW, OWNERS * TILE, &map.q,
				(r.head + i) * D, r.row, 0, bar);
	}
	__syncwarp(); /* lanes that went ahead would wait for queries that were not copied */
	if constexpr (is_f8<K>)
		return convert_values<D>(p, r, at, map, base, b);
	else
		return copy_keys<K, D>(p, r, at, map, base, b);
}

/* A run of no rows ends the block. */
template <typename K, int D>
__device__ __forceinline__ void end_runs(int number, uint32_t base, const struct barriers &b)
{
	wait_free(b.q, number);
	if (threadIdx.x == OWNERS * GROUP) {
		tell_run(base + memory<K, D>::runs + number % RUNS * 16, run{0, 0, 0, 0});
		barrier_arrive(full(b.q, number));
	}
}

/* The number of an item that no block has taken, the same in all threads that copy. turn: items
 * that this block took before. */
template <typename K>
__device__ __forceinline__ int take_item(const struct cuda_pages &p, uint32_t to, int turn)
{
	int item = 0;

	if (!is_f8<K>) { /* a warp copies */
		if (threadIdx.x % WARP == 0)
			item = atomicAdd(taken_of(p), 1);
		return __shfl_sync(0xffffffffu, item, 0);
	}
	to += turn % 2 * 4;
	if (threadIdx.x == OWNERS * GROUP)
		asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(atomicAdd(taken_of(p), 1))
			     : "memory");
	asm volatile("bar.sync %0, 128;" ::"r"(1 + 2 * OWNERS) : "memory");
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(item) : "r"(to) : "memory");
	return item;
}

/* Blocks take items of 64 rows and OWNERS heads in the order of sets of rows. */
template <typename K, int D>
__device__ __forceinline__ void copy_runs(
	const struct cuda_pages &p, const struct maps &map, uint32_t base, const struct barriers &b)
{
	const int sets = p.heads / OWNERS, all = sets * (int)((p.rows + TILE - 1) / TILE);
	const uint32_t to = base + memory<K, D>::item;
	int number = 0, at = 0, item;

	for (int turn = 0; (item = take_item<K>(p, to, turn)) < all; turn++) {
		const int row = order_of(p)[item / sets] * TILE, head = item % sets * OWNERS;
		const struct follows f = follows_of(p, row);

		for (uint64_t runs = begins_of(f, p.few); runs; runs &= runs - 1)
			at = copy_run<K, D>(p,
				run_at(p, f, row, __ffsll((long long)runs) - 1, head), number++, at,
				map, base, b);
	}
	end_runs<K, D>(number, base, b);
}

#endif
