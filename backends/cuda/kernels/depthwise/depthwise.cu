/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 with a filter for each channel, and the gradients of their images. */
#include "depthwise.cuh"

#define RUNS_MOST 16 /* parts that the rows of an image are cut into */

/* Adds a row of x to the rows of y before it, of the same place and behind it. x: the thread's
 * column before its own. */
template <enum before B, typename T>
__device__ __forceinline__ void add_row(
	const T (*x)[CHUNK], int lane, const float (&filter)[CHANNELS * TAPS], struct three &y)
{
#pragma unroll
	for (int i = 0; i < COLUMNS + 2; i++) {
		float value[CHANNELS];

		take_x<B>(x[i] + lane * CHANNELS, value);
#pragma unroll
		for (int t = 0; t < TAPS; t++) {
			const int to = i - t % SIDE;

			if (to < 0 || to >= COLUMNS)
				continue;
#pragma unroll
			for (int k = 0; k < CHANNELS; k++)
				y.v[SIDE - 1 - t / SIDE][to][k] += value[k] * filter[k * TAPS + t];
		}
	}
}

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
	quad<T> coming[COLUMNS], open[MORE ? COLUMNS : 1], old[MORE ? COLUMNS : 1];
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
			if constexpr (MORE) {
				open[i] = *reinterpret_cast<const quad<T> *>(
					as<const T>(p.open) + own);
				if (p.accumulate)
					old[i] = *reinterpret_cast<const quad<T> *>(
						as<const T>(p.y) + own);
			}
		}
	}
	__device__ __forceinline__ void row(
		const struct cuda_depthwise &p, int64_t at, int columns, struct three &sum)
	{
		const int own = threadIdx.x % LANES * CHANNELS;
		float mean[CHANNELS], scale[CHANNELS], shift[CHANNELS];
		T *y = as<T>(p.y) + at;

		load(of.mean + own, mean);
		load(of.scale + own, scale);
		load(of.shift + own, shift);
#pragma unroll
		for (int i = 0; i < COLUMNS; i++) {
			float v[CHANNELS], above[CHANNELS], before[CHANNELS] = {};

			if (i >= columns)
				break;
			widen(x, coming[i], v);
			if constexpr (MORE) {
				widen(x, open[i], above);
				if (p.accumulate)
					widen(x, old[i], before);
			} else if (p.accumulate) {
				take(y + i * p.channels, before);
			}
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

/* Walks down the rows of a tile. */
template <typename T, enum before B, class END>
__device__ __forceinline__ void walk(const struct cuda_depthwise &p, const struct tile &t,
	struct line<T> *ring, const struct normers &of, END &end)
{
	constexpr int depth = depth_of<T>();
	const int lane = threadIdx.x % LANES, left = threadIdx.x / LANES * COLUMNS,
		  channel = t.channel + lane * CHANNELS, columns = p.in[1] - t.column - left;
	const int below = p.in[1] * p.channels;
	const struct copies<T> c = copies_of(p, as<const T>(p.x), t);
	int64_t at = ((int64_t)t.image * p.in[0] + t.first) * below +
		     (t.column + left) * p.channels + channel;
	const bool writes = channel < p.channels;
	float filter[CHANNELS * TAPS] = {};
	struct three sum = {};
	int slot = 0, ahead = depth - 1;

	for (int i = 0; i < depth - 1; i++) {
		if (t.first - 1 + i <= t.end)
			copy_row(p, c, t.first - 1 + i, ring[i]);
		copies_commit();
	}
	if (writes)
		load_filter<T>(p, channel, filter);
#pragma unroll 3
	for (int row = t.first - 1; row <= t.end; row++) {
		const bool ends = row > t.first && writes;

		if (ends)
			end.ahead(p, at, columns);
		copies_wait<depth - 2>();
		if constexpr (B == NORMED)
			norm_row(p, c, row, ring[slot], of);
		__syncthreads(); /* the row is here, and all threads have read the one before it */
		if (row + depth - 1 <= t.end)
			copy_row(p, c, row + depth - 1, ring[ahead]);
		copies_commit();
		add_row<B>(&ring[slot].v[left], lane, filter, sum);
		if (ends) {
			end.row(p, at, columns, sum);
			at += below;
		}
		move_up(sum);
		slot = slot == depth - 1 ? 0 : slot + 1;
		ahead = ahead == depth - 1 ? 0 : ahead + 1;
	}
}

__device__ __forceinline__ struct tile tile_of_block(
	const struct cuda_depthwise &p, const struct cuts &cut)
{
	return tile_of(p, cut, (int)(blockIdx.x % cut.chunks), (int)(blockIdx.x / cut.chunks));
}

template <typename T, enum before B, bool MORE>
__global__ void __launch_bounds__(THREADS, RESIDENT)
	depthwise_kernel(struct cuda_depthwise p, struct cuts cut)
{
	__shared__ struct line<T> ring[depth_of<T>()];
	__shared__ struct normers of;
	const struct tile t = tile_of_block(p, cut);
	struct stores<T, MORE> end;

	if constexpr (B == NORMED) {
		load_normers(p.norm.mean, p.norm.rstd, p.norm.gamma, p.norm.beta, t.channel,
			p.channels, of);
		__syncthreads();
	}
	walk<T, B>(p, t, ring, of, end);
}

/* parts[blocks of a chunk,2,channels]: the sums of a block. */
template <typename T, bool MORE>
__global__ void __launch_bounds__(THREADS, RESIDENT) depthwise_norm_kernel(
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

/* Runs with which the fewest rows follow each other on a multiprocessor. */
static struct cuts cuts_of(const struct cuda_depthwise *p)
{
	struct cuts c = cut_columns(p), best = c;
	int64_t least = INT64_MAX;

	for (int runs = 1; runs <= RUNS_MOST && runs <= p->in[0]; runs++) {
		int64_t blocks, rows;

		cut_rows(p, runs, &c);
		blocks = (int64_t)p->batch * c.chunks * c.tiles * c.runs;
		rows = blocks_for(blocks, RESIDENT * p->processors) * (int64_t)(c.rows + 2);
		if (rows < least) {
			least = rows;
			best = c;
		}
	}
	return best;
}

void cuda_depthwise(const struct cuda_depthwise *p, cudaStream_t stream)
{
	const struct cuts c = cuts_of(p);
	const unsigned blocks = (unsigned)(p->batch * c.chunks * c.tiles * c.runs),
		       threads = (unsigned)(LANES * c.strips);

	with_type(p->x, [&](auto t) {
		using T = decltype(t);
		auto kernel = p->open.data || p->accumulate ? depthwise_kernel<T, AS_IS, true>
							    : depthwise_kernel<T, AS_IS, false>;

		if constexpr (sizeof(T) == 2)
			kernel = p->norm.mean ? depthwise_kernel<T, NORMED, false>
				 : p->relu    ? depthwise_kernel<T, OPENED, false>
					      : kernel;
		kernel<<<blocks, threads, 0, stream>>>(*p, c);
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
