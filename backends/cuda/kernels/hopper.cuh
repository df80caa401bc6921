/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions of compute capability 9.0 as functions: barriers in shared memory, copies of boxes
 * of a tensor to shared memory (TMA), and products of four warps together (wgmma).
 *
 * A box in shared memory is made of chunks of 64 columns of 2 bytes; a chunk has its rows one after
 * the other, 128 bytes each, swizzled in groups of 8 rows (1024 bytes, to which chunks are
 * aligned).
 */
#ifndef JM_CUDA_HOPPER_CUH
#define JM_CUDA_HOPPER_CUH

#include <cuda.h>

#include "common.cuh"

#define CHUNK_ROW 128 /* bytes */

/* ---- barriers: 8 bytes each ------------------------------------------------------------------ */

__device__ __forceinline__ void barrier_init(uint32_t bar, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals));
}

/* Makes the barriers that were initialised known to the unit that copies. */
__device__ __forceinline__ void barrier_publish()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrives; the phase ends when that many bytes have been copied, too. */
__device__ __forceinline__ void barrier_expect(uint32_t bar, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
		     : "memory");
}

/* Waits for the end of the phase with this parity; the first phase has parity 0. */
__device__ __forceinline__ void barrier_wait(uint32_t bar, int parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		     "@done bra over;\n"
		     "bra again;\n"
		     "over:\n"
		     "}" ::"r"(bar), "r"(parity)
		     : "memory");
}

/* Waits for the other threads of a part of the block, as a warp group; `first` is the barrier of
 * the first of these parts. */
template <int THREADS_OF> __device__ __forceinline__ void wait_together(int first)
{
	asm volatile(
		"bar.sync %0, %1;" ::"r"(first + (int)threadIdx.x / THREADS_OF), "n"(THREADS_OF)
		: "memory");
}

/* Arrives there without waiting. */
template <int THREADS_OF> __device__ __forceinline__ void leave_together(int first)
{
	asm volatile(
		"bar.arrive %0, %1;" ::"r"(first + (int)threadIdx.x / THREADS_OF), "n"(THREADS_OF)
		: "memory");
}

/* ---- copies that end at a barrier ------------------------------------------------------------ */

/* The box of 64 rows and columns from (column, row, batch) on; what lies outside of the tensor is
 * 0. */
__device__ __forceinline__ void copy_box(
	uint32_t to, const CUtensorMap *map, int column, int row, int batch, uint32_t bar)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
		     "l"(map), "r"(column), "r"(row), "r"(batch), "r"(bar)
		     : "memory");
}

/* The box of an image from (channel, column, row, batch) on; what lies outside of it is 0. */
__device__ __forceinline__ void copy_pixels(uint32_t to, const CUtensorMap *map, int channel,
	int column, int row, int batch, uint32_t bar)
{
	asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		     "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
		     "l"(map), "r"(channel), "r"(column), "r"(row), "r"(batch), "r"(bar)
		     : "memory");
}

/* The box of a matrix from (column, row) on. */
__device__ __forceinline__ void copy_rows(
	uint32_t to, const CUtensorMap *map, int column, int row, uint32_t bar)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		     "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
		     "l"(map), "r"(column), "r"(row), "r"(bar)
		     : "memory");
}

/* Addresses and bytes are multiples of 16. */
__device__ __forceinline__ void copy_bytes(uint32_t to, const void *from, int bytes, uint32_t bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			     to),
		     "l"(from), "r"(bytes), "r"(bar)
		     : "memory");
}

/* ---- copies to global memory, which a thread commits and waits for --------------------------- */

__device__ __forceinline__ void send_bytes(void *to, uint32_t from, int bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
		     "r"(from), "r"(bytes)
		     : "memory");
}

/* Adds f32. */
__device__ __forceinline__ void add_bytes(float *to, uint32_t from, int bytes)
{
	asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
		     "r"(from), "r"(bytes)
		     : "memory");
}

