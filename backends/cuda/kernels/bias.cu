/* SPDX-License-Identifier: Apache-2.0 */
/* The bias of a convolution, y[rows,c] += bias[c], a ReLU behind it, and the gradients of both. */
#include "batchnorm.cuh"

__global__ void bias_finish(float *dbias, const float *parts, int n, int64_t c, bool add)
{
	__shared__ double share[WARP][WARP + 1];
	two_sums s = gather_parts(parts, n, c, share);
	int64_t at = gathered_channel();

	if (!threadIdx.x && at < c)
		dbias[at] = (float)s.first + (add ? dbias[at] : 0);
}

#define AHEAD 4 /* rows that a thread loads at a time */

template <int N, typename T> struct bias_part {
	packed<N, T> dy, y;
};

/* RELU: dy is first cut where y is not above 0, and left in dx. */
template <int N, bool RELU, typename T>
__global__ void bias_sums(const T *dy, const T *y, T *dx, float *parts, int64_t rows, int64_t c)
{
	__shared__ float share[COLUMN_THREADS * N];
	float sum[N] = {}, none[N] = {};
	int64_t at = column_of(N);
	auto get = [&](int64_t r, bias_part<N, T> &part) {
		fetch(dy + r * c + at, part.dy);
		if (RELU)
			fetch(y + r * c + at, part.y);
	};
	auto use = [&](int64_t r, const bias_part<N, T> &part) {
		float v[N];

#pragma unroll
		for (int i = 0; i < N; i++) {
			v[i] = RELU && !(part.y.at(i) > 0) ? 0 : part.dy.at(i);
			sum[i] += v[i];
		}
		if (RELU)
			store(dx + r * c + at, v);
	};

	if (at < c)
		over_rows<AHEAD, bias_part<N, T>>(rows, get, use);
	leave_parts(sum, none, parts, c, share);
}

template <int N, typename T>
static void bias_parts(
	const struct cuda_bias_grad *p, float *parts, struct columns shape, cudaStream_t stream)
{
	const T *dy = as<const T>(p->dy), *y = as<const T>(p->y);
	T *dx = as<T>(p->dx);

	if (p->y.data)
		bias_sums<N, true>
			<<<shape.grid, shape.block, 0, stream>>>(dy, y, dx, parts, p->rows, p->c);
	else
		bias_sums<N, false>
			<<<shape.grid, shape.block, 0, stream>>>(dy, y, dx, parts, p->rows, p->c);
}

float *cuda_bias_parts(const struct cuda_bias_grad *p)
{
	return sums_of(p->scratch, p->c).parts;
}

void cuda_bias_finish(const struct cuda_bias_grad *p, int parts, cudaStream_t stream)
{
	bias_finish<<<blocks_for(p->c, WARP), dim3(WARP, WARP), 0, stream>>>(
		p->dbias, cuda_bias_parts(p), parts, p->c, p->accumulate);
}

void cuda_bias_grad(const struct cuda_bias_grad *p, cudaStream_t stream)
{
	with_type(p->dy, [&](auto t) {
		using T = decltype(t);
		bool packs = p->c % PACK == 0;
		struct columns shape =
			columns_of(p->rows, p->c, packs ? PACK : 1, COLUMN_RESIDENT(T));
		float *parts = cuda_bias_parts(p);

		if (packs)
			bias_parts<PACK, T>(p, parts, shape, stream);
		else
			bias_parts<1, T>(p, parts, shape, stream);
		cuda_bias_finish(p, (int)shape.grid.y, stream);
	});
}

template <int N, bool RELU, typename T>
__global__ void bias_kernel(T *y, const float *bias, int64_t n, int64_t c)
{
	const int64_t i = N * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	float v[N], b[N];

	if (i >= n)
		return;
	load(y + i, v);
	load(bias + i % c, b);
#pragma unroll
	for (int k = 0; k < N; k++) {
		v[k] += b[k];
		if (RELU && v[k] < 0)
			v[k] = 0;
	}
	store(y + i, v);
}

template <int N, typename T>
static void bias_add(T *y, const float *bias, int64_t n, int64_t c, bool relu, cudaStream_t stream)
{
	unsigned blocks = blocks_for(n / N, COLUMN_THREADS);

	if (relu)
		bias_kernel<N, true><<<blocks, COLUMN_THREADS, 0, stream>>>(y, bias, n, c);
	else
		bias_kernel<N, false><<<blocks, COLUMN_THREADS, 0, stream>>>(y, bias, n, c);
}

void cuda_bias_add(struct cuda_vec y, const float *bias, int64_t rows, int64_t c, bool relu,
	cudaStream_t stream)
{
	with_type(y, [&](auto t) {
		using T = decltype(t);

		c % PACK == 0 ? bias_add<PACK>(as<T>(y), bias, rows * c, c, relu, stream)
			      : bias_add<1>(as<T>(y), bias, rows * c, c, relu, stream);
	});
}
