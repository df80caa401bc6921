/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products of operands in the first two caches. */
#ifndef JM_CPU_PANEL_H
#define JM_CPU_PANEL_H

#include "simd.h"

/* Rows of a product whose sums fit into registers, with up to three vectors per row. */
#define JM_ROWS (JM_VL == 16 ? 8 : 4)

JM_INLINE jm_v8f jm_load8(const void *p, bool bf16, int64_t at)
{
	jm_v8f x;

	if (bf16) {
		jm_v8h h;
		memcpy(&h, (const uint16_t *)p + at, sizeof h);
		jm_v8u u = __builtin_convertvector(h, jm_v8u) << 16;
		memcpy(&x, &u, sizeof x);
	} else {
		memcpy(&x, (const float *)p + at, sizeof x);
	}
	return x;
}

typedef float jm_u8f __attribute__((vector_size(32), aligned(4), may_alias));

#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

/* y[i * stride + j] = x[j][i] */
JM_INLINE void jm_transpose8(const jm_v8f x[8], float *y, int64_t stride)
{
	jm_v8f s[8], t[8];

	for (int i = 0; i < 8; i += 2) {
		s[i] = MIX(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		s[i + 1] = MIX(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
	for (int i = 0; i < 8; i += 4) {
		t[i] = MIX(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
		t[i + 1] = MIX(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
		t[i + 2] = MIX(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
		t[i + 3] = MIX(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
	}
	for (int i = 0; i < 4; i++) {
		jm_v8f low = MIX(t[i], t[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		jm_v8f high = MIX(t[i], t[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
		*(jm_u8f *)(y + i * stride) = low;
		*(jm_u8f *)(y + (i + 4) * stride) = high;
	}
}

#undef MIX

/*
 * c[rows][nv vectors] (+)= sum over nk of a(i, k) b(k, j), all f32: a(i, k) = a[i * ai + k * ak],
 * b and c row-major with their ld. rows, nv, ai or ak are constants; rows <= JM_ROWS and nv <= 3,
 * which are 24 sums for JM_VL 16.
 */
JM_INLINE void jm_micro(const int rows, const int nv, int64_t nk, const float *a, int64_t ai,
	int64_t ak, const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
	jm_vf sum[JM_ROWS][3] = {{{0}}};

	for (int64_t k = 0; k < nk; k++, a += ak, b += ldb) {
		const jm_uf *x = (const jm_uf *)b;
#pragma GCC unroll 8
		for (int i = 0; i < rows; i++) {
#pragma GCC unroll 3
			for (int j = 0; j < nv; j++)
				sum[i][j] += a[i * ai] * x[j];
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < rows; i++) {
		jm_uf *y = (jm_uf *)(c + i * ldc);
#pragma GCC unroll 3
		for (int j = 0; j < nv; j++)
			y[j] = (add ? y[j] : (jm_uf){0}) + sum[i][j];
	}
}

#endif
