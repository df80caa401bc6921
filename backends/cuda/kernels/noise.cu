/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Noise of a step: y[b,i] = own[t[b]] x[b,i] + other[t[b]] e[b,i], and what the network should make
 * of it; samples of moments; the number of a step as waves; values of pixels; random data on which
 * plans are timed. A thread has an element.
 */
#include "noise.h"

#include "common.cuh"
#include "image_kernels.h"

#define JM_RNG_INLINE static __device__ __forceinline__
#include "engine/graph/rng.h"

#define THREADS 256

template <typename T> __global__ void noise_kernel(struct cuda_noise p)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i >= p.batch * p.each)
		return;
	const float2 part = reinterpret_cast<const float2 *>(p.parts)[p.t[i / p.each]];
	const float x = (float)as<const T>(p.x)[i], e = (float)as<const T>(p.e)[i];
	const float y = part.x * x + part.y * e, goal = p.velocity ? part.x * e - part.y * x : e;
	T *to = as<T>(p.y) + i;

	*to = (T)(y + (p.add_y ? (float)*to : 0));
	if (p.target)
		p.target[i] = goal + (p.add_target ? p.target[i] : 0);
}

void cuda_noise(const struct cuda_noise *p, cudaStream_t stream)
{
	with_type(p->x, [&](auto t) {
		noise_kernel<decltype(t)>
			<<<blocks_for(p->batch * p->each, THREADS), THREADS, 0, stream>>>(*p);
	});
}

template <typename T> __global__ void draw_kernel(struct cuda_draw p)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i >= p.batch * p.each)
		return;
	const T *mean = as<const T>(p.moments) + i / p.each * 2 * p.each + i % p.each;
	const float log_var = fminf(fmaxf((float)mean[p.each], p.least), p.most);
	const float y =
		p.factor * ((float)mean[0] + expf(log_var / 2) * (float)as<const T>(p.e)[i]);
	T *to = as<T>(p.y) + i;

	*to = (T)(y + (p.accumulate ? (float)*to : 0));
}

void cuda_draw(const struct cuda_draw *p, cudaStream_t stream)
{
	with_type(p->y, [&](auto t) {
		draw_kernel<decltype(t)>
			<<<blocks_for(p->batch * p->each, THREADS), THREADS, 0, stream>>>(*p);
	});
}

/* Angles reach hundreds of turns, so they are computed and reduced in f64. */
template <typename T> __global__ void waves_kernel(struct cuda_waves p)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, half = p.width / 2;

	if (i >= p.batch * half)
		return;
	const int64_t b = i / half, k = i % half;
	const double angle = p.t[b] * pow(10000.0, -(double)k / (double)half);
	T *to = as<T>(p.y) + b * p.width + k;

	*to = (T)(float)(cos(angle) + (p.accumulate ? (double)(float)*to : 0));
	to += half;
	*to = (T)(float)(sin(angle) + (p.accumulate ? (double)(float)*to : 0));
}

void cuda_waves(const struct cuda_waves *p, cudaStream_t stream)
{
	with_type(p->y, [&](auto t) {
		waves_kernel<decltype(t)>
			<<<blocks_for(p->batch * p->width / 2, THREADS), THREADS, 0, stream>>>(*p);
	});
}

template <typename T> __global__ void colours_kernel(struct cuda_colours p)
{
	const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i >= p.planes * p.each)
		return;
	const int c = (int)(i / p.each % 3);
	T *to = as<T>(p.y) + i;

	*to = (T)(p.factor[c] * (float)p.x[i] + p.shift[c] + (p.accumulate ? (float)*to : 0));
}

void cuda_colours(const struct cuda_colours *p, cudaStream_t stream)
{
	with_type(p->y, [&](auto t) {
		colours_kernel<decltype(t)>
			<<<blocks_for(p->planes * p->each, THREADS), THREADS, 0, stream>>>(*p);
	});
}

/* ---- random data ----------------------------------------------------------------------------- */

template <typename T> __global__ void random_kernel(T *x, int64_t n, uint64_t seed)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	uint64_t bits = jm_rng(seed, (uint64_t)i);
	float u = ((float)(bits >> 40) + 1) * 0x1p-24f, angle = (float)(bits & 0xffffff) * 0x1p-23f;

	x[i] = (T)(sqrtf(-2 * logf(u)) * cospif(angle)); /* Box-Muller */
}

/* Codes of 8 bits with a random sign: as e4m3 from 2^-4 to almost 2^4, and finite as e5m2. */
__global__ void codes_kernel(uint8_t *x, int64_t n, uint64_t seed)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;

	if (i < n) {
		uint64_t bits = jm_rng(seed, (uint64_t)i);

		x[i] = (uint8_t)((bits & 0x80) | (0x18 + (bits & 0x3f)));
	}
}

void cuda_random_codes(void *x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	codes_kernel<<<blocks_for(n, THREADS), THREADS, 0, stream>>>(
		static_cast<uint8_t *>(x), n, seed);
}

void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream)
{
	unsigned blocks = blocks_for(n, THREADS);

	with_type(x, [&](auto t) {
		random_kernel<<<blocks, THREADS, 0, stream>>>(as<decltype(t)>(x), n, seed);
	});
}
