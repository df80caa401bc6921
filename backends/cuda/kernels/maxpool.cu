/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max pooling of x[B,Y,X,C] in 16 bits with windows of 3 x 3 and stride 2, with or without the norm
 * whose result is pooled: the largest norm is that of the largest x, or of the smallest where gamma
 * is below 0, so that x is pooled and only maxima are normed. A thread has PACK channels of one
 * column of y and walks down ROWS rows; it finds the largest of each row of x once. Two channels
 * are compared at a time.
 */
#include "pool.cuh"
#include "batchnorm.cuh"

#define THREADS 256
#define ROWS	5 /* of y, of a thread: one more row of x is read for each of these runs */
#define PAIRS	(PACK / 2)
#define SIDE	3

struct pairs {
	unsigned v[PAIRS];
};

template <typename T> struct both_of;
template <> struct both_of<bf16> {
	using type = __nv_bfloat162;
	static constexpr unsigned lowest = 0xff80ff80u; /* minus infinity, twice */
};
template <> struct both_of<half> {
	using type = half2;
	static constexpr unsigned lowest = 0xfc00fc00u;
};

/* The larger of each of two; NaN if one is. */
template <typename T> __device__ __forceinline__ unsigned larger(unsigned a, unsigned b)
{
	using B = typename both_of<T>::type;
	B m = __hmax2_nan(*reinterpret_cast<B *>(&a), *reinterpret_cast<B *>(&b));

	return *reinterpret_cast<unsigned *>(&m);
}

/* Where a and b are equal, `is` in place of `other`. */
template <typename T>
__device__ __forceinline__ unsigned if_equal(unsigned a, unsigned b, unsigned is, unsigned other)
{
	using B = typename both_of<T>::type;
	const unsigned same = __heq2_mask(*reinterpret_cast<B *>(&a), *reinterpret_cast<B *>(&b));

	return (is & same) | (other & ~same);
}

/* The largest of three neighbours in a row of x, and which of them it is: the first of equals. */
struct peak {
	pairs value, place;
};

template <typename T> __device__ __forceinline__ peak peak_of(const pairs (&x)[SIDE])
{
	peak p;

#pragma unroll
	for (int i = 0; i < PAIRS; i++) {
		const unsigned m = larger<T>(larger<T>(x[0].v[i], x[1].v[i]), x[2].v[i]);

		p.value.v[i] = m;
		p.place.v[i] =
			if_equal<T>(x[0].v[i], m, 0, if_equal<T>(x[1].v[i], m, 0x10001u, 0x20002u));
	}
	return p;
}

/* The largest of three rows, and its place in the window. */
template <typename T>
__device__ __forceinline__ peak peak_of(const peak &a, const peak &b, const peak &c)
{
	peak p;

#pragma unroll
	for (int i = 0; i < PAIRS; i++) {
		const unsigned m = larger<T>(larger<T>(a.value.v[i], b.value.v[i]), c.value.v[i]);

		p.value.v[i] = m;
		p.place.v[i] = if_equal<T>(a.value.v[i], m, a.place.v[i],
			if_equal<T>(b.value.v[i], m, b.place.v[i] + SIDE * 0x10001u,
				c.place.v[i] + 2 * SIDE * 0x10001u));
	}
	return p;
}

/* The norm of the thread's channels. keep, flip: x becomes (x & keep) ^ flip, which is larger where
 * the norm is. */
template <bool NORM> struct maxima_norm {
	pairs keep, flip;
	float mean[PACK], scale[PACK], shift[PACK];

	__device__ __forceinline__ maxima_norm(const struct cuda_bn &n, int c)
	{
		load(n.mean + c, mean);
		load_scale(n.rstd, n.gamma, c, scale);
		load(n.beta + c, shift);
#pragma unroll
		for (int i = 0; i < PAIRS; i++) {
			const float a = scale[2 * i], b = scale[2 * i + 1];

			keep.v[i] = (a == 0 ? 0 : 0xffffu) | (b == 0 ? 0 : 0xffff0000u);
			flip.v[i] = (a < 0 ? 0x8000u : 0) | (b < 0 ? 0x80000000u : 0);
		}
	}
	__device__ __forceinline__ unsigned turned(int i, unsigned x) const
	{
		return (x & keep.v[i]) ^ flip.v[i];
	}
	template <typename T>
	__device__ __forceinline__ void apply(
		const struct cuda_bn &n, const pairs &x, float (&y)[PACK]) const
	{
		raw<PACK, T> t;

#pragma unroll
		for (int i = 0; i < PAIRS; i++)
			reinterpret_cast<unsigned *>(&t)[i] = x.v[i] ^ flip.v[i];
		load(t.v, y);
#pragma unroll
		for (int k = 0; k < PACK; k++) {
			y[k] = normed(y[k], mean[k], scale[k], shift[k]);
			if (n.relu)
				y[k] = y[k] < 0 ? 0 : y[k];
		}
	}
};

