/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of a filter of 3 x 3 with stride 1 for few channels, in 16 bits on tensor cores:
 * dw[filters,channels,3,3] = the sum over pixels of dy[pixel,filter] x[pixel + tap,channel]. A
 * block has FILTERS filters and CHANNELS channels of some columns of dy and walks down rows, which
 * are copied to rings in shared memory AHEAD rows before; each of its warps has one tap.
 */
#include "image_kernels.h"
#include "mma.cuh"

#define SIDE	 3
#define TAPS	 (SIDE * SIDE)
#define CHANNELS 32
#define THREADS	 (TAPS * WARP)
#define RESIDENT 2  /* blocks of a multiprocessor, by their registers */
#define STEP	 16 /* pixels that an instruction sums over */
#define WIDTH	 96 /* columns of dy of a block, at most */
#define AHEAD	 2
#define X_ROWS	 (SIDE + AHEAD) /* of a ring */
#define Y_ROWS	 (1 + AHEAD)
#define ROUNDS	 4 /* tiles that a block should have, so that all have as many */

/* Pixels are 16 bytes further apart than they are long, so that ldmatrix reads eight of them from
 * different banks. */
template <typename T, int FILTERS> struct rings {
	T x[X_ROWS][WIDTH + SIDE - 1][CHANNELS + 8];
	T dy[Y_ROWS][WIDTH][FILTERS + 8];
};

/* How images are cut: columns of a tile, tiles of a row, and runs of rows. */
struct cuts {
	int width, tiles, rows, runs;
};

struct tile {
	int image, column, columns, first, end; /* of dy */
};

__device__ __forceinline__ struct tile tile_of(
	const struct cuda_filter_grad &p, const struct cuts &c, int at)
{
	const int column = at % c.tiles * c.width, run = at / c.tiles % c.runs;

	return {at / c.tiles / c.runs, column, min(c.width, p.out[1] - column), run * c.rows,
		min((run + 1) * c.rows, p.out[0])};
}

/* Starts to copy CHUNK channels of `n` pixels of a row, of which those from `from` to `to` are
 * there, and zeros in place of the others. */
template <int CHUNK, typename T, int PITCH>
__device__ __forceinline__ void copy_pixels(
	const T *row, int64_t step, int n, int from, int to, T (*ret)[PITCH])
{
	constexpr int packs = CHUNK / 8;

	for (int i = (int)threadIdx.x; i < n * packs; i += THREADS) {
		const int pixel = i / packs, channel = i % packs * 8;
		const bool inside = pixel >= from && pixel < to;

		copy_async<16>(shared_at(&ret[pixel][channel]),
			inside ? row + pixel * step + channel : row, inside);
	}
}

/* A row of dy, and the row of x that its last taps meet. */
template <typename T, int FILTERS>
__device__ __forceinline__ void copy_row(const struct cuda_filter_grad &p, const struct tile &t,
	int width, int row, int x_slot, int y_slot, bool with_dy, struct rings<T, FILTERS> &r)
{
	const int at = row - p.pad[0] + SIDE - 1, left = t.column - p.pad[1];
	const bool there = at >= 0 && at < p.in[0];
	const T *x = as<const T>(p.x) +
		     ((int64_t)t.image * p.in[0] + (there ? at : 0)) * p.in[1] * p.channels +
		     blockIdx.z * CHANNELS;

	copy_pixels<CHANNELS>(there ? x + (int64_t)left * p.channels : x, p.channels,
		width + SIDE - 1, there ? -left : 0, there ? p.in[1] - left : 0, r.x[x_slot]);
	if (with_dy)
		copy_pixels<FILTERS>(
			as<const T>(p.dy) +
				(((int64_t)t.image * p.out[0] + row) * p.out[1] + t.column) *
					p.filters +
				blockIdx.y * FILTERS,
			p.filters, width, 0, t.columns, r.dy[y_slot]);
}

