/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling of x[B,Y,X,C] to y[B,P,Q,C], channels last. A thread handles N channels of one pixel of
 * its output; gradients are gathered from the windows that contain the pixel.
 */
#include "pool.cuh"

#define THREADS 256

/* ---- windows --------------------------------------------------------------------------------- */

/* Positions [first, end) of x in window i along one axis. */
struct span {
	int first, end;
};

__device__ __forceinline__ span window_of(const struct cuda_pool &p, int axis, int i)
{
	int start = i * p.stride[axis] - p.pad[axis], end = start + p.kernel[axis];

	return {start < 0 ? 0 : start, end > p.in[axis] ? p.in[axis] : end};
}

/* Windows [first, end) that contain position i of x along one axis. */
__device__ __forceinline__ span windows_at(const struct cuda_pool &p, int axis, int i)
{
	int above = i + p.pad[axis] - p.kernel[axis] + 1;
	int first = above <= 0 ? 0 : (above + p.stride[axis] - 1) / p.stride[axis];
	int end = (i + p.pad[axis]) / p.stride[axis] + 1;

	return {first, end > p.out[axis] ? p.out[axis] : end};
}

/* ---- maximum --------------------------------------------------------------------------------- */

/* For N channels, the maximum and its position y * X + x: the first among equal values, or the last
 * NaN. */
template <int N, typename T>
__device__ __forceinline__ void largest(const struct cuda_pool &p, const T *x, int b, int c,
	span rows, span columns, float (&best)[N], int (&where)[N])
{
#pragma unroll
	for (int k = 0; k < N; k++)
		where[k] = -1;
	for (int i = rows.first; i < rows.end; i++)
		for (int j = columns.first; j < columns.end; j++) {
			float v[N];

			load(x + offset(p.in, p.c, b, i, j, c), v);
#pragma unroll
			for (int k = 0; k < N; k++)
				if (where[k] < 0 || v[k] > best[k] || v[k] != v[k]) {
					best[k] = v[k];
					where[k] = i * p.in[1] + j;
				}
		}
}

/* Stores positions within windows, counted row by row; N bytes at a time. */
template <int N>
__device__ __forceinline__ void keep_place(
	const struct cuda_pool &p, place at, const int (&where)[N], const float (&best)[N])
{
	unsigned char *to = p.place + offset(p.out, p.c, at.b, at.y, at.x, at.c);
	__align__(8) unsigned char v[N];

#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = (unsigned char)(where[k] | (best[k] > 0 ? 0 : PLACE_CLOSED));
	if constexpr (N == 8)
		*reinterpret_cast<uint2 *>(to) = *reinterpret_cast<uint2 *>(v);
	else
		to[0] = v[0];
}

template <int N, typename T> __global__ void maxpool_kernel(struct cuda_pool p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	float best[N];
	int where[N];

	if (i >= n)
		return;
	place at = place_of<N>(i, p.out, p.c);
	largest(p, (const T *)p.x.data, at.b, at.c, window_of(p, 0, at.y), window_of(p, 1, at.x),
		best, where);
	if (p.place) {
		int top = at.y * p.stride[0] - p.pad[0], left = at.x * p.stride[1] - p.pad[1];

#pragma unroll
		for (int k = 0; k < N; k++)
			where[k] = (where[k] / p.in[1] - top) * p.kernel[1] + where[k] % p.in[1] -
				   left;
		keep_place(p, at, where, best);
	}
	store_sum((T *)p.y.data + offset(p.out, p.c, at.b, at.y, at.x, at.c), best, p.accumulate);
}

template <int N, typename T> __global__ void maxpool_grad_kernel(struct cuda_pool p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	float sum[N] = {};

	if (i >= n)
		return;
	place at = place_of<N>(i, p.in, p.c);
	span rows = windows_at(p, 0, at.y), columns = windows_at(p, 1, at.x);
	int own = at.y * p.in[1] + at.x;

	for (int q = rows.first; q < rows.end; q++)
		for (int r = columns.first; r < columns.end; r++) {
			float best[N], dy[N];
			int where[N];

			largest(p, (const T *)p.x.data, at.b, at.c, window_of(p, 0, q),
				window_of(p, 1, r), best, where);
			load((const T *)p.y.data + offset(p.out, p.c, at.b, q, r, at.c), dy);
#pragma unroll
			for (int k = 0; k < N; k++)
				sum[k] += where[k] == own ? dy[k] : 0;
		}
	store_sum((T *)p.dx.data + offset(p.in, p.c, at.b, at.y, at.x, at.c), sum, p.accumulate);
}

