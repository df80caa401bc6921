/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention over pages (pages.cu) do on tensor cores: tiles of rows, 16 queries
 * as fragments, pages in shared memory, and their products.
 */
#ifndef JM_CUDA_PAGES_COMMON_CUH
#define JM_CUDA_PAGES_COMMON_CUH

#include "backends/cuda/kernels/mma.cuh"

#define ROWS 16 /* queries of a product on tensor cores, tokens of a page, most rows of a tile */

/* Rows of one request at positions that follow each other, within p.span positions. */
struct tile {
	int row, n, request, first; /* first: the position of the first row, below 0: padding */
};

/* The tile that begins at a row; n = 0: none does. All threads of a warp get the same. */
__device__ __forceinline__ struct tile tile_at(const struct cuda_pages &p, int row)
{
	struct tile t = {row, 0, p.request[row], p.position[row]};
	const int lane = threadIdx.x % WARP, at = row + lane;
	bool follows;
	unsigned all;

	if (t.first < 0) {
		t.n = 1;
		return t;
	}
	if (row && t.first % p.span && p.request[row - 1] == t.request &&
		p.position[row - 1] == t.first - 1)
		return t;
	follows = t.first % p.span + lane < p.span && at < p.rows && p.request[at] == t.request &&
		  p.position[at] == t.first + lane;
	all = __ballot_sync(0xffffffffu, follows);
	t.n = ~all ? __ffs(~all) - 1
		   : WARP; /* of more rows it is enough to know that they are many */
	return t;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* 16 queries and what they have seen of the keys, as fragments: a lane has the rows lane / 4 and
 * lane / 4 + 8. With keys and values in e4m3 the columns have another order, in which a lane's
 * codes are next to each other in shared memory. */
template <int D> struct queries {
	unsigned q[D / 16][4];
	float y[D / 8][4];
	float most[2], sum[2];
	int last[2]; /* the last key that each of the two rows sees */
};

/* Two elements of the query of a row of the tile, as factors; 0: there is no such query. */
template <typename T, typename K>
__device__ __forceinline__ unsigned pair_of(const T *q, bool exists)
{
	return exists ? pair_as<factor<T, K>, T>(*reinterpret_cast<const unsigned *>(q)) : 0;
}

/* The column of the first of the two elements of q[i][k] and q[i][k + 2], k < 2, `high`: the
 * second. */
template <typename K, int D> __device__ __forceinline__ int column_of_q(int i, bool high)
{
	const int lane = threadIdx.x % 4;

	return is_f8<K> ? lane * (D / 4) + 4 * i + 2 * high : 16 * i + 8 * high + 2 * lane;
}

/* The column of y[i][k] and y[i][k + 2], k < 2. */
template <typename K> __device__ __forceinline__ int column_of_y(int i, int k)
{
	const int lane = threadIdx.x % 4;

	return is_f8<K> ? i / 2 * 16 + 4 * lane + 2 * k + i % 2 : 8 * i + 2 * lane + k;
}

/* Query m is that of row m / per and head m % per of those from `head` on. */
template <typename T, typename K, int D>
__device__ __forceinline__ void take_queries(
	const struct cuda_pages &p, const struct tile &t, int head, int per, struct queries<D> &s)
{
	const int lane = threadIdx.x % WARP;
	const T *q[2];
	bool exists[2];

#pragma unroll
	for (int k = 0; k < 2; k++) {
		const int m = lane / 4 + 8 * k, row = m / per;

		exists[k] = row < t.n;
		s.last[k] = t.first + row;
		s.most[k] = MASKED;
		s.sum[k] = 0;
		q[k] = as<const T>(p.q) + ((int64_t)(t.row + row) * p.heads + head + m % per) * D;
	}
#pragma unroll
	for (int i = 0; i < D / 16; i++) {
		const int low = column_of_q<K, D>(i, false), high = column_of_q<K, D>(i, true);

		s.q[i][0] = pair_of<T, K>(q[0] + low, exists[0]);
		s.q[i][1] = pair_of<T, K>(q[1] + low, exists[1]);
		s.q[i][2] = pair_of<T, K>(q[0] + high, exists[0]);
		s.q[i][3] = pair_of<T, K>(q[1] + high, exists[1]);
	}
#pragma unroll
	for (int i = 0; i < D / 8; i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			s.y[i][k] = 0;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* A page in shared memory has rows of D elements, in chunks of 16 bytes, whose order differs from
 * row to row so that eight rows of one chunk are in different banks. */
template <typename K, int D>
__device__ __forceinline__ unsigned chunk_at(unsigned base, int row, int chunk)
{
	constexpr int bytes = D * (int)sizeof(K), alike = bytes < 128 ? 128 / bytes : 1,
		      order = (bytes < 128 ? bytes : 128) / 16 - 1;

	return base + (unsigned)(row * bytes + (chunk ^ (row / alike & order)) * 16);
}

/* Copies the keys or values of a page, by `threads` threads; slots behind the last key become 0,
 * because they may hold anything and 0 x NaN is NaN. */
template <typename K, int D>
__device__ __forceinline__ void copy_page(
	unsigned to, const K *from, int64_t apart, int slots, int thread, int threads)
{
	constexpr int each = 16 / (int)sizeof(K), chunks = D / each;

	for (int i = thread; i < ROWS * chunks; i += threads) {
		const int row = i / chunks, chunk = i % chunks;

		copy_async<16>(chunk_at<K, D>(to, row, chunk), from + row * apart + chunk * each,
			row < slots);
	}
}

/* Codes of 16 bytes in shared memory. */
__device__ __forceinline__ void load_codes(unsigned (&to)[4], unsigned at)
{
	asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(at));
}

/* The scores of 8 keys in e4m3; row: that of this lane's key. F: the type of the factors. */
template <typename F, int D>
__device__ __forceinline__ void score_codes(
	const struct queries<D> &w, unsigned keys, int row, float (&s)[4])
{
	constexpr int chunks = D / 64; /* of a lane */

#pragma unroll
	for (int c = 0; c < chunks; c++) {
		unsigned codes[4];

		load_codes(codes, chunk_at<e4m3, D>(keys, row, threadIdx.x % 4 * chunks + c));
#pragma unroll
		for (int i = 0; i < 4; i++)
			multiply(F(), s, w.q[4 * c + i], two_of<F>(codes[i] & 0xffff),
				two_of<F>(codes[i] >> 16));
	}
}

/* s[0]: the scores of keys 0 to 7 of the page, s[1]: those of 8 to 15. */
template <typename T, typename K, int D>
__device__ __forceinline__ void score_page(const struct queries<D> &w, unsigned keys, float (*s)[4])
{
	const int lane = threadIdx.x % WARP, row = lane % 8 + lane / 16 * 8, chunk = lane / 8 % 2;

#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			s[i][k] = 0;
	if constexpr (is_f8<K>) {
		score_codes<factor<T, K>, D>(w, keys, lane / 4, s[0]);
		score_codes<factor<T, K>, D>(w, keys, lane / 4 + 8, s[1]);
	} else {
#pragma unroll
		for (int i = 0; i < D / 16; i++) {
			unsigned b[4];

			load_blocks(b, chunk_at<K, D>(keys, row, 2 * i + chunk));
			multiply(T(), s[0], w.q[i], b[0], b[1]);
			multiply(T(), s[1], w.q[i], b[2], b[3]);
		}
	}
}

__device__ __forceinline__ float of_four(float x, bool sum)
{
#pragma unroll
	for (int i = 1; i < 4; i *= 2) {
		const float other = __shfl_xor_sync(0xffffffffu, x, i);

		x = sum ? x + other : fmaxf(x, other);
	}
	return x;
}

/* Scores become powers of 2; y and sum are scaled to the new maximum, where it is one. For a
 * warp. */
template <int D, int N>
__device__ __forceinline__ void weigh(
	struct queries<D> &w, float (&s)[N][4], int first_key, float scale)
{
	const int column = 2 * (threadIdx.x % 4);
	float old[2];

#pragma unroll
	for (int r = 0; r < 2; r++) {
		float most = w.most[r], sum = 0;

#pragma unroll
		for (int i = 0; i < N; i++)
#pragma unroll
			for (int k = 0; k < 2; k++) {
				float &x = s[i][2 * r + k];

				x = first_key + 8 * i + column + k <= w.last[r] ? x * scale
										: MASKED;
				most = fmaxf(most, x);
			}
		most = of_four(most, false);
		old[r] = fast_exp2(w.most[r] - most);
		w.most[r] = most;
#pragma unroll
		for (int i = 0; i < N; i++)
#pragma unroll
			for (int k = 0; k < 2; k++) {
				float &x = s[i][2 * r + k];

				x = fast_exp2(x - most);
				sum += x;
			}
		w.sum[r] = w.sum[r] * old[r] + sum; /* of this lane's columns */
	}
	if (!__any_sync(0xffffffffu, old[0] != 1 || old[1] != 1))
		return;
#pragma unroll
	for (int i = 0; i < D / 8; i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			w.y[i][k] *= old[k / 2];
}

/* y[0] += a values of the even columns of a chunk in e4m3, y[1]: of the odd ones. low: keys 0 to 7
 * of the page, transposed in units of two columns; high: 8 to 15. */
template <typename F>
__device__ __forceinline__ void add_codes(
	float (*y)[4], const unsigned (&a)[4], unsigned low, unsigned high)
{
	multiply(F(), y[0], a, two_of<F>(__byte_perm(low, 0, 0x20)),
		two_of<F>(__byte_perm(high, 0, 0x20)));
	multiply(F(), y[1], a, two_of<F>(__byte_perm(low, 0, 0x31)),
		two_of<F>(__byte_perm(high, 0, 0x31)));
}

/* y += s values, for a page. */
template <typename T, typename K, int D>
__device__ __forceinline__ void add_values(
	struct queries<D> &w, const float (&low)[4], const float (&high)[4], unsigned values)
{
	typedef factor<T, K> F;
	const int lane = threadIdx.x % WARP, row = lane % 16, chunk = lane / 16;
	const F *type = nullptr;
	const unsigned a[4] = {two(type, low[0], low[1]), two(type, low[2], low[3]),
		two(type, high[0], high[1]), two(type, high[2], high[3])};

#pragma unroll
	for (int i = 0; i < D * (int)sizeof(K) / 32; i++) {
		unsigned b[4];

		load_turned(b, chunk_at<K, D>(values, row, 2 * i + chunk));
		if constexpr (is_f8<K>) {
			add_codes<F>(w.y + 4 * i, a, b[0], b[1]);
			add_codes<F>(w.y + 4 * i + 2, a, b[2], b[3]);
		} else {
			multiply(T(), w.y[2 * i], a, b[0], b[1]);
			multiply(T(), w.y[2 * i + 1], a, b[2], b[3]);
		}
	}
}

/* Pages that a tile sees. */
__device__ __forceinline__ int pages_of(const struct tile &t)
{
	return (t.first + t.n + ROWS - 1) / ROWS;
}

/* Copies keys and values of a page of the tile; number: where it lies in the cache. */
template <typename K, int D>
__device__ __forceinline__ void copy_both(const struct cuda_pages &p, const struct tile &t,
	int page, int number, int group, unsigned to, int thread, int threads)
{
	constexpr unsigned bytes = ROWS * D * sizeof(K);
	const int64_t apart = (int64_t)p.groups * D,
		      from = ((int64_t)number * ROWS * p.groups + group) * D;
	const int slots = t.first + t.n - page * ROWS; /* that the tile sees */

	copy_page<K, D>(to, as<const K>(p.keys) + from, apart, slots, thread, threads);
	copy_page<K, D>(to + bytes, as<const K>(p.values) + from, apart, slots, thread, threads);
}

template <typename T, typename K, int D>
__device__ __forceinline__ void store_row(
	const struct cuda_pages &p, struct queries<D> &w, int r, int64_t row, int head)
{
	T *y = as<T>(p.y) + (row * p.heads + head) * D;
	const float inverse = 1 / w.sum[r];

#pragma unroll
	for (int i = 0; i < D / 8; i += 2) {
		const float *a = w.y[i] + 2 * r, *b = w.y[i + 1] + 2 * r;

		if constexpr (is_f8<K>) {
			*reinterpret_cast<uint2 *>(y + column_of_y<K>(i, 0)) =
				make_uint2(two(y, a[0] * inverse, b[0] * inverse),
					two(y, a[1] * inverse, b[1] * inverse));
		} else {
			*reinterpret_cast<unsigned *>(y + column_of_y<K>(i, 0)) =
				two(y, a[0] * inverse, a[1] * inverse);
			*reinterpret_cast<unsigned *>(y + column_of_y<K>(i + 1, 0)) =
				two(y, b[0] * inverse, b[1] * inverse);
		}
	}
}

#endif
