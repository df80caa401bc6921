/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention_tiles.cu and attention_keys.cuh share: tiles, products of tiles and
 * their operands in registers.
 */
#ifndef JM_CUDA_TILES_CUH
#define JM_CUDA_TILES_CUH

#include "hopper.cuh"

#define GROUP	    128	       /* threads of a warp group */
#define TILE	    64	       /* rows of the tiles that a block loops over, and of a warp group */
#define TILE_FLOATS (TILE / 2) /* of 64 columns: accumulators of a thread */
#define SWATH                                                                                      \
	16 /* heads whose tiles run at the same time, the longest first: their operands stay in L2 */

/* What is copied in boxes, as cuda_attention_tiles has it. */
struct boxes {
	CUtensorMap q, k, v, dy;
};

struct tiles {
	int batch, seq, keys, heads, groups, padded;
	float scale;
	bool causal;
	const float *lse,
		*delta; /* [B,H,padded]: lse / ln 2, after the end of the sequence infinite */
	struct cuda_attention_part q, k, v;
	const float
		*angles; /* of rotary positions: cosines, then sines, [seq,D/2] each; NULL = none */
};

typedef float accumulators[TILE_FLOATS];
typedef uint32_t left_operand[TILE / 16][4];

__device__ __forceinline__ float exp2_of(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

template <typename T = bf16> __device__ __forceinline__ uint32_t both(float low, float high)
{
	return two((const T *)nullptr, low, high);
}

template <typename T> __device__ __forceinline__ float2 apart(uint32_t x)
{
	if constexpr (std::is_same<T, half>::value)
		return __half22float2(*reinterpret_cast<const half2 *>(&x));
	else
		return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

/* The gradients of a sequence from a column on. */
template <typename T>
__device__ __forceinline__ T *grad_of(
	const struct cuda_attention_part &p, int64_t batch, int column)
{
	return static_cast<T *>(p.grad) + batch * p.batch + column;
}

/* The tile and the head (of all sequences) of a block. */
__device__ __forceinline__ void place(
	const struct tiles &t, int tiles, int heads, int *tile, int *head)
{
	const int all = heads * t.batch, swath = blockIdx.x / (SWATH * tiles),
		  in = blockIdx.x % (SWATH * tiles);
	const int width = min(SWATH, all - swath * SWATH);

	*tile = in / width;
	*head = swath * SWATH + in % width;
}

/* d = rows a b^T over D; a and b have a_rows and b_rows rows in shared memory. */
template <int D, typename T = bf16, int N>
__device__ __forceinline__ void multiply(
	float (&d)[N], uint32_t a, int a_rows, uint32_t b, int b_rows)
{
	const uint32_t low_a = matrix_low(a, 16), low_b = matrix_low(b, 16);

	product_first<T>(d, matrix_of(low_a), matrix_of(low_b));
#pragma unroll
	for (int k = 1; k < D / 16; k++)
		product_next<T>(d,
			matrix_of(low_a + (k / 4 * a_rows * CHUNK_ROW + k % 4 * 32) / 16),
			matrix_of(low_b + (k / 4 * b_rows * CHUNK_ROW + k % 4 * 32) / 16));
	product_commit();
}

/* sum = add sum + a b over the 16 R rows of the tile b */
template <typename T = bf16, int N, int R>
__device__ __forceinline__ void accumulate(
	float (&sum)[N], const uint32_t (&a)[R][4], uint32_t b, int add)
{
	const uint32_t low = matrix_low(b, R * 16 * CHUNK_ROW);

	product_fence();
#pragma unroll
	for (int k = 0; k < R; k++)
		product_rows<T>(sum, a[k], matrix_of(low + k * CHUNK_ROW), k ? 1 : add);
	product_commit();
}

template <typename T = bf16, int R>
__device__ __forceinline__ void pack(uint32_t (&to)[R][4], const float (&from)[8 * R])
{
#pragma unroll
	for (int j = 0; j < R; j++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			to[j][i] = both<T>(from[8 * j + 2 * i], from[8 * j + 2 * i + 1]);
}

/* Copies a tile of 64 rows and D columns. */
template <int D>
__device__ __forceinline__ void copy_tile(
	uint32_t to, int rows, const CUtensorMap *map, int column, int row, int batch, uint32_t bar)
{
	for (int c = 0; c < D / 64; c++)
		copy_box(to + c * rows * CHUNK_ROW, map, column + c * 64, row, batch, bar);
}

/* The gradient of rope (rope.cu) of queries or keys, the sums of rows from row0 on. */
template <int D>
__device__ __forceinline__ void turn_back(const struct tiles &t, float (&sum)[D / 2], int row0)
{
	if (!t.angles)
		return;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int lane = threadIdx.x % WARP,
			  row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4 + 8 * half;
		const float *at = t.angles + (int64_t)min(row, t.seq - 1) * (D / 2) + lane % 4 * 2;
#pragma unroll
		for (int j = 0; j < D / 16; j++) {
			const float2 cosine = *reinterpret_cast<const float2 *>(at + 8 * j);
			const float2 sine = *reinterpret_cast<const float2 *>(
				at + (int64_t)t.seq * (D / 2) + 8 * j);
			float *a = sum + 4 * j + 2 * half, *b = a + D / 4;
			const float2 was = make_float2(a[0], a[1]);

			a[0] = was.x * cosine.x + b[0] * sine.x;
			a[1] = was.y * cosine.y + b[1] * sine.y;
			b[0] = b[0] * cosine.x - was.x * sine.x;
			b[1] = b[1] * cosine.y - was.y * sine.y;
		}
	}
}

/* Writes factor times the sums as rows from row0 on. Two lanes exchange halves, so that each writes
 * 8 bytes. */
template <int D, typename T>
__device__ __forceinline__ void emit(
	const float (&sum)[D / 2], T *to, int64_t pitch, int row0, int rows, float factor)
{
	const int lane = threadIdx.x % WARP, odd = lane & 1;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int row = row0 + threadIdx.x / WARP % 4 * 16 + lane / 4 + 8 * half;
#pragma unroll
		for (int j = 0; j < D / 8; j += 2) {
			const float *at = sum + 4 * j + 2 * half;
			const uint32_t low = both<T>(at[0] * factor, at[1] * factor);
			const uint32_t high = both<T>(at[4] * factor, at[5] * factor);
			const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);

			if (row < rows)
				*reinterpret_cast<uint2 *>(
					to + row * pitch + 8 * (j + odd) + lane % 4 / 2 * 4) =
					odd ? make_uint2(other, high) : make_uint2(low, other);
		}
	}
}

#endif
