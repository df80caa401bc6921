/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of attention in bf16 or f16, by the matrix units of compute capability 9.0. Queries,
 * keys and values are columns of the rows of three tensors, or of one. As in FlashAttention, scores
 * are computed again in tiles and never written to memory. Two kernels compute them, so that no sum
 * is split over blocks and each has one order:
 *
 *	dq	 a block owns queries and loops over tiles of keys: dq += ds k
 *	dkv	 a block owns keys and loops over tiles of queries of all heads of the group: dv +=
 *		p dy, dk += ds q
 *	with p = exp(scale q k - lse), ds = p (dy v - delta), delta = sum over D of dy y; the scale
 *	of ds is applied to the sums
 *
 * One thread of a block copies tiles to shared memory; warp groups of four warps own 64 rows each
 * and multiply. The accumulators of one product have the layout of the left operand of the next, so
 * that p and ds stay in registers: a thread holds rows lane / 4 and lane / 4 + 8 of its warp's 16,
 * and of each 8 columns those at lane % 4 * 2 and the next. Where D = 256 the sums of keys and
 * values do not fit into one warp group: the first computes p and dv, and gives p to the second,
 * which computes ds and dk (pair_kernel). Where D = 64 or 128, one kernel may do the work of both
 * (attention_once.cuh).
 */
#include <string.h>

#include "attention_last.cuh"

#define OWNERS	   2  /* warp groups of a block that own queries or keys; another one copies */
#define LEAST_SIDE 16 /* causal heads in turn, so that the ticket for which one waits is ahead */
#define FEW_TICKETS 2640 /* 2 x 10 x 132 blocks; not the GPU's number, so that bits are the same */

/* ---- queries: scores have queries as rows, keys as columns ----------------------------------- */

/* A block's queries, and the number of tiles of keys over which it loops. */
struct queries_place {
	int batch, head, all_head, group, row0, total;
};

template <int ROWS_OF_BLOCK>
__device__ __forceinline__ queries_place queries_of(const struct tiles &t)
{
	const int tiles = (t.seq + ROWS_OF_BLOCK - 1) / ROWS_OF_BLOCK,
		  all = (t.keys + TILE - 1) / TILE;
	queries_place p;
	int tile;

	place(t, tiles, t.heads, &tile, &p.all_head);
	p.batch = p.all_head / t.heads;
	p.head = p.all_head % t.heads;
	p.group = p.head / (t.heads / t.groups);
	p.row0 = (tiles - 1 - tile) * ROWS_OF_BLOCK;
	p.total = t.causal ? min(all, (p.row0 + ROWS_OF_BLOCK) / TILE) : all;
	return p;
}

template <int D, int K_STAGES, int V_STAGES> struct queries_memory {
	static constexpr int rows = OWNERS * TILE, own = rows * D * 2, tile = TILE * D * 2;
	static constexpr int q = 0, dy = own, k = 2 * own, v = k + K_STAGES * tile,
			     barriers = v + V_STAGES * tile;
	static constexpr int bytes = barriers + 256 + 1024;
};

template <class M, int D, int K_STAGES, int V_STAGES>
__device__ __forceinline__ void queries_copy(const struct tiles &t, const queries_place &p,
	const struct boxes &map, uint32_t base, uint32_t k_full, uint32_t v_full, uint32_t start)
{
	barrier_expect(start, 2 * M::own);
	for (int r = 0; r < M::rows; r += TILE) {
		copy_tile<D>(base + M::q + r * CHUNK_ROW, M::rows, &map.q, p.head * D,
			p.row0 + r, p.batch, start);
		copy_tile<D>(base + M::dy + r * CHUNK_ROW, M::rows, &map.dy, p.head * D,
			p.row0 + r, p.batch, start);
	}
	for (int i = 0; i < p.total; i++) {
		const int k = i % K_STAGES, v = i % V_STAGES;

		if (i >= K_STAGES)
			barrier_wait(k_full + (K_STAGES + k) * 8, (i / K_STAGES - 1) & 1);
		barrier_expect(k_full + k * 8, M::tile);
		copy_tile<D>(base + M::k + k * M::tile, TILE, &map.k, p.group * D,
			i * TILE, p.batch, k_full + k * 8);
		if (i >= V_STAGES)
			barrier_wait(v_full + (V_STAGES + v) * 8, (i / V_STAGES - 1) & 1);
		barrier_expect(v_full + v * 8, M::tile);
		copy_tile<D>(base + M::v + v * M::tile, TILE, &map.v, p.group * D,
			i * TILE, p.batch, v_full + v * 8);
	}
}

