/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in bf16 or f16, by the matrix units of compute capability 9.0. As in FlashAttention-3
 * (Shah et al., arXiv 2407.08608) scores stay in registers, and products run beside the softmax.
 *
 * A block stays on its multiprocessor and takes items one after the other: rows of a head, 64 for
 * each of two or three warp groups. Another warp group copies queries, keys and values to shared
 * memory, 128 keys at a time, ahead of those that multiply. While the weights of a tile are
 * computed from its scores, the product of the tile before with its values runs, and what other
 * warp groups multiply.
 *
 * Weights are 2^(score - base), where the base is the largest score of a row among the first 32
 * keys, in f16 MARGIN more, so that no maximum is searched for in later tiles and sums are not
 * scaled: bf16 and f32 reach 2^127, f16 from 2^-24 to 2^16. Where a sum of weights exceeds the
 * type's limit, the block computes the item again at its end, with the largest score so far as the
 * base. Heads of 64 sum the weights by the product with the values, which then have 8 columns of
 * ones behind them.
 */
#include <string.h>

#include "attention_forward.cuh"
#include "attention_forward.h"

#define SEEN  32   /* keys among which the base is searched for */
#define LIMIT	  1e19f	 /* of sums of weights */
#define LIMIT_F16 65504.f
#define MARGIN	  2.f /* of f16: weights among the first keys are at most 2^-MARGIN */
#define LN_2  0.6931471805599453f

/* ---- rows of a warp group -------------------------------------------------------------------- */

/* The tile of keys that a warp group is at, and its rows. */
struct spot {
	progress p;
	int item, tile, tiles, all; /* tiles: 0 = there are no rows; all: tiles of the block */
	int mine, row0;		    /* mine: whose tile of rows of the block */

	__device__ __forceinline__ bool first() const
	{
		return tile == 0;
	}

	__device__ __forceinline__ bool last() const
	{
		return tile == tiles - 1;
	}
};

template <class S> __device__ __forceinline__ bool is_item(const block<S> &b, const spot &w)
{
	return number_of(w.item) < b.f.items;
}

/* True if the warp group has rows there. */
template <class S> __device__ __forceinline__ bool has_rows(const block<S> &b, const spot &w)
{
	return is_item(b, w) && w.tiles;
}

/* To the next tile, or the next item, for whose queries this waits. Tiles that the rows do not see
 * are only released. The tile of rows changes from item to item, as they differ in length. */
template <class S, bool AGAIN>
__device__ __forceinline__ void go_on(const block<S> &b, int owner, spot &w)
{
	w.p.at++;
	w.tile++;
	if (w.tile < w.tiles)
		return;
	for (; w.tile < w.all; w.tile++, w.p.at++)
		for (int part = OF_KEYS; part <= OF_VALUES; part++) {
			b.wait_full(part, w.p.at);
			b.release(part, w.p.at);
		}
	w.tile = 0;
	w.p.turn++;
	w.item = item_after<AGAIN>(b.f, b.flags, w.item);
	if (!is_item(b, w))
		return;
	b.wait_full(OF_QUERIES, w.p.turn);

	const int row0 = __shfl_sync(0xffffffffu, told(b, w.p.turn).row0, 0);

	w.mine = (owner + (int)w.p.turn) % S::owners;
	w.row0 = row0 + w.mine * TILE;
	w.all = tiles_before(b.f, row0 + S::rows);
	w.tiles = w.row0 < b.f.seq ? tiles_before(b.f, w.row0 + TILE) : 0;
}

/* ---- products -------------------------------------------------------------------------------- */

#define ROWS_72(type)                                                                              \
	FROM_REGISTERS(type, 72, REGS_32 ", %32, %33, %34, %35", "36", "37", "38", "39", "40", "41")

/* As in hopper.cuh, with 72 columns. */
template <typename T>
__device__ __forceinline__ void product_rows(
	float (&d)[36], const uint32_t (&a)[4], uint64_t b, int add)
{
	BY_TYPE(ROWS_72, : OPERANDS_32("+f", 0), OPERANDS_4("+f", 32) : LEFT);
}

/* y = add y + weights values. The ones have 16 rows for all products, so the distance to them
 * shrinks. */
