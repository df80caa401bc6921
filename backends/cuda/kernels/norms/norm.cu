/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm of x[rows,width], optionally after an add. A block handles one row at a
 * time; where the row is short, a warp or a part of it. */
#include "../common.cuh"

#define MOST_THREADS 512

/* y of N elements from element i of a row on. */
template <int N, typename Y>
__device__ __forceinline__ void write_normed(
	const struct cuda_norm &p, Y *y, int64_t i, float (&v)[N], float mean, float rstd)
{
	float gamma[N], beta[N] = {};

	load(p.gamma + i, gamma);
	if (p.beta)
		load(p.beta + i, beta);
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = (v[k] - mean) * rstd * gamma[k] + beta[k];
	store(y + i, v);
}

__device__ __forceinline__ void write_statistics(
	const struct cuda_norm &p, int64_t row, float mean, float rstd)
{
	p.rstd[row] = rstd;
	if (p.centred)
		p.mean[row] = mean;
}

/* A block has a row, which is kept in shared memory as f32; each thread reads only what it wrote
 * itself. */
template <int N, typename X, typename B, typename Y> __global__ void norm_kernel(struct cuda_norm p)
{
	extern __shared__ float4 memory[];
	__shared__ float share[WARP];
	float *row = reinterpret_cast<float *>(memory);
	const int64_t own = blockIdx.x, at = own * p.width;
	const int step = N * blockDim.x, first = N * threadIdx.x;
	float v[N], sum = 0, mean = 0;

	wait_for_previous();
	start_next();
	for (int i = first; i < p.width; i += step) {
		load(as<const X>(p.x) + at + i, v);
		if (p.b.data) {
			float w[N];

			load(as<const B>(p.b) + at + i, w);
#pragma unroll
			for (int k = 0; k < N; k++)
				v[k] = (float)(X)(v[k] + w[k]);
			if (p.sum.data)
				store(as<X>(p.sum) + at + i, v);
		}
		store(row + i, v);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += v[k];
	}
	if (p.centred)
		mean = block_sum(sum, share) / p.width;
	sum = 0;
	for (int i = first; i < p.width; i += step) {
		load(row + i, v);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += (v[k] - mean) * (v[k] - mean);
	}
	const float rstd = rsqrtf(block_sum(sum, share) / p.width + p.eps);
	for (int i = first; i < p.width; i += step) {
		load(row + i, v);
		write_normed(p, as<Y>(p.y) + at, i, v, mean, rstd);
	}
	if (threadIdx.x == 0)
		write_statistics(p, own, mean, rstd);
}

#define FEW_PACKS	  5 /* of a row that a thread keeps in registers */
#define FEW_PACKS_THREADS 256

/* The sum over LANES neighbouring lanes. */
template <int LANES> __device__ __forceinline__ float lanes_sum(float x)
{
#pragma unroll
	for (int i = LANES / 2; i; i /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, i);
	return x;
}

/* LANES lanes have a row of at most FEW_PACKS LANES packs. */
template <int LANES, typename X, typename Y>
__global__ void __launch_bounds__(FEW_PACKS_THREADS) few_packs_kernel(struct cuda_norm p)
{
	const int lane = threadIdx.x % LANES;
	const int64_t row = ((int64_t)blockIdx.x * FEW_PACKS_THREADS + threadIdx.x) / LANES,
		      at = row * p.width;
	const int packs = row < p.rows ? (int)p.width / PACK : 0; /* none beyond the last row */
	packed<PACK, X> x[FEW_PACKS];
	packed<PACK, Y> b[FEW_PACKS];
	float v[FEW_PACKS][PACK] = {}, sum = 0, mean = 0;

	start_next();
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs) {
			const int64_t i = at + PACK * (lane + r * LANES);

			fetch(as<const X>(p.x) + i, x[r]);
			if (p.b.data)
				fetch(as<const Y>(p.b) + i, b[r]);
		}
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs) {
			spread(x[r], v[r]);
			if (p.b.data) {
#pragma unroll
				for (int k = 0; k < PACK; k++)
					v[r][k] = (float)(X)(v[r][k] + b[r].at(k));
				if (p.sum.data)
					store(as<X>(p.sum) + at + PACK * (lane + r * LANES), v[r]);
			}
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum += v[r][k];
		}
	if (p.centred)
		mean = lanes_sum<LANES>(sum) / p.width;
	sum = 0;
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs)
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum += (v[r][k] - mean) * (v[r][k] - mean);
	const float rstd = rsqrtf(lanes_sum<LANES>(sum) / p.width + p.eps);
#pragma unroll
	for (int r = 0; r < FEW_PACKS; r++)
		if (lane + r * LANES < packs)
			write_normed(
				p, as<Y>(p.y) + at, PACK * (lane + r * LANES), v[r], mean, rstd);
	if (packs && lane == 0)
		write_statistics(p, row, mean, rstd);
}

template <int LANES, typename X, typename Y>
static void few_packs(const struct cuda_norm *p, cudaStream_t stream)
{
	few_packs_kernel<LANES, X, Y>
		<<<blocks_for(p->rows * LANES, FEW_PACKS_THREADS), FEW_PACKS_THREADS, 0, stream>>>(
			*p);
}

template <int N, typename X, typename Y>
static void norm_of(const struct cuda_norm *p, cudaStream_t stream)
{
	const int64_t packs = p->width / PACK;
	const int64_t each = (p->width / N + MOST_THREADS - 1) / MOST_THREADS; /* of a thread */
	const int bytes = (int)p->width * (int)sizeof(float);

	if constexpr (N == PACK) {
		if (packs <= 8 * FEW_PACKS)
			return few_packs<8, X, Y>(p, stream);
		if (packs <= 16 * FEW_PACKS)
			return few_packs<16, X, Y>(p, stream);
		if (packs <= 32 * FEW_PACKS)
			return few_packs<32, X, Y>(p, stream);
	}
	if (bytes > 32 << 10)
		cudaFuncSetAttribute(norm_kernel<N, X, Y, Y>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	const int threads = threads_for((p->width / N + each - 1) / each, MOST_THREADS);

	if (p->rows <= CUDA_FEW_ROWS)
		start_overlapping(norm_kernel<N, X, Y, Y>, dim3((unsigned)p->rows), threads, bytes,
			stream, *p);
	else
		norm_kernel<N, X, Y, Y><<<(unsigned)p->rows, threads, bytes, stream>>>(*p);
}

template <int N> static void norm_typed(const struct cuda_norm *p, cudaStream_t stream)
{
	with_type(p->y, [&](auto t) {
		using T = decltype(t);

		if (p->x.type == p->y.type)
			norm_of<N, T, T>(p, stream);
		else
			norm_of<N, float, T>(p, stream);
	});
}

bool cuda_norm_knows(const struct cuda_norm *p)
{
	bool alike = !p->b.data || p->b.type == p->y.type;

	return (p->x.type == p->y.type || p->x.type == CUDA_F32) && alike &&
	       p->width <= CUDA_NORM_WIDEST;
}

void cuda_norm(const struct cuda_norm *p, cudaStream_t stream)
{
	p->width % PACK == 0 ? norm_typed<PACK>(p, stream) : norm_typed<1>(p, stream);
}