/* s = exp(s - lse) of the rows from `row` on and the keys from column0 on */
__device__ __forceinline__ void queries_probabilities(
	const struct tiles &t, accumulators &s, const float (&lse)[2], int row0, int column0)
{
	const int lane = threadIdx.x % WARP, row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	const float factor = t.scale * LOG2_E;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++)
		s[j] = exp2_of(s[j] * factor - lse[j / 2 % 2]);
	if (!(t.causal && column0 + TILE > row0 + 1) && column0 + TILE <= t.keys)
		return;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++) {
		const int key = column0 + j / 4 * 8 + lane % 4 * 2 + j % 2;

		if (key >= t.keys || (t.causal && key > row + j / 2 % 2 * 8))
			s[j] = 0;
	}
}

/* Loops over the tiles that the warp group needs, whose queries are those from `mine` on of the
 * block. Returns their number. */
template <class M, typename T, int D, int K_STAGES, int V_STAGES>
__device__ __forceinline__ int queries_sums(const struct tiles &t, const queries_place &p,
	uint32_t base, uint32_t k_full, uint32_t v_full, int mine, float (&dq)[D / 2])
{
	const int lane = threadIdx.x % WARP, row0 = p.row0 + mine;
	const int todo = t.causal ? min(p.total, row0 / TILE + 1) : p.total;
	const int row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	float lse[2] = {}, delta[2] = {};
	int i = 0;

	for (int half = 0; half < 2; half++)
		if (row + half * 8 < t.padded) {
			lse[half] = t.lse[(int64_t)p.all_head * t.padded + row + half * 8];
			delta[half] = t.delta[(int64_t)p.all_head * t.padded + row + half * 8];
		}
	do {
		const int k = i % K_STAGES, v = i % V_STAGES, last = (i + K_STAGES - 1) % K_STAGES;
		accumulators s, dp;
		left_operand ds;

		barrier_wait(k_full + k * 8, i / K_STAGES & 1);
		product_fence();
		multiply<D, T>(s, base + M::q + mine * CHUNK_ROW, M::rows,
			base + M::k + k * M::tile, TILE);
		barrier_wait(v_full + v * 8, i / V_STAGES & 1);
		product_wait<1>();
		if (lane == 0 && i)
			barrier_arrive(k_full + (K_STAGES + last) * 8);
		product_fence();
		multiply<D, T>(dp, base + M::dy + mine * CHUNK_ROW, M::rows,
			base + M::v + v * M::tile, TILE);
		product_wait<1>();
		results_from_here(s);
		queries_probabilities(t, s, lse, row0, i * TILE);
		product_wait<0>();
		results_from_here(dp);
		if (lane == 0)
			barrier_arrive(v_full + (V_STAGES + v) * 8);
#pragma unroll
		for (int j = 0; j < TILE_FLOATS; j++)
			s[j] *= dp[j] - delta[j / 2 % 2];
		pack<T>(ds, s);
		accumulate<T>(dq, ds, base + M::k + k * M::tile, i > 0);
	} while (++i < todo);
	product_wait<0>();
	results_from_here(dq);
	if (lane == 0)
		barrier_arrive(k_full + (K_STAGES + (todo - 1) % K_STAGES) * 8);
	return todo;
}