/* The gradient by the positions that the forward pass saved. */
template <int N, typename T> __global__ void maxpool_kept_kernel(struct cuda_pool p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	float sum[N] = {};

	if (i >= n)
		return;
	place at = place_of<N>(i, p.in, p.c);
	span rows = windows_at(p, 0, at.y), columns = windows_at(p, 1, at.x);

	for (int q = rows.first; q < rows.end; q++)
		for (int r = columns.first; r < columns.end; r++) {
			int64_t from = offset(p.out, p.c, at.b, q, r, at.c);
			int own = (at.y - q * p.stride[0] + p.pad[0]) * p.kernel[1] + at.x -
				  r * p.stride[1] + p.pad[1];
			__align__(8) unsigned char v[N];
			float dy[N];

			if constexpr (N == PACK)
				load_places(p.place + from, v);
			else
				v[0] = p.place[from] & ~PLACE_CLOSED;
			load((const T *)p.y.data + from, dy);
#pragma unroll
			for (int k = 0; k < N; k++)
				sum[k] += v[k] == own ? dy[k] : 0;
		}
	store_sum((T *)p.dx.data + offset(p.in, p.c, at.b, at.y, at.x, at.c), sum, p.accumulate);
}

/* Fours of pixels along an axis; without pad the first one begins before the image. */
__host__ __device__ static inline int fours(const struct cuda_pool &p, int axis)
{
	return (p.in[axis] + 2 - p.pad[axis]) / 2;
}

/* A thread handles four pixels. */
template <typename T> __global__ void maxpool_four_kernel(struct cuda_pool p, int64_t n)
{
	int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	const int half[2] = {fours(p, 0), fours(p, 1)}, before = 1 - p.pad[0];
	float sum[2][2][PACK];

	if (index >= n)
		return;
	place at = place_of<PACK>(index, half, p.c);
	at.y -= before;
	at.x -= before;
	four_gradients<T>(p, at, sum);
#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int j = 0; j < 2; j++) {
			const int row = 2 * at.y + i + before, column = 2 * at.x + j + before;

			if (row >= 0 && row < p.in[0] && column >= 0 && column < p.in[1])
				store_sum(as<T>(p.dx) + offset(p.in, p.c, at.b, row, column, at.c),
					sum[i][j], p.accumulate);
		}
}

/* Windows of 3 x 3 with stride 2, c a multiple of 8. */
static bool has_fours(const struct cuda_pool *p)
{
	bool four = p->c % PACK == 0 && p->pad[0] == p->pad[1];

	for (int i = 0; i < 2; i++)
		four = four && p->kernel[i] == 3 && p->stride[i] == 2 && p->pad[i] <= 1;
	return four;
}

bool cuda_maxpool_is_four(const struct cuda_pool *p)
{
	return has_fours(p) && p->pad[0] == 1;
}

static void maxpool_four(const struct cuda_pool *p, cudaStream_t stream)
{
	const int64_t each = (int64_t)fours(*p, 0) * fours(*p, 1) * (p->c / PACK);

	with_type(p->y, [&](auto t) {
		by_images(p->batch, each, [&](int64_t first, int images) {
			maxpool_four_kernel<decltype(t)>
				<<<blocks_for(images * each, THREADS), THREADS, 0, stream>>>(
					images_of(p, first, images), images * each);
		});
	});
}

/* ---- maxima of a ReLU ------------------------------------------------------------------------ */

/*
 * Windows of 2 x 2 that cover the image once. A thread has a pack of channels of windows; it writes
 * the gradient before the ReLU and adds up parts of its sums, those of the bias.
 */
template <typename T>
__global__ void __launch_bounds__(COLUMN_THREADS)
	maxpool_relu_kernel(struct cuda_pool p, float *parts)
{
	__shared__ float share[COLUMN_THREADS * PACK];
	const int64_t windows = (int64_t)p.batch * p.out[0] * p.out[1], c = column_of(PACK);
	float sum[PACK] = {}, none[PACK] = {};

	if (c < p.c)
		for (int64_t w = first_row(); w < windows; w += row_step()) {
			const unsigned row = (unsigned)w / (unsigned)p.out[1],
				       column = (unsigned)w % (unsigned)p.out[1];
			T *to = as<T>(p.dx) + ((int64_t)2 * row * p.in[1] + 2 * column) * p.c + c;
			__align__(8) unsigned char at[PACK];
			float dy[PACK];

			*reinterpret_cast<uint2 *>(at) =
				*reinterpret_cast<const uint2 *>(p.place + w * p.c + c);
			load(as<const T>(p.y) + w * p.c + c, dy);
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum[k] += at[k] & PLACE_CLOSED ? 0 : dy[k];
#pragma unroll
			for (int i = 0; i < 4; i++) {
				float dx[PACK];

#pragma unroll
				for (int k = 0; k < PACK; k++)
					dx[k] = at[k] == i ? dy[k] : 0;
				store(to + ((int64_t)(i / 2) * p.in[1] + i % 2) * p.c, dx);
			}
		}
	leave_parts(sum, none, parts, p.c, share);
}

