/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with heads of 512 in bf16 or f16, not causal, by the matrix units of compute capability
 * 9.0. Scores stay in registers.
 *
 * A pair of blocks takes 128 queries, 64 for each of two warp groups. A block sums half of the
 * columns of the result, and computes the weights of every other tile of 64 keys, which it copies
 * to the other block. While one warp group computes weights, the other one multiplies. A thread
 * copies keys and values to a ring of pieces of 16 KB: 128 columns of a tile's keys, or 256 columns
 * of 32 values.
 *
 * Weights are 2^(score - base), where the base of a row is the largest score of the first tile, and
 * of a later tile where that is more than GROWTH larger; then what was summed is scaled.
 */
#include <string.h>

#include "attention_512.h"
#include "backends/cuda/kernels/tiles.cuh"

#define WIDTH  512
#define HALF   256 /* columns that a block sums */
#define ROWS   128 /* of a pair */
#define STAGES 4   /* pieces of the ring */
#define PIECE  16384
#define DEPTHS 128 /* columns of a piece of keys */
#define VALUES CUDA_ATTENTION_512_VALUES /* rows of a piece of values */
#define GROWTH 8.f /* weights are at most 2^GROWTH */
#define LN_2   0.6931471805599453f

/* Bytes of shared memory. Those of two have one for tiles of each block, or for each warp group. */
enum {
	CHUNK = ROWS * CHUNK_ROW, /* 64 columns of all rows */
	PART = TILE * CHUNK_ROW,  /* those of a warp group */
	AT_Q = 0,
	AT_WEIGHTS = AT_Q + WIDTH / 64 * CHUNK, /* two */
	AT_RING = AT_WEIGHTS + 2 * CHUNK,
	AT_BASES = AT_RING + STAGES * PIECE, /* two */
	AT_SUMS = AT_BASES + 2 * ROWS * 4,   /* of the other block */
	AT_FULL = AT_SUMS + ROWS * 4,	     /* barriers */
	AT_EMPTY = AT_FULL + STAGES * 8,
	AT_QUERIES = AT_EMPTY + STAGES * 8,
	AT_BASE = AT_QUERIES + 8,  /* two: the other block's base is here, */
	AT_READY = AT_BASE + 16,   /* its weights are, */
	AT_READ = AT_READY + 16,   /* and it has read those of this block */
	BYTES = AT_READ + 16 + 1024
};

struct maps {
	CUtensorMap q, k, v;
};

struct wide {
	int seq, keys, heads, groups, tiles; /* tiles: of keys */
	float scale;
	void *y;
	float *lse;
};

/* ---- pairs of blocks ------------------------------------------------------------------------- */

__device__ __forceinline__ int rank_in_pair()
{
	int r;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}

__device__ __forceinline__ void meet_pair()
{
	asm volatile("barrier.cluster.arrive.release;\n"
		     "barrier.cluster.wait.acquire;" ::
			     : "memory");
}

/* The place in a block of the pair. */
__device__ __forceinline__ uint32_t address_in(uint32_t at, int block)
{
	uint32_t there;

	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
	return there;
}

/* `there`: by address_in */
__device__ __forceinline__ void arrive_there(uint32_t there)
{
	asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there)
		     : "memory");
}

__device__ __forceinline__ void set_there(uint32_t there, float x)
{
	asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
}

/* barrier_wait for arrivals of both blocks */
__device__ __forceinline__ void wait_pair(uint32_t bar, int parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
		     "@done bra over;\n"
		     "bra again;\n"
		     "over:\n"
		     "}" ::"r"(bar), "r"(parity)
		     : "memory");
}

/* Copies to another block, whose barrier counts the bytes. */
__device__ __forceinline__ void copy_there(uint32_t there, uint32_t from, int bytes, uint32_t bar)
{
	asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
		     "[%0], [%1], %2, [%3];" ::"r"(there),
		     "r"(from), "r"(bytes), "r"(bar)
		     : "memory");
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* `at`: pieces so far */
struct ring {
	uint32_t base;
	unsigned at;

	__device__ __forceinline__ uint32_t piece() const
	{
		return base + AT_RING + at % STAGES * PIECE;
	}