template <> struct maxima_norm<false> {
	__device__ __forceinline__ maxima_norm(const struct cuda_bn &, int)
	{
	}
	__device__ __forceinline__ unsigned turned(int, unsigned x) const
	{
		return x;
	}
	template <typename T>
	__device__ __forceinline__ void apply(
		const struct cuda_bn &, const pairs &x, float (&y)[PACK]) const
	{
		raw<PACK, T> t;

#pragma unroll
		for (int i = 0; i < PAIRS; i++)
			reinterpret_cast<unsigned *>(&t)[i] = x.v[i];
		load(t.v, y);
	}
};

/* Loads three neighbours of row `row`, as far as the image has them. */
template <typename T>
__device__ __forceinline__ void fetch_row(
	const struct cuda_pool &p, const T *image, int row, int column, uint4 (&x)[SIDE])
{
	constexpr unsigned lowest = both_of<T>::lowest;
	const bool is = row >= 0 && row < p.in[0];

#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		const int at = column + i;

		x[i] = make_uint4(lowest, lowest, lowest, lowest);
		if (is && at >= 0 && at < p.in[1])
			x[i] = __ldg(reinterpret_cast<const uint4 *>(
				image + ((int64_t)row * p.in[1] + at) * p.c));
	}
}

template <typename T, bool NORM>
__device__ __forceinline__ peak row_peak(const struct cuda_pool &p, const maxima_norm<NORM> &norm,
	int column, const uint4 (&x)[SIDE])
{
	pairs v[SIDE];

#pragma unroll
	for (int i = 0; i < SIDE; i++) {
		const bool is = column + i >= 0 && column + i < p.in[1];
		const unsigned q[PAIRS] = {x[i].x, x[i].y, x[i].z, x[i].w};

#pragma unroll
		for (int k = 0; k < PAIRS; k++)
			v[i].v[k] = !NORM || is ? norm.turned(k, q[k]) : both_of<T>::lowest;
	}
	return peak_of<T>(v);
}

/* Writes places, with the bit of those whose maximum is not above 0. */
template <typename T>
__device__ __forceinline__ void keep_places(
	unsigned char *to, const pairs &place, const raw<PACK, T> &y)
{
	using B = typename both_of<T>::type;
	const unsigned zero = 0;
	unsigned v[PAIRS];

#pragma unroll
	for (int i = 0; i < PAIRS; i++) {
		const unsigned open = __hgt2_mask(
			reinterpret_cast<const B *>(&y)[i], *reinterpret_cast<const B *>(&zero));

		v[i] = place.v[i] | (~open & PLACE_CLOSED * 0x10001u);
	}
	*reinterpret_cast<uint2 *>(to) =
		make_uint2(__byte_perm(v[0], v[1], 0x6420), __byte_perm(v[2], v[3], 0x6420));
}

template <typename T> __device__ __forceinline__ unsigned is_nan(unsigned x)
{
	using B = typename both_of<T>::type;
	const B v = *reinterpret_cast<B *>(&x);

	return __hneu2_mask(v, v);
}

/* A NaN equals nothing, so that its place is not known: here it becomes that of the last NaN of the
 * window, whose first pixel is (row, column). */
template <typename T>
__device__ __forceinline__ void find_nan(
	const struct cuda_pool &p, const T *image, int row, int column, peak &best)
{
	unsigned any = 0;

#pragma unroll
	for (int k = 0; k < PAIRS; k++)
		any |= is_nan<T>(best.value.v[k]);
	if (!any)
		return;
	for (int i = 0; i < SIDE * SIDE; i++) {
		const int y = row + i / SIDE, x = column + i % SIDE;

		if (y < 0 || y >= p.in[0] || x < 0 || x >= p.in[1])
			continue;
		const uint4 q = __ldg(
			reinterpret_cast<const uint4 *>(image + ((int64_t)y * p.in[1] + x) * p.c));
		const unsigned v[PAIRS] = {q.x, q.y, q.z, q.w};
#pragma unroll
		for (int k = 0; k < PAIRS; k++) {
			const unsigned here = is_nan<T>(v[k]);

			best.place.v[k] = (i * 0x10001u & here) | (best.place.v[k] & ~here);
		}
	}
}

