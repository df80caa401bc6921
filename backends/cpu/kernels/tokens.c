/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between images and sequences: pixels as rows after an optional class token, plus
 * positions. */
#include "kernel_set.h"
#include "vector_lanes.h"

/* Loads the channels of one pixel as a row of f32. */
static void row_from(const struct cpu_image *x, int64_t n, int64_t pixel, float *row)
{
	for (int64_t k = 0; k < cpu_image_chunks(x); k++) {
		int channels = cpu_image_channels(x, k);
		int64_t at = n * x->image + k * x->chunk + pixel * x->pixel;

		jm_load(x->data, x->bf16, (size_t)at, (size_t)channels, row + k * x->lanes);
	}
}

static void row_to(const struct cpu_image *x, int64_t n, int64_t pixel, bool add, float *row)
{
	for (int64_t k = 0; k < cpu_image_chunks(x); k++) {
		int channels = cpu_image_channels(x, k), width = cpu_image_width(x, k);
		int64_t at = n * x->image + k * x->chunk + pixel * x->pixel;
		float lanes[LANES] = {0};

		memcpy(lanes, row + k * x->lanes, (size_t)channels * sizeof(*row));
		jm_emit(x->data, x->bf16, add, (size_t)at, (size_t)width, lanes);
	}
}

static void tokens(const struct cpu_tokens *p, int threads)
{
	int64_t width = p->x.c, lead = p->first ? 1 : 0;
	int64_t seq = p->x.rows * p->x.cols + lead;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t n = 0; n < p->x.n; n++)
		for (int64_t s = 0; s < seq; s++) {
			float *row = p->scratch + n * width;

			if (s < lead)
				memcpy(row, p->first, (size_t)width * sizeof(*row));
			else
				row_from(&p->x, n, s - lead, row);
			for (int64_t c = 0; p->pos && c < width; c++)
				row[c] += p->pos[s * width + c];
			jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT,
				(size_t)((n * seq + s) * width), (size_t)width, row);
		}
}

/* y[s,width] (+)= sum over images of dy[.,s,.], one position */
static void sum_position(const struct cpu_tokens *p, int64_t seq, int64_t s, bool add, float *y)
{
	int64_t width = p->x.c;

	for (int64_t c = 0; c < width && !add; c++)
		y[c] = 0;
	for (int64_t n = 0; n < p->x.n; n++)
		for (int64_t c = 0; c < width; c++) {
			int64_t at = (n * seq + s) * width + c;

			y[c] += p->y.bf16 ? jm_from_bf16(((const uint16_t *)p->y.data)[at])
					  : ((const float *)p->y.data)[at];
		}
}

static void tokens_grad(const struct cpu_tokens *p, int threads)
{
	int64_t width = p->x.c, pixels = p->x.rows * p->x.cols, seq = p->seq, lead = seq - pixels;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t n = 0; n < p->x.n; n++)
		for (int64_t s = lead; s < seq; s++) {
			float *row = p->scratch + n * width;

			jm_load(p->y.data, p->y.bf16, (size_t)((n * seq + s) * width),
				(size_t)width, row);
			row_to(&p->x, n, s - lead, p->accumulate & JM_ADD_OUT, row);
		}
	if (p->dfirst)
		sum_position(p, seq, 0, p->accumulate & JM_ADD_TOKENS_DFIRST, p->dfirst);
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t s = 0; s < (p->dpos ? seq : 0); s++)
		sum_position(p, seq, s, p->accumulate & JM_ADD_TOKENS_DPOS, p->dpos + s * width);
}

/* y[n] = x[n,0]; for the gradient dx[n,0] = dy[n] and all other elements are 0 */
static void first(const struct cpu_first *p, int threads)
{
	int64_t width = p->width, from = p->seq * width;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t n = 0; n < p->n; n++)
		for (int64_t c = 0; c < width; c += LANES) {
			int many = (int)(width - c < LANES ? width - c : LANES);

			jm_lanes_emit(p->y.data, p->y.bf16, p->accumulate, n * width + c, many,
				jm_lanes_load(p->x.data, p->x.bf16, n * from + c, many));
		}
}

static void first_grad(const struct cpu_first *p, int threads)
{
	int64_t width = p->width, all = p->seq * width;
	size_t size = p->x.bf16 ? 2 : 4;

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t n = 0; n < p->n; n++) {
		if (!p->accumulate)
			memset((char *)p->x.data + (size_t)(n * all) * size, 0, (size_t)all * size);
		for (int64_t c = 0; c < width; c += LANES) {
			int many = (int)(width - c < LANES ? width - c : LANES);

			jm_lanes_emit(p->x.data, p->x.bf16, p->accumulate, n * all + c, many,
				jm_lanes_load(p->y.data, p->y.bf16, n * width + c, many));
		}
	}
}

/* ---- rows in place of others ----------------------------------------------------------------- */

/* The row that is put at position s of sequence n; -1 = none. */
static int64_t put_at(const struct cpu_put *p, int64_t n, int64_t s)
{
	int64_t at = p->at[n], row = s - at;

	return at >= 0 && row >= 0 && row < p->places ? n * p->places + row : -1;
}

/* to[t] (+)= from[f], rows of `width`; f < 0: 0 */
static void move_row(const struct cpu_vec *from, int64_t f, const struct cpu_vec *to, int64_t t,
	int64_t width, bool add)
{
	for (int64_t c = 0; c < width; c += LANES) {
		int many = (int)(width - c < LANES ? width - c : LANES);
		jm_l16 v = {0};

		if (f >= 0)
			v = jm_lanes_load(from->data, from->bf16, f * width + c, many);
		jm_lanes_emit(to->data, to->bf16, add, t * width + c, many, v);
	}
}

static void put(const struct cpu_put *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t t = 0; t < p->n * p->seq; t++) {
		int64_t row = put_at(p, t / p->seq, t % p->seq);

		move_row(row < 0 ? &p->x : &p->rows, row < 0 ? t : row, &p->y, t, p->width,
			p->accumulate & JM_ADD_OUT);
	}
}

/* dx may replace dy, so drows are read first. */
static void put_grad(const struct cpu_put *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t t = 0; t < (p->rows.data ? p->n * p->places : 0); t++) {
		int64_t n = t / p->places, at = p->at[n];

		move_row(&p->y, at < 0 ? -1 : n * p->seq + at + t % p->places, &p->rows, t,
			p->width, p->accumulate & JM_ADD_PUT_DROWS);
	}
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t t = 0; t < p->n * p->seq; t++)
		move_row(&p->y, put_at(p, t / p->seq, t % p->seq) < 0 ? t : -1, &p->x, t, p->width,
			p->accumulate & JM_ADD_OUT);
}

static void spread_rows(const struct cpu_spread_rows *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t t = 0; t < (p->accumulate ? 0 : p->all); t++)
		move_row(&p->y, -1, &p->x, t, p->width, false);
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t r = 0; r < p->n; r++)
		move_row(&p->y, r, &p->x, p->at[r], p->width, p->accumulate);
}

const struct cpu_sequences JM_CPU(cpu_sequences) = {
	tokens, tokens_grad, first, first_grad, put, put_grad, spread_rows};
