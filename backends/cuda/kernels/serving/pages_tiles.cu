/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of rows whose keys and values are in pages (pages.cu), for runs of many rows: bf16,
 * keys and values also in e4m3; compute capability 9.0.
 *
 * A block has two warp groups, each of which owns one head of up to 64 rows, and a third that
 * copies keys and values, 128 at a time: a warp of it starts copies of boxes of a page, or all of
 * it widens codes of 8 bits to halves, which the queries then become, too. It takes the runs that
 * begin within 64 rows of the step. While the products of one tile of values run, a warp group
 * computes the softmax of the next tile of keys, and the two take turns (Shah et al.,
 * FlashAttention-3, arXiv 2407.08608). All heads of a group have the same keys, so that these come
 * from L2.
 */
#include <string.h>

#include "backends/cuda/kernels/f8.cuh"
#include "backends/cuda/kernels/tiles.cuh"

#define OWNERS 2   /* warp groups with a head each */
#define KEYS   128 /* of a tile */
#define PAGE   16  /* tokens */
#define PAGES  (KEYS / PAGE)
#define STAGES 2

template <int D> struct memory {
	static constexpr int own = OWNERS * TILE * D * 2, tile = KEYS * D * 2;
	static constexpr int q = 0, k = own, v = k + STAGES * tile, barriers = v + STAGES * tile;
	static constexpr int bytes = barriers + 256 + 1024;
};

/* Barriers, 8 bytes each: of each stage `full` and `free`; the same of the queries. */
struct barriers {
	uint32_t k, v, q;
};

__device__ __forceinline__ uint32_t full(uint32_t of, int i)
{
	return of + i % STAGES * 8;
}

__device__ __forceinline__ uint32_t free_again(uint32_t of, int i)
{
	return of + (STAGES + i % STAGES) * 8;
}

/* Rows of one request at positions that follow each other, within 64 positions. */
struct run {
	int row, n, first; /* first: the position of the first row */
};

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

/* The first run of more than `few` rows that begins at bit `from` or later; n = 0: there is
 * none. */
__device__ __forceinline__ struct run next_run(
	const struct cuda_pages &p, const struct follows &f, int row, int from, int few)
{
	for (int at = from; at < TILE; at++) {
		uint64_t rest;
		int n;

		if (f.here >> at & 1 || row + at >= p.rows || p.position[row + at] < 0)
			continue;
		rest = ~(at == TILE - 1 ? f.behind
					: f.here >> (at + 1) | f.behind << (TILE - 1 - at));
		n = rest ? __ffsll((long long)rest) : TILE;
		if (n > few)
			return {row + at, n, p.position[row + at]};
	}
	return {0, 0, 0};
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Of cuda_page_boxes. */
struct maps {
	CUtensorMap q, keys, values;
};

/* The heads of a block are of this group. */
__device__ __forceinline__ int group_of(const struct cuda_pages &p)
{
	return blockIdx.x * OWNERS / (p.heads / p.groups);
}

/* Each lane copies a part of a page. first: of the tile, of the run's pages. */
template <int D>
__device__ __forceinline__ void copy_pages(
	uint32_t to, const CUtensorMap *map, int column, int page, uint32_t bar)
{
	const int lane = threadIdx.x % WARP, chunk = lane / PAGES, row = lane % PAGES * PAGE;

	if (lane == 0)
		barrier_expect(bar, memory<D>::tile);
	__syncwarp();
	if (chunk < D / 64)
		copy_box(to + (chunk * KEYS + row) * CHUNK_ROW, map, column + chunk * 64,
			page * PAGE, 0, bar);
}

/* at: tiles of earlier runs. Returns those with this one. For a warp. */
template <int D>
__device__ __forceinline__ int copy_keys(const struct cuda_pages &p, const struct run &r, int at,
	const struct maps &map, uint32_t base, const struct barriers &b)
{
	typedef memory<D> M;
	const int column = group_of(p) * D, last = (r.first + r.n - 1) / PAGE,
		  total = last / PAGES + 1;
	const int32_t *page = p.page + p.request[r.row] * p.each;

	for (int i = 0; i < total; i++, at++) {
		const int from = page[min(i * PAGES + (int)threadIdx.x % PAGES, last)];

		if (at >= STAGES)
			barrier_wait(free_again(b.k, at), (at / STAGES - 1) & 1);
		copy_pages<D>(base + M::k + at % STAGES * M::tile, &map.keys, column, from,
			full(b.k, at));
		if (at >= STAGES)
			barrier_wait(free_again(b.v, at), (at / STAGES - 1) & 1);
		copy_pages<D>(base + M::v + at % STAGES * M::tile, &map.values, column, from,
			full(b.v, at));
	}
	return at;
}

/* The codes of keys or values of a tile that a thread of a warp group has: 16 of each of EACH rows,
 * which are ROWS apart. */
template <int D> struct codes {
	static constexpr int chunks = D / 16, rows = GROUP / chunks, each = KEYS / rows;
	uint4 c[each];
};

/* first: of the tile, of the run's pages. */
template <int D>
__device__ __forceinline__ void read_codes(const struct cuda_pages &p, const void *kept,
	const int32_t *page, int first, int last, struct codes<D> &ret)
{
	typedef struct codes<D> C;
	const int thread = threadIdx.x % GROUP, row = thread / C::chunks;
	const int64_t apart = (int64_t)p.groups * D;
	const char *from = static_cast<const char *>(kept) + group_of(p) * D +
			   thread % C::chunks * 16 + row % PAGE * apart;

#pragma unroll
	for (int j = 0; j < C::each; j++) {
		const int of = page[min(first + (j * C::rows + row) / PAGE, last)];

		ret.c[j] = *reinterpret_cast<const uint4 *>(from + of * PAGE * apart);
	}
}

/* Writes a tile of halves. Of two lanes whose chunks have the same banks each begins with another
 * half. */
template <int D>
__device__ __forceinline__ void widen_codes(uint32_t to, const struct codes<D> &given, uint32_t bar)
{
	typedef struct codes<D> C;
	const int thread = threadIdx.x % GROUP, chunk = thread % C::chunks, part_of_row = chunk / 4;

#pragma unroll
	for (int j = 0; j < C::each; j++) {
		const int row = j * C::rows + thread / C::chunks;
		const uint32_t at = to + (part_of_row * KEYS + row) * CHUNK_ROW;
		const uint32_t w[4] = {given.c[j].x, given.c[j].y, given.c[j].z, given.c[j].w};

#pragma unroll
		for (int k = 0; k < 2; k++) {
			const int part = k ^ (part_of_row & 1);
			const uint32_t low = part ? w[2] : w[0], high = part ? w[3] : w[1];

			asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(
					     at + ((chunk % 4 * 2 + part) ^ (row & 7)) * 16),
				     "r"(two_of<half>(low & 0xffff)), "r"(two_of<half>(low >> 16)),
				     "r"(two_of<half>(high & 0xffff)), "r"(two_of<half>(high >> 16))
				     : "memory");
		}
	}
	asm volatile("fence.proxy.async;" ::: "memory");
	barrier_arrive(bar);
}

