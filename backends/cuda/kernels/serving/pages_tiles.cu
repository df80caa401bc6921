/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of rows whose keys and values are in pages (pages.cu), for runs of many rows: bf16,
 * keys and values also in e4m3; compute capability 9.0.
 *
 * A block stays on its multiprocessor and takes runs until none is left. It has two warp groups,
 * each of which owns one head of up to 64 rows, and a third that copies queries, keys and values,
 * 128 of these at a time (pages_runs.cuh): a warp of it starts copies of boxes of a page; values of
 * 8 bits all of it reads, widens to halves and writes. Keys of 8 bits are multiplied as they are,
 * by queries that are rounded to e4m3 as they are loaded (op_list.h). While the products of one
 * tile of values run, a warp group computes the softmax of the next tile of keys, and the two take
 * turns (Shah et al., FlashAttention-3, arXiv 2407.08608). All heads of a group have the same keys,
 * so that these come from L2.
 */
#include <string.h>

#include "pages_runs.cuh"

#define CHAINS 2 /* maxima, and sums, of a row that do not wait for each other */

/* Of the two rows of a thread. */
struct softmax {
	float most[2], sum[2], shrink[2]; /* most: of the scores */
	int last[2];			  /* the last key that the row sees */
};

/* The largest score of each row, which all its lanes get. ENDS: keys behind the last one of a row
 * are masked. */
template <bool ENDS, int N>
__device__ __forceinline__ void find_most(
	float (&s)[N], const struct softmax &m, int first_key, float (&ret)[2])
{
	const int column = first_key + threadIdx.x % 4 * 2;
	float most[2][CHAINS];

#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int c = 0; c < CHAINS; c++)
			most[r][c] = m.most[r];
#pragma unroll
	for (int j = 0; j < N; j++) {
		float &so_far = most[j / 2 % 2][j / 4 % CHAINS];

		if (ENDS && column + j / 4 * 8 + j % 2 > m.last[j / 2 % 2])
			s[j] = MASKED;
		so_far = fmaxf(so_far, s[j]);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		ret[r] = most[r][0];
#pragma unroll
		for (int c = 1; c < CHAINS; c++)
			ret[r] = fmaxf(ret[r], most[r][c]);
		ret[r] = fmaxf(ret[r], __shfl_xor_sync(0xffffffffu, ret[r], 1));
		ret[r] = fmaxf(ret[r], __shfl_xor_sync(0xffffffffu, ret[r], 2));
	}
}

/* Scores become powers of 2. Returns whether what was summed so far is to be multiplied by
 * `shrink`, the same in all lanes of a warp. */
template <bool ENDS, int N>
__device__ __forceinline__ bool soften(
	float (&s)[N], struct softmax &m, float factor, int first_key)
{
	float most[2], sum[2][CHAINS] = {};

	find_most<ENDS>(s, m, first_key, most);
	const bool grows = __any_sync(0xffffffffu, most[0] > m.most[0] || most[1] > m.most[1]);

	if (grows)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			m.shrink[r] = exp2_of((m.most[r] - most[r]) * factor);
			m.most[r] = most[r];
			m.sum[r] *= m.shrink[r];
		}
	const float from[2] = {m.most[0] * factor, m.most[1] * factor};

#pragma unroll
	for (int j = 0; j < N; j++) {
		s[j] = exp2_of(s[j] * factor - from[j / 2 % 2]);
		sum[j / 2 % 2][j / 4 % CHAINS] += s[j];
	}
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int c = 0; c < CHAINS; c++)
			m.sum[r] += sum[r][c];
	return grows;
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
	publish_shared();
	asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / GROUP) : "memory");
}

/* The queries of a warp group as left factors in registers: bf16, or rounded to e4m3 for keys in
 * that type. */
template <typename K, int D> constexpr int left_factors = is_f8<K> ? D / 32 : D / 16;

template <int D> __device__ __forceinline__ void load_queries(uint32_t (&to)[D / 16][4], uint32_t q)
{
	const int row = threadIdx.x / WARP % 4 * 16 + threadIdx.x % 16,
		  part = threadIdx.x % WARP / 16;

#pragma unroll
	for (int k = 0; k < D / 16; k++)
		load_blocks(to[k], q + (k / 4 * OWNERS * TILE + row) * CHUNK_ROW +
					   ((k % 4 * 2 + part) ^ (row & 7)) * 16);
}

