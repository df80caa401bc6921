/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products c[m,n] (+)= a b of a layer with many weights and a small batch, all f32: the time should
 * be that of reading or writing the weights once, which the general product packs first. `rows`:
 * c[m,n] = a[m,k] b[n,k]^T, whose weights are b, read in place as a few streams; `gradient`:
 * c[m,n] = a[m,k] b[k,n], whose weights b are packed a piece at a time, which stays in the cache;
 * `outer`: c[m,n] = a[k,m]^T b[k,n], whose weights c are written once.
 *
 * The small operand is packed into scratch, in groups of as many rows or columns as a tile of sums
 * in registers has; its edges are zeros.
 */
#include "kernel_set.h"
#include "panel.h"

#include <omp.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

enum {
	NV = JM_VL == 4 ? 2 : 3, /* vectors in a row of a tile of sums */
	NR = NV * JM_VL,
	RK = JM_ROWS,
	TURNED = 2 * JM_VL, /* rows of a whose sums are a row of a tile */
	RUN = 64,	    /* terms of a sum in registers */
	LINE = 64,	    /* bytes */
	AHEAD = 128,	    /* elements of a row of b that are asked for ahead */
	DEEP = 128,	    /* rows and columns of a piece of b */
	WIDE = 10 * NR
};

/* y[group][k][width]: rows of x, or its columns if it is transposed, in groups of `width`. */
static void pack(const struct cpu_matrix *x, int64_t rows, int64_t k, int width, float *y)
{
	const float *from = x->data;

#pragma omp for schedule(static) collapse(2)
	for (int64_t g = 0; g < (rows + width - 1) / width; g++)
		for (int64_t p = 0; p < k; p += RUN)
			for (int64_t i = g * width; i < (g + 1) * width; i++) {
				float *to = y + g * width * k + i % width;

				for (int64_t j = p; j < jm_min64(p + RUN, k); j++)
					to[j * width] = i >= rows	? 0
							: x->transposed ? from[j * x->ld + i]
									: from[i * x->ld + j];
			}
}

static void store(const struct cpu_gemm *g, int64_t i, int64_t j, int64_t n, const float *sum)
{
	float *c = (float *)g->c + i * g->ldc + j;

	for (int64_t l = 0; l < n; l++) {
		float x = sum[l] + (g->bias ? g->bias[j + l] : 0);

		c[l] = g->accumulate ? c[l] + x : x;
	}
}

/* ---- c[m,n] = a[m,k] b[n,k]^T ---------------------------------------------------------------- */

static size_t rows_scratch(const struct cpu_gemm *g)
{
	return (size_t)(jm_up(g->m, TURNED) * g->k) * sizeof(float);
}

/* Adds the products of k terms of some rows of b by a group of a to sum[rows][TURNED]. Asks for
 * lines of b ahead. */
