/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax and cross-entropy of logits[rows,classes], whose rows are `stride` elements apart, with
 * their gradient. A block handles one row: a pass for maximum and sum, and a pass for the gradient,
 * which may overwrite the logits. A long row of 2-byte logits is divided among a cluster of blocks.
 * Elements between classes and stride are not read, and are 0 in the gradient.
 */
#include "common.cuh"

#define THREADS 1024
/* of a row kept in shared memory, where the GPU allows as much: two blocks fit a Hopper
 * multiprocessor */
#define ROW_BYTES (110 << 10)
#define OWN_BYTES (1 << 10) /* of a block's shared memory, for what it adds up */
#define SUMMERS 1024

/* Below all logits that count: a maximum begins with it in place of -infinity, so that differences
 * from it, in powers of 2 as well, are numbers. */
#define LOWEST -2e38f

/* The maximum, at least LOWEST, and the sum of exp(x - most). */
struct partial {
	float most, sum;
};

__device__ __forceinline__ struct partial join(struct partial a, struct partial b)
{
	const float most = fmaxf(a.most, b.most);

	return {most, a.sum * __expf(a.most - most) + b.sum * __expf(b.most - most)};
}

__device__ __forceinline__ struct partial warp_join(struct partial x)
{
#pragma unroll
	for (int i = WARP / 2; i; i /= 2)
		x = join(x, {__shfl_xor_sync(0xffffffffu, x.most, i),
				   __shfl_xor_sync(0xffffffffu, x.sum, i)});
	return x;
}

__device__ __forceinline__ struct partial block_join(struct partial x, struct partial *share)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;

	x = warp_join(x);
	if (lane == 0)
		share[warp] = x;
	__syncthreads();
	return warp_join(lane < warps ? share[lane] : partial{LOWEST, 0});
}

/* The rows that count, at least 1. */
__device__ __forceinline__ int rows_of(const struct cuda_xent &p)
{
	return p.counted ? max(*p.counted, 1) : p.rows_all;
}

/* The factor of a row's gradient. */
__device__ __forceinline__ float scale_of(const struct cuda_xent &p, int target)
{
	const float scale = p.scale * (p.loss_scale ? p.loss_scale[0] : 1) / (float)rows_of(p);

	return target < 0 ? 0 : scale;
}

template <int N, typename T>
__device__ __forceinline__ void load_classes(
	const T *row, int64_t i, int64_t classes, float (&v)[N])
{
	if (i + N <= classes) {
		load(row + i, v);
		return;
	}
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = i + k < classes ? (float)row[i + k] : -INFINITY;
}

/* KEPT: the row stays in shared memory after the first pass; each thread reads only what it wrote
 * itself. */
template <int N, typename T, bool KEPT>
__global__ void __launch_bounds__(THREADS, 2) xent_kernel(struct cuda_xent p)
{
	extern __shared__ uint4 memory[];
	__shared__ struct partial share[WARP];
	T *kept = reinterpret_cast<T *>(memory);
	const T *row = as<const T>(p.logits) + blockIdx.x * p.stride;
	T *out = as<T>(p.dlogits) + blockIdx.x * p.stride;
	const int target = p.targets[blockIdx.x];
	struct partial all = {LOWEST, 0};
	float v[N];

	for (int64_t i = N * threadIdx.x; i < p.classes; i += N * blockDim.x) {
		load_classes(row, i, p.classes, v);
		if (KEPT)
			store(kept + i, v);
		float most = v[0];
#pragma unroll
		for (int k = 1; k < N; k++)
			most = fmaxf(most, v[k]);
		most = fmaxf(most, all.most);
		float sum = all.sum * __expf(all.most - most);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += __expf(v[k] - most);
		all = {most, sum};
	}
	all = block_join(all, share);
	if (threadIdx.x == 0)
		p.losses[blockIdx.x] =
			target < 0 ? 0 : logf(all.sum) + (all.most - (float)row[target]);
	if (!p.dlogits.data)
		return;
	__syncthreads(); /* the target's logit is read before it may be overwritten */
	const float scale = scale_of(p, target);
	const float by_sum = scale / all.sum;
	for (int64_t i = N * threadIdx.x; i < p.stride; i += N * blockDim.x) {
		load_classes(KEPT ? kept : row, i, p.classes, v);
#pragma unroll
		for (int k = 0; k < N; k++) {
			v[k] = __expf(v[k] - all.most) * by_sum - (i + k == target ? scale : 0);
			if (i + k >= p.classes)
				v[k] = 0;
		}
		store_sum(out + i, v, p.add_dlogits);
	}
}

