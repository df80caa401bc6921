/* SPDX-License-Identifier: Apache-2.0 */
/* Random data on which plans are timed. */
#include "image_kernels.h"
#include "common.cuh"

#define JM_RNG_INLINE static __device__ __forceinline__
#include "engine/graph/rng.h"

#define THREADS 256

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
