/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers in f32 from few channels to few over many rows, and their gradients. A block copies
 * rows as they lie in memory to shared memory, for gradients of weights the next ones while it
 * computes with these; a thread has a tile of the result. Sums are in f32, those of blocks in f64.
 */
#include "../gelu.cuh"
#include "narrow.cuh"

#define WIDEST	       128	    /* channels of x or y */
#define LARGEST	       4096	    /* elements of m, which is in shared memory */
#define FEWEST	       4096	    /* rows: of fewer, blocks are few */
#define SHARED	       (64 * 1024)  /* bytes of rows in shared memory */
#define RESIDENT       1024	    /* threads of a multiprocessor, about, */
#define RESIDENT_BYTES (200 * 1024) /* and their shared memory */

/* ---- y = x m --------------------------------------------------------------------------------- */

struct narrow_shape {
	int rows;  /* of a block at a time */
	int pitch; /* of m in shared memory: to, up to a multiple of the columns of a thread */
};

/* m[from,pitch]; columns from p.to on are 0. */
__device__ __forceinline__ void take_matrix(const struct cuda_narrow &p, int pitch, float *m)
{
	for (int i = threadIdx.x; i < p.from * pitch; i += blockDim.x) {
		const int k = i / pitch, n = i % pitch;

		m[i] = n >= p.to ? 0 : p.turned ? p.m[n * p.from + k] : p.m[k * p.to + n];
	}
}

/* Columns of a thread: N quads, `apart` floats apart. */
template <int R, int N>
__device__ __forceinline__ void multiply(const float *x, int x_step, const float *m, int pitch,
	int apart, int from, float (&sum)[R][N * QUAD])
{
	for (int k = 0; k < from; k += QUAD) {
		float a[R][QUAD];

#pragma unroll
		for (int r = 0; r < R; r++)
			if (from % QUAD == 0)
				load(x + r * x_step + k, a[r]);
			else
#pragma unroll
				for (int i = 0; i < QUAD; i++)
					a[r][i] = k + i < from ? x[r * x_step + k + i] : 0;
#pragma unroll
		for (int i = 0; i < QUAD; i++) {
			float b[N][QUAD];

			if (k + i >= from)
				break;
#pragma unroll
			for (int n = 0; n < N; n++)
				load(m + (k + i) * pitch + n * apart, b[n]);
#pragma unroll
			for (int r = 0; r < R; r++)
#pragma unroll
				for (int n = 0; n < N * QUAD; n++)
					sum[r][n] += a[r][i] * b[n / QUAD][n % QUAD];
		}
	}
}

/* Leaves N elements at i of y. */
template <int N>
__device__ __forceinline__ void leave(const struct cuda_narrow &p, int64_t i, float (&v)[N])
{
	float other[N];

	if (p.add) {
		load(p.add + i, other);
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] += other[k];
	}
	if (p.open) {
		load(p.open + i, other);
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] *= gelu_erf_slope(other[k]);
	}
	if (p.y)
		store_sum(p.y + i, v, p.accumulate);
	if (!p.gelu)
		return;
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] *= normal_below(v[k]);
	store(p.gelu + i, v);
}

/* Leaves rows that are not whole quads, which lie in shared memory, pitch_of(p.to) floats apart. */
__device__ __forceinline__ void leave_rows(
	const struct cuda_narrow &p, const float *from, int64_t row0, int rows)
{
	const int pitch = pitch_of(p.to), whole = pitch == p.to ? rows * p.to / QUAD * QUAD : 0;
	const int64_t first = row0 * p.to;

	for (int i = threadIdx.x * QUAD; i < whole; i += blockDim.x * QUAD) {
		float v[QUAD];

		load(from + i, v);
		leave(p, first + i, v);
	}
	for (int i = whole + threadIdx.x; i < rows * p.to; i += blockDim.x) {
		float v[1] = {from[i / p.to * pitch + i % p.to]};

		leave(p, first + i, v);
	}
}

/* A thread's rows from `row` on, `lines` apart: rows of whole quads go to y, others to shared
 * memory. */