/* ---- long rows of 2-byte logits: CL blocks have a row, which stays in their shared memory ---- */

#define ROW_THREADS 512
#define ROW_CLUSTER 4
#define PACKS	    4		/* that a thread loads at a time */
#define ROW_LEAST   (32 << 10) /* bytes of a row that is long */
#define PART_BYTES  (72 << 10) /* of a row in a block of a cluster: three blocks fit a multiprocessor */

/* Clusters of blocks exist from compute capability 9.0 on. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(ROW_CLUSTER, 1, 1)
#else
#define CLUSTER
#endif

__device__ __forceinline__ __nv_bfloat162 two_of(const bf16 *, unsigned w)
{
	return *reinterpret_cast<__nv_bfloat162 *>(&w);
}

__device__ __forceinline__ half2 two_of(const half *, unsigned w)
{
	return *reinterpret_cast<half2 *>(&w);
}

template <typename T> __device__ __forceinline__ void unpack(const uint4 &q, float (&v)[PACK])
{
	const unsigned w[PACK / 2] = {q.x, q.y, q.z, q.w};
#pragma unroll
	for (int k = 0; k < PACK / 2; k++) {
		v[2 * k] = __low2float(two_of((const T *)NULL, w[k]));
		v[2 * k + 1] = __high2float(two_of((const T *)NULL, w[k]));
	}
}

template <typename T> __device__ __forceinline__ float most_of(const uint4 (&q)[PACKS])
{
	const T *t = NULL;
	auto most = two_of(t, q[0].x);
#pragma unroll
	for (int u = 0; u < PACKS; u++)
		most = __hmax2(most, __hmax2(__hmax2(two_of(t, q[u].x), two_of(t, q[u].y)),
					     __hmax2(two_of(t, q[u].z), two_of(t, q[u].w))));
	return fmaxf(__low2float(most), __high2float(most));
}

template <typename T>
__device__ __forceinline__ struct partial with_packs(struct partial all, const uint4 (&q)[PACKS])
{
	const float most = fmaxf(all.most, most_of<T>(q)), offset = -most * LOG2_E;
	float sum = all.sum * fast_exp2((all.most - most) * LOG2_E);

#pragma unroll
	for (int u = 0; u < PACKS; u++) {
		float v[PACK], part = 0;

		unpack<T>(q[u], v);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			part += fast_exp2(fmaf(v[k], LOG2_E, offset));
		sum += part;
	}
	return {most, sum};
}

/* A pack of the row; what lies behind the classes is -infinity. */
template <typename T>
__device__ __forceinline__ uint4 load_pack(const T *row, int i, int classes)
{
	uint4 ret;

	if (i + PACK <= classes)
		return *reinterpret_cast<const uint4 *>(row + i);
	for (int k = 0; k < PACK; k++)
		reinterpret_cast<T *>(&ret)[k] = i + k < classes ? row[i + k] : (T)-INFINITY;
	return ret;
}

