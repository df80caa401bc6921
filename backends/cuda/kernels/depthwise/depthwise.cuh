/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of convolutions of 3 x 3 with a filter for each channel share, for images with
 * channels last. The time is that of reading and writing the images. A block has CHUNK channels of
 * some columns and walks down rows, which are copied to a ring in shared memory depth_of - 1 rows
 * ahead. A thread has CHANNELS channels of COLUMNS columns; it reads each row once and adds it to
 * all rows that it takes part in. Each file that includes this one defines COLUMNS: with more, a
 * thread reads fewer columns of its neighbours; with fewer, it has registers for other operands.
 */
#ifndef JM_CUDA_DEPTHWISE_CUH
#define JM_CUDA_DEPTHWISE_CUH

#include "backends/cuda/kernels/batchnorm.cuh"
#include "depthwise.h"
#include "backends/cuda/kernels/mma.cuh"

#define SIDE	    3 /* of a filter */
#define TAPS	    9
#define CHANNELS    4
#define LANES	    16 /* threads side by side */
#define CHUNK	    (LANES * CHANNELS)
#define STRIPS_MOST 8 /* of COLUMNS columns, of a block */
#define THREADS	    (LANES * STRIPS_MOST)
#define RESIDENT    4  /* blocks on a multiprocessor */
#define RUNS_MOST   16 /* parts that the rows of an image are cut into */

/* Rows of a ring, as far as there is memory for two. */
template <typename T> __host__ __device__ constexpr int depth_of()
{
	return sizeof(T) == 2 ? 5 : 2;
}

/* A row of a ring, with the neighbours of its columns. */
template <typename T, int STRIPS = STRIPS_MOST> struct alignas(16) line {
	T v[STRIPS * COLUMNS + 2][CHUNK];
};

/* Which part of the images a block has. Counts are those of the threads, not of what is inside. */
struct tile {
	int image, channel, column, strips; /* column: the first of the result */
	int first, end;			    /* rows */
};

/* How images are cut into tiles. */
struct cuts {
	int chunks, tiles, strips; /* strips of a tile */
	int runs, rows;		   /* rows of a run */
};

__device__ __forceinline__ struct tile tile_of(
	const struct cuda_depthwise &p, const struct cuts &c, int chunk, int at)
{
	const int run = at / c.tiles % c.runs;

	return {at / c.tiles / c.runs, chunk * CHUNK, at % c.tiles * c.strips * COLUMNS, c.strips,
		run * c.rows, min((run + 1) * c.rows, p.in[0])};
}

/* What a thread copies of each row: every `step`-th pixel of the tile with one column more on each
 * side, as far as the bit of `inside` is set; zeros where it is not. */
template <typename T> struct copies {
	static constexpr int pack = 16 / sizeof(T), packs = CHUNK / pack;
	const T *from; /* of row 0 */
	int first, width, step;
	unsigned inside;
};

template <typename T>
__device__ __forceinline__ struct copies<T> copies_of(
	const struct cuda_depthwise &p, const T *x, const struct tile &t) {
	using C = struct copies<T>;
	const int channel = t.channel + threadIdx.x % C::packs * C::pack;
	struct copies<T> c = {
		.from = x, .first = (int)(threadIdx.x / C::packs), .width = t.strips * COLUMNS + 2,
		.step = (int)(blockDim.x / C::packs), .inside = 0
	};

	for (int i = c.first, k = 0; i < c.width; i += c.step, k++) {
		const int column = t.column - 1 + i;
		const bool is = channel < p.channels && column >= 0 && column < p.in[1];

		c.inside |= is ? 1u << k : 0;
	}
	c.from += ((int64_t)t.image * p.in[0] * p.in[1] + t.column - 1 + c.first) * p.channels +
		  channel;
	return c;
}

/* Starts to copy a row. */
template <typename T, int STRIPS>
__device__ __forceinline__ void copy_row(const struct cuda_depthwise &p, const struct copies<T> &c,
	int row, struct line<T, STRIPS> &to)
{
	using C = struct copies<T>;
	const bool is = row >= 0 && row < p.in[0];
	const T *from = c.from + (int64_t)row * p.in[1] * p.channels;
	unsigned at = shared_at(&to.v[c.first][threadIdx.x % C::packs * C::pack]);
	unsigned inside = is ? c.inside : 0;

	for (int i = c.first; i < c.width; i += c.step) {
		copy_async<16>(at, inside & 1 ? from : as<const T>(p.x), inside & 1);
		from += c.step * p.channels;
		at += c.step * CHUNK * (unsigned)sizeof(T);
		inside >>= 1;
	}
}