template <int FILTERS> struct sums {
	float v[FILTERS / 16][CHANNELS / 8][4];
};

/* Adds the products of a row: x: the warp's tap of the first pixel. */
template <typename T, int FILTERS>
__device__ __forceinline__ void add_row(const T (*dy)[FILTERS + 8], const T (*x)[CHANNELS + 8],
	int width, struct sums<FILTERS> &sum)
{
	const int lane = threadIdx.x % WARP, block = lane / 8, line = lane % 8;

	for (int k = 0; k < width; k += STEP) {
		unsigned b[CHANNELS / 16][4];

#pragma unroll
		for (int n = 0; n < CHANNELS / 16; n++)
			load_turned(b[n],
				shared_at(&x[k + block % 2 * 8 + line][n * 16 + block / 2 * 8]));
#pragma unroll
		for (int m = 0; m < FILTERS / 16; m++) {
			unsigned a[4];

			load_turned(a,
				shared_at(&dy[k + block / 2 * 8 + line][m * 16 + block % 2 * 8]));
#pragma unroll
			for (int n = 0; n < CHANNELS / 8; n++)
				multiply(T(), sum.v[m][n], a, b[n / 2][n % 2 * 2],
					b[n / 2][n % 2 * 2 + 1]);
		}
	}
}

template <typename T, int FILTERS>
__device__ __forceinline__ void add_tile(const struct cuda_filter_grad &p, const struct tile &t,
	int width, struct rings<T, FILTERS> &r, struct sums<FILTERS> &sum)
{
	const int tap = threadIdx.x / WARP;
	int x_slot = 0, y_slot = 0; /* of the first of three rows, and of dy */

	__syncthreads(); /* all threads have read the tile before */
	for (int i = -(SIDE - 1); i < AHEAD; i++) {
		if (t.first + i < t.end)
			copy_row(p, t, width, t.first + i, i + SIDE - 1, i, i >= 0, r);
		if (i >= 0)
			copies_commit();
	}
#pragma unroll 1
	for (int row = t.first; row < t.end; row++) {
		const int x_ahead = x_slot + SIDE + AHEAD - 1, y_ahead = y_slot + AHEAD;

		copies_wait<AHEAD - 1>();
		__syncthreads(); /* the row is here, and all threads have read the one before it */
		if (row + AHEAD < t.end)
			copy_row(p, t, width, row + AHEAD, x_ahead % X_ROWS, y_ahead % Y_ROWS, true,
				r);
		copies_commit();
		add_row<T, FILTERS>(
			r.dy[y_slot], &r.x[(x_slot + tap / SIDE) % X_ROWS][tap % SIDE], width, sum);
		x_slot = x_slot + 1 < X_ROWS ? x_slot + 1 : 0;
		y_slot = y_slot + 1 < Y_ROWS ? y_slot + 1 : 0;
	}
}

/* partial[blockIdx.x][filters][channels][TAPS] of the tiles of a block. */
template <typename T, int FILTERS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
	slim_grad_kernel(struct cuda_filter_grad p, struct cuts c)
{
	extern __shared__ __align__(16) char shared[];
	struct rings<T, FILTERS> &r = *reinterpret_cast<struct rings<T, FILTERS> *>(shared);
	const int width = (c.width + STEP - 1) / STEP * STEP, tap = threadIdx.x / WARP,
		  lane = threadIdx.x % WARP;
	float *partial = p.partial + (int64_t)blockIdx.x * p.filters * p.channels * TAPS;
	struct sums<FILTERS> sum = {
	};

	for (int i = (int)blockIdx.x; i < p.batch * c.tiles * c.runs; i += (int)gridDim.x)
		add_tile<T, FILTERS>(p, tile_of(p, c, i), width, r, sum);
#pragma unroll
	for (int m = 0; m < FILTERS / 16; m++)
#pragma unroll
		for (int n = 0; n < CHANNELS / 8; n++)
#pragma unroll
			for (int k = 0; k < 4; k++) {
				const int filter =
					blockIdx.y * FILTERS + m * 16 + lane / 4 + k / 2 * 8;
				const int channel =
					blockIdx.z * CHANNELS + n * 8 + lane % 4 * 2 + k % 2;

				partial[(tap * p.filters + filter) * p.channels + channel] =
					sum.v[m][n][k];
			}
}