template <int R, int N>
__device__ __forceinline__ void leave_tile(const struct cuda_narrow &p,
	const float (&sum)[R][N * QUAD], int64_t row, int lines, int at, int apart, float *share)
{
	const int pitch = pitch_of(p.to);

#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int n = 0; n < N; n++) {
			const int column = at + n * apart;
			float v[QUAD];

#pragma unroll
			for (int i = 0; i < QUAD; i++)
				v[i] = sum[r][n * QUAD + i];
			if (p.to % QUAD == 0) {
				if (column < p.to && row + r * lines < p.rows)
					leave(p, (row + r * lines) * p.to + column, v);
				continue;
			}
#pragma unroll
			for (int i = 0; i < QUAD; i++)
				if (column + i < p.to)
					share[r * lines * pitch + column + i] = v[i];
		}
}

/* A thread has R rows, `lines` apart, and N quads of columns, `apart` apart. */
template <int R, int N>
__global__ void __launch_bounds__(256) narrow_kernel(struct cuda_narrow p, struct narrow_shape s)
{
	extern __shared__ float4 memory[];
	const int x_pitch = pitch_of(p.from), lines = s.rows / R, apart = s.pitch / N;
	const int line = threadIdx.x / (apart / QUAD), at = threadIdx.x % (apart / QUAD) * QUAD;
	float *m = reinterpret_cast<float *>(memory), *x = m + p.from * s.pitch,
	      *y = x + s.rows * x_pitch;
	const int64_t step = (int64_t)gridDim.x * s.rows;
	float bias[N * QUAD];

#pragma unroll
	for (int n = 0; n < N * QUAD; n++) {
		const int column = at + n / QUAD * apart + n % QUAD;

		bias[n] = p.bias && column < p.to ? p.bias[column] : 0;
	}
	take_matrix(p, s.pitch, m);
	for (int64_t row0 = (int64_t)blockIdx.x * s.rows; row0 < p.rows; row0 += step) {
		const int rows = (int)min((int64_t)s.rows, p.rows - row0);
		float sum[R][N * QUAD];

		__syncthreads(); /* x and y were read */
		take_rows(x, x_pitch, p.x + row0 * p.from, p.from, rows, s.rows);
		__pipeline_commit();
		__pipeline_wait_prior(0);
		__syncthreads();
		if (line < lines) {
#pragma unroll
			for (int r = 0; r < R; r++)
#pragma unroll
				for (int n = 0; n < N * QUAD; n++)
					sum[r][n] = bias[n];
			multiply<R, N>(x + line * x_pitch, lines * x_pitch, m + at, s.pitch, apart,
				p.from, sum);
			leave_tile<R, N>(
				p, sum, row0 + line, lines, at, apart, y + line * pitch_of(p.to));
		}
		if (p.to % QUAD == 0)
			continue;
		__syncthreads();
		leave_rows(p, y, row0, rows);
	}
}