/* The channels of a thread, of a pixel; the first operand only names the type. */
__device__ __forceinline__ void widen(const bf16 *, const uint2 &q, float (&ret)[CHANNELS])
{
	ret[0] = __uint_as_float(q.x << 16), ret[1] = __uint_as_float(q.x & 0xffff0000u);
	ret[2] = __uint_as_float(q.y << 16), ret[3] = __uint_as_float(q.y & 0xffff0000u);
}

__device__ __forceinline__ void widen(const half *, const uint2 &q, float (&ret)[CHANNELS])
{
	const float2 low = __half22float2(*reinterpret_cast<const half2 *>(&q.x)),
		     high = __half22float2(*reinterpret_cast<const half2 *>(&q.y));

	ret[0] = low.x, ret[1] = low.y, ret[2] = high.x, ret[3] = high.y;
}

__device__ __forceinline__ void widen(const float *, const float4 &q, float (&ret)[CHANNELS])
{
	ret[0] = q.x, ret[1] = q.y, ret[2] = q.z, ret[3] = q.w;
}

/* Two numbers; 0 in place of those below 0, which keeps NaN. */
__device__ __forceinline__ unsigned open_two(const bf16 *, unsigned q)
{
	unsigned v;

	asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(q), "r"(0));
	return v;
}

__device__ __forceinline__ unsigned open_two(const half *, unsigned q)
{
	unsigned v;

	asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(v) : "r"(q), "r"(0));
	return v;
}

/* The channels of a thread, of a pixel, as they are in memory. */
template <typename T> using quad = std::conditional_t<sizeof(T) == 2, uint2, float4>;

template <typename T> __device__ __forceinline__ void take(const T *from, float (&ret)[CHANNELS])
{
	widen(from, *reinterpret_cast<const quad<T> *>(from), ret);
}

/* What becomes of x before it is read: nothing; a norm with ReLU, in shared memory; a ReLU. */
enum before { AS_IS, NORMED, OPENED };

/* The same of x. */
template <enum before B, typename T>
__device__ __forceinline__ void take_x(const T *from, float (&ret)[CHANNELS])
{
	if constexpr (B == OPENED && sizeof(T) == 2) {
		uint2 q = *reinterpret_cast<const uint2 *>(from);

		q.x = open_two(from, q.x);
		q.y = open_two(from, q.y);
		widen(from, q, ret);
	} else {
		take(from, ret);
	}
}

template <typename T> __device__ __forceinline__ void put(T *to, const float (&v)[CHANNELS])
{
	if constexpr (sizeof(T) == 2)
		*reinterpret_cast<uint2 *>(to) =
			make_uint2(two(to, v[0], v[1]), two(to, v[2], v[3]));
	else
		store(to, v);
}

/* ---- a norm with ReLU before the convolution ------------------------------------------------- */

/* Of the channels of a block, in shared memory: the norm is x scale + shift. */
struct normers {
	float scale[CHUNK], shift[CHUNK], mean[CHUNK];
};

/* beta NULL: the norm is above 0 everywhere. */
__device__ __forceinline__ void load_normers(const float *mean, const float *rstd,
	const float *gamma, const float *beta, int first, int channels, struct normers &ret)
{
	for (int i = (int)threadIdx.x; i < CHUNK; i += (int)blockDim.x) {
		const bool is = first + i < channels;
		const float scale = is && beta ? rstd[first + i] * gamma[first + i] : 0;

		ret.mean[i] = is ? mean[first + i] : 0;
		ret.scale[i] = scale;
		ret.shift[i] = is && beta ? __fmaf_rn(-ret.mean[i], scale, beta[first + i]) : 1;
	}
}

/* Those of the thread's channels. */
__device__ __forceinline__ void load_normer(const struct normers &of, float (&mean)[CHANNELS],
	float (&scale)[CHANNELS], float (&shift)[CHANNELS])
{
	const int own = threadIdx.x % LANES * CHANNELS;

	load(of.mean + own, mean);
	load(of.scale + own, scale);
	load(of.shift + own, shift);
}

/* Two numbers in 16 bits, those below 0 as 0. */
__device__ __forceinline__ unsigned two_open(const bf16 *, float low, float high)
{
	unsigned v;

	asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
	return v;
}

__device__ __forceinline__ unsigned two_open(const half *, float low, float high)
{
	unsigned v;

	asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
	return v;
}

