/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm of x[rows,c] in 16 bits, and its gradient, by one kernel each: as many rows as fit
 * stay in the registers and the shared memory of their block, which uses them again once the sums
 * of all blocks are known; only the others are read twice. A block has 64 channels of every n-th 64
 * rows, so that only the blocks of the same channels wait for each other. All blocks run at a time.
 * Sums have a fixed order: in f32 in a block, then in f64.
 */
#include "../batchnorm.cuh"
#include "../batchnorm_once.h"
#include "../mma.cuh"

#define SLICE	  64 /* channels of a block */
#define ACROSS	  (SLICE / PACK)
#define THREADS	  512
#define DOWN	  (THREADS / ACROSS) /* rows of a tile */
#define WARPS	  (THREADS / WARP)
#define HELD	  16			   /* packs that a thread keeps in registers */
#define HELD_BOTH 4			   /* pairs of packs, of x and of dy */
#define PLACE	  (THREADS * 16)	   /* bytes of a pack of each thread in shared memory */
#define MOST	  (26 * PLACE)		   /* bytes of packs in shared memory */
#define VALUES	  (2 * SLICE)		   /* sums of a block */
#define GROUPS	  (THREADS / VALUES)	   /* of threads that add up parts */
#define PARTS	  8			   /* that a thread loads at a time */
#define APART	  (128 / sizeof(unsigned)) /* counters lie in different lines */

/* Of a block, in shared memory. */
struct common {
	double groups[GROUPS][VALUES];
	float warps[WARPS][VALUES], results[3][SLICE];
};

static_assert(MOST + sizeof(struct common) <= (227 << 10), "More than a block may have.");

/* The rows of a thread: first, first + step and so on, n of them. */
struct own_rows {
	int column, first, step, c, n;

	__device__ __forceinline__ own_rows(int64_t rows, int64_t channels)
	    : column((int)blockIdx.x * SLICE + (int)threadIdx.x % ACROSS * PACK),
	      first((int)blockIdx.y * DOWN + (int)threadIdx.x / ACROSS),
	      step((int)gridDim.y * DOWN), c((int)channels),
	      n(first < (int)rows ? ((int)rows - 1 - first) / step + 1 : 0)
	{
	}
	/* The element with which the pack of a row begins. */
	__device__ __forceinline__ int at(int i) const
	{
		return (first + i * step) * c + column;
	}
};

/* The place of a thread's i-th pack in shared memory. */
template <typename T> __device__ __forceinline__ raw<PACK, T> *pack_of(char *packs, int i)
{
	return reinterpret_cast<raw<PACK, T> *>(packs + i * PLACE + (int)threadIdx.x * 16);
}

/* Starts to copy a pack to its place; without one, nothing is read. */
template <typename T>
__device__ __forceinline__ void copy_pack(char *packs, int place, const T *x, int at, bool is)
{
	copy_async<16>(shared_at(pack_of<T>(packs, place)), x + (is ? at : 0), is);
}

/* ---- sums of all blocks with the same channels ----------------------------------------------- */

/* Waits for the other blocks of the column. Its counter keeps its lower bits at 0 between uses: the
 * last arrival changes the highest one. */
__device__ __forceinline__ void meet(unsigned *arrived)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		unsigned *own = arrived + blockIdx.x * APART, before, now;

		asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
			     : "=r"(before)
			     : "l"(own), "r"(blockIdx.y ? 1 : 0x80000001u - gridDim.y)
			     : "memory");
		do
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
				     : "=r"(now)
				     : "l"(own)
				     : "memory");
		while (!((now ^ before) >> 31));
	}
	__syncthreads();
}

/* Adds up the threads' sums and writes those of the block to its row of parts. */
__device__ __forceinline__ void leave_block(
	float (&first)[PACK], float (&second)[PACK], float *parts, int64_t c, struct common &m)
{
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, t = threadIdx.x;
	float all = 0;

#pragma unroll
	for (int k = 0; k < PACK; k++)
		for (int far = ACROSS; far < WARP; far *= 2) {
			first[k] += __shfl_xor_sync(0xffffffffu, first[k], far);
			second[k] += __shfl_xor_sync(0xffffffffu, second[k], far);
		}
	if (lane < ACROSS) {
		store(m.warps[warp] + lane * PACK, first);
		store(m.warps[warp] + SLICE + lane * PACK, second);
	}
	__syncthreads();
	if (t >= VALUES)
		return;
#pragma unroll
	for (int w = 0; w < WARPS; w++)
		all += m.warps[w][t];
	parts[((int64_t)blockIdx.y * 2 + t / SLICE) * c + blockIdx.x * SLICE + t % SLICE] = all;
}