__device__ __forceinline__ void send_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until all bytes are written. */
__device__ __forceinline__ void send_wait()
{
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Orders this thread's accesses to global memory, and copies. */
__device__ __forceinline__ void copy_fence()
{
	asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* The same for shared memory, which products read, too. */
__device__ __forceinline__ void shared_fence()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers ------------------------------------------------------------------------------- */

template <int N> __device__ __forceinline__ void more_registers()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void fewer_registers()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- products of a warp group ---------------------------------------------------------------- */

__device__ __forceinline__ void product_fence()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a group of products. */
__device__ __forceinline__ void product_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups are left. */
template <int N> __device__ __forceinline__ void product_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* The results of products are not read before this point. */
template <int N> __device__ __forceinline__ void results_from_here(float (&d)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+f"(d[i])::"memory");
}

/* Describes a matrix in shared memory at `at` in its low half, for matrix_of; beyond: bytes from a
 * chunk to the next, where columns are not those that are summed over. A matrix n bytes further on
 * has n / 16 more. */
__device__ __forceinline__ uint32_t matrix_low(uint32_t at, uint32_t beyond)
{
	return (at & 0x3ffff) >> 4 | beyond >> 4 << 16;
}

/* EIGHT: bytes from eight rows to the next eight. */
template <int EIGHT = 8 * CHUNK_ROW> __device__ __forceinline__ uint64_t matrix_of(uint32_t low)
{
	uint64_t d;

	asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "n"(EIGHT >> 4 | 1 << 30));
	return d;
}

template <int EIGHT = 8 * CHUNK_ROW>
__device__ __forceinline__ uint64_t matrix_at(uint32_t at, uint32_t beyond)
{
	return matrix_of<EIGHT>(matrix_low(at, beyond));
}

#define REGS_32 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_64 \
	REGS_32 ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_96 \
	REGS_64 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGS_128 \
	REGS_64 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
	"%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
	"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OPERANDS_4(kind, i)  kind(d[i]), kind(d[i + 1]), kind(d[i + 2]), kind(d[i + 3])
#define OPERANDS_16(kind, i) \
	OPERANDS_4(kind, i), OPERANDS_4(kind, i + 4), OPERANDS_4(kind, i + 8), OPERANDS_4(kind, i + 12)
#define OPERANDS_32(kind, i) OPERANDS_16(kind, i), OPERANDS_16(kind, i + 16)
#define OPERANDS_64(kind, i) OPERANDS_32(kind, i), OPERANDS_32(kind, i + 32)

#define WGMMA(n, type) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " "

/* The instruction `text` of type T. */
#define BY_TYPE(text, ...)                                                                         \
	if constexpr (std::is_same<T, half>::value)                                                 \
		asm volatile(text("f16") __VA_ARGS__);                                              \
	else                                                                                        \
		asm volatile(text("bf16") __VA_ARGS__)

/* Whether d is added: the predicate that compares 0 with 0. */
#define FROM_MEMORY(type, n, regs, a, b, compare)                                                          \
	"{\n"                                                                                         \
	".reg .pred add;\n"                                                                           \
	"setp." compare ".b32 add, 0, 0;\n" WGMMA(n, type) "{" regs "}, %" a ", %" b ", add, 1, 1, 0, 0;\n"  \
	"}"

#define MEMORY_64(compare, type)  FROM_MEMORY(type, 64, REGS_32, "32", "33", compare)
#define MEMORY_128(compare, type) FROM_MEMORY(type, 128, REGS_64, "64", "65", compare)
#define FIRST_64(type)		  MEMORY_64("ne", type)
#define FIRST_128(type)		  MEMORY_128("ne", type)
#define NEXT_64(type)		  MEMORY_64("eq", type)
#define NEXT_128(type)		  MEMORY_128("eq", type)

/* d[64,N] = a[64,16] b[N,16]^T */
template <typename T> __device__ __forceinline__ void product_first(float (&d)[32], uint64_t a, uint64_t b)
{
	BY_TYPE(FIRST_64, : OPERANDS_32("=f", 0) : "l"(a), "l"(b));
}

template <typename T> __device__ __forceinline__ void product_first(float (&d)[64], uint64_t a, uint64_t b)
{
	BY_TYPE(FIRST_128, : OPERANDS_64("=f", 0) : "l"(a), "l"(b));
}

/* d[64,N] += a[64,16] b[N,16]^T */
template <typename T> __device__ __forceinline__ void product_next(float (&d)[32], uint64_t a, uint64_t b)
{
	BY_TYPE(NEXT_64, : OPERANDS_32("+f", 0) : "l"(a), "l"(b));
}

template <typename T> __device__ __forceinline__ void product_next(float (&d)[64], uint64_t a, uint64_t b)
{
	BY_TYPE(NEXT_128, : OPERANDS_64("+f", 0) : "l"(a), "l"(b));
}

#define FROM_REGISTERS(type, n, regs, a0, a1, a2, a3, b, add)                                          \
	"{\n"                                                                                         \
	".reg .pred add;\n"                                                                           \
	"setp.ne.b32 add, %" add ", 0;\n" WGMMA(n, type) "{" regs "}, {%" a0 ", %" a1 ", %" a2 ", %" a3      \
	"}, %" b ", add, 1, 1, 1;\n"                                                                  \
	"}"
#define LEFT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)

#define ROWS_64(type)  FROM_REGISTERS(type, 64, REGS_32, "32", "33", "34", "35", "36", "37")
#define ROWS_128(type) FROM_REGISTERS(type, 128, REGS_64, "64", "65", "66", "67", "68", "69")
#define ROWS_256(type) \
	FROM_REGISTERS(type, 256, REGS_128, "128", "129", "130", "131", "132", "133")

/* d[64,N] = add d + a[64,16] b[16,N], a in registers; the columns of b are not those summed over */
template <typename T>
__device__ __forceinline__ void product_rows(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
	BY_TYPE(ROWS_64, : OPERANDS_32("+f", 0) : LEFT);
}

template <typename T>
__device__ __forceinline__ void product_rows(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add)
{
	BY_TYPE(ROWS_128, : OPERANDS_64("+f", 0) : LEFT);
}

template <typename T>
__device__ __forceinline__ void product_rows(float (&d)[128], const uint32_t (&a)[4], uint64_t b, int add)
{
	BY_TYPE(ROWS_256, : OPERANDS_64("+f", 0), OPERANDS_64("+f", 64) : LEFT);
}

#define KEPT_64(type)                                                                              \
	"{\n"                                                                                         \
	".reg .pred add;\n"                                                                           \
	"setp.ne.b32 add, %37, 0;\n" WGMMA(64, type) "{" REGS_32 "}, {%32, %33, %34, %35}, %36, add, 1, 1, 0;\n" \
	"}"

/* d[64,64] = add d + a[64,16] b[64,16]^T, a in registers */
template <typename T>
__device__ __forceinline__ void product_kept(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
	BY_TYPE(KEPT_64, : OPERANDS_32("+f", 0) : LEFT);
}

#define COLUMNS_64(type)                                                                           \
	"{\n"                                                                                         \
	".reg .pred add;\n"                                                                           \
	"setp.eq.b32 add, 0, 0;\n" WGMMA(64, type) "{" REGS_32 "}, %32, %33, add, 1, 1, 1, 1;\n"       \
	"}"

/* d[64,64] += a[16,64]^T b[16,64] */
template <typename T>
__device__ __forceinline__ void product_columns(float (&d)[32], uint64_t a, uint64_t b)
{
	BY_TYPE(COLUMNS_64, : OPERANDS_32("+f", 0) : "l"(a), "l"(b));
}

#define COLUMNS_192(type)                                                                          \
	"{\n"                                                                                         \
	".reg .pred add;\n"                                                                           \
	"setp.ne.b32 add, %98, 0;\n" WGMMA(192, type) "{" REGS_96 "}, %96, %97, add, 1, 1, 1, 1;\n"   \
	"}"

/* d[64,192] = add d + a[16,64]^T b[16,192] */
template <typename T>
__device__ __forceinline__ void product_columns(float (&d)[96], uint64_t a, uint64_t b, int add)
{
	BY_TYPE(COLUMNS_192, : OPERANDS_64("+f", 0), OPERANDS_32("+f", 64) : "l"(a), "l"(b), "r"(add));
}

#define STORED_128(type)                                                                           \
	"{\n"                                                                                         \
	".reg .pred add;\n"                                                                           \
	"setp.eq.b32 add, 0, 0;\n" WGMMA(128, type) "{" REGS_64 "}, %64, %65, add, 1, 1, 0, 1;\n"     \
	"}"

/* d[64,128] += a[64,16] b[16,128], both in shared memory */
template <typename T>
__device__ __forceinline__ void product_stored(float (&d)[64], uint64_t a, uint64_t b)
{
	BY_TYPE(STORED_128, : OPERANDS_64("+f", 0) : "l"(a), "l"(b));
}

/* d[64,64] += a[64,8] b[64,8]^T in tf32, a in registers */
__device__ __forceinline__ void product_tf32(float (&d)[32], const uint32_t (&a)[4], uint64_t b)
{
	asm volatile("{\n"
		     ".reg .pred add;\n"
		     "setp.eq.b32 add, 0, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" REGS_32 "}, {%32, %33, %34, %35}, %36, add, 1, 1;\n"
		     "}"
		     : OPERANDS_32("+f", 0)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif
