/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of 3 x 3 in which each channel has a filter of its own, for images with channels
 * last. The time is that of reading and writing the images. A block has CHUNK channels of some
 * columns and walks down rows, which are copied to a ring in shared memory DEPTH - 1 rows ahead. A
 * thread has CHANNELS channels of COLUMNS columns; it reads each row once and adds it to all rows
 * that it takes part in.
 */
#include "depthwise.h"
#include "mma.cuh"

#define SIDE	    3 /* of a filter */
#define TAPS	    9
#define CHANNELS    4
#define COLUMNS	    4
#define LANES	    16 /* threads side by side */
#define CHUNK	    (LANES * CHANNELS)
#define STRIPS_MOST 8 /* of COLUMNS columns, of a block */
#define THREADS	    (LANES * STRIPS_MOST)
#define WIDTH	    (STRIPS_MOST * COLUMNS + 2) /* of a row of the ring, with its neighbours */
#define RESIDENT    4  /* blocks on a multiprocessor */
#define RUNS_MOST   16 /* parts that the rows of an image are cut into */
#define GRAD_ROUNDS 4  /* runs that a block of the gradient should have, so that all have as many */
#define GRAD_ROWS   12 /* of such a run, at least: two more are read */

/* Rows of a ring, as far as there is memory for two. */
template <typename T> __host__ __device__ constexpr int depth_of()
{
	return sizeof(T) == 2 ? 5 : 2;
}