/* Both sums of all blocks, for channel threadIdx.x of the first SLICE threads. */
__device__ __forceinline__ two_sums gather_blocks(const float *parts, int64_t c, struct common &m)
{
	const int value = threadIdx.x % VALUES, group = threadIdx.x / VALUES, n = (int)gridDim.y;
	const float *own = parts + value / SLICE * c + blockIdx.x * SLICE + value % SLICE;
	two_sums s = {0, 0};
	double sum = 0;

	for (int b = group; b < n; b += PARTS * GROUPS) {
		float v[PARTS];

#pragma unroll
		for (int i = 0; i < PARTS; i++)
			v[i] = b + i * GROUPS < n ? __ldcg(own + (b + i * GROUPS) * 2 * c) : 0;
#pragma unroll
		for (int i = 0; i < PARTS; i++)
			sum += v[i];
	}
	m.groups[group][value] = sum;
	__syncthreads();
	if (threadIdx.x < SLICE)
		for (int g = 0; g < GROUPS; g++) {
			s.first += m.groups[g][threadIdx.x];
			s.second += m.groups[g][SLICE + threadIdx.x];
		}
	return s;
}

/* ---- the norm -------------------------------------------------------------------------------- */

/* Mean, scale and shift of the block's channels; the first block of a column writes the statistics.
 * less: what was subtracted from x. */
__device__ __forceinline__ void finish_stats(
	const struct cuda_bn &p, const two_sums &s, float less, struct common &m)
{
	const int64_t at = (int64_t)blockIdx.x * SLICE + threadIdx.x;
	double mean = s.first / (double)p.rows, var = s.second / (double)p.rows - mean * mean;
	float middle = (float)(mean + less), wide = (float)(var < 0 ? 0 : var);

	m.results[0][threadIdx.x] = middle;
	m.results[1][threadIdx.x] = rstd_of(p, wide) * p.gamma[at];
	m.results[2][threadIdx.x] = p.beta[at];
	if (blockIdx.y)
		return;
	p.mean[at] = middle;
	p.var[at] = wide;
	finalize(p, at, middle, wide);
}

template <typename T>
__device__ __forceinline__ void norm_pack(
	const struct cuda_bn &p, const raw<PACK, T> &x, const channels<PACK> &c, int at)
{
	float v[PACK];

	load(x.v, v);
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		v[k] = normed(v[k], c.mean[k], c.scale[k], c.shift[k]);
		if (p.relu)
			v[k] = v[k] < 0 ? 0 : v[k];
	}
	store(as<T>(p.y) + at, v);
}

/* Calls use(i, pack) for the packs from `from` on, which are read now. */
template <typename T, class USE>
__device__ __forceinline__ void over_others(const T *x, const own_rows &r, int from, USE use)
{
	constexpr int U = 4;

	for (int i = from; i < r.n; i += U) {
		raw<PACK, T> t[U];

#pragma unroll
		for (int u = 0; u < U; u++)
			if (i + u < r.n)
				fetch<PACK>(x + r.at(i + u), t[u]);
#pragma unroll
		for (int u = 0; u < U; u++)
			if (i + u < r.n)
				use(i + u, t[u]);
	}
}

/* shared: packs of a thread that stay in shared memory; those after them stay in registers. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
	norm_once(struct cuda_bn p, int shared, float *parts, unsigned *arrived)
{
	extern __shared__ __align__(16) char packs[];
	__shared__ struct common m;
	const own_rows r(p.rows, p.c);
	const T *x = as<const T>(p.x);
	float shift[PACK], sum[PACK] = {}, squares[PACK] = {}, less = 0;
	raw<PACK, T> held[HELD];
	channels<PACK> c;

	for (int i = 0; i < shared; i++)
		copy_pack(packs, i, x, r.at(i), i < r.n);
	copies_commit();
#pragma unroll
	for (int i = 0; i < HELD; i++)
		if (shared + i < r.n)
			fetch<PACK>(x + r.at(shared + i), held[i]);
	load(x + r.column, shift);
	if (threadIdx.x < SLICE)
		less = (float)x[blockIdx.x * SLICE + threadIdx.x];
	auto add = [&](int, const raw<PACK, T> &t) {
		float v[PACK];

		load(t.v, v);
		add_shifted(v, shift, sum, squares);
	};
#pragma unroll
	for (int i = 0; i < HELD; i++)
		if (shared + i < r.n)
			add(0, held[i]);
	copies_wait<0>();
	for (int i = 0; i < shared && i < r.n; i++)
		add(0, *pack_of<T>(packs, i));
	over_others(x, r, shared + HELD, add);

	leave_block(sum, squares, parts, p.c, m);
	meet(arrived);
	const two_sums s = gather_blocks(parts, p.c, m);

	if (threadIdx.x < SLICE)
		finish_stats(p, s, less, m);
	__syncthreads();
	load(m.results[0] + threadIdx.x % ACROSS * PACK, c.mean);
	load(m.results[1] + threadIdx.x % ACROSS * PACK, c.scale);
	load(m.results[2] + threadIdx.x % ACROSS * PACK, c.shift);
#pragma unroll
	for (int i = 0; i < HELD; i++)
		if (shared + i < r.n)
			norm_pack(p, held[i], c, r.at(shared + i));
	for (int i = 0; i < shared && i < r.n; i++)
		norm_pack(p, *pack_of<T>(packs, i), c, r.at(i));
	over_others(x, r, shared + HELD,
		[&](int i, const raw<PACK, T> &t) { norm_pack(p, t, c, r.at(i)); });
}

/* ---- its gradient ---------------------------------------------------------------------------- */

