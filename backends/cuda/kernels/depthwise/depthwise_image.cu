/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the images of convolutions of 3 x 3 with a filter for each channel, together with
 * what made the image: the mask of a ReLU, the sums for the gradient of a norm. */
#define COLUMNS 5

#include "depthwise.cuh"

#define IMAGE_RESIDENT 3 /* blocks on a multiprocessor: the other operands need registers */

/* What becomes of the rows of y: stored, as p says. MORE: p has `open` or adds to y, which in 16
 * bits are loaded while the row of x is still to be added. */
template <typename T, bool MORE> struct stores {
	static constexpr bool early = sizeof(T) == 2;
	static constexpr int kept = MORE ? COLUMNS : 1;
	quad<T> open[kept], old[kept];

	__device__ __forceinline__ void fetch(
		const struct cuda_depthwise &p, int64_t at, int columns)
	{
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			const int64_t own = at + i * p.channels;

			if (i < columns && p.open.data)
				open[i] = *reinterpret_cast<const quad<T> *>(
					as<const T>(p.open) + own);
			if (i < columns && p.accumulate)
				old[i] = *reinterpret_cast<const quad<T> *>(as<const T>(p.y) + own);
		}
	}
	__device__ __forceinline__ void ahead(
		const struct cuda_depthwise &p, int64_t at, int columns)
	{
		if constexpr (MORE && early)
			fetch(p, at, columns);
	}
	__device__ __forceinline__ void row(
		const struct cuda_depthwise &p, int64_t at, int columns, struct three &sum)
	{
		T *y = as<T>(p.y) + at;

		if constexpr (MORE && !early)
			fetch(p, at, columns);
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			float above[CHANNELS], before[CHANNELS];

			if (i >= columns)
				break;
			if constexpr (MORE) {
				if (p.open.data) {
					widen(y, open[i], above);
#pragma unroll
					for (int k = 0; k < CHANNELS; k++)
						sum.v[0][i][k] = above[k] > 0 ? sum.v[0][i][k] : 0;
				}
				if (p.accumulate) {
					widen(y, old[i], before);
#pragma unroll
					for (int k = 0; k < CHANNELS; k++)
						sum.v[0][i][k] += before[k];
				}
			}
			put(y + i * p.channels, sum.v[0][i]);
		}
	}
};

/*
 * y is the gradient of a norm's result, of which the gradient before the ReLU is stored and added
 * up, and its products with x - mean. x: where the norm's operand has the thread's first channel.
 * MORE: the norm has no ReLU, and y is masked by `open`.
 */
template <typename T, bool MORE> struct norm_sums {
	const T *x;
	const struct normers &of;
	quad<T> coming[COLUMNS], open[MORE ? COLUMNS : 1], old[COLUMNS];
	float first[CHANNELS], second[CHANNELS];

	/* Starts to load x of a row. */
	__device__ __forceinline__ void ahead(
		const struct cuda_depthwise &p, int64_t at, int columns)
	{
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			const int64_t own = at + i * p.channels;

			if (i >= columns)
				break;
			coming[i] = *reinterpret_cast<const quad<T> *>(x + own);
			if constexpr (MORE)
				open[i] = *reinterpret_cast<const quad<T> *>(
					as<const T>(p.open) + own);
			if (p.accumulate)
				old[i] = *reinterpret_cast<const quad<T> *>(as<const T>(p.y) + own);
		}
	}
	__device__ __forceinline__ void row(
		const struct cuda_depthwise &p, int64_t at, int columns, struct three &sum)
	{
		float mean[CHANNELS], scale[CHANNELS], shift[CHANNELS];
		T *y = as<T>(p.y) + at;

		load_normer(of, mean, scale, shift);
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			float v[CHANNELS], above[CHANNELS], before[CHANNELS] = {};

			if (i >= columns)
				break;
			widen(x, coming[i], v);
			if constexpr (MORE)
				widen(x, open[i], above);
			if (p.accumulate)
				widen(x, old[i], before);
#pragma unroll
			for (int k = 0; k < CHANNELS; k++) {
				float &e = sum.v[0][i][k];

				if constexpr (MORE)
					e = (above[k] > 0 ? e : 0) + before[k];
				else
					e = __fmaf_rn(v[k], scale[k], shift[k]) > 0 ? e + before[k]
										    : 0;
				first[k] += e;
				second[k] += e * (v[k] - mean[k]);
			}
			put(y + i * p.channels, sum.v[0][i]);
		}
	}
};

