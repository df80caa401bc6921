/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout, and activations that oneDNN lacks or whose gradients it computes from other operands: n
 * elements, in pieces that stay in the first-level cache.
 */
#include "engine/graph/rng.h"
#include "act.h"
#include "kernel_set.h"

enum { PIECE = 1024 };

static size_t piece(int64_t n, int64_t i)
{
	return (size_t)(n - i < PIECE ? n - i : PIECE);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* Inlined with a constant `act`, without which the compiler does not vectorise the loops. */
JM_INLINE void act_as(
	enum cpu_act kind, struct cpu_vec x, struct cpu_vec y, size_t at, size_t m, bool add)
{
	float a[PIECE], b[PIECE];
	const float *v = jm_view(x.data, x.bf16, at, m, a);

#pragma omp simd
	for (size_t j = 0; j < m; j++)
		b[j] = jm_act(kind, v[j]);
	jm_emit(y.data, y.bf16, add, at, m, b);
}

JM_INLINE void act_grad_as(enum cpu_act kind, struct cpu_vec dy, struct cpu_vec x,
	struct cpu_vec dx, size_t at, size_t m, bool add)
{
	float a[PIECE], b[PIECE], c[PIECE];
	const float *g = jm_view(dy.data, dy.bf16, at, m, a);
	const float *v = jm_view(x.data, x.bf16, at, m, b);

#pragma omp simd
	for (size_t j = 0; j < m; j++)
		c[j] = kind != CPU_RELU ? g[j] * jm_act_slope(kind, v[j]) : v[j] > 0 ? g[j] : 0.f;
	jm_emit(dx.data, dx.bf16, add, at, m, c);
}

static void act(
	enum cpu_act kind, struct cpu_vec x, struct cpu_vec y, int64_t n, bool add, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		size_t at = (size_t)i, m = piece(n, i);

		if (kind == CPU_RELU)
			act_as(CPU_RELU, x, y, at, m, add);
		else if (kind == CPU_SILU)
			act_as(CPU_SILU, x, y, at, m, add);
		else if (kind == CPU_GELU_QUICK)
			act_as(CPU_GELU_QUICK, x, y, at, m, add);
		else if (kind == CPU_GELU)
			act_as(CPU_GELU, x, y, at, m, add);
		else
			act_as(CPU_GELU_ERF, x, y, at, m, add);
	}
}

static void act_grad(enum cpu_act kind, struct cpu_vec dy, struct cpu_vec x, struct cpu_vec dx,
	int64_t n, bool add, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		size_t at = (size_t)i, m = piece(n, i);

		if (kind == CPU_RELU)
			act_grad_as(CPU_RELU, dy, x, dx, at, m, add);
		else if (kind == CPU_SILU)
			act_grad_as(CPU_SILU, dy, x, dx, at, m, add);
		else if (kind == CPU_GELU_QUICK)
			act_grad_as(CPU_GELU_QUICK, dy, x, dx, at, m, add);
		else if (kind == CPU_GELU)
			act_grad_as(CPU_GELU, dy, x, dx, at, m, add);
		else
			act_grad_as(CPU_GELU_ERF, dy, x, dx, at, m, add);
	}
}

/* ---- gated units (arXiv 2002.05202): gates, then values; of geglu values, then gates --------- */

JM_INLINE size_t gates_at(enum cpu_act kind, const struct cpu_gated *p)
{
	return kind == CPU_SILU ? 0 : (size_t)p->width;
}

JM_INLINE void gated_as(enum cpu_act kind, const struct cpu_gated *p, int64_t row, int64_t i)
{
	float a[PIECE], b[PIECE], c[PIECE];
	size_t m = piece(p->width, i), at = (size_t)(2 * row * p->width + i);
	size_t gates = gates_at(kind, p), values = (size_t)p->width - gates;
	const float *g = jm_view(p->x.data, p->x.bf16, at + gates, m, a);
	const float *v = jm_view(p->x.data, p->x.bf16, at + values, m, b);

#pragma omp simd
	for (size_t j = 0; j < m; j++)
		c[j] = jm_act(kind, g[j]) * v[j];
	jm_emit(p->y.data, p->y.bf16, p->accumulate, (size_t)(row * p->width + i), m, c);
}

JM_INLINE void gated_grad_as(enum cpu_act kind, const struct cpu_gated *p, int64_t row, int64_t i)
{
	float a[PIECE], b[PIECE], c[PIECE], dg[PIECE], dv[PIECE];
	size_t m = piece(p->width, i), at = (size_t)(2 * row * p->width + i);
	size_t gates = gates_at(kind, p), values = (size_t)p->width - gates;
	const float *g = jm_view(p->x.data, p->x.bf16, at + gates, m, a);
	const float *v = jm_view(p->x.data, p->x.bf16, at + values, m, b);
	const float *dy = jm_view(p->y.data, p->y.bf16, (size_t)(row * p->width + i), m, c);

#pragma omp simd
	for (size_t j = 0; j < m; j++) {
		dg[j] = dy[j] * v[j] * jm_act_slope(kind, g[j]);
		dv[j] = dy[j] * jm_act(kind, g[j]);
	}
	jm_emit(p->dx.data, p->dx.bf16, p->accumulate, at + gates, m, dg);
	jm_emit(p->dx.data, p->dx.bf16, p->accumulate, at + values, m, dv);
}

static void gated(enum cpu_act kind, const struct cpu_gated *p, int threads)
{
	int64_t pieces = (p->width + PIECE - 1) / PIECE;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < p->rows * pieces; i++) {
		if (kind == CPU_SILU)
			gated_as(CPU_SILU, p, i / pieces, i % pieces * PIECE);
		else
			gated_as(CPU_GELU_ERF, p, i / pieces, i % pieces * PIECE);
	}
}

static void gated_grad(enum cpu_act kind, const struct cpu_gated *p, int threads)
{
	int64_t pieces = (p->width + PIECE - 1) / PIECE;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < p->rows * pieces; i++) {
		if (kind == CPU_SILU)
			gated_grad_as(CPU_SILU, p, i / pieces, i % pieces * PIECE);
		else
			gated_grad_as(CPU_GELU_ERF, p, i / pieces, i % pieces * PIECE);
	}
}

/* ---- dropout (jmlr v15, Srivastava 2014): a pair of elements shares 64 bits ------------------ */

static void dropout(
	struct cpu_vec x, struct cpu_vec y, int64_t n, const struct cpu_dropout *how, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i += PIECE) {
		float a[PIECE], b[PIECE];
		uint32_t bits[PIECE];
		size_t m = piece(n, i), at = (size_t)i;
		const float *v = jm_view(x.data, x.bf16, at, m, a);
		for (size_t j = 0; j < PIECE / 2; j++) {
			uint64_t pair = jm_rng(how->seed, (uint64_t)i / 2 + j);
			bits[2 * j] = (uint32_t)pair;
			bits[2 * j + 1] = (uint32_t)(pair >> 32);
		}
		for (size_t j = 0; j < m; j++)
			b[j] = bits[j] >= how->below ? v[j] * how->scale : 0.f;
		jm_emit(y.data, y.bf16, how->accumulate, at, m, b);
	}
}

const struct cpu_acts JM_CPU(cpu_acts) = {act, act_grad, gated, gated_grad, dropout};
