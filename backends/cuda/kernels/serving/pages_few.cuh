/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages (pages.cu) of at most 8 queries that share their keys, as decoding needs it:
 * what a warp does. Queries are the right factor of products on tensor cores, which has 8 columns;
 * the left factor are 16 keys, and then the values of these.
 */
#ifndef JM_CUDA_PAGES_FEW_CUH
#define JM_CUDA_PAGES_FEW_CUH

#include "pages_common.cuh"

#define QUERIES 8 /* at most */

/* Pages that a warp takes at a time, how many of these are under way or in use, and blocks on a
 * multiprocessor. */
template <typename K> constexpr int few_pages = is_f8<K> ? 2 : 1;
template <typename K> constexpr int few_deep = is_f8<K> ? 2 : 3;
template <typename K> constexpr int few_blocks = is_f8<K> ? 3 : 2;

template <typename K, int D> constexpr int page_bytes = 2 * ROWS *D *(int)sizeof(K);
/* The memory of a warp. */
template <typename K, int D> constexpr int few_bytes = few_deep<K> *few_pages<K> *page_bytes<K, D>;

/* Query m is that of row m / per of the tile, and of head m % per. A lane has parts of queries
 * query(k), k < own, in all but q.
 *
 * In 16 bits the queries are the 8 columns of the right factor, and y[i][2 h + k] is that of
 * query(k) in column 16 i + lane / 4 + 8 h.
 *
 * Codes of 8 bits lie in pairs of neighbouring columns. So the product that adds up values has
 * pairs as its rows and is summed over keys and over the two of a pair: the right factor has
 * two columns for a query, each of which is 0 for the other one of the pair. That moves no
 * code, and needs queries in sets of 4; q[set] has each query twice, too.
 * y[D / 32 set + i][2 h + c] is that of the set's query lane % 4 in column
 * 32 i + 16 h + 2 (lane / 4) + c. */
template <typename K, int D, int OWN> struct few {
	static constexpr int own = OWN; /* queries of a lane */
	unsigned q[is_f8<K> ? OWN : 1][D / 16][2];
	float y[is_f8<K> ? OWN * D / 32 : D / 16][4];
	float most[OWN], sum[OWN];
	int last[OWN]; /* the last key that the query sees */

	static __device__ __forceinline__ int query(int k)
	{
		const int lane = threadIdx.x % 4;

		return is_f8<K> ? 4 * k + lane : 2 * lane + k;
	}

	/* Which of the own ones y[i][k] is of. */
	static __device__ __forceinline__ int query_of_y(int i, int k)
	{
		return is_f8<K> ? i / (D / 32) : k % 2;
	}

	/* Calls f(column, y) for query(k). */
	template <class F> __device__ __forceinline__ void each(int k, F f) const
	{
		const int from = threadIdx.x % WARP / 4;

#pragma unroll
		for (int i = 0; i < D / 8; i++)
			if (is_f8<K>)
				f(i / 4 * 32 + i % 4 / 2 * 16 + 2 * from + i % 2,
					y[k * (D / 32) + i / 4][i % 4]);
			else
				f(i * 8 + from, y[i / 2][i % 2 * 2 + k]);
	}
};