template <int D> __device__ __forceinline__ void load_queries(uint32_t (&to)[D / 32][4], uint32_t q)
{
	const int row = threadIdx.x / WARP % 4 * 16 + threadIdx.x % WARP / 4;

#pragma unroll
	for (int k = 0; k < D / 32; k++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const int column = 32 * k + i / 2 * 16 + threadIdx.x % 4 * 4; /* of four */
			uint32_t x[2];

			asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
				     : "=r"(x[0]), "=r"(x[1])
				     : "r"(q +
					     (column / 64 * OWNERS * TILE + row + i % 2 * 8) *
						     CHUNK_ROW +
					     (column % 64 / 8 ^ (row & 7)) * 16 + column % 8 * 2)
				     : "memory");
			to[k][i] = codes_of<bf16>(x[0]) | codes_of<bf16>(x[1]) << 16;
		}
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

/* Describes (matrix_at) what is `bytes` behind. */
__device__ __forceinline__ uint64_t behind(uint64_t matrix, int bytes)
{
	return (matrix & ~0xffffffffull) | ((uint32_t)matrix + (uint32_t)(bytes >> 4));
}

/* d[64,N] = add d + a[64,16] b[N,16]^T, a in registers */
#define COLUMNS_128(type)                                                                          \
	"{\n"                                                                                      \
	".reg .pred add;\n"                                                                        \
	"setp.ne.b32 add, %69, 0;\n" WGMMA(                                                        \
		128, type) "{" REGS_64 "}, {%64, %65, %66, %67}, %68, add, 1, 1, 0;\n"             \
			   "}"
template <typename T>
__device__ __forceinline__ void product_columns(
	float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add)
{
	BY_TYPE(COLUMNS_128, : OPERANDS_64("+f", 0) : LEFT);
}

template <typename T>
__device__ __forceinline__ void product_columns(
	float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
	product_kept<T>(d, a, b, add);
}

/* d[64,N] = add d + a[64,32] b[N,32]^T in e4m3, a in registers */
#define CODES(n, regs, a0, a1, a2, a3, b, add)                                                     \
	"{\n"                                                                                      \
	".reg .pred add;\n"                                                                        \
	"setp.ne.b32 add, %" add ", 0;\n"                                                          \
	"wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" regs "}, {%" a0 ", %" a1      \
	", %" a2 ", %" a3 "}, %" b ", add, 1, 1;\n"                                                \
	"}"
__device__ __forceinline__ void product_codes(
	float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add)
{
	asm volatile(CODES(128, REGS_64, "64", "65", "66", "67", "68", "69")
		     : OPERANDS_64("+f", 0)
		     : LEFT);
}

__device__ __forceinline__ void product_codes(
	float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
	asm volatile(CODES(64, REGS_32, "32", "33", "34", "35", "36", "37")
		     : OPERANDS_32("+f", 0)
		     : LEFT);
}