	__device__ __forceinline__ uint32_t full() const
	{
		return base + AT_FULL + at % STAGES * 8;
	}

	__device__ __forceinline__ void wait_full() const
	{
		barrier_wait(full(), at / STAGES & 1);
	}

	/* Until the piece may be written; then its bytes are expected. */
	__device__ __forceinline__ void begin() const
	{
		if (at >= STAGES)
			barrier_wait(base + AT_EMPTY + at % STAGES * 8, (at / STAGES - 1) & 1);
		barrier_expect(full(), PIECE);
	}

	/* A warp needs piece `i` no longer. */
	__device__ __forceinline__ void release(unsigned i) const
	{
		__syncwarp();
		if (threadIdx.x % WARP == 0)
			barrier_arrive(base + AT_EMPTY + i % STAGES * 8);
	}
};

/* What the thread that copies is at. */
struct source {
	const CUtensorMap *k, *v;
	int batch, column; /* of the head */
};

__device__ __forceinline__ void copy_keys(const struct source &s, struct ring &r, int tile)
{
#pragma unroll 1
	for (int c = 0; c < WIDTH; c += DEPTHS, r.at++) {
		r.begin();
		for (int i = 0; i < DEPTHS; i += 64)
			copy_box(r.piece() + i / 64 * TILE * CHUNK_ROW, s.k, s.column + c + i,
				tile * TILE, s.batch, r.full());
	}
}

__device__ __forceinline__ void copy_values(
	const struct source &s, struct ring &r, int tile, int rank)
{
#pragma unroll 1
	for (int i = 0; i < TILE; i += VALUES, r.at++) {
		r.begin();
		for (int c = 0; c < HALF; c += 64)
			copy_box(r.piece() + c / 64 * VALUES * CHUNK_ROW, s.v,
				s.column + rank * HALF + c, tile * TILE + i, s.batch, r.full());
	}
}

/* In the order in which sum_keys reads. */
__device__ __forceinline__ void copy_all(
	const struct wide &f, const struct source &s, uint32_t base, int rank)
{
	struct ring r = {base, 0};
	int summed = 0;

	for (int tile = rank; tile < f.tiles; tile += 2) {
		copy_keys(s, r, tile);
		for (; summed <= tile; summed++)
			copy_values(s, r, summed, rank);
	}
	for (; summed < f.tiles; summed++)
		copy_values(s, r, summed, rank);
}

__device__ __forceinline__ void copy_queries(
	const CUtensorMap *map, uint32_t base, int column, int row, int batch)
{
	const uint32_t full = base + AT_QUERIES;

	barrier_expect(full, ROWS * WIDTH * 2);
	for (int r = 0; r < ROWS; r += TILE)
		copy_tile<WIDTH>(base + AT_Q + r * CHUNK_ROW, ROWS, map, column, row + r, batch,
			full);
}

/* ---- products -------------------------------------------------------------------------------- */

#define STORED_256(type)                                                                           \
	"{\n"                                                                                      \
	".reg .pred add;\n"                                                                        \
	"setp.ne.b32 add, %130, 0;\n" WGMMA(256, type) "{" REGS_128                                \
	"}, %128, %129, add, 1, 1, 0, 1;\n"                                                        \
	"}"

/* d[64,256] = add d + a[64,16] b[16,256], both in shared memory */
template <typename T>
__device__ __forceinline__ void product_stored(float (&d)[128], uint64_t a, uint64_t b, int add)
{
	BY_TYPE(STORED_256, : OPERANDS_64("+f", 0), OPERANDS_64("+f", 64)
		: "l"(a), "l"(b), "r"(add));
}

/* The products of the piece before have ended. */
template <int N> __device__ __forceinline__ void leave_piece(struct ring &r, bool was)
{
	product_wait<N>();
	if (was)
		r.release(r.at - 1);
}

