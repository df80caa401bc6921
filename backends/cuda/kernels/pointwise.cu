/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise ops over n elements: activations and their gradients, add, cast, dropout; gated
 * units over x[rows,2 width]; copies between dense layouts, and between a tensor and its parts. A
 * thread handles one pack of 8.
 */
#include "common.cuh"
#include "gelu.cuh"

#define JM_RNG_INLINE static __device__ __forceinline__
#include "engine/graph/rng.h"

#define THREADS 256

/* ---- functions ------------------------------------------------------------------------------- */

/* T: the type of operands and results, which are computed in f32. */

#define SQRT_2_PI 0.7978845608028654f
#define CUBIC	  0.044715f

template <typename T> __device__ __forceinline__ float tanh_of(float x)
{
	return sizeof(T) == 2 ? 2 * sigmoid<T>(2 * x) - 1 : tanhf(x);
}

template <typename T> struct gelu {
	__device__ float operator()(float x, float) const
	{
		const float inner = SQRT_2_PI * (x + CUBIC * x * x * x);

		return sizeof(T) == 2 ? x * sigmoid<T>(2 * inner) : 0.5f * x * (1 + tanhf(inner));
	}
};

template <typename T> struct gelu_grad {
	__device__ float operator()(float dy, float x) const
	{
		const float t = tanh_of<T>(SQRT_2_PI * (x + CUBIC * x * x * x));
		/* times x^2 one by one: x^2 may be infinite where 1 - t^2 is 0 */
		const float by_x = x * (1 - t * t) * SQRT_2_PI;

		return dy * 0.5f * (1 + t + by_x + 3 * CUBIC * x * (by_x * x));
	}
};

template <typename T> struct gelu_erf {
	__device__ float operator()(float x, float) const
	{
		return x * normal_below(x);
	}
};

template <typename T> struct gelu_erf_grad {
	__device__ float operator()(float dy, float x) const
	{
		return dy * gelu_erf_slope(x);
	}
};

/* x sigmoid(1.702 x) */
#define QUICK 1.702f

template <typename T> struct gelu_quick {
	__device__ float operator()(float x, float) const
	{
		return x * sigmoid<T>(QUICK * x);
	}
};

template <typename T> struct gelu_quick_grad {
	__device__ float operator()(float dy, float x) const
	{
		float s = sigmoid<T>(QUICK * x);

		return dy * s * (1 + QUICK * x * (1 - s));
	}
};

template <typename T> struct silu {
	__device__ float operator()(float x, float) const
	{
		return x * sigmoid<T>(x);
	}
};

template <typename T> struct silu_grad {
	__device__ float operator()(float dy, float x) const
	{
		float s = sigmoid<T>(x);

		return dy * s * (1 + x * (1 - s));
	}
};

/* relu and its gradient keep NaN. */
template <typename T> struct relu {
	__device__ float operator()(float x, float) const
	{
		return x < 0 ? 0 : x;
	}
};

template <typename T> struct relu_grad {
	__device__ float operator()(float dy, float y) const
	{
		return y > 0 ? dy : 0;
	}
};

template <typename T> struct plus {
	__device__ float operator()(float a, float b) const
	{
		return a + b;
	}
};

template <typename T> struct same {
	__device__ float operator()(float a, float) const
	{
		return a;
	}
};

/* ---- maps ------------------------------------------------------------------------------------ */

template <class F, bool TWO, typename A, typename B, typename Y>
__global__ void map_kernel(const A *a, const B *b, Y *y, int64_t n, bool add)
{
	int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	float v[PACK], w[PACK];

	if (i >= n)
		return;
	load_some(a + i, v, n - i);
	if (TWO)
		load_some(b + i, w, n - i);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = F()(v[k], TWO ? w[k] : 0);
	store_some(y + i, v, n - i, add);
}

template <class F, bool TWO, typename A, typename B, typename Y>
static void map(const struct cuda_pointwise *p, cudaStream_t stream)
{
	map_kernel<F, TWO><<<blocks_for(p->n, PACK * THREADS), THREADS, 0, stream>>>(
		as<const A>(p->a), as<const B>(p->b), as<Y>(p->y), p->n, p->accumulate);
}