template <typename T>
__global__ void __launch_bounds__(THREADS, IMAGE_RESIDENT)
	depthwise_more_kernel(struct cuda_depthwise p, struct cuts cut)
{
	__shared__ struct line<T> ring[depth_of<T>()];
	__shared__ struct normers of;
	struct stores<T, true> end;

	walk<T, AS_IS>(p, tile_of_block(p, cut), ring, of, end);
}

/* parts[blocks of a chunk,2,channels]: the sums of a block. */
template <typename T, bool MORE>
__global__ void __launch_bounds__(THREADS, IMAGE_RESIDENT) depthwise_norm_kernel(
	struct cuda_depthwise p, struct cuts cut, struct cuda_bn_grad g, float *parts)
{
	__shared__ struct line<T> ring[depth_of<T>()];
	__shared__ struct normers of;
	__shared__ float share[2][THREADS][CHANNELS];
	const struct tile t = tile_of_block(p, cut);
	struct norm_sums<T, MORE> end = {
		.x = as<const T>(g.x), .of = of
	};

	load_normers(g.mean, g.rstd, g.gamma, g.beta, t.channel, p.channels, of);
	walk<T, AS_IS>(p, t, ring, of, end);
#pragma unroll
	for (int k = 0; k < CHANNELS; k++) {
		share[0][threadIdx.x][k] = end.first[k];
		share[1][threadIdx.x][k] = end.second[k];
	}
	__syncthreads();
	parts += (int64_t)(blockIdx.x / cut.chunks) * 2 * p.channels;
	for (int i = (int)threadIdx.x; i < 2 * CHUNK; i += (int)blockDim.x) {
		const int which = i / CHUNK, j = i % CHUNK;
		float all = 0;

		if (t.channel + j >= p.channels)
			continue;
		for (int s = 0; s < t.strips; s++)
			all += share[which][s * LANES + j / CHANNELS][j % CHANNELS];
		parts[which * p.channels + t.channel + j] = all;
	}
}

void cuda_depthwise_more(const struct cuda_depthwise *p, cudaStream_t stream)
{
	const struct cuts c = cuts_of(p);
	const unsigned blocks = (unsigned)(p->batch * c.chunks * c.tiles * c.runs);

	with_type(p->x, [&](auto t) {
		depthwise_more_kernel<decltype(t)>
			<<<blocks, (unsigned)(LANES * c.strips), 0, stream>>>(*p, c);
	});
}

static int norm_parts(const struct cuda_depthwise *p, const struct cuts *c)
{
	return p->batch * c->tiles * c->runs;
}

size_t cuda_depthwise_norm_scratch(const struct cuda_depthwise *p)
{
	const struct cuts c = cuts_of(p);

	return 2 * sizeof(float) * (size_t)p->channels * (size_t)(norm_parts(p, &c) + 1);
}

void cuda_depthwise_norm_grad(
	const struct cuda_depthwise *p, const struct cuda_bn_grad *bn, cudaStream_t stream)
{
	const struct cuts c = cuts_of(p);
	const int parts = norm_parts(p, &c);

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if constexpr (sizeof(T) == 2) {
			auto kernel = p->open.data ? depthwise_norm_kernel<T, true>
						   : depthwise_norm_kernel<T, false>;

			kernel<<<(unsigned)(parts * c.chunks), (unsigned)(LANES * c.strips), 0,
				stream>>>(*p, c, *bn, sums_of(bn->scratch, bn->c).parts);
		}
	});
	cuda_bn_grad_of_parts(bn, p->y, parts, stream);
}