/* The joined result of all blocks of the row. */
template <int CL>
__device__ __forceinline__ struct partial row_join(struct partial x, struct partial *own)
{
	if constexpr (CL == 1)
		return x;
#if __CUDA_ARCH__ >= 900
	const unsigned at = shared_at(own);
	struct partial ret = {LOWEST, 0};

	if (threadIdx.x == 0)
		*own = x;
	asm volatile("barrier.cluster.arrive.aligned;\n"
		     "barrier.cluster.wait.aligned;" ::: "memory");
#pragma unroll
	for (int i = 0; i < CL; i++) {
		struct partial one;

		asm volatile("{\n"
			     ".reg .b32 a;\n"
			     "mapa.shared::cluster.u32 a, %2, %3;\n"
			     "ld.shared::cluster.v2.f32 {%0, %1}, [a];\n"
			     "}"
			     : "=f"(one.most), "=f"(one.sum)
			     : "r"(at), "r"(i)
			     : "memory");
		ret = join(ret, one);
	}
	/* no block ends while another one reads its memory */
	asm volatile("barrier.cluster.arrive.aligned;\n"
		     "barrier.cluster.wait.aligned;" ::: "memory");
	return ret;
#else
	return x;
#endif
}

/* What the gradient of a row needs. */
struct slope {
	float offset, by_sum, scale;
	int target, classes;
};

template <typename T>
__device__ __forceinline__ void store_slope(T *row, int i, const uint4 &q, const struct slope &s)
{
	float v[PACK];

	unpack<T>(q, v);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = fast_exp2(fmaf(v[k], LOG2_E, s.offset)) * s.by_sum;
	if ((unsigned)(s.target - i) < PACK) {
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] -= i + k == s.target ? s.scale : 0;
	}
	if (i + PACK > s.classes) {
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] = i + k < s.classes ? v[k] : 0;
	}
	store(row + i, v);
}

/* Packs from `from` to `to` - 1 of the row, which the block keeps. */
template <typename T>
__device__ __forceinline__ struct partial keep_part(
	const T *row, uint4 *kept, int from, int to, int classes)
{
	struct partial all = {LOWEST, 0};

	for (int at = from + threadIdx.x; at < to; at += PACKS * ROW_THREADS) {
		uint4 q[PACKS];

#pragma unroll
		for (int u = 0; u < PACKS; u++) {
			const int i = at + u * ROW_THREADS;

			q[u] = load_pack(row, PACK * i, i < to ? classes : 0);
		}
#pragma unroll
		for (int u = 0; u < PACKS; u++)
			if (at + u * ROW_THREADS < to)
				kept[at + u * ROW_THREADS - from] = q[u];
		all = with_packs<T>(all, q);
	}
	return all;
}

template <int CL, typename T>
__device__ __forceinline__ void xent_part(const struct cuda_xent &p, uint4 *memory)
{
	__shared__ struct partial share[WARP], own;
	const int64_t r = blockIdx.x / CL;
	const int packs = (int)(p.stride / PACK), each = (packs + CL - 1) / CL;
	const int from = blockIdx.x % CL * each, to = min(from + each, packs);
	const int target = p.targets[r];
	const T *row = as<const T>(p.logits) + r * p.stride;
	T *out = as<T>(p.dlogits) + r * p.stride;
	struct partial all = keep_part(row, memory, from, to, (int)p.classes);
	const float of_target = target < 0 ? 0 : (float)row[target];

	all = row_join<CL>(block_join(all, share), &own);
	__syncthreads(); /* the target's logit is read before it may be overwritten */
	if (threadIdx.x == 0 && from == 0)
		p.losses[r] = target < 0 ? 0 : logf(all.sum) + (all.most - of_target);
	const float scale = scale_of(p, target);
	const struct slope s = {
		-all.most * LOG2_E, scale / all.sum, scale, target, (int)p.classes};
	for (int i = from + threadIdx.x; i < to; i += ROW_THREADS)
		store_slope(out, PACK * i, memory[i - from], s);
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS, 3) xent_row_kernel(struct cuda_xent p)
{
	extern __shared__ uint4 memory[];

	xent_part<1, T>(p, memory);
}