/* The first two of the results are what grad_finish leaves for dx. */
__device__ __forceinline__ void finish_grad(
	const struct cuda_bn_grad &p, const two_sums &s, struct common &m)
{
	const int64_t at = (int64_t)blockIdx.x * SLICE + threadIdx.x;
	double rstd = p.rstd[at];

	m.results[0][threadIdx.x] = (float)(s.first / (double)p.rows);
	m.results[1][threadIdx.x] = (float)(s.second * rstd * rstd / (double)p.rows);
	if (blockIdx.y == 0)
		leave_grads(p, s, rstd, at);
}

/* Writes dx of a pack; AGAIN: and the norm. */
template <bool AGAIN, typename T>
__device__ __forceinline__ void grad_pack(const struct cuda_bn_grad &p, const packs<PACK, T> &t,
	const channels<PACK> &c, const float (&first)[PACK], const float (&second)[PACK], int at)
{
	float e[PACK], v[PACK];

	widen_both<MASK_X>(t, c, e, v);
	if constexpr (AGAIN)
		store_normed(as<T>(p.again) + at, c, v);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = c.scale[k] * (e[k] - first[k] - v[k] * second[k]);
	store(as<T>(p.dx) + at, v);
}

template <typename T>
__device__ __forceinline__ void fetch_pair(const struct cuda_bn_grad &p, int at, packs<PACK, T> &t)
{
	fetch<PACK>(as<const T>(p.dy) + at, t.dy);
	fetch<PACK>(as<const T>(p.x) + at, t.x);
}

/* Calls use(i, pair) for those in shared memory. */
template <typename T, class USE>
__device__ __forceinline__ void over_shared(char *memory, int n, USE use)
{
	for (int i = 0; i < n; i++) {
		packs<PACK, T> t;

		t.x = *pack_of<T>(memory, 2 * i);
		t.dy = *pack_of<T>(memory, 2 * i + 1);
		use(i, t);
	}
}

/* The same for those from `from` on, which are read now. */
template <typename T, class USE>
__device__ __forceinline__ void over_others(
	const struct cuda_bn_grad &p, const own_rows &r, int from, USE use)
{
	constexpr int U = 2;

	for (int i = from; i < r.n; i += U) {
		packs<PACK, T> t[U];

#pragma unroll
		for (int u = 0; u < U; u++)
			if (i + u < r.n)
				fetch_pair(p, r.at(i + u), t[u]);
#pragma unroll
		for (int u = 0; u < U; u++)
			if (i + u < r.n)
				use(i + u, t[u]);
	}
}

