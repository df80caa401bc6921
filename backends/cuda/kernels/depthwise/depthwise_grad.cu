/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of filters of 3 x 3, one for each channel. */
#define COLUMNS 5

#include "depthwise.cuh"

#define GRAD_ROUNDS 4  /* runs that a block of the gradient should have, so that all have as many */
#define GRAD_ROWS   12 /* of such a run, at least: two more are read */

/* Adds the products of a row of x and the rows of dy before it, of the same place and behind it. */
template <enum before B, typename T>
__device__ __forceinline__ void multiply_row(
	const T (*x)[CHUNK], int lane, const struct three &dy, float (&sum)[CHANNELS * TAPS])
{
	over_row<B>(x, lane, [&](float value, int column, int t, int k) {
		sum[k * TAPS + t] += value * dy.v[SIDE - 1 - t / SIDE][column][k];
	});
}

/* Rings of blocks with at most that many strips; the larger ones have a row less. */
template <typename T, int STRIPS> struct rings {
	static constexpr int depth = depth_of<T>() - (sizeof(T) == 2 && STRIPS == STRIPS_MOST);
	struct line<T, STRIPS> x[depth], y[depth];
};

/* A row of x, if the tile has it, and the row of dy behind it; rows of dy outside of the run belong
 * to another one. */
template <typename T, int STRIPS>
__device__ __forceinline__ void copy_rows(const struct cuda_depthwise &p, const struct tile &t,
	const struct copies<T> &x, const T *y, int row, struct rings<T, STRIPS> &r, int slot)
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
template <typename T, enum before B, int STRIPS>
__device__ __forceinline__ void add_tile(const struct cuda_depthwise &p, const struct tile &t,
	struct rings<T, STRIPS> &r, const struct normers &of, float (&sum)[CHANNELS * TAPS])
{
	constexpr int depth = rings<T, STRIPS>::depth;
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
		if constexpr (B == NORMED)
			norm_row(p, x, row, r.x[slot], of);
		__syncthreads();
		copy_rows(p, t, x, y, row + depth - 1, r, ahead);
		move_up(dy);
#pragma unroll
		for (int i = 0; i < COLUMNS; i++)
			take(&r.y[slot].v[left + 1 + i][lane * CHANNELS], dy.v[SIDE - 1][i]);
		multiply_row<B>(&r.x[slot].v[left], lane, dy, sum);
		slot = slot == depth - 1 ? 0 : slot + 1;
		ahead = ahead == depth - 1 ? 0 : ahead + 1;
	}
}

/* Blocks on a multiprocessor: as many as its registers and its shared memory are enough for. */
template <typename T> __host__ __device__ constexpr int resident_of(int strips)
{
	return sizeof(T) != 2 ? 2 : strips == STRIPS_MOST ? RESIDENT : RESIDENT * 7 / 4;
}

/* partial[blockIdx.y,channels,TAPS] of the tiles of a block. */
template <typename T, enum before B, int STRIPS>
__global__ void __launch_bounds__(LANES *STRIPS, resident_of<T>(STRIPS))
	depthwise_grad_kernel(struct cuda_depthwise p, struct cuts c)
{
	__shared__ struct rings<T, STRIPS> rings;
	__shared__ struct normers of;
	__shared__ float share[LANES * STRIPS][CHANNELS];
	const int start = (int)blockIdx.x * CHUNK;
	float *partial = p.partial + (int64_t)blockIdx.y * p.channels * TAPS;
	float sum[CHANNELS * TAPS] = {};

	if constexpr (B == NORMED)
		load_normers(
			p.norm.mean, p.norm.rstd, p.norm.gamma, p.norm.beta, start, p.channels, of);
	for (int i = (int)blockIdx.y; i < p.batch * c.runs * c.tiles; i += (int)gridDim.y)
		add_tile<T, B>(p, tile_of(p, c, (int)blockIdx.x, i), rings, of, sum);
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

	wait_for_previous();
	if (i >= n)
		return;
	for (int part = 0; part < parts; part++)
		sum += p.partial[(int64_t)part * n + i];
	p.dw[i] = sum + (p.accumulate ? p.dw[i] : 0);
}

/* Blocks of the gradient: chunks of channels, and parts of the tiles. */
#define STRIPS_FEW (STRIPS_MOST / 2)

static dim3 grad_grid(const struct cuda_depthwise *p, const struct cuts *c)
{
	const int strips = c->strips <= STRIPS_FEW ? STRIPS_FEW : STRIPS_MOST,
		  resident = p->x.type == CUDA_F32 ? resident_of<float>(strips)
						   : resident_of<bf16>(strips),
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

template <typename T, int STRIPS>
static void start_grad(
	const struct cuda_depthwise *p, const struct cuts *c, dim3 grid, cudaStream_t stream)
{
	auto kernel = depthwise_grad_kernel<T, AS_IS, STRIPS>;

	if constexpr (sizeof(T) == 2)
		kernel = p->norm.mean ? depthwise_grad_kernel<T, NORMED, STRIPS>
			 : p->relu    ? depthwise_grad_kernel<T, OPENED, STRIPS>
				      : kernel;
	kernel<<<grid, (unsigned)(LANES * c->strips), 0, stream>>>(*p, *c);
}

void cuda_depthwise_grad(const struct cuda_depthwise *p, cudaStream_t stream)
{
	const struct cuts c = grad_cuts(p);
	const int64_t tiles = (int64_t)p->batch * c.tiles * c.runs;
	dim3 grid = grad_grid(p, &c);

	/* as many tiles for each block */
	grid.y = blocks_for(tiles, (int)blocks_for(tiles, (int)grid.y));
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		c.strips <= STRIPS_FEW ? start_grad<T, STRIPS_FEW>(p, &c, grid, stream)
				       : start_grad<T, STRIPS_MOST>(p, &c, grid, stream);
	});
	start_overlapping(depthwise_finish, blocks_for(p->channels * TAPS, THREADS), THREADS, 0,
		stream, *p, (int)grid.y);
}
