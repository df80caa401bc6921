/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages (pages.cu) of at most 8 queries that share their keys, as decoding needs it:
 * what a warp does. Queries are the right factor of products on tensor cores and have 8 columns;
 * the left factor are 16 keys, and then the values of these, 16 columns at a time.
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

/* Query m is that of row m / per of the tile, and of head m % per. A lane has parts of query
 * lane / 4 in q, and of queries m = 2 (lane % 4) + k, k < 2, in all else: y[i][2 h + k] is that in
 * column_of_few(i, h). */
template <int D> struct few {
	unsigned q[D / 16][2];
	float y[D / 16][4];
	float most[2], sum[2];
	int last[2]; /* the last key that the query sees */
};

template <typename K> __device__ __forceinline__ int column_of_few(int i, int high)
{
	const int from = threadIdx.x % WARP / 4;

	return is_f8<K> ? 16 * i + 2 * from + high : 16 * i + from + 8 * high;
}

/* head: the first one. */
template <typename T, typename K, int D>
__device__ __forceinline__ void take_few(
	const struct cuda_pages &p, const struct tile &t, int head, int per, struct few<D> &s)
{
	const int lane = threadIdx.x % WARP, m = lane / 4, row = m / per;
	const T *q = as<const T>(p.q) + ((int64_t)(t.row + row) * p.heads + head + m % per) * D;

#pragma unroll
	for (int k = 0; k < 2; k++) {
		s.last[k] = t.first + (2 * (lane % 4) + k) / per;
		s.most[k] = MASKED;
		s.sum[k] = 0;
	}
#pragma unroll
	for (int i = 0; i < D / 16; i++) {
#pragma unroll
		for (int k = 0; k < 2; k++)
			s.q[i][k] = pair_of<T, K>(q + column_of_q<K, D>(i, k), row < t.n);
#pragma unroll
		for (int k = 0; k < 4; k++)
			s.y[i][k] = 0;
	}
}

/* s[k]: the score of key lane / 4 of the page, s[2 + k]: of the key 8 behind it. */
template <typename T, typename K, int D>
__device__ __forceinline__ void score_few(const struct few<D> &w, unsigned keys, float (&s)[4])
{
	typedef factor<T, K> F;
	const int lane = threadIdx.x % WARP;

#pragma unroll
	for (int k = 0; k < 4; k++)
		s[k] = 0;
	if constexpr (is_f8<K>) {
#pragma unroll
		for (int c = 0; c < D / 64; c++) {
			const int chunk = lane % 4 * (D / 64) + c;
			unsigned low[4], high[4]; /* of the two keys */

			load_codes(low, chunk_at<K, D>(keys, lane / 4, chunk));
			load_codes(high, chunk_at<K, D>(keys, lane / 4 + 8, chunk));
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const unsigned left[4] = {two_of<F>(low[i] & 0xffff),
					two_of<F>(high[i] & 0xffff), two_of<F>(low[i] >> 16),
					two_of<F>(high[i] >> 16)};

				multiply(F(), s, left, w.q[4 * c + i][0], w.q[4 * c + i][1]);
			}
		}
	} else {
#pragma unroll
		for (int i = 0; i < D / 16; i++) {
			unsigned left[4];

			load_blocks(left, chunk_at<K, D>(keys, lane % 16, 2 * i + lane / 16));
			multiply(F(), s, left, w.q[i][0], w.q[i][1]);
		}
	}
}

/* Scores of N pages become powers of 2; y and sum are scaled to the new maximum, where it is
 * one. */
template <int D, int N>
__device__ __forceinline__ void weigh_few(
	struct few<D> &w, float (&s)[N][4], int first_key, float scale)
{
	const int key = first_key + threadIdx.x % WARP / 4;
	float old[2];

#pragma unroll
	for (int k = 0; k < 2; k++) {
		float most = w.most[k], sum = 0;

#pragma unroll
		for (int i = 0; i < 2 * N; i++) {
			float &x = s[i / 2][i % 2 * 2 + k];

			x = key + 8 * i <= w.last[k] ? x * scale : MASKED;
			most = fmaxf(most, x);
		}
#pragma unroll
		for (int i = 4; i < WARP; i *= 2)
			most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, i));
		old[k] = fast_exp2(w.most[k] - most);
		w.most[k] = most;
