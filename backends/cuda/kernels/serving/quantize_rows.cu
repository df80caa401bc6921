/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of activations in e4m3, each scaled by its own maximum: of x[rows,width] as it is, of its
 * RMS norm (also after an add), or of swiglu. A block has a row, or a few, which it keeps in shared
 * memory in the type that the unfused op would write.
 */
#include "backends/cuda/kernels/f8.cuh"

#define MOST_THREADS 512
#define TOP	     448 /* of e4m3 */

enum source { PLAIN, NORM, SWIGLU };

/* Stores elements i to i + PACK - 1 of the row and keeps them as they were rounded. */
template <typename T> __device__ __forceinline__ void keep(T *row, int i, float (&v)[PACK])
{
	store(row + i, v);
	load(row + i, v);
}

/* The factors of a product in 8 bits, of elements i to i + PACK - 1 of a row. */
__device__ __forceinline__ void read_factors(const float *ws, int i, float (&v)[PACK])
{
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = 1;
	if (ws)
		load(ws + i, v);
}

/* v times the factors of its row and of its columns. */
__device__ __forceinline__ void scale(float (&v)[PACK], float row, const float (&columns)[PACK])
{
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] *= row * columns[k];
}

/* x, or the sum of x and b, which is also a result. */
template <typename T, bool SCALED>
__device__ __forceinline__ void read_sum(const struct cuda_quantize_rows &p, int64_t at, float row,
	const float (&columns)[PACK], float (&v)[PACK])
{
	float w[PACK];

	load(as<const T>(p.x) + at, v);
	if (!p.b.data)
		return;
	load(as<const T>(p.b) + at, w);
	if (SCALED)
		scale(w, row, columns);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = (float)(T)(v[k] + w[k]);
	if (p.sum.data)
		store(as<T>(p.sum) + at, v);
}

/* 1 / the roots of the mean squares of ROWS rows; leaves the rows themselves in `row`. */
template <typename T, bool SCALED, int ROWS>
__device__ __forceinline__ void norm_of(const struct cuda_quantize_rows &p,
	const float (&factor)[ROWS], T *row, float (*share)[WARP], float (&rstd)[ROWS])
{
	float v[PACK], columns[PACK], sum[ROWS] = {};

	for (int i = PACK * threadIdx.x; i < p.width; i += PACK * blockDim.x) {
		read_factors(SCALED ? p.ws : NULL, i, columns);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			const int64_t at = ((int64_t)blockIdx.x * ROWS + r) * p.width + i;

			read_sum<T, SCALED>(p, at, factor[r], columns, v);
			store(row + r * p.width + i, v);
#pragma unroll
			for (int k = 0; k < PACK; k++)
				sum[r] += v[k] * v[k];
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		rstd[r] = rsqrtf(block_sum(sum[r], share[r]) / p.width + p.eps);
		if (threadIdx.x == 0)
			p.rstd[blockIdx.x * ROWS + r] = rstd[r];
	}
}

template <typename T, bool SCALED>
__device__ __forceinline__ void read_gated(const struct cuda_quantize_rows &p, int64_t at,
	float row, const float (&gates)[PACK], const float (&ups)[PACK], float (&v)[PACK])
{
	const T *gate = as<const T>(p.x) + at;
	float up[PACK];

	load(gate, v);
	load(gate + p.width, up);
	if (SCALED) {
		scale(v, row, gates);
		scale(up, row, ups);
	}
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = v[k] * sigmoid<T>(v[k]) * up[k];
}

/* Writes row `at`, which was kept, times `up` in e4m3. */
template <typename T>
__device__ __forceinline__ void write_codes(
	const struct cuda_quantize_rows &p, int64_t at, const T *kept, float up)
{
	float v[PACK];

	for (int i = PACK * threadIdx.x; i < p.width; i += PACK * blockDim.x) {
		load(kept + i, v);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] = __fmul_rn(v[k], up);
		store_codes<__NV_E4M3>(p.y + at * p.width + i, v, PACK);
	}
	if (threadIdx.x == 0)
		p.inverse[at] = __fdiv_rn(1, up);
}

