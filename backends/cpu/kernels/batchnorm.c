/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm with its ReLU and residual sum in as few passes as possible: forward reads x twice
 * (the second time mostly from cache, because a thread keeps its 16 channels), backward reads dy, x
 * and y twice. oneDNN's batch norm is not used, because it needs a bit mask for the ReLU and fuses
 * no sum. Images are plain or blocked; with channels last, batchnorm_last.c is used.
 */
#include "batchnorm.h"
#include "kernel_set.h"
#include "vector_lanes.h"

/* The elements of one chunk in one image: vectors of 16 elements; lane l belongs to channel l %
 * lanes. */
struct run {
	int64_t at, vectors;
	int last; /* elements of the last vector */
};

static struct run run_of(const struct cpu_image *x, int64_t n, int64_t k)
{
	int64_t count = x->rows * x->cols * x->lanes;
	struct run r = {.at = n * x->image + k * x->chunk, .vectors = (count + LANES - 1) / LANES};

	r.last = (int)(count - (r.vectors - 1) * LANES);
	return r;
}

JM_INLINE int width_of(const struct run *r, int64_t v)
{
	return v + 1 < r->vectors ? LANES : r->last;
}

/* The chunk's part of a vector of channels, repeated over the lanes; 0 for padding. */
static jm_l16 spread(const float *x, const struct cpu_image *image, int64_t k)
{
	int channels = cpu_image_channels(image, k);
	jm_l16 y = {0};

	for (int64_t l = 0; l < LANES; l++)
		if (l % image->lanes < channels)
			y[l] = x[k * image->lanes + l % image->lanes];
	return y;
}

/* Sums the lanes of each channel. */
static void fold(const double *lane, const struct cpu_image *image, double *ret)
{
	memset(ret, 0, LANES * sizeof(*ret));
	for (int64_t l = 0; l < LANES; l++)
		ret[l % image->lanes] += lane[l];
}

static void add_lanes(double *sum, const jm_l16 *part, int n)
{
	for (int i = 0; i < n; i++)
		for (int l = 0; l < LANES; l++)
			sum[l] += (double)part[i][l];
}

/* ---- statistics ------------------------------------------------------------------------------ */

enum { CHAINS = 4 };

/* Sums of x - shift and of its square over one run. */
JM_INLINE void sum_run(const struct cpu_image *x, bool bf16, const struct run *r, jm_l16 shift,
	double *sum, double *square)
{
	jm_l16 s[CHAINS] = {0}, q[CHAINS] = {0};
	int64_t v = 0;

	for (; v + CHAINS < r->vectors; v += CHAINS)
		for (int j = 0; j < CHAINS; j++) {
			jm_l16 d = jm_lanes_load(x->data, bf16, r->at + (v + j) * LANES, LANES) -
				   shift;
			s[j] += d;
			q[j] += d * d;
		}
	for (; v < r->vectors; v++) {
		int width = width_of(r, v);
		jm_l16 d = jm_lanes_load(x->data, bf16, r->at + v * LANES, width) - shift;

		for (int l = width; l < LANES; l++)
			d[l] = 0;
		s[0] += d;
		q[0] += d * d;
	}
	add_lanes(sum, s, CHAINS);
	add_lanes(square, q, CHAINS);
}

/* The channel's first element is subtracted before squaring, so that a large mean loses no
 * digits. */
static void moments(const struct cpu_bn *p, int64_t k)
{
	const struct cpu_image *x = &p->x;
	double sum[LANES] = {0}, square[LANES] = {0}, s[LANES], q[LANES];
	double n = (double)(x->n * x->rows * x->cols);
	float first[LANES] = {0};
	jm_l16 shift;

	jm_lanes_store(first, false, 0, LANES,
		jm_lanes_load(x->data, x->bf16, k * x->chunk, cpu_image_width(x, k)));
	for (int64_t l = 0; l < LANES; l++)
		shift[l] = first[l % x->lanes];
	for (int64_t i = 0; i < x->n; i++) {
		struct run r = run_of(x, i, k);

		if (x->bf16)
			sum_run(x, true, &r, shift, sum, square);
		else
			sum_run(x, false, &r, shift, sum, square);
	}
	fold(sum, x, s);
	fold(square, x, q);
	for (int l = 0; l < cpu_image_channels(x, k); l++)
		jm_bn_finish(p, k * x->lanes + l, n, (double)first[l], s[l], q[l]);
}

/* ---- apply ----------------------------------------------------------------------------------- */

JM_INLINE void apply_run(const struct cpu_bn *p, bool bf16, const struct run *r, jm_l16 mean,
	jm_l16 scale, jm_l16 beta)
{
	jm_l16 zero = {0};

	for (int64_t v = 0; v < r->vectors; v++) {
		int64_t at = r->at + v * LANES;
		int width = width_of(r, v);
		jm_l16 y = (jm_lanes_load(p->x.data, bf16, at, width) - mean) * scale + beta;

		if (p->add.data)
			y += jm_lanes_load(p->add.data, bf16, at, width);
		if (p->relu)
			y = jm_lanes_pick(y < zero, zero, y);
		jm_lanes_emit(p->y.data, bf16, p->accumulate & JM_ADD_OUT, at, width, y);
	}
}