bool cuda_maxpool_covers(const struct cuda_pool *p)
{
	bool covers = p->c % PACK == 0 && (int64_t)p->batch * p->out[0] * p->out[1] <= UINT32_MAX;

	for (int i = 0; i < 2; i++)
		covers = covers && p->kernel[i] == 2 && p->stride[i] == 2 && !p->pad[i] &&
			 p->in[i] == 2 * p->out[i];
	return covers;
}

void cuda_maxpool_relu_grad(
	const struct cuda_pool *p, const struct cuda_bias_grad *bias, cudaStream_t stream)
{
	const int64_t windows = (int64_t)p->batch * p->out[0] * p->out[1];
	const struct columns shape = columns_of(windows, p->c, PACK, COLUMN_RESIDENT(bf16));

	with_type(p->y, [&](auto t) {
		maxpool_relu_kernel<decltype(t)>
			<<<shape.grid, shape.block, 0, stream>>>(*p, cuda_bias_parts(bias));
	});
	cuda_bias_finish(bias, (int)shape.grid.y, stream);
}

/* ---- mean ------------------------------------------------------------------------------------ */

__device__ __forceinline__ float divisor(const struct cuda_pool &p, span rows, span columns)
{
	if (p.sums)
		return 1;
	if (p.count_pad)
		return (float)(p.kernel[0] * p.kernel[1]);
	return (float)((rows.end - rows.first) * (columns.end - columns.first));
}

template <int N, typename T> __global__ void avgpool_kernel(struct cuda_pool p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	float sum[N] = {};

	if (i >= n)
		return;
	place at = place_of<N>(i, p.out, p.c);
	span rows = window_of(p, 0, at.y), columns = window_of(p, 1, at.x);

	for (int q = rows.first; q < rows.end; q++)
		for (int r = columns.first; r < columns.end; r++) {
			float v[N];

			load((const T *)p.x.data + offset(p.in, p.c, at.b, q, r, at.c), v);
#pragma unroll
			for (int k = 0; k < N; k++)
				sum[k] += v[k];
		}
#pragma unroll
	for (int k = 0; k < N; k++)
		sum[k] /= divisor(p, rows, columns);
	store_sum((T *)p.y.data + offset(p.out, p.c, at.b, at.y, at.x, at.c), sum, p.accumulate);
}

template <int N, typename T> __global__ void avgpool_grad_kernel(struct cuda_pool p, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	float sum[N] = {};

	if (i >= n)
		return;
	place at = place_of<N>(i, p.in, p.c);
	span rows = windows_at(p, 0, at.y), columns = windows_at(p, 1, at.x);

	for (int q = rows.first; q < rows.end; q++)
		for (int r = columns.first; r < columns.end; r++) {
			float dy[N], by = divisor(p, window_of(p, 0, q), window_of(p, 1, r));

			load((const T *)p.y.data + offset(p.out, p.c, at.b, q, r, at.c), dy);
#pragma unroll
			for (int k = 0; k < N; k++)
				sum[k] += dy[k] / by;
		}
	store_sum((T *)p.dx.data + offset(p.in, p.c, at.b, at.y, at.x, at.c), sum, p.accumulate);
}

/* ---- starting the kernels -------------------------------------------------------------------- */

#define POOL(name, kernel, size)                                                                   \
	template <int N, typename T>                                                               \
	static void kernel##_of(const struct cuda_pool *p, cudaStream_t s)                         \
	{                                                                                          \
		int64_t each = (int64_t)p->size[0] * p->size[1] * ((p->c + N - 1) / N);            \
                                                                                                   \
		by_images(p->batch, each, [&](int64_t first, int images) {                         \
			int64_t n = images * each;                                                 \
                                                                                                   \
			kernel<N, T><<<blocks_for(n, THREADS), THREADS, 0, s>>>(                   \
				images_of(p, first, images), n);                                   \
		});                                                                                \
	}                                                                                          \
	name(const struct cuda_pool *p, cudaStream_t s)                                            \
	{                                                                                          \
		bool packs = p->c % PACK == 0;                                                     \
                                                                                                   \
		with_type(p->y, [&](auto t) {                                                      \
			using T = decltype(t);                                                     \
                                                                                                   \
			packs ? kernel##_of<PACK, T>(p, s) : kernel##_of<1, T>(p, s);              \
		});                                                                                \
	}

POOL(static void maxpool_any, maxpool_kernel, out)
POOL(static void maxpool_again, maxpool_grad_kernel, in)
POOL(static void maxpool_kept, maxpool_kept_kernel, in)
POOL(void cuda_avgpool, avgpool_kernel, out)
POOL(void cuda_avgpool_grad, avgpool_grad_kernel, in)

