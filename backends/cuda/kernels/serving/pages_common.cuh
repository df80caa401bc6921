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

/* ---- what blocks of pages_tiles.cu share, in place of parts of queries ----------------------- */

/* How many items they have taken. */
__device__ __forceinline__ int *taken_of(const struct cuda_pages &p)
{
	return reinterpret_cast<int *>(p.parts);
}

/* Sets of CUDA_PAGES_RUN rows in the order in which they are taken. */
__device__ __forceinline__ int *order_of(const struct cuda_pages &p)
{
	return taken_of(p) + 1;
}

/* About how many keys the rows of a set see. */
__device__ __forceinline__ int keys_of_set(const struct cuda_pages &p, int set)
{
	const int row = set * CUDA_PAGES_RUN;

	return max(p.position[row], p.position[min(row + CUDA_PAGES_RUN, (int)p.rows) - 1]);
}

/* Before they start: those with the most keys come first, so that no block has many left when
 * others end. For a block. */
__device__ __forceinline__ void order_sets(const struct cuda_pages &p)
{
	const int sets = (int)(p.rows + CUDA_PAGES_RUN - 1) / CUDA_PAGES_RUN;

	if (threadIdx.x == 0)
		*taken_of(p) = 0;
	for (int i = threadIdx.x; i < sets; i += blockDim.x) {
		const int keys = keys_of_set(p, i);
		int before = 0;

#pragma unroll 8
		for (int k = 0; k < sets; k++) {
			const int other = keys_of_set(p, k);

			before += other > keys || (other == keys && k > i);
		}
		order_of(p)[before] = i;
	}
}

/* ---- queries --------------------------------------------------------------------------------- */

/* 16 queries and what they have seen of the keys, as fragments: a lane has the rows lane / 4 and
 * lane / 4 + 8. With keys and values in e4m3 the columns have another order, in which a lane's
 * codes are next to each other in shared memory. */
template <int D> struct queries {
	static constexpr int own = 2; /* queries of a lane */
	unsigned q[D / 16][4];
	float y[D / 8][4];
	float most[2], sum[2];
	int last[2]; /* the last key that each of the two rows sees */

	/* Whose y[i][k] is. */
	static __device__ __forceinline__ int query_of_y(int, int k)
	{
		return k / 2;
	}
};

/* Two elements of the query of a row of the tile, as factors; 0: there is no such query. */
template <typename T, typename K>
__device__ __forceinline__ unsigned pair_of(const T *q, bool exists)
{
	const unsigned pair = exists ? *reinterpret_cast<const unsigned *>(q) : 0;

	if constexpr (is_f8<K>)
		return two_of<factor<T, K>>(codes_of<T>(pair));
	else
		return pair;
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
	const int chunk = thread % chunks, step = threads / chunks;

	from += thread / chunks * apart + chunk * each;
	for (int row = thread / chunks; row < ROWS; row += step, from += step * apart)
		copy_async<16>(chunk_at<K, D>(to, row, chunk), from, row < slots);
}

/* Codes of 16 bytes in shared memory. */
__device__ __forceinline__ void load_codes(unsigned (&to)[4], unsigned at)
{
	asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(at));
}

/* Four codes as halves, of which multiply() takes two in a register. */
__device__ __forceinline__ void widen(unsigned codes, unsigned &low, unsigned &high)
{
#if __CUDA_ARCH__ >= 890
	asm("{.reg .b16 low, high;\n"
	    "mov.b32 {low, high}, %2;\n"
	    "cvt.rn.f16x2.e4m3x2 %0, low;\n"
	    "cvt.rn.f16x2.e4m3x2 %1, high;}"
		: "=r"(low), "=r"(high)
		: "r"(codes));
#else
	low = two_of<half>(codes & 0xffff);
	high = two_of<half>(codes >> 16);
#endif
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

/* Query, and key, of number k of the four that a lane has of product i. ROWWISE: queries are its
 * rows, else its columns. */
template <bool ROWWISE> __device__ __forceinline__ int query_of(int k)
{
	return ROWWISE ? k / 2 : k % 2;
}

template <bool ROWWISE> __device__ __forceinline__ int key_of(int i, int k)
{
	const int lane = threadIdx.x % WARP;

	return ROWWISE ? 8 * i + 2 * (lane % 4) + k % 2 : 16 * i + lane / 4 + k / 2 * 8;
}

/* Combines x of the lanes that have the same query. */
template <bool ROWWISE, class F> __device__ __forceinline__ float of_query(float x, F f)
{
#pragma unroll
	for (int i = ROWWISE ? 1 : 4; i < (ROWWISE ? 4 : WARP); i *= 2)
		x = f(x, __shfl_xor_sync(0xffffffffu, x, i));
	return x;
}

template <bool ROWWISE> __device__ __forceinline__ float sum_of_query(float x)
{
	return of_query<ROWWISE>(x, [](float a, float b) { return a + b; });
}

/* Scores, times scale, become powers of 2; y and sum are scaled to the new maximum, where it is
 * one. ends: some of the keys may be behind the last one that a query sees. For a warp. W: queries
 * or few. */
template <bool ROWWISE, class W, int N>
__device__ __forceinline__ void weigh(W &w, float (&s)[N][4], int first_key, float scale, bool ends)
{
	float most[W::own], sum[W::own] = {}, old[W::own];
	bool same = true;
	auto each = [&](auto f) {
#pragma unroll
		for (int i = 0; i < 4 * N; i++)
			if (query_of<ROWWISE>(i % 4) < W::own)
				f(s[i / 4][i % 4], query_of<ROWWISE>(i % 4),
					first_key + key_of<ROWWISE>(i / 4, i % 4));
	};

	if (ends)
		each([&](float &x, int q, int key) { x = key <= w.last[q] ? x : -INFINITY; });
#pragma unroll
	for (int q = 0; q < W::own; q++)
		most[q] = -INFINITY;
	each([&](float x, int q, int) { most[q] = fmaxf(most[q], x); });
#pragma unroll
	for (int q = 0; q < W::own; q++) {
		most[q] = of_query<ROWWISE>(most[q], [](float a, float b) { return fmaxf(a, b); });
		most[q] = fmaxf(w.most[q], most[q] * scale);
		old[q] = fast_exp2(w.most[q] - most[q]);
		w.most[q] = most[q];
		same &= old[q] == 1;
	}
	each([&](float &x, int q, int) {
		x = fast_exp2(fmaf(x, scale, -most[q]));
		sum[q] += x;
	});
#pragma unroll
	for (int q = 0; q < W::own; q++)
		w.sum[q] = w.sum[q] * old[q] + sum[q]; /* of this lane's keys */
	if (__all_sync(0xffffffffu, same))
		return;
#pragma unroll
	for (int i = 0; i < (int)(sizeof w.y / sizeof w.y[0]); i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			w.y[i][k] *= old[W::query_of_y(i, k)];
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
