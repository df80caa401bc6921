/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding and its gradient, rotary positions, sums over rows. */
#include "kernel_set.h"
#include "simd.h"

enum { STRIPE = 64, COLUMNS = 256, RUN = 16 };

static void embed(const struct cpu_embed *p, int threads)
{
	size_t n = (size_t)p->width;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t t = 0; t < p->tokens; t++) {
		size_t from = (size_t)p->ids[t] * n, pos = (size_t)(t % p->seq) * n;
		for (size_t c = 0; c < n; c += STRIPE) {
			float x[STRIPE], q[STRIPE];
			size_t m = n - c < STRIPE ? n - c : STRIPE;
			jm_load(p->table.data, p->table.bf16, from + c, m, x);
			const float *v = q;
			if (p->pos.data)
				v = jm_view(p->pos.data, p->pos.bf16, pos + c, m, q);
			for (size_t i = 0; p->pos.data && i < m; i++)
				x[i] += v[i];
			jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT, (size_t)t * n + c,
				m, x);
		}
	}
}

static void zero(float *y, int64_t n, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads)
	for (int64_t i = 0; i < n; i++)
		y[i] = 0;
}

static void add_row(
	float *restrict y, const struct cpu_embed_grad *p, int64_t t, size_t c, size_t m)
{
	float buf[STRIPE];
	const float *dy = jm_view(p->dy.data, p->dy.bf16, (size_t)t * (size_t)p->width + c, m, buf);

	for (size_t i = 0; i < m; i++)
		y[i] += dy[i];
}

/* Each thread handles its columns and adds the tokens in their order, so that the bits are the same
 * every time. */
static void embed_grad(const struct cpu_embed_grad *p, int threads)
{
	size_t n = (size_t)p->width;

	if (!(p->accumulate & JM_ADD_OUT))
		zero(p->dtable, p->rows * p->width, threads);
	if (p->dpos && !(p->accumulate & JM_ADD_EMBED_DPOS))
		zero(p->dpos, p->positions * p->width, threads);
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t c = 0; c < p->width; c += STRIPE) {
		size_t at = (size_t)c, m = n - at < STRIPE ? n - at : STRIPE;
		for (int64_t t = 0; t < p->tokens; t++) {
			add_row(p->dtable + (size_t)p->ids[t] * n + at, p, t, at, m);
			if (p->dpos)
				add_row(p->dpos + (size_t)(t % p->seq) * n + at, p, t, at, m);
		}
	}
}

/* Rotates one head of one position by the angles; half = D / 2. */
static void turn(const struct cpu_rope *p, size_t at, const float *cosine, const float *sine)
{
	enum { MOST = 512 };
	float x[MOST], y[MOST];

	for (size_t d = 0, half = (size_t)p->head / 2; d < half; d += MOST / 2) {
		size_t m = half - d < MOST / 2 ? half - d : MOST / 2;
		jm_load(p->x.data, p->x.bf16, at + d, m, x);
		jm_load(p->x.data, p->x.bf16, at + half + d, m, x + m);
		for (size_t i = 0; i < m; i++) {
			float s = p->inverse ? -sine[d + i] : sine[d + i];
			y[i] = x[i] * cosine[d + i] - x[m + i] * s;
			y[m + i] = x[m + i] * cosine[d + i] + x[i] * s;
		}
		jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT, at + d, m, y);
		jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT, at + half + d, m, y + m);
	}
}

static void keep(const struct cpu_rope *p, size_t at)
{
	for (size_t d = 0, n = (size_t)p->head; d < n; d += STRIPE) {
		float x[STRIPE];
		size_t m = n - d < STRIPE ? n - d : STRIPE;
		jm_load(p->x.data, p->x.bf16, at + d, m, x);
		jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT, at + d, m, x);
	}
}

static void rope(const struct cpu_rope *p, int threads)
{
	size_t half = (size_t)p->head / 2, heads = (size_t)(p->turned + p->kept);

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t t = 0; t < p->tokens; t++) {
		size_t at = (size_t)t * heads * 2 * half, s = (size_t)(t % p->seq) * half;
		for (size_t h = 0; h < heads; h++, at += 2 * half) {
			if (h < (size_t)p->turned)
				turn(p, at, p->cosine + s, p->sine + s);
			else if (p->x.data != p->y.data)
				keep(p, at);
		}
	}
}

/* sum[m] += n <= RUN rows of x[.., width] from column c of row r on */
static void sum_run(struct cpu_vec x, int64_t r, int64_t n, int64_t width, int64_t c, size_t m,
	double *restrict sum)
{
	float part[COLUMNS] = {0}, buf[COLUMNS];

	for (int64_t i = r; i < r + n; i++) {
		const float *v = jm_view(x.data, x.bf16, (size_t)(i * width + c), m, buf);
		for (size_t j = 0; j < m; j++)
			part[j] += v[j];
	}
	for (size_t j = 0; j < m; j++)
		sum[j] += (double)part[j];
}

/*
 * y[width] (+)= sum over rows of x[rows, width]; each thread handles its columns. RUN rows are
 * summed in f32, then in f64, so that the error does not grow with the number of rows.
 */
static void sum_rows(struct cpu_vec x, float *y, int64_t rows, int64_t width, bool add, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t c = 0; c < width; c += COLUMNS) {
		double sum[COLUMNS] = {0};
		float total[COLUMNS];
		size_t m = (size_t)(width - c < COLUMNS ? width - c : COLUMNS);
		for (int64_t r = 0; r < rows; r += RUN)
			sum_run(x, r, rows - r < RUN ? rows - r : RUN, width, c, m, sum);
		for (size_t j = 0; j < m; j++)
			total[j] = (float)sum[j];
		jm_emit(y, false, add, (size_t)c, m, total);
	}
}

const struct cpu_rows JM_CPU(cpu_rows) = {embed, embed_grad, rope, sum_rows};
