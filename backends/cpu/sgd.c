/* SPDX-License-Identifier: Apache-2.0 */
/* Over flat slabs of f32: Adam (arXiv 1412.6980) and SGD with momentum, in one pass over memory. */
#include "kernels.h"
#include "simd.h"
#include "sixteen.h"

#include <math.h>

enum { BLOCK = 1 << 16 };

/* By how much the gradient shrinks; negative: the norm is not finite, nothing may change. */
static float clip_factor(const float *norm, double clip, double unscale)
{
	float factor = 1;

	if (norm && !isfinite(*norm))
		return -1;
	if (norm && clip > 0)
		factor = fminf(1.f, (float)(clip / ((double)*norm * unscale + 1e-6)));
	return factor * (float)unscale;
}

static void adam_range(const struct cpu_adamw *a, int64_t from, int64_t to, float clip, float decay)
{
	const float *restrict grad = a->g;
	float *restrict p = a->p, *restrict m = a->m, *restrict v = a->v;
	float beta1 = (float)a->beta1, rest1 = (float)(1 - a->beta1), beta2 = (float)a->beta2,
	      rest2 = (float)(1 - a->beta2), rate = a->now[0] / a->now[1], eps = (float)a->eps,
	      correction2 = 1.f / a->now[2];

#pragma omp simd
	for (int64_t i = from; i < to; i++) {
		float g = grad[i] * clip + decay * p[i];
		float m1 = beta1 * m[i] + rest1 * g, v1 = beta2 * v[i] + rest2 * g * g;

		m[i] = m1;
		v[i] = v1;
		p[i] -= rate * m1 / (sqrtf(v1 * correction2) + eps);
	}
}

static void adam_part(const struct cpu_adamw *a, int64_t from, int64_t to, float clip, float decay)
{
	float p[SIXTEEN_PIECE], m[SIXTEEN_PIECE], v[SIXTEEN_PIECE];
	struct cpu_adamw piece = *a;
	uint64_t key;

	if (!a->bf16) {
		adam_range(a, from, to, clip, decay);
		return;
	}
	key = sixteen_key(a->now, 3);
	piece.p = p;
	piece.m = m;
	piece.v = v;
	for (int64_t at = from; at < to; at += SIXTEEN_PIECE) {
		int64_t n = to - at < SIXTEEN_PIECE ? to - at : SIXTEEN_PIECE;

		piece.g = a->g + at;
		sixteen_widen(a->p, at, n, p);
		sixteen_widen(a->m, at, n, m);
		sixteen_widen(a->v, at, n, v);
		adam_range(&piece, 0, n, clip, decay);
		sixteen_round(p, at, n, 0, key, a->p);
		sixteen_round(m, at, n, 1, key, a->m);
		sixteen_round(v, at, n, 2, key, a->v);
	}
}

static void adam(const struct cpu_adamw *a, int threads)
{
	int64_t blocks = (a->n + BLOCK - 1) / BLOCK;
	float clip = clip_factor(a->norm, a->clip, a->unscale);

	if (clip < 0)
		return;
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t b = 0; b < blocks; b++) {
		int64_t from = b * BLOCK, to = from + BLOCK < a->n ? from + BLOCK : a->n;
		int64_t middle = a->n_decay < from ? from : a->n_decay > to ? to : a->n_decay;

		adam_part(a, from, middle, clip, (float)a->weight_decay);
		adam_part(a, middle, to, clip, 0);
	}
}

static void sgd_range(const struct cpu_sgd *a, int64_t from, int64_t to, float clip, float decay)
{
	const float *restrict grad = a->g;
	float *restrict p = a->p, *restrict m = a->m;
	float momentum = (float)a->momentum, rate = a->now[0];
	float of_g = a->nesterov ? 1 : 0, of_m = a->nesterov ? momentum : 1;

#pragma omp simd
	for (int64_t i = from; i < to; i++) {
		float g = grad[i] * clip + decay * p[i], m1 = momentum * m[i] + g;

		m[i] = m1;
		p[i] -= rate * (of_g * g + of_m * m1);
	}
}

static void sgd_part(const struct cpu_sgd *a, int64_t from, int64_t to, float clip, float decay)
{
	float p[SIXTEEN_PIECE], m[SIXTEEN_PIECE];
	struct cpu_sgd piece = *a;
	uint64_t key;

	if (!a->bf16) {
		sgd_range(a, from, to, clip, decay);
		return;
	}
	key = sixteen_key(a->now, 1);
	piece.p = p;
	piece.m = m;
	for (int64_t at = from; at < to; at += SIXTEEN_PIECE) {
		int64_t n = to - at < SIXTEEN_PIECE ? to - at : SIXTEEN_PIECE;

		piece.g = a->g + at;
		sixteen_widen(a->p, at, n, p);
		sixteen_widen(a->m, at, n, m);
		sgd_range(&piece, 0, n, clip, decay);
		sixteen_round(p, at, n, 0, key, a->p);
		sixteen_round(m, at, n, 1, key, a->m);
	}
}

static void sgd(const struct cpu_sgd *a, int threads)
{
	int64_t blocks = (a->n + BLOCK - 1) / BLOCK;
	float clip = clip_factor(a->norm, a->clip, a->unscale);

	if (clip < 0)
		return;
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t b = 0; b < blocks; b++) {
		int64_t from = b * BLOCK, to = from + BLOCK < a->n ? from + BLOCK : a->n;
		int64_t middle = a->n_decay < from ? from : a->n_decay > to ? to : a->n_decay;

		sgd_part(a, from, middle, clip, (float)a->weight_decay);
		sgd_part(a, middle, to, clip, 0);
	}
}

const struct cpu_sgds JM_CPU(cpu_sgds) = {adam, sgd};
