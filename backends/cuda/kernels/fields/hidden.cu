/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two linear layers of few channels with gelu-erf between, in f32 over many rows, and their
 * gradients; the hidden values are never stored. Forward a thread has whole rows of x and y, and
 * all threads read the same weights from shared memory. The gradients compute the hidden values
 * again: a thread has two of them, whose weights and gradients of weights stay in its registers
 * while it goes through rows; the gradient of what was before gelu goes to shared memory, from
 * where the block computes that of x. Sums are in f32, those of blocks in f64.
 *
 * Kernels are compiled for widths of x and y: those of CARAML's two problems, and the largest
 * ones, which others are filled up to with zeros.
 */
#include "../gelu.cuh"
#include "narrow.cuh"

#define MOST_FROM   32
#define MOST_HIDDEN 128
#define MOST_TO	    8
#define FEWEST	    4096 /* rows: of fewer, blocks are few */

/* ---- y --------------------------------------------------------------------------------------- */

#define READERS 128 /* threads of a block */

/* C, F: at least the width of x and of y. */
template <int C, int F, int R> struct hidden_shape {
	static constexpr int rows = READERS * R; /* at a time */
	/* of a hidden value, in shared memory: its weights, its bias, the weights of y */
	static constexpr int weights = whole_quads(C + 1 + F);
	/* of x; threads with adjacent rows read different banks */
	static constexpr int pitch = C % QUAD ? C | 1 : C / QUAD % 2 ? C : C + QUAD;

	static int bytes(int hidden)
	{
		return (hidden * weights + rows * pitch) * (int)sizeof(float);
	}
};

template <int C, int F, int R>
__device__ __forceinline__ void take_weights(const struct cuda_hidden &p, float *to)
{
	constexpr int weights = hidden_shape<C, F, R>::weights;

	for (int i = threadIdx.x; i < p.hidden * weights; i += READERS) {
		const int h = i / weights, c = i % weights, f = c - C - 1;

		if (c < C)
			to[i] = c < p.from ? p.in[h * p.from + c] : 0;
		else if (c == C)
			to[i] = p.in_bias ? p.in_bias[h] : 0;
		else
			to[i] = f < p.to ? p.out[f * p.hidden + h] : 0;
	}
}

/* A thread has R rows, READERS apart. */
template <int C, int F, int R>
__device__ __forceinline__ void add_hidden(
	int hidden, const float *weights, const float (&x)[R][C], float (&y)[R][F])
{
	constexpr int each = hidden_shape<C, F, R>::weights;

#pragma unroll 2
	for (int h = 0; h < hidden; h++) {
		float w[each];

		load(weights + h * each, w);
#pragma unroll
		for (int r = 0; r < R; r++) {
			float v = w[C];

#pragma unroll
			for (int c = 0; c < C; c++)
				v += w[c] * x[r][c];
			v *= normal_below(v);
#pragma unroll
			for (int f = 0; f < F; f++)
				y[r][f] += v * w[C + 1 + f];
		}
	}
}

/* y through shared memory, where its rows are as they will lie in memory */
template <int F, int R>
__device__ __forceinline__ void leave_y(
	const struct cuda_hidden &p, const float (&y)[R][F], int64_t row0, int rows, float *share)
{
	__syncthreads();
#pragma unroll
	for (int r = 0; r < R; r++)
#pragma unroll
		for (int f = 0; f < F; f++)
			if (f < p.to)
				share[(threadIdx.x + r * READERS) * p.to + f] = y[r][f];
	__syncthreads();
	for (int i = threadIdx.x; i < rows * p.to; i += READERS)
		p.y[row0 * p.to + i] = share[i];
}

