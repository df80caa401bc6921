/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels over flat slabs: the norm, AdamW (arXiv 1711.05101), Adam (arXiv 1412.6980) and SGD with
 * momentum, each in one pass over memory.
 */
#include "kernel_set.h"
#include "simd.h"
#include "stochastic_bf16.h"

#include <math.h>

enum { BLOCK = 1 << 16, RUN = 512 };

static int64_t block_end(int64_t from, int64_t n)
{
	return n - from < BLOCK ? n : from + BLOCK;
}

/* ---- the norm -------------------------------------------------------------------------------- */

static size_t norm_scratch(int64_t n)
{
	return (size_t)((n + BLOCK - 1) / BLOCK) * sizeof(double);
}

/* Sums in f64 only, for numbers whose square overflows f32. */
static double sum_large_squares(const float *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sum;
}

/* Sums RUN squares in f32, then in f64, so that each lane makes at most RUN / 16 additions in
 * f32. */
static double sum_squares(const float *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i += RUN) {
		int64_t m = n - i < RUN ? n - i : RUN;
		float part = 0;
#pragma omp simd reduction(+ : part)
		for (int64_t j = 0; j < m; j++)
			part += x[i + j] * x[i + j];
		sum += isfinite(part) ? (double)part : sum_large_squares(x + i, m);
	}
	return sum;
}

static double sum_bf16_squares(const float *x, int64_t from, int64_t to)
{
	float value[SIXTEEN_PIECE];
	double sum = 0;

	for (int64_t at = from; at < to; at += SIXTEEN_PIECE) {
		int64_t n = to - at < SIXTEEN_PIECE ? to - at : SIXTEEN_PIECE;

		stochastic_bf16_widen(x, at, n, value);
		sum += sum_squares(value, n);
	}
	return sum;
}

/* Adds blocks of fixed size in order, so that any number of threads gives the same bits. */
static double squares(const float *x, int64_t n, bool bf16, double *scratch, int threads)
{
	int64_t blocks = (n + BLOCK - 1) / BLOCK;
	double total = 0;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t b = 0; b < blocks; b++) {
		int64_t from = b * BLOCK;
		int64_t to = block_end(from, n);

		scratch[b] =
			bf16 ? sum_bf16_squares(x, from, to) : sum_squares(x + from, to - from);
	}
	for (int64_t b = 0; b < blocks; b++)
		total += scratch[b];
	return total;
}

/* ---- the rules, for n elements of f32 -------------------------------------------------------- */

/* A piece of the slabs; clip: factor of the gradients; decay: weight decay, or 0. */
struct piece {
	int64_t n;
	const float *g;
	float *p, *m, *v;
	float clip;
	double decay;
};

/* apart: AdamW, whose weight decay does not enter the moments. */
JM_INLINE void adam_as(const struct cpu_update *u, const struct piece *x, bool apart)
{
	const float *restrict grad = x->g;
	float *restrict p = x->p, *restrict m = x->m, *restrict v = x->v;
	float clip = x->clip, eps = (float)u->eps, rate = u->now[0] / u->now[1];
	float decay = (float)x->decay, shrink = (float)((double)u->now[0] * x->decay);
	float beta1 = (float)u->beta1, rest1 = (float)(1 - u->beta1);
	float beta2 = (float)u->beta2, rest2 = (float)(1 - u->beta2);
	float correction2 = 1.f / u->now[2];

#pragma omp simd
	for (int64_t i = 0; i < x->n; i++) {
		float g = grad[i] * clip + (apart ? 0 : decay * p[i]);
		float m1 = beta1 * m[i] + rest1 * g, v1 = beta2 * v[i] + rest2 * g * g;
		float old = apart ? p[i] - shrink * p[i] : p[i];

		m[i] = m1;
		v[i] = v1;
		p[i] = old - rate * m1 / (sqrtf(v1 * correction2) + eps);
	}
}

static void sgd(const struct cpu_update *u, const struct piece *x)
{
	const float *restrict grad = x->g;
	float *restrict p = x->p, *restrict m = x->m;
	float clip = x->clip, decay = (float)x->decay, momentum = (float)u->beta1;
	float rate = u->now[0], of_g = u->nesterov ? 1 : 0, of_m = u->nesterov ? momentum : 1;

#pragma omp simd
	for (int64_t i = 0; i < x->n; i++) {
		float g = grad[i] * clip + decay * p[i], m1 = momentum * m[i] + g;

		m[i] = m1;
		p[i] -= rate * (of_g * g + of_m * m1);
	}
}

