/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of requests whose keys and values are in pages: cache-write, attention, rows by number, the next token.
 *
 * Attention has two ways. In the first, for any type and width of a head, a block computes one head of one row. In the
 * second, on tensor cores, rows are in tiles: rows of one request at positions that follow each other, of one page (for
 * the blocks of pages_tiles.cu, 64 positions). A block is started for each row, and ends at once where no tile begins. The heads of a group share their keys, so that
 * a tile of n rows has n x group queries: a block with few of them divides the keys among its warps, as decoding needs
 * it; one with many has a warp for each head, which share the keys in shared memory. Sums are in f32, softmax is taken
 * in one pass (Milakov and Gimelshein, arXiv 1805.02867).
 */
#include "mma.cuh"

#define THREADS 256
#define HEADS	8  /* of a row, that a block writes */
#define ROWS	16 /* queries of a product on tensor cores, tokens of a page, most rows of a tile */
#define MASKED                                                                                     \
	-1e30f /* a score that counts as none; not infinite, so that differences are numbers */
#define WHOLE	  -1.0f /* in place of a sum: the query has no parts */
#define FEW	  4	/* warps of a block that divides the keys */
#define MANY_ROWS 1024	/* of a step */
#define FEW_DEEP  3	/* pages that a warp of it has under way or in use */

/* The elements of the cache before the first group of a position. */
__device__ __forceinline__ int64_t slot_of(const struct cuda_pages &p, int request, int position)
{
	const int64_t page = p.page[request * p.each + position / p.slots];

	return (page * p.slots + position % p.slots) * p.groups * p.depth;
}

/* ---- cache-write ------------------------------------------------------------------------------ */

/* A block writes HEADS heads of a row. */
template <typename T> __global__ void cache_write_kernel(struct cuda_pages p)
{
	const int half = p.depth / 2, heads = p.heads + 2 * p.groups,
		  position = p.position[blockIdx.x];
	const T *x = as<const T>(p.x) + (int64_t)blockIdx.x * heads * p.depth;
	const int begin = blockIdx.y * HEADS * half + threadIdx.x;
	const int end = min(heads, (int)(blockIdx.y + 1) * HEADS) * half;
	T *q = as<T>(p.q) + (int64_t)blockIdx.x * p.heads * p.depth;
	int64_t slot;

	if (position < 0) {
		for (int i = begin; i < min(end, p.heads * half); i += blockDim.x)
			q[2 * i] = q[2 * i + 1] = (T)0.0f;
		return;
	}
	slot = slot_of(p, p.request[blockIdx.x], position);
	for (int u = begin; u < end; u += blockDim.x) {
		const int head = u / half, i = u % half, key = head - p.heads,
			  value = key - p.groups;
		const T *from = x + head * p.depth + i;
		T *to = key < 0	    ? q + head * p.depth + i
			: value < 0 ? as<T>(p.keys) + slot + key * p.depth + i
				    : as<T>(p.values) + slot + value * p.depth + i;
		const int64_t angle = (int64_t)position * half + i;
		const float a = (float)from[0], b = (float)from[half];
		const float c = value < 0 ? p.angles[angle] : 1;
		const float s = value < 0 ? p.angles[p.positions * half + angle] : 0;

		to[0] = (T)(a * c - b * s);
		to[half] = (T)(b * c + a * s);
	}
}

void cuda_cache_write(const struct cuda_pages *p, cudaStream_t stream)
{
	with_type(p->q, [&](auto t) {
		cache_write_kernel<decltype(t)>
			<<<dim3((unsigned)p->rows, blocks_for(p->heads + 2 * p->groups, HEADS)),
				THREADS, 0, stream>>>(*p);
	});
}

/* ---- attention of any type and width ------------------------------------------------------------------ */

#define ANY_WARPS 4
#define ANY_EACH  (CUDA_ATTENTION_WIDEST / WARP) /* elements of a head that a lane has at most */

/* What a warp has seen of the keys. */
struct seen {
	float most, sum, y[ANY_EACH];
};

