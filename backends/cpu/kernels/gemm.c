/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c[m,n] (+)= a[m,k] b[k,n]: operands in f32 or bf16, row-major or transposed; arithmetic in f32.
 *
 * gemm is used where oneDNN has no fast kernel: bf16 on processors whose bf16 dot product is slower
 * than their f32 multiply-add (Sapphire Rapids without tiles does half as many), and f32 rows whose
 * stride is a multiple of 4 KiB. Operands are widened to f32 while they are packed, so that bf16
 * needs no separate pass.
 *
 * A chunk of a (MC x KC) and of b (KC x NC) is packed into panels of MR rows and NR columns; the
 * threads share the chunk's tiles. A tile's part of b stays in the second-level cache, one panel of
 * a in the first-level cache. The idea of packing: Goto and van de Geijn, ACM TOMS 34:3 (2008).
 */
#include "kernel_set.h"
#include "panel.h"

#include <omp.h>

enum {
	NV = JM_VL == 4 ? 2 : 3, /* vectors in a row of a panel of b */
	NR = NV * JM_VL,	 /* columns of a panel of b */
	MR = 8,			 /* rows of a panel of a */
	RK = JM_ROWS,		 /* rows whose sums fit into registers */
	GROUP = 48,		 /* rows or columns packed together; multiple of MR and NR */
	TILE_M = 32 * MR,
	TILE_N = 2 * NR,
	MC = 1536,
	NC = 3072,
	KC = 1024,
};

/* The position of a chunk in the product, and its packed memory. */
struct chunk {
	int64_t i, j, p, m, n, k;
	bool first, last; /* along k */
	float *a, *b, *sum;
};

/* The length of equal chunks of k, a multiple of 8. */
static int64_t chunk_k(const struct cpu_gemm *g)
{
	int64_t n = (g->k + KC - 1) / KC;

	return jm_up((g->k + n - 1) / n, 8);
}

/* True if sums over several chunks need scratch in f32, because c is not f32. */
static bool needs_sum(const struct cpu_gemm *g)
{
	return g->c_bf16 && g->k > chunk_k(g);
}

static size_t size_a(const struct cpu_gemm *g)
{
	return (size_t)(jm_up(jm_min64(g->m, MC), MR) * chunk_k(g));
}

static size_t size_b(const struct cpu_gemm *g)
{
	return (size_t)(jm_up(jm_min64(g->n, NC), NR) * chunk_k(g));
}

static size_t gemm_scratch(const struct cpu_gemm *g)
{
	size_t sum = needs_sum(g) ? (size_t)(jm_min64(g->m, MC) * jm_min64(g->n, NC)) : 0;

	return (size_a(g) + size_b(g) + sum) * sizeof(float);
}

/* ---- packing: panel[k][w], w < width, from elements (w, k) ----------------------------------- */

/* The offset of element (w, 0) in the panels of a chunk of length nk. */
static int64_t place(int64_t w, int64_t width, int64_t nk)
{
	return w / width * width * nk + w % width;
}

/* Packs eight neighbours w, of which those beyond the end of x are zeros. */
static void pack_edge(float *y, int64_t width, const struct cpu_matrix *x, int64_t w0, int64_t end,
	int64_t k0, int64_t nk)
{
	for (int64_t k = k0; k < k0 + nk; k++, y += width) {
		for (int64_t w = w0; w < w0 + 8; w++) {
			int64_t at = x->transposed ? k * x->ld + w : w * x->ld + k;
			y[w - w0] = 0;
			if (w < end)
				jm_load(x->data, x->bf16, (size_t)at, 1, y + w - w0);
		}
	}
}

/* Packs eight neighbours w; k is contiguous in memory. */
JM_INLINE void pack_turned(float *y, int64_t width, const struct cpu_matrix *x, bool bf16,
	int64_t w, int64_t k0, int64_t nk)
{
	int64_t k = 0;

	for (; k + 8 <= nk; k += 8) {
		jm_v8f v[8];
		for (int i = 0; i < 8; i++)
			v[i] = jm_load8(x->data, bf16, (w + i) * x->ld + k0 + k);
		jm_transpose8(v, y + k * width, width);
	}
	pack_edge(y + k * width, width, x, w, w + 8, k0 + k, nk - k);
}

