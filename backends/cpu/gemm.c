/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c[m,n] (+)= a[m,k] b[k,n]: operands f32 or bf16 in either order, arithmetic in f32.
 *
 * Used where oneDNN has no fast kernel: bf16 on processors whose bf16 dot product is slower than their
 * f32 multiply-add (Sapphire Rapids without tiles does half as many), and f32 rows whose stride is a
 * multiple of 4 KiB. Operands are widened to f32 while they are packed: bf16 costs no pass of its own.
 *
 * A chunk of a (MC x KC) and of b (KC x NC) is packed into panels of MR rows and NR columns; the chunk's
 * tiles are shared out among the threads. A tile's part of b stays in the second-level cache, one panel
 * of a in the first. The idea of packing: Goto and van de Geijn, ACM TOMS 34:3 (2008).
 */
#include "kernels.h"
#include "panel.h"

#include <omp.h>

enum {
	NV = 3,		 /* vectors in a row of a panel of b */
	NR = NV * JM_VL, /* columns of a panel of b */
	MR = 8,		 /* rows of a panel of a */
	RK = JM_ROWS,	 /* rows whose sums fit the registers */
	TILE_M = 16 * MR,
	TILE_N = 4 * NR,
	MC = 1536,
	NC = 3072,
	KC = 1024,
};