/* All operands of one type. */
template <template <typename> class F, bool TWO>
static void map_alike(const struct cuda_pointwise *p, cudaStream_t stream)
{
	with_type(p->a, [&](auto t) {
		using T = decltype(t);

		map<F<T>, TWO, T, T, T>(p, stream);
	});
}

/* dx and y = gelu-erf(x), which may replace dy. */
template <typename T>
__global__ void again_kernel(const T *dy, const T *x, T *dx, T *y, int64_t n, bool add)
{
	int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	float d[PACK], v[PACK];

	if (i >= n)
		return;
	load_some(dy + i, d, n - i);
	load_some(x + i, v, n - i);
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		d[k] = gelu_erf_grad<T>()(d[k], v[k]);
		v[k] = gelu_erf<T>()(v[k], 0);
	}
	store_some(dx + i, d, n - i, add);
	store_some(y + i, v, n - i, false);
}

/* The gradient of gelu-erf, and its result if that is asked for. */
static void map_gelu_erf_grad(const struct cuda_pointwise *p, cudaStream_t stream)
{
	unsigned blocks = blocks_for(p->n, PACK * THREADS);

	if (!p->again.data)
		return map_alike<gelu_erf_grad, true>(p, stream);
	with_type(p->a, [&](auto t) {
		using T = decltype(t);

		again_kernel<<<blocks, THREADS, 0, stream>>>(as<const T>(p->a), as<const T>(p->b),
			as<T>(p->y), as<T>(p->again), p->n, p->accumulate);
	});
}

static void map_add(const struct cuda_pointwise *p, cudaStream_t stream)
{
	with_type(p->b, [&](auto t) {
		using T = decltype(t);

		if (p->a.type == p->b.type)
			map<plus<T>, true, T, T, T>(p, stream);
		else
			map<plus<float>, true, float, T, float>(p, stream);
	});
}

static void map_cast(const struct cuda_pointwise *p, cudaStream_t stream)
{
	with_types(p->a, p->y, [&](auto a, auto y) {
		map<same<float>, false, decltype(a), decltype(a), decltype(y)>(p, stream);
	});
}

bool cuda_pointwise_knows(const struct cuda_pointwise *p)
{
	bool alike = p->y.type == p->a.type;

	if (p->map == CUDA_CAST)
		return alike || p->a.type == CUDA_F32 || p->y.type == CUDA_F32;
	if (p->map == CUDA_ADD)
		return alike && (p->b.type == p->a.type || p->a.type == CUDA_F32);
	return alike && (!p->b.data || p->b.type == p->a.type);
}

void cuda_pointwise(const struct cuda_pointwise *p, cudaStream_t stream)
{
	switch (p->map) {
	case CUDA_GELU:
		return map_alike<gelu, false>(p, stream);
	case CUDA_GELU_ERF:
		return map_alike<gelu_erf, false>(p, stream);
	case CUDA_GELU_QUICK:
		return map_alike<gelu_quick, false>(p, stream);
	case CUDA_SILU:
		return map_alike<silu, false>(p, stream);
	case CUDA_RELU:
		return map_alike<relu, false>(p, stream);
	case CUDA_GELU_GRAD:
		return map_alike<gelu_grad, true>(p, stream);
	case CUDA_GELU_ERF_GRAD:
		return map_gelu_erf_grad(p, stream);
	case CUDA_GELU_QUICK_GRAD:
		return map_alike<gelu_quick_grad, true>(p, stream);
	case CUDA_SILU_GRAD:
		return map_alike<silu_grad, true>(p, stream);
	case CUDA_RELU_GRAD:
		return map_alike<relu_grad, true>(p, stream);
	case CUDA_ADD:
		return map_add(p, stream);
	case CUDA_CAST:
		return map_cast(p, stream);
	}
}

/* ---- gated units: x[row] = gate[width], up[width]; of geglu up first ------------------------- */

/* The row of a block and the first of the thread's N elements in it; `parts` blocks have a row. */
template <int N> __device__ __forceinline__ int64_t element_of_row(unsigned parts, int64_t *ret_row)
{
	*ret_row = blockIdx.x / parts;
	return N * ((int64_t)(blockIdx.x % parts) * blockDim.x + threadIdx.x);
}

