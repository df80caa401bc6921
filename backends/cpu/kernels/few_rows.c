/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c[m,n] (+)= a[m,k] b[n,k]^T for few rows m, as a step of serving has: the time is that of reading
 * b, so b is read once, in its order, and never packed. Both operands are f32 or bf16, and so is c;
 * arithmetic in f32. The sum of an element does not depend on the number of rows.
 *
 * One core of a Zen 4 read b, 276 MB of bf16 from memory, at 30 GB/s row by row and at 13 GB/s by
 * NB rows side by side, which its prefetcher does not recognize as a stream. One row of a therefore
 * takes the rows of b in turn. More rows of a take NB rows of b together, and ask for the NB rows
 * after those in the order of memory: 8 rows of a took 23 ms instead of 42, in f32 29 ms instead of
 * 48 (processor time, measured in turns).
 *
 * Rows of a are widened into scratch [m, lda]. For b in bf16, which is widened in registers, each
 * two vectors of a hold first the even, then the odd elements: those of b are the lower and the
 * upper half of 32 bits.
 */
#include "kernel_set.h"
#include "simd.h"

enum { NA = 4, NB = 4 }; /* rows of a and b whose sums fit into registers */
enum { LINE = 64 };	 /* bytes */

typedef uint32_t jm_vu __attribute__((vector_size(4 * JM_VL)));
typedef uint32_t jm_uu __attribute__((vector_size(4 * JM_VL), aligned(2), may_alias));

/* Elements of b that are read at once. */
JM_INLINE int64_t step_of(bool bf16)
{
	return bf16 ? 2 * JM_VL : JM_VL;
}

/* Elements of a row of a in scratch. */
static int64_t row_length(const struct cpu_gemm *g)
{
	return jm_up(g->k, 2 * JM_VL);
}

static size_t few_scratch(const struct cpu_gemm *g)
{
	return (size_t)(g->m * row_length(g)) * sizeof(float);
}

/* Even elements before odd ones, in each two vectors. */
static void part_row(float *x, int64_t n)
{
	float old[2 * JM_VL];

	for (int64_t i = 0; i < n; i += 2 * JM_VL) {
		memcpy(old, x + i, sizeof old);
		for (int j = 0; j < JM_VL; j++) {
			x[i + j] = old[2 * j];
			x[i + JM_VL + j] = old[2 * j + 1];
		}
	}
}

static void widen_row(const struct cpu_gemm *g, int64_t row, float *x, int64_t n)
{
	jm_load(g->a.data, g->a.bf16, (size_t)(row * g->a.ld), (size_t)g->k, x);
	memset(x + g->k, 0, (size_t)(n - g->k) * sizeof *x);
	if (g->b.bf16)
		part_row(x, n);
}

JM_INLINE void add_products(
	const int na, const int nb, const float *a, int64_t lda, const jm_vf *b, jm_vf (*sum)[NB])
{
#pragma GCC unroll 4
	for (int i = 0; i < na; i++) {
		jm_vf x = *(const jm_uf *)(a + i * lda);
#pragma GCC unroll 4
		for (int j = 0; j < nb; j++)
			sum[i][j] += x * b[j];
	}
}

/* Adds the products of step_of() elements. */
JM_INLINE void add_step(const int na, const int nb, const bool bf16, const float *a, int64_t lda,
	const char *b, size_t row_bytes, jm_vf (*sum)[NB])
{
	jm_vf low[NB], high[NB];

#pragma GCC unroll 4
	for (int j = 0; j < nb; j++) {
		const char *from = b + (size_t)j * row_bytes;
		if (!bf16) {
			low[j] = *(const jm_uf *)(const void *)from;
			continue;
		}
		jm_vu both = *(const jm_uu *)(const void *)from;
		low[j] = (jm_vf)(both << 16);
		high[j] = (jm_vf)(both & 0xffff0000u);
	}
	add_products(na, nb, a, lda, low, sum);
	if (bf16)
		add_products(na, nb, a + JM_VL, lda, high, sum);
}

JM_INLINE float sum_of(jm_vf v)
{
	float x[JM_VL];

	memcpy(x, &v, sizeof x);
#pragma GCC unroll 4
	for (int half = JM_VL / 2; half; half /= 2)
		for (int i = 0; i < half; i++)
			x[i] += x[i + half];
	return x[0];
}

/* Asks for the part of the nb rows from `next` on that belongs to byte `at` of each. */
JM_INLINE void fetch_ahead(const int nb, const char *next, size_t at)
{
#pragma GCC unroll 4
	for (size_t i = 0; i < (size_t)nb * sizeof(jm_vf); i += LINE)
		__builtin_prefetch(next + at * (size_t)nb + i, 0, 2);
}

