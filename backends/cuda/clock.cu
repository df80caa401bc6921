/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's own clock (%globaltimer, ns), written to host memory: once at a place in a stream, and in answer to
 * the host, round after round.
 */
#include "kernels.h"

#define PATIENCE 50000000u /* ns that a round may take before the kernel gives up */

static __device__ __forceinline__ uint64_t now(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
	return t;
}

__global__ void stamp_kernel(uint64_t *to)
{
	*(volatile uint64_t *)to = now();
	__threadfence_system();
}

void cuda_stamp_start(uint64_t *to, cudaStream_t stream)
{
	stamp_kernel<<<1, 1, 0, stream>>>(to);
}

__global__ void exchange_kernel(struct cuda_exchange *x, uint32_t rounds)
{
	for (uint32_t i = 1; i <= rounds; i++) {
		const uint64_t begin = now();
		uint64_t t = begin;

		while (*(volatile uint32_t *)&x->asked != i) {
			t = now();
			if (t - begin > PATIENCE)
				return;
		}
		t = now();
		*(volatile uint64_t *)&x->time = t;
		__threadfence_system();
		*(volatile uint32_t *)&x->told = i;
	}
}

void cuda_exchange_start(struct cuda_exchange *x, uint32_t rounds, cudaStream_t stream)
{
	exchange_kernel<<<1, 1, 0, stream>>>(x, rounds);
}