/* The activation of a gate and its slope. */
template <bool GELU, typename T> __device__ __forceinline__ float2 gate_of(float x)
{
	if constexpr (GELU) {
		float bell;
		const float below = normal_below(x, bell);

		return make_float2(x * below, gelu_erf_slope(x, below, bell));
	}
	const float s = sigmoid<T>(x), y = x * s;

	return make_float2(y, s + y * (1 - s));
}

/* As store_sum. A pack in 16 bits is one instruction: of store() the compiler makes four here. */
template <int N, typename T>
__device__ __forceinline__ void store_whole(T *p, float (&v)[N], bool add)
{
	if constexpr (N == PACK && sizeof(T) == 2) {
		if (add)
			add_stored(p, v);
		__stwb(reinterpret_cast<uint4 *>(p),
			make_uint4(two(p, v[0], v[1]), two(p, v[2], v[3]), two(p, v[4], v[5]),
				two(p, v[6], v[7])));
	} else {
		store_sum(p, v, add);
	}
}

template <int N, bool GELU, typename T>
__global__ void gated_kernel(const T *x, T *y, int64_t width, unsigned parts, bool add)
{
	int64_t row, i = element_of_row<N>(parts, &row);
	const T *left = x + row * 2 * width + i;
	float g[N], u[N];

	start_next();
	if (i >= width)
		return;
	load(left + (GELU ? width : 0), g);
	load(left + (GELU ? 0 : width), u);
#pragma unroll
	for (int k = 0; k < N; k++)
		g[k] = gate_of<GELU, T>(g[k]).x * u[k];
	store_whole(y + row * width + i, g, add);
}

#define GRAD_BLOCKS 4 /* on a multiprocessor; with 8 of them a call took 4 % longer on an H100 */

/* AGAIN: y, the result of the op, is written as well. */
template <int N, bool GELU, typename T, bool AGAIN>
__global__ void __launch_bounds__(THREADS, GRAD_BLOCKS) gated_grad_kernel(
	const T *dy, const T *x, T *dx, T *y, int64_t width, unsigned parts, bool add)
{
	int64_t row, i = element_of_row<N>(parts, &row);
	const int64_t gate = row * 2 * width + i + (GELU ? width : 0),
		      up = row * 2 * width + i + (GELU ? 0 : width);
	packed<N, T> gates, ups, dys;
	float g[N], u[N], d[N];

	if (i >= width)
		return;
	fetch(x + gate, gates);
	fetch(x + up, ups);
	fetch(dy + row * width + i, dys);
	spread(gates, g);
	spread(ups, u);
	spread(dys, d);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float2 a = gate_of<GELU, T>(g[k]);

		g[k] = d[k] * u[k] * a.y;
		d[k] *= a.x;
		u[k] *= a.x;
	}
	store_whole(dx + gate, g, add);
	store_whole(dx + up, d, add);
	if constexpr (AGAIN)
		store_whole(y + row * width + i, u, false);
}

template <int N, bool GELU, typename T, bool AGAIN>
static void gated_grad_of(
	const struct cuda_gated *p, unsigned parts, int threads, cudaStream_t stream)
{
	gated_grad_kernel<N, GELU, T, AGAIN><<<(unsigned)p->rows * parts, threads, 0, stream>>>(
		as<const T>(p->dy), as<const T>(p->x), as<T>(p->dx), as<T>(p->y), p->width, parts,
		p->accumulate);
}

#define SUM_BLOCKS 3		    /* on a multiprocessor */
#define SUM_ROWS   (THREADS / WARP) /* of a block at a time */

/* Adds the sums of a block's warps to its row of partial; at: the first column of the lane. */
__device__ __forceinline__ void leave_columns(
	float (&sum)[PACK], float (*share)[WARP][PACK + 1], float *partial, int64_t at, bool inside)
{
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

	__syncthreads();
#pragma unroll
	for (int k = 0; k < PACK; k++)
		share[warp][lane][k] = sum[k];
	__syncthreads();
	if (warp || !inside)
		return;
#pragma unroll
	for (int k = 0; k < PACK; k++) {
		float all = 0;
#pragma unroll
		for (int w = 0; w < SUM_ROWS; w++)
			all += share[w][lane][k];
		partial[at + k] = all;
	}
}

