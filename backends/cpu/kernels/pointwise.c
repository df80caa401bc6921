/* SPDX-License-Identifier: Apache-2.0 */
/*
 * add, cast: n elements, in pieces that stay in the first-level cache, so that
 * bf16 is widened and rounded there and each tensor crosses memory once.
 */
#include "kernel_set.h"
#include "simd.h"

enum { PIECE = 1024 };

static size_t piece(int64_t n, int64_t i)
{
	return (size_t)(n - i < PIECE ? n - i : PIECE);
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
		if (!accumulate) {
			jm_store(y.data, y.bf16, at, m, jm_view(x.data, x.bf16, at, m, a));
			continue;
		}
		jm_load(x.data, x.bf16, at, m, a);
		jm_emit(y.data, y.bf16, true, at, m, a);
	}
}

const struct cpu_pointwise JM_CPU(cpu_pointwise) = {add, cast};