void cuda_maxpool(const struct cuda_pool *p, cudaStream_t stream)
{
	if (cuda_maxpool_by_rows(p))
		cuda_maxpool_rows(p, NULL, stream);
	else
		maxpool_any(p, stream);
}

void cuda_maxpool_grad(const struct cuda_pool *p, cudaStream_t stream)
{
	if (p->place && has_fours(p))
		maxpool_four(p, stream);
	else if (p->place)
		maxpool_kept(p, stream);
	else
		maxpool_again(p, stream);
}

/* ---- over the whole image -------------------------------------------------------------------- */

#define GAP_AHEAD 8 /* pixels that a thread loads at a time */

/* A block handles some channels of an image, by packs; the rows of its threads share the pixels. */
template <int N, typename T>
__global__ void __launch_bounds__(COLUMN_THREADS) gap_kernel(struct cuda_gap p)
{
	__shared__ float share[COLUMN_THREADS * N];
	const int64_t c = column_of(N), b = blockIdx.z;
	const T *image = as<const T>(p.image) + b * p.pixels * p.c + c;
	float sum[N] = {};

	if (c < p.c)
		over_rows<GAP_AHEAD, packed<N, T>>(
			p.pixels, [&](int64_t i, auto &part) { fetch(image + i * p.c, part); },
			[&](int64_t, const auto &part) {
#pragma unroll
				for (int k = 0; k < N; k++)
					sum[k] += part.at(k);
			});
	column_sum(sum, share);
	if (threadIdx.y || c >= p.c)
		return;
#pragma unroll
	for (int k = 0; k < N; k++)
		sum[k] /= p.sums ? 1 : (float)p.pixels;
	store_sum(as<T>(p.vector) + b * p.c + c, sum, p.accumulate);
}

template <int N, typename T> __global__ void gap_grad_kernel(struct cuda_gap p, int64_t n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, packs = (unsigned)(p.c + N - 1) / N;
	int64_t c = i % packs * N, pixel = i / packs, b = i / packs / (unsigned)p.pixels;
	float v[N];

	if (i >= n)
		return;
	load((const T *)p.vector.data + b * p.c + c, v);
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] /= p.sums ? 1 : (float)p.pixels;
	if (p.base.data) {
		float base[N];

		load((const T *)p.base.data + pixel * p.c + c, base);
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] += base[k];
	}
	store((T *)p.image.data + pixel * p.c + c, v);
}

static struct cuda_gap images_of(const struct cuda_gap *p, int64_t first, int images)
{
	struct cuda_gap some = *p;

	some.batch = images;
	some.base = from(p->base, first * p->pixels * p->c);
	some.image = from(p->image, first * p->pixels * p->c);
	some.vector = from(p->vector, first * p->c);
	return some;
}

#define GAP_LARGE 1024 /* pixels of a large image */

/* The threads of a block along the channels: of large images fewer where some would have none, so
 * that more blocks share an image. */
static int gap_lanes(int packs, int64_t pixels)
{
	int lanes = packs >= WARP ? WARP : PACK;

	while (pixels >= GAP_LARGE && lanes > PACK && packs % lanes)
		lanes /= 2;
	return lanes;
}

template <int N, typename T> static void gap_of(const struct cuda_gap *p, cudaStream_t stream)
{
	const int packs = (p->c + N - 1) / N, tx = gap_lanes(packs, p->pixels);
	const dim3 block(tx, COLUMN_THREADS / tx);

	by_images(p->batch, 1, [&](int64_t first, int images) {
		gap_kernel<N, T>
			<<<dim3(blocks_for(packs, tx), 1, (unsigned)images), block, 0, stream>>>(
				images_of(p, first, images));
	});
}

template <int N, typename T> static void gap_grad_of(const struct cuda_gap *p, cudaStream_t stream)
{
	const int64_t each = (int64_t)p->pixels * ((p->c + N - 1) / N);

	by_images(p->batch, each, [&](int64_t first, int images) {
		gap_grad_kernel<N, T><<<blocks_for(images * each, THREADS), THREADS, 0, stream>>>(
			images_of(p, first, images), images * each);
	});
}

void cuda_gap_grad(const struct cuda_gap *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	with_type(p->image, [&](auto t) {
		using T = decltype(t);

		packs ? gap_grad_of<PACK, T>(p, stream) : gap_grad_of<1, T>(p, stream);
	});
}

void cuda_gap(const struct cuda_gap *p, cudaStream_t stream)
{
	bool packs = p->c % PACK == 0;

	with_type(p->image, [&](auto t) {
		using T = decltype(t);

		packs ? gap_of<PACK, T>(p, stream) : gap_of<1, T>(p, stream);
	});
}