static void apply(const struct cpu_bn *p, int64_t k)
{
	jm_l16 mean = spread(p->mean, &p->x, k);
	jm_l16 scale = spread(p->rstd, &p->x, k) * spread(p->gamma, &p->x, k);
	jm_l16 beta = spread(p->beta, &p->x, k);

	/* in reverse order, because the last images that the statistics read are still in the
	 * cache */
	for (int64_t i = p->x.n - 1; i >= 0; i--) {
		struct run r = run_of(&p->x, i, k);

		if (p->x.bf16)
			apply_run(p, true, &r, mean, scale, beta);
		else
			apply_run(p, false, &r, mean, scale, beta);
	}
}

static void bn(const struct cpu_bn *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < cpu_image_chunks(&p->x); k++) {
		if (p->stats)
			moments(p, k);
		if (p->apply)
			apply(p, k);
	}
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The coefficients of a chunk's channels: the norm without its ReLU is (x - mean) scale + beta. */
struct norm {
	jm_l16 mean, scale, beta;
};

/* dy where the ReLU passed its input, else 0; d: x - mean */
JM_INLINE jm_l16 passed(const struct cpu_bn_grad *p, bool bf16, const struct norm *n, jm_l16 d,
	int64_t at, int width)
{
	jm_l16 zero = {0}, e = jm_lanes_load(p->dy.data, bf16, at, width);

	if (p->y.data)
		e = jm_lanes_pick(jm_lanes_load(p->y.data, bf16, at, width) > zero, e, zero);
	else if (p->beta)
		e = jm_lanes_pick(d * n->scale + n->beta > zero, e, zero);
	return e;
}

JM_INLINE void grad_sums(const struct cpu_bn_grad *p, bool bf16, const struct run *r,
	const struct norm *n, double *sum, double *product)
{
	jm_l16 s[CHAINS] = {0}, q[CHAINS] = {0};
	int64_t v = 0;

	for (; v + CHAINS < r->vectors; v += CHAINS)
		for (int j = 0; j < CHAINS; j++) {
			int64_t at = r->at + (v + j) * LANES;
			jm_l16 d = jm_lanes_load(p->x.data, bf16, at, LANES) - n->mean;
			jm_l16 e = passed(p, bf16, n, d, at, LANES);

			s[j] += e;
			q[j] += e * d;
		}
	for (; v < r->vectors; v++) {
		int64_t at = r->at + v * LANES;
		int width = width_of(r, v);
		jm_l16 d = jm_lanes_load(p->x.data, bf16, at, width) - n->mean;
		jm_l16 e = passed(p, bf16, n, d, at, width);

		s[0] += e; /* lanes outside the width are 0 */
		q[0] += e * d;
	}
	add_lanes(sum, s, CHAINS);
	add_lanes(product, q, CHAINS);
}

/* dx = scale (e - middle - (x - mean) slope) */
JM_INLINE void grad_run(const struct cpu_bn_grad *p, bool bf16, const struct run *r,
	const struct norm *n, jm_l16 middle, jm_l16 slope)
{
	for (int64_t v = 0; v < r->vectors; v++) {
		int64_t at = r->at + v * LANES;
		int width = width_of(r, v);
		jm_l16 d = jm_lanes_load(p->x.data, bf16, at, width) - n->mean;
		jm_l16 e = passed(p, bf16, n, d, at, width);

		if (p->dadd.data)
			jm_lanes_emit(
				p->dadd.data, bf16, p->accumulate & JM_ADD_NORM_DADD, at, width, e);
		jm_lanes_emit(p->dx.data, bf16, p->accumulate & JM_ADD_OUT, at, width,
			n->scale * (e - middle - d * slope));
	}
}

static void bn_grad_chunk(const struct cpu_bn_grad *p, int64_t k)
{
	double sum[LANES] = {0}, product[LANES] = {0}, s[LANES], q[LANES];
	const struct cpu_image *x = &p->x;
	double n = (double)(x->n * x->rows * x->cols);
	jm_l16 rstd = spread(p->rstd, x, k), middle, slope;
	struct norm norm = {.mean = spread(p->mean, x, k), .scale = spread(p->gamma, x, k) * rstd};

	if (p->beta)
		norm.beta = spread(p->beta, x, k);
	for (int64_t i = 0; i < x->n; i++) {
		struct run r = run_of(x, i, k);

		if (x->bf16)
			grad_sums(p, true, &r, &norm, sum, product);
		else
			grad_sums(p, false, &r, &norm, sum, product);
	}
	fold(sum, x, s);
	fold(product, x, q);
	for (int64_t l = 0; l < LANES; l++) {
		double one = (double)rstd[l];

		middle[l] = (float)(s[l % x->lanes] / n);
		slope[l] = (float)(q[l % x->lanes] * one * one / n);
	}
	for (int l = 0; l < cpu_image_channels(x, k); l++)
		jm_bn_grad_finish(p, k * x->lanes + l, s[l], q[l]);
	for (int64_t i = x->n - 1; i >= 0; i--) {
		struct run r = run_of(x, i, k);

		if (x->bf16)
			grad_run(p, true, &r, &norm, middle, slope);
		else
			grad_run(p, false, &r, &norm, middle, slope);
	}
}

static void bn_grad(const struct cpu_bn_grad *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < cpu_image_chunks(&p->x); k++)
		bn_grad_chunk(p, k);
}

const struct cpu_images JM_CPU(cpu_images) = {bn, bn_grad};