/* Packs GROUP neighbours w; w is contiguous in memory. y[i]: destination of the i-th eight. */
JM_INLINE void pack_straight(float *const *y, int64_t width, const struct cpu_matrix *x, bool bf16,
	int64_t w, int64_t k0, int64_t nk)
{
	for (int64_t k = 0; k < nk; k++) {
		for (int i = 0; i < GROUP / 8; i++) {
			jm_v8f v = jm_load8(x->data, bf16, (k0 + k) * x->ld + w + 8 * i);
			memcpy(y[i] + k * width, &v, sizeof v);
		}
	}
}

/* Packs up to GROUP elements from w0 + i on, of a chunk with n elements from w0 on. */
static void pack_group(float *panels, int64_t width, const struct cpu_matrix *x, int64_t i,
	int64_t w0, int64_t n, int64_t k0, int64_t nk)
{
	int64_t end = jm_min64(i + GROUP, jm_up(n, width));
	float *y[GROUP / 8];

	for (int64_t j = i; j < end; j += 8)
		y[(j - i) / 8] = panels + place(j, width, nk);
	if (x->transposed && i + GROUP <= n) {
		if (x->bf16)
			pack_straight(y, width, x, true, w0 + i, k0, nk);
		else
			pack_straight(y, width, x, false, w0 + i, k0, nk);
		return;
	}
	for (int64_t j = i; j < end; j += 8) {
		if (x->transposed || j + 8 > n)
			pack_edge(y[(j - i) / 8], width, x, w0 + j, w0 + n, k0, nk);
		else if (x->bf16)
			pack_turned(y[(j - i) / 8], width, x, true, w0 + j, k0, nk);
		else
			pack_turned(y[(j - i) / 8], width, x, false, w0 + j, k0, nk);
	}
}

static void pack(const struct cpu_gemm *g, const struct chunk *c, bool with_a, bool with_b)
{
	struct cpu_matrix bt = g->b; /* panels of b hold columns, so its transpose is packed */
	int64_t na = with_a ? jm_up(c->m, GROUP) : 0, nb = with_b ? jm_up(c->n, GROUP) : 0;

	bt.transposed = !bt.transposed;
#pragma omp for schedule(static)
	for (int64_t i = 0; i < na + nb; i += GROUP) {
		if (i < na)
			pack_group(c->a, MR, &g->a, i, c->i, c->m, c->p, c->k);
		else
			pack_group(c->b, NR, &bt, i - na, c->j, c->n, c->p, c->k);
	}
}

/* ---- the product ----------------------------------------------------------------------------- */

JM_INLINE void add_row(float *restrict x, const void *y, bool bf16, size_t at, size_t n)
{
	float old[NR];

	jm_load(y, bf16, at, n, old);
	for (size_t j = 0; j < n; j++)
		x[j] += old[j];
}

/* Stores a row of n <= NR sums: after the last chunk to c at offset `at`, with bias and c added;
 * else to `part`. */
JM_INLINE void finish_row(const struct cpu_gemm *g, const struct chunk *c, float *restrict x,
	size_t at, const float *bias, const size_t n, float *part)
{
	if (part && !c->first)
		add_row(x, part, false, 0, n);
	if (part && !c->last) {
		jm_store(part, false, 0, n, x);
		return;
	}
	if (g->accumulate || (!c->first && !part))
		add_row(x, g->c, g->c_bf16, at, n);
	if (bias && c->last)
		add_row(x, bias, false, 0, n);
	jm_store(g->c, g->c_bf16, at, n, x);
}

