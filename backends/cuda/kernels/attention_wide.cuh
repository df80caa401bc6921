/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warp groups of attention_once.cuh for heads of 128. Those of keys have sums in 128 registers of a
 * thread, so scores and then the gradient of probabilities have the same 32, and ds is read from
 * shared memory for dk. That of queries computes dq in two halves.
 */
#ifndef JM_CUDA_ATTENTION_WIDE_CUH
#define JM_CUDA_ATTENTION_WIDE_CUH

#include "attention_tickets.cuh"

#define WIDTH 128

/* ---- dq -------------------------------------------------------------------------------------- */

/* Adds a part as threads hold it. */
__device__ __forceinline__ void wide_add(accumulators &dq, const float4 *share)
{
#pragma unroll
	for (int j = 0; j < PART / 8; j++) {
		const float4 x = share[j * GROUP];

		dq[4 * j] += x.x, dq[4 * j + 1] += x.y;
		dq[4 * j + 2] += x.z, dq[4 * j + 3] += x.w;
	}
}

/* Cosines and sines of columns 8 j to 8 j + 15 for both rows of a thread. */
struct wide_angles {
	float2 cosine[4], sine[4];
};

__device__ __forceinline__ void wide_angles_of(
	const struct tiles &t, wide_angles &to, int row0, int j)
{
	const int lane = threadIdx.x % WARP, row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const float *at = t.angles + (int64_t)min(row + i / 2 * 8, t.seq - 1) * PART +
				  lane % 4 * 2 + 8 * (j + i % 2);

		to.cosine[i] = *reinterpret_cast<const float2 *>(at);
		to.sine[i] = *reinterpret_cast<const float2 *>(at + (int64_t)t.seq * PART);
	}
}

/* turn_back of 16 columns in both halves. */
__device__ __forceinline__ void wide_turn(float (&low)[8], float (&high)[8], const wide_angles &by)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float *a = &low[i % 2 * 4 + i / 2 * 2], *b = &high[i % 2 * 4 + i / 2 * 2];
		const float2 was = make_float2(a[0], a[1]), c = by.cosine[i], s = by.sine[i];

		a[0] = was.x * c.x + b[0] * s.x;
		a[1] = was.y * c.y + b[1] * s.y;
		b[0] = b[0] * c.x - was.x * s.x;
		b[1] = b[1] * c.y - was.y * s.y;
	}
}

__device__ __forceinline__ void wide_read(float (&x)[8], const float4 *share)
{
#pragma unroll
	for (int k = 0; k < 2; k++) {
		const float4 s = share[k * GROUP];

		x[4 * k] = s.x, x[4 * k + 1] = s.y, x[4 * k + 2] = s.z, x[4 * k + 3] = s.w;
	}
}

/* Turns and writes dq from shared memory. Angles are asked for one step ahead. */
template <typename T>
__device__ __forceinline__ void wide_emit(
	const struct tiles &t, const float4 *share, T *to, int row0)
{
	wide_angles next;

	if (t.angles)
		wide_angles_of(t, next, row0, 0);
#pragma unroll 1
	for (int j = 0; j < PART / 8; j += 2) {
		const wide_angles now = next;
		float low[8], high[8];

		if (t.angles && j + 2 < PART / 8)
			wide_angles_of(t, next, row0, j + 2);
		wide_read(low, share + j * GROUP);
		wide_read(high, share + (j + PART / 8) * GROUP);
		if (t.angles)
			wide_turn(low, high, now);
		emit<16>(low, to + 8 * j, t.q.row, row0, t.seq, t.scale);
		emit<16>(high, to + PART + 8 * j, t.q.row, row0, t.seq, t.scale);
	}
}

/* The part of tile `at` from these keys: to shared memory, or with the sum from there to dq. */
template <typename T>
__device__ __forceinline__ void wide_part(const struct tiles &t, const once_tile &at, uint32_t ds,
	uint32_t k, float4 *share, T *grad)
{
#pragma unroll
	for (int part = 0; part < WIDTH / PART; part++) {
		float4 *to = share + part * (GROUP * PART / 8);
		accumulators dq = {};

		if (at.half)
			once_part<T, TILE>(dq, ds, k + part * (OWN * CHUNK_ROW / 16));
		else
			once_part<T, OWN>(dq, ds, k + part * (OWN * CHUNK_ROW / 16));
		if (at.last && !at.first)
			wide_add(dq, to);
		once_write(dq, to);
	}
	if (at.last)
		wide_emit<T>(t, share, grad, at.row0);
}