/* head: the first one. */
template <typename T, typename K, int D, int OWN>
__device__ __forceinline__ void take_few(const struct cuda_pages &p, const struct tile &t, int head,
	int per, struct few<K, D, OWN> &s)
{
	constexpr int sets = is_f8<K> ? OWN : 1;
	const int lane = threadIdx.x % WARP;

#pragma unroll
	for (int k = 0; k < OWN; k++) {
		s.last[k] = t.first + s.query(k) / per;
		s.most[k] = MASKED;
		s.sum[k] = 0;
	}
#pragma unroll
	for (int set = 0; set < sets; set++) {
		const int m = is_f8<K> ? 4 * set + lane / 8 : lane / 4, row = m / per;
		const T *q =
			as<const T>(p.q) + ((int64_t)(t.row + row) * p.heads + head + m % per) * D;

#pragma unroll
		for (int i = 0; i < 2 * (D / 16); i++)
			s.q[set][i / 2][i % 2] =
				pair_of<T, K>(q + column_of_q<K, D>(i / 2, i % 2), row < t.n);
	}
#pragma unroll
	for (int i = 0; i < (int)(sizeof s.y / sizeof s.y[0]); i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			s.y[i][k] = 0;
}

/* s[k]: the score of key lane / 4 of the page and query(k), s[2 + k]: of the key 8 behind it. */
template <typename T, typename K, int D, int OWN>
__device__ __forceinline__ void score_few(
	const struct few<K, D, OWN> &w, unsigned keys, float (&s)[4])
{
	typedef factor<T, K> F;
	constexpr int sets = is_f8<K> ? OWN : 1;
	const int lane = threadIdx.x % WARP;
	float d[sets][4] = {};

	if constexpr (is_f8<K>) {
#pragma unroll
		for (int c = 0; c < D / 64; c++) {
			const int chunk = lane % 4 * (D / 64) + c;
			unsigned low[4], high[4]; /* of the two keys */

			load_codes(low, chunk_at<K, D>(keys, lane / 4, chunk));
			load_codes(high, chunk_at<K, D>(keys, lane / 4 + 8, chunk));
#pragma unroll
			for (int i = 0; i < 4; i++) {
				unsigned left[4];

				widen(low[i], left[0], left[2]);
				widen(high[i], left[1], left[3]);

#pragma unroll
				for (int set = 0; set < sets; set++)
					multiply(F(), d[set], left, w.q[set][4 * c + i][0],
						w.q[set][4 * c + i][1]);
			}
		}
#pragma unroll
		for (int set = 0; set < sets; set++) {
			s[set] = d[set][0];
			s[2 + set] = d[set][2];
		}
	} else {
#pragma unroll
		for (int i = 0; i < D / 16; i++) {
			unsigned left[4];

			load_blocks(left, chunk_at<K, D>(keys, lane % 16, 2 * i + lane / 16));
			multiply(F(), d[0], left, w.q[0][i][0], w.q[0][i][1]);
		}
#pragma unroll
		for (int k = 0; k < 4; k++)
			s[k] = d[0][k];
	}
}

/* Of 8 rows of 16 bytes, of which a lane has 4 bytes of row lane / 4: the same, transposed. */
__device__ __forceinline__ unsigned turned(unsigned x)
{
	unsigned y;

	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
	return y;
}

/* The weights of 8 keys as the right factor of pairs of columns: the query lane / 8, in the even
 * columns (of pairs) where lane / 4 is even. */
__device__ __forceinline__ void pair_weights(unsigned (&ret)[2], unsigned of_keys)
{
	const bool odd = threadIdx.x / 4 % 2;

	ret[0] = __byte_perm(of_keys, 0, odd ? 0x1044 : 0x4410);
	ret[1] = __byte_perm(of_keys, 0, odd ? 0x3244 : 0x4432);
}

/* y += the values of a page, weighted by s. */
template <typename T, typename K, int D, int OWN>
__device__ __forceinline__ void add_few(
	struct few<K, D, OWN> &w, const float (&s)[4], unsigned values)
{
	typedef factor<T, K> F;
	const int lane = threadIdx.x % WARP;
	const F *type = nullptr;

	if constexpr (is_f8<K>) {
		unsigned low[OWN][2], high[OWN][2];

#pragma unroll
		for (int k = 0; k < OWN; k++) {
			pair_weights(low[k], turned(two(type, s[k], s[k])));
			pair_weights(high[k], turned(two(type, s[2 + k], s[2 + k])));
		}
#pragma unroll
		for (int i = 0; i < D / 32; i++) {
			unsigned b[4]; /* keys 0 to 7 and 8 to 15, of two chunks of codes */

			load_turned(b, chunk_at<K, D>(values, lane % 16, 2 * i + lane / 16));
#pragma unroll
			for (int h = 0; h < 2; h++) {
				unsigned left[4];

				widen(b[h], left[0], left[2]);
				widen(b[2 + h], left[1], left[3]);

#pragma unroll
				for (int k = 0; k < OWN; k++) {
					const unsigned(&right)[2] = h ? high[k] : low[k];

					multiply(F(), w.y[k * (D / 32) + i], left, right[0],
						right[1]);
				}
			}
		}
	} else {
		const unsigned low = turned(two(type, s[0], s[1])),
			       high = turned(two(type, s[2], s[3]));

#pragma unroll
		for (int i = 0; i < D / 16; i++) {
			unsigned left[4];

			load_turned(left, chunk_at<K, D>(values, lane % 8 + lane / 16 * 8,
						  2 * i + lane / 8 % 2));
			multiply(F(), w.y[i], left, low, high);
		}
	}
}

/* ---- pages of a tile ------------------------------------------------------------------------- */

/* Where pages first, first + 1 ... of a tile lie in the cache; behind its last one: where that
 * does. */
template <int N>
__device__ __forceinline__ void find_pages(
	const struct cuda_pages &p, const struct tile &t, int first, int (&number)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		number[i] = p.page[t.request * p.each + min(first + i, pages_of(t) - 1)];
}

/* What the queries see of pages N (first + i step) to N (first + i step) + N - 1 of the tile, all
 * i, N = few_pages. The memory of the warp begins at `base`. */
template <typename T, typename K, int D, int OWN>
__device__ __forceinline__ void see_pages(const struct cuda_pages &p, const struct tile &t,
	int first, int step, unsigned base, struct few<K, D, OWN> &w)
{
	constexpr int N = few_pages<K>, deep = few_deep<K>, bytes = page_bytes<K, D>;
	const int units = (pages_of(t) + N - 1) / N, lane = threadIdx.x % WARP;
	int number[N];

	find_pages(p, t, N * first, number);
	for (int ahead = first, k = 0;; ahead += step, k++) {
		const int unit = ahead - (deep - 1) * step;
		const unsigned now = base + (k + 1) % deep * N * bytes;
		float s[N][4];

		if (ahead < units) {
#pragma unroll
			for (int i = 0; i < N; i++)
				copy_both<K, D>(p, t, N * ahead + i, number[i], blockIdx.x,
					base + (k % deep * N + i) * bytes, lane, WARP);
			find_pages(p, t, N * (ahead + step), number);
		}
		asm volatile("cp.async.commit_group;");
		if (unit < first)
			continue;
		if (unit >= units)
			break;
		asm volatile("cp.async.wait_group %0;" ::"n"(deep - 1));
		__syncwarp();
#pragma unroll
		for (int i = 0; i < N; i++)
			score_few<T>(w, now + i * bytes, s[i]);
		weigh<false>(w, s, N * unit * ROWS, p.scale * LOG2_E,
			N * (unit + 1) * ROWS > t.first + 1);
#pragma unroll
		for (int i = 0; i < N; i++)
			add_few<T>(w, s[i], now + i * bytes + bytes / 2);
		__syncwarp();
	}
	asm volatile("cp.async.wait_group 0;");
#pragma unroll
	for (int k = 0; k < OWN; k++)
		w.sum[k] = sum_of_query<false>(w.sum[k]);
}

/* Writes y / sum. */
template <typename T, typename K, int D, int OWN>
__device__ __forceinline__ void store_few(const struct cuda_pages &p, const struct tile &t,
	int head, int per, const struct few<K, D, OWN> &w)
{
	const int lane = threadIdx.x % WARP, from = lane / 4;
	float inverse[OWN];
	const T *type = nullptr;
	auto put = [&](int m, int column, unsigned two_values) {
		T *y = as<T>(p.y) + ((int64_t)(t.row + m / per) * p.heads + head + m % per) * D;

		if (m < t.n * per)
			*reinterpret_cast<unsigned *>(y + column) = two_values;
	};

#pragma unroll
	for (int k = 0; k < OWN; k++)
		inverse[k] = 1 / w.sum[k];
#pragma unroll
	for (int i = 0; i < (int)(sizeof w.y / sizeof w.y[0]); i++)
#pragma unroll
		for (int h = 0; h < 2; h++)
			if constexpr (is_f8<K>) {
				const int k = i / (D / 32);

				put(w.query(k), i % (D / 32) * 32 + 16 * h + 2 * from,
					two(type, w.y[i][2 * h] * inverse[k],
						w.y[i][2 * h + 1] * inverse[k]));
			} else {
				put(from, 16 * i + 8 * h + 2 * (lane % 4),
					turned(two(type, w.y[i][2 * h] * inverse[0],
						w.y[i][2 * h + 1] * inverse[1])));
			}
}

#endif