/* A row of a ring. */
template <typename T> struct alignas(16) line {
	T v[WIDTH][CHUNK];
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
	const struct cuda_depthwise &p, const T *x, const struct tile &t)
{
	using C = struct copies<T>;
	const int channel = t.channel + threadIdx.x % C::packs * C::pack;
	struct copies<T> c = {.from = x,
		.first = (int)(threadIdx.x / C::packs),
		.width = t.strips * COLUMNS + 2,
		.step = (int)(blockDim.x / C::packs),
		.inside = 0};

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
template <typename T>
__device__ __forceinline__ void copy_row(
	const struct cuda_depthwise &p, const struct copies<T> &c, int row, struct line<T> &to)
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

/* The channels of a thread, of a pixel of the ring. */
__device__ __forceinline__ void take(const bf16 *from, float (&ret)[CHANNELS])
{
	const uint2 q = *reinterpret_cast<const uint2 *>(from);

	ret[0] = __uint_as_float(q.x << 16), ret[1] = __uint_as_float(q.x & 0xffff0000u);
	ret[2] = __uint_as_float(q.y << 16), ret[3] = __uint_as_float(q.y & 0xffff0000u);
}

__device__ __forceinline__ void take(const half *from, float (&ret)[CHANNELS])
{
	const uint2 q = *reinterpret_cast<const uint2 *>(from);
	const float2 low = __half22float2(*reinterpret_cast<const half2 *>(&q.x)),
		     high = __half22float2(*reinterpret_cast<const half2 *>(&q.y));

	ret[0] = low.x, ret[1] = low.y, ret[2] = high.x, ret[3] = high.y;
}

__device__ __forceinline__ void take(const float *from, float (&ret)[CHANNELS])
{
	load(from, ret);
}

template <typename T> __device__ __forceinline__ void put(T *to, const float (&v)[CHANNELS])
{
	if constexpr (sizeof(T) == 2)
		*reinterpret_cast<uint2 *>(to) =
			make_uint2(two(to, v[0], v[1]), two(to, v[2], v[3]));
	else
		store(to, v);
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

/* Adds a row of x to the rows of y before it, of the same place and behind it. x: the thread's
 * column before its own. */
template <typename T>
__device__ __forceinline__ void add_row(
	const T (*x)[CHUNK], int lane, const float (&filter)[CHANNELS * TAPS], struct three &y)
{
#pragma unroll
	for (int i = 0; i < COLUMNS + 2; i++) {
		float value[CHANNELS];

		take(x[i] + lane * CHANNELS, value);
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

/* Writes the first of the three rows; y: the thread's first column of that row; open: its place in
 * p.open. */
template <typename T>
__device__ __forceinline__ void store_row(
	const struct cuda_depthwise &p, T *y, const T *open, int columns, struct three &sum)
{
#pragma unroll
	for (int i = 0; i < COLUMNS; i++) {
		if (i >= columns)
			break;
		if (p.open.data) {
			float above[CHANNELS];

			take(open + i * p.channels, above);
#pragma unroll
			for (int k = 0; k < CHANNELS; k++)
				sum.v[0][i][k] = above[k] > 0 ? sum.v[0][i][k] : 0;
		}
		if (p.accumulate) {
			float old[CHANNELS];

			take(y + i * p.channels, old);
#pragma unroll
			for (int k = 0; k < CHANNELS; k++)
				sum.v[0][i][k] += old[k];
		}
		put(y + i * p.channels, sum.v[0][i]);
	}
}

template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
	depthwise_kernel(struct cuda_depthwise p, struct cuts cut)
{
	constexpr int depth = depth_of<T>();
	__shared__ struct line<T> ring[depth];
	const struct tile t =
		tile_of(p, cut, (int)(blockIdx.x % cut.chunks), (int)(blockIdx.x / cut.chunks));
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
		copies_wait<depth - 2>();
		__syncthreads(); /* the row is here, and all threads have read the one before it */
		if (row + depth - 1 <= t.end)
			copy_row(p, c, row + depth - 1, ring[ahead]);
		copies_commit();
		add_row(&ring[slot].v[left], lane, filter, sum);
		if (row > t.first && writes) {
			store_row(p, as<T>(p.y) + at, as<const T>(p.open) + at, columns, sum);
			at += below;
		}
		move_up(sum);
		slot = slot == depth - 1 ? 0 : slot + 1;
		ahead = ahead == depth - 1 ? 0 : ahead + 1;
	}
}

/* ---- how images are cut ---------------------------------------------------------------------- */

static struct cuts cut_columns(const struct cuda_depthwise *p)
{
	const int strips = (p->in[1] + COLUMNS - 1) / COLUMNS,
		  tiles = (strips + STRIPS_MOST - 1) / STRIPS_MOST;

	return {.chunks = (p->channels + CHUNK - 1) / CHUNK,
		.tiles = tiles,
		.strips = (strips + tiles - 1) / tiles,
		.runs = 1,
		.rows = p->in[0]};
}

static void cut_rows(const struct cuda_depthwise *p, int runs, struct cuts *c)
{
	c->rows = (p->in[0] + runs - 1) / runs;
	c->runs = (p->in[0] + c->rows - 1) / c->rows;
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
	const unsigned blocks = (unsigned)(p->batch * c.chunks * c.tiles * c.runs);

	with_type(p->x, [&](auto t) {
		depthwise_kernel<decltype(t)>
			<<<blocks, (unsigned)(LANES * c.strips), 0, stream>>>(*p, c);
	});
}

/* ---- the gradient of the filter -------------------------------------------------------------- */

/* Adds the products of a row of x and the rows of dy before it, of the same place and behind it. */
template <typename T>
__device__ __forceinline__ void multiply_row(
	const T (*x)[CHUNK], int lane, const struct three &dy, float (&sum)[CHANNELS * TAPS])
{
#pragma unroll
	for (int i = 0; i < COLUMNS + 2; i++) {
		float value[CHANNELS];

		take(x[i] + lane * CHANNELS, value);
#pragma unroll
		for (int t = 0; t < TAPS; t++) {
			const int from = i - t % SIDE;

			if (from < 0 || from >= COLUMNS)
				continue;
#pragma unroll
			for (int k = 0; k < CHANNELS; k++)
				sum[k * TAPS + t] += value[k] * dy.v[SIDE - 1 - t / SIDE][from][k];
		}
	}
}

template <typename T> struct rings {
	struct line<T> x[depth_of<T>()], y[depth_of<T>()];
};

/* A row of x, if the tile has it, and the row of dy behind it; rows of dy outside of the run belong
 * to another one. */
template <typename T>
__device__ __forceinline__ void copy_rows(const struct cuda_depthwise &p, const struct tile &t,
	const struct copies<T> &x, const T *y, int row, struct rings<T> &r, int slot)
{
	if (row <= t.end) {
		struct copies<T> dy = x;

		dy.from = y;
		copy_row(p, x, row, r.x[slot]);
		copy_row(p, dy, row + 1 < t.end ? row + 1 : -1, r.y[slot]);
	}
	copies_commit();
}

/* Adds the products of a tile of dy and the windows around it. */
template <typename T>
__device__ __forceinline__ void add_tile(const struct cuda_depthwise &p, const struct tile &t,
	struct rings<T> &r, float (&sum)[CHANNELS * TAPS])
{
	constexpr int depth = depth_of<T>();
	const int left = threadIdx.x / LANES * COLUMNS, lane = threadIdx.x % LANES;
	const struct copies<T> x = copies_of(p, as<const T>(p.x), t);
	const T *y = as<const T>(p.y) + (x.from - as<const T>(p.x));
	struct three dy = {};
	int slot = 0, ahead = depth - 1;

	__syncthreads(); /* all threads have read the tile before */
	for (int i = 0; i < depth - 1; i++)
		copy_rows(p, t, x, y, t.first - 1 + i, r, i);
#pragma unroll 3
	for (int row = t.first - 1; row <= t.end; row++) {
		copies_wait<depth - 2>();
		__syncthreads();
		copy_rows(p, t, x, y, row + depth - 1, r, ahead);
		move_up(dy);
#pragma unroll
		for (int i = 0; i < COLUMNS; i++)
			take(&r.y[slot].v[left + 1 + i][lane * CHANNELS], dy.v[SIDE - 1][i]);
		multiply_row(&r.x[slot].v[left], lane, dy, sum);
		slot = slot == depth - 1 ? 0 : slot + 1;
		ahead = ahead == depth - 1 ? 0 : ahead + 1;
	}
}

/* partial[blockIdx.y,channels,TAPS] of the tiles of a block. */
template <typename T>
__global__ void __launch_bounds__(THREADS, sizeof(T) == 2 ? RESIDENT : 2)
	depthwise_grad_kernel(struct cuda_depthwise p, struct cuts c)
{
	__shared__ struct rings<T> rings;
	__shared__ float share[THREADS][CHANNELS];
	const int start = (int)blockIdx.x * CHUNK;
	float *partial = p.partial + (int64_t)blockIdx.y * p.channels * TAPS;
	float sum[CHANNELS * TAPS] = {};

	for (int i = (int)blockIdx.y; i < p.batch * c.runs * c.tiles; i += (int)gridDim.y)
		add_tile<T>(p, tile_of(p, c, (int)blockIdx.x, i), rings, sum);
#pragma unroll
	for (int t = 0; t < TAPS; t++) {
		__syncthreads();
#pragma unroll
		for (int k = 0; k < CHANNELS; k++)
			share[threadIdx.x][k] = sum[k * TAPS + t];
		__syncthreads();
		for (int j = (int)threadIdx.x; j < CHUNK && start + j < p.channels;
			j += (int)blockDim.x) {
			float all = 0;

			for (int s = 0; s < c.strips; s++)
				all += share[s * LANES + j / CHANNELS][j % CHANNELS];
			partial[(start + j) * TAPS + t] = all;
		}
	}
}

__global__ void depthwise_finish(struct cuda_depthwise p, int parts)
{
	const int n = p.channels * TAPS, i = blockIdx.x * THREADS + threadIdx.x;
	float sum = 0;

	if (i >= n)
		return;
	for (int part = 0; part < parts; part++)
		sum += p.partial[(int64_t)part * n + i];
	p.dw[i] = sum + (p.accumulate ? p.dw[i] : 0);
}

/* Blocks of the gradient: chunks of channels, and parts of the tiles. */
static dim3 grad_grid(const struct cuda_depthwise *p, const struct cuts *c)
{
	const int resident = p->x.type == CUDA_F32 ? 2 : RESIDENT,
		  parts = resident * p->processors / c->chunks;

	return dim3((unsigned)c->chunks, (unsigned)(parts ? parts : 1));
}

static struct cuts grad_cuts(const struct cuda_depthwise *p)
{
	struct cuts c = cut_columns(p);
	const int64_t tiles = (int64_t)p->batch * c.tiles,
		      runs = (GRAD_ROUNDS * (int64_t)grad_grid(p, &c).y + tiles - 1) / tiles,
		      most = p->in[0] / GRAD_ROWS;

	cut_rows(p, (int)(runs > most ? most ? most : 1 : runs), &c);
	return c;
}

size_t cuda_depthwise_scratch(const struct cuda_depthwise *p)
{
	const struct cuts c = cut_columns(p);

	return grad_grid(p, &c).y * sizeof(float) * TAPS * (size_t)p->channels;
}

void cuda_depthwise_grad(const struct cuda_depthwise *p, cudaStream_t stream)
{
	const struct cuts c = grad_cuts(p);
	const dim3 grid = grad_grid(p, &c);

	with_type(p->x, [&](auto t) {
		depthwise_grad_kernel<decltype(t)>
			<<<grid, (unsigned)(LANES * c.strips), 0, stream>>>(*p, c);
	});
	depthwise_finish<<<blocks_for(p->channels * TAPS, THREADS), THREADS, 0, stream>>>(
		*p, (int)grid.y);
}