/* s = queries keys^T */
template <typename T>
__device__ __forceinline__ void sum_scores(accumulators &s, uint32_t queries, struct ring &r)
{
	const uint32_t q = matrix_low(queries, 16);
#pragma unroll
	for (int c = 0; c < WIDTH; c += DEPTHS) {
		const uint32_t k = matrix_low(r.piece(), 16);

		r.wait_full();
		product_fence();
#pragma unroll
		for (int i = 0; i < DEPTHS; i += 16) {
			const uint64_t a = matrix_of(q + ((c + i) / 64 * CHUNK + i % 64 * 2) / 16),
				       b = matrix_of(k + (i / 64 * PART + i % 64 * 2) / 16);

			c + i ? product_next<T>(s, a, b) : product_first<T>(s, a, b);
		}
		product_commit();
		leave_piece<1>(r, c);
		r.at++;
	}
	leave_piece<0>(r, true);
	results_from_here(s);
}

/* y = add y + weights values */
template <typename T>
__device__ __forceinline__ void sum_values(
	float (&y)[HALF / 2], uint32_t weights, struct ring &r, int add)
{
	const uint32_t w = matrix_low(weights, 16);
#pragma unroll
	for (int p = 0; p < TILE; p += VALUES) {
		const uint32_t v = matrix_low(r.piece(), VALUES * CHUNK_ROW);

		r.wait_full();
		product_fence();
#pragma unroll
		for (int i = 0; i < VALUES; i += 16)
			product_stored<T>(y, matrix_of(w + (p + i) * 2 / 16),
				matrix_of(v + i / 16 * CHUNK_ROW), p + i ? 1 : add);
		product_commit();
		leave_piece<1>(r, p);
		r.at++;
	}
	leave_piece<0>(r, true);
	results_from_here(y);
}

/* ---- weights --------------------------------------------------------------------------------- */

__device__ __forceinline__ float shared_float(uint32_t at)
{
	float x;

	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
	return x;
}

__device__ __forceinline__ void set_shared(uint32_t at, float x)
{
	asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
}

/* What a warp group works on; `row`: the first one of a thread, which has row + 8, too. */
struct place {
	uint32_t base; /* of shared memory */
	int rank, group, row;

	/* A barrier of the warp group. */
	__device__ __forceinline__ uint32_t bar(int at) const
	{
		return base + at + group * 8;
	}

	__device__ __forceinline__ uint32_t there(uint32_t at) const
	{
		return address_in(at, rank ^ 1);
	}

	__device__ __forceinline__ uint32_t base_at(int tile, int r) const
	{
		return base + AT_BASES + (tile % 2 * ROWS + row + 8 * r) * 4;
	}

	__device__ __forceinline__ uint32_t weights(int tile) const
	{
		return base + AT_WEIGHTS + tile % 2 * CHUNK + group * PART;
	}
};

/* Of the two rows of a thread. */
struct rows {
	float sum[2], of[2]; /* of weights whose base is `of` */
	float base[2];	     /* of y */
};

/* The bases of a tile: those of the tile before, which the other block sets, or the largest
 * scores. */
__device__ __forceinline__ void set_base(
	const struct place &p, int tile, const accumulators &s, float factor, float (&ret)[2])
{
	const int lane = threadIdx.x % WARP;

	if (tile)
		wait_pair(p.bar(AT_BASE), (tile - 1) / 2 & 1);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float most = fmaxf(s[2 * r], s[2 * r + 1]), before = 0;
#pragma unroll
		for (int j = 4 + 2 * r; j < TILE_FLOATS; j += 4)
			most = fmaxf(most, fmaxf(s[j], s[j + 1]));
		most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
		most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) * factor;
		if (tile)
			before = shared_float(p.base_at(tile - 1, r));
		ret[r] = tile && !(most > before + GROWTH) ? before : most;
		if (lane % 4 == 0) {
			set_shared(p.base_at(tile, r), ret[r]);
			set_there(p.there(p.base_at(tile, r)), ret[r]);
		}
	}
	__syncwarp();
	if (lane == 0)
		arrive_there(p.there(p.bar(AT_BASE)));
}

/* Keys behind the last one have no weight. */
__device__ __forceinline__ void mask(const struct wide &f, accumulators &s, int tile)
{
	const int end = f.keys - tile * TILE - threadIdx.x % 4 * 2;
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++)
		if (j / 4 * 8 + j % 2 >= end)
			s[j] = MASKED;
}

