/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy over logits[rows, classes] with its gradient: a row is read from memory once, in
 * pieces, and again out of the cache for the gradient, which may overwrite it.
 */
#include "kernels.h"
#include "simd.h"

#include <math.h>

enum { PIECE = 1024 };

static size_t xent_scratch(int64_t rows)
{
	return (size_t)rows * sizeof(double);
}

/* Adds a piece to the running maximum and the sum of exp(x - maximum). */
static void take_piece(const float *x, size_t n, float *max, double *sum)
{
	float top = *max, part = 0;

#pragma omp simd reduction(max : top)
	for (size_t i = 0; i < n; i++)
		top = x[i] > top ? x[i] : top;
#pragma omp simd reduction(+ : part)
	for (size_t i = 0; i < n; i++)
		part += jm_exp(x[i] - top);
	*sum = *sum * exp((double)(*max - top)) + (double)part;
	*max = top;
}

static double log_sum_exp(const struct cpu_xent *p, size_t row, size_t n)
{
	float buf[PIECE], max = -INFINITY;
	double sum = 0;

	for (size_t i = 0; i < n; i += PIECE) {
		size_t m = n - i < PIECE ? n - i : PIECE;
		take_piece(jm_view(p->logits.data, p->logits.bf16, row + i, m, buf), m, &max, &sum);
	}
	return (double)max + log(sum);
}

/* target: the right class's place in the row. */
static void gradient(const struct cpu_xent *p, size_t row, size_t n, float lse, size_t target)
{
	float x[PIECE], scale = (float)p->scale;

	for (size_t i = 0; i < n; i += PIECE) {
		size_t m = n - i < PIECE ? n - i : PIECE;
		const float *v = jm_view(p->logits.data, p->logits.bf16, row + i, m, x);
		for (size_t j = 0; j < m; j++)
			x[j] = scale * jm_exp(v[j] - lse);
		if (target >= i && target < i + m)
			x[target - i] -= scale;
		jm_emit(p->dlogits.data, p->dlogits.bf16, p->accumulate & 2, row + i, m, x);
	}
}

static void xent(const struct cpu_xent *p, int threads)
{
	double *losses = p->scratch, sum = 0;
	size_t n = (size_t)p->classes;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t r = 0; r < p->rows; r++) {
		size_t row = (size_t)r * n, target = (size_t)p->targets[r];
		double lse = log_sum_exp(p, row, n);
		float right;
		jm_load(p->logits.data, p->logits.bf16, row + target, 1, &right);
		losses[r] = lse - (double)right;
		if (p->dlogits.data)
			gradient(p, row, n, (float)lse, target);
	}
	for (int64_t r = 0; r < p->rows; r++)
		sum += losses[r];
	*p->loss = (float)(sum / (double)p->rows) + (p->accumulate & 1 ? *p->loss : 0);
}

const struct cpu_losses JM_CPU(cpu_losses) = {xent_scratch, xent};
