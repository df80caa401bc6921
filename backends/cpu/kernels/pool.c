/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of 16 channels at a time where these are adjacent. */
#include "kernel_set.h"
#include "vector_lanes.h"

#include <math.h>
#include <omp.h>

/* The rows and columns of x in the window of element (row, column) of y. */
struct window {
	int64_t row[2], col[2]; /* from, to */
};

static void span(const struct cpu_pool *p, int axis, int64_t at, int64_t size, int64_t *ret)
{
	int64_t from = at * p->stride[axis] - p->pad[axis], to = from + p->kernel[axis];

	ret[0] = from < 0 ? 0 : from;
	ret[1] = to > size ? size : to;
}

static struct window window_at(const struct cpu_pool *p, int64_t row, int64_t col)
{
	struct window w;

	span(p, 0, row, p->x.rows, w.row);
	span(p, 1, col, p->x.cols, w.col);
	return w;
}

static int64_t pixel_at(const struct cpu_image *x, int64_t n, int64_t k, int64_t row, int64_t col)
{
	return n * x->image + k * x->chunk + (row * x->cols + col) * x->pixel;
}

/* The maximum of the window, and the pixel of x of its first occurrence. */
static jm_l16 largest(
	const struct cpu_pool *p, int64_t n, int64_t k, struct window w, jm_i16 *where)
{
	jm_l16 best = jm_lanes_set(-INFINITY);
	int width = cpu_image_width(&p->x, k);

	*where = (jm_i16){0} - 1;
	for (int64_t r = w.row[0]; r < w.row[1]; r++)
		for (int64_t c = w.col[0]; c < w.col[1]; c++) {
			jm_l16 x = jm_lanes_load(
				p->x.data, p->x.bf16, pixel_at(&p->x, n, k, r, c), width);
			jm_i16 more = (x > best) | (*where < 0) | jm_lanes_nan(x);

			best = jm_lanes_pick(more, x, best);
			*where = (more & (int32_t)(r * p->x.cols + c)) | (~more & *where);
		}
	return best;
}

static jm_l16 total(const struct cpu_pool *p, int64_t n, int64_t k, struct window w)
{
	jm_l16 sum = {0};
	int width = cpu_image_width(&p->x, k);

	for (int64_t r = w.row[0]; r < w.row[1]; r++)
		for (int64_t c = w.col[0]; c < w.col[1]; c++)
			sum += jm_lanes_load(
				p->x.data, p->x.bf16, pixel_at(&p->x, n, k, r, c), width);
	return sum;
}

/* The divisor of the sum of a window. */
static float divisor(const struct cpu_pool *p, struct window w)
{
	if (p->sums)
		return 1;
	if (p->count_pad)
		return (float)(p->kernel[0] * p->kernel[1]);
	return (float)((w.row[1] - w.row[0]) * (w.col[1] - w.col[0]));
}

JM_INLINE void plane(const struct cpu_pool *p, bool max, int64_t n, int64_t k)
{
	const struct cpu_image *y = &p->y;
	int width = cpu_image_width(y, k);
	jm_i16 where;

	for (int64_t r = 0; r < y->rows; r++)
		for (int64_t c = 0; c < y->cols; c++) {
			struct window w = window_at(p, r, c);
			jm_l16 v = max ? largest(p, n, k, w, &where)
				       : total(p, n, k, w) / jm_lanes_set(divisor(p, w));

			jm_lanes_emit(
				y->data, y->bf16, p->accumulate, pixel_at(y, n, k, r, c), width, v);
		}
}