#pragma unroll
		for (int i = 0; i < 2 * N; i++) {
			float &x = s[i / 2][i % 2 * 2 + k];

			x = fast_exp2(x - most);
			sum += x;
		}
		w.sum[k] = w.sum[k] * old[k] + sum; /* of this lane's keys */
	}
	if (!__any_sync(0xffffffffu, old[0] != 1 || old[1] != 1))
		return;
#pragma unroll
	for (int i = 0; i < D / 16; i++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			w.y[i][k] *= old[k % 2];
}

/* Of 8 rows of 16 bytes, of which a lane has 4 bytes of row lane / 4: the same, transposed. */
__device__ __forceinline__ unsigned turned(unsigned x)
{
	unsigned y;

	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
	return y;
}

/* y += the values of a page, weighted by s. */
template <typename T, typename K, int D>
__device__ __forceinline__ void add_few(struct few<D> &w, const float (&s)[4], unsigned values)
{
	typedef factor<T, K> F;
	const int lane = threadIdx.x % WARP;
	const F *type = nullptr;
	const unsigned low = turned(two(type, s[0], s[1])), high = turned(two(type, s[2], s[3]));

	if constexpr (is_f8<K>) {
#pragma unroll
		for (int i = 0; i < D / 16; i += 2) {
			unsigned b[4]; /* keys 0 to 7 and 8 to 15, of two chunks of codes */

			load_turned(b, chunk_at<K, D>(values, lane % 16, i + lane / 16));
#pragma unroll
			for (int c = 0; c < 2; c++) {
				const unsigned left[4] = {two_of<F>(__byte_perm(b[2 * c], 0, 0x20)),
					two_of<F>(__byte_perm(b[2 * c], 0, 0x31)),
					two_of<F>(__byte_perm(b[2 * c + 1], 0, 0x20)),
					two_of<F>(__byte_perm(b[2 * c + 1], 0, 0x31))};

				multiply(F(), w.y[i + c], left, low, high);
			}
		}
	} else {
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
template <typename T, typename K, int D>
__device__ __forceinline__ void see_pages(const struct cuda_pages &p, const struct tile &t,
	int first, int step, unsigned base, struct few<D> &w)
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
				copy_both<K, D>(p, t, N * ahead + i, number[i], blockIdx.y,
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
			score_few<T, K, D>(w, now + i * bytes, s[i]);
		weigh_few<D, N>(w, s, N * unit * ROWS, p.scale * LOG2_E);
#pragma unroll
		for (int i = 0; i < N; i++)
			add_few<T, K, D>(w, s[i], now + i * bytes + bytes / 2);
		__syncwarp();
	}
	asm volatile("cp.async.wait_group 0;");
#pragma unroll
	for (int k = 0; k < 2; k++)
#pragma unroll
		for (int i = 4; i < WARP; i *= 2)
			w.sum[k] += __shfl_xor_sync(0xffffffffu, w.sum[k], i);
}

/* Writes y / sum. */
template <typename T, typename K, int D>
__device__ __forceinline__ void store_few(
	const struct cuda_pages &p, const struct tile &t, int head, int per, const struct few<D> &w)
{
	const int lane = threadIdx.x % WARP, from = lane / 4, pair = 2 * (lane % 4);
	const float inverse[2] = {1 / w.sum[0], 1 / w.sum[1]};
	const T *type = nullptr;
	auto put = [&](int m, int column, unsigned two_values) {
		T *y = as<T>(p.y) + ((int64_t)(t.row + m / per) * p.heads + head + m % per) * D;

		if (m < t.n * per)
			*reinterpret_cast<unsigned *>(y + column) = two_values;
	};

#pragma unroll
	for (int i = 0; i < D / 16; i++)
#pragma unroll
		for (int k = 0; k < 2; k++)
			if constexpr (is_f8<K>)
				put(pair + k, 16 * i + 2 * from,
					two(type, w.y[i][k] * inverse[k],
						w.y[i][2 + k] * inverse[k]));
			else
				put(from, 16 * i + 8 * k + pair,
					turned(two(type, w.y[i][2 * k] * inverse[0],
						w.y[i][2 * k + 1] * inverse[1])));
}

#endif