/* Norms what this thread has copied of a row, when it has arrived. */
template <typename T, int STRIPS>
__device__ __forceinline__ void norm_row(const struct cuda_depthwise &p, const struct copies<T> &c,
	int row, struct line<T, STRIPS> &x, const struct normers &of)
{
	using C = struct copies<T>;
	const int pack = (int)(threadIdx.x % C::packs) * C::pack;

	if (row < 0 || row >= p.in[0])
		return;
#pragma unroll
	for (int h = 0; h < C::pack; h += CHANNELS) {
		T *at = &x.v[c.first][pack + h];
		float scale[CHANNELS], shift[CHANNELS];
		unsigned inside = c.inside;

		load(of.scale + pack + h, scale);
		load(of.shift + pack + h, shift);
		for (int i = c.first; i < c.width;
			i += c.step, inside >>= 1, at += c.step * CHUNK) {
			float v[CHANNELS];

			if (!(inside & 1))
				continue;
			take(at, v);
#pragma unroll
			for (int k = 0; k < CHANNELS; k++)
				v[k] = __fmaf_rn(v[k], scale[k], shift[k]);
			*reinterpret_cast<uint2 *>(at) =
				make_uint2(two_open(at, v[0], v[1]), two_open(at, v[2], v[3]));
		}
	}
}

/* filter[channel * TAPS + tap] of the channels of a thread; `turned`: by half a turn. */
template <typename T>
__device__ __forceinline__ void load_filter(
	const struct cuda_depthwise &p, int channel, float (&filter)[CHANNELS * TAPS])
{
	const T *w = as<const T>(p.w) + channel * TAPS;

#pragma unroll
	for (int i = 0; i < TAPS; i++) {
		float some[CHANNELS] = {1.0F / TAPS, 1.0F / TAPS, 1.0F / TAPS, 1.0F / TAPS};

		if (p.w.data)
			take(w + i * CHANNELS, some);
#pragma unroll
		for (int k = 0; k < CHANNELS; k++)
			filter[i * CHANNELS + k] = some[k];
	}
	if (!p.turned)
		return;
#pragma unroll
	for (int k = 0; k < CHANNELS; k++)
#pragma unroll
		for (int t = 0; t < TAPS / 2; t++) {
			const float other = filter[k * TAPS + t];

			filter[k * TAPS + t] = filter[k * TAPS + TAPS - 1 - t];
			filter[k * TAPS + TAPS - 1 - t] = other;
		}
}

/* A thread's part of three rows that follow each other. */
struct three {
	float v[SIDE][COLUMNS][CHANNELS];
};

/* The first row leaves; the last is 0. */
__device__ __forceinline__ void move_up(struct three &rows)
{
#pragma unroll
	for (int i = 0; i < COLUMNS; i++)
#pragma unroll
		for (int k = 0; k < CHANNELS; k++) {
			rows.v[0][i][k] = rows.v[1][i][k];
			rows.v[1][i][k] = rows.v[2][i][k];
			rows.v[2][i][k] = 0;
		}
}

/* Calls use(value, column, tap, channel) for the values of a row of x and the thread's columns of y
 * to which they belong by a tap of the filter. x: the thread's column before its own. */
template <enum before B, typename T, class USE>
__device__ __forceinline__ void over_row(const T (*x)[CHUNK], int lane, USE use)
{
#pragma unroll
	for (int i = 0; i < COLUMNS + 2; i++) {
		float value[CHANNELS];

		take_x<B>(x[i] + lane * CHANNELS, value);
#pragma unroll
		for (int t = 0; t < TAPS; t++) {
			const int column = i - t % SIDE;

			if (column < 0 || column >= COLUMNS)
				continue;
#pragma unroll
			for (int k = 0; k < CHANNELS; k++)
				use(value[k], column, t, k);
		}
	}
}

/* Adds a row of x to the rows of y before it, of the same place and behind it. */
template <enum before B, typename T>
__device__ __forceinline__ void add_row(
	const T (*x)[CHUNK], int lane, const float (&filter)[CHANNELS * TAPS], struct three &y)
{
	over_row<B>(x, lane, [&](float value, int column, int t, int k) {
		y.v[SIDE - 1 - t / SIDE][column][k] += value * filter[k * TAPS + t];
	});
}

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

/* ---- how images are cut ---------------------------------------------------------------------- */

static inline struct cuts cut_columns(const struct cuda_depthwise *p)
{
	const int strips = (p->in[1] + COLUMNS - 1) / COLUMNS,
		  tiles = (strips + STRIPS_MOST - 1) / STRIPS_MOST;

	return {.chunks = (p->channels + CHUNK - 1) / CHUNK,
		.tiles = tiles,
		.strips = (strips + tiles - 1) / tiles,
		.runs = 1,
		.rows = p->in[0]};
}

static inline void cut_rows(const struct cuda_depthwise *p, int runs, struct cuts *c)
{
	c->rows = (p->in[0] + runs - 1) / runs;
	c->runs = (p->in[0] + c->rows - 1) / c->rows;
}

/* Runs with which the fewest rows follow each other on a multiprocessor. */
static inline struct cuts cuts_of(const struct cuda_depthwise *p)
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

#endif
