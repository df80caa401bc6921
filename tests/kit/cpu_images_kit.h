/* SPDX-License-Identifier: Apache-2.0 */
/* Images for the cpu backend's kernels, in every layout that they support; checks of results. */
#ifndef JM_CPU_IMAGES_KIT_H
#define JM_CPU_IMAGES_KIT_H

#include <stdlib.h>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/simd.h"
#include "kit/test.h"

#define THREADS 3
#define EPS	0.1

enum lie { PLAIN, BLOCKS_8, BLOCKS_16, LAST, LIES };

static const struct shape {
	int64_t n, c, rows, cols;
} shapes[] = {
	{2, 5, 7, 9}, {1, 16, 3, 5}, {3, 37, 11, 6}, {2, 530, 5, 3}, {1, 1, 70, 13}, {2, 24, 4, 4}};

/* One way to run: instruction set, layout, type, shape; and whether results are added to. */
struct way {
	const struct cpu_kernels *set;
	enum lie lie;
	bool bf16, add;
	struct shape s;
};

static inline int64_t count(struct shape s)
{
	return s.n * s.c * s.rows * s.cols;
}

/* ---- images ---------------------------------------------------------------------------------- */

static inline int64_t block(const struct way *w)
{
	return w->lie == BLOCKS_8 ? 8 : w->lie == BLOCKS_16 ? 16 : 1;
}

static inline int64_t padded(const struct way *w, int64_t channels)
{
	return (channels + block(w) - 1) / block(w) * block(w);
}

/* The index of element i of [n,c,rows,cols]. */
static inline int64_t place(const struct way *w, struct shape s, int64_t i)
{
	int64_t pixels = s.rows * s.cols, pixel = i % pixels, c = i / pixels % s.c;
	int64_t n = i / pixels / s.c, b = block(w);

	if (w->lie == LAST)
		return (n * pixels + pixel) * s.c + c;
	return ((n * (padded(w, s.c) / b) + c / b) * pixels + pixel) * b + c % b;
}

static inline double element(const void *data, bool bf16, int64_t at)
{
	float x;

	jm_load(data, bf16, (size_t)at, 1, &x);
	return (double)x;
}

static inline void set_element(void *data, bool bf16, int64_t at, double value)
{
	float x = (float)value;

	jm_store(data, bf16, (size_t)at, 1, &x);
}

/* An image with these values, which it rounds to its type; NULL: with nothing but NaN. */
static inline struct cpu_image image(const struct way *w, struct shape s, double *values)
{
	int64_t pixels = s.rows * s.cols, all = s.n * padded(w, s.c) * pixels;
	size_t size = w->bf16 ? 2 : 4;
	struct cpu_image x = {.data = malloc((size_t)all * size),
		.bf16 = w->bf16,
		.n = s.n,
		.c = s.c,
		.rows = s.rows,
		.cols = s.cols};

	x.lanes = w->lie == LAST ? 16 : block(w);
	x.pixel = w->lie == LAST ? s.c : x.lanes;
	x.chunk = w->lie == LAST ? 16 : pixels * x.lanes;
	x.image = pixels * padded(w, s.c);
	memset(x.data, values ? 0 : 0xff, (size_t)all * size);
	for (int64_t i = 0; values && i < count(s); i++) {
		set_element(x.data, w->bf16, place(w, s, i), values[i]);
		values[i] = element(x.data, w->bf16, place(w, s, i));
	}
	return x;
}

/* A result: NaN, or what it is added to. */
static inline struct cpu_image result(const struct way *w, struct shape s, double *before)
{
	return image(w, s, w->add ? before : NULL);
}

static inline void fail_at(
	const struct way *w, const char *what, int64_t i, double got, double want)
{
	static const char *const names[LIES] = {"plain", "8c", "16c", "last"};

	fail_msg("%s, %s, %s%s, %s %dx%dx%dx%d: element %d is %.9g, not %.9g", what, w->set->target,
		w->bf16 ? "bf16" : "f32", w->add ? ", added" : "", names[w->lie], (int)w->s.n,
		(int)w->s.c, (int)w->s.rows, (int)w->s.cols, (int)i, got, want);
}

static inline void near(const struct way *w, const char *what, int64_t i, double got, double want)
{
	double tolerance = w->bf16 ? 1e-2 : 3e-5;

	if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= tolerance * (1 + fabs(want))))
		fail_at(w, what, i, got, want);
}

/* Compares y with `want` added to `before`, and its padding with 0; frees it. */
static inline void check(const struct way *w, const char *what, struct cpu_image *y,
	const double *want, const double *before)
{
	struct shape s = {y->n, y->c, y->rows, y->cols};
	int64_t all = s.n * padded(w, s.c) * s.rows * s.cols;

	for (int64_t i = 0; i < count(s); i++) {
		near(w, what, i, element(y->data, w->bf16, place(w, s, i)),
			want[i] + (w->add ? before[i] : 0));
		set_element(y->data, w->bf16, place(w, s, i), 0);
	}
	for (int64_t i = 0; i < all; i++)
		if (element(y->data, w->bf16, i) != 0)
			fail_at(w, "padding", i, element(y->data, w->bf16, i), 0);
	free(y->data);
}

static inline double *normal(int64_t n, double mean, unsigned seed)
{
	double *x = malloc((size_t)n * sizeof(*x));

	for (int64_t i = 0; i < n; i++) {
		x[i] = mean - 6;
		for (int k = 0; k < 12; k++)
			x[i] += (seed = seed * 1664525u + 1013904223u) / 4294967296.0;
	}
	return x;
}

static inline float *floats(int64_t n, double mean, unsigned seed)
{
	double *x = normal(n, mean, seed);
	float *y = malloc((size_t)n * sizeof(*y));

	for (int64_t i = 0; i < n; i++)
		y[i] = (float)x[i];
	free(x);
	return y;
}

static inline float *same(int64_t n, float value)
{
	float *x = malloc((size_t)n * sizeof(*x));

	for (int64_t i = 0; i < n; i++)
		x[i] = value;
	return x;
}

static inline void each_way(void (*check_way)(const struct way *w))
{
	struct way w = {0};

	for (int set = 0; (w.set = cpu_kernels_get(set)); set++)
		for (w.lie = 0; w.lie < LIES; w.lie++)
			for (size_t i = 0; i < 4 * sizeof(shapes) / sizeof(*shapes); i++) {
				w.s = shapes[i / 4];
				w.bf16 = i & 1;
				w.add = i & 2;
				check_way(&w);
			}
}

#endif