/* Minus infinity also stands for what is beyond the image: where all pixels of a window have
 * it, the first of those inside is the largest. */
template <typename T>
__device__ __forceinline__ void keep_inside(int row, int column, peak &best)
{
	const unsigned first = ((row < 0 ? SIDE : 0) + (column < 0 ? 1 : 0)) * 0x10001u;

#pragma unroll
	for (int k = 0; k < PAIRS; k++)
		best.place.v[k] = if_equal<T>(
			best.value.v[k], both_of<T>::lowest, first, best.place.v[k]);
}

/* n: threads, of runs of rows, columns and packs. */
template <typename T, bool NORM>
__global__ void __launch_bounds__(THREADS)
	maxpool_rows_kernel(struct cuda_pool p, struct cuda_bn bn, int64_t n)
{
	const int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	const int runs[2] = {(p.out[0] + ROWS - 1) / ROWS, p.out[1]};

	if (index >= n)
		return;
	const place at = place_of<PACK>(index, runs, p.c);
	const T *image = as<const T>(p.x) + (int64_t)at.b * p.in[0] * p.in[1] * p.c + at.c;
	const int column = 2 * at.x - p.pad[1], first = at.y * ROWS;
	const int end = min(first + ROWS, p.out[0]);
	const maxima_norm<NORM> norm(bn, at.c);
	int row = 2 * first - p.pad[0];
	uint4 x[2][SIDE];
	peak above, below[2];

	const peak none = {
		{{both_of<T>::lowest, both_of<T>::lowest, both_of<T>::lowest, both_of<T>::lowest}},
		{}};
	fetch_row(p, image, row, column, x[0]);
	above = row < 0 ? none : row_peak<T>(p, norm, column, x[0]);
	fetch_row(p, image, row + 1, column, x[0]);
	fetch_row(p, image, row + 2, column, x[1]);
	for (int y = first; y < end; y++, row += 2) {
		const int64_t to = offset(p.out, p.c, at.b, y, at.x, at.c);
		raw<PACK, T> result;
		float v[PACK];
		peak best;

		below[0] = row + 1 < p.in[0] ? row_peak<T>(p, norm, column, x[0]) : none;
		below[1] = row + 2 < p.in[0] ? row_peak<T>(p, norm, column, x[1]) : none;
		if (y + 1 < end) {
			fetch_row(p, image, row + 3, column, x[0]);
			fetch_row(p, image, row + 4, column, x[1]);
		}
		best = peak_of<T>(above, below[0], below[1]);
		above = below[1];
		norm.template apply<T>(bn, best.value, v);
		store(result.v, v);
		*reinterpret_cast<raw<PACK, T> *>(as<T>(p.y) + to) = result;
		if (!p.place)
			continue;
		if constexpr (!NORM) { /* of a norm all of the channel is NaN */
			find_nan(p, image, row, column, best);
			if (row < 0 || column < 0)
				keep_inside<T>(row, column, best);
		}
		keep_places(p.place + to, best.place, result);
	}
}

bool cuda_maxpool_by_rows(const struct cuda_pool *p)
{
	bool fits = p->x.type != CUDA_F32 && p->y.type == p->x.type && p->c % PACK == 0 &&
		    !p->accumulate && p->pad[0] == p->pad[1];

	for (int i = 0; i < 2; i++)
		fits = fits && p->kernel[i] == SIDE && p->stride[i] == 2 && p->pad[i] <= 1;
	return fits;
}

void cuda_maxpool_rows(const struct cuda_pool *p, const struct cuda_bn *bn, cudaStream_t stream)
{
	const int64_t each = (int64_t)((p->out[0] + ROWS - 1) / ROWS) * p->out[1] * (p->c / PACK);
	const struct cuda_bn none = {};

	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if constexpr (sizeof(T) == 2)
			by_images(p->batch, each, [&](int64_t first, int images) {
				const struct cuda_pool some = images_of(p, first, images);
				const int64_t n = images * each;

				if (bn)
					maxpool_rows_kernel<T, true>
						<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(
							some, *bn, n);
				else
					maxpool_rows_kernel<T, false>
						<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(
							some, none, n);
			});
	});
}
