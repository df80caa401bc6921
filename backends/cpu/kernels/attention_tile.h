/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of attention by tiles of queries and keys in f32, used by attention.c and pages.c. */
#ifndef JM_CPU_ATTENTION_TILE_H
#define JM_CPU_ATTENTION_TILE_H

#include "panel.h"

enum { JM_WIDE = 2 * JM_VL }; /* the columns of a product and the elements of a head: multiples */

/* A part of a thread's memory: so many floats. */
struct jm_part {
	float **to;
	int64_t n;
};

/* Divides base into n parts, each from a line of the cache on, and returns the number of floats;
 * base NULL: only counts. */
JM_INLINE int64_t jm_cut(float *base, const struct jm_part *part, size_t n)
{
	int64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		*part[i].to = base ? base + at : NULL;
		at += jm_up(part[i].n, 16);
	}
	return at;
}

/* y[wide][pitch] = transposed x[n][wide], then zeros up to a multiple of JM_WIDE, in x too. */
JM_INLINE void jm_turn(float *x, int64_t n, int64_t wide, float *y, int64_t pitch)
{
	int64_t end = jm_up(n, JM_WIDE);

	memset(x + n * wide, 0, (size_t)((end - n) * wide) * sizeof *x);
	for (int64_t i = 0; i < end; i += 8, x += 8 * wide, y += 8) {
		for (int64_t d = 0; d < wide; d += 8) {
			jm_v8f v[8];
			for (int k = 0; k < 8; k++)
				memcpy(&v[k], x + k * wide + d, sizeof v[k]);
			jm_transpose8(v, y + d * pitch, pitch);
		}
	}
}

/* c[rows,columns] (+)= a b, columns a multiple of JM_WIDE; a(i, k) = a[i * ai + k * ak]. The sum of
 * an element does not depend on the number of rows. */
JM_INLINE void jm_product(int64_t rows, int64_t columns, int64_t nk, const float *a, int64_t ai,
	int64_t ak, const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
	int64_t i = 0;

	for (; i + JM_ROWS <= rows; i += JM_ROWS)
		for (int64_t j = 0; j < columns; j += JM_WIDE)
			jm_micro(JM_ROWS, 2, nk, a + i * ai, ai, ak, b + j, ldb, c + i * ldc + j,
				ldc, add);
	for (; i < rows; i++)
		for (int64_t j = 0; j < columns; j += JM_WIDE)
			jm_micro(1, 2, nk, a + i * ai, ai, ak, b + j, ldb, c + i * ldc + j, ldc,
				add);
}

/* Replaces a query's scores x[n] of a tile by exp(x scale - max), and those behind up to `pad` by
 * 0; rescales the query's output so far, y[wide]. */
JM_INLINE void jm_soften(float *restrict x, int64_t n, int64_t pad, float scale, float *max,
	float *sum, float *restrict y, int64_t wide)
{
	float top = *max, part = 0, shrink;

#pragma omp simd reduction(max : top)
	for (int64_t i = 0; i < n; i++)
		top = x[i] * scale > top ? x[i] * scale : top;
	shrink = jm_exp(*max - top);
#pragma omp simd reduction(+ : part)
	for (int64_t i = 0; i < n; i++) {
		x[i] = jm_exp(x[i] * scale - top);
		part += x[i];
	}
	for (int64_t i = n; i < pad; i++)
		x[i] = 0;
	for (int64_t d = 0; d < wide; d++)
		y[d] *= shrink;
	*sum = *sum * shrink + part;
	*max = top;
}

#endif