/* Writes the weights of a tile to shared memory of both blocks. */
__device__ __forceinline__ void leave_weights(
	const struct place &p, int tile, const left_operand &w)
{
	const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP % 4 * 16 + lane % 16;
	const uint32_t from = p.weights(tile),
		       to = from + row * CHUNK_ROW + ((lane / 16) ^ (row % 8)) * 16;
#pragma unroll
	for (int j = 0; j < TILE / 16; j++)
		asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
				     to ^ (j * 32)),
			     "r"(w[j][0]), "r"(w[j][1]), "r"(w[j][2]), "r"(w[j][3])
			     : "memory");
	shared_fence();
	asm volatile("bar.sync %0, %1;" ::"r"(1 + p.group), "n"(GROUP) : "memory");
	if (threadIdx.x % GROUP == 0)
		copy_there(p.there(from), from, PART, p.there(p.bar(AT_READY)));
}

/* The weights of a tile from its scores. */
template <typename T>
__device__ __forceinline__ void weigh(
	const struct wide &f, const struct place &p, int tile, accumulators &s, struct rows &m)
{
	const float factor = f.scale * LOG2_E;
	left_operand w;
	float now[2];

	if ((tile + 1) * TILE > f.keys)
		mask(f, s, tile);
	if (tile >= 2)
		wait_pair(p.bar(AT_READ), (tile / 2 - 1) & 1);
	set_base(p, tile, s, factor, now);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		m.sum[r] *= exp2_of(m.of[r] - now[r]);
		m.of[r] = now[r];
	}
#pragma unroll
	for (int j = 0; j < TILE_FLOATS; j++) {
		s[j] = exp2_of(s[j] * factor - now[j / 2 % 2]);
		m.sum[j / 2 % 2] += s[j];
	}
	pack<T>(w, s);
	leave_weights(p, tile, w);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Until the weights of a tile of the other block are here. The next ones are expected. */
__device__ __forceinline__ void wait_weights(const struct place &p, int tile)
{
	wait_pair(p.bar(AT_BASE), tile / 2 & 1);
	barrier_wait(p.bar(AT_READY), tile / 2 & 1);
	if (threadIdx.x % GROUP == 0)
		barrier_expect(p.bar(AT_READY), PART);
}

template <typename T>
__device__ __forceinline__ void add_tile(
	const struct place &p, int tile, struct ring &r, float (&y)[HALF / 2], struct rows &m)
{
	const bool other = (tile ^ p.rank) & 1;
	float now[2];

	if (other)
		wait_weights(p, tile);
	now[0] = shared_float(p.base_at(tile, 0)), now[1] = shared_float(p.base_at(tile, 1));
	if (tile && __any_sync(0xffffffffu, now[0] != m.base[0] || now[1] != m.base[1])) {
		const float shrink[2] = {exp2_of(m.base[0] - now[0]), exp2_of(m.base[1] - now[1])};
#pragma unroll
		for (int j = 0; j < HALF / 2; j++)
			y[j] *= shrink[j / 2 % 2];
	}
	m.base[0] = now[0], m.base[1] = now[1];
	sum_values<T>(y, p.weights(tile), r, tile != 0);
	__syncwarp();
	if (other && threadIdx.x % WARP == 0)
		arrive_there(p.there(p.bar(AT_READ)));
}

/* A warp group. */
template <typename T>
__device__ __forceinline__ void sum_keys(
	const struct wide &f, const struct place &p, float (&y)[HALF / 2], struct rows &m)
{
	struct ring r = {p.base, 0};
	accumulators s;
	int summed = 0;

	barrier_wait(p.base + AT_QUERIES, 0);
	for (int tile = p.rank; tile < f.tiles; tile += 2) {
		sum_scores<T>(s, p.base + AT_Q + p.group * PART, r);
		weigh<T>(f, p, tile, s, m);
		for (; summed <= tile; summed++)
			add_tile<T>(p, summed, r, y, m);
	}
	for (; summed < f.tiles; summed++)
		add_tile<T>(p, summed, r, y, m);
}

/* The sums of a thread's rows by this block, which the other block is told. */
__device__ __forceinline__ void tell_sums(const struct place &p, struct rows &m)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float sum = m.sum[r] * exp2_of(m.of[r] - m.base[r]);

		sum += __shfl_xor_sync(0xffffffffu, sum, 1);
		m.sum[r] = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
		if (threadIdx.x % 4 == 0)
			set_there(p.there(p.base + AT_SUMS + (p.row + 8 * r) * 4), m.sum[r]);
	}
}