/* Stores `rows` rows of n sums each. */
JM_INLINE void finish_tile(const struct cpu_gemm *g, const struct chunk *c, int64_t i, int64_t j,
	int64_t rows, const size_t n, float (*out)[NR])
{
	const float *bias = g->bias ? g->bias + c->j + j : NULL;
	size_t at = (size_t)((c->i + i) * g->ldc + c->j + j);

	for (int64_t r = 0; r < rows; r++)
		finish_row(g, c, out[r], at + (size_t)(r * g->ldc), bias, n,
			c->sum ? c->sum + (i + r) * c->n + j : NULL);
}

/* Computes rows i .. i + RK, columns j .. j + NR of the chunk. */
static void small_tile(const struct cpu_gemm *g, const struct chunk *c, int64_t i, int64_t j)
{
	float out[RK][NR] __attribute__((aligned(64)));
	const float *a = c->a + place(i, MR, c->k);
	int64_t rows = jm_min64(RK, c->m - i), n = jm_min64(NR, c->n - j);

	jm_micro(JM_ROWS, NV, c->k, a, 1, MR, c->b + j * c->k, NR, out[0], NR, false);
	if (n == NR)
		finish_tile(g, c, i, j, rows, NR, out);
	else
		finish_tile(g, c, i, j, rows, (size_t)n, out);
}

static void multiply(const struct cpu_gemm *g, const struct chunk *c)
{
	int64_t tm = (c->m + TILE_M - 1) / TILE_M, tn = (c->n + TILE_N - 1) / TILE_N;

#pragma omp for schedule(static)
	for (int64_t t = 0; t < tm * tn; t++) {
		int64_t i0 = t % tm * TILE_M, j0 = t / tm * TILE_N;
		for (int64_t i = i0; i < jm_min64(c->m, i0 + TILE_M); i += RK) {
			for (int64_t j = j0; j < jm_min64(c->n, j0 + TILE_N); j += NR)
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
			c.n = jm_min64(NC, g->n - c.j);
			for (c.i = 0; c.i < g->m; c.i += MC) {
				c.m = jm_min64(MC, g->m - c.i);
				for (c.p = 0; c.p < g->k; c.p += step) {
					c.k = jm_min64(step, g->k - c.p);
					c.first = c.p == 0;
					c.last = c.p + c.k == g->k;
					pack(g, &c, !one_a || c.j == 0, !one_b || c.i == 0);
					multiply(g, &c);
				}
			}
		}
	}
}

/* ---- long sums of few elements --------------------------------------------------------------- */

enum { RUN = 64 }; /* rows of a and b whose products are added in f32 */

/* A share of the runs, and its memory; a and b: a run in rows without an edge, where m or n are no
 * whole tiles. */
struct share {
	int64_t m, n; /* of whole tiles and vectors */
	double *sum;  /* [m,n] */
	float *a, *b; /* [RUN,m], [RUN,n] */
	size_t bytes; /* of all three */
};

static int64_t doubles_of(const struct share *s)
{
	return jm_up(s->m * s->n, 8);
}

/* Of all shares alike, without memory. */
static struct share share_shape(const struct cpu_gemm *g)
{
	struct share s = {.m = jm_up(g->m, RK), .n = jm_up(g->n, JM_VL)};

	s.bytes = (size_t)doubles_of(&s) * sizeof(double) +
		  (size_t)jm_up(RUN * (s.m + s.n), 16) * sizeof(float);
	return s;
}

static struct share share_of(const struct cpu_gemm *g, int64_t i)
{
	struct share s = share_shape(g);

	s.sum = (double *)(void *)((char *)g->scratch + (size_t)i * s.bytes);
	s.a = (float *)(s.sum + doubles_of(&s));
	s.b = s.a + RUN * s.m;
	return s;
}

static size_t long_scratch(const struct cpu_gemm *g)
{
	return (size_t)g->threads * share_shape(g).bytes;
}

/* Rows of x with `width` elements, as they lie or copied behind each other with zeros up to `whole`
 * elements. */
