/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention over pages (pages.cu) do on tensor cores: tiles of rows, 16 queries
 * as fragments, pages in shared memory, and their products.
 */
#ifndef JM_CUDA_PAGES_CUH
#define JM_CUDA_PAGES_CUH

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

/* 16 queries and what they have seen of the keys, as fragments: a lane has the rows lane / 4 and
 * lane / 4 + 8. */
template <int D> struct queries {
	unsigned q[D / 16][4];
	float y[D / 8][4];
	float most[2], sum[2];
	int last[2]; /* the last key that each of the two rows sees */
};

/* Two elements of the query of a row of the tile; 0: there is no such query. */
template <typename T> __device__ __forceinline__ unsigned pair_of(const T *q, bool exists)
{
	return exists ? *reinterpret_cast<const unsigned *>(q) : 0;
}

/* Query m is that of row m / per and head m % per of those from `head` on. */
template <typename T, int D>
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
		q[k] = as<const T>(p.q) + ((int64_t)(t.row + row) * p.heads + head + m % per) * D +
		       2 * (lane % 4);
	}
#pragma unroll
	for (int i = 0; i < D / 16; i++) {
		s.q[i][0] = pair_of(q[0] + 16 * i, exists[0]);
		s.q[i][1] = pair_of(q[1] + 16 * i, exists[1]);
		s.q[i][2] = pair_of(q[0] + 16 * i + 8, exists[0]);
		s.q[i][3] = pair_of(q[1] + 16 * i + 8, exists[1]);
	}
#pragma unroll
	for (int i = 0; i < D / 8; i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			s.y[i][k] = 0;
}

/* A page in shared memory has rows of D elements, in chunks of 16 bytes, whose order differs from
 * row to row so that eight rows of one chunk are in different banks. */
template <int D> __device__ __forceinline__ unsigned chunk_at(unsigned base, int row, int chunk)
{
	return base + (unsigned)(row * D * 2 + (chunk ^ (row & 7)) * 16);
}

/* Copies the keys or values of a page, by `threads` threads; slots behind the last key become 0,
 * because they may hold anything and 0 x NaN is NaN. */
template <typename T, int D>
__device__ __forceinline__ void copy_page(
	unsigned to, const T *from, int64_t apart, int slots, int thread, int threads)
{
	for (int i = thread; i < ROWS * D / 8; i += threads) {
		const int row = i / (D / 8), chunk = i % (D / 8);

		copy_async<16>(
			chunk_at<D>(to, row, chunk), from + row * apart + chunk * 8, row < slots);
	}
}

/* s[0]: the scores of keys 0 to 7 of the page, s[1]: those of 8 to 15. */
template <typename T, int D>
__device__ __forceinline__ void score_page(
	const struct queries<D> &w, unsigned keys, float (&s)[2][4])
{
	const int lane = threadIdx.x % WARP, row = lane % 8 + lane / 16 * 8, chunk = lane / 8 % 2;

#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			s[i][k] = 0;
#pragma unroll
	for (int i = 0; i < D / 16; i++) {
		unsigned b[4];

		load_blocks(b, chunk_at<D>(keys, row, 2 * i + chunk));
		multiply(T(), s[0], w.q[i], b[0], b[1]);
		multiply(T(), s[1], w.q[i], b[2], b[3]);
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

/* Scores become powers of 2; y and sum are scaled to the new maximum. */
template <int D, int N>
__device__ __forceinline__ void weigh(
	struct queries<D> &w, float (&s)[N][4], int first_key, float scale)
{
	const int column = 2 * (threadIdx.x % 4);

#pragma unroll
	for (int r = 0; r < 2; r++) {
		float most = w.most[r], sum = 0, old;

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
		old = fast_exp2(w.most[r] - most);
		w.most[r] = most;
#pragma unroll
		for (int i = 0; i < N; i++)
#pragma unroll
			for (int k = 0; k < 2; k++) {
				float &x = s[i][2 * r + k];

				x = fast_exp2(x - most);
				sum += x;
			}
		w.sum[r] = w.sum[r] * old + sum; /* of this lane's columns */
#pragma unroll
		for (int i = 0; i < D / 8; i++) {
			w.y[i][2 * r] *= old;
			w.y[i][2 * r + 1] *= old;
		}
	}
}

/* y += s values, for a page. */
template <typename T, int D>
__device__ __forceinline__ void add_values(
	struct queries<D> &w, const float (&low)[4], const float (&high)[4], unsigned values)
{
	const int lane = threadIdx.x % WARP, row = lane % 16, chunk = lane / 16;
	const T *type = nullptr;
	const unsigned a[4] = {two(type, low[0], low[1]), two(type, low[2], low[3]),
		two(type, high[0], high[1]), two(type, high[2], high[3])};

#pragma unroll
	for (int i = 0; i < D / 16; i++) {
		unsigned b[4];

		load_turned(b, chunk_at<D>(values, row, 2 * i + chunk));
		multiply(T(), w.y[2 * i], a, b[0], b[1]);
		multiply(T(), w.y[2 * i + 1], a, b[2], b[3]);
	}
}

/* Where the group's keys and values of a page begin, and how many of its slots the tile sees. */
struct page_at {
	int64_t from;
	int slots;
};

__device__ __forceinline__ struct page_at page_of(
	const struct cuda_pages &p, const struct tile &t, int page, int group)
{
	const int64_t number = p.page[t.request * p.each + page];

	return {(number * ROWS * p.groups + group) * p.depth, t.first + t.n - page * ROWS};
}

template <typename T, int D>
__device__ __forceinline__ void store_row(
	const struct cuda_pages &p, struct queries<D> &w, int r, int64_t row, int head)
{
	T *y = as<T>(p.y) + (row * p.heads + head) * D + 2 * (threadIdx.x % 4);
	const float inverse = 1 / w.sum[r];

#pragma unroll
	for (int i = 0; i < D / 8; i++)
		*reinterpret_cast<unsigned *>(y + 8 * i) =
			two(y, w.y[i][2 * r] * inverse, w.y[i][2 * r + 1] * inverse);
}

#endif