template <int C, int F, int R>
__global__ void __launch_bounds__(READERS) hidden_kernel(struct cuda_hidden p)
{
	using shape = hidden_shape<C, F, R>;
	extern __shared__ float4 memory[];
	float *weights = reinterpret_cast<float *>(memory),
	      *rows_of_x = weights + p.hidden * shape::weights;
	float bias[F];

#pragma unroll
	for (int f = 0; f < F; f++)
		bias[f] = p.out_bias && f < p.to ? p.out_bias[f] : 0;
	take_weights<C, F, R>(p, weights);
	for (int i = threadIdx.x; i < shape::rows * shape::pitch; i += READERS)
		rows_of_x[i] = 0; /* and channels beyond p.from remain 0 */
	for (int64_t row0 = (int64_t)blockIdx.x * shape::rows; row0 < p.rows;
		row0 += (int64_t)gridDim.x * shape::rows) {
		const int rows = (int)min((int64_t)shape::rows, p.rows - row0);
		float x[R][C], y[R][F];

		__syncthreads();
		take_rows(rows_of_x, shape::pitch, p.x + row0 * p.from, p.from, rows, shape::rows);
		__pipeline_commit();
		__pipeline_wait_prior(0);
		__syncthreads();
#pragma unroll
		for (int r = 0; r < R; r++) {
			load(rows_of_x + (threadIdx.x + r * READERS) * shape::pitch, x[r]);
#pragma unroll
			for (int f = 0; f < F; f++)
				y[r][f] = bias[f];
		}
		add_hidden<C, F, R>(p.hidden, weights, x, y);
		leave_y<F, R>(p, y, row0, rows, rows_of_x);
	}
}

bool cuda_hidden_knows(int64_t rows, int64_t from, int64_t hidden, int64_t to)
{
	return from <= MOST_FROM && hidden <= MOST_HIDDEN && to <= MOST_TO && rows >= FEWEST;
}