/* The gradient of geglu with the sums of its result over the rows: a lane has a pack of both halves
 * in every gridDim.y-th group of rows, and loads those of the next one before it computes. */
template <typename T, bool AGAIN>
__global__ void __launch_bounds__(THREADS, SUM_BLOCKS) geglu_sums_kernel(struct cuda_gated p)
{
	__shared__ float share[SUM_ROWS][WARP][PACK + 1];
	const int64_t i = PACK * (blockIdx.x * (int64_t)WARP + threadIdx.x % WARP),
		      step = (int64_t)SUM_ROWS * gridDim.y;
	const bool inside = i < p.width;
	packed<PACK, T> gates, ups, dys;
	float gate_sum[PACK] = {}, up_sum[PACK] = {};
	auto get = [&](int64_t row) {
		const T *x = as<const T>(p.x) + row * 2 * p.width + i;

		if (!inside || row >= p.rows)
			return;
		fetch(x, ups);
		fetch(x + p.width, gates);
		fetch(as<const T>(p.dy) + row * p.width + i, dys);
	};
	int64_t row = blockIdx.y * SUM_ROWS + threadIdx.x / WARP;

	get(row);
	for (; inside && row < p.rows; row += step) {
		const packed<PACK, T> gate = gates, up = ups, dy = dys;
		T *dx = as<T>(p.dx) + row * 2 * p.width + i;
		float g[PACK], u[PACK], y[PACK];
		get(row + step);
#pragma unroll
		for (int k = 0; k < PACK; k++) {
			const float2 a = gate_of<true, T>(gate.at(k));

			g[k] = dy.at(k) * up.at(k) * a.y;
			u[k] = dy.at(k) * a.x;
			y[k] = up.at(k) * a.x;
			gate_sum[k] += (float)(T)g[k];
			up_sum[k] += (float)(T)u[k];
		}
		store_whole(dx, u, false);
		store_whole(dx + p.width, g, false);
		if constexpr (AGAIN)
			store_whole(as<T>(p.y) + row * p.width + i, y, false);
	}
	float *partial = p.partial + blockIdx.y * 2 * p.width;

	leave_columns(up_sum, share, partial, i, inside);
	leave_columns(gate_sum, share, partial, i + p.width, inside);
}

int cuda_gated_parts(int processors, int64_t rows, int64_t width)
{
	const int64_t across = (width + PACK * WARP - 1) / (PACK * WARP),
		      parts = SUM_BLOCKS * processors / across,
		      most = (rows + SUM_ROWS - 1) / SUM_ROWS;

	return (int)(parts < 1 ? 1 : parts < most ? parts : most);
}

static void geglu_sums(const struct cuda_gated *p, cudaStream_t stream)
{
	const dim3 grid(blocks_for(p->width, PACK * WARP), (unsigned)p->parts);
	const struct cuda_columns columns = {.width = 2 * p->width,
		.y = p->sums,
		.accumulate = p->add_sums,
		.parts = p->parts,
		.partial = p->partial};

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if (p->y.data)
			geglu_sums_kernel<T, true><<<grid, THREADS, 0, stream>>>(*p);
		else
			geglu_sums_kernel<T, false><<<grid, THREADS, 0, stream>>>(*p);
	});
	cuda_columns_finish(&columns, stream);
}

template <int N, bool GELU, typename T>
static void gated_of(const struct cuda_gated *p, cudaStream_t stream)
{
	const int threads = threads_for((p->width + N - 1) / N, THREADS);
	const unsigned parts = blocks_for(p->width, N * threads);

	if (!p->dx.data)
		gated_kernel<N, GELU><<<(unsigned)p->rows * parts, threads, 0, stream>>>(
			as<const T>(p->x), as<T>(p->y), p->width, parts, p->accumulate);
	else if (p->y.data)
		gated_grad_of<N, GELU, T, true>(p, parts, threads, stream);
	else
		gated_grad_of<N, GELU, T, false>(p, parts, threads, stream);
}

template <int N, typename T> static void gated_by(const struct cuda_gated *p, cudaStream_t stream)
{
	p->gelu ? gated_of<N, true, T>(p, stream) : gated_of<N, false, T>(p, stream);
}