template <int R, int N>
static void narrow_start(const struct cuda_narrow *p, int rows, int processors, cudaStream_t stream)
{
	const int groups = (quads_of(p->to) + N - 1) / N, pitch = groups * N * QUAD;
	const int line = p->from % QUAD ? p->from : p->from / QUAD, tiles = rows / R * groups,
		  threads = threads_for(tiles > line ? tiles : line, 256);
	const struct narrow_shape s = {.rows = rows, .pitch = pitch};
	const int bytes = (p->from * pitch + rows * (pitch_of(p->from) +
							    (p->to % QUAD ? pitch_of(p->to) : 0))) *
			  (int)sizeof(float);
	const int64_t most = (p->rows + rows - 1) / rows, by_bytes = RESIDENT_BYTES / bytes,
		      by_threads = RESIDENT / threads,
		      blocks = processors * (by_bytes < by_threads ? by_bytes : by_threads);

	cudaFuncSetAttribute(
		narrow_kernel<R, N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	narrow_kernel<R, N>
		<<<(unsigned)(most < blocks ? most : blocks), threads, bytes, stream>>>(*p, s);
}

bool cuda_narrow_knows(int64_t rows, int64_t from, int64_t to)
{
	return from <= WIDEST && to <= WIDEST && from * to <= LARGEST && rows >= FEWEST;
}

/* The rows of a block at a time, of which a thread has R: as many as its threads and shared memory
 * allow. */
template <int R, int N>
static void narrow_rows(const struct cuda_narrow *p, int processors, cudaStream_t stream)
{
	const int groups = (quads_of(p->to) + N - 1) / N;
	const int each = pitch_of(p->from) + (p->to % QUAD ? pitch_of(p->to) : 0);
	int rows = 256;

	while (rows / R * groups > 256 || rows * each * (int)sizeof(float) > SHARED)
		rows /= 2;
	narrow_start<R, N>(p, rows, processors, stream);
}

void cuda_narrow(const struct cuda_narrow *p, int processors, cudaStream_t stream)
{
	if (p->to > 32)
		narrow_rows<4, 2>(p, processors, stream);
	else if (p->to > 8)
		narrow_rows<4, 1>(p, processors, stream);
	else
		narrow_rows<2, 1>(p, processors, stream);
}

/* ---- dw = dy^T x ----------------------------------------------------------------------------- */

#define SIDE	8	    /* of a thread's tile of dw, two quads each way */
#define STAGE	(48 * 1024) /* bytes of rows that are in shared memory at a time, twice, at most */
#define THREADS 256

static __host__ __device__ __forceinline__ int tiles_of(int width)
{
	return (width + SIDE - 1) / SIDE;
}

/* A tile's sums: of the products, and of dy. */
struct tile_sums {
	float product[SIDE][SIDE], dy[SIDE];
};

/* Elements at..at + SIDE - 1 of a row, those beyond the row are not used. */
__device__ __forceinline__ void take_side(const float *row, int width, int at, float (&v)[SIDE])
{
	if (width % QUAD == 0) {
		load(row + at, v);
		return;
	}
#pragma unroll
	for (int i = 0; i < SIDE; i++)
		v[i] = row[at + i];
}

__device__ __forceinline__ void add_row(const struct cuda_narrow_grad &p, const float *dy,
	const float *x, int to, int from, struct tile_sums &s)
{
	float a[SIDE], b[SIDE];

	take_side(dy, p.to, to, a);
	take_side(x, p.from, from, b);
#pragma unroll
	for (int i = 0; i < SIDE; i++) {
#pragma unroll
		for (int k = 0; k < SIDE; k++)
			s.product[i][k] += a[i] * b[k];
		s.dy[i] += a[i];
	}
}

/* Adds up what threads of one tile have, a row of it at a time; leaves the part of the block. */
__device__ __forceinline__ void leave_tiles(
	const struct cuda_narrow_grad &p, const struct tile_sums &s, float *share, int splits)
{
	const int from = tiles_of(p.from), tiles = tiles_of(p.to) * from;
	float *to = p.partial + (int64_t)blockIdx.x * p.to * (p.from + 1);

#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		__syncthreads();
#pragma unroll
		for (int k = 0; k < SIDE; k++)
			share[k * THREADS + threadIdx.x] = s.product[i][k];
		share[SIDE * THREADS + threadIdx.x] = s.dy[i];
		__syncthreads();
		for (int j = threadIdx.x; j < tiles * (SIDE + 1); j += THREADS) {
			const int tile = j % tiles, k = j / tiles, row = tile / from * SIDE + i;
			const int column = k < SIDE ? tile % from * SIDE + k : p.from;
			float sum = 0;

			if (row >= p.to || (k < SIDE ? column >= p.from : tile % from != 0))
				continue;
			for (int split = 0; split < splits; split++)
				sum += share[k * THREADS + split * tiles + tile];
			to[(int64_t)row * (p.from + 1) + column] = sum;
		}
	}
}

/* Rows that are in shared memory at a time. */
static __host__ __device__ __forceinline__ int lines_of(int from, int to)
{
	int lines = 256;

	while (lines > 32 && lines * (pitch_of(from) + pitch_of(to)) * (int)sizeof(float) > STAGE)
		lines /= 2;
	return lines;
}

