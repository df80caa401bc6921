/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 with a filter for each channel, and the gradients of their images. */
#define COLUMNS 5

#include "depthwise.cuh"

/* What becomes of the rows of y: stored. */
template <typename T> struct only_stores {
	__device__ __forceinline__ void ahead(const struct cuda_depthwise &, int64_t, int)
	{
	}
	__device__ __forceinline__ void row(
		const struct cuda_depthwise &p, int64_t at, int columns, struct three &sum)
	{
#pragma unroll
		for (int i = 0; i < COLUMNS; i++)
			if (i < columns)
				put(as<T>(p.y) + at + i * p.channels, sum.v[0][i]);
	}
};

template <typename T, enum before B>
__global__ void __launch_bounds__(THREADS, RESIDENT)
	depthwise_kernel(struct cuda_depthwise p, struct cuts cut)
{
	__shared__ struct line<T> ring[depth_of<T>()];
	__shared__ struct normers of;
	const struct tile t = tile_of_block(p, cut);
	struct only_stores<T> end;

	if constexpr (B == NORMED) {
		load_normers(p.norm.mean, p.norm.rstd, p.norm.gamma, p.norm.beta, t.channel,
			p.channels, of);
		__syncthreads();
	}
	walk<T, B>(p, t, ring, of, end);
}

void cuda_depthwise(const struct cuda_depthwise *p, cudaStream_t stream)
{
	const struct cuts c = cuts_of(p);
	const unsigned blocks = (unsigned)(p->batch * c.chunks * c.tiles * c.runs);

	if (p->open.data || p->accumulate) {
		cuda_depthwise_more(p, stream);
		return;
	}
	with_type(p->x, [&](auto t) {
		using T = decltype(t);
		auto kernel = depthwise_kernel<T, AS_IS>;

		if constexpr (sizeof(T) == 2)
			kernel = p->norm.mean ? depthwise_kernel<T, NORMED>
				 : p->relu    ? depthwise_kernel<T, OPENED>
					      : kernel;
		kernel<<<blocks, (unsigned)(LANES * c.strips), 0, stream>>>(*p, c);
	});
}