/* shared: as in norm_once, of pairs. */
template <typename T, bool AGAIN>
__global__ void __launch_bounds__(THREADS, 1)
	grad_once(struct cuda_bn_grad p, int shared, float *parts, unsigned *arrived)
{
	extern __shared__ __align__(16) char memory[];
	__shared__ struct common m;
	const own_rows r(p.rows, p.c);
	float first[PACK] = {}, second[PACK] = {};
	packs<PACK, T> held[HELD_BOTH];
	channels<PACK> c;

	for (int i = 0; i < shared; i++) {
		copy_pack(memory, 2 * i, as<const T>(p.x), r.at(i), i < r.n);
		copy_pack(memory, 2 * i + 1, as<const T>(p.dy), r.at(i), i < r.n);
	}
	copies_commit();
#pragma unroll
	for (int i = 0; i < HELD_BOTH; i++)
		if (shared + i < r.n)
			fetch_pair(p, r.at(shared + i), held[i]);
	load_channels<PACK, MASK_X>(p, r.column, c);
	auto add = [&](int, const packs<PACK, T> &t) {
		float e[PACK], v[PACK];

		widen_both<MASK_X>(t, c, e, v);
#pragma unroll
		for (int k = 0; k < PACK; k++) {
			first[k] += e[k];
			second[k] += e[k] * v[k];
		}
	};
#pragma unroll
	for (int i = 0; i < HELD_BOTH; i++)
		if (shared + i < r.n)
			add(0, held[i]);
	copies_wait<0>();
	over_shared<T>(memory, shared < r.n ? shared : r.n, add);
	over_others<T>(p, r, shared + HELD_BOTH, add);

	leave_block(first, second, parts, p.c, m);
	meet(arrived);
	const two_sums s = gather_blocks(parts, p.c, m);

	if (threadIdx.x < SLICE)
		finish_grad(p, s, m);
	__syncthreads();
	load(m.results[0] + threadIdx.x % ACROSS * PACK, first);
	load(m.results[1] + threadIdx.x % ACROSS * PACK, second);
	auto write = [&](int i, const packs<PACK, T> &t) {
		grad_pack<AGAIN>(p, t, c, first, second, r.at(i));
	};
#pragma unroll
	for (int i = 0; i < HELD_BOTH; i++)
		if (shared + i < r.n)
			write(shared + i, held[i]);
	over_shared<T>(memory, shared < r.n ? shared : r.n, write);
	over_others<T>(p, r, shared + HELD_BOTH, write);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Where the rows of an image are: `each` packs of a thread, of which `held` are in registers and
 * `shared` in shared memory. */
struct shape {
	int across, down, shared;
	int64_t each;
};

/* bytes: of a unit, one pack or a pair of packs, of all threads. */
static struct shape shape_of(int64_t rows, int64_t c, int processors, int held, int bytes)
{
	const int across = (int)(c / SLICE), most = processors / across;
	const int64_t tiles = (rows + DOWN - 1) / DOWN;
	const int down = tiles < most ? (int)tiles : most;
	const int64_t each = (tiles + down - 1) / down, left = each > held ? each - held : 0;

	return {across, down, (int)(left < MOST / bytes ? left : MOST / bytes), each};
}

/* Elements have numbers of 32 bits. Where less than half of the rows fit, other kernels are as
 * fast. */
static bool knows(
	const struct cuda_vec &x, int64_t rows, int64_t c, int processors, int held, int bytes)
{
	struct shape s;

	if (x.type == CUDA_F32 || rows <= 0 || c % SLICE || c / SLICE > processors ||
		c / SLICE * 128 > (int64_t)CUDA_MEETING_BYTES || processors > COLUMN_BLOCKS ||
		rows > INT32_MAX / c)
		return false;
	s = shape_of(rows, c, processors, held, bytes);
	return 2 * (held + s.shared) >= s.each;
}

bool cuda_bn_once_knows(const struct cuda_bn *p, int processors)
{
	return knows(p->x, p->rows, p->c, processors, HELD, PLACE) && !p->add.data &&
	       !p->accumulate;
}

bool cuda_bn_grad_once_knows(const struct cuda_bn_grad *p, int processors)
{
	return knows(p->x, p->rows, p->c, processors, HELD_BOTH, 2 * PLACE) && p->beta &&
	       !p->dadd.data && !(p->accumulate & JM_ADD_OUT);
}

/* Starts blocks that run at a time. */
template <class K, class P>
static cudaError_t start(K kernel, const P &p, int held, int bytes, void *scratch,
	const struct cuda_meeting *m, cudaStream_t stream)
{
	const struct shape s = shape_of(p.rows, p.c, m->processors, held, bytes);
	cudaLaunchAttribute together = {};
	cudaLaunchConfig_t how = {};
	cudaError_t rc =
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST);

	if (rc)
		return rc;
	together.id = cudaLaunchAttributeCooperative;
	together.val.cooperative = 1;
	how.gridDim = dim3((unsigned)s.across, (unsigned)s.down);
	how.blockDim = dim3(THREADS);
	how.dynamicSmemBytes = (size_t)(s.shared * bytes);
	how.stream = stream;
	how.attrs = &together;
	how.numAttrs = 1;
	return cudaLaunchKernelEx(
		&how, kernel, p, s.shared, sums_of(scratch, p.c).parts, m->arrived);
}

cudaError_t cuda_bn_once(const struct cuda_bn *p, const struct cuda_meeting *m, cudaStream_t stream)
{
	return p->x.type == CUDA_BF16
		       ? start(norm_once<bf16>, *p, HELD, PLACE, p->scratch, m, stream)
		       : start(norm_once<half>, *p, HELD, PLACE, p->scratch, m, stream);
}

template <typename T>
static cudaError_t start_grad(
	const struct cuda_bn_grad *p, const struct cuda_meeting *m, cudaStream_t stream)
{
	return start(p->again.data ? grad_once<T, true> : grad_once<T, false>, *p, HELD_BOTH,
		2 * PLACE, p->scratch, m, stream);
}

cudaError_t cuda_bn_grad_once(
	const struct cuda_bn_grad *p, const struct cuda_meeting *m, cudaStream_t stream)
{
	return p->x.type == CUDA_BF16 ? start_grad<bf16>(p, m, stream)
				      : start_grad<half>(p, m, stream);
}