__global__ void __launch_bounds__(THREADS, 2) narrow_grad_kernel(struct cuda_narrow_grad p)
{
	extern __shared__ float4 memory[];
	const int from = tiles_of(p.from), tiles = tiles_of(p.to) * from, splits = THREADS / tiles;
	const int tile = threadIdx.x % tiles, split = threadIdx.x / tiles;
	const int lines = lines_of(p.from, p.to), to_pitch = pitch_of(p.to),
		  from_pitch = pitch_of(p.from), both = lines * (to_pitch + from_pitch);
	float *dy = reinterpret_cast<float *>(memory), *x = dy + lines * to_pitch;
	const int64_t each = ((p.rows + gridDim.x - 1) / gridDim.x + lines - 1) / lines * lines,
		      first = blockIdx.x * each, end = min(first + each, p.rows);
	struct tile_sums s = {};

	const auto take = [&](int64_t row, int which) {
		const int64_t left = end - row;
		const int rows = left < lines ? (int)left : lines;

		if (left > 0) {
			take_rows(
				dy + which * both, to_pitch, p.dy + row * p.to, p.to, rows, lines);
			take_rows(x + which * both, from_pitch, p.x + row * p.from, p.from, rows,
				lines);
		}
		__pipeline_commit();
	};
	take(first, 0);
	int which = 0;
	for (int64_t row = first; row < end; row += lines, which ^= 1) {
		take(row + lines, which ^ 1);
		__pipeline_wait_prior(1);
		__syncthreads();
		if (split < splits)
			for (int r = split; r < lines; r += splits)
				add_row(p, dy + which * both + r * to_pitch,
					x + which * both + r * from_pitch, tile / from * SIDE,
					tile % from * SIDE, s);
		__syncthreads();
	}
	__pipeline_wait_prior(0);
	leave_tiles(p, s, dy, splits);
}

struct narrow_sums {
	struct cuda_narrow_grad layer[2];
};

/* Blocks of 32 x 32 threads: 32 results of a layer, and parts that are 32 apart. */
__global__ void narrow_sums_kernel(struct narrow_sums s)
{
	__shared__ double share[WARP][WARP + 1];
	const struct cuda_narrow_grad &p = s.layer[blockIdx.y];
	const int wide = p.from + 1, all = p.to * wide, i = blockIdx.x * WARP + threadIdx.x;
	double sum = 0;

	if (i < all)
		for (int part = threadIdx.y; part < p.parts; part += WARP)
			sum += (double)p.partial[(int64_t)part * all + i];
	share[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	sum = warp_sum(share[threadIdx.x][threadIdx.y]);
	const int mine = blockIdx.x * WARP + threadIdx.y, row = mine / wide, column = mine % wide;

	if (threadIdx.x || mine >= all)
		return;
	if (column < p.from) {
		float *to = p.dw + (int64_t)row * p.from + column;

		*to = (float)(sum + (p.add_dw ? (double)*to : 0));
	} else if (p.db) {
		p.db[row] = (float)(sum + (p.add_db ? (double)p.db[row] : 0));
	}
}

void cuda_narrow_sums(const struct cuda_narrow_grad *p, int layers, cudaStream_t stream)
{
	struct narrow_sums s = {};
	int most = 0;

	for (int i = 0; i < layers; i++) {
		const int all = p[i].to * (p[i].from + 1);

		s.layer[i] = p[i];
		most = all > most ? all : most;
	}
	narrow_sums_kernel<<<dim3(blocks_for(most, WARP), (unsigned)layers), dim3(WARP, WARP), 0,
		stream>>>(s);
}

static int grad_bytes(int from, int to)
{
	const int rows = 2 * lines_of(from, to) * (pitch_of(to) + pitch_of(from)) + SIDE,
		  sums = THREADS * (SIDE + 1);

	return (rows > sums ? rows : sums) * (int)sizeof(float);
}

#define BLOCKS 2 /* of a multiprocessor */

int cuda_narrow_grad_parts(int processors, int64_t rows, int from, int to)
{
	const int lines = lines_of(from, to);
	const int64_t most = (rows + lines - 1) / lines, parts = (int64_t)BLOCKS * processors;

	return (int)(parts < most ? parts : most);
}

void cuda_narrow_grad(const struct cuda_narrow_grad *p, cudaStream_t stream)
{
	const int bytes = grad_bytes(p->from, p->to);

	cudaFuncSetAttribute(
		narrow_grad_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	narrow_grad_kernel<<<(unsigned)p->parts, THREADS, bytes, stream>>>(*p);
	cuda_narrow_sums(p, 1, stream);
}