/* x rstd gamma of a row that norm_of left. */
template <typename T>
__device__ __forceinline__ void read_normed(
	const T *x, float rstd, const float (&gamma)[PACK], float (&v)[PACK])
{
	load(x, v);
#pragma unroll
	for (int k = 0; k < PACK; k++)
		v[k] = v[k] * rstd * gamma[k];
}

/* The largest of `most` and the magnitudes of v. */
__device__ __forceinline__ float most_of(const float (&v)[PACK], float most)
{
#pragma unroll
	for (int k = 0; k < PACK; k++)
		most = fmaxf(most, fabsf(v[k]));
	return most;
}

/* A block has ROWS rows. SCALED: what is read are products in 8 bits without their factors, which
 * are those of the row and of the column; several rows of a block share the latter. */
template <enum source SOURCE, typename T, bool SCALED, int ROWS>
__global__ void quantize_rows_kernel(struct cuda_quantize_rows p)
{
	extern __shared__ float4 memory[];
	__shared__ float share[2][ROWS][WARP];
	T *row = reinterpret_cast<T *>(memory);
	const int step = PACK * blockDim.x, first = PACK * threadIdx.x;
	const int64_t above = (int64_t)blockIdx.x * ROWS;
	float v[PACK], most[ROWS] = {}, rstd[ROWS] = {}, factor[ROWS];

	start_next();
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		factor[r] = SCALED ? p.xs[above + r] : 1;
	if (SOURCE == NORM)
		norm_of<T, SCALED>(p, factor, row, share[0], rstd);
	for (int i = first; i < p.width; i += step) {
		float left[PACK], right[PACK]; /* gamma; factors of the columns */

		if (SOURCE == NORM)
			load(p.gamma + i, left);
		if (SOURCE == SWIGLU && SCALED) {
			read_factors(p.ws, i, left);
			read_factors(p.ws, p.width + i, right);
		}
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			T *kept = row + r * p.width;

			if (SOURCE == PLAIN)
				load(as<const T>(p.x) + (above + r) * p.width + i, v);
			if (SOURCE == SWIGLU)
				read_gated<T, SCALED>(p, (above + r) * 2 * p.width + i, factor[r],
					left, right, v);
			if (SOURCE == NORM)
				read_normed(kept + i, rstd[r], left, v);
			keep(kept, i, v);
			most[r] = most_of(v, most[r]);
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		write_codes(p, above + r, row + r * p.width,
			scale_of(block_max(most[r], share[1][r]), TOP));
}

template <enum source SOURCE, typename T, bool SCALED, int ROWS>
static void rows_of(const struct cuda_quantize_rows *p, cudaStream_t stream)
{
	int bytes = ROWS * (int)p->width * (int)sizeof(T);

	if (bytes > 32 << 10)
		cudaFuncSetAttribute(quantize_rows_kernel<SOURCE, T, SCALED, ROWS>,
			cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	quantize_rows_kernel<SOURCE, T, SCALED, ROWS><<<(unsigned)(p->rows / ROWS),
		threads_for(p->width / PACK, MOST_THREADS), bytes, stream>>>(*p);
}

#define SCALED_NORMS 4 /* rows of a block */
#define SCALED_GATED 2

bool cuda_quantize_rows_knows(const struct cuda_quantize_rows *p)
{
	const bool good = p->width % PACK == 0 && p->width <= CUDA_NORM_WIDEST &&
			  (!p->gamma || p->x.type != CUDA_F32);

	return good && (!p->ws || (p->x.type == CUDA_BF16 && p->rows % SCALED_NORMS == 0));
}

void cuda_quantize_rows(const struct cuda_quantize_rows *p, cudaStream_t stream)
{
	if (p->ws && p->gamma)
		return rows_of<NORM, bf16, true, SCALED_NORMS>(p, stream);
	if (p->ws)
		return rows_of<SWIGLU, bf16, true, SCALED_GATED>(p, stream);
	with_type(p->x, [&](auto t) {
		using T = decltype(t);

		if (p->gamma)
			rows_of<NORM, T, false, 1>(p, stream);
		else if (p->gated)
			rows_of<SWIGLU, T, false, 1>(p, stream);
		else
			rows_of<PLAIN, T, false, 1>(p, stream);
	});
}