#define LINES 8 /* threads that share a sum over the parts */

__global__ void slim_finish(struct cuda_filter_grad p, int parts)
{
	__shared__ float share[LINES][WARP];
	const int n = TAPS * p.filters * p.channels, i = blockIdx.x * WARP + threadIdx.x;
	float sum = 0;

	if (i < n)
#pragma unroll 4
		for (int part = (int)threadIdx.y; part < parts; part += LINES)
			sum += p.partial[(int64_t)part * n + i];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || i >= n)
		return;
	for (int k = 1; k < LINES; k++)
		sum += share[k][threadIdx.x];
	const int channel = i % p.channels, filter = i / p.channels % p.filters,
		  tap = i / p.channels / p.filters;
	float *dw = p.dw + filter * p.w_stride[0] + channel * p.w_stride[1] +
		    tap / SIDE * p.w_stride[2] + tap % SIDE * p.w_stride[3];

	*dw = sum + (p.accumulate ? *dw : 0);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* The fewest tiles of a row, which need about as many columns each. */
static struct cuts cuts_of(const struct cuda_filter_grad *p, int blocks)
{
	const int tiles = (p->out[1] + WIDTH - 1) / WIDTH,
		  most = (ROUNDS * blocks + p->batch * tiles - 1) / (p->batch * tiles),
		  runs = most < p->out[0] / 8 ? most
			 : p->out[0] / 8      ? p->out[0] / 8
					      : 1;
	struct cuts c = {.width = (p->out[1] + tiles - 1) / tiles, .tiles = tiles};

	c.rows = (p->out[0] + runs - 1) / runs;
	c.runs = (p->out[0] + c.rows - 1) / c.rows;
	return c;
}

static int filters_of_block(const struct cuda_filter_grad *p)
{
	return p->filters % 64 ? 32 : 64;
}

static dim3 grid_of(const struct cuda_filter_grad *p)
{
	const int across = p->filters / filters_of_block(p) * (p->channels / CHANNELS),
		  blocks = RESIDENT * p->processors / across;

	return dim3((unsigned)(blocks ? blocks : 1), (unsigned)(p->filters / filters_of_block(p)),
		(unsigned)(p->channels / CHANNELS));
}

bool cuda_slim_knows(const struct cuda_filter_grad *p)
{
	return p->x.type != CUDA_F32 && p->channels % CHANNELS == 0 &&
	       p->channels <= 2 * CHANNELS && p->filters % 32 == 0 && p->filters <= 64;
}

size_t cuda_slim_scratch(const struct cuda_filter_grad *p)
{
	return grid_of(p).x * sizeof(float) * TAPS * (size_t)p->filters * (size_t)p->channels;
}

template <typename T, int FILTERS>
static void start(const struct cuda_filter_grad *p, const dim3 &grid, cudaStream_t stream)
{
	auto kernel = slim_grad_kernel<T, FILTERS>;
	const int bytes = (int)sizeof(struct rings<T, FILTERS>);

	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	kernel<<<grid, THREADS, bytes, stream>>>(*p, cuts_of(p, (int)grid.x));
}

void cuda_slim_grad(const struct cuda_filter_grad *p, cudaStream_t stream)
{
	const dim3 grid = grid_of(p);

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if constexpr (sizeof(T) == 2)
			filters_of_block(p) == 64 ? start<T, 64>(p, grid, stream)
						  : start<T, 32>(p, grid, stream);
	});
	slim_finish<<<blocks_for(TAPS * p->filters * p->channels, WARP), dim3(WARP, LINES), 0,
		stream>>>(*p, (int)grid.x);
}
