/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of single pixels, y[rows,n] = x[rows,k] w, on tensor cores. While a tile of y is in
 * shared memory, the sums that a batch norm needs are taken from it, so that no other kernel reads
 * y for them: those of the statistics of y, or those of the gradient of the norm that y is the
 * gradient of. A block keeps its columns of w in shared memory and goes through tiles of rows; x
 * arrives in a ring of lines of 128 bytes of each row. All sums have a fixed order.
 */
#include "batchnorm.cuh"
#include "mma.cuh"

#define CHUNK	     16 /* bytes of one copy */
#define LINE	     128
#define WARP_ROWS    64 /* of the tile of a warp */
#define WARP_COLUMNS 32
#define STEP_ROWS    32 /* rows of each warp that are in shared memory at a time */
#define STEP_PACKS   4	/* packs of a thread among these */
#define PADDING	     8	/* columns, so that the rows of a fragment lie in different banks */
#define WARPS	     4
#define THREADS	     (WARPS * WARP)
#define STAGES	     3
#define RESIDENT     3 /* blocks of a multiprocessor, as far as shared memory suffices */

/* ---- instructions ---------------------------------------------------------------------------- */

/*
 * tf32 ignores the last 13 bits of f32; with half of their range added it rounds to nearest. NaN
 * stays as it is: the sum may carry into its sign.
 */
template <typename T> __device__ __forceinline__ unsigned rounded(unsigned bits)
{
	bool whole = sizeof(T) == 2 || !isfinite(__uint_as_float(bits));

	return whole ? bits : bits + 0x1000;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

template <int COLUMNS> struct tile {
	static constexpr int across = COLUMNS / WARP_COLUMNS, down = WARPS / across;
	static constexpr int rows = down * WARP_ROWS, stage = rows * LINE;
	static constexpr int packs = COLUMNS / PACK, height = THREADS / packs; /* of the threads */
	static constexpr int stride = COLUMNS + PADDING;
	static constexpr int results = down * STEP_ROWS * stride * (int)sizeof(float);
};

template <typename T, int COLUMNS> static size_t shared_bytes(int k)
{
	using shape = tile<COLUMNS>;

	return (size_t)(COLUMNS * k) * sizeof(T) + STAGES * shape::stage + shape::results;
}

__device__ __forceinline__ int thread_index()
{
	return (int)(threadIdx.y * blockDim.x + threadIdx.x);
}

/* The offset of chunk c of row r: equal chunks of 8 rows lie in different banks. */
__device__ __forceinline__ int swizzled(int r, int c, int bytes)
{
	return r * bytes + (c ^ (r & 7)) * CHUNK;
}

/* A chunk of x or w as elements. */
template <typename T> union chunk {
	uint4 q;
	T v[CHUNK / sizeof(T)];
};

template <typename T> __device__ __forceinline__ chunk<T> load_chunk(const T *p)
{
	chunk<T> c;

	c.q = *reinterpret_cast<const uint4 *>(p);
	c.q = make_uint4(
		rounded<T>(c.q.x), rounded<T>(c.q.y), rounded<T>(c.q.z), rounded<T>(c.q.w));
	return c;
}

/* Copies the block's columns of w, [n,k] or [k,n] in memory, to rows of k elements. */
template <typename T, int COLUMNS>
__device__ __forceinline__ void load_filter(const struct cuda_pixels &p, char *to, int first)
{
	constexpr int each = CHUNK / sizeof(T);
	const T *w = (const T *)p.w.data;
	int across = (p.turned ? COLUMNS : p.k) / each, bytes = p.k * (int)sizeof(T);

#pragma unroll 2
	for (int i = thread_index(); i < COLUMNS * p.k / each; i += THREADS) {
		int r = i / across, c = i % across;

		if (!p.turned) {
			*reinterpret_cast<uint4 *>(to + swizzled(r, c, bytes)) =
				load_chunk(w + (int64_t)(first + r) * p.k + c * each).q;
			continue;
		}
		chunk<T> column = load_chunk(w + (int64_t)r * p.n + first + c * each);
#pragma unroll
		for (int j = 0; j < each; j++)
			*reinterpret_cast<T *>(to + swizzled(c * each + j, r / each, bytes) +
					       r % each * (int)sizeof(T)) = column.v[j];
	}
}

/* Starts the copies of a line of the tile's rows; rows behind the last one are zeros. */
template <typename T, int COLUMNS>
__device__ __forceinline__ void load_line(
	const struct cuda_pixels &p, unsigned to, int64_t row, int line)
{
	constexpr int chunks = LINE / CHUNK, step = THREADS / chunks;
	int r = thread_index() / chunks, c = thread_index() % chunks;
	int64_t bytes = p.k * (int64_t)sizeof(T), left = p.rows - row - r;
	const char *x = (const char *)p.x.data;
	const char *from = x + (row + r) * bytes + line * LINE + c * CHUNK;

	to += swizzled(r, c, LINE);
#pragma unroll
	for (int i = 0; i < tile<COLUMNS>::rows; i += step)
		copy_async<CHUNK>(to + i * LINE, i < left ? from + i * bytes : x, i < left);
}

/*
 * The tile of a warp as the tensor cores keep it: block [i][j] of 16 rows and 8 columns, of which
 * a lane has two neighbours in row lane / 4 and two in the 8th row below.
 */
typedef float fragments[WARP_ROWS / 16][WARP_COLUMNS / 8][4];

/* x and w: addresses of the lane's first row, of a line each; w_step: bytes of 16 rows of w. */
template <typename T>
__device__ __forceinline__ void multiply_line(fragments &d, unsigned x, unsigned w, int w_step)
{
	int lane = thread_index() % WARP, turn = lane & 7;

#pragma unroll
	for (int c = 0; c < LINE / CHUNK; c += 2) {
		unsigned a[4][4], b[2][4];

#pragma unroll
		for (int j = 0; j < 2; j++)
			load_blocks(b[j], w + j * w_step + ((c + lane / 8 % 2) ^ turn) * CHUNK);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			load_blocks(a[i], x + i * 16 * LINE + ((c + lane / 16) ^ turn) * CHUNK);
#pragma unroll
			for (int j = 0; j < 4; j++)
				a[i][j] = rounded<T>(a[i][j]);
		}
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				multiply(T(), d[i][j], a[i], b[j / 2][j % 2 * 2],
					b[j / 2][j % 2 * 2 + 1]);
	}
}

