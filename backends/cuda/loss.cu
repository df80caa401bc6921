/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax and cross-entropy of logits[rows,classes], whose rows are `stride` elements apart, with
 * their gradient. A block handles one row: a pass for maximum and sum, and a pass for the gradient,
 * which may overwrite the logits. Elements between classes and stride are not read, and are 0 in
 * the gradient.
 */
#include "common.cuh"

#define THREADS 1024
/* of a row kept in shared memory: two blocks fit a Hopper multiprocessor */
#define ROW_BYTES (110 << 10)
#define SUMMERS 1024

/* The maximum, and the sum of exp(x - most). */
struct partial {
	float most, sum;
};

__device__ __forceinline__ struct partial join(struct partial a, struct partial b)
{
	float most = fmaxf(a.most, b.most);

	if (most == -INFINITY)
		return a;
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
	return warp_join(lane < warps ? share[lane] : partial{-INFINITY, 0});
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
	struct partial all = {-INFINITY, 0};
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
		p.losses[blockIdx.x] = logf(all.sum) + all.most - (float)row[target];
	if (!p.dlogits.data)
		return;
	__syncthreads(); /* the target's logit is read before it may be overwritten */
	const float scale = p.scale * (p.loss_scale ? p.loss_scale[0] : 1);
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

/* The mean of losses[rows], summed in f64 in the same order every time. */
__global__ void mean_kernel(const float *losses, int64_t rows, float *loss, bool add)
{
	__shared__ double share[WARP];
	double sum = 0;

	for (int64_t i = threadIdx.x; i < rows; i += SUMMERS)
		sum += losses[i];
	sum = block_sum(sum, share);
	if (threadIdx.x == 0)
		*loss = (float)(sum / (double)rows + (add ? (double)*loss : 0));
}

template <int N, typename T> static void xent_of(const struct cuda_xent *p, cudaStream_t stream)
{
	int threads = threads_for((p->classes + N - 1) / N, THREADS);
	size_t bytes = (size_t)p->stride * sizeof(T);

	if (N == 1 || bytes > ROW_BYTES) {
		xent_kernel<N, T, false><<<(unsigned)p->rows, threads, 0, stream>>>(*p);
		return;
	}
	cudaFuncSetAttribute(
		xent_kernel<N, T, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, ROW_BYTES);
	xent_kernel<N, T, true><<<(unsigned)p->rows, threads, bytes, stream>>>(*p);
}

template <int N> static void xent_typed(const struct cuda_xent *p, cudaStream_t stream)
{
	with_type(p->logits, [&](auto t) { xent_of<N, decltype(t)>(p, stream); });
}

void cuda_xent(const struct cuda_xent *p, cudaStream_t stream)
{
	p->stride % PACK == 0 ? xent_typed<PACK>(p, stream) : xent_typed<1>(p, stream);
	if (p->loss)
		mean_kernel<<<1, SUMMERS, 0, stream>>>(p->losses - p->rows_before,
			p->rows_before + p->rows, p->loss, p->add_loss);
}

/* One block handles all rows, because the op runs rarely and the result is the same every time. */
template <typename T>
__global__ void top1_kernel(const T *logits, const int32_t *targets, int64_t rows, int64_t classes,
	float *share, bool add)
{
	int64_t right = 0;

	for (int64_t r = 0; r < rows; r++) {
		const T *row = logits + r * classes;
		const int64_t target = targets[r];
		const float best = (float)row[target];
		int beaten = 0;

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

/* ---- squared differences --------------------------------------------------------------------------------- */

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
		*p.loss = (float)(sum / (double)p.n + (p.add_loss ? (double)*p.loss : 0));
}

void cuda_mse(const struct cuda_mse *p, cudaStream_t stream)
{
	with_types(p->y, p->target, [&](auto y, auto target) {
		mse_kernel<decltype(y), decltype(target)>
			<<<CUDA_NORM_PARTS, 256, 0, stream>>>(*p);
	});
	mse_mean_kernel<<<1, SUMMERS, 0, stream>>>(*p);
}
