/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions for products on tensor cores from compute capability 8.0 on, as functions. */
#ifndef JM_CUDA_MMA_CUH
#define JM_CUDA_MMA_CUH

#include "f8.cuh"

/* Copies BYTES to shared memory, or writes zeros. */
template <int BYTES>
__device__ __forceinline__ void copy_async(unsigned to, const void *from, bool inside)
{
	const int bytes = inside ? BYTES : 0;

	static_assert(BYTES == 16 || BYTES == 4, "a size that the instruction has");
	if constexpr (BYTES == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
			"r"(bytes));
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
			"r"(bytes));
}

/* Ends a group of copies. */
__device__ __forceinline__ void copies_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all groups of this thread but the last N. */
template <int N> __device__ __forceinline__ void copies_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The nearest number of tf32. */
__device__ __forceinline__ unsigned tf32(float x)
{
	unsigned y;

	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
	return y;
}

/* Four blocks of 8 rows of 16 bytes; each lane gives the address of a row. */
__device__ __forceinline__ void load_blocks(unsigned (&to)[4], unsigned at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(at));
}

/* The same, each block transposed. */
__device__ __forceinline__ void load_turned(unsigned (&to)[4], unsigned at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
		     : "r"(at));
}

/* d[16,8] += a b, with a and b of 32 bytes along the dimension that is summed over. The first
 * argument gives the type of a and b; f32 is used as tf32. */
#define MMA(shape, types)                                                                          \
	asm("mma.sync.aligned." shape ".row.col.f32." types ".f32 "                                \
	    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                \
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                   \
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

__device__ __forceinline__ void multiply(
	float, float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	MMA("m16n8k8", "tf32.tf32");
}

__device__ __forceinline__ void multiply(
	bf16, float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	MMA("m16n8k16", "bf16.bf16");
}

__device__ __forceinline__ void multiply(
	half, float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	MMA("m16n8k16", "f16.f16");
}

/* Compute capability 8.9 and later multiply these. */
__device__ __forceinline__ void multiply(
	e4m3, float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
#if __CUDA_ARCH__ >= 890
	MMA("m16n8k32", "e4m3.e4m3");
#endif
}

#endif