/* A chunk's place in the product, and where it is packed. */
struct chunk {
	int64_t i, j, p, m, n, k;
	bool first, last; /* along k */
	float *a, *b, *sum;
};

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t up(int64_t n, int64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* k in equal chunks, a multiple of 8 long. */
static int64_t chunk_k(const struct cpu_gemm *g)
{
	int64_t n = (g->k + KC - 1) / KC;

	return up((g->k + n - 1) / n, 8);
}

/* Sums over several chunks wait in f32: in c itself if it is f32, else in scratch. */
static bool needs_sum(const struct cpu_gemm *g)
{
	return g->c_bf16 && g->k > chunk_k(g);
}

static size_t size_a(const struct cpu_gemm *g)
{
	return (size_t)(up(min64(g->m, MC), MR) * chunk_k(g));
}

static size_t size_b(const struct cpu_gemm *g)
{
	return (size_t)(up(min64(g->n, NC), NR) * chunk_k(g));
}

static size_t gemm_scratch(const struct cpu_gemm *g)
{
	size_t sum = needs_sum(g) ? (size_t)(min64(g->m, MC) * min64(g->n, NC)) : 0;

	return (size_a(g) + size_b(g) + sum) * sizeof(float);
}

/* ---- packing: panel[k][w], w < width, from elements (w, k) ---------------------------------------- */

static void pack_edge(float *panel, int width, const struct cpu_matrix *x, int64_t w0, int64_t w1,
	int64_t end, int64_t k0, int64_t nk)
{
	for (int64_t k = 0; k < nk; k++) {
		for (int64_t w = w0; w < w1; w++) {
			int64_t at = x->transposed ? (k0 + k) * x->ld + w : w * x->ld + k0 + k;
			float v = 0;
			if (w < end)
				jm_load(x->data, x->bf16, (size_t)at, 1, &v);
			panel[k * width + (w - w0)] = v;
		}
	}
}

/* Eight neighbours w of every k at once; x(w, k) with either index running along memory. */
JM_INLINE void pack8(float *panel, int width, const struct cpu_matrix *x, bool bf16, int64_t w,
	int64_t k0, int64_t nk)
{
	int64_t k = 0;

	if (x->transposed) {
		for (; k < nk; k++) {
			jm_v8f v = jm_load8(x->data, bf16, (k0 + k) * x->ld + w);
			memcpy(panel + k * width, &v, sizeof v);
		}
		return;
	}
	for (; k + 8 <= nk; k += 8) {
		jm_v8f v[8];
		for (int i = 0; i < 8; i++)
			v[i] = jm_load8(x->data, bf16, (w + i) * x->ld + k0 + k);
		jm_transpose8(v, panel + k * width, width);
	}
	pack_edge(panel + k * width, width, x, w, w + 8, w + 8, k0 + k, nk - k);
}

/* Rows w0 .. w0 + width of x, those from `end` on as zeros; columns k0 .. k0 + nk. */
static void pack_panel(float *panel, int width, const struct cpu_matrix *x, int64_t w0, int64_t end,
	int64_t k0, int64_t nk)
{
	for (int i = 0; i < width; i += 8) {
		int64_t w = w0 + i;
		if (w + 8 > end)
			pack_edge(panel + i, width, x, w, w + 8, end, k0, nk);
		else if (x->bf16)
			pack8(panel + i, width, x, true, w, k0, nk);
		else
			pack8(panel + i, width, x, false, w, k0, nk);
	}
}

static void pack(const struct cpu_gemm *g, const struct chunk *c, bool with_a, bool with_b)
{
	struct cpu_matrix bt = g->b; /* panels of b hold columns: pack its transpose */
	int64_t na = with_a ? (c->m + MR - 1) / MR : 0;
	int64_t nb = with_b ? (c->n + NR - 1) / NR : 0;

	bt.transposed = !bt.transposed;
#pragma omp for schedule(static)
	for (int64_t i = 0; i < na + nb; i++) {
		int64_t j = i - na;
		if (i < na)
			pack_panel(c->a + i * MR * c->k, MR, &g->a, c->i + i * MR, c->i + c->m,
				c->p, c->k);
		else
			pack_panel(c->b + j * NR * c->k, NR, &bt, c->j + j * NR, c->j + c->n, c->p,
				c->k);
	}
}

/* ---- the product ---------------------------------------------------------------------------------- */

/* One row of a tile, n <= NR sums: to c, with what the last chunk adds. at: place in c. */
static void finish_row(const struct cpu_gemm *g, const struct chunk *c, float *restrict x,
	int64_t at, int64_t column, size_t n, float *part)
{
	float old[NR];

	if (!c->first || (g->accumulate && !part)) {
		if (part)
			memcpy(old, part, n * sizeof *old);
		else
			jm_load(g->c, g->c_bf16, (size_t)at, n, old);
		for (size_t j = 0; j < n; j++)
			x[j] += old[j];
	}
	if (part && !c->last) {
		memcpy(part, x, n * sizeof *x);
		return;
	}
	if (part && g->accumulate) {
		jm_load(g->c, g->c_bf16, (size_t)at, n, old);
		for (size_t j = 0; j < n; j++)
			x[j] += old[j];
	}
	for (size_t j = 0; g->bias && c->last && j < n; j++)
		x[j] += g->bias[column + (int64_t)j];
	jm_store(g->c, g->c_bf16, (size_t)at, n, x);
	if (g->act && c->last) {
		if (g->c_bf16)
			jm_load(g->c, true, (size_t)at, n, x);
		for (size_t j = 0; j < n; j++)
			x[j] = jm_gelu(x[j]);
		jm_store(g->act, g->c_bf16, (size_t)at, n, x);
	}
}

/* Rows i .. i + RK, columns j .. j + NR of the chunk. */
static void small_tile(const struct cpu_gemm *g, const struct chunk *c, int64_t i, int64_t j)
{
	float out[RK][NR] __attribute__((aligned(64)));
	const float *a = c->a + i / MR * MR * c->k + i % MR;
	size_t n = (size_t)min64(NR, c->n - j);

	jm_micro(NV, c->k, a, 1, MR, c->b + j * c->k, NR, out[0], NR, false);
	for (int64_t r = 0; r < min64(RK, c->m - i); r++) {
		float *part = c->sum ? c->sum + (i + r) * c->n + j : NULL;
		finish_row(g, c, out[r], (c->i + i + r) * g->ldc + c->j + j, c->j + j, n, part);
	}
}

static void multiply(const struct cpu_gemm *g, const struct chunk *c)
{
	int64_t tm = (c->m + TILE_M - 1) / TILE_M, tn = (c->n + TILE_N - 1) / TILE_N;

#pragma omp for schedule(static)
	for (int64_t t = 0; t < tm * tn; t++) {
		int64_t i0 = t % tm * TILE_M, j0 = t / tm * TILE_N;
		for (int64_t i = i0; i < min64(c->m, i0 + TILE_M); i += RK) {
			for (int64_t j = j0; j < min64(c->n, j0 + TILE_N); j += NR)
				small_tile(g, c, i, j);
		}
	}
}

static void gemm(const struct cpu_gemm *g)
{
	int64_t step = chunk_k(g);
	bool one_a = g->m <= MC && g->k <= step, one_b = g->n <= NC && g->k <= step;

#pragma omp parallel num_threads(g->threads)
	{
		struct chunk c = {.a = g->scratch, .b = c.a + size_a(g)};

		c.sum = needs_sum(g) ? c.b + size_b(g) : NULL;
		for (c.j = 0; c.j < g->n; c.j += NC) {
			c.n = min64(NC, g->n - c.j);
			for (c.i = 0; c.i < g->m; c.i += MC) {
				c.m = min64(MC, g->m - c.i);
				for (c.p = 0; c.p < g->k; c.p += step) {
					c.k = min64(step, g->k - c.p);
					c.first = c.p == 0;
					c.last = c.p + c.k == g->k;
					pack(g, &c, !one_a || c.j == 0, !one_b || c.i == 0);
					multiply(g, &c);
				}
			}
		}
	}
}

/* FLOP/s of one core by independent multiply-adds: 12 chains cover the latency of two units. */
static double peak(void)
{
	enum { CHAINS = 12, ROUNDS = 4000 };
	jm_vf x[CHAINS] = {{0}}, one = {0};
	double best = 0;

	for (int i = 0; i < 20; i++) {
		double start = omp_get_wtime();
		for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 12
			for (int c = 0; c < CHAINS; c++)
				x[c] = x[c] * one + x[c];
			__asm__ volatile("" ::: "memory");
		}
		double rate = 2. * JM_VL * CHAINS * ROUNDS / (omp_get_wtime() - start);
		best = rate > best ? rate : best;
	}
	for (int c = 1; c < CHAINS; c++)
		x[0] += x[c];
	return x[0][0] == 0 ? best : 0;
}

const struct cpu_gemms JM_CPU(cpu_gemms) = {gemm_scratch, gemm, peak};