/* What a warp group has of a run. */
template <typename K, int D> struct sums {
	typedef factor<bf16, K> F;
	typedef memory<K, D> M;
	uint32_t base;
	struct barriers b;
	int owner;
	int beside; /* bytes of a row of keys before those of the own group */
	uint32_t q[left_factors<K, D>][4];
	float scale;
	struct softmax m;
	float y[D / 2];
	uint32_t weights[KEYS / 16][4]; /* of the last tile of keys */

	/* s = queries keys^T, of the first 2 N keys of a tile */
	template <int N> __device__ __forceinline__ void start_scores(float (&s)[N], int at) const
	{
		const uint64_t keys = matrix_at(
			base + M::k + (unsigned)at % STAGES * M::keys + beside, 16);

		product_fence();
#pragma unroll
		for (int k = 0; k < left_factors<K, D>; k++)
			if constexpr (is_f8<K>)
				product_codes(s, q[k], behind(keys, k * 32), k > 0);
			else
				product_columns<F>(s, q[k],
					behind(keys, k / 4 * KEYS * CHUNK_ROW + k % 4 * 32), k > 0);
		product_commit();
	}

	/* y = add y + weights values, of the first N keys of a tile */
	template <int N> __device__ __forceinline__ void start_sums(int at, int add)
	{
		const uint64_t values =
			matrix_at(base + M::v + (unsigned)at % STAGES * M::tile,
				KEYS * CHUNK_ROW);

		product_fence();
#pragma unroll
		for (int k = 0; k < N / 16; k++)
			product_rows<F>(
				y, weights[k], behind(values, k * 16 * CHUNK_ROW), k ? 1 : add);
		product_commit();
	}

	template <int N> __device__ __forceinline__ void keep_weights(const float (&s)[N])
	{
#pragma unroll
		for (int j = 0; j < N / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				weights[j][i] = both<F>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
	}
};

/* The scores of the first N keys of a tile, and the products of values of the tile before. FIRST:
 * there is none. */
template <bool FIRST, bool ENDS, int N, typename K, int D>
__device__ __forceinline__ void sum_tile(struct sums<K, D> &w, int at, int tile)
{
	float s[N / 2];
	bool grows;

	barrier_wait(full(w.b.k, at), at / STAGES & 1);
	take_turn(w.owner);
	w.start_scores(s, at);
	if (!FIRST) {
		barrier_wait(full(w.b.v, at - 1), (at - 1) / STAGES & 1);
		w.template start_sums<KEYS>(at - 1, tile > 1);
	}
	give_turn(1 - w.owner);
	product_wait<!FIRST>();
	results_from_here(s);
	arrive(free_again(w.b.k, at));
	grows = soften<ENDS>(s, w.m, w.scale, tile * KEYS);
	if (!FIRST) {
		product_wait<0>();
		results_from_here(w.y);
		arrive(free_again(w.b.v, at - 1));
		if (grows)
#pragma unroll
			for (int j = 0; j < D / 2; j++)
				w.y[j] *= w.m.shrink[j / 2 % 2];
	}
	w.keep_weights(s);
}

/* The values of the last tile. */
template <typename K, int D>
__device__ __forceinline__ void sum_last(
	const struct cuda_pages &p, struct sums<K, D> &w, const struct run &r, int at)
{
	const int keys = r.first + r.n;

	barrier_wait(full(w.b.v, at), at / STAGES & 1);
	if (keys % KEYS)
		clear_behind<D>(
			w.base + memory<K, D>::v + at % STAGES * memory<K, D>::tile, keys % KEYS);
	if (ends_in_half(r))
		w.template start_sums<KEYS / 2>(at, keys > KEYS);
	else
		w.template start_sums<KEYS>(at, keys > KEYS);
	product_wait<0>();
	results_from_here(w.y);
	arrive(free_again(w.b.v, at));
#pragma unroll
	for (int k = 0; k < 2; k++) {
		w.m.sum[k] += __shfl_xor_sync(0xffffffffu, w.m.sum[k], 1);
		w.m.sum[k] += __shfl_xor_sync(0xffffffffu, w.m.sum[k], 2);
		w.m.sum[k] = 1 / w.m.sum[k];
	}
#pragma unroll
	for (int j = 0; j < D / 2; j++)
		w.y[j] *= w.m.sum[j / 2 % 2];
	emit<D>(w.y, as<bf16>(p.y) + ((int64_t)r.row * p.heads + r.head + w.owner) * D,
		(int64_t)p.heads * D, 0, r.n, 1);
}

/* number, at: as in copy_run. */
template <typename K, int D>
__device__ __forceinline__ int sum_run(const struct cuda_pages &p, const struct run &r, int number,
	int at, uint32_t base, const struct barriers &b)
{
	const int owner = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0),
		  row = r.first + threadIdx.x / WARP % 4 * 16 + threadIdx.x % WARP / 4;
	const int tiles = (r.first + r.n + KEYS - 1) / KEYS,
		  whole = (r.first + 1) / KEYS, /* tiles of which all rows see all keys */
		  full_tiles = tiles - ends_in_half(r);
	const int group = r.head / (p.heads / p.groups);
	struct sums<K, D> w;
	int tile = 1;

	load_queries<D>(w.q, base + memory<K, D>::q + number % RUNS * memory<K, D>::own +
				     owner * TILE * CHUNK_ROW);
	w.base = base;
	w.b = b;
	w.owner = owner;
	w.beside = is_f8<K> ? group * D % CHUNK_ROW : 0;
	w.scale = p.scale * LOG2_E;
	w.m = {{MASKED, MASKED}, {0, 0}, {1, 1}, {row, row + 8}};
	sum_tile<true, true, KEYS>(w, at++, 0);
	for (; tile < whole; tile++)
		sum_tile<false, false, KEYS>(w, at++, tile);
	for (; tile < full_tiles; tile++)
		sum_tile<false, true, KEYS>(w, at++, tile);
	if (tile < tiles)
		sum_tile<false, true, KEYS / 2>(w, at++, tile);
	arrive(free_again(b.q, number));
	sum_last(p, w, r, at - 1);
	return at;
}

