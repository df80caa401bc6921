/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields on grids: products with constant matrices, of which truncated transforms consist; complex
 * products of each frequency; the relative loss. Operands are widened to f32, sums are in f32,
 * those of the loss in pieces that are added in f64.
 */
#include "kernel_set.h"
#include "panel.h"

#include <math.h>
#include <omp.h>

/* ---- products with a constant matrix --------------------------------------------------------- */

enum { VECTORS = 3, COLUMNS = VECTORS * JM_VL };

/* Up to COLUMNS columns of x[n,width] of one `outer`, as they lie or, if they are no whole vectors
 * of f32, copied. */
struct columns {
	const float *x;
	int64_t step; /* from one row to the next */
	int64_t at;   /* of the first element in y, in which rows are `width` apart */
	int64_t n;    /* columns */
};

static struct columns columns_of(
	const struct cpu_fixed_product *p, int64_t outer, int64_t first, float *room)
{
	struct columns c = {.x = room, .step = COLUMNS, .n = jm_min64(COLUMNS, p->width - first)};
	int64_t from = outer * p->n * p->width + first;

	c.at = outer * p->rows * p->width + first;
	if (!p->x.bf16 && c.n % JM_VL == 0) {
		c.x = (const float *)p->x.data + from;
		c.step = p->width;
		return c;
	}
	for (int64_t k = 0; k < p->n; k++) {
		float *row = room + k * COLUMNS;

		jm_load(p->x.data, p->x.bf16, (size_t)(from + k * p->width), (size_t)c.n, row);
		for (int64_t j = c.n; j < jm_up(c.n, JM_VL); j++)
			row[j] = 0;
	}
	return c;
}

/* Rows i to i + JM_ROWS - 1 of y, in these columns of nv vectors. */
JM_INLINE void fixed_tile(
	const int nv, const struct cpu_fixed_product *p, const struct columns *c, int64_t i)
{
	const float *m = p->m + i / CPU_PANEL * CPU_PANEL * p->n + i % CPU_PANEL;
	float sum[JM_ROWS][COLUMNS] __attribute__((aligned(64)));
	int64_t rows = jm_min64(JM_ROWS, p->rows - i), at = c->at + i * p->width;

	if (rows == JM_ROWS && c->n == nv * JM_VL && !p->y.bf16) {
		jm_micro(JM_ROWS, nv, p->n, m, 1, CPU_PANEL, c->x, c->step, (float *)p->y.data + at,
			p->width, p->accumulate);
		return;
	}
	jm_micro(JM_ROWS, nv, p->n, m, 1, CPU_PANEL, c->x, c->step, sum[0], COLUMNS, false);
	for (int64_t r = 0; r < rows; r++)
		jm_emit(p->y.data, p->y.bf16, p->accumulate, (size_t)(at + r * p->width),
			(size_t)c->n, sum[r]);
}

static void fixed(const struct cpu_fixed_product *p, int threads)
{
	int64_t blocks = (p->width + COLUMNS - 1) / COLUMNS;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < p->outer * blocks; k++) {
		float *room = p->scratch + omp_get_thread_num() * p->n * COLUMNS;
		struct columns c = columns_of(p, k / blocks, k % blocks * COLUMNS, room);

		for (int64_t i = 0; i < p->rows; i += JM_ROWS) {
			if (c.n > 2 * JM_VL)
				fixed_tile(3, p, &c, i);
			else if (c.n > JM_VL)
				fixed_tile(2, p, &c, i);
			else
				fixed_tile(1, p, &c, i);
		}
	}
}

static size_t fixed_scratch(const struct cpu_fixed_product *p, int threads)
{
	return (size_t)(threads * p->n * COLUMNS) * sizeof(float);
}

/* ---- complex products of each frequency ------------------------------------------------------ */

enum { TILE = 4 }; /* rows whose sums, real and imaginary, fit into registers */