/* As copy_keys, of codes of 8 bits. For a warp group. */
template <int D>
__device__ __forceinline__ int convert_keys(const struct cuda_pages &p, const struct run &r, int at,
	uint32_t base, const struct barriers &b)
{
	typedef memory<D> M;
	const int last = (r.first + r.n - 1) / PAGE, total = last / PAGES + 1;
	const int32_t *page = p.page + p.request[r.row] * p.each;
	struct codes<D> keys, values;

	read_codes<D>(p, p.keys.data, page, 0, last, keys);
	for (int i = 0; i < total; i++, at++) {
		read_codes<D>(p, p.values.data, page, i * PAGES, last, values);
		if (at >= STAGES)
			barrier_wait(free_again(b.k, at), (at / STAGES - 1) & 1);
		widen_codes<D>(base + M::k + at % STAGES * M::tile, keys, full(b.k, at));
		if (i + 1 < total)
			read_codes<D>(p, p.keys.data, page, (i + 1) * PAGES, last, keys);
		if (at >= STAGES)
			barrier_wait(free_again(b.v, at), (at / STAGES - 1) & 1);
		widen_codes<D>(base + M::v + at % STAGES * M::tile, values, full(b.v, at));
	}
	return at;
}

template <typename K, int D>
__device__ __forceinline__ int copy_run(const struct cuda_pages &p, const struct run &r, int number,
	int at, const struct maps &map, uint32_t base, const struct barriers &b)
{
	typedef memory<D> M;

	if (number)
		barrier_wait(b.q + 8, (number - 1) & 1);
	if (threadIdx.x == OWNERS * GROUP) {
		barrier_expect(b.q, M::own);
		for (int i = 0; i < OWNERS; i++)
			copy_tile<D>(base + M::q + i * TILE * CHUNK_ROW, OWNERS * TILE, &map.q,
				(blockIdx.x * OWNERS + i) * D, r.row, 0, b.q);
	}
	if constexpr (is_f8<K>)
		return convert_keys<D>(p, r, at, base, b);
	else
		return copy_keys<D>(p, r, at, map, base, b);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Of the two rows of a thread. */
struct softmax {
	float most[2], sum[2], shrink[2];
	int last[2]; /* the last key that the row sees */
};

/* Scores become powers of 2; what was summed so far is to be multiplied by `shrink`. */
__device__ __forceinline__ void soften(
	float (&s)[KEYS / 2], struct softmax &m, float factor, int first_key, bool masked)
{
	const int column = first_key + threadIdx.x % 4 * 2;
	float most[2] = {m.most[0], m.most[1]}, sum[2] = {0, 0};

#pragma unroll
	for (int j = 0; j < KEYS / 2; j++) {
		if (masked && column + j / 4 * 8 + j % 2 > m.last[j / 2 % 2])
			s[j] = MASKED;
		most[j / 2 % 2] = fmaxf(most[j / 2 % 2], s[j]);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
		most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
		m.shrink[r] = exp2_of((m.most[r] - most[r]) * factor);
		m.most[r] = most[r];
	}
#pragma unroll
	for (int j = 0; j < KEYS / 2; j++) {
		s[j] = exp2_of(s[j] * factor - most[j / 2 % 2] * factor);
		sum[j / 2 % 2] += s[j];
	}
#pragma unroll
	for (int r = 0; r < 2; r++)
		m.sum[r] = m.sum[r] * m.shrink[r] + sum[r];
}

/* Makes the values behind the last key 0: those slots may hold anything, and 0 x NaN is NaN. Each
 * warp group does so before its own product. */
template <int D> __device__ __forceinline__ void clear_behind(uint32_t values, int keys)
{
	for (int i = threadIdx.x % GROUP; i < (KEYS - keys) * D / 8; i += GROUP) {
		const int row = keys + i / (D / 8), part = i % (D / 8);

		asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(
				     values + (part / 8 * KEYS + row) * CHUNK_ROW + part % 8 * 16),
			     "r"(0)
			     : "memory");
	}
	asm volatile("fence.proxy.async;" ::: "memory");
	asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / GROUP) : "memory");
}

