/* SPDX-License-Identifier: Apache-2.0 */
/* RMS norm of rows (arXiv 1910.07467), and of a sum of rows; each row crosses memory once. */
#include "kernels.h"
#include "simd.h"

#include <math.h>
#include <omp.h>

static size_t padded(int64_t width)
{
	return ((size_t)width + 15) / 16 * 16;
}

/* Per thread: two rows forward; backward three rows and the sums of dgamma. */
static size_t rmsnorm_scratch(int64_t width, bool grad, int threads)
{
	return (grad ? 4 : 2) * padded(width) * (size_t)threads * sizeof(float);
}

static void rmsnorm_row(const struct cpu_layernorm *p, int64_t row, float *a, float *b)
{
	size_t n = (size_t)p->width, at = (size_t)row * n;
	const float *x = jm_view(p->x.data, p->x.bf16, at, n, a);
	float square = 0, rstd;

	if (p->sum.data) { /* the norm of x + z, which is kept in sum */
		const float *z = jm_view(p->z.data, p->z.bf16, at, n, b);
		for (size_t i = 0; i < n; i++)
			a[i] = x[i] + z[i];
		jm_store(p->sum.data, p->sum.bf16, at, n, a);
		x = jm_view(p->sum.data, p->sum.bf16, at, n, a);
	}
#pragma omp simd reduction(+ : square)
	for (size_t i = 0; i < n; i++)
		square += x[i] * x[i];
	rstd = (float)(1 / sqrt((double)square / (double)n + p->eps));
	for (size_t i = 0; i < n; i++)
		b[i] = x[i] * rstd * p->gamma[i];
	jm_emit(p->y.data, p->y.bf16, p->accumulate & 1, at, n, b);
	p->rstd[row] = rstd;
}

static void rmsnorm(const struct cpu_layernorm *p, int threads)
{
#pragma omp parallel num_threads(threads)
	{
		float *a =
			(float *)p->scratch + 2 * padded(p->width) * (size_t)omp_get_thread_num();

#pragma omp for schedule(static)
		for (int64_t row = 0; row < p->rows; row++)
			rmsnorm_row(p, row, a, a + padded(p->width));
	}
}

/* buf: three rows, then this thread's sums of dgamma. */
static void rmsnorm_grad_row(const struct cpu_layernorm_grad *p, int64_t row, float *buf)
{
	size_t n = (size_t)p->width, at = (size_t)row * n, pad = padded(p->width);
	const float *dy = jm_view(p->dy.data, p->dy.bf16, at, n, buf);
	const float *x = jm_view(p->x.data, p->x.bf16, at, n, buf + pad);
	float *restrict dx = buf + 2 * pad, *restrict dgamma = dx + pad;
	float rstd = p->rstd[row], sum = 0;

#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < n; i++) {
		float h = x[i] * rstd;

		dgamma[i] += dy[i] * h;
		sum += dy[i] * p->gamma[i] * h;
	}
	sum /= (float)n;
	for (size_t i = 0; i < n; i++)
		dx[i] = rstd * (dy[i] * p->gamma[i] - x[i] * rstd * sum);
	jm_emit(p->dx.data, p->dx.bf16, p->accumulate & 1, at, n, dx);
}

/* The threads' sums are added in the order of their numbers: the same bits every time. */
static void rmsnorm_grad(const struct cpu_layernorm_grad *p, int threads)
{
	size_t pad = padded(p->width), n = (size_t)p->width;

	memset(p->scratch, 0, rmsnorm_scratch(p->width, true, threads));
#pragma omp parallel num_threads(threads)
	{
		float *buf = (float *)p->scratch + 4 * pad * (size_t)omp_get_thread_num();

#pragma omp for schedule(static)
		for (int64_t row = 0; row < p->rows; row++)
			rmsnorm_grad_row(p, row, buf);
	}
	for (size_t i = 0; i < n; i++) {
		float sum = p->accumulate & 2 ? p->dgamma[i] : 0;
		for (size_t t = 0; t < (size_t)threads; t++)
			sum += ((const float *)p->scratch)[t * 4 * pad + 3 * pad + i];
		p->dgamma[i] = sum;
	}
}

const struct cpu_norms JM_CPU(cpu_rmsnorms) = {rmsnorm_scratch, rmsnorm, rmsnorm_grad};
