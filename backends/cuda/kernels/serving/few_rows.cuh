/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of products of few rows (few_rows.cu, few_rows_held.cu). */
#ifndef JM_CUDA_FEW_ROWS_CUH
#define JM_CUDA_FEW_ROWS_CUH

#include "backends/cuda/kernels/mma.cuh"

#define COLUMNS 16 /* of y, that a block computes at a time */

/* 8 elements of 16 bits, or 16 of 8 bits. */
struct words {
	unsigned w[4];
};

/* From memory by whole lines, the other half of which another warp or the next chunk takes. */
__device__ __forceinline__ struct words read_once(const void *p, bool exists)
{
	struct words r = {{0, 0, 0, 0}};

	if (exists)
		asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
			     : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
			     : "l"(p));
	return r;
}

__device__ __forceinline__ struct words read_words(const void *p, bool exists)
{
	const uint4 q = exists ? *static_cast<const uint4 *>(p) : make_uint4(0, 0, 0, 0);

	return {{q.x, q.y, q.z, q.w}};
}

#endif