/* The queries of a warp group, which are bf16, become halves. */
template <int D> __device__ __forceinline__ void halve_queries(uint32_t q)
{
	for (int i = threadIdx.x % GROUP; i < TILE * D / 8; i += GROUP) {
		const uint32_t at = q + (i / (TILE * 8) * OWNERS * TILE * 8 + i % (TILE * 8)) * 16;
		uint32_t x[4];

		asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
			     : "r"(at)
			     : "memory");
#pragma unroll
		for (int k = 0; k < 4; k++)
			x[k] = pair_as<half, bf16>(x[k]);
		asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0]),
			     "r"(x[1]), "r"(x[2]), "r"(x[3])
			     : "memory");
	}
	asm volatile("fence.proxy.async;" ::: "memory");
	asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / GROUP) : "memory");
}

__device__ __forceinline__ void arrive(uint32_t bar)
{
	if (threadIdx.x % WARP == 0)
		barrier_arrive(bar);
}

/* Warp groups start their products in turns, so that one takes the softmax while those of the other
 * run. */
__device__ __forceinline__ void take_turn(int owner)
{
	asm volatile("bar.sync %0, 256;" ::"r"(1 + OWNERS + owner) : "memory");
}

__device__ __forceinline__ void give_turn(int owner)
{
	asm volatile("bar.arrive %0, 256;" ::"r"(1 + OWNERS + owner) : "memory");
}