/* Writes two blocks of rows of the warp's tile to shared memory. */
template <int COLUMNS>
__device__ __forceinline__ void put_rows(const fragments &d, int half, float *results)
{
	using shape = tile<COLUMNS>;
	int warp = thread_index() / WARP, lane = thread_index() % WARP;
	float *to = results + (warp / shape::across * STEP_ROWS + lane / 4) * shape::stride +
		    warp % shape::across * WARP_COLUMNS + lane % 4 * 2;

#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++)
			*reinterpret_cast<float2 *>(to + i * 8 * shape::stride + j * 8) =
				make_float2(d[half * 2 + i / 2][j][i % 2 * 2],
					d[half * 2 + i / 2][j][i % 2 * 2 + 1]);
}

/* ---- what is done with the results ----------------------------------------------------------- */

/* Sums y, and its squares, less the first row of the block. */
template <typename T> struct take_stats {
	struct operands {
	};
	static constexpr int ahead = STEP_PACKS;
	float shift[PACK], first[PACK] = {}, second[PACK] = {};

	__device__ __forceinline__ take_stats(const struct cuda_bn_grad &, int64_t)
	{
	}
	__device__ __forceinline__ void begin(const float *row)
	{
		raw<PACK, T> t;

		load(row, shift);
		store(t.v, shift);
		load(t.v, shift);
	}
	__device__ __forceinline__ void get(
		const struct cuda_pixels &, const struct cuda_bn_grad &, int64_t, operands &)
	{
	}
	__device__ __forceinline__ void use(
		const struct cuda_pixels &p, int64_t at, operands &, float (&v)[PACK])
	{
		raw<PACK, T> y;

		store(y.v, v);
		load(y.v, v);
		*reinterpret_cast<raw<PACK, T> *>((T *)p.y.data + at) = y;
		add_shifted(v, shift, first, second);
	}
	/* The sums of y itself and of its squares; rows: those of the block. */
	__device__ __forceinline__ void leave(void *parts, int64_t n, int64_t rows, float *share)
	{
		double *own = (double *)parts + (int64_t)blockIdx.y * 2 * n + column_of(PACK);

		column_sum(first, share);
		column_sum(second, share);
		if (threadIdx.y)
			return;
#pragma unroll
		for (int i = 0; i < PACK; i++) {
			double s = shift[i], all = (double)rows * s;

			own[i] = first[i] + all;
			own[n + i] = second[i] + s * (2.0 * first[i] + all);
		}
	}
};

/*
 * The sums of a norm's gradient, whose result y is: e is y plus the gradient of another branch
 * (ADD) where the ReLU's mask is open, and is written in place of y.
 */