/* The warp group that computes dq. */
template <typename T>
__device__ __forceinline__ void wide_queries(const struct tiles &t, const struct once &o,
	unsigned char *memory, uint32_t base, const once_bars &bars)
{
	typedef once_memory<WIDTH> M;
	const int lane = threadIdx.x % WARP;
	const uint32_t k = matrix_low(base + M::k, 16), ds = matrix_low(base + M::ds, 16);
	float4 *shares = reinterpret_cast<float4 *>(memory + M::dq) + threadIdx.x % GROUP;
	once_place p;
	int done = 0;

	for (int w = 0; once_next<WIDTH>(t, o, memory, bars, w, &p); w++) {
		for (int i = 0; i < p.keys.total; i++, done++) {
			const int turn = done % M::turns, to = done % M::senders;
			const uint32_t full = bars.dq + to * 8;
			const once_tile at = once_tile_of(t, p, i);

			/* each phase is waited for: a barrier tells only two apart */
			wait_empty<M::senders>(full, done);
			if (at.last)
				barrier_wait(bars.got + to * 8, done / M::senders & 1);
			barrier_wait(bars.ds + turn * 8, done / M::turns & 1);
			wide_part<T>(t, at, ds + turn * (M::ds_tile / 16), k,
				shares + to * (M::dq_tile / 16),
				grad_of<T>(t.q, p.keys.batch, at.head * WIDTH));
			__syncwarp();
			if (lane == 0) {
				barrier_arrive(full);
				barrier_arrive(bars.ds + (M::turns + turn) * 8);
			}
		}
		if (lane == 0)
			barrier_arrive(bars.kv + (M::owns + w % M::owns) * 8);
	}
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

__device__ __forceinline__ float2 shared_pair(uint32_t at)
{
	float2 x;

	asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
	return x;
}

/* Leaves ds = p (dp - delta) in shared memory; to: fragment_at 0, delta: from this lane's on. */
template <typename T>
__device__ __forceinline__ void wide_leave(
	uint32_t to, const left_operand &p, const accumulators &dp, uint32_t delta)
{
#pragma unroll
	for (int j = 0; j < TILE / 16; j++) {
		uint32_t ds[4];
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float2 l = shared_pair(delta + 4 * (16 * j + i / 2 * 8));
			const float2 x = apart<T>(p[j][i]);

			ds[i] = both<T>(x.x * (dp[8 * j + 2 * i] - l.x),
				x.y * (dp[8 * j + 2 * i + 1] - l.y));
		}
		asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
			     :
			     : "r"(to ^ (j * 32)), "r"(ds[0]), "r"(ds[1]), "r"(ds[2]),
			     "r"(ds[3])
			     : "memory");
	}
}

/* Where a warp group finds its operands. */
struct wide_at {
	uint32_t base, own, ds, lane; /* own: base + the rows of the keys; ds: fragment_at 0 */
	int row0, group;
};

/* dk += ds q of the odd or even tile, both in shared memory */
template <typename T>
__device__ __forceinline__ void wide_keys_sum(
	const wide_at &at, float (&dk)[WIDTH / 2], int odd)
{
	typedef once_memory<WIDTH> M;
	const uint32_t a = matrix_low(at.own + M::ds + odd * M::ds_tile, 16),
		       b = matrix_low(at.base + M::q + odd * M::tile, TILE * CHUNK_ROW);

	asm volatile("bar.sync %0, 128;" ::"r"(1 + at.group) : "memory");
	product_fence();
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		product_stored<T>(dk, matrix_of(a + 2 * j), matrix_of(b + j * CHUNK_ROW));
	product_commit();
}

/* p = exp(s - lse), packed; 0 where a key is masked. */
template <typename T>
__device__ __forceinline__ void wide_probabilities(const struct tiles &t, const wide_at &at,
	accumulators &s, left_operand &p, uint32_t lse, int column0)
{
	const float factor = t.scale * LOG2_E;
#pragma unroll
	for (int j = 0; j < TILE / 8; j++) {
		const float2 l = shared_pair(lse + 32 * j);
#pragma unroll
		for (int i = 0; i < 4; i++)
			s[4 * j + i] = exp2_of(s[4 * j + i] * factor - (i % 2 ? l.y : l.x));
	}
	if (at.row0 + TILE > t.keys || (t.causal && column0 < at.row0 + TILE - 1)) {
		const int lane = threadIdx.x % WARP,
			  row = at.row0 + threadIdx.x / WARP % 4 * 16 + lane / 4,
			  column = t.causal ? column0 + lane % 4 * 2 : 1 << 30;
#pragma unroll
		for (int j = 0; j < TILE_FLOATS; j++)
			if (row + j / 2 % 2 * 8 >= min(t.keys, column + j / 4 * 8 + j % 2 + 1))
				s[j] = 0;
	}
	pack<T>(p, s);
}

/* Tile `i` of those of the block. The product of ds and the queries of the tile before runs beside
 * that of the scores; FIRST: there is none. */