static const float *whole_rows(const struct cpu_matrix *x, int64_t first, int64_t rows,
	int64_t width, int64_t whole, float *room, int64_t *ret_step)
{
	const float *from = (const float *)x->data + first * x->ld;

	*ret_step = width == whole ? x->ld : whole;
	if (width == whole)
		return from;
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < whole; j++)
			room[i * whole + j] = j < width ? from[i * x->ld + j] : 0;
	return room;
}

JM_INLINE void add_tile(const int nv, int64_t rows, const float *a, int64_t a_step, const float *b,
	int64_t b_step, double *sum, int64_t n)
{
	float out[RK][NR] __attribute__((aligned(64)));

	jm_micro(JM_ROWS, nv, rows, a, 1, a_step, b, b_step, out[0], NR, false);
	for (int i = 0; i < RK; i++)
		for (int j = 0; j < nv * JM_VL; j++)
			sum[i * n + j] += (double)out[i][j];
}

static void add_run(const struct cpu_gemm *g, const struct share *s, int64_t first)
{
	int64_t rows = jm_min64(RUN, g->k - first), a_step, b_step;
	const float *a = whole_rows(&g->a, first, rows, g->m, s->m, s->a, &a_step);
	const float *b = whole_rows(&g->b, first, rows, g->n, s->n, s->b, &b_step);

	for (int64_t i = 0; i < s->m; i += RK)
		for (int64_t j = 0; j < s->n; j += NR) {
			double *sum = s->sum + i * s->n + j;

			if (s->n - j >= NR)
				add_tile(NV, rows, a + i, a_step, b + j, b_step, sum, s->n);
			else if (s->n - j > JM_VL)
				add_tile(2, rows, a + i, a_step, b + j, b_step, sum, s->n);
			else
				add_tile(1, rows, a + i, a_step, b + j, b_step, sum, s->n);
		}
}

/* Shares are the same for any number of threads that run. */
static void long_gemm(const struct cpu_gemm *g)
{
	int64_t runs = (g->k + RUN - 1) / RUN;
	float *c = g->c;

#pragma omp parallel for schedule(static) num_threads(g->threads)
	for (int i = 0; i < g->threads; i++) {
		struct share s = share_of(g, i);

		memset(s.sum, 0, (size_t)(s.m * s.n) * sizeof(*s.sum));
		for (int64_t r = i * runs / g->threads; r < (i + 1) * runs / g->threads; r++)
			add_run(g, &s, r * RUN);
	}
	for (int64_t i = 0; i < g->m; i++)
		for (int64_t j = 0; j < g->n; j++) {
			double sum = g->accumulate ? (double)c[i * g->ldc + j] : 0;

			for (int k = 0; k < g->threads; k++) {
				struct share s = share_of(g, k);

				sum += s.sum[i * s.n + j];
			}
			c[i * g->ldc + j] = (float)sum;
		}
}

/*
 * Measures the FLOP/s of one core by independent multiply-adds: 12 chains hide the latency of two
 * units. Their values are volatile, because a compiler makes one chain of equal ones and omits
 * products with constants.
 */
static double peak(void)
{
	enum { CHAINS = 12, ROUNDS = 4000 };
	volatile float first[CHAINS] = {0};
	jm_vf x[CHAINS], factor = (jm_vf){0} + first[0];
	double best = 0;

#pragma GCC unroll 12
	for (int c = 0; c < CHAINS; c++)
		x[c] = (jm_vf){0} + first[c];
	for (int i = 0; i < 20; i++) {
		double start = omp_get_wtime();
		for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 12
			for (int c = 0; c < CHAINS; c++)
				x[c] = x[c] * factor + x[c];
			__asm__ volatile("" : "+m"(factor));
		}
		double rate = 2. * JM_VL * CHAINS * ROUNDS / (omp_get_wtime() - start);
		best = rate > best ? rate : best;
	}
#pragma GCC unroll 12
	for (int c = 1; c < CHAINS; c++)
		x[0] += x[c];
	return x[0][0] == 0 ? best : 0;
}

const struct cpu_gemms JM_CPU(cpu_gemms) = {gemm_scratch, gemm, long_scratch, long_gemm, peak};
