/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy over logits[rows, classes] with its gradient, which may overwrite them:
 * each row is read from memory once. Its exponentials stay in the cache until their sum is known.
 */
#include "kernel_set.h"
#include "simd.h"

#include <float.h>
#include <math.h>
#include <omp.h>

enum { PIECE = 1024 };

/* The memory of a thread for one row: its exponentials, and for each piece the maximum that was
 * subtracted. */
struct row {
	float *e, *max;
};

static size_t row_floats(int64_t classes)
{
	return (size_t)jm_up(classes, 16) + (size_t)jm_up((classes + PIECE - 1) / PIECE, 16);
}

/* Scratch holds a loss for each row, then a row for each thread. */
static size_t xent_scratch(int64_t rows, int64_t classes, int threads)
{
	return (size_t)jm_up(rows, 8) * sizeof(double) +
	       row_floats(classes) * (size_t)threads * sizeof(float);
}

/* e = exp(x - max), where *max first becomes the largest value so far; *sum is scaled to it and
 * grows by e. While all values are -infinity, max is the lowest number, of which e is 0. */
static void take_piece(const float *x, size_t n, float *restrict e, float *max, double *sum)
{
	float top = *max, part = 0;

#pragma omp simd reduction(max : top)
	for (size_t i = 0; i < n; i++)
		top = x[i] > top ? x[i] : top;
#pragma omp simd reduction(+ : part)
	for (size_t i = 0; i < n; i++) {
		e[i] = jm_exp(x[i] - top);
		part += e[i];
	}
	*sum = *sum * exp((double)(*max - top)) + (double)part;
	*max = top;
}

/* Prefetches elements of the next row into the cache. */
static void fetch(const struct cpu_xent *p, size_t first, size_t n)
{
	size_t size = p->logits.bf16 ? 2 : 4;
	const char *x = (const char *)p->logits.data + first * size;

	for (size_t i = 0; i < n * size; i += 64)
		__builtin_prefetch(x + i, 0, 2);
}

/* Of a row: its maximum, and the sum of exp(x - max), whose logarithm would be lost beside a very
 * large maximum. */
struct exponentials {
	double max, sum;
};

static struct exponentials sum_exponentials(
	const struct cpu_xent *p, size_t at, size_t n, const struct row *row)
{
	float buf[PIECE], max = -FLT_MAX;
	double sum = 0;

	for (size_t i = 0; i < n; i += PIECE) {
		size_t m = n - i < PIECE ? n - i : PIECE;
		const float *x = jm_view(p->logits.data, p->logits.bf16, at + i, m, buf);

		fetch(p, at + n + i / 2, m / 2);
		take_piece(x, m, row->e + i, &max, &sum);
		row->max[i / PIECE] = max;
	}
	return (struct exponentials){(double)max, sum};
}

/*
 * Writes scale (e share - 1 at the target class) of n elements of a row: directly to dlogits if
 * these are f32 and not accumulated, else through e. right: index of the target class; n or more =
 * not in this piece.
 */
static void gradient_piece(
	const struct cpu_xent *p, size_t at, size_t n, size_t right, double share, float *e)
{
	bool direct = !p->dlogits.bf16 && !(p->accumulate & JM_ADD_LOSS_DX);
	float *y = direct ? (float *)p->dlogits.data + at : e;
	float factor = (float)(p->scale * share);

#pragma omp simd
	for (size_t j = 0; j < n; j++)
		y[j] = e[j] * factor;
	if (right < n)
		y[right] -= (float)p->scale;
	if (!direct)
		jm_emit(p->dlogits.data, p->dlogits.bf16, p->accumulate & JM_ADD_LOSS_DX, at, n, e);
}

/* right: index of the target class in the row. */
static void gradient(const struct cpu_xent *p, size_t at, size_t n, struct exponentials all,
	size_t right, const struct row *row)
{
	for (size_t i = 0; i < n; i += PIECE) {
		size_t m = n - i < PIECE ? n - i : PIECE;

		fetch(p, at + n + (n + i) / 2, m / 2);
		gradient_piece(p, at + i, m, right - i,
			exp((double)row->max[i / PIECE] - all.max) / all.sum, row->e + i);
	}
}

/* The loss of row r. */
static double xent_row(const struct cpu_xent *p, int64_t r, const struct row *row)
{
	size_t n = (size_t)p->classes, stride = (size_t)p->stride, at = (size_t)r * stride;
	size_t target = (size_t)p->targets[r], size = p->dlogits.bf16 ? 2 : 4;
	struct exponentials all;
	float right;

	if (p->targets[r] < 0) {
		if (p->dlogits.data && !(p->accumulate & JM_ADD_LOSS_DX))
			memset((char *)p->dlogits.data + at * size, 0, stride * size);
		return 0;
	}
	jm_load(p->logits.data, p->logits.bf16, at + target, 1, &right);
	all = sum_exponentials(p, at, n, row);
	if (p->dlogits.data)
		gradient(p, at, n, all, target, row);
	if (p->dlogits.data && stride > n && !(p->accumulate & JM_ADD_LOSS_DX))
		memset((char *)p->dlogits.data + (at + n) * size, 0, (stride - n) * size);
	return log(all.sum) + (all.max - (double)right);
}

static void xent(const struct cpu_xent *p, int threads)
{
	double *losses = p->scratch, sum = 0;
	float *rows = (float *)(losses + jm_up(p->rows, 8));

#pragma omp parallel num_threads(threads)
	{
		struct row row = {
			.e = rows + row_floats(p->classes) * (size_t)omp_get_thread_num()};

		row.max = row.e + jm_up(p->classes, 16);
#pragma omp for schedule(static)
		for (int64_t r = 0; r < p->rows; r++)
			losses[r] = xent_row(p, r, &row);
	}
	for (int64_t r = 0; r < p->rows; r++)
		sum += losses[r];
	*p->loss = (float)(p->each * sum) + (p->accumulate & JM_ADD_OUT ? *p->loss : 0);
}

const struct cpu_losses JM_CPU(cpu_losses) = {xent_scratch, xent};
