/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of which the loss has a target, and their gradient in its place. */
#include "common.cuh"
#include "wanted_rows.h"

#define THREADS 256
#define RANKED	1024 /* targets at a time, one for each thread of the only block */

/* A block moves a row. */
template <int N, typename T> __global__ void spread_rows_kernel(struct cuda_spread_rows p)
{
	const T *from = as<const T>(p.y) + blockIdx.x * p.width;
	T *to = as<T>(p.x) + p.at[blockIdx.x] * p.width;

	for (int64_t i = N * threadIdx.x; i < p.width; i += N * blockDim.x) {
		float v[N];

		load(from + i, v);
		store_sum(to + i, v, p.accumulate);
	}
}

template <int N> static void spread_rows(const struct cuda_spread_rows *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if (!p->accumulate)
			cudaMemsetAsync(
				p->x.data, 0, (size_t)(p->all * p->width) * sizeof(T), stream);
		spread_rows_kernel<N, T><<<(unsigned)p->n,
			threads_for((p->width + N - 1) / N, THREADS), 0, stream>>>(*p);
	});
}

void cuda_spread_rows(const struct cuda_spread_rows *p, cudaStream_t stream)
{
	p->width % PACK == 0 ? spread_rows<PACK>(p, stream) : spread_rows<1>(p, stream);
}

/* The number of threads before this one that have `is`; *ret_all: of the block. */
__device__ __forceinline__ int rank_in_block(bool is, int *share, int *ret_all)
{
	const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const unsigned lanes = __ballot_sync(0xffffffffu, is);
	int before = 0, all = 0;

	__syncthreads();
	if (lane == 0)
		share[warp] = __popc(lanes);
	__syncthreads();
	for (int i = 0; i < RANKED / WARP; i++) {
		before += i < warp ? share[i] : 0;
		all += share[i];
	}
	*ret_all = all;
	return before + __popc(lanes & ((1u << lane) - 1));
}

__global__ void wanted_rows_kernel(struct cuda_wanted_rows p)
{
	__shared__ int share[RANKED / WARP];
	int all, wanted = 0, found = 0; /* targets: of all rows; in the rows so far */

	for (int first = 0; first < p.rows; first += RANKED) {
		const int i = first + threadIdx.x;

		rank_in_block(i < p.rows && p.target[i] >= 0, share, &all);
		wanted += all;
	}
	for (int first = 0; first < p.rows; first += RANKED) {
		const int i = first + threadIdx.x;
		const bool is = i < p.rows && p.target[i] >= 0;
		const int before = found + rank_in_block(is, share, &all);
		const int to = is ? before : wanted + i - before;

		found += all;
		if (i < p.rows && to < p.most) {
			p.at[to] = i;
			p.wanted[to] = p.target[i];
		}
	}
}

void cuda_wanted_rows(const struct cuda_wanted_rows *p, cudaStream_t stream)
{
	wanted_rows_kernel<<<1, RANKED, 0, stream>>>(*p);
}