/* Registers of a thread of the last warp group, and of the others: of all three at most those that
 * the block begins with. */
template <typename K> struct registers {
	static constexpr int begin = 65536 / ((OWNERS + 1) * GROUP) / 8 * 8;
	static constexpr int copies = is_f8<K> ? 80 : 40, sums = is_f8<K> ? 208 : 232;
	static_assert(copies + OWNERS * sums <= (OWNERS + 1) * begin, "more would wait for ever");
};

/* writers: threads that fill a stage of values. */
__device__ __forceinline__ void init_barriers(const struct barriers &b, int writers)
{
	for (int i = 0; i < STAGES; i++) {
		barrier_init(full(b.k, i), 1);
		barrier_init(full(b.v, i), writers);
		barrier_init(full(b.q, i), 1);
		barrier_init(free_again(b.k, i), 4 * OWNERS);
		barrier_init(free_again(b.v, i), 4 * OWNERS);
		barrier_init(free_again(b.q, i), 4 * OWNERS);
	}
	barrier_publish();
}

template <typename K, int D>
__global__ void __launch_bounds__((OWNERS + 1) * GROUP, 1)
	runs_kernel(const __grid_constant__ struct maps map, const struct cuda_pages p)
{
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u,
		       begin = base + memory<K, D>::barriers;
	const struct barriers b = {begin, begin + 2 * STAGES * 8, begin + 4 * STAGES * 8};
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	int at = 0;

	if (threadIdx.x == 0)
		init_barriers(b, is_f8<K> ? GROUP : 1);
	__syncthreads();
	if (group == OWNERS) {
		fewer_registers<registers<K>::copies>();
		if (is_f8<K> || threadIdx.x < OWNERS * GROUP + WARP)
			copy_runs<K, D>(p, map, base, b);
		return;
	}
	more_registers<registers<K>::sums>();
	if (group)
		give_turn(0);
	for (int number = 0;; number++) {
		barrier_wait(full(b.q, number), number / RUNS & 1);
		const struct run r = told_run(base + memory<K, D>::runs + number % RUNS * 16);

		if (!r.n)
			return;
		at = sum_run<K, D>(p, r, number, at, base, b);
	}
}

template <typename K, int D>
static void start_runs(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	const unsigned items = (unsigned)(p->heads / OWNERS) * blocks_for(p->rows, TILE);
	const int shared = memory<K, D>::bytes;
	int device = 0, processors = 0;
	unsigned blocks;
	struct maps map;

	memcpy(&map, boxes, sizeof map);
	cudaGetDevice(&device);
	cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
	blocks = items < (unsigned)processors ? items : (unsigned)processors;
	cudaFuncSetAttribute(
		runs_kernel<K, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
	runs_kernel<K, D><<<blocks, (OWNERS + 1) * GROUP, shared, stream>>>(map, *p);
}

void cuda_attention_runs(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	if (p->f8)
		p->depth == 64 ? start_runs<e4m3, 64>(p, boxes, stream)
			       : start_runs<e4m3, 128>(p, boxes, stream);
	else
		p->depth == 64 ? start_runs<bf16, 64>(p, boxes, stream)
			       : start_runs<bf16, 128>(p, boxes, stream);
}
