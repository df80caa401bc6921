/* SPDX-License-Identifier: Apache-2.0 */
/* The bias of a convolution, y[rows,c] += bias[c], and its gradient, the sum of dy[rows,c] over
 * rows. */
#include "batchnorm.cuh"

__global__ void bias_finish(float *dbias, const float *parts, int n, int64_t c, bool add)
{
	__shared__ double share[WARP][WARP + 1];
	two_sums s = gather_parts(parts, n, c, share);
	int64_t at = gathered_channel();

	if (!threadIdx.x && at < c)
		dbias[at] = (float)s.first + (add ? dbias[at] : 0);
}

template <int N, typename T>
__global__ void bias_sums(const T *dy, float *parts, int64_t rows, int64_t c)
{
	__shared__ float share[COLUMN_THREADS * N];
	float sum[N] = {}, none[N] = {};
	int64_t at = column_of(N);

	if (at < c)
		for (int64_t r = first_row(); r < rows; r += row_step()) {
			float v[N];

			load(dy + r * c + at, v);
#pragma unroll
			for (int i = 0; i < N; i++)
				sum[i] += v[i];
		}
	leave_parts(sum, none, parts, c, share);
}

template <typename T>
static void bias_grad(const T *dy, float *dbias, int64_t rows, int64_t c, bool add, void *scratch,
	cudaStream_t stream)
{
	bool packs = c % PACK == 0;
	struct columns shape = columns_of(rows, c, packs ? PACK : 1, COLUMN_RESIDENT(T));
	float *parts = sums_of(scratch, c).parts;

	if (packs)
		bias_sums<PACK><<<shape.grid, shape.block, 0, stream>>>(dy, parts, rows, c);
	else
		bias_sums<1><<<shape.grid, shape.block, 0, stream>>>(dy, parts, rows, c);
	bias_finish<<<blocks_for(c, WARP), dim3(WARP, WARP), 0, stream>>>(
		dbias, parts, (int)shape.grid.y, c, add);
}

void cuda_bias_grad(struct cuda_vec dy, float *dbias, int64_t rows, int64_t c, bool accumulate,
	void *scratch, cudaStream_t stream)
{
	with_type(dy, [&](auto t) {
		bias_grad(as<const decltype(t)>(dy), dbias, rows, c, accumulate, scratch, stream);
	});
}

template <int N, typename T>
__global__ void bias_kernel(T *y, const float *bias, int64_t n, int64_t c)
{
	const int64_t i = N * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	float v[N], b[N];

	if (i >= n)
		return;
	load(y + i, v);
	load(bias + i % c, b);
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] += b[k];
	store(y + i, v);
}

template <int N, typename T>
static void bias_add(T *y, const float *bias, int64_t n, int64_t c, cudaStream_t stream)
{
	bias_kernel<N><<<blocks_for(n / N, COLUMN_THREADS), COLUMN_THREADS, 0, stream>>>(
		y, bias, n, c);
}

void cuda_bias_add(
	struct cuda_vec y, const float *bias, int64_t rows, int64_t c, cudaStream_t stream)
{
	with_type(y, [&](auto t) {
		using T = decltype(t);

		c % PACK == 0 ? bias_add<PACK>(as<T>(y), bias, rows * c, c, stream)
			      : bias_add<1>(as<T>(y), bias, rows * c, c, stream);
	});
}
