/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of activations in e4m3, each scaled by its own maximum: of x[rows,width] as it is, of its
 * RMS norm (also after an add), or of swiglu. A block has a row, which it keeps in shared memory in
 * the type that the unfused op would write.
 */
#include "backends/cuda/kernels/f8.cuh"

#define MOST_THREADS 512
#define TOP	     448 /* of e4m3 */

enum source { PLAIN, NORM, SWIGLU };

/* Stores elements i to i + PACK - 1 of the row and keeps them as they were rounded. */
template <typename T> __device__ __forceinline__ void keep(T *row, int i, float (&v)[PACK])
{
	store(row + i, v);
	load(row + i, v);
}

/* x, or the sum of x and b, which is also a result. */
template <typename T>
__device__ __forceinline__ void read_sum(
	const struct cuda_quantize_rows &p, int64_t at, float (&v)[PACK])
{
	float w[PACK];

	load(as<const T>(p.x) + at, v);
	if (!p.b.data)
		return;
	load(as<const T>(p.b) + at, w);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = (float)(T)(v[k] + w[k]);
	if (p.sum.data)
		store(as<T>(p.sum) + at, v);
}

/* 1 / the root of the mean square of the row; leaves the row itself in `row`. */
template <typename T>
__device__ __forceinline__ float norm_of(const struct cuda_quantize_rows &p, T *row, float *share)
{
	float v[PACK], sum = 0;

	for (int i = PACK * threadIdx.x; i < p.width; i += PACK * blockDim.x) {
		read_sum<T>(p, blockIdx.x * p.width + i, v);
		store(row + i, v);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			sum += v[k] * v[k];
	}
	const float rstd = rsqrtf(block_sum(sum, share) / p.width + p.eps);

	if (threadIdx.x == 0)
		p.rstd[blockIdx.x] = rstd;
	return rstd;
}

template <typename T>
__device__ __forceinline__ void read_gated(
	const struct cuda_quantize_rows &p, int i, float (&v)[PACK])
{
	const T *gate = as<const T>(p.x) + blockIdx.x * 2 * p.width + i;
	float up[PACK];

	load(gate, v);
	load(gate + p.width, up);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = v[k] * sigmoid<T>(v[k]) * up[k];
}

template <enum source SOURCE, typename T>
__global__ void quantize_rows_kernel(struct cuda_quantize_rows p)
{
	extern __shared__ float4 memory[];
	__shared__ float share[2][WARP];
	T *row = reinterpret_cast<T *>(memory);
	const int step = PACK * blockDim.x, first = PACK * threadIdx.x;
	float v[PACK], most = 0;

	start_next();
	const float rstd = SOURCE == NORM ? norm_of<T>(p, row, share[0]) : 0;

	for (int i = first; i < p.width; i += step) {
		if (SOURCE == PLAIN)
			load(as<const T>(p.x) + blockIdx.x * p.width + i, v);
		if (SOURCE == SWIGLU)
			read_gated<T>(p, i, v);
		if (SOURCE == NORM) {
			float gamma[PACK];

			load(row + i, v);
			load(p.gamma + i, gamma);
#pragma unroll
			for (int k = 0; k < PACK; k++)
				v[k] = v[k] * rstd * gamma[k];
		}
		keep(row, i, v);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			most = fmaxf(most, fabsf(v[k]));
	}
	most = block_max(most, share[1]);
	const float scale = scale_of(most, TOP);

	for (int i = first; i < p.width; i += step) {
		load(row + i, v);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] = __fmul_rn(v[k], scale);
		store_codes<__NV_E4M3>(p.y + blockIdx.x * p.width + i, v, PACK);
	}
	if (threadIdx.x == 0)
		p.inverse[blockIdx.x] = __fdiv_rn(1, scale);
}

template <enum source SOURCE, typename T>
static void rows_of(const struct cuda_quantize_rows *p, cudaStream_t stream)
{
	int bytes = (int)p->width * (int)sizeof(T);

	if (bytes > 32 << 10)
		cudaFuncSetAttribute(quantize_rows_kernel<SOURCE, T>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	quantize_rows_kernel<SOURCE, T>
		<<<(unsigned)p->rows, threads_for(p->width / PACK, MOST_THREADS), bytes, stream>>>(
			*p);
}

bool cuda_quantize_rows_knows(const struct cuda_quantize_rows *p)
{
	return p->width % PACK == 0 && p->width <= CUDA_NORM_WIDEST &&
	       (!p->gamma || p->x.type != CUDA_F32);
}

void cuda_quantize_rows(const struct cuda_quantize_rows *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if (p->gamma)
			rows_of<NORM, T>(p, stream);
		else if (p->gated)
			rows_of<SWIGLU, T>(p, stream);
		else
			rows_of<PLAIN, T>(p, stream);
	});
}