template <typename T>
__global__ void CLUSTER __launch_bounds__(ROW_THREADS, 3) xent_cluster_kernel(struct cuda_xent p)
{
	extern __shared__ uint4 memory[];

	xent_part<ROW_CLUSTER, T>(p, memory);
}

/* The longest row that a block keeps in shared memory, in bytes. */
static size_t row_bytes(const struct cuda_xent *p)
{
	const size_t most = p->shared_block - OWN_BYTES;

	return most < ROW_BYTES ? most : ROW_BYTES;
}

/* The blocks for a row of these bytes; 0 = it is short, or too long. */
static int blocks_of_row(const struct cuda_xent *p, size_t bytes)
{
	if (bytes < ROW_LEAST || bytes > ROW_CLUSTER * PART_BYTES)
		return 0;
	return bytes <= row_bytes(p) ? 1 : p->clusters ? ROW_CLUSTER : 0;
}

template <typename T> static void xent_row(const struct cuda_xent *p, cudaStream_t stream)
{
	const int bytes = (int)(p->stride * (int64_t)sizeof(T));

	cudaFuncSetAttribute(xent_row_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
		(int)row_bytes(p));
	xent_row_kernel<T><<<(unsigned)p->rows, ROW_THREADS, bytes, stream>>>(*p);
}

template <typename T> static void xent_cluster(const struct cuda_xent *p, cudaStream_t stream)
{
	const int64_t packs = p->stride / PACK;
	const int bytes = (int)((packs + ROW_CLUSTER - 1) / ROW_CLUSTER * (int64_t)sizeof(uint4));

	cudaFuncSetAttribute(xent_cluster_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
		PART_BYTES);
	xent_cluster_kernel<T>
		<<<(unsigned)p->rows * ROW_CLUSTER, ROW_THREADS, bytes, stream>>>(*p);
}