template <typename T, enum mask M, bool ADD> struct take_grad {
	using operands = packs<PACK, T>;
	static constexpr int ahead = sizeof(T) == 2 ? STEP_PACKS : STEP_PACKS / 2;
	float first[PACK] = {}, second[PACK] = {};
	channels<PACK> c;

	__device__ __forceinline__ take_grad(const struct cuda_bn_grad &g, int64_t column)
	{
		load_channels<PACK, M>(g, column, c);
	}
	__device__ __forceinline__ void begin(const float *)
	{
	}
	__device__ __forceinline__ void get(
		const struct cuda_pixels &p, const struct cuda_bn_grad &g, int64_t at, operands &t)
	{
		fetch<PACK>((const T *)g.x.data + at, t.x);
		if (ADD)
			fetch<PACK>((const T *)p.add.data + at, t.add);
		if (M == MASK_BITS)
			t.open = g.mask[at / PACK];
	}
	__device__ __forceinline__ void use(
		const struct cuda_pixels &p, int64_t at, operands &t, float (&v)[PACK])
	{
		float e[PACK], x[PACK];

		if (ADD) {
			load(t.add.v, x);
#pragma unroll
			for (int i = 0; i < PACK; i++)
				v[i] += x[i];
		}
		store(t.dy.v, v);
		widen_both<M>(t, c, e, x);
		store((T *)p.y.data + at, e);
#pragma unroll
		for (int i = 0; i < PACK; i++) {
			first[i] += e[i];
			second[i] += e[i] * x[i];
		}
	}
	__device__ __forceinline__ void leave(void *parts, int64_t n, int64_t, float *share)
	{
		leave_parts(first, second, (float *)parts, n, share);
	}
};

/* Passes the warps' tiles through shared memory, so that a thread gets packs of a row. */
template <class TAKE, int COLUMNS>
__device__ __forceinline__ void take_tile(TAKE &take, const struct cuda_pixels &p,
	const struct cuda_bn_grad &g, const fragments &d, float *results, int64_t row, bool first)
{
	using shape = tile<COLUMNS>;
	constexpr int U = TAKE::ahead;

#pragma unroll
	for (int i = 0; i < WARP_ROWS / STEP_ROWS * STEP_PACKS; i += U) {
		typename TAKE::operands t[U];
		int half = i / STEP_PACKS;
		auto result = [&](int u) {
			return (int)threadIdx.y + (i % STEP_PACKS + u) * shape::height;
		};
		auto row_of = [&](int u) {
			return row + result(u) / STEP_ROWS * WARP_ROWS + half * STEP_ROWS +
			       result(u) % STEP_ROWS;
		};

#pragma unroll
		for (int u = 0; u < U; u++)
			if (row_of(u) < p.rows)
				take.get(p, g, row_of(u) * p.n + column_of(PACK), t[u]);
		if (i % STEP_PACKS == 0) {
			__syncthreads();
			put_rows<COLUMNS>(d, half, results);
			__syncthreads();
			if (first && i == 0)
				take.begin(results + threadIdx.x * PACK);
		}
#pragma unroll
		for (int u = 0; u < U; u++) {
			float v[PACK];

			load(results + result(u) * shape::stride + threadIdx.x * PACK, v);
			if (row_of(u) < p.rows)
				take.use(p, row_of(u) * p.n + column_of(PACK), t[u], v);
		}
	}
}

/* The rows of all tiles of this block. */
template <int COLUMNS> __device__ __forceinline__ int64_t rows_of_block(int64_t rows)
{
	int64_t tiles = (rows + tile<COLUMNS>::rows - 1) / tile<COLUMNS>::rows;
	int64_t own = (tiles - 1 - blockIdx.y) / gridDim.y + 1;
	bool last = (tiles - 1) % gridDim.y == blockIdx.y;

	return own * tile<COLUMNS>::rows - (last ? tiles * tile<COLUMNS>::rows - rows : 0);
}