template <typename T, class S>
__device__ __forceinline__ void start_values(const block<S> &b, float (&y)[S::floats],
	const uint32_t (&weights)[KEYS / 16][4], unsigned at, int add)
{
	const uint32_t v = b.base + S::v + at % S::stages * S::tile,
		       low = matrix_low(v, S::ones ? b.base + S::one - v : KEYS * CHUNK_ROW);
	constexpr uint32_t step = S::ones ? CHUNK_ROW - ((uint32_t)CHUNK_ROW << 16) : CHUNK_ROW;

	product_fence();
#pragma unroll
	for (int k = 0; k < KEYS / 16; k++)
		product_rows<T>(y, weights[k], matrix_of(low + k * step), k ? 1 : add);
	product_commit();
}

/* s = queries keys^T */
template <typename T, class S>
__device__ __forceinline__ void start_scores(
	const block<S> &b, float (&s)[KEYS / 2], const spot &w)
{
	product_fence();
	multiply<S::D, T>(s, b.base + S::q + w.p.turn % TURNS * S::own + w.mine * S::row_tile,
		TILE, b.base + S::k + w.p.at % S::stages * S::tile, KEYS);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Of the two rows of a thread; the base is that of the exponents. `done`: of the item before. */
struct softmax {
	float base[2], sum[2], done_base[2], done_sum[2]; /* sums: where no products have them */
	float shrink[2];				  /* of what was summed so far */
};

/* The largest of the first `n` columns of both rows. */
__device__ __forceinline__ void largest(const float (&s)[KEYS / 2], int n, float (&ret)[2])
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[4 + 2 * r], s[5 + 2 * r]);
#pragma unroll
		for (int j = 8 + 2 * r; j < n / 2; j += 8) {
			a = fmaxf(a, fmaxf(s[j], s[j + 1]));
			b = fmaxf(b, fmaxf(s[j + 4], s[j + 5]));
		}
		a = fmaxf(a, b);
		a = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 1));
		ret[r] = fmaxf(a, __shfl_xor_sync(0xffffffffu, a, 2));
	}
}

/* Masks keys that a row does not see. */
__device__ __forceinline__ void mask(const forward &f, float (&s)[KEYS / 2], const spot &w)
{
	const int lane = threadIdx.x % WARP, column = w.tile * KEYS + lane % 4 * 2,
		  row = w.row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
	const int end[2] = {(f.causal ? min(f.keys, row + 1) : f.keys) - column,
		(f.causal ? min(f.keys, row + 9) : f.keys) - column};
#pragma unroll
	for (int j = 0; j < KEYS / 2; j++)
		if (j / 4 * 8 + j % 2 >= end[j / 2 % 2])
			s[j] = MASKED;
}

/* Sets the base. SAFE: the largest score so far. */
template <typename T, bool SAFE>
__device__ __forceinline__ void set_base(
	struct softmax &m, const float (&s)[KEYS / 2], float factor, bool first)
{
	float most[2];

	if (!SAFE && !first)
		return;
	largest(s, SAFE ? KEYS : SEEN, most);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		constexpr float margin = !SAFE && std::is_same<T, half>::value ? MARGIN : 0;
		const float base = most[r] * factor + margin;

		if (first) {
			m.done_base[r] = m.base[r], m.done_sum[r] = m.sum[r];
			m.base[r] = base, m.sum[r] = 0, m.shrink[r] = 1;
		} else {
			const float now = fmaxf(m.base[r], base);

			m.shrink[r] = exp2_of(m.base[r] - now);
			m.base[r] = now, m.sum[r] *= m.shrink[r];
		}
	}
}

/* Scores become weights. Those of 32 keys that no row sees are 0 without exponentials. What is
 * volatile stays before the wait for products, and in the registers of scores. */
template <bool SUM>
__device__ __forceinline__ void weigh(
	struct softmax &m, float (&s)[KEYS / 2], float factor, int seen)
{
	const float minus[2] = {-m.base[0], -m.base[1]};
#pragma unroll
	for (int j = 0; j < KEYS / 2; j += 16)
		if (2 * j < seen)
#pragma unroll
			for (int i = j; i < j + 16; i++) {
				asm volatile("{\n"
					     ".reg .f32 x;\n"
					     "fma.rn.f32 x, %0, %1, %2;\n"
					     "ex2.approx.ftz.f32 %0, x;\n"
					     "}"
					     : "+f"(s[i])
					     : "f"(factor), "f"(minus[i / 2 % 2]));
				if (SUM)
					asm volatile("add.f32 %0, %0, %1;"
						     : "+f"(m.sum[i / 2 % 2])
						     : "f"(s[i]));
			}
		else
#pragma unroll
			for (int i = j; i < j + 16; i++)
				asm volatile("mov.f32 %0, 0f00000000;" : "+f"(s[i]));
}