/* Takes the key at `at`, and its value. q is times scale log2(e). */
template <typename T>
__device__ __forceinline__ void see(
	const struct cuda_pages &p, int64_t at, const float (&q)[ANY_EACH], struct seen &s)
{
	const int lane = threadIdx.x % WARP;
	float score = 0, most, old, now;

#pragma unroll
	for (int k = 0; k < ANY_EACH; k++)
		if (k * WARP + lane < p.depth)
			score += q[k] * (float)as<const T>(p.keys)[at + k * WARP + lane];
	score = warp_sum(score);
	most = fmaxf(s.most, score);
	old = exp2f(s.most - most);
	now = exp2f(score - most);
	s.sum = s.sum * old + now;
#pragma unroll
	for (int k = 0; k < ANY_EACH; k++)
		if (k * WARP + lane < p.depth)
			s.y[k] = s.y[k] * old +
				 now * (float)as<const T>(p.values)[at + k * WARP + lane];
	s.most = most;
}

template <typename T> __global__ void attention_any_kernel(struct cuda_pages p)
{
	__shared__ struct {
		float most, sum, y[CUDA_ATTENTION_WIDEST];
	} share[ANY_WARPS];
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const int row = blockIdx.x, head = blockIdx.y, last = p.position[row];
	const int64_t at = ((int64_t)row * p.heads + head) * p.depth;
	const int key = head / (p.heads / p.groups) * p.depth;
	struct seen s = {MASKED, 0, {0}};
	float q[ANY_EACH];

#pragma unroll
	for (int k = 0; k < ANY_EACH; k++)
		q[k] = k * WARP + lane < p.depth
			       ? (float)as<const T>(p.q)[at + k * WARP + lane] * p.scale * LOG2_E
			       : 0;
	for (int t = warp; t <= last; t += ANY_WARPS)
		see<T>(p, slot_of(p, p.request[row], t) + key, q, s);
	share[warp].most = s.most;
	share[warp].sum = s.sum;
#pragma unroll
	for (int k = 0; k < ANY_EACH; k++)
		share[warp].y[k * WARP + lane] = s.y[k];
	__syncthreads();
	for (int i = threadIdx.x; i < p.depth; i += blockDim.x) {
		float most = MASKED, sum = 0, y = 0;

		for (int w = 0; w < ANY_WARPS; w++)
			most = fmaxf(most, share[w].most);
		for (int w = 0; w < ANY_WARPS; w++) {
			const float part = exp2f(share[w].most - most);

			sum += part * share[w].sum;
			y += part * share[w].y[i];
		}
		as<T>(p.y)[at + i] = (T)(last < 0 ? 0 : y / sum);
	}
}

/* ---- attention on tensor cores ------------------------------------------------------------------------ */

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

/* 16 queries and what they have seen of the keys, as fragments: a lane has the rows lane / 4 and lane / 4 + 8. */
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

/* A page in shared memory has rows of D elements, in chunks of 16 bytes, whose order differs from row to row so that
 * eight rows of one chunk are in different banks. */
template <int D> __device__ __forceinline__ unsigned chunk_at(unsigned base, int row, int chunk)
{
	return base + (unsigned)(row * D * 2 + (chunk ^ (row & 7)) * 16);
}

/* Copies the keys or values of a page, by `threads` threads; slots behind the last key become 0, because they may hold
 * anything and 0 x NaN is NaN. */
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

__device__ __forceinline__ void load_turned(unsigned (&to)[4], unsigned at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(at));
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

/* Where the parts of a query are, after its keys were divided: y[D], then maximum and sum. */
template <int D>
__device__ __forceinline__ float *part_of(const struct cuda_pages &p, int64_t query, int split)
{
	return p.parts + (query * p.splits + split) * (D + 2);
}