template <int C, int F, int R>
static void hidden_start(const struct cuda_hidden *p, int processors, cudaStream_t stream)
{
	using shape = hidden_shape<C, F, R>;
	const int bytes = shape::bytes(p->hidden);
	const int64_t most = (p->rows + shape::rows - 1) / shape::rows;
	int each = 1;

	cudaFuncSetAttribute(
		hidden_kernel<C, F, R>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	cudaOccupancyMaxActiveBlocksPerMultiprocessor(
		&each, hidden_kernel<C, F, R>, READERS, (size_t)bytes);
	const int64_t blocks = (int64_t)processors * each;

	hidden_kernel<C, F, R>
		<<<(unsigned)(most < blocks ? most : blocks), READERS, bytes, stream>>>(*p);
}

void cuda_hidden(const struct cuda_hidden *p, int processors, cudaStream_t stream)
{
	if (p->from == 16 && p->to <= 4)
		hidden_start<16, 4, 2>(p, processors, stream);
	else if (p->from == 25 && p->to <= 5)
		hidden_start<25, 5, 2>(p, processors, stream);
	else
		hidden_start<MOST_FROM, MOST_TO, 1>(p, processors, stream);
}

/* ---- gradients ------------------------------------------------------------------------------- */

#define OWN	2   /* hidden values of a thread */
#define THREADS 256 /* of a block */

/*
 * C, F: at least the width of x and of y. A block has T rows at a time. Of the gradient of x a
 * thread adds up R rows and COLUMNS columns, for every `splits`-th quad of the hidden values.
 */
template <int C, int F, int T, int R, int COLUMNS> struct grad_shape {
	static constexpr int columns = COLUMNS, x_pitch = whole_quads(C), dy_pitch = whole_quads(F);
	/* of a row of the first weights: columns of a thread begin with a quad */
	static constexpr int team = (C + COLUMNS - 1) / COLUMNS, each = whole_quads(COLUMNS),
			     weights = team * each;
	static constexpr int lines = T / R, tiles = lines * team, splits = THREADS / tiles;
	/* of a hidden value: the weights of y, the bias */
	static constexpr int others = F + 1;
	static constexpr int results = C + 1 + F; /* a thread's sums of a hidden value */

	/* Threads with adjacent rows read different banks. */
	static __host__ __device__ int pitch(int hidden)
	{
		return (whole_quads(hidden) / QUAD | 1) * QUAD;
	}
	/* Floats for what is exchanged in a block: gradients before gelu, sums. */
	static __host__ __device__ int room(int hidden, int from)
	{
		const int rows = T * pitch(hidden), dx = splits * T * from,
			  sums = THREADS * results, more = rows > dx ? rows : dx;

		return whole_quads(more > sums ? more : sums);
	}
	static int bytes(int hidden, int from)
	{
		return (room(hidden, from) + 2 * T * (x_pitch + dy_pitch) +
			       hidden * (weights + others)) *
		       (int)sizeof(float);
	}
};

/* Of a thread, of its hidden values. */
template <int C, int F> struct own_values {
	float in[OWN][C], bias[OWN], out[OWN][F];	/* weights */
	float d_in[OWN][C], d_bias[OWN], d_out[OWN][F]; /* their gradients */
	float d_out_bias[F];				/* of one thread of each row */
};

template <typename S, int F>
__device__ __forceinline__ void stage_weights(const struct cuda_hidden &p, float *in, float *others)
{
	for (int i = threadIdx.x; i < p.hidden * S::weights; i += THREADS) {
		const int h = i / S::weights, at = i % S::weights, k = at % S::each,
			  c = at / S::each * S::columns + k;

		in[i] = k < S::columns && c < p.from ? p.in[h * p.from + c] : 0;
	}
	for (int i = threadIdx.x; i < p.hidden * S::others; i += THREADS) {
		const int h = i / S::others, f = i % S::others;

		if (f < F)
			others[i] = f < p.to ? p.out[f * p.hidden + h] : 0;
		else
			others[i] = p.in_bias ? p.in_bias[h] : 0;
	}
}

/* Weights of the thread's hidden values; those beyond the last one have no part in any result. */
template <typename S, int C, int F>
__device__ __forceinline__ void take_own(
	int slot, int hidden, const float *in, const float *others, struct own_values<C, F> &v)
{
#pragma unroll
	for (int i = 0; i < OWN; i++) {
		const int h = slot * OWN + i, at = h < hidden ? h : 0;

#pragma unroll
		for (int c = 0; c < C; c++)
			v.in[i][c] =
				in[at * S::weights + c / S::columns * S::each + c % S::columns];
#pragma unroll
		for (int f = 0; f < F; f++)
			v.out[i][f] = h < hidden ? others[at * S::others + f] : 0;
		v.bias[i] = others[at * S::others + F];
	}
}

/* The thread's hidden values of a row; ret: the gradients before gelu. */
template <typename S, int C, int F>
__device__ __forceinline__ void add_own(const float *x_row, const float *dy_row, bool is_first,
	struct own_values<C, F> &v, float (&ret)[OWN])
{
	float x[S::x_pitch], dy[S::dy_pitch];

	load(x_row, x);
	load(dy_row, dy);
#pragma unroll
	for (int i = 0; i < OWN; i++) {
		float open = v.bias[i], d = 0, bell;

#pragma unroll
		for (int c = 0; c < C; c++)
			open += v.in[i][c] * x[c];
#pragma unroll
		for (int f = 0; f < F; f++)
			d += v.out[i][f] * dy[f];
		const float below = normal_below(open, bell), y = open * below;

		d *= gelu_erf_slope(open, below, bell);
#pragma unroll
		for (int c = 0; c < C; c++)
			v.d_in[i][c] += d * x[c];
#pragma unroll
		for (int f = 0; f < F; f++)
			v.d_out[i][f] += y * dy[f];
		v.d_bias[i] += d;
		ret[i] = d;
	}
	if (is_first)
#pragma unroll
		for (int f = 0; f < F; f++)
			v.d_out_bias[f] += dy[f];
}

/* dx of T rows, whose gradients before gelu are in `share`: sums of each split, in its place. */
template <typename S, int T, int R>
__device__ __forceinline__ void multiply_back(
	const struct cuda_hidden &p, const float *in, float *share)
{
	const int tile = threadIdx.x % S::tiles, split = threadIdx.x / S::tiles;
	const int line = tile / S::team, column = tile % S::team, pitch = S::pitch(p.hidden);
	float sum[R][S::columns] = {};

	if (split < S::splits)
		for (int h = split * QUAD; h < p.hidden; h += S::splits * QUAD) {
			float a[R][QUAD];

#pragma unroll
			for (int r = 0; r < R; r++)
				load(share + (line + r * S::lines) * pitch + h, a[r]);
#pragma unroll
			for (int k = 0; k < QUAD; k++) {
				float b[S::each];

				if (h + k >= p.hidden)
					break;
				load(in + (h + k) * S::weights + column * S::each, b);
#pragma unroll
				for (int r = 0; r < R; r++)
#pragma unroll
					for (int c = 0; c < S::columns; c++)
						sum[r][c] += a[r][k] * b[c];
			}
		}
	__syncthreads();
	if (split >= S::splits)
		return;
#pragma unroll
	for (int r = 0; r < R; r++) {
		float *to = share + (split * T + line + r * S::lines) * p.from;

#pragma unroll
		for (int c = 0; c < S::columns; c++)
			if (column * S::columns + c < p.from)
				to[column * S::columns + c] = sum[r][c];
	}
}

/* Adds up the splits; rows of dx are as they lie in memory. */
template <typename S, int T>
__device__ __forceinline__ void leave_dx(
	const struct cuda_hidden_grad &p, const float *share, int64_t row0, int rows)
{
	const int from = p.layers.from, all = rows * from, whole = all / QUAD * QUAD;
	const float *open = p.open ? p.open + row0 * from : NULL;
	float *to = p.dx + row0 * from;

	for (int i = threadIdx.x * QUAD; i < whole; i += THREADS * QUAD) {
		float sum[QUAD], part[QUAD];

		load(share + i, sum);
#pragma unroll
		for (int s = 1; s < S::splits; s++) {
			load(share + s * T * from + i, part);
#pragma unroll
			for (int k = 0; k < QUAD; k++)
				sum[k] += part[k];
		}
		if (open) {
			load(open + i, part);
#pragma unroll
			for (int k = 0; k < QUAD; k++)
				sum[k] *= gelu_erf_slope(part[k]);
		}
		store_sum(to + i, sum, p.add_dx);
	}
	for (int i = whole + threadIdx.x; i < all; i += THREADS) {
		float sum = 0;

		for (int s = 0; s < S::splits; s++)
			sum += share[s * T * from + i];
		if (open)
			sum *= gelu_erf_slope(open[i]);
		to[i] = sum + (p.add_dx ? to[i] : 0);
	}
}

/* Adds up what threads with the same hidden values have, and leaves the part of the block. */
template <typename S, int C, int F>
__device__ __forceinline__ void leave_part(
	const struct cuda_hidden_grad &p, const struct own_values<C, F> &v, float *share)
{
	const int hidden = p.layers.hidden, from = p.layers.from, to = p.layers.to;
	const int slots = (hidden + OWN - 1) / OWN, groups = THREADS / slots;
	float *in = p.in.partial + (int64_t)blockIdx.x * hidden * (from + 1),
	      *out = p.out.partial + (int64_t)blockIdx.x * to * (hidden + 1);

#pragma unroll
	for (int i = 0; i < OWN; i++) {
		__syncthreads();
#pragma unroll
		for (int c = 0; c < C; c++)
			share[c * THREADS + threadIdx.x] = v.d_in[i][c];
		share[C * THREADS + threadIdx.x] = v.d_bias[i];
#pragma unroll
		for (int f = 0; f < F; f++)
			share[(C + 1 + f) * THREADS + threadIdx.x] = v.d_out[i][f];
		__syncthreads();
		for (int j = threadIdx.x; j < slots * S::results; j += THREADS) {
			const int slot = j % slots, c = j / slots, f = c - C - 1,
				  h = slot * OWN + i;
			float sum = 0;

			if (h >= hidden || (c < C && c >= from) || f >= to)
				continue;
			for (int group = 0; group < groups; group++)
				sum += share[c * THREADS + group * slots + slot];
			if (c <= C)
				in[h * (from + 1) + (c < C ? c : from)] = sum;
			else
				out[f * (hidden + 1) + h] = sum;
		}
	}
	__syncthreads();
	if (threadIdx.x % slots == 0)
#pragma unroll
		for (int f = 0; f < F; f++)
			share[f * THREADS + threadIdx.x / slots] = v.d_out_bias[f];
	__syncthreads();
	if ((int)threadIdx.x < to) {
		float sum = 0;

		for (int group = 0; group < groups; group++)
			sum += share[threadIdx.x * THREADS + group];
		out[threadIdx.x * (hidden + 1) + hidden] = sum;
	}
}

/* AGAIN: weights are read from shared memory for each T rows, so that their registers are free in
 * between. */
template <int C, int F, int T, int R, int COLUMNS, bool AGAIN>
__global__ void __launch_bounds__(THREADS) hidden_grad_kernel(struct cuda_hidden_grad p)
{
	using S = grad_shape<C, F, T, R, COLUMNS>;
	extern __shared__ float4 memory[];
	const struct cuda_hidden &l = p.layers;
	const int slots = (l.hidden + OWN - 1) / OWN, groups = THREADS / slots;
	const int slot = threadIdx.x % slots, group = threadIdx.x / slots,
		  pitch = S::pitch(l.hidden), room = S::room(l.hidden, l.from);
	float *share = reinterpret_cast<float *>(memory), *x = share + room,
	      *dy = x + 2 * T * S::x_pitch, *in = dy + 2 * T * S::dy_pitch,
	      *others = in + l.hidden * S::weights;
	const int64_t each = ((l.rows + gridDim.x - 1) / gridDim.x + T - 1) / T * T,
		      first = blockIdx.x * each, end = min(first + each, l.rows);
	struct own_values<C, F> v = {
	};

	const auto take = [&](int64_t row, int which) {
		const int64_t left = end - row;
		const int rows = left < T ? (int)left : T;

		if (left > 0) {
			take_rows(x + which * T * S::x_pitch, S::x_pitch, l.x + row * l.from,
				l.from, rows, T);
			take_rows(dy + which * T * S::dy_pitch, S::dy_pitch, p.out.dy + row * l.to,
				l.to, rows, T);
		}
		__pipeline_commit();
	};
	stage_weights<S, F>(l, in, others);
	for (int i = threadIdx.x; i < room + 2 * T * (S::x_pitch + S::dy_pitch); i += THREADS)
		share[i] = 0; /* and what no row fills remains 0 */
	__syncthreads();
	if (!AGAIN)
		take_own<S>(slot, l.hidden, in, others, v);
	take(first, 0);
	int which = 0;
	for (int64_t row0 = first; row0 < end; row0 += T, which ^= 1) {
		take(row0 + T, which ^ 1);
		__pipeline_wait_prior(1);
		__syncthreads();
		if (AGAIN)
			take_own<S>(slot, l.hidden, in, others, v);
		for (int r = group < groups ? group : T; r < T; r += groups) {
			float d[OWN];

			add_own<S>(x + (which * T + r) * S::x_pitch,
				dy + (which * T + r) * S::dy_pitch, slot == 0, v, d);
#pragma unroll
			for (int i = 0; i < OWN; i++)
				share[r * pitch + slot * OWN + i] = d[i];
		}
		__syncthreads();
		multiply_back<S, T, R>(l, in, share);
		__syncthreads();
		leave_dx<S, T>(p, share, row0, (int)min((int64_t)T, end - row0));
		__syncthreads();
	}
	__pipeline_wait_prior(0);
	leave_part<S>(p, v, share);
}

#define LEAST 64 /* rows of a block */

int cuda_hidden_parts(int processors, int64_t rows)
{
	const int64_t most = (rows + LEAST - 1) / LEAST;

	return (int)(processors < most ? processors : most); /* whose registers one block fills */
}

template <int C, int F, int T, int R, int COLUMNS, bool AGAIN> struct grad_form {
	static int bytes(int hidden, int from)
	{
		return grad_shape<C, F, T, R, COLUMNS>::bytes(hidden, from);
	}
	static void start(const struct cuda_hidden_grad *p, cudaStream_t stream)
	{
		const auto kernel = hidden_grad_kernel<C, F, T, R, COLUMNS, AGAIN>;
		const int all = bytes(p->layers.hidden, p->layers.from);

		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, all);
		kernel<<<(unsigned)p->in.parts, THREADS, all, stream>>>(*p);
	}
};

template <class USE> static void with_form(int from, int to, USE use)
{
	if (from == 16 && to <= 4)
		use(grad_form<16, 4, 256, 8, 8, false>());
	else if (from == 25 && to <= 5)
		use(grad_form<25, 5, 160, 5, 13, true>());
	else
		use(grad_form<MOST_FROM, MOST_TO, 64, 8, 8, true>());
}

size_t cuda_hidden_grad_shared(int from, int hidden, int to)
{
	size_t bytes = 0;

	with_form(from, to, [&](auto form) { bytes = (size_t)form.bytes(hidden, from); });
	return bytes;
}

void cuda_hidden_grad(const struct cuda_hidden_grad *p, cudaStream_t stream)
{
	const struct cuda_narrow_grad both[] = {p->in, p->out};

	with_form(p->layers.from, p->layers.to, [&](auto form) { form.start(p, stream); });
	cuda_narrow_sums(both, 2, stream);
}
