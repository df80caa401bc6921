/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantizes x[n] to 8 bits, scaled by the maximum of x or of earlier steps, in packs of 8; computes
 * the next limits from ranges[rows,2+H]; transposes bytes x[rows,columns]. The result of a maximum
 * does not depend on the order.
 */
#include "f8.cuh"

#define THREADS 256

/* ---- quantize -------------------------------------------------------------------------------- */

__device__ __forceinline__ float larger(float a, float b)
{
	return fmaxf(a, b); /* the number, if one of the two is NaN */
}

template <typename X>
__device__ __forceinline__ float largest_of(const float (&v)[PACK], float most, const X *)
{
#pragma unroll
	for (int k = 0; k < PACK; k++)
		most = larger(most, fabsf(v[k]));
	return most;
}

/* The maximum of partial[n], n >= 1, returned in all threads. */
__device__ __forceinline__ float largest_part(const float *partial, int n, float *share)
{
	float most = 0;

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		most = larger(most, partial[i]);
	return block_max(most, share);
}

__device__ __forceinline__ bool has_limit(const struct cuda_quantize &p)
{
	return p.before && p.before[0] > 0;
}

/* Writes maxima of x to partial[blocks]; runs when no earlier limit is given. */
template <typename X> __global__ void maxima_kernel(struct cuda_quantize p)
{
	__shared__ float share[WARP];
	const int64_t step = PACK * (int64_t)blockDim.x * gridDim.x;
	float most = 0, v[PACK];

	if (has_limit(p))
		return;
	for (int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < p.n;
		i += step) {
		load_some(as<const X>(p.x) + i, v, p.n - i);
		most = largest_of(v, most, (const X *)0);
	}
	most = block_max(most, share);
	if (threadIdx.x == 0)
		p.partial[blockIdx.x] = most;
}

/* Quantizes, and writes the maxima of x to the second row of partial. */
template <typename X, __nv_fp8_interpretation_t TYPE>
__global__ void quantize_kernel(struct cuda_quantize p)
{
	__shared__ float share[WARP];
	const int64_t step = PACK * (int64_t)blockDim.x * gridDim.x;
	float limit = has_limit(p) ? p.before[0] : largest_part(p.partial, gridDim.x, share);
	float scale = scale_of(limit, p.top), most = 0, v[PACK];

	for (int64_t i = PACK * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < p.n;
		i += step) {
		load_some(as<const X>(p.x) + i, v, p.n - i);
		most = largest_of(v, most, (const X *)0);
#pragma unroll
		for (int k = 0; k < PACK; k++)
			v[k] = __fmul_rn(v[k], scale);
		store_codes<TYPE>(p.y + i, v, p.n - i);
	}
	__syncthreads();
	most = block_max(most, share);
	if (threadIdx.x == 0)
		p.partial[gridDim.x + blockIdx.x] = most;
}

/* One block, started after all of x is quantized. */
__global__ void finish_kernel(struct cuda_quantize p)
{
	__shared__ float share[WARP];
	float most = largest_part(p.partial + p.blocks, p.blocks, share);
	float limit = has_limit(p) ? p.before[0] : most;

	__syncthreads();
	if (threadIdx.x)
		return;
	*p.inverse = __fdiv_rn(1, scale_of(limit, p.top));
	if (!p.row)
		return;
	p.row[0] = limit;
	p.row[1] = larger(p.row[1], most);
}

int cuda_quantize_blocks(int processors, int64_t n)
{
	int64_t most = (n + PACK * THREADS - 1) / (PACK * THREADS),
		blocks = 8 * (int64_t)processors;

	return (int)(blocks < most ? blocks : most);
}

void cuda_quantize(const struct cuda_quantize *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		using X = decltype(t);

		maxima_kernel<X><<<p->blocks, THREADS, 0, stream>>>(*p);
		if (p->e5m2)
			quantize_kernel<X, __NV_E5M2><<<p->blocks, THREADS, 0, stream>>>(*p);
		else
			quantize_kernel<X, __NV_E4M3><<<p->blocks, THREADS, 0, stream>>>(*p);
	});
	finish_kernel<<<1, THREADS, 0, stream>>>(*p);
}

/* ---- rescale: a block handles one row -------------------------------------------------------- */

__global__ void rescale_kernel(float *ranges, int64_t length)
{
	__shared__ float share[WARP];
	float *row = ranges + blockIdx.x * (length + 2), *last = row + 2, most = 0;
	const float now = row[1];
	const bool joins = isfinite(now) && now > 0;
	const int64_t chunks = (length + blockDim.x - 1) / blockDim.x;

	/* backwards, because each element is moved up by one */
	for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
		const int64_t i = chunk * blockDim.x + threadIdx.x;
		float v = 0;

		if (i < length)
			v = !joins ? last[i] : i ? last[i - 1] : now;
		__syncthreads();
		if (i < length)
			last[i] = v;
		__syncthreads();
		most = larger(most, v);
	}
	most = block_max(most, share);
	if (threadIdx.x == 0) {
		row[0] = most;
		row[1] = 0;
	}
}

void cuda_rescale(float *ranges, int64_t rows, int64_t length, cudaStream_t stream)
{
	rescale_kernel<<<(unsigned)rows, THREADS, 0, stream>>>(ranges, length);
}

/* ---- bytes: a block handles a tile, a thread 4 x 4 bytes of it ------------------------------- */

#define SIDE 16 /* words of a tile's rows and columns (64 bytes) */

/* Transposes 4 x 4 bytes. */
__device__ __forceinline__ void turn(unsigned (&w)[4])
{
	unsigned a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
	unsigned c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);

	w[0] = __byte_perm(a, b, 0x5410);
	w[1] = __byte_perm(a, b, 0x7632);
	w[2] = __byte_perm(c, d, 0x5410);
	w[3] = __byte_perm(c, d, 0x7632);
}

__global__ void transpose_kernel(const uint8_t *x, uint8_t *y, int64_t rows, int64_t columns)
{
	__shared__ unsigned tile[4 * SIDE][SIDE + 1];
	const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
	const int64_t row = 4 * SIDE * (int64_t)blockIdx.y, column = 4 * SIDE * (int64_t)blockIdx.x;
	unsigned w[4] = {};

	if (row + 4 * ty < rows && column + 4 * tx < columns)
#pragma unroll
		for (int i = 0; i < 4; i++)
			w[i] = *reinterpret_cast<const unsigned *>(
				x + (row + 4 * ty + i) * columns + column + 4 * tx);
	turn(w);
#pragma unroll
	for (int i = 0; i < 4; i++)
		tile[4 * tx + i][ty] = w[i];
	__syncthreads();
	if (column + 4 * ty >= columns || row + 4 * tx >= rows)
		return;
#pragma unroll
	for (int i = 0; i < 4; i++)
		*reinterpret_cast<unsigned *>(y + (column + 4 * ty + i) * rows + row + 4 * tx) =
			tile[4 * ty + i][tx];
}

void cuda_transpose_bytes(
	const void *x, void *y, int64_t rows, int64_t columns, cudaStream_t stream)
{
	dim3 grid(blocks_for(columns, 4 * SIDE), blocks_for(rows, 4 * SIDE));

	transpose_kernel<<<grid, SIDE * SIDE, 0, stream>>>(
		static_cast<const uint8_t *>(x), static_cast<uint8_t *>(y), rows, columns);
}
