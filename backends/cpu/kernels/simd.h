/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that all kernels of this folder share: vectors of the target's width, bf16 and f32
 * rows, exp and gelu, sizes.
 *
 * Every kernel file is compiled several times from the same source (portable, AVX2, AVX-512);
 * JM_CPU() gives its names the target's suffix. Fused multiply-adds are allowed
 * (-ffp-contract=fast), so the last bits differ between targets, never between runs on one.
 */
#ifndef JM_CPU_SIMD_H
#define JM_CPU_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef JM_CPU_TARGET
#define JM_CPU_TARGET base
#endif
#define JM_CPU_GLUE2(a, b) a##_##b
#define JM_CPU_GLUE(a, b)  JM_CPU_GLUE2(a, b)
#define JM_CPU(name)	   JM_CPU_GLUE(name, JM_CPU_TARGET)

#if defined(__AVX512F__)
#define JM_VL 16 /* floats in a vector */
#elif defined(__AVX2__)
#define JM_VL 8
#else
#define JM_VL 4
#endif

typedef float jm_vf __attribute__((vector_size(4 * JM_VL)));
typedef float jm_uf __attribute__((vector_size(4 * JM_VL), aligned(4), may_alias));
typedef float jm_v8f __attribute__((vector_size(32), aligned(4)));
typedef uint32_t jm_v8u __attribute__((vector_size(32), aligned(4)));
typedef uint16_t jm_v8h __attribute__((vector_size(16), aligned(2)));

#define JM_INLINE static inline __attribute__((always_inline, unused))

JM_INLINE int64_t jm_min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The next multiple of `unit`. */
JM_INLINE int64_t jm_up(int64_t n, int64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

JM_INLINE uint32_t jm_bits(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

JM_INLINE float jm_float(uint32_t u)
{
	float x;
	memcpy(&x, &u, sizeof x);
	return x;
}

JM_INLINE float jm_from_bf16(uint16_t h)
{
	return jm_float((uint32_t)h << 16);
}

/* Rounds to nearest, ties to even; keeps NaN. */
JM_INLINE uint16_t jm_to_bf16(float x)
{
	uint32_t u = jm_bits(x);
	uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
	uint32_t nan = (u >> 16) | 0x40u;

	return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* Loads n elements of x (f32 or bf16) from `first` on as f32 into y. */
JM_INLINE void jm_load(const void *x, bool bf16, size_t first, size_t n, float *restrict y)
{
	const uint16_t *h = (const uint16_t *)x + first;

	if (!bf16) {
		memcpy(y, (const float *)x + first, n * sizeof *y);
		return;
	}
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		y[i] = jm_from_bf16(h[i]);
}

JM_INLINE void jm_store(void *y, bool bf16, size_t first, size_t n, const float *restrict x)
{
	uint16_t *h = (uint16_t *)y + first;

	if (!bf16) {
		memcpy((float *)y + first, x, n * sizeof *x);
		return;
	}
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		h[i] = jm_to_bf16(x[i]);
}

/* The same without a copy if x is f32; returns the pointer to read from. */
JM_INLINE const float *jm_view(const void *x, bool bf16, size_t first, size_t n, float *restrict y)
{
	if (!bf16)
		return (const float *)x + first;
	jm_load(x, true, first, n, y);
	return y;
}

/* y += x if `add`, else y = x. A sum is rounded once. */
JM_INLINE void jm_emit(void *y, bool bf16, bool add, size_t first, size_t n, float *restrict x)
{
	const uint16_t *h = (const uint16_t *)y + first;
	const float *f = (const float *)y + first;

	if (add && bf16) {
		for (size_t i = 0; i < n; i++)
			x[i] += jm_from_bf16(h[i]);
	} else if (add) {
		for (size_t i = 0; i < n; i++)
			x[i] += f[i];
	}
	jm_store(y, bf16, first, n, x);
}

/*
 * e^x for x <= 87, relative error under 2e-7 (checked in tests/unit/backends/cpu/test_cpu.c); 0
 * below -87. This suffices for softmax and the gates below. x = k ln 2 + r, |r| <= ln 2 / 2; the
 * polynomial of degree 6 for e^r has the smallest relative error (3e-9).
 */
JM_INLINE float jm_exp(float x)
{
	const float magic =
		12582912.f; /* 1.5 * 2^23: the low bits of a sum with it are the integer */
	float in = x < -87.f ? -87.f : x, rounded = in * 1.44269504f + magic, k = rounded - magic;
	float r = (in - k * 0.693359375f) - k * -2.12194440e-4f;
	float p = 1.38145848e-3f;

	p = p * r + 8.36872403e-3f;
	p = p * r + 4.16683890e-2f;
	p = p * r + 1.66665211e-1f;
	p = p * r + 0.49999994f;
	p = p * r * r + r + 1.f;
	p *= jm_float((jm_bits(rounded) + 127) << 23);
	return x < -87.f ? 0.f : p;
}

/* 1/x for 1 <= x <= 2: a parabola with an error of 1 %, then two Newton steps. A division takes
 * three times as long. */
JM_INLINE float jm_inverse(float x)
{
	float y = (0.32323194f * x - 1.45454465f) * x + 2.12121186f;

	y = y * (2.f - x * y);
	return y * (2.f - x * y);
}

/* 1 / (1 + e^-x), by e^-|x|, which neither cancels nor overflows. *ret_slope (may be NULL): s (1 -
 * s). */
JM_INLINE float jm_sigmoid(float x, float *ret_slope)
{
	float e = jm_exp(x < 0 ? x : -x), r = jm_inverse(1.f + e);

	if (ret_slope)
		*ret_slope = e * r * r;
	return x < 0 ? e * r : r;
}

/* The tanh form of gelu (arXiv 1606.08415): x (1 + tanh u) / 2 = x s, s = 1 / (1 + e^-2u). */
JM_INLINE float jm_gelu_gate(float x, float *ret_slope)
{
	return jm_sigmoid(1.5957691f * (x + 0.044715f * x * x * x), ret_slope);
}

JM_INLINE float jm_gelu(float x)
{
	return x * jm_gelu_gate(x, NULL);
}

/* d/dx x s = s + x s' with s' = s (1 - s) d(2u)/dx. x x is not computed alone, because it may
 * overflow where s (1 - s) is 0. */
JM_INLINE float jm_gelu_slope(float x)
{
	float slope, gate = jm_gelu_gate(x, &slope), by_x = x * slope * 1.5957691f;

	return gate + by_x + 0.134145f * x * (by_x * x);
}

#endif