/* Divides by the sums of both blocks, and writes. */
template <typename T>
__device__ __forceinline__ void write(
	const struct wide &f, const struct place &p, float (&y)[HALF / 2], const struct rows &m)
{
	const int row0 = blockIdx.x / 2 * ROWS, head = blockIdx.y, batch = blockIdx.z;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = p.row + 8 * r;
		const float sum = m.sum[r] + shared_float(p.base + AT_SUMS + row * 4),
			    by = 1 / sum;

		if (!p.rank && threadIdx.x % 4 == 0 && row0 + row < f.seq)
			f.lse[((int64_t)batch * f.heads + head) * f.seq + row0 + row] =
				(m.base[r] + log2f(sum)) * LN_2;
#pragma unroll
		for (int j = 2 * r; j < HALF / 2; j += 4)
			y[j] *= by, y[j + 1] *= by;
	}
	emit<HALF>(y,
		static_cast<T *>(f.y) + ((int64_t)batch * f.seq * f.heads + head) * WIDTH +
			p.rank * HALF,
		(int64_t)f.heads * WIDTH, row0 + p.group * TILE, f.seq, 1);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

__device__ __forceinline__ void init_barriers(uint32_t base)
{
	for (int i = 0; i < STAGES; i++) {
		barrier_init(base + AT_FULL + i * 8, 1);
		barrier_init(base + AT_EMPTY + i * 8, 8);
	}
	barrier_init(base + AT_QUERIES, 1);
	for (int i = 0; i < 2; i++) {
		barrier_init(base + AT_BASE + i * 8, 4);
		barrier_init(base + AT_READY + i * 8, 1);
		barrier_init(base + AT_READ + i * 8, 4);
	}
	barrier_publish();
	for (int i = 0; i < 2; i++)
		barrier_expect(base + AT_READY + i * 8, PART);
}

template <typename T>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(3 * GROUP, 1)
	wide_kernel(const __grid_constant__ maps map, const __grid_constant__ wide f)
{
	extern __shared__ unsigned char raw[];
	const uint32_t base = (shared_at(raw) + 1023) & ~1023u;
	const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0), rank = rank_in_pair(),
		  lane = threadIdx.x % WARP;

	if (threadIdx.x == 0)
		init_barriers(base);
	__syncthreads();
	meet_pair();
	if (group == 2) {
		fewer_registers<24>();
		if (threadIdx.x == 2 * GROUP) {
			const int column = blockIdx.y / (f.heads / f.groups) * WIDTH;

			copy_queries(&map.q, base, blockIdx.y * WIDTH, blockIdx.x / 2 * ROWS,
				blockIdx.z);
			copy_all(f, {&map.k, &map.v, (int)blockIdx.z, column}, base, rank);
		}
		__syncwarp();
		meet_pair();
	} else {
		more_registers<240>();
		const int row = group * TILE + threadIdx.x / WARP % 4 * 16 + lane / 4;
		const struct place p = {base, rank, group, row};
		const float none = -INFINITY;
		struct rows m = {{0, 0}, {none, none}, {none, none}};
		float y[HALF / 2];

		sum_keys<T>(f, p, y, m);
		tell_sums(p, m);
		meet_pair(); /* from here on a block does not write to the other */
		write<T>(f, p, y, m);
	}
}

template <typename T> static void start(const struct cuda_attention_512 *p, cudaStream_t stream)
{
	const struct wide f = {p->seq, p->keys, p->heads, p->groups, (p->keys + TILE - 1) / TILE,
		p->scale, p->y, p->lse};
	maps map;

	memcpy(&map, &p->boxes, sizeof map);
	cudaFuncSetAttribute(wide_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
	wide_kernel<T><<<dim3(2 * blocks_for(p->seq, ROWS), p->heads, p->batch), 3 * GROUP, BYTES,
		stream>>>(map, f);
}

void cuda_attention_512(const struct cuda_attention_512 *p, cudaStream_t stream)
{
	p->type == CUDA_F16 ? start<half>(p, stream) : start<bf16>(p, stream);
}
