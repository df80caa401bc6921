/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm of rows x[rows, width]: a row is read once from memory, its further passes hit the cache.
 * oneDNN 2.6 has only simple_layer_normalization for this.
 */
#include "kernels.h"
#include "simd.h"

#include <math.h>
#include <omp.h>

static size_t padded(int64_t width)
{
	return ((size_t)width + 15) / 16 * 16;
}

/* Per thread: two rows forward; backward three rows and the sums of dgamma and dbeta. */
static size_t layernorm_scratch(int64_t width, bool grad, int threads)
{
	return (grad ? 5 : 2) * padded(width) * (size_t)threads * sizeof(float);
}

static void moments(const float *x, size_t n, double eps, float *ret_mean, float *ret_rstd)
{
	float sum = 0, square = 0, mean;

#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < n; i++)
		sum += x[i];
	mean = sum / (float)n;
#pragma omp simd reduction(+ : square)
	for (size_t i = 0; i < n; i++)
		square += (x[i] - mean) * (x[i] - mean);
	*ret_mean = mean;
	*ret_rstd = (float)(1 / sqrt((double)square / (double)n + eps));
}

static void layernorm_row(const struct cpu_layernorm *p, int64_t row, float *a, float *b)
{
	size_t n = (size_t)p->width, at = (size_t)row * n;
	const float *x = jm_view(p->x.data, p->x.bf16, at, n, a);
	float mean, rstd;

	if (p->sum.data) { /* the norm of x + z, which is kept in sum */
		const float *z = jm_view(p->z.data, p->z.bf16, at, n, b);
		for (size_t i = 0; i < n; i++)
			a[i] = x[i] + z[i];
		jm_store(p->sum.data, p->sum.bf16, at, n, a);
		x = jm_view(p->sum.data, p->sum.bf16, at, n, a);
	}
	moments(x, n, p->eps, &mean, &rstd);
	for (size_t i = 0; i < n; i++)
		b[i] = (x[i] - mean) * rstd * p->gamma[i];
	for (size_t i = 0; p->beta && i < n; i++)
		b[i] += p->beta[i];
	jm_emit(p->y.data, p->y.bf16, p->accumulate & 1, at, n, b);
	p->mean[row] = mean;
	p->rstd[row] = rstd;
}

static void layernorm(const struct cpu_layernorm *p, int threads)
{
#pragma omp parallel num_threads(threads)
	{
		float *a =
			(float *)p->scratch + 2 * padded(p->width) * (size_t)omp_get_thread_num();

#pragma omp for schedule(static)
		for (int64_t row = 0; row < p->rows; row++)
			layernorm_row(p, row, a, a + padded(p->width));
	}
}

/* buf: three rows, then this thread's sums of dgamma and dbeta. */
static void layernorm_grad_row(const struct cpu_layernorm_grad *p, int64_t row, float *buf)
{
	size_t n = (size_t)p->width, at = (size_t)row * n, pad = padded(p->width);
	const float *dy = jm_view(p->dy.data, p->dy.bf16, at, n, buf);
	const float *x = jm_view(p->x.data, p->x.bf16, at, n, buf + pad);
	float *restrict dx = buf + 2 * pad, *restrict dgamma = dx + pad,
			*restrict dbeta = dgamma + pad;
	float mean = p->mean[row], rstd = p->rstd[row], sum_g = 0, sum_gh = 0;

#pragma omp simd reduction(+ : sum_g, sum_gh)
	for (size_t i = 0; i < n; i++) {
		float h = (x[i] - mean) * rstd, g = dy[i] * p->gamma[i];
		dgamma[i] += dy[i] * h;
		dbeta[i] += dy[i];
		sum_g += g;
		sum_gh += g * h;
	}
	sum_g /= (float)n;
	sum_gh /= (float)n;
	for (size_t i = 0; i < n; i++) {
		float h = (x[i] - mean) * rstd, g = dy[i] * p->gamma[i];
		dx[i] = rstd * (g - sum_g - h * sum_gh);
	}
	jm_emit(p->dx.data, p->dx.bf16, p->accumulate & 1, at, n, dx);
}

/* The threads' sums in the order of their numbers: the same bits every time. */
static void collect(
	const struct cpu_layernorm_grad *p, size_t offset, float *y, bool add, int threads)
{
	size_t stride = 5 * padded(p->width);

	for (size_t i = 0; y && i < (size_t)p->width; i++) {
		float sum = add ? y[i] : 0;
		for (size_t t = 0; t < (size_t)threads; t++)
			sum += ((const float *)p->scratch)[t * stride + offset + i];
		y[i] = sum;
	}
}

static void layernorm_grad(const struct cpu_layernorm_grad *p, int threads)
{
	size_t pad = padded(p->width);

	memset(p->scratch, 0, layernorm_scratch(p->width, true, threads));
#pragma omp parallel num_threads(threads)
	{
		float *buf = (float *)p->scratch + 5 * pad * (size_t)omp_get_thread_num();

#pragma omp for schedule(static)
		for (int64_t row = 0; row < p->rows; row++)
			layernorm_grad_row(p, row, buf);
	}
	collect(p, 3 * pad, p->dgamma, p->accumulate & 2, threads);
	collect(p, 4 * pad, p->dbeta, p->accumulate & 4, threads);
}

const struct cpu_norms JM_CPU(cpu_norms) = {layernorm_scratch, layernorm, layernorm_grad};