static void load_row(const struct cpu_complex *x, int64_t at, int64_t n, float *ret)
{
	if (x->column == 1) {
		jm_load(x->data.data, x->data.bf16, (size_t)at, (size_t)n, ret);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		jm_load(x->data.data, x->data.bf16, (size_t)(at + i * x->column), 1, ret + i);
}

/* Rows of real parts, each followed by the row of imaginary ones, padded to `width`. */
static void pack(
	const struct cpu_complex *x, int64_t k, int64_t rows, int64_t n, int64_t width, float *ret)
{
	for (int64_t row = 0; row < rows; row++, ret += 2 * width) {
		int64_t at = k * x->each + row * x->row;

		load_row(x, at, n, ret);
		load_row(x, at + x->imaginary, n, ret + width);
		for (int64_t i = 0; x->conjugate && i < n; i++)
			ret[width + i] = -ret[width + i];
		for (int64_t i = n; i < width; i++)
			ret[i] = ret[width + i] = 0;
	}
}

/* TILE rows and JM_VL columns of the sums over n. a: packed rows, of which those behind the last
 * one are the last one. */
JM_INLINE void complex_tile(int64_t n, const float *const a[TILE], int64_t a_width, const float *b,
	int64_t b_width, float ret[TILE][2][JM_VL])
{
	jm_vf re[TILE] = {{0}}, im[TILE] = {{0}};

	for (int64_t j = 0; j < n; j++, b += 2 * b_width) {
		const jm_vf b_re = *(const jm_uf *)b, b_im = *(const jm_uf *)(b + b_width);
#pragma GCC unroll 4
		for (int r = 0; r < TILE; r++) {
			re[r] += a[r][j] * b_re;
			re[r] -= a[r][a_width + j] * b_im;
			im[r] += a[r][j] * b_im;
			im[r] += a[r][a_width + j] * b_re;
		}
	}
	for (int r = 0; r < TILE; r++) {
		memcpy(ret[r][0], &re[r], sizeof re[r]);
		memcpy(ret[r][1], &im[r], sizeof im[r]);
	}
}

static void complex_rows(
	const struct cpu_complex_product *p, int64_t k, int64_t row, const float *a, const float *b)
{
	int64_t width = jm_up(p->columns, JM_VL), rows = jm_min64(TILE, p->rows - row);
	float sum[TILE][2][JM_VL] __attribute__((aligned(64)));
	const float *at[TILE];

	for (int r = 0; r < TILE; r++)
		at[r] = a + (row + jm_min64(r, rows - 1)) * 2 * p->n;
	for (int64_t c = 0; c < p->columns; c += JM_VL) {
		complex_tile(p->n, at, p->n, b + c, width, sum);
		for (int64_t r = 0; r < 2 * rows; r++)
			jm_emit(p->y.data.data, p->y.data.bf16, p->accumulate,
				(size_t)(k * p->y.each + (row + r / 2) * p->y.row + c +
					 r % 2 * p->y.imaginary),
				(size_t)jm_min64(JM_VL, p->columns - c), sum[r / 2][r % 2]);
	}
}

/* Floats of a thread: a and b of one frequency. */
static int64_t complex_room(const struct cpu_complex_product *p)
{
	return jm_up(2 * p->n * (p->rows + jm_up(p->columns, JM_VL)), 16);
}

static void complex_product(const struct cpu_complex_product *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < p->frequencies; k++) {
		float *a = p->scratch + omp_get_thread_num() * complex_room(p);
		float *b = a + 2 * p->n * p->rows;

		pack(&p->a, k, p->rows, p->n, p->n, a);
		pack(&p->b, k, p->n, p->columns, jm_up(p->columns, JM_VL), b);
		for (int64_t row = 0; row < p->rows; row += TILE)
			complex_rows(p, k, row, a, b);
	}
}

static size_t complex_scratch(const struct cpu_complex_product *p, int threads)
{
	return (size_t)(threads * complex_room(p)) * sizeof(float);
}

/* ---- the relative loss ----------------------------------------------------------------------- */

/* Runs are added in f32, so often before their sums are added to those in f64. */
enum { RUN = 64, RUNS = 64 };

/* A run: several points, so that it is long enough for vectors. All but the sums: one element for
 * each of the run. */
struct run {
	int64_t n;	    /* elements */
	double *off, *size; /* [channels], squared */
	double *factor; /* of the gradient: rounded to f32, all points would be off by the same share */
	float *some_off, *some_size, *y, *target;
};