void cuda_gated(const struct cuda_gated *p, cudaStream_t stream)
{
	bool packs = p->width % PACK == 0;

	if (p->sums)
		return geglu_sums(p, stream);
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		packs ? gated_by<PACK, T>(p, stream) : gated_by<1, T>(p, stream);
	});
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Element i is kept by the lower (i even) or upper half of the random bits of i / 2. */
template <typename T>
__global__ void dropout_kernel(const T *x, T *y, int64_t n, const int32_t *now, uint64_t seed,
	uint64_t least, float scale, bool add)
{
	int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x);
	uint64_t stream = jm_rng(seed, (uint64_t)*now);
	float v[PACK];

	if (i >= n)
		return;
	load_some(x + i, v, n - i);
#pragma unroll
	for (int k = 0; k < PACK; k += 2) {
		uint64_t bits = jm_rng(stream, (uint64_t)(i + k) / 2);

		v[k] = (bits & 0xffffffffu) >= least ? v[k] * scale : 0;
		v[k + 1] = bits >> 32 >= least ? v[k + 1] * scale : 0;
	}
	store_some(y + i, v, n - i, add);
}

template <typename T> static void dropout_of(const struct cuda_dropout *p, cudaStream_t stream)
{
	dropout_kernel<<<blocks_for(p->n, PACK * THREADS), THREADS, 0, stream>>>(as<const T>(p->x),
		as<T>(p->y), p->n, p->now, p->seed, p->least, p->scale, p->accumulate);
}

void cuda_dropout(const struct cuda_dropout *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) { dropout_of<decltype(t)>(p, stream); });
}

/* ---- between dense layouts: a thread handles one element in the order of y ------------------- */

template <typename X, typename Y> __global__ void reorder_kernel(struct cuda_reorder p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, from = 0, to = 0;

	if (i >= n)
		return;
	for (int k = p.rank - 1; k >= 0; k--) {
		int64_t at = i % p.dim[k];

		i /= p.dim[k];
		from += at * p.x_stride[k];
		to += at * p.y_stride[k];
	}
	Y *y = (Y *)p.y.data + to;
	*y = (Y)((float)((const X *)p.x.data)[from] + (p.accumulate ? (float)*y : 0));
}

void cuda_reorder(const struct cuda_reorder *p, cudaStream_t stream)
{
	int64_t n = 1;

	for (int k = 0; k < p->rank; k++)
		n *= p->dim[k];
	unsigned blocks = blocks_for(n, THREADS);
	with_types(p->x, p->y, [&](auto x, auto y) {
		reorder_kernel<decltype(x), decltype(y)><<<blocks, THREADS, 0, stream>>>(*p, n);
	});
}

/* ---- between a tensor and its parts ---- */

/* blockIdx.y is the part; a thread handles N elements of one of its rows. */

template <int N, typename T> __global__ void concat_kernel(struct cuda_concat p)
{
	const int k = blockIdx.y;
	const int64_t i = N * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x), width = p.width[k];
	float v[N];

	if (!p.part[k].data || i >= p.pieces * width)
		return;
	T *part = as<T>(p.part[k]) + i;
	T *whole = as<T>(p.whole) + i / width * p.row + p.first[k] + i % width;
	load(p.split ? whole : part, v);
	store_sum(p.split ? part : whole, v, p.accumulate >> k & 1);
}

template <int N, typename T>
static void concat_of(const struct cuda_concat *p, int64_t widest, cudaStream_t stream)
{
	const dim3 grid(blocks_for(p->pieces * widest, N * THREADS), (unsigned)p->n);

	concat_kernel<N, T><<<grid, THREADS, 0, stream>>>(*p);
}

void cuda_concat(const struct cuda_concat *p, cudaStream_t stream)
{
	int64_t widest = 0;
	bool packs = true;

	for (int k = 0; k < p->n; k++) {
		widest = p->width[k] > widest ? p->width[k] : widest;
		packs = packs && p->width[k] % PACK == 0;
	}
	with_type(p->whole, [&](auto t) {
		using T = decltype(t);

		packs ? concat_of<PACK, T>(p, widest, stream) : concat_of<1, T>(p, widest, stream);
	});
}
