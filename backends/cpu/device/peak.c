/* SPDX-License-Identifier: Apache-2.0 */
/* The processor's name, and the speed of those bf16 instructions that oneDNN uses. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "peak.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

void cpu_brand(char *ret, size_t size)
{
	unsigned text[13] = {0};
	const char *name = (const char *)text;

	for (unsigned i = 0; i < 3; i++) {
		if (!__get_cpuid(0x80000002u + i, &text[4 * i], &text[4 * i + 1], &text[4 * i + 2],
			    &text[4 * i + 3]))
			break;
	}
	name += strspn(name, " ");
	snprintf(ret, size, "%s", *name ? name : "CPU");
}

/* False also if the system or ONEDNN_MAX_CPU_ISA disables the instructions. */
static bool onednn_has(dnnl_cpu_isa_t isa)
{
	return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

bool cpu_has_tiles(void)
{
	return onednn_has(dnnl_cpu_isa_avx512_core_amx);
}

/* A core's bf16 dot products by its f32 multiply-adds, in GFLOP/s: Zen 4 (AMD) 236 by 118, Sapphire
 * Rapids without tiles (Intel) half of 177. */
bool cpu_bf16_is_fast(void)
{
	return cpu_has_tiles() ||
	       (__builtin_cpu_supports("avx512bf16") && onednn_has(dnnl_cpu_isa_avx512_core_bf16) &&
		       __builtin_cpu_is("amd"));
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static double dot_rate(void)
{
	enum { CHAINS = 12, ROUNDS = 2000 };
	volatile float first[CHAINS] = {0}; /* of equal chains a compiler makes one */
	__m512 sum[CHAINS];
	__m512bh x = (__m512bh)_mm512_setzero_si512();

	for (int c = 0; c < CHAINS; c++)
		sum[c] = _mm512_set1_ps(first[c]);
	double start = omp_get_wtime();
	for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 12
		for (int c = 0; c < CHAINS; c++)
			sum[c] = _mm512_dpbf16_ps(sum[c], x, x);
		__asm__ volatile("" : "+v"(x));
	}
	double seconds = omp_get_wtime() - start;
	for (int c = 1; c < CHAINS; c++)
		sum[0] = _mm512_add_ps(sum[0], sum[c]);
	return _mm512_reduce_add_ps(sum[0]) == 0 ? 64. * CHAINS * ROUNDS / seconds : 0;
}

double cpu_peak_bf16(void)
{
	double best = 0;

	if (!__builtin_cpu_supports("avx512bf16") || !onednn_has(dnnl_cpu_isa_avx512_core_bf16))
		return 0;
	for (int i = 0; i < 20; i++) {
		double rate = dot_rate();
		best = rate > best ? rate : best;
	}
	return best;
}

#else

void cpu_brand(char *ret, size_t size)
{
	snprintf(ret, size, "CPU");
}

bool cpu_has_tiles(void)
{
	return false;
}

bool cpu_bf16_is_fast(void)
{
	return false;
}

double cpu_peak_bf16(void)
{
	return 0;
}

#endif
