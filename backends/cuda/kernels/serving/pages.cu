/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of requests whose keys and values are in pages: cache-write, attention, rows by number, the
 * next token.
 *
 * Attention has two ways. In the first, for any type and width of a head, a block computes one head
 * of one row. In the second, on tensor cores, rows are in tiles: rows of one request at positions
 * that follow each other, of one page (for the blocks of pages_tiles.cu, 64 positions). A block is
 * started for each row, or for a few, and ends at once where no tile begins. The heads of a group
 * share their keys, so that a tile of n rows has n x group queries: a block with few of them
 * divides the keys among its warps, as decoding needs it; one with many has a warp for each head,
 * which share the keys in shared memory. Sums are in f32, softmax is taken in one pass (Milakov and
 * Gimelshein, arXiv 1805.02867).
 */
#include "pages_few.cuh"

#define THREADS	  256
#define HEADS	  16	/* of a row, that a block writes */
#define WHOLE	  -1.0f /* in place of a sum: the query has no parts */
#define FEW	  4	/* warps of a block that divides the keys */
#define MANY_ROWS 1024	/* of a step */
#define ALONE	  16	/* pages that a warp of it takes alone, where blocks have several rows */

/* The elements of the cache before the first group of a position. */
__device__ __forceinline__ int64_t slot_of(const struct cuda_pages &p, int request, int position)
{
	const int64_t page = p.page[request * p.each + position / p.slots];

	return (page * p.slots + position % p.slots) * p.groups * p.depth;
}

/* ---- cache-write ----------------------------------------------------------------------------- */

/* Turns the pairs (a, b) by angles. */
template <int N>
__device__ __forceinline__ void turn(
	const float *cosines, const float *sines, float (&a)[N], float (&b)[N])
{
	float c[N], s[N];

	load(cosines, c);
	load(sines, s);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float left = a[k];

		a[k] = left * c[k] - b[k] * s[k];
		b[k] = b[k] * c[k] + left * s[k];
	}
}

template <int N, typename K> __device__ __forceinline__ void keep(K *to, const float (&v)[N])
{
	if constexpr (is_f8<K> && N == PACK)
		store_codes<__NV_E4M3>(&to->code, v, N);
	else if constexpr (is_f8<K>)
		to->code = __nv_cvt_float_to_fp8(v[0], __NV_SATFINITE, __NV_E4M3);
	else
		store(to, v);
}

/* A block writes HEADS heads of a row; a thread takes N pairs at a time. */
template <int N, typename T, typename K> __global__ void cache_write_kernel(struct cuda_pages p)
{
	const int half = p.depth / 2, heads = p.heads + 2 * p.groups, row = blockIdx.x;
	const int end = min(heads, (int)(blockIdx.y + 1) * HEADS) * (half / N);
	int64_t slot, angle;
	int position;

	wait_for_previous();
	start_next();
	position = p.position[row];
	slot = position < 0 ? 0 : slot_of(p, p.request[row], position);
	angle = (int64_t)position * half;
	for (int u = blockIdx.y * HEADS * (half / N) + threadIdx.x; u < end; u += blockDim.x) {
		const int head = u / (half / N), i = u % (half / N) * N, key = head - p.heads;
		const T *from = as<const T>(p.x) + ((int64_t)row * heads + head) * p.depth + i;
		float a[N] = {}, b[N] = {};

		if (position >= 0) {
			load(from, a);
			load(from + half, b);
		}
		if (position >= 0 && key < p.groups)
			turn(p.angles + angle + i, p.angles + p.positions * half + angle + i, a, b);
		if (key < 0) {
			T *q = as<T>(p.q) + ((int64_t)row * p.heads + head) * p.depth + i;

			store(q, a);
			store(q + half, b);
		} else if (position >= 0) {
			K *kept = (key < p.groups ? as<K>(p.keys)
						  : as<K>(p.values) - p.groups * p.depth) +
				  slot + key * p.depth + i;

			keep(kept, a);
			keep(kept + half, b);
		}
	}
}

/* Calls f(T(), K()): the type of the queries, that of keys and values. */
template <class F> static void with_kept(const struct cuda_pages *p, F f)
{
	with_type(p->q, [&](auto t) { p->f8 ? f(t, e4m3()) : f(t, t); });
}