JM_INLINE void add_run(
	const int rows, const float *a, const float *b, int64_t ld, int64_t k, float (*sum)[TURNED])
{
	jm_vf s[RK][2] = {{{0}}};

	for (int64_t p = 0; p < k; p += LINE / 4) {
		for (int i = 0; i < rows; i++)
			__builtin_prefetch(b + i * ld + p + AHEAD, 0, 3);
		for (int64_t q = p; q < jm_min64(p + LINE / 4, k); q++) {
			const jm_uf *x = (const jm_uf *)(a + q * TURNED);
#pragma GCC unroll 8
			for (int i = 0; i < rows; i++) {
				s[i][0] += b[i * ld + q] * x[0];
				s[i][1] += b[i * ld + q] * x[1];
			}
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < rows; i++) {
		jm_uf *y = (jm_uf *)sum[i];

		y[0] += s[i][0];
		y[1] += s[i][1];
	}
}

/* sum[rows of b][TURNED]: `rows` rows of b by a group of a. */
JM_INLINE void turned_tile(
	const int rows, const float *a, const float *b, int64_t ld, int64_t k, float (*sum)[TURNED])
{
	memset(sum, 0, (size_t)rows * sizeof(*sum));
	for (int64_t p = 0; p < k; p += RUN)
		add_run(rows, a + p * TURNED, b + p, ld, jm_min64(RUN, k - p), sum);
}

static void turned_columns(const struct cpu_gemm *g, const float *a, int64_t j)
{
	const float *b = (const float *)g->b.data + j * g->b.ld;
	int64_t columns = jm_min64(RK, g->n - j);
	float sum[RK][TURNED] __attribute__((aligned(64))), row[RK];

	for (int64_t i = 0; i < g->m; i += TURNED, a += TURNED * g->k) {
		if (columns == RK)
			turned_tile(RK, a, b, g->b.ld, g->k, sum);
		else
			for (int64_t l = 0; l < columns; l++)
				turned_tile(1, a, b + l * g->b.ld, g->b.ld, g->k, sum + l);
		for (int64_t r = 0; r < jm_min64(TURNED, g->m - i); r++) {
			for (int64_t l = 0; l < columns; l++)
				row[l] = sum[l][r];
			store(g, i + r, j, columns, row);
		}
	}
}

static void rows(const struct cpu_gemm *g)
{
#pragma omp parallel num_threads(g->threads)
	{
		pack(&g->a, g->m, g->k, TURNED, g->scratch);
#pragma omp for schedule(static)
		for (int64_t j = 0; j < g->n; j += RK)
			turned_columns(g, g->scratch, j);
	}
}

/* ---- c[m,n] = a[m,k] b[k,n] ------------------------------------------------------------------ */

/* A thread's memory: a piece of b in panels, and its sums [m][WIDE]. */
static int64_t room_of_thread(const struct cpu_gemm *g)
{
	return DEEP * WIDE + jm_up(g->m, RK) * WIDE;
}

static size_t gradient_scratch(const struct cpu_gemm *g)
{
	return (size_t)(jm_up(jm_up(g->m, RK) * g->k, 16) + g->threads * room_of_thread(g)) *
	       sizeof(float);
}

/* y[k][WIDE] of n columns of k rows. */
static void pack_piece(const float *b, int64_t ld, int64_t k, int64_t n, float *y)
{
	for (int64_t p = 0; p < k; p++, b += ld, y += WIDE) {
		memcpy(y, b, (size_t)n * sizeof(*y));
		memset(y + n, 0, (size_t)(jm_up(n, NR) - n) * sizeof(*y));
	}
}

/* Adds the products of a piece of b with k rows and n columns to the sums. */
static void add_piece(const struct cpu_gemm *g, const float *a, const float *panel, int64_t k,
	int64_t n, float *sum)
{
	for (int64_t j = 0; j < n; j += NR)
		for (int64_t i = 0; i < g->m; i += RK) {
			const float *x = a + i * g->k, *y = panel + j;
			float *to = sum + i * WIDE + j;

			if (g->m - i > RK / 2)
				jm_micro(RK, NV, k, x, 1, RK, y, WIDE, to, WIDE, true);
			else
				jm_micro(RK / 2, NV, k, x, 1, RK, y, WIDE, to, WIDE, true);
		}
}

static void gradient_columns(
	const struct cpu_gemm *g, const float *a, float *room, int64_t j, int64_t width)
{
	int64_t n = jm_min64(width, g->n - j);
	float *sum = room + DEEP * WIDE;

	memset(sum, 0, (size_t)(jm_up(g->m, RK) * WIDE) * sizeof(*sum));
	for (int64_t p = 0; p < g->k; p += DEEP) {
		int64_t k = jm_min64(DEEP, g->k - p);

		pack_piece((const float *)g->b.data + p * g->b.ld + j, g->b.ld, k, n, room);
		add_piece(g, a + p * RK, room, k, n, sum);
	}
	for (int64_t i = 0; i < g->m; i++)
		store(g, i, j, n, sum + i * WIDE);
}

static void gradient(const struct cpu_gemm *g)
{
	int64_t share = jm_up((g->n + g->threads - 1) / g->threads, NR);
	int64_t width = jm_min64(share, WIDE);
	float *a = g->scratch, *rooms = a + jm_up(jm_up(g->m, RK) * g->k, 16);

#pragma omp parallel num_threads(g->threads)
	{
		pack(&g->a, g->m, g->k, RK, a);
#pragma omp for schedule(static)
		for (int64_t j = 0; j < g->n; j += width)
			gradient_columns(
				g, a, rooms + omp_get_thread_num() * room_of_thread(g), j, width);
	}
}

/* ---- c[m,n] = a[k,m]^T b[k,n] ---------------------------------------------------------------- */

static size_t outer_scratch(const struct cpu_gemm *g)
{
	return (size_t)(jm_up(jm_up(g->m, RK) * g->k, 16) + jm_up(g->n, NR) * g->k) * sizeof(float);
}

/* Stores past the caches, which saves reading c first; each is a whole line of them. */
static bool can_stream(const struct cpu_gemm *g)
{
#ifdef __AVX__
	return (uintptr_t)g->c % sizeof(jm_vf) == 0 && g->ldc % JM_VL == 0 && !g->accumulate &&
	       !g->bias;
#else
	(void)g;
	return false;
#endif
}

JM_INLINE void stream(const float *x, float *y)
{
	for (int v = 0; v < NV; v++) {
#if defined(__AVX512F__)
		_mm512_stream_ps(y + v * JM_VL, _mm512_load_ps(x + v * JM_VL));
#elif defined(__AVX__)
		_mm256_stream_ps(y + v * JM_VL, _mm256_load_ps(x + v * JM_VL));
#else
		memcpy(y + v * JM_VL, x + v * JM_VL, JM_VL * sizeof(*y));
#endif
	}
}

/* Until then other threads may not see the stores. */
static void end_stream(void)
{
#ifdef __AVX__
	_mm_sfence();
#endif
}

/* RK rows of c from i on. */
static void outer_rows(const struct cpu_gemm *g, const float *a, const float *b, int64_t i)
{
	bool direct = can_stream(g);
	float sum[RK][NR] __attribute__((aligned(64)));

	for (int64_t j = 0; j < g->n; j += NR) {
		int64_t n = jm_min64(NR, g->n - j);

		jm_micro(RK, NV, g->k, a + i * g->k, 1, RK, b + j * g->k, NR, sum[0], NR, false);
		for (int64_t r = 0; r < jm_min64(RK, g->m - i); r++)
			if (direct && n == NR)
				stream(sum[r], (float *)g->c + (i + r) * g->ldc + j);
			else
				store(g, i + r, j, n, sum[r]);
	}
}

static void outer(const struct cpu_gemm *g)
{
	float *a = g->scratch, *b = a + jm_up(jm_up(g->m, RK) * g->k, 16);
	struct cpu_matrix bt = g->b;

	bt.transposed = !bt.transposed;
#pragma omp parallel num_threads(g->threads)
	{
		/* both have k rows in memory */
		pack(&g->a, g->m, g->k, RK, a);
		pack(&bt, g->n, g->k, NR, b);
#pragma omp for schedule(static)
		for (int64_t i = 0; i < g->m; i += RK)
			outer_rows(g, a, b, i);
		end_stream();
	}
}

const struct cpu_thin JM_CPU(cpu_thin) = {
	rows_scratch, rows, gradient_scratch, gradient, outer_scratch, outer};