/* Sums dy in a plane of f32 first, so that the result is rounded once. */
JM_INLINE void plane_grad(const struct cpu_pool *p, bool max, int64_t n, int64_t k, float *sum)
{
	const struct cpu_image *y = &p->y, *dx = &p->dx;
	int width = cpu_image_width(y, k);
	int64_t cols = dx->cols;

	memset(sum, 0, (size_t)(dx->rows * cols * LANES) * sizeof(*sum));
	for (int64_t r = 0; r < y->rows; r++)
		for (int64_t c = 0; c < y->cols; c++) {
			struct window w = window_at(p, r, c);
			jm_l16 dy = jm_lanes_load(y->data, y->bf16, pixel_at(y, n, k, r, c), width);
			jm_i16 where = {0};

			if (max)
				largest(p, n, k, w, &where);
			else
				dy /= jm_lanes_set(divisor(p, w));
			for (int64_t i = w.row[0]; i < w.row[1]; i++)
				for (int64_t j = w.col[0]; j < w.col[1]; j++) {
					jm_l16u *to = (jm_l16u *)(sum + (i * cols + j) * LANES);
					jm_i16 mine = where == (int32_t)(i * cols + j);

					*to += max ? jm_lanes_pick(mine, dy, (jm_l16){0}) : dy;
				}
		}
	for (int64_t i = 0; i < dx->rows * cols; i++)
		jm_lanes_emit(dx->data, dx->bf16, p->accumulate,
			n * dx->image + k * dx->chunk + i * dx->pixel, width,
			*(const jm_l16u *)(sum + i * LANES));
}

static void over_planes(const struct cpu_pool *p, bool max, int threads)
{
	int64_t chunks = cpu_image_chunks(&p->x);

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < p->x.n * chunks; i++) {
		if (max)
			plane(p, true, i / chunks, i % chunks);
		else
			plane(p, false, i / chunks, i % chunks);
	}
}

static void over_planes_grad(const struct cpu_pool *p, bool max, int threads)
{
	int64_t chunks = cpu_image_chunks(&p->dx);

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < p->dx.n * chunks; i++) {
		float *sum = p->scratch + omp_get_thread_num() * p->dx.rows * p->dx.cols * LANES;

		if (max)
			plane_grad(p, true, i / chunks, i % chunks, sum);
		else
			plane_grad(p, false, i / chunks, i % chunks, sum);
	}
}

static void max(const struct cpu_pool *p, int threads)
{
	over_planes(p, true, threads);
}

static void mean(const struct cpu_pool *p, int threads)
{
	over_planes(p, false, threads);
}

static void max_grad(const struct cpu_pool *p, int threads)
{
	over_planes_grad(p, true, threads);
}

static void mean_grad(const struct cpu_pool *p, int threads)
{
	over_planes_grad(p, false, threads);
}

/* ---- over the whole image -------------------------------------------------------------------- */

static void global_one(const struct cpu_image *x, int64_t n, int64_t k, void *y, bool add)
{
	int64_t pixels = x->rows * x->cols;
	int width = cpu_image_width(x, k);
	jm_l16 sum = {0};

	for (int64_t i = 0; i < pixels; i++)
		sum += jm_lanes_load(
			x->data, x->bf16, n * x->image + k * x->chunk + i * x->pixel, width);
	jm_lanes_emit(y, x->bf16, add, n * x->c + k * x->lanes, cpu_image_channels(x, k),
		sum / jm_lanes_set((float)pixels));
}

static void global(const struct cpu_image *x, void *y, bool add, int threads)
{
	int64_t chunks = cpu_image_chunks(x);

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < x->n * chunks; i++)
		global_one(x, i / chunks, i % chunks, y, add);
}

static void global_grad_one(
	const struct cpu_image *dx, int64_t n, int64_t k, const void *dy, bool add)
{
	int64_t pixels = dx->rows * dx->cols;
	int width = cpu_image_width(dx, k);
	jm_l16 g =
		jm_lanes_load(dy, dx->bf16, n * dx->c + k * dx->lanes, cpu_image_channels(dx, k));

	g /= jm_lanes_set((float)pixels);
	for (int64_t i = 0; i < pixels; i++)
		jm_lanes_emit(dx->data, dx->bf16, add,
			n * dx->image + k * dx->chunk + i * dx->pixel, width, g);
}

static void global_grad(const struct cpu_image *dx, const void *dy, bool add, int threads)
{
	int64_t chunks = cpu_image_chunks(dx);

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t i = 0; i < dx->n * chunks; i++)
		global_grad_one(dx, i / chunks, i % chunks, dy, add);
}

const struct cpu_pools JM_CPU(cpu_pools) = {max, max_grad, mean, mean_grad, global, global_grad};