template <int N> static void cache_write(const struct cuda_pages *p, cudaStream_t stream)
{
	const int heads = p->heads + 2 * p->groups;

	with_kept(p, [&](auto t, auto k) {
		start_overlapping(cache_write_kernel<N, decltype(t), decltype(k)>,
			dim3((unsigned)p->rows, blocks_for(heads, HEADS)),
			threads_for(HEADS * p->depth / 2 / N, THREADS), 0, stream, *p);
	});
}

void cuda_cache_write(const struct cuda_pages *p, cudaStream_t stream)
{
	p->depth % (2 * PACK) ? cache_write<1>(p, stream) : cache_write<PACK>(p, stream);
}

/* ---- attention of any type and width --------------------------------------------------------- */

#define ANY_WARPS 4
#define ANY_EACH  (CUDA_ATTENTION_WIDEST / WARP) /* elements of a head that a lane has at most */

/* What a warp has seen of the keys. */
struct seen {
	float most, sum, y[ANY_EACH];
};

/* Takes the key at `at`, and its value. q is times scale log2(e). */
template <typename K>
__device__ __forceinline__ void see(
	const struct cuda_pages &p, int64_t at, const float (&q)[ANY_EACH], struct seen &s)
{
	const int lane = threadIdx.x % WARP;
	float score = 0, most, old, now;

#pragma unroll
	for (int k = 0; k < ANY_EACH; k++)
		if (k * WARP + lane < p.depth)
			score += q[k] * widened(as<const K>(p.keys)[at + k * WARP + lane]);
	score = warp_sum(score);
	most = fmaxf(s.most, score);
	old = exp2f(s.most - most);
	now = exp2f(score - most);
	s.sum = s.sum * old + now;
#pragma unroll
	for (int k = 0; k < ANY_EACH; k++)
		if (k * WARP + lane < p.depth)
			s.y[k] = s.y[k] * old +
				 now * widened(as<const K>(p.values)[at + k * WARP + lane]);
	s.most = most;
}

/* An element of a query, which has the precision of keys in 8 bits. */
template <typename K> __device__ __forceinline__ float rounded(float x)
{
	if constexpr (is_f8<K>)
		return widened(K{__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)});
	else
		return x;
}

template <typename T, typename K> __global__ void attention_any_kernel(struct cuda_pages p)
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
			       ? rounded<K>((float)as<const T>(p.q)[at + k * WARP + lane]) *
					 p.scale * LOG2_E
			       : 0;
	for (int t = warp; t <= last; t += ANY_WARPS)
		see<K>(p, slot_of(p, p.request[row], t) + key, q, s);
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

/* ---- attention on tensor cores --------------------------------------------------------------- */

/* Where the parts of a query are, after its keys were divided: y[D], then maximum and sum. */
template <int D>
__device__ __forceinline__ float *part_of(const struct cuda_pages &p, int64_t query, int split)
{
	return p.parts + (query * p.splits + split) * (D + 2);
}

/* A tile of many queries: warp w has head w of the group. Pages are copied one ahead. */
template <typename T, typename K, int D> __global__ void attention_many_kernel(struct cuda_pages p)
{
	extern __shared__ __align__(128) char share[];
	const struct tile t = tile_at(p, blockIdx.x);
	const int per = p.heads / p.groups, group = blockIdx.y, warp = threadIdx.x / WARP;
	const int pages = pages_of(t), lane = threadIdx.x % WARP;
	constexpr unsigned bytes = page_bytes<K, D>;
	const unsigned base = shared_at(share);
	struct queries<D> w;

	if (t.n * per <= QUERIES)
		return;
	take_queries<T, K, D>(p, t, group * per + warp, 1, w);
	for (int page = -1; page < pages; page++) {
		const unsigned now = base + (page & 1) * bytes, next = base + (~page & 1) * bytes;
		float s[2][4];

		if (page + 1 < pages)
			copy_both<K, D>(p, t, page + 1, p.page[t.request * p.each + page + 1],
				group, next, threadIdx.x, blockDim.x);
		asm volatile("cp.async.commit_group;");
		if (page < 0)
			continue;
		asm volatile("cp.async.wait_group 1;");
		__syncthreads();
		score_page<T, K, D>(w, now, s);
		weigh<true>(w, s, page * ROWS, p.scale * LOG2_E, (page + 1) * ROWS > t.first + 1);
		add_values<T, K, D>(w, s[0], s[1], now + bytes / 2);
		__syncthreads();
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int64_t row = t.row + lane / 4 + 8 * r;

		w.sum[r] = sum_of_query<true>(w.sum[r]);
		if (row >= t.row + t.n)
			continue;
		store_row<T, K, D>(p, w, r, row, group * per + warp);
		if (p.splits > 1)
			part_of<D>(p, row * p.heads + group * per + warp, 0)[D + 1] = WHOLE;
	}
}

/* Adds up what the warps have seen; each takes every FEW-th query. Query m of the tile is row
 * m / per, head m % per. */
template <typename T, int D>
__device__ __forceinline__ void merge_warps(
	const struct cuda_pages &p, const struct tile &t, int group, const float *share)
{
	const int per = p.heads / p.groups, queries = t.n * per, lane = threadIdx.x % WARP;

	for (int m = threadIdx.x / WARP; m < queries; m += FEW) {
		const int64_t query = (int64_t)(t.row + m / per) * p.heads + group * per + m % per;
		float most = MASKED, sum = 0, y[D / WARP] = {};

#pragma unroll
		for (int warp = 0; warp < FEW; warp++)
			most = fmaxf(most, share[(warp * QUERIES + m) * (D + 2) + D]);
#pragma unroll
		for (int warp = 0; warp < FEW; warp++) {
			const float *from = share + (warp * QUERIES + m) * (D + 2);
			const float part = exp2f(from[D] - most);

			sum += part * from[D + 1];
#pragma unroll
			for (int k = 0; k < D / WARP; k++)
				y[k] += part * from[k * WARP + lane];
		}
		float *to = part_of<D>(p, query, blockIdx.z);

#pragma unroll
		for (int k = 0; k < D / WARP; k++)
			if (p.splits == 1)
				as<T>(p.y)[query * D + k * WARP + lane] = (T)(y[k] / sum);
			else
				to[k * WARP + lane] = y[k];
		if (p.splits > 1 && lane == 0) {
			to[D] = most;
			to[D + 1] = sum;
		}
	}
}

/* A tile of few queries, for a warp. */
template <int OWN, typename T, typename K, int D>
__device__ __forceinline__ void attend_alone(
	const struct cuda_pages &p, const struct tile &t, char *share)
{
	const int per = p.heads / p.groups, head = blockIdx.x * per, warp = threadIdx.x / WARP;
	struct few<K, D, OWN> w;

	take_few<T>(p, t, head, per, w);
	see_pages<T>(p, t, 0, 1, shared_at(share) + warp * few_bytes<K, D>, w);
	store_few<T>(p, t, head, per, w);
}

/* A tile of few queries: the warps of all its blocks (p.splits along z) take its pages in turn. */
template <int OWN, typename T, typename K, int D>
__device__ __forceinline__ void attend_few(
	const struct cuda_pages &p, const struct tile &t, char *share)
{
	const int per = p.heads / p.groups, group = blockIdx.x, warp = threadIdx.x / WARP;
	float *merged = reinterpret_cast<float *>(share);
	struct few<K, D, OWN> w;

	if (t.first < 0) {
		for (int i = threadIdx.x; i < per * D && !blockIdx.z; i += blockDim.x)
			as<T>(p.y)[((int64_t)t.row * p.heads + group * per) * D + i] = (T)0.0f;
		return;
	}
	take_few<T>(p, t, group * per, per, w);
	see_pages<T>(p, t, blockIdx.z * FEW + warp, FEW * p.splits,
		shared_at(share) + warp * few_bytes<K, D>, w);
	__syncthreads(); /* the pages are no longer needed */
#pragma unroll
	for (int k = 0; k < OWN; k++) {
		const int m = w.query(k);
		float *to = merged + (warp * QUERIES + m) * (D + 2);

		if (m >= t.n * per)
			continue;
		w.each(k, [&](int column, float y) { to[column] = y; });
		to[D] = w.most[k];
		to[D + 1] = w.sum[k];
	}
	__syncthreads();
	merge_warps<T, D>(p, t, group, merged);
}