template <typename T, bool FIRST>
__device__ __forceinline__ void wide_step(const struct tiles &t, const wide_at &at,
	const once_bars &bars, int i, int column0, float (&dk)[WIDTH / 2], float (&dv)[WIDTH / 2])
{
	typedef once_memory<WIDTH> M;
	const int odd = i & 1, parity = i >> 1 & 1;
	const uint32_t dy = at.base + M::dy + odd * M::tile;
	accumulators s;
	left_operand p;

	static_assert(M::ring == 2 && M::turns == 2, "turns are those of odd tiles");
	barrier_wait(bars.q + odd * 8, parity);
	product_fence();
	multiply<WIDTH, T>(s, at.own + M::k, OWN, at.base + M::q + odd * M::tile, TILE);
	if constexpr (!FIRST)
		wide_keys_sum<T>(at, dk, odd ^ 1);
	product_wait<0>();
	results_from_here(s);
	results_from_here(dk);
	__syncwarp();
	if (!FIRST && threadIdx.x % WARP == 0)
		barrier_arrive(bars.q + (M::ring + (odd ^ 1)) * 8);
	wide_probabilities<T>(t, at, s, p, at.base + M::lse + odd * TILE * 4 + at.lane, column0);
	barrier_wait(bars.dy + odd * 8, parity);
	product_fence();
	multiply<WIDTH, T>(s, at.own + M::v, OWN, dy, TILE);
	accumulate<T>(dv, p, dy, 1);
	product_wait<1>();
	results_from_here(s);
	__syncwarp();
	if (i >= M::turns)
		barrier_wait(bars.ds + (M::turns + odd) * 8, parity ^ 1);
	wide_leave<T>(at.ds + odd * M::ds_tile, p, s,
		at.base + M::delta + odd * TILE * 4 + at.lane);
	shared_fence();
	warp_arrive(bars.ds + odd * 8);
	product_wait<0>();
	results_from_here(dv);
	results_from_here(dk);
	if (threadIdx.x % WARP == 0)
		barrier_arrive(bars.dy + (M::ring + odd) * 8);
}

/* Tiles `i` to end - 1, which are those of `place`. */
template <typename T>
__device__ __forceinline__ void wide_sums(const struct tiles &t, const once_place &place,
	uint32_t base, const once_bars &bars, int i, int end, int mine, float (&dk)[WIDTH / 2],
	float (&dv)[WIDTH / 2])
{
	const uint32_t own = base + mine * CHUNK_ROW;
	const wide_at at = {base, own, fragment_at(own + once_memory<WIDTH>::ds, 0),
		threadIdx.x % 4 * 8, place.keys.row0 + mine, mine / TILE};
	const int per_group = place.keys.per_group;
	int column = once_queries_of(place, 0) * TILE, h = 0;

	wide_step<T, true>(t, at, bars, i, column, dk, dv);
	while (++i < end) {
		if (++h == per_group)
			h = 0, column -= TILE;
		wide_step<T, false>(t, at, bars, i, column, dk, dv);
	}
	wide_keys_sum<T>(at, dk, (end - 1) & 1);
}

/* Two warp groups, each of which sums dk and dv of 64 keys, those of the block from `mine` on. */
template <typename T>
__device__ __forceinline__ void wide_keys(const struct tiles &t, const struct once &o,
	const unsigned char *memory, uint32_t base, const once_bars &bars, int mine)
{
	typedef once_memory<WIDTH> M;
	const int lane = threadIdx.x % WARP;
	once_place at;
	int done = 0;

	for (int w = 0; once_next<WIDTH>(t, o, memory, bars, w, &at); w++) {
		const int todo =
			at.keys.total - (t.causal && mine ? at.keys.per_group : 0);
		float dk[WIDTH / 2] = {}, dv[WIDTH / 2] = {};

		if (todo)
			wide_sums<T>(t, at, base, bars, done, done + todo, mine, dk, dv);
		/* again, so that the loops above have more registers */
		once_next<WIDTH>(t, o, memory, bars, w, &at);

		const int left = t.causal && mine ? at.keys.per_group : 0,
			  row0 = at.keys.row0 + mine;

		done += at.keys.total;
		product_wait<0>();
		results_from_here(dk);
		__syncwarp();
		if (left < at.keys.total && lane == 0)
			barrier_arrive(bars.q + (M::ring + (done - left - 1) % M::ring) * 8);
		for (int i = done - left; i < done; i++)
			once_pass<WIDTH>(bars, i);
		if (lane == 0)
			barrier_arrive(bars.kv + (M::owns + w % M::owns) * 8);
		emit<WIDTH>(dv, grad_of<T>(t.v, at.keys.batch, at.keys.group * WIDTH), t.v.row,
			row0, t.keys, 1);
		turn_back<WIDTH>(t, dk, row0);
		emit<WIDTH>(dk, grad_of<T>(t.k, at.keys.batch, at.keys.group * WIDTH), t.k.row,
			row0, t.keys, t.scale);
	}
}

#endif