template <typename T, int D, int K_STAGES, int V_STAGES>
__global__ void __launch_bounds__((OWNERS + 1) * GROUP, 1)
	dq_kernel(const __grid_constant__ struct boxes map, const struct tiles t)
{
	typedef queries_memory<D, K_STAGES, V_STAGES> M;
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const uint32_t k_full = base + M::barriers, v_full = k_full + 2 * K_STAGES * 8,
		       start = v_full + 2 * V_STAGES * 8;
	const queries_place p = queries_of<M::rows>(t);
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	float dq[D / 2];

	if (threadIdx.x == 0) {
		for (int i = 0; i < 2 * K_STAGES; i++)
			barrier_init(k_full + i * 8, i < K_STAGES ? 1 : 4 * OWNERS);
		for (int i = 0; i < 2 * V_STAGES; i++)
			barrier_init(v_full + i * 8, i < V_STAGES ? 1 : 4 * OWNERS);
		barrier_init(start, 1);
		barrier_publish();
	}
	__syncthreads();
	if (group == OWNERS) {
		fewer_registers<24>();
		if (threadIdx.x == OWNERS * GROUP)
			queries_copy<M, D, K_STAGES, V_STAGES>(
				t, p, map, base, k_full, v_full, start);
		return;
	}
	more_registers<240>();
	barrier_wait(start, 0);
	int i = queries_sums<M, T, D, K_STAGES, V_STAGES>(
		t, p, base, k_full, v_full, group * TILE, dq);
	for (; i < p.total; i++) { /* tiles that only warp groups of later queries need */
		barrier_wait(k_full + i % K_STAGES * 8, i / K_STAGES & 1);
		barrier_wait(v_full + i % V_STAGES * 8, i / V_STAGES & 1);
		__syncwarp();
		if (threadIdx.x % WARP == 0) {
			barrier_arrive(k_full + (K_STAGES + i % K_STAGES) * 8);
			barrier_arrive(v_full + (V_STAGES + i % V_STAGES) * 8);
		}
	}
	turn_back<D>(t, dq, p.row0 + group * TILE);
	emit<D>(dq, grad_of<T>(t.q, p.batch, p.head * D), t.q.row,
		p.row0 + group * TILE, t.seq, t.scale);
}

/* ---- delta, and lse in the unit that the kernels above take ---------------------------------- */

struct rows_of {
	int seq, heads, padded;
	const void *y, *dy;
	const float *lse;
	float *scaled, *delta;
	int *counts; /* n_counts of them are set to 0 */
	int64_t n_counts;
};

#define PACKS 2 /* of a thread, 8 columns each */

/* After the end of a sequence lse is infinite, so that p is 0. blocks: of a sequence */
template <typename T, int D> __global__ void rows_kernel(struct rows_of p, int blocks)
{
	constexpr int lanes = D / PACK;
	const int b = blockIdx.x / blocks, columns = p.heads * lanes,
		  first = blockIdx.x % blocks * (int)blockDim.x * PACKS + (int)threadIdx.x;
	const int64_t thread = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	const uint4 *y = static_cast<const uint4 *>(p.y) + (int64_t)b * p.seq * columns,
		    *dy = static_cast<const uint4 *>(p.dy) + (int64_t)b * p.seq * columns;
	uint4 all[PACKS][2] = {};

	if (thread < p.n_counts)
		p.counts[thread] = 0;
#pragma unroll
	for (int i = 0; i < PACKS; i++) {
		const int at = first + i * (int)blockDim.x;

		if (at < p.seq * columns)
			all[i][0] = y[at], all[i][1] = dy[at];
	}
#pragma unroll
	for (int i = 0; i < PACKS; i++) {
		const int at = first + i * (int)blockDim.x, s = at / columns;
		float a[PACK], c[PACK], sum = 0;

		load(reinterpret_cast<const T *>(&all[i][0]), a);
		load(reinterpret_cast<const T *>(&all[i][1]), c);
#pragma unroll
		for (int j = 0; j < PACK; j++)
			sum += a[j] * c[j];
#pragma unroll
		for (int j = lanes / 2; j; j /= 2)
			sum += __shfl_xor_sync(0xffffffffu, sum, j, lanes);
		if (at % lanes == 0 && s < p.padded) {
			const int64_t row = (int64_t)b * p.heads + at % columns / lanes,
				      to = row * p.padded + s;

			p.delta[to] = sum;
			p.scaled[to] = s < p.seq ? p.lse[row * p.seq + s] * LOG2_E : INFINITY;
		}
	}
}

/* ---- starting -------------------------------------------------------------------------------- */

template <class M, class K>
static void start(K kernel, const struct cuda_attention_tiles *p, const struct tiles &t, int rows,
	int heads, cudaStream_t stream)
{
	struct boxes map;

	memcpy(&map, &p->boxes, sizeof map);
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, M::bytes);
	kernel<<<blocks_for(rows, M::rows) * (unsigned)(heads * t.batch), (OWNERS + 1) * GROUP,
		M::bytes, stream>>>(map, t);
}

