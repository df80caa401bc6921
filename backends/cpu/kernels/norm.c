/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and RMS norm (arXiv 1910.07467) of rows x[rows, width], and of a sum of rows: a row is
 * read from memory once; further passes read the cache. An RMS norm is computed as a layer norm
 * with mean 0. oneDNN 2.6 is not used, because it has only its simple implementation of layer norm.
 */
#include "kernel_set.h"
#include "simd.h"

#include <math.h>
#include <omp.h>

/* Rows of scratch per thread: forward two; backward three and the sums of dgamma and dbeta. */
enum { FORWARD = 2, BACKWARD = 5 };

static size_t padded(int64_t width)
{
	return ((size_t)width + 15) / 16 * 16;
}

static size_t scratch(int64_t width, bool grad, int threads)
{
	return (grad ? BACKWARD : FORWARD) * padded(width) * (size_t)threads * sizeof(float);
}

JM_INLINE float mean_of(const float *x, size_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (float)n;
}

/* centred is a constant where this is inlined, so that an RMS norm does no extra work. */
JM_INLINE void norm_row(const struct cpu_norm *p, int64_t row, float *a, float *b, bool centred)
{
	size_t n = (size_t)p->width, at = (size_t)row * n;
	const float *x = jm_view(p->x.data, p->x.bf16, at, n, a);
	float mean, rstd, square = 0;

	if (p->sum.data) { /* the norm of x + z, which is stored in sum */
		const float *z = jm_view(p->z.data, p->z.bf16, at, n, b);
		for (size_t i = 0; i < n; i++)
			a[i] = x[i] + z[i];
		jm_store(p->sum.data, p->sum.bf16, at, n, a);
		x = jm_view(p->sum.data, p->sum.bf16, at, n, a);
	}
	mean = centred ? mean_of(x, n) : 0;
#pragma omp simd reduction(+ : square)
	for (size_t i = 0; i < n; i++)
		square += (x[i] - mean) * (x[i] - mean);
	rstd = (float)(1 / sqrt((double)square / (double)n + p->eps));
	for (size_t i = 0; i < n; i++)
		b[i] = (x[i] - mean) * rstd * p->gamma[i];
	for (size_t i = 0; p->beta && i < n; i++)
		b[i] += p->beta[i];
	jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT, at, n, b);
	p->rstd[row] = rstd;
	if (centred)
		p->mean[row] = mean;
}

static void norm(const struct cpu_norm *p, int threads)
{
	size_t pad = padded(p->width);

#pragma omp parallel num_threads(threads)
	{
		float *a = (float *)p->scratch + FORWARD * pad * (size_t)omp_get_thread_num();

#pragma omp for schedule(static)
		for (int64_t row = 0; row < p->rows; row++) {
			if (p->mean)
				norm_row(p, row, a, a + pad, true);
			else
				norm_row(p, row, a, a + pad, false);
		}
	}
}

/* buf: three rows, then this thread's sums of dgamma and dbeta. */
JM_INLINE void grad_row(const struct cpu_norm_grad *p, int64_t row, float *buf, bool centred)
{
	size_t n = (size_t)p->width, at = (size_t)row * n, pad = padded(p->width);
	const float *dy = jm_view(p->dy.data, p->dy.bf16, at, n, buf);
	const float *x = jm_view(p->x.data, p->x.bf16, at, n, buf + pad);
	float *restrict dx = buf + 2 * pad, *restrict dgamma = dx + pad,
			*restrict dbeta = dgamma + pad;
	float mean = centred ? p->mean[row] : 0, rstd = p->rstd[row], sum_g = 0, sum_gh = 0;

#pragma omp simd reduction(+ : sum_g, sum_gh)
	for (size_t i = 0; i < n; i++) {
		float h = (x[i] - mean) * rstd, g = dy[i] * p->gamma[i];

		dgamma[i] += dy[i] * h;
		if (centred) {
			dbeta[i] += dy[i];
			sum_g += g;
		}
		sum_gh += g * h;
	}
	sum_g /= (float)n;
	sum_gh /= (float)n;
	for (size_t i = 0; i < n; i++) {
		float h = (x[i] - mean) * rstd, g = dy[i] * p->gamma[i];
		dx[i] = rstd * (g - sum_g - h * sum_gh);
	}
	if (p->dx.data)
		jm_emit(p->dx.data, p->dx.bf16, p->accumulate & JM_ADD_OUT, at, n, dx);
	if (p->copy.data)
		jm_store(p->copy.data, p->copy.bf16, at, n, dx);
}

/* Adds the threads' sums in the order of the threads, so that the bits are the same every time. */
static void collect(const struct cpu_norm_grad *p, size_t offset, float *y, bool add, int threads)
{
	size_t stride = BACKWARD * padded(p->width);

	for (size_t i = 0; y && i < (size_t)p->width; i++) {
		float sum = add ? y[i] : 0;
		for (size_t t = 0; t < (size_t)threads; t++)
			sum += ((const float *)p->scratch)[t * stride + offset + i];
		y[i] = sum;
	}
}

static void grad(const struct cpu_norm_grad *p, int threads)
{
	size_t pad = padded(p->width);

	memset(p->scratch, 0, scratch(p->width, true, threads));
#pragma omp parallel num_threads(threads)
	{
		float *buf = (float *)p->scratch + BACKWARD * pad * (size_t)omp_get_thread_num();

#pragma omp for schedule(static)
		for (int64_t row = 0; row < p->rows; row++) {
			if (p->mean)
				grad_row(p, row, buf, true);
			else
				grad_row(p, row, buf, false);
		}
	}
	collect(p, 3 * pad, p->dgamma, p->accumulate & JM_ADD_NORM_DGAMMA, threads);
	collect(p, 4 * pad, p->dbeta, p->accumulate & JM_ADD_NORM_DBETA, threads);
}

const struct cpu_norms JM_CPU(cpu_norms) = {scratch, norm, grad};