/* at: as in copy_run. */
template <typename K, int D>
__device__ __forceinline__ int sum_run(const struct cuda_pages &p, const struct run &r, int number,
	int at, uint32_t base, const struct barriers &b)
{
	typedef memory<D> M;
	typedef factor<bf16, K> F;
	const int owner = threadIdx.x / GROUP, lane = threadIdx.x % WARP;
	const int keys = r.first + r.n, total = (keys + KEYS - 1) / KEYS;
	const int row = threadIdx.x / WARP % 4 * 16 + lane / 4;
	const uint32_t q = base + M::q + owner * TILE * CHUNK_ROW;
	const float factor = p.scale * LOG2_E;
	struct softmax m = {{MASKED, MASKED}, {0, 0}, {1, 1}, {r.first + row, r.first + row + 8}};
	float y[D / 2];
	float s[KEYS / 2];
	uint32_t weights[KEYS / 16][4];

	barrier_wait(b.q, number & 1);
	if (is_f8<K>)
		halve_queries<D>(q);
	for (int i = 0; i < total; i++, at++) {
		barrier_wait(full(b.k, at), at / STAGES & 1);
		take_turn(owner);
		product_fence();
		multiply<D, F>(s, q, OWNERS * TILE, base + M::k + at % STAGES * M::tile, KEYS);
		if (i) {
			barrier_wait(full(b.v, at - 1), (at - 1) / STAGES & 1);
			accumulate<F>(y, weights, base + M::v + (at - 1) % STAGES * M::tile, i > 1);
			give_turn(1 - owner);
			product_wait<1>();
		} else {
			give_turn(1 - owner);
			product_wait<0>();
		}
		results_from_here(s);
		arrive(free_again(b.k, at));
		soften(s, m, factor, i * KEYS, (i + 1) * KEYS > r.first + 1);
		if (i) {
			product_wait<0>();
			results_from_here(y);
			arrive(free_again(b.v, at - 1));
#pragma unroll
			for (int j = 0; j < D / 2; j++)
				y[j] *= m.shrink[j / 2 % 2];
		}
		pack<F>(weights, s);
	}
	arrive(b.q + 8);
	barrier_wait(full(b.v, at - 1), (at - 1) / STAGES & 1);
	if (keys % KEYS)
		clear_behind<D>(base + M::v + (at - 1) % STAGES * M::tile, keys % KEYS);
	accumulate<F>(y, weights, base + M::v + (at - 1) % STAGES * M::tile, total > 1);
	product_wait<0>();
	results_from_here(y);
	arrive(free_again(b.v, at - 1));
#pragma unroll
	for (int k = 0; k < 2; k++) {
		m.sum[k] += __shfl_xor_sync(0xffffffffu, m.sum[k], 1);
		m.sum[k] += __shfl_xor_sync(0xffffffffu, m.sum[k], 2);
	}
#pragma unroll
	for (int j = 0; j < D / 2; j++)
		y[j] /= m.sum[j / 2 % 2];
	emit<D>(y, as<bf16>(p.y) + ((int64_t)r.row * p.heads + blockIdx.x * OWNERS + owner) * D,
		(int64_t)p.heads * D, 0, r.n, 1);
	return at;
}

/* Registers of a thread of the last warp group, and of the others: of all three at most those that
 * the block begins with. */
template <typename K> struct registers {
	static constexpr int begin = 65536 / ((OWNERS + 1) * GROUP) / 8 * 8;
	static constexpr int copies = is_f8<K> ? 88 : 24, sums = is_f8<K> ? 208 : 240;
	static_assert(copies + OWNERS * sums <= (OWNERS + 1) * begin, "more would wait for ever");
};

template <typename K, int D>
__global__ void __launch_bounds__((OWNERS + 1) * GROUP, 1)
	runs_kernel(const __grid_constant__ struct maps map, const struct cuda_pages p)
{
	typedef memory<D> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u, begin = base + M::barriers;
	const struct barriers b = {begin, begin + 2 * STAGES * 8, begin + 4 * STAGES * 8};
	const int row = (gridDim.y - 1 - blockIdx.y) * TILE, few = p.few; /* the longest first */
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	const struct follows f = follows_of(p, row);
	struct run r = next_run(p, f, row, 0, few);
	int at = 0;

	if (!r.n)
		return;
	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			barrier_init(full(b.k, i), is_f8<K> ? GROUP : 1);
			barrier_init(full(b.v, i), is_f8<K> ? GROUP : 1);
			barrier_init(free_again(b.k, i), 4 * OWNERS);
			barrier_init(free_again(b.v, i), 4 * OWNERS);
		}
		barrier_init(b.q, 1);
		barrier_init(b.q + 8, 4 * OWNERS);
		barrier_publish();
	}
	__syncthreads();
	if (group == OWNERS) {
		fewer_registers<registers<K>::copies>();
		if (!is_f8<K> && threadIdx.x >= OWNERS * GROUP + WARP)
			return;
		for (int i = 0; r.n; i++, r = next_run(p, f, row, r.row - row + 1, few))
			at = copy_run<K, D>(p, r, i, at, map, base, b);
		return;
	}
	more_registers<registers<K>::sums>();
	if (group)
		give_turn(0);
	for (int i = 0; r.n; i++, r = next_run(p, f, row, r.row - row + 1, few))
		at = sum_run<K, D>(p, r, i, at, base, b);
}

template <typename K, int D>
static void runs_of(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	const dim3 blocks((unsigned)(p->heads / OWNERS), blocks_for(p->rows, TILE));
	struct maps map;

	memcpy(&map, boxes, sizeof map);
	cudaFuncSetAttribute(
		runs_kernel<K, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, memory<D>::bytes);
	runs_kernel<K, D><<<blocks, (OWNERS + 1) * GROUP, memory<D>::bytes, stream>>>(map, *p);
}

void cuda_attention_runs(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	if (p->f8)
		p->depth == 64 ? runs_of<e4m3, 64>(p, boxes, stream)
			       : runs_of<e4m3, 128>(p, boxes, stream);
	else
		p->depth == 64 ? runs_of<bf16, 64>(p, boxes, stream)
			       : runs_of<bf16, 128>(p, boxes, stream);
}