static int64_t run_length(const struct cpu_relative *p)
{
	return jm_min64(jm_up(RUN, p->channels), p->points * p->channels);
}

/* Doubles of a thread. */
static int64_t run_room(const struct cpu_relative *p)
{
	return jm_up(2 * p->channels + 3 * run_length(p), 8);
}

static struct run run_of(const struct cpu_relative *p, double *room)
{
	struct run r = {.n = run_length(p), .off = room, .size = room + p->channels};

	r.factor = r.size + p->channels;
	r.some_off = (float *)(r.factor + r.n);
	r.some_size = r.some_off + r.n;
	r.y = r.some_size + r.n;
	r.target = r.y + r.n;
	return r;
}

static void flush(const struct cpu_relative *p, const struct run *r)
{
	for (int64_t i = 0; i < r->n; i++) {
		r->off[i % p->channels] += (double)r->some_off[i];
		r->size[i % p->channels] += (double)r->some_size[i];
		r->some_off[i] = r->some_size[i] = 0;
	}
}

static void add_run(
	const struct run *r, const float *restrict y, const float *restrict target, int64_t n)
{
	float *restrict off = r->some_off, *restrict size = r->some_size;

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		off[i] += (y[i] - target[i]) * (y[i] - target[i]);
		size[i] += target[i] * target[i];
	}
}

static void add_up(const struct cpu_relative *p, const struct run *r, int64_t first)
{
	int64_t all = p->points * p->channels, runs = 0;

	memset(r->off, 0, (size_t)(2 * p->channels) * sizeof(*r->off));
	memset(r->some_off, 0, (size_t)(2 * r->n) * sizeof(*r->some_off));
	for (int64_t i = 0; i < all; i += r->n) {
		size_t at = (size_t)(first + i), n = (size_t)jm_min64(r->n, all - i);

		add_run(r, jm_view(p->y.data, p->y.bf16, at, n, r->y),
			jm_view(p->target.data, p->target.bf16, at, n, r->target), (int64_t)n);
		if (++runs % RUNS == 0)
			flush(p, r);
	}
	flush(p, r);
}

static void store_gradient(const struct cpu_relative *p, const struct run *r, int64_t first)
{
	int64_t all = p->points * p->channels;

	for (int64_t i = 0; i < r->n; i++) {
		double both = sqrt(r->off[i % p->channels]) * sqrt(r->size[i % p->channels]);

		r->factor[i] = r->off[i % p->channels] > 0 ? p->scale / both : 0;
	}
	for (int64_t i = 0; i < all; i += r->n) {
		size_t at = (size_t)(first + i), n = (size_t)jm_min64(r->n, all - i);
		const float *y = jm_view(p->y.data, p->y.bf16, at, n, r->y);
		const float *target = jm_view(p->target.data, p->target.bf16, at, n, r->target);

#pragma omp simd
		for (size_t k = 0; k < n; k++)
			r->some_off[k] = (float)((double)(y[k] - target[k]) * r->factor[k]);
		jm_emit(p->dy.data, p->dy.bf16, p->accumulate & JM_ADD_LOSS_DX, at, n, r->some_off);
	}
}

static void relative(const struct cpu_relative *p, int threads)
{
	double *each = p->scratch, *room = p->scratch + jm_up(p->outer, 8), all = 0;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < p->outer; k++) {
		struct run r = run_of(p, room + omp_get_thread_num() * run_room(p));
		int64_t first = k * p->points * p->channels;

		add_up(p, &r, first);
		each[k] = 0;
		for (int64_t c = 0; c < p->channels; c++)
			each[k] += sqrt(r.off[c]) / sqrt(r.size[c]);
		if (p->dy.data)
			store_gradient(p, &r, first);
	}
	for (int64_t k = 0; k < p->outer; k++)
		all += each[k];
	*p->loss = (float)(p->weight * all + (p->accumulate & JM_ADD_OUT ? (double)*p->loss : 0));
}

static size_t relative_scratch(const struct cpu_relative *p, int threads)
{
	return (size_t)(jm_up(p->outer, 8) + threads * run_room(p)) * sizeof(double);
}

const struct cpu_spectrals JM_CPU(cpu_spectrals) = {
	fixed_scratch, fixed, complex_scratch, complex_product, relative_scratch, relative};