template <typename T, int COLUMNS, class TAKE>
__global__ void __launch_bounds__(THREADS, RESIDENT)
	pixels_kernel(struct cuda_pixels p, struct cuda_bn_grad g, void *parts)
{
	extern __shared__ __align__(1024) char shared[];
	using shape = tile<COLUMNS>;
	const int bytes = p.k * (int)sizeof(T), lines = bytes / LINE;
	const int warp = thread_index() / WARP, lane = thread_index() % WARP;
	const int64_t step = (int64_t)gridDim.y * shape::rows;
	char *ring = shared + COLUMNS * bytes;
	float *results = (float *)(ring + STAGES * shape::stage);
	unsigned x = shared_at(ring) + (warp / shape::across * WARP_ROWS + lane % 16) * LINE;
	unsigned w = shared_at(shared) +
		     (warp % shape::across * WARP_COLUMNS + lane / 16 * 8 + lane % 8) * bytes;
	int64_t row = blockIdx.y * (int64_t)shape::rows, coming = row;
	int line = 0, slot = 0;
	bool first = true;
	TAKE take(g, column_of(PACK));

	auto load_next = [&](int to) {
		if (coming < p.rows)
			load_line<T, COLUMNS>(
				p, shared_at(ring) + to * shape::stage, coming, line);
		copies_commit();
		line = line + 1 < lines ? line + 1 : 0;
		coming += line ? 0 : step;
	};

#pragma unroll 1
	for (int i = 0; i < STAGES - 1; i++)
		load_next(i);
	load_filter<T, COLUMNS>(p, shared, (int)blockIdx.x * COLUMNS);
	for (; row < p.rows; row += step, first = false) {
		fragments d = {};

#pragma unroll 1
		for (int i = 0; i < lines; i++) {
			copies_wait<STAGES - 2>();
			__syncthreads();
			load_next(slot ? slot - 1 : STAGES - 1);
			multiply_line<T>(d, x + slot * shape::stage, w + i * LINE, 16 * bytes);
			slot = slot + 1 < STAGES ? slot + 1 : 0;
		}
		take_tile<TAKE, COLUMNS>(take, p, g, d, results, row, first);
	}
	take.leave(parts, p.n, rows_of_block<COLUMNS>(p.rows), results);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Rows of parts: one of each block of a column of blocks. */
static int parts_of(const struct cuda_pixels *p)
{
	int across = p->n / p->columns, most = COLUMN_BLOCKS / across;

	return most > 1 ? most : 1;
}

size_t cuda_pixels_scratch(const struct cuda_pixels *p)
{
	size_t own = 2 * sizeof(double) * (size_t)(p->n * parts_of(p));
	size_t norm = cuda_bn_scratch(p->n);

	return own > norm ? own : norm;
}

template <class F> static inline void with_tile(const struct cuda_pixels *p, F f)
{
	with_type(p->x, [&](auto t) {
		if (p->columns == 128)
			f(t, std::integral_constant<int, 128>());
		else
			f(t, std::integral_constant<int, 64>());
	});
}

static size_t shared_of(const struct cuda_pixels *p)
{
	size_t bytes = 0;

	with_tile(p, [&](auto t, auto columns) {
		bytes = shared_bytes<decltype(t), columns.value>(p->k);
	});
	return bytes;
}

bool cuda_pixels_knows(const struct cuda_pixels *p)
{
	int line = LINE / (p->x.type == CUDA_F32 ? 4 : 2);

	return p->k % line == 0 && p->n % p->columns == 0 && shared_of(p) <= p->shared_block;
}

/* Returns the rows of parts. */
template <typename T, int COLUMNS, class TAKE>
static int start(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, void *parts, cudaStream_t stream)
{
	using shape = tile<COLUMNS>;
	auto kernel = pixels_kernel<T, COLUMNS, TAKE>;
	size_t bytes = shared_bytes<T, COLUMNS>(p->k);
	int64_t tiles = (p->rows + shape::rows - 1) / shape::rows;
	int across = p->n / COLUMNS, resident = (int)(p->shared_all / (bytes + 1024));
	int64_t down = p->processors * (resident < RESIDENT ? resident : RESIDENT) / across;

	down = down < 1 ? 1 : down < parts_of(p) ? down : parts_of(p);
	down = down < tiles ? down : tiles;
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
	kernel<<<dim3((unsigned)across, (unsigned)down), dim3(shape::packs, shape::height), bytes,
		stream>>>(*p, *g, parts);
	return (int)down;
}

void cuda_pixels_stats(const struct cuda_pixels *p, const struct cuda_bn *bn, cudaStream_t stream)
{
	struct cuda_bn_grad none = {};

	with_tile(p, [&](auto t, auto columns) {
		using T = decltype(t);
		int n = start<T, columns.value, take_stats<T>>(p, &none, bn->scratch, stream);

		cuda_bn_of_parts(bn, (const double *)bn->scratch, n, stream);
	});
}

template <typename T, int COLUMNS, enum mask M>
static int start_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream)
{
	float *parts = sums_of(g->scratch, g->c).parts;

	if (p->add.data)
		return start<T, COLUMNS, take_grad<T, M, true>>(p, g, parts, stream);
	return start<T, COLUMNS, take_grad<T, M, false>>(p, g, parts, stream);
}

void cuda_pixels_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream)
{
	with_tile(p, [&](auto t, auto columns) {
		using T = decltype(t);
		constexpr int N = columns.value;
		int n = g->beta	  ? start_grad<T, N, MASK_X>(p, g, stream)
			: g->mask ? start_grad<T, N, MASK_BITS>(p, g, stream)
				  : start_grad<T, N, MASK_NONE>(p, g, stream);

		cuda_bn_grad_of_parts(g, p->y, n, stream);
	});
}