/* Calls f(a whole number): the queries that a lane has of a tile. */
template <typename K, class F>
__device__ __forceinline__ void with_own(const struct cuda_pages &p, const struct tile &t, F f)
{
#if __CUDA_ARCH__ >= 890 /* below, where codes have no instructions, one kind is enough */
	if (is_f8<K> && t.n * (p.heads / p.groups) <= 4) {
		f(std::integral_constant<int, 1>());
		return;
	}
#endif
	f(std::integral_constant<int, 2>());
}

/* The tile of few queries that begins at a row; n = 0: none does. Each thread may ask for another
 * row. */
__device__ __forceinline__ struct tile few_at(const struct cuda_pages &p, int row)
{
	struct tile t = {row, 0, 0, 0};
	int n = 1;

	if (row >= p.rows)
		return t;
	const int before = row ? p.position[row - 1] : -2, other = row ? p.request[row - 1] : 0;

	t.request = p.request[row];
	t.first = p.position[row];
	if (t.first >= 0 && t.first % p.span && other == t.request && before == t.first - 1)
		return t;
	while (t.first >= 0 && n <= p.few && (t.first + n) % p.span && row + n < p.rows &&
		p.request[row + n] == t.request && p.position[row + n] == t.first + n)
		n++;
	t.n = n <= p.few ? n : 0;
	return t;
}

/* The tile that a lane has. */
__device__ __forceinline__ struct tile tile_of(const struct tile &t, int lane)
{
	return {__shfl_sync(0xffffffffu, t.row, lane), __shfl_sync(0xffffffffu, t.n, lane),
		__shfl_sync(0xffffffffu, t.request, lane), __shfl_sync(0xffffffffu, t.first, lane)};
}

/* A block takes every gridDim.y-th row, of which each lane looks at one: first each warp its share
 * of the tiles of few pages, alone, then all together the others. */