/* ret[i][j]: row i of a by row j of b, of k elements each. */
JM_INLINE void dots(const int na, const int nb, const bool bf16, const float *a, int64_t lda,
	const char *b, int64_t ldb, int64_t k, float (*ret)[NB])
{
	const size_t size = bf16 ? 2 : 4;
	const int64_t step = step_of(bf16);
	char end[NB][4 * JM_VL] __attribute__((aligned(64))) = {{0}};
	jm_vf sum[NA][NB] = {{{0}}};
	int64_t at = 0;

	for (; at + step <= k; at += step) {
		if (nb > 1)
			fetch_ahead(nb, b + (size_t)(nb * ldb) * size, (size_t)at * size);
		add_step(na, nb, bf16, a + at, lda, b + (size_t)at * size, (size_t)ldb * size, sum);
	}
	if (at < k) {
		for (int j = 0; j < nb; j++)
			memcpy(end[j], b + (size_t)(j * ldb + at) * size, (size_t)(k - at) * size);
		add_step(na, nb, bf16, a + at, lda, end[0], sizeof end[0], sum);
	}
#pragma GCC unroll 4
	for (int i = 0; i < na; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nb; j++)
			ret[i][j] = sum_of(sum[i][j]);
}

static void store_row(const struct cpu_gemm *g, int64_t row, int64_t j, int nb, const float *sum)
{
	size_t at = (size_t)(row * g->ldc + j);
	float x[NB] = {0};

	for (int i = 0; i < nb; i++)
		x[i] = sum[i] + (g->bias ? g->bias[j + i] : 0);
	jm_emit(g->c, g->c_bf16, g->accumulate, at, (size_t)nb, x);
}

static const char *row_of_b(const struct cpu_gemm *g, const bool bf16, int64_t j)
{
	return (const char *)g->b.data + (size_t)(j * g->b.ld) * (bf16 ? 2 : 4);
}

/* nb columns of c from j on, for several rows. */
JM_INLINE void columns(const struct cpu_gemm *g, const int nb, const bool bf16, int64_t j)
{
	const char *b = row_of_b(g, bf16, j);
	int64_t lda = row_length(g);
	float ret[NA][NB];

	for (int64_t i = 0; i < g->m; i += NA) {
		const float *a = (const float *)g->scratch + i * lda;
		int rows = g->m - i < NA ? (int)(g->m - i) : NA;

		if (rows == 1)
			dots(1, nb, bf16, a, lda, b, g->b.ld, g->k, ret);
		else if (rows == 2)
			dots(2, nb, bf16, a, lda, b, g->b.ld, g->k, ret);
		else if (rows == 3)
			dots(3, nb, bf16, a, lda, b, g->b.ld, g->k, ret);
		else
			dots(4, nb, bf16, a, lda, b, g->b.ld, g->k, ret);
		for (int r = 0; r < rows; r++)
			store_row(g, i + r, j, nb, ret[r]);
	}
}

/* The same for one row. */
JM_INLINE void columns_of_one(const struct cpu_gemm *g, int nb, const bool bf16, int64_t j)
{
	float ret[1][NB], sum[NB];

	for (int i = 0; i < nb; i++) {
		dots(1, 1, bf16, g->scratch, 0, row_of_b(g, bf16, j + i), 0, g->k, ret);
		sum[i] = ret[0][0];
	}
	store_row(g, 0, j, nb, sum);
}

JM_INLINE void some_columns(const struct cpu_gemm *g, const bool bf16, int64_t j)
{
	int nb = g->n - j < NB ? (int)(g->n - j) : NB;

	if (g->m == 1)
		columns_of_one(g, nb, bf16, j);
	else if (nb == NB)
		columns(g, NB, bf16, j);
	else
		for (; j < g->n; j++)
			columns(g, 1, bf16, j);
}

static void few_rows(const struct cpu_gemm *g)
{
	int64_t lda = row_length(g);

#pragma omp parallel num_threads(g->threads)
	{
#pragma omp for schedule(static)
		for (int64_t i = 0; i < g->m; i++)
			widen_row(g, i, (float *)g->scratch + i * lda, lda);
#pragma omp for schedule(static)
		for (int64_t j = 0; j < g->n; j += NB) {
			if (g->b.bf16)
				some_columns(g, true, j);
			else
				some_columns(g, false, j);
		}
	}
}

const struct cpu_few_rows JM_CPU(cpu_few_rows) = {few_scratch, few_rows};