/* A tile of many queries: warp w has head w of the group. Pages are copied one ahead. */
template <typename T, int D> __global__ void attention_many_kernel(struct cuda_pages p)
{
	extern __shared__ __align__(128) char share[];
	const struct tile t = tile_at(p, blockIdx.x);
	const int per = p.heads / p.groups, group = blockIdx.y, warp = threadIdx.x / WARP;
	const int pages = (t.first + t.n + ROWS - 1) / ROWS, lane = threadIdx.x % WARP;
	constexpr unsigned bytes = ROWS * D * 2; /* keys, or values, of a page */
	const unsigned base = shared_at(share);
	const int64_t apart = (int64_t)p.groups * D;
	struct queries<D> w;

	if (t.n * per <= ROWS)
		return;
	take_queries<T, D>(p, t, group * per + warp, 1, w);
	for (int page = -1; page < pages; page++) {
		const unsigned now = base + (page & 1) * 2 * bytes,
			       next = base + (~page & 1) * 2 * bytes;
		float s[2][4];

		if (page + 1 < pages) {
			const struct page_at at = page_of(p, t, page + 1, group);

			copy_page<T, D>(next, as<const T>(p.keys) + at.from, apart, at.slots,
				threadIdx.x, blockDim.x);
			copy_page<T, D>(next + bytes, as<const T>(p.values) + at.from, apart,
				at.slots, threadIdx.x, blockDim.x);
		}
		asm volatile("cp.async.commit_group;");
		if (page < 0)
			continue;
		asm volatile("cp.async.wait_group 1;");
		__syncthreads();
		score_page<T, D>(w, now, s);
		weigh<D, 2>(w, s, page * ROWS, p.scale * LOG2_E);
		add_values<T, D>(w, s[0], s[1], now + bytes);
		__syncthreads();
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int64_t row = t.row + lane / 4 + 8 * r;

		w.sum[r] = of_four(w.sum[r], true);
		if (row >= t.row + t.n)
			continue;
		store_row<T, D>(p, w, r, row, group * per + warp);
		if (p.splits > 1)
			part_of<D>(p, row * p.heads + group * per + warp, 0)[D + 1] = WHOLE;
	}
}

/* Adds up what the warps have seen. Query m of the tile is row m / per, head m % per. */
template <typename T, int D>
__device__ __forceinline__ void merge_warps(
	const struct cuda_pages &p, const struct tile &t, int group, float *share)
{
	const int per = p.heads / p.groups, queries = t.n * per;

	for (int u = threadIdx.x; u < queries * D; u += blockDim.x) {
		const int m = u / D, i = u % D;
		const int64_t row = t.row + m / per, head = group * per + m % per;
		float most = MASKED, sum = 0, y = 0;

		for (int warp = 0; warp < FEW; warp++)
			most = fmaxf(most, share[(warp * ROWS + m) * (D + 2) + D]);
		for (int warp = 0; warp < FEW; warp++) {
			const float *from = share + (warp * ROWS + m) * (D + 2);
			const float part = exp2f(from[D] - most);

			y += part * from[i];
			sum += part * from[D + 1];
		}
		if (p.splits == 1) {
			as<T>(p.y)[(row * p.heads + head) * D + i] = (T)(y / sum);
			continue;
		}
		float *to = part_of<D>(p, row * p.heads + head, blockIdx.z);

		to[i] = y;
		if (i == 0) {
			to[D] = most;
			to[D + 1] = sum;
		}
	}
}