template <typename T, int D, int K_STAGES, int V_STAGES>
static void start_queries(
	const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	start<queries_memory<D, K_STAGES, V_STAGES>>(
		dq_kernel<T, D, K_STAGES, V_STAGES>, p, t, t.seq, t.heads, stream);
}

template <typename T, int D, int STAGES>
static void start_keys(
	const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	if constexpr (D > 128)
		start<keys_memory<D, 1, STAGES>>(
			pair_kernel<T, D, STAGES>, p, t, t.keys, t.groups, stream);
	else
		start<keys_memory<D, 2, STAGES>>(
			dkv_kernel<T, D, STAGES>, p, t, t.keys, t.groups, stream);
}

template <typename T, int D>
static void start_rows(
	const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	const int64_t packs = (int64_t)t.padded * t.heads * (D / PACK);
	const unsigned blocks = blocks_for(packs, 256 * PACKS);
	const struct rows_of rows = {t.seq, t.heads, t.padded, p->y, p->dy, p->lse,
		const_cast<float *>(t.lse), const_cast<float *>(t.delta), p->once.counts,
		p->once.n_counts};

	rows_kernel<T, D><<<blocks * (unsigned)t.batch, 256, 0, stream>>>(rows, (int)blocks);
}

static struct once shared_of(const struct cuda_attention_tiles *p, int side)
{
	return {p->once.sums, p->once.counts + 1, p->once.counts, p->once.slots, side,
		(int)blocks_for(p->keys, OWN) * p->groups * p->batch};
}

template <int D, class K>
static void start_once(K kernel, const struct cuda_attention_tiles *p, const struct tiles &t,
	int side, cudaStream_t stream)
{
	typedef once_memory<D> M;
	struct boxes map;

	memcpy(&map, &p->boxes, sizeof map);
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, M::bytes);
	kernel<<<p->once.blocks, 4 * GROUP, M::bytes, stream>>>(map, t, shared_of(p, side));
}

/* Of a causal head's n (n + 1) / 2 parts its longest ticket has n: over 1/10 of a block's work? */
static bool begins_with_longest(const struct cuda_attention_tiles *p)
{
	const int64_t tickets = blocks_for(p->keys, OWN);

	return p->causal && p->batch * p->groups * (tickets + 1) < FEW_TICKETS;
}

template <typename T>
static void start_all(
	const struct cuda_attention_tiles *p, const struct tiles &t, cudaStream_t stream)
{
	const int side = t.causal ? max(p->once.side, LEAST_SIDE) : p->once.side;

	if (p->once.sums && p->depth == 128) {
		start_rows<T, 128>(p, t, stream);
		start_once<128>(once_kernel<T, 128>, p, t, side, stream);
	} else if (p->once.sums) {
		start_rows<T, 64>(p, t, stream);
		if (begins_with_longest(p))
			start_once<64>(once_kernel<T, 64>, p, t, side, stream);
		else
			start_once<64>(last_kernel<T>, p, t, p->once.side, stream);
	} else if (p->depth == 64) {
		start_rows<T, 64>(p, t, stream);
		start_queries<T, 64, 4, 4>(p, t, stream);
		start_keys<T, 64, 4>(p, t, stream);
	} else if (p->depth == 128) {
		start_rows<T, 128>(p, t, stream);
		start_queries<T, 128, 3, 2>(p, t, stream);
		start_keys<T, 128, 2>(p, t, stream);
	} else {
		start_rows<T, 256>(p, t, stream);
		start_queries<T, 256, 2, 1>(p, t, stream);
		start_keys<T, 256, 2>(p, t, stream);
	}
}

void cuda_attention_tiles(const struct cuda_attention_tiles *p, cudaStream_t stream)
{
	const int64_t padded = cuda_attention_padded(p->seq), rows = p->batch * p->heads * padded;
	const struct tiles t = {p->batch, p->seq, p->keys, p->heads, p->groups, (int)padded,
		p->scale, p->causal, p->rows, p->rows + rows, p->part[0], p->part[1], p->part[2],
		p->angles};

	p->type == CUDA_F16 ? start_all<half>(p, t, stream) : start_all<bf16>(p, t, stream);
}
