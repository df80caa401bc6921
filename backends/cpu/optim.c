/* SPDX-License-Identifier: Apache-2.0 */
/* Over flat slabs of f32: the norm, and AdamW (arXiv 1711.05101) in one pass over memory. */
#include "kernels.h"
#include "simd.h"
#include "sixteen.h"

#include <math.h>

enum { BLOCK = 1 << 16, RUN = 512 };

static size_t norm_scratch(int64_t n)
{
	return (size_t)((n + BLOCK - 1) / BLOCK) * sizeof(double);
}

/* f32 sums of RUN squares, then f64: every addition of f32 is one of at most RUN / 16 of its lane. */
static double sum_squares(const float *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i += RUN) {
		int64_t m = n - i < RUN ? n - i : RUN;
		float part = 0;
#pragma omp simd reduction(+ : part)
		for (int64_t j = 0; j < m; j++)
			part += x[i + j] * x[i + j];
		sum += (double)part;
	}
	return sum;
}

/* Blocks of fixed size, added in order: the same bits for any number of threads. */
static void norm(const float *x, int64_t n, float *y, bool add, double *scratch, int threads)
{
	int64_t blocks = (n + BLOCK - 1) / BLOCK;
	double total = 0;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t b = 0; b < blocks; b++) {
		int64_t from = b * BLOCK;
		scratch[b] = sum_squares(x + from, n - from < BLOCK ? n - from : BLOCK);
	}
	for (int64_t b = 0; b < blocks; b++)
		total += scratch[b];
	*y = (float)sqrt(total) + (add ? *y : 0);
}

struct adamw_factors {
	float clip, decay, beta1, rest1, beta2, rest2, rate, eps, correction2;
};

static void adamw_range(const struct cpu_adamw *a, int64_t from, int64_t to, struct adamw_factors f)
{
	const float *restrict grad = a->g;
	float *restrict p = a->p, *restrict m = a->m, *restrict v = a->v;

#pragma omp simd
	for (int64_t i = from; i < to; i++) {
		float g = grad[i] * f.clip, old = p[i] - f.decay * p[i];
		float m1 = f.beta1 * m[i] + f.rest1 * g;
		float v1 = f.beta2 * v[i] + f.rest2 * g * g;
		m[i] = m1;
		v[i] = v1;
		p[i] = old - f.rate * m1 / (sqrtf(v1 * f.correction2) + f.eps);
	}
}

static void adamw_part(const struct cpu_adamw *a, int64_t from, int64_t to, struct adamw_factors f)
{
	float p[SIXTEEN_PIECE], m[SIXTEEN_PIECE], v[SIXTEEN_PIECE];
	uint64_t key;

	if (!a->bf16) {
		adamw_range(a, from, to, f);
		return;
	}
	key = sixteen_key(a->now, 3);
	for (int64_t at = from; at < to; at += SIXTEEN_PIECE) {
		int64_t n = to - at < SIXTEEN_PIECE ? to - at : SIXTEEN_PIECE;
		struct cpu_adamw piece = {.g = a->g + at, .p = p, .m = m, .v = v};

		sixteen_widen(a->p, at, n, p);
		sixteen_widen(a->m, at, n, m);
		sixteen_widen(a->v, at, n, v);
		adamw_range(&piece, 0, n, f);
		sixteen_round(p, at, n, 0, key, a->p);
		sixteen_round(m, at, n, 1, key, a->m);
		sixteen_round(v, at, n, 2, key, a->v);
	}
}

static void adamw(const struct cpu_adamw *a, int threads)
{
	float clip = 1;
	int64_t blocks = (a->n + BLOCK - 1) / BLOCK;

	if (a->norm && !isfinite(*a->norm))
		return;
	if (a->norm && a->clip > 0)
		clip = fminf(1.f, (float)(a->clip / ((double)*a->norm * a->unscale + 1e-6)));
	clip *= (float)a->unscale;
	struct adamw_factors f = {
		.clip = clip,
		.decay = (float)((double)a->now[0] * a->weight_decay),
		.beta1 = (float)a->beta1,
		.rest1 = (float)(1 - a->beta1),
		.beta2 = (float)a->beta2,
		.rest2 = (float)(1 - a->beta2),
		.rate = a->now[0] / a->now[1],
		.eps = (float)a->eps,
		.correction2 = 1.f / a->now[2],
	};
	struct adamw_factors plain = f;

	plain.decay = 0;
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t b = 0; b < blocks; b++) {
		int64_t from = b * BLOCK, to = from + BLOCK < a->n ? from + BLOCK : a->n;
		int64_t middle = a->n_decay < from ? from : a->n_decay > to ? to : a->n_decay;
		adamw_part(a, from, middle, f);
		adamw_part(a, middle, to, plain);
	}
}

const struct cpu_optims JM_CPU(cpu_optims) = {norm_scratch, norm, adamw};