/* A tile of at most 16 queries: the warps of all its blocks (p.splits along z) take its pages in turn. */
template <typename T, int D>
__device__ __forceinline__ void attend_few(
	const struct cuda_pages &p, const struct tile &t, char *share)
{
	const int per = p.heads / p.groups, group = blockIdx.y, warp = threadIdx.x / WARP;
	const int pages = (t.first + t.n + ROWS - 1) / ROWS, lane = threadIdx.x % WARP;
	const int first = blockIdx.z * FEW + warp, step = FEW * p.splits;
	constexpr unsigned bytes = ROWS * D * 2;
	const unsigned base = shared_at(share) + warp * FEW_DEEP * 2 * bytes;
	const int64_t apart = (int64_t)p.groups * D;
	float *merged = reinterpret_cast<float *>(share);
	struct queries<D> w;

	if (t.first < 0) {
		for (int i = threadIdx.x; i < per * D && !blockIdx.z; i += blockDim.x)
			as<T>(p.y)[((int64_t)t.row * p.heads + group * per) * D + i] = (T)0.0f;
		return;
	}
	take_queries<T, D>(p, t, group * per, per, w);
	for (int ahead = first, k = 0;; ahead += step, k++) {
		const int page = ahead - (FEW_DEEP - 1) * step;

		if (ahead < pages) {
			const struct page_at at = page_of(p, t, ahead, group);
			const unsigned to = base + k % FEW_DEEP * 2 * bytes;

			copy_page<T, D>(
				to, as<const T>(p.keys) + at.from, apart, at.slots, lane, WARP);
			copy_page<T, D>(to + bytes, as<const T>(p.values) + at.from, apart,
				at.slots, lane, WARP);
		}
		asm volatile("cp.async.commit_group;");
		if (page < first)
			continue;
		if (page >= pages)
			break;
		asm volatile("cp.async.wait_group %0;" ::"n"(FEW_DEEP - 1));
		__syncwarp();
		{
			const unsigned now = base + (k + 1) % FEW_DEEP * 2 * bytes;
			float s[2][4];

			score_page<T, D>(w, now, s);
			weigh<D, 2>(w, s, page * ROWS, p.scale * LOG2_E);
			add_values<T, D>(w, s[0], s[1], now + bytes);
		}
		__syncwarp();
	}
	asm volatile("cp.async.wait_group 0;");
	__syncthreads(); /* the pages are no longer needed */
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float *to = merged + (warp * ROWS + lane / 4 + 8 * r) * (D + 2);

		w.sum[r] = of_four(w.sum[r], true);
#pragma unroll
		for (int i = 0; i < D / 8; i++) {
			to[8 * i + 2 * (lane % 4)] = w.y[i][2 * r];
			to[8 * i + 2 * (lane % 4) + 1] = w.y[i][2 * r + 1];
		}
		to[D] = w.most[r];
		to[D + 1] = w.sum[r];
	}
	__syncthreads();
	merge_warps<T, D>(p, t, group, merged);
}

/* A block takes every gridDim.x-th row. */
template <typename T, int D>
__global__ void __launch_bounds__(FEW *WARP) attention_few_kernel(struct cuda_pages p)
{
	extern __shared__ __align__(128) char share[];

	start_next();
	wait_for_previous();
	for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
		const struct tile t = tile_at(p, row);

		if (!t.n || t.n * (p.heads / p.groups) > ROWS)
			continue;
		attend_few<T, D>(p, t, share);
		__syncthreads(); /* the next tile uses the same memory */
	}
}

/* A block adds up the parts of one query. */
template <typename T, int D> __global__ void merge_kernel(struct cuda_pages p)
{
	const int64_t query = blockIdx.x;
	const int i = threadIdx.x;
	float most = MASKED, sum = 0, y = 0;

	start_next();
	wait_for_previous();
	if (p.position[query / p.heads] < 0 || part_of<D>(p, query, 0)[D + 1] == WHOLE)
		return;
	for (int k = 0; k < p.splits; k++)
		most = fmaxf(most, part_of<D>(p, query, k)[D]);
	for (int k = 0; k < p.splits; k++) {
		const float *from = part_of<D>(p, query, k);
		const float part = exp2f(from[D] - most);

		y += part * from[i];
		sum += part * from[D + 1];
	}
	as<T>(p.y)[query * D + i] = (T)(y / sum);
}

/* ---- starting attention ----------------------------------------------------------------------------------- */

static bool on_tensor_cores(const struct cuda_pages *p)
{
	return p->q.type != CUDA_F32 && (p->depth == 64 || p->depth == 128) && p->slots == ROWS &&
	       p->heads / p->groups <= CUDA_PAGES_GROUP;
}

int cuda_pages_splits(int processors, const struct cuda_pages *p)
{
	const int64_t blocks = p->rows * p->groups, most = (p->each + FEW - 1) / FEW;
	int64_t splits = (2 * processors + blocks - 1) / blocks;

	if (!on_tensor_cores(p))
		return 1;
	return (int)(splits > most ? most : splits);
}

size_t cuda_pages_parts(const struct cuda_pages *p)
{
	size_t queries = (size_t)(p->rows * p->heads);

	return p->splits > 1 ? queries * (size_t)(p->splits * (p->depth + 2)) * sizeof(float) : 0;
}

/* Rows that a block looks at: most begin no tile in steps of many rows, and a block costs as much as an idle one. */
static unsigned blocks_of_rows(int64_t rows)
{
	return rows < MANY_ROWS ? (unsigned)rows : blocks_for(rows, 8);
}