template <typename T, typename K, int D>
__global__ void __launch_bounds__(FEW *WARP, few_blocks<K>)
	attention_few_kernel(struct cuda_pages p)
{
	extern __shared__ __align__(128) char share[];

	if (p.late)
		wait_for_previous();
	const struct tile t = few_at(p, blockIdx.y + threadIdx.x % WARP * gridDim.y);
	const bool alone = gridDim.y < p.rows && t.n && t.first >= 0 && pages_of(t) <= ALONE;
	unsigned single = __ballot_sync(0xffffffffu, alone),
		 shared = __ballot_sync(0xffffffffu, t.n && !alone);

	start_next();
	wait_for_previous();
	if (p.span == CUDA_PAGES_RUN && blockIdx.x + blockIdx.y == 0)
		order_sets(p);
	for (int k = 0; single; k++, single &= single - 1) {
		const struct tile own = tile_of(t, __ffs(single) - 1);

		if (k % FEW == threadIdx.x / WARP)
			with_own<K>(p, own, [&](auto n) {
				attend_alone<decltype(n)::value, T, K, D>(p, own, share);
			});
	}
	__syncthreads();
	for (; shared; shared &= shared - 1) {
		const struct tile ours = tile_of(t, __ffs(shared) - 1);

		with_own<K>(p, ours,
			[&](auto n) { attend_few<decltype(n)::value, T, K, D>(p, ours, share); });
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

/* ---- starting attention ---------------------------------------------------------------------- */

static bool on_tensor_cores(const struct cuda_pages *p)
{
	return p->q.type != CUDA_F32 && (p->depth == 64 || p->depth == 128) && p->slots == ROWS &&
	       p->heads / p->groups <= CUDA_PAGES_GROUP;
}

int cuda_pages_splits(int processors, const struct cuda_pages *p)
{
	const int pages =
		FEW * (p->f8 ? few_pages<e4m3> : few_pages<bf16>); /* of a block at a time */
	const int64_t blocks = p->rows * p->groups, most = (p->each + pages - 1) / pages;
	const int together = p->f8 ? few_blocks<e4m3> : few_blocks<bf16>;
	int64_t splits = (together * processors + blocks - 1) / blocks;

	if (!on_tensor_cores(p))
		return 1;
	return (int)(splits > most ? most : splits);
}

size_t cuda_pages_parts(const struct cuda_pages *p)
{
	size_t queries = (size_t)(p->rows * p->heads);

	if (cuda_pages_runs(p)) /* what order_sets writes */
		return (1 + blocks_for(p->rows, CUDA_PAGES_RUN)) * sizeof(int);
	return p->splits > 1 ? queries * (size_t)(p->splits * (p->depth + 2)) * sizeof(float) : 0;
}

/* Rows that a block looks at: most begin no tile in steps of many rows, and a block costs as much
 * as an idle one. */
static unsigned blocks_of_rows(int64_t rows)
{
	return rows < MANY_ROWS ? (unsigned)rows : blocks_for(rows, 8);
}

/* Groups of a row whose blocks start together: what they read lies beside each other in memory, and
 * is read at about the same time. */
static unsigned groups_beside(const struct cuda_pages *p)
{
	return p->splits > 1 ? 1 : p->groups % 4 == 0 ? 4 : p->groups % 2 == 0 ? 2 : 1;
}

static void start_few(void (*kernel)(struct cuda_pages), dim3 blocks, int shared,
	cudaStream_t stream, const struct cuda_pages &p)
{
	cudaLaunchAttribute how[2] = {};
	cudaLaunchConfig_t start = {};

	how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	how[0].val.programmaticStreamSerializationAllowed = 1;
	how[1].id = cudaLaunchAttributeClusterDimension;
	how[1].val.clusterDim = {groups_beside(&p), 1, 1};
	start.gridDim = blocks;
	start.blockDim = FEW * WARP;
	start.dynamicSmemBytes = (size_t)shared;
	start.stream = stream;
	start.attrs = how;
	start.numAttrs = !can_overlap() ? 0 : how[1].val.clusterDim.x > 1 ? 2 : 1;
	cudaLaunchKernelEx(&start, kernel, p);
}

template <typename T, typename K, int D>
static void attend(
	const struct cuda_pages *given, const struct cuda_page_boxes *boxes, cudaStream_t stream)
{
	const int per = given->heads / given->groups, few = FEW * few_bytes<K, D>;
	/* groups of a row one after the other: their keys lie beside each other */
	const dim3 tiles(
		(unsigned)given->groups, blocks_of_rows(given->rows), (unsigned)given->splits);
	struct cuda_pages own = *given, *p = &own;

	own.few = QUERIES / per;
	/* where rows are few, those of a prompt are tiles of few queries, too */
	own.span = boxes ? CUDA_PAGES_RUN : p->rows <= ROWS ? own.few : ROWS;

	cudaFuncSetAttribute(
		attention_few_kernel<T, K, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, few);
	start_few(attention_few_kernel<T, K, D>, tiles, few, stream, *p);
	if (boxes)
		cuda_attention_runs(p, boxes, stream);
	else if (p->rows > ROWS)
		attention_many_kernel<T, K, D><<<dim3((unsigned)p->rows, tiles.x), per * WARP,
			2 * page_bytes<K, D>, stream>>>(*p);
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
	with_kept(p, [&](auto t, auto k) {
		using T = decltype(t);
		using K = decltype(k);

		if constexpr (sizeof(T) == 2) {
			if (on_tensor_cores(p)) {
				p->depth == 64 ? attend<T, K, 64>(p, boxes, stream)
					       : attend<T, K, 128>(p, boxes, stream);
				return;
			}
		}
		attention_any_kernel<T, K><<<dim3((unsigned)p->rows, (unsigned)p->heads),
			ANY_WARPS * WARP, 0, stream>>>(*p);
	});
}

/* ---- rows by number -------------------------------------------------------------------------- */

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

__global__ void made_ids_kernel(int64_t n, const int32_t *ids, const int32_t *token, int32_t *y)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i < n)
		y[i] = ids[i] < 0 ? token[-1 - ids[i]] : ids[i];
}

void cuda_made_ids(
	int64_t n, const int32_t *ids, const int32_t *token, int32_t *y, cudaStream_t stream)
{
	made_ids_kernel<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(n, ids, token, y);
}