template <typename T, class S, bool SAFE>
__device__ __forceinline__ void soften(
	const forward &f, struct softmax &m, float (&s)[KEYS / 2], const spot &w)
{
	const float factor = f.scale * LOG2_E;
	const int end = f.causal ? min(f.keys, w.row0 + TILE) : f.keys;

	if (w.last() && (f.causal || f.keys % KEYS))
		mask(f, s, w);
	set_base<T, SAFE>(m, s, factor, w.first());
	weigh<!S::ones>(m, s, factor, end - w.tile * KEYS);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Writes the rows of an item. Where sums are out of range, flags it. */
template <typename T, class S, bool SAFE>
__device__ __forceinline__ void write(
	const block<S> &b, const spot &w, const struct softmax &m, float (&y)[S::floats])
{
	const note n = told(b, w.p.turn);
	const int lane = threadIdx.x % WARP, first = n.row0 + w.mine * TILE,
		  row = first + threadIdx.x / WARP % 4 * 16 + lane / 4;
	float *lse = b.f.lse + ((int64_t)n.batch * b.f.heads + n.head) * b.f.seq + row;
	constexpr float limit = std::is_same<T, half>::value ? LIMIT_F16 : LIMIT;
	bool fits = true;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float sum = S::ones ? y[S::floats - 4 + 2 * r] : m.done_sum[r];

		if (!S::ones) {
			sum += __shfl_xor_sync(0xffffffffu, sum, 1);
			sum += __shfl_xor_sync(0xffffffffu, sum, 2);
		}
		fits = fits && sum < limit;
		if (lane % 4 == 0 && row + 8 * r < b.f.seq)
			lse[8 * r] = (m.done_base[r] + log2f(sum)) * LN_2;
		sum = 1 / sum;
#pragma unroll
		for (int j = 2 * r; j < S::D / 2; j += 4)
			y[j] *= sum, y[j + 1] *= sum;
	}
	if (!SAFE && !fits)
		atomicOr(b.flags + w.item / 32 % FLAGS, 1u << w.item % 32);
	emit<S::D>(*reinterpret_cast<const float(*)[S::D / 2]>(&y[0]),
		static_cast<T *>(b.f.y) +
			((int64_t)n.batch * b.f.seq * b.f.heads + n.head) * S::D,
		(int64_t)b.f.heads * S::D, first, b.f.seq, 1);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* The product of a tile's weights with its values, beside it the scores of the next tile and their
 * weights. Returns whether there was a next one. */
template <typename T, class S, bool SAFE, bool AGAIN>
__device__ __forceinline__ bool step(const block<S> &b, int owner, spot &now, spot &next,
	struct softmax &m, float (&s)[KEYS / 2], float (&y)[S::floats],
	uint32_t (&weights)[KEYS / 16][4])
{
	const bool more = has_rows(b, next);

	if (more)
		b.wait_full(OF_KEYS, next.p.at);
	start_scores<T>(b, s, next); /* of any stage if there is no next one: nothing reads them */
	start_values<T>(b, y, weights, now.p.at, !now.first());
	product_wait<1>();
	results_from_here(s);
	if (more)
		b.release(OF_KEYS, next.p.at);
	if (more && next.last())
		b.release(OF_QUERIES, next.p.turn);
	soften<T, S, SAFE>(b.f, m, s, next);
	if (more) /* by its branch the exponentials stay before the wait for products */
		b.wait_full(OF_VALUES, next.p.at);
	product_wait<0>();
	results_from_here(y);
	b.release(OF_VALUES, now.p.at);
	if (now.last())
		write<T, S, SAFE>(b, now, m, y);
	else if (SAFE)
#pragma unroll
		for (int j = 0; j < S::floats; j++)
			y[j] *= m.shrink[j / 2 % 2];
	pack<T>(weights, s);
	now = next;
	if (more)
		go_on<S, AGAIN>(b, owner, next);
	return more;
}

/* A warp group that multiplies. Where it has no rows in an item, its products pause. */
template <typename T, class S, bool SAFE, bool AGAIN>
__device__ __forceinline__ void sum_items(const block<S> &b, int owner, progress &p)
{
	spot now = {{p.turn - 1, p.at - 1}, -1, -1}, next;
	float s[KEYS / 2], y[S::floats] = {};
	uint32_t weights[KEYS / 16][4];
	struct softmax m = {};

	for (go_on<S, AGAIN>(b, owner, now); is_item(b, now);) {
		if (!now.tiles) {
			b.release(OF_QUERIES, now.p.turn);
			now.tile = now.tiles - 1;
			now.p.at--;
			go_on<S, AGAIN>(b, owner, now);
			continue;
		}
		b.wait_full(OF_KEYS, now.p.at);
		start_scores<T>(b, s, now);
		product_wait<0>();
		results_from_here(s);
		b.release(OF_KEYS, now.p.at);
		if (now.last())
			b.release(OF_QUERIES, now.p.turn);
		next = now;
		go_on<S, AGAIN>(b, owner, next);
		soften<T, S, SAFE>(b.f, m, s, now);
		b.wait_full(OF_VALUES, now.p.at);
		pack<T>(weights, s);
		while (step<T, S, SAFE, AGAIN>(b, owner, now, next, m, s, y, weights))
			;
	}
	p = now.p;
}

/* After the first pass: whether the block has items to do again. */
template <class S> __device__ __forceinline__ bool again(const block<S> &b)
{
	__syncthreads();
	return __any_sync(0xffffffffu, b.flags[threadIdx.x % WARP]);
}

template <class S> __device__ __forceinline__ void init_barriers(const block<S> &b)
{
	for (int part = OF_KEYS; part <= OF_QUERIES; part++)
		for (int i = 0; i < (part == OF_QUERIES ? TURNS : S::stages); i++) {
			barrier_init(b.full(part, i), 1);
			barrier_init(b.empty(part, i), 4 * S::owners);
		}
	barrier_publish();
}

template <typename T, class S>
__global__ void __launch_bounds__((S::owners + 1) * GROUP, 1)
	forward_kernel(const __grid_constant__ maps map, const __grid_constant__ forward f)
{
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	unsigned char *memory = raw + (base - shared_at(raw));
	const block<S> b = {f, base, reinterpret_cast<unsigned *>(memory + S::flags)};
	const int owner = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
	progress p = {};

	if (threadIdx.x == 0)
		init_barriers(b);
	if (threadIdx.x < FLAGS)
		b.flags[threadIdx.x] = 0;
	for (int i = threadIdx.x; S::ones && i < 16 * CHUNK_ROW / 4; i += blockDim.x)
		reinterpret_cast<uint32_t *>(memory + S::one)[i] = both<T>(1, 1);
	shared_fence();
	__syncthreads();
	if (owner == S::owners) {
		fewer_registers<S::few>();
		if (threadIdx.x == S::owners * GROUP)
			copy_items<S, false>(b, map, p);
		if (again(b) && threadIdx.x == S::owners * GROUP)
			copy_items<S, true>(b, map, p);
	} else {
		more_registers<S::many>();
		sum_items<T, S, false, false>(b, owner, p);
		if (again(b))
			sum_items<T, S, true, true>(b, owner, p);
	}
}

template <typename T, int D>
static void start(const struct cuda_attention_forward *p, cudaStream_t stream)
{
	typedef shape<D> S;
	const int blocks = (int)blocks_for(p->seq, S::rows), items = blocks * p->heads * p->batch;
	const forward f = {p->batch, p->seq, p->keys, p->heads, p->groups, blocks, items, p->scale,
		p->causal, p->y, p->lse};
	maps map;

	memcpy(&map, &p->boxes, sizeof map);
	cudaFuncSetAttribute(
		forward_kernel<T, S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::bytes);
	forward_kernel<T, S><<<min(items, p->processors), (S::owners + 1) * GROUP, S::bytes,
		stream>>>(map, f);
}

void cuda_attention_forward(const struct cuda_attention_forward *p, cudaStream_t stream)
{
	if (p->type == CUDA_F16)
		p->depth == 64 ? start<half, 64>(p, stream) : start<half, 128>(p, stream);
	else
		p->depth == 64 ? start<bf16, 64>(p, stream) : start<bf16, 128>(p, stream);
}