template <typename T, int D>
static void attend(
	const struct cuda_pages *given, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	const int per = given->heads / given->groups, page = 2 * ROWS * D * (int)sizeof(T);
	const dim3 tiles(
		blocks_of_rows(given->rows), (unsigned)given->groups, (unsigned)given->splits);
	struct cuda_pages own = *given, *p = &own;

	own.span = boxes ? CUDA_PAGES_RUN : ROWS;
	own.few = ROWS / per;

	cudaFuncSetAttribute(attention_few_kernel<T, D>,
		cudaFuncAttributeMaxDynamicSharedMemorySize, FEW * FEW_DEEP * page);
	start_overlapping(
		attention_few_kernel<T, D>, tiles, FEW * WARP, FEW * FEW_DEEP * page, stream, *p);
	if (boxes)
		cuda_attention_runs(p, boxes, stream);
	else if (p->rows * per > ROWS)
		attention_many_kernel<T, D>
			<<<dim3((unsigned)p->rows, tiles.y), per * WARP, 2 * page, stream>>>(*p);
	if (p->splits > 1)
		start_overlapping(
			merge_kernel<T, D>, dim3((unsigned)(p->rows * p->heads)), D, 0, stream, *p);
}

bool cuda_pages_runs(const struct cuda_pages *p)
{
	const int per = p->heads / p->groups;

	return on_tensor_cores(p) && p->q.type == CUDA_BF16 && per % 2 == 0 && p->splits == 1 &&
	       p->rows * per > ROWS;
}

void cuda_attention_pages(
	const struct cuda_pages *p, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	with_type(p->q, [&](auto t) {
		using T = decltype(t);

		if constexpr (sizeof(T) == 2) {
			if (on_tensor_cores(p)) {
				p->depth == 64 ? attend<T, 64>(p, boxes, stream)
					       : attend<T, 128>(p, boxes, stream);
				return;
			}
		}
		attention_any_kernel<T><<<dim3((unsigned)p->rows, (unsigned)p->heads),
			ANY_WARPS * WARP, 0, stream>>>(*p);
	});
}

/* ---- rows by number, the next token ---------------------------------------------------------------------- */

/* A block copies a row. */
template <typename T> __global__ void rows_kernel(struct cuda_rows p)
{
	const T *x = as<const T>(p.x) + p.at[blockIdx.x] * p.width;
	T *y = as<T>(p.y) + blockIdx.x * p.width;

	for (int64_t i = threadIdx.x; i < p.width; i += blockDim.x)
		y[i] = x[i];
}

void cuda_rows(const struct cuda_rows *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		rows_kernel<decltype(t)>
			<<<(unsigned)p->rows, threads_for(p->width, THREADS), 0, stream>>>(*p);
	});
}

/* The larger logit, of equal ones the first. */
__device__ __forceinline__ void prefer(float x, int at, float &best, int &best_at)
{
	if (x > best || (x == best && at < best_at)) {
		best = x;
		best_at = at;
	}
}

/* A block searches a row. */
template <typename T> __global__ void sample_kernel(struct cuda_sample p)
{
	__shared__ float value[THREADS / WARP];
	__shared__ int at[THREADS / WARP];
	const T *x = as<const T>(p.logits) + blockIdx.x * p.width;
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	float best = -INFINITY;
	int best_at = 0;

	for (int i = threadIdx.x; i < p.classes; i += THREADS)
		prefer((float)x[i], i, best, best_at);
#pragma unroll
	for (int i = WARP / 2; i; i /= 2)
		prefer(__shfl_xor_sync(0xffffffffu, best, i),
			__shfl_xor_sync(0xffffffffu, best_at, i), best, best_at);
	if (lane == 0) {
		value[warp] = best;
		at[warp] = best_at;
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int i = 1; i < THREADS / WARP; i++)
		prefer(value[i], at[i], best, best_at);
	p.token[blockIdx.x] = best_at;
}

void cuda_sample(const struct cuda_sample *p, cudaStream_t stream)
{
	with_type(p->logits, [&](auto t) {
		sample_kernel<decltype(t)><<<(unsigned)p->rows, THREADS, 0, stream>>>(*p);
	});
}