static void apply(const struct cpu_update *u, const struct piece *x)
{
	switch (u->rule) {
	case CPU_ADAMW:
		adam_as(u, x, true);
		break;
	case CPU_ADAM:
		adam_as(u, x, false);
		break;
	case CPU_SGD:
		sgd(u, x);
		break;
	}
}

/* ---- a pass over the slabs ------------------------------------------------------------------- */

/* Widens pieces of bf16 slabs, updates them as f32 and rounds them stochastically. */
static void apply_bf16(
	const struct cpu_update *u, int64_t from, int64_t to, float clip, double decay)
{
	float value[3][SIXTEEN_PIECE], grad[SIXTEEN_PIECE];
	float *const slab[3] = {u->p, u->m, u->v};
	int n_slabs = u->rule == CPU_SGD ? 2 : 3;
	uint64_t key = stochastic_bf16_key(u->now, u->n_now);

	for (int64_t at = from; at < to; at += SIXTEEN_PIECE) {
		struct piece x = {to - at < SIXTEEN_PIECE ? to - at : SIXTEEN_PIECE,
			u->bf16_g ? grad : u->g + at, value[0], value[1], value[2], clip, decay};

		if (u->bf16_g)
			stochastic_bf16_widen(u->g, at, x.n, grad);
		for (int i = 0; i < n_slabs; i++)
			stochastic_bf16_widen(slab[i], at, x.n, value[i]);
		apply(u, &x);
		for (int i = 0; i < n_slabs; i++)
			stochastic_bf16_round(value[i], at, x.n, i, key, u->first, slab[i]);
	}
}

/* Widens pieces of the gradient in bf16. */
static void apply_bf16_gradient(
	const struct cpu_update *u, int64_t from, int64_t to, float clip, double decay)
{
	float grad[SIXTEEN_PIECE];

	for (int64_t at = from; at < to; at += SIXTEEN_PIECE) {
		struct piece x = {to - at < SIXTEEN_PIECE ? to - at : SIXTEEN_PIECE, grad,
			u->p + at, u->m + at, u->rule == CPU_SGD ? NULL : u->v + at, clip, decay};

		stochastic_bf16_widen(u->g, at, x.n, grad);
		apply(u, &x);
	}
}

static void apply_range(
	const struct cpu_update *u, int64_t from, int64_t to, float clip, double decay)
{
	if (u->bf16) { /* u->p points to 2-byte elements, although its type is float */
		apply_bf16(u, from, to, clip, decay);
		return;
	}
	if (u->bf16_g) {
		apply_bf16_gradient(u, from, to, clip, decay);
		return;
	}
	apply(u, &(struct piece){to - from, u->g + from, u->p + from, u->m + from,
			 u->rule == CPU_SGD ? NULL : u->v + from, clip, decay});
}

/* The factor of the gradient by clipping; negative: the norm is not finite, and the update is
 * skipped. */
static float clip_factor(const struct cpu_update *u)
{
	float factor = 1;

	if (u->norm && !isfinite(*u->norm))
		return -1;
	if (u->norm && u->clip > 0)
		factor = fminf(1.f, (float)(u->clip / ((double)*u->norm * u->unscale + 1e-6)));
	return factor * (float)u->unscale;
}

/* In reverse order, because the last elements that the norm read are still in the cache. */
static void update(const struct cpu_update *u, int threads)
{
	int64_t blocks = (u->n + BLOCK - 1) / BLOCK;
	float clip = clip_factor(u);

	if (clip < 0)
		return;
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t b = blocks - 1; b >= 0; b--) {
		int64_t from = b * BLOCK, to = block_end(from, u->n);
		int64_t middle = u->n_decay < from ? from : u->n_decay > to ? to : u->n_decay;

		apply_range(u, from, middle, clip, u->weight_decay);
		apply_range(u, middle, to, clip, 0);
	}
}

const struct cpu_optims JM_CPU(cpu_optims) = {norm_scratch, squares, update};
