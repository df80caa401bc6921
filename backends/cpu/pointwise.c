/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gelu and its gradient, add, cast: n elements, in pieces that stay in the first-level cache, so that
 * bf16 is widened and rounded there and each tensor crosses memory once.
 */
#include "kernels.h"
#include "simd.h"

enum { PIECE = 1024 };

static size_t piece(int64_t n, int64_t i)
{
	return (size_t)(n - i < PIECE ? n - i : PIECE);
}

static void gelu(struct cpu_vec x, struct cpu_vec y, int64_t n, bool add, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		float a[PIECE], b[PIECE];
		size_t m = piece(n, i), at = (size_t)i;
		const float *v = jm_view(x.data, x.bf16, at, m, a);
		for (size_t j = 0; j < m; j++)
			b[j] = jm_gelu(v[j]);
		jm_emit(y.data, y.bf16, add, at, m, b);
	}
}

/* With t = tanh(u), u = c (x + d x^3): gelu' = (1 + t) / 2 + x / 2 (1 - t^2) c (1 + 3 d x^2). */
JM_INLINE float gelu_slope(float x)
{
	float t = jm_tanh(0.79788456f * (x + 0.044715f * x * x * x));
	float du = 0.79788456f * (1.f + 0.134145f * x * x);

	return 0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * du;
}

static void gelu_grad(
	struct cpu_vec dy, struct cpu_vec x, struct cpu_vec dx, int64_t n, bool add, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		float a[PIECE], b[PIECE], c[PIECE];
		size_t m = piece(n, i), at = (size_t)i;
		const float *g = jm_view(dy.data, dy.bf16, at, m, a);
		const float *v = jm_view(x.data, x.bf16, at, m, b);
		for (size_t j = 0; j < m; j++)
			c[j] = g[j] * gelu_slope(v[j]);
		jm_emit(dx.data, dx.bf16, add, at, m, c);
	}
}

static void add(struct cpu_vec x, struct cpu_vec z, struct cpu_vec y, int64_t n, bool accumulate,
	int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		float a[PIECE], b[PIECE], c[PIECE];
		size_t m = piece(n, i), at = (size_t)i;
		const float *v = jm_view(x.data, x.bf16, at, m, a);
		const float *w = jm_view(z.data, z.bf16, at, m, b);
		for (size_t j = 0; j < m; j++)
			c[j] = v[j] + w[j];
		jm_emit(y.data, y.bf16, accumulate, at, m, c);
	}
}

static void cast(struct cpu_vec x, struct cpu_vec y, int64_t n, bool accumulate, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		float a[PIECE];
		size_t m = piece(n, i), at = (size_t)i;
		jm_load(x.data, x.bf16, at, m, a);
		jm_emit(y.data, y.bf16, accumulate, at, m, a);
	}
}

const struct cpu_pointwise JM_CPU(cpu_pointwise) = {gelu, gelu_grad, add, cast};