/* True if a kernel for long rows was started. */
template <typename T> static bool xent_long(const struct cuda_xent *p, cudaStream_t stream)
{
	if constexpr (sizeof(T) == 2) {
		const int blocks = blocks_of_row(p, (size_t)p->stride * sizeof(T));

		if (!blocks || !p->dlogits.data || p->add_dlogits)
			return false;
		blocks == 1 ? xent_row<T>(p, stream) : xent_cluster<T>(p, stream);
		return true;
	}
	return false;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* weight times the mean of the losses of all calls, summed in f64 in the same order every time. */
__global__ void mean_kernel(struct cuda_xent p)
{
	__shared__ double share[WARP];
	const float *losses = p.losses - p.rows_before;
	double sum = 0;

	for (int64_t i = threadIdx.x; i < p.rows_before + p.rows; i += SUMMERS)
		sum += losses[i];
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		*p.loss = (float)(p.weight * sum / rows_of(p) + (p.add_loss ? (double)*p.loss : 0));
}

__global__ void count_kernel(const int32_t *targets, int64_t rows, int *ret)
{
	__shared__ int share[WARP];
	int n = 0;

	for (int64_t i = threadIdx.x; i < rows; i += SUMMERS)
		n += targets[i] >= 0;
	n = block_sum(n, share);
	if (threadIdx.x == 0)
		*ret = n;
}

void cuda_count_targets(const int32_t *targets, int64_t rows, int *ret, cudaStream_t stream)
{
	count_kernel<<<1, SUMMERS, 0, stream>>>(targets, rows, ret);
}

template <int N, typename T> static void xent_of(const struct cuda_xent *p, cudaStream_t stream)
{
	int threads = threads_for((p->classes + N - 1) / N, THREADS);
	size_t bytes = (size_t)p->stride * sizeof(T);

	if (N == PACK && xent_long<T>(p, stream))
		return;
	if (N == 1 || bytes > row_bytes(p)) {
		xent_kernel<N, T, false><<<(unsigned)p->rows, threads, 0, stream>>>(*p);
		return;
	}
	cudaFuncSetAttribute(xent_kernel<N, T, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
		(int)row_bytes(p));
	xent_kernel<N, T, true><<<(unsigned)p->rows, threads, bytes, stream>>>(*p);
}

template <int N> static void xent_typed(const struct cuda_xent *p, cudaStream_t stream)
{
	with_type(p->logits, [&](auto t) { xent_of<N, decltype(t)>(p, stream); });
}

void cuda_xent(const struct cuda_xent *p, cudaStream_t stream)
{
	if (p->stride % PACK == 0)
		xent_typed<PACK>(p, stream);
	else if (p->logits.type == CUDA_F32 && p->stride % 4 == 0)
		xent_of<4, float>(p, stream);
	else
		xent_typed<1>(p, stream);
	if (p->loss)
		mean_kernel<<<1, SUMMERS, 0, stream>>>(*p);
}

/* One block handles all rows, because the op runs rarely and the result is the same every time. A
 * NaN is never right. */
template <typename T>
__global__ void top1_kernel(const T *logits, const int32_t *targets, int64_t rows, int64_t classes,
	float *share, bool add)
{
	int64_t right = 0;

	for (int64_t r = 0; r < rows; r++) {
		const T *row = logits + r * classes;
		const int64_t target = targets[r];
		const float best = target < 0 ? 0 : (float)row[target];
		int beaten = target < 0 || best != best;

		for (int64_t i = threadIdx.x; i < classes && !beaten; i += blockDim.x)
			beaten = (float)row[i] > best || ((float)row[i] == best && i < target);
		right += !__syncthreads_or(beaten);
	}
	if (threadIdx.x == 0)
		*share = (float)right / (float)rows + (add ? *share : 0);
}

void cuda_top1(struct cuda_vec logits, const int32_t *targets, int64_t rows, int64_t classes,
	float *share, bool add, cudaStream_t stream)
{
	with_type(logits, [&](auto t) {
		top1_kernel<<<1, SUMMERS, 0, stream>>>(
			as<const decltype(t)>(logits), targets, rows, classes, share, add);
	});
}

/* ---- squared differences --------------------------------------------------------------------- */

/* dy may overwrite y: a thread reads its elements before it writes them. */
template <typename T, typename U> __global__ void mse_kernel(struct cuda_mse p)
{
	__shared__ double share[WARP];
	const float scale = p.scale * (p.loss_scale ? p.loss_scale[0] : 1);
	const int64_t step = (int64_t)PACK * blockDim.x * gridDim.x;
	double sum = 0;

	for (int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < p.n;
		i += step) {
		float y[PACK], target[PACK];

		load_some(as<const T>(p.y) + i, y, p.n - i);
		load_some(as<const U>(p.target) + i, target, p.n - i);
#pragma unroll
		for (int k = 0; k < PACK; k++) {
			y[k] -= target[k];
			sum += (double)y[k] * (double)y[k];
			y[k] *= scale;
		}
		if (p.dy.data)
			store_some(as<T>(p.dy) + i, y, p.n - i, p.add_dy);
	}
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		p.partial[blockIdx.x] = sum;
}

__global__ void mse_mean_kernel(struct cuda_mse p)
{
	__shared__ double share[WARP];
	double sum = 0;

	for (int i = threadIdx.x; i < CUDA_NORM_PARTS; i += blockDim.x)
		sum += p.partial[i];
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		*p.loss = (float)(p.weight * sum / (double)p.n +
				  (p.add_loss ? (double)*p.loss : 0));
}

void cuda_mse(const struct cuda_mse *p, cudaStream_t stream)
{
	with_types(p->y, p->target, [&](auto y, auto target) {
		mse_kernel<decltype(y), decltype(target)>
			<<<CUDA_NORM_PARTS, 256, 0, stream>>>(*p);
	});
	mse_mean_kernel<<<1, SUMMERS, 0, stream>>>(*p);
}
