/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of the cpu backend's kernels, and the comparison of their results. */
#ifndef JM_TEST_CPU_VALUES_H
#define JM_TEST_CPU_VALUES_H

#include <stdlib.h>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/simd.h"
#include "kit/test.h"

#define THREADS 3

static inline float *normal(size_t n, unsigned seed)
{
	float *x = aligned_alloc(64, n * sizeof *x / 64 * 64 + 64);

	for (size_t i = 0; i < n; i++) {
		double sum = -6;
		for (int k = 0; k < 12; k++)
			sum += (seed = seed * 1664525u + 1013904223u) / 4294967296.0;
		x[i] = (float)sum;
	}
	return x;
}

/* The same numbers as bf16, which x takes on too. */
static inline uint16_t *narrow(float *x, size_t n)
{
	uint16_t *y = malloc(n * sizeof *y);

	for (size_t i = 0; i < n; i++) {
		y[i] = jm_to_bf16(x[i]);
		x[i] = jm_from_bf16(y[i]);
	}
	return y;
}

static inline void *scratch_new(size_t bytes)
{
	void *p = aligned_alloc(64, bytes / 64 * 64 + 64);

	memset(p, 0xff, bytes); /* NaNs: nothing may be read that was not written */
	return p;
}

static inline void near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance))
		print_error("got %.9g, not %.9g +- %.2g\n", got, want, tolerance);
	assert_true(fabs(got - want) <= tolerance);
}

#endif
