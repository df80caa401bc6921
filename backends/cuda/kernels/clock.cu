/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the GPU's clock (%globaltimer, ns) to host memory: once at a point in a stream, or
 * repeatedly as answers to the host.
 */
#include "kernels.h"

#define ROUND_LIMIT_NS 50000000u /* the kernel ends if a round takes longer */

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
			if (t - begin > ROUND_LIMIT_NS)
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
