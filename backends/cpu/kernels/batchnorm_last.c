/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm of images with their channels last: a matrix [pixels of all images, channels], read
 * row by row in the order of memory. Each thread processes a range of pixels and keeps its own
 * sums; they are added in the order of the threads, so that a run with the same number of threads
 * gives the same bits.
 */
#include "batchnorm.h"
#include "kernel_set.h"
#include "vector_lanes.h"

#include <omp.h>

enum {
	/* rows summed in f32 before they are added to the sums in f64; a multiple of QUAD */
	BLOCK = 64,
	/* channels at a time, whose sums or coefficients stay in the first-level cache */
	PANEL = 512,
	QUAD = 4, /* rows that share a read and a write of the sums */
};

enum { MEAN, SCALE, MIDDLE, SLOPE, BETA, COEFS }; /* MIDDLE: forward, beta */

/* BACKWARD_NORM computes from x where the ReLU passed its input. */
enum kind { FORWARD, BACKWARD, BACKWARD_RELU, BACKWARD_NORM };

struct plane {
	enum kind kind;
	const struct cpu_bn *f;	     /* forward */
	const struct cpu_bn_grad *b; /* backward */
	const void *x;
	bool bf16;
	int64_t rows, c, wide; /* wide: c rounded up to whole vectors */
	double *sum;	       /* two arrays [wide] for each thread */
	float *coef;	       /* COEFS arrays [wide]; elements from c on are 0 */
};

static struct plane plane_of(enum kind kind, const struct cpu_image *x, void *scratch, int threads)
{
	struct plane m = {.kind = kind,
		.x = x->data,
		.bf16 = x->bf16,
		.rows = x->n * x->rows * x->cols,
		.c = x->c};

	m.wide = (x->c + LANES - 1) / LANES * LANES;
	m.sum = scratch;
	m.coef = (float *)(m.sum + 2 * threads * m.wide);
	memset(m.coef, 0, (size_t)(COEFS * m.wide) * sizeof(*m.coef));
	return m;
}

static float *coef(const struct plane *m, int which)
{
	return m->coef + which * m->wide;
}

/* The coefficients of sixteen channels from c on. */
JM_INLINE jm_l16 coefs(const struct plane *m, int which, int64_t c)
{
	return *(const jm_l16u *)(coef(m, which) + c);
}

/* The rows of this thread. */
static void share(const struct plane *m, int64_t *ret_from, int64_t *ret_to)
{
	int64_t i = omp_get_thread_num(), n = omp_get_num_threads();

	*ret_from = m->rows * i / n;
	*ret_to = m->rows * (i + 1) / n;
}

/* The bounds of a loop over one block: rows from..to, channels at..at + width. */
struct part {
	int64_t from, to, at;
	int width;
};

static struct part part_at(const struct plane *m, int64_t row, int64_t end, int64_t at)
{
	return (struct part){row, jm_min64(row + BLOCK, end), at, (int)jm_min64(PANEL, m->c - at)};
}

/* Calls what(m, kind, bf16, part), compiled for each kind and type. */
#define BY_KIND(what, m, part)                                                                     \
	do {                                                                                       \
		if ((m)->kind == FORWARD && (m)->bf16)                                             \
			what(m, FORWARD, true, part);                                              \
		else if ((m)->kind == FORWARD)                                                     \
			what(m, FORWARD, false, part);                                             \
		else if ((m)->kind == BACKWARD && (m)->bf16)                                       \
			what(m, BACKWARD, true, part);                                             \
		else if ((m)->kind == BACKWARD)                                                    \
			what(m, BACKWARD, false, part);                                            \
		else if ((m)->kind == BACKWARD_RELU && (m)->bf16)                                  \
			what(m, BACKWARD_RELU, true, part);                                        \
		else if ((m)->kind == BACKWARD_RELU)                                               \
			what(m, BACKWARD_RELU, false, part);                                       \
		else if ((m)->bf16)                                                                \
			what(m, BACKWARD_NORM, true, part);                                        \
		else                                                                               \
			what(m, BACKWARD_NORM, false, part);                                       \
	} while (0)

/* ---- sums ------------------------------------------------------------------------------------ */

/* dy of channels from c on where the ReLU passed its input, else 0; d: x - mean */
JM_INLINE jm_l16 passed(const struct plane *m, enum kind kind, bool bf16, int64_t at, int64_t c,
	jm_l16 d, int width)
{
	jm_l16 zero = {0}, e = jm_lanes_load(m->b->dy.data, bf16, at, width);

	if (kind == BACKWARD_RELU)
		e = jm_lanes_pick(jm_lanes_load(m->b->y.data, bf16, at, width) > zero, e, zero);
	if (kind == BACKWARD_NORM)
		e = jm_lanes_pick(d * coefs(m, SCALE, c) + coefs(m, BETA, c) > zero, e, zero);
	return e;
}

/* Adds x - mean and its square, or e and e (x - mean), of n rows of the vector of channels from c
 * on to s and q. */
JM_INLINE void add_vector(const struct plane *m, enum kind kind, bool bf16, int64_t at, int n,
	int width, int64_t c, float *s, float *q)
{
	jm_l16 by = coefs(m, MEAN, c), sum = *(jm_l16u *)s, product = *(jm_l16u *)q;

#pragma GCC unroll 4
	for (int i = 0; i < n; i++) {
		int64_t here = at + i * m->c;
		jm_l16 d = jm_lanes_load(m->x, bf16, here, width) - by;
		jm_l16 e = kind == FORWARD ? d : passed(m, kind, bf16, here, c, d, width);

		sum += e;
		product += e * d;
	}
	*(jm_l16u *)s = sum;
	*(jm_l16u *)q = product;
}

JM_INLINE void add_rows(const struct plane *m, enum kind kind, bool bf16, int64_t row, int n,
	struct part part, float *s, float *q)
{
	int64_t at = row * m->c + part.at;
	int j = 0;

	for (; j + LANES <= part.width; j += LANES)
		add_vector(m, kind, bf16, at + j, n, LANES, part.at + j, s + j, q + j);
	for (int i = 0; i < n && j < part.width; i++)
		add_vector(m, kind, bf16, at + i * m->c + j, 1, part.width - j, part.at + j, s + j,
			q + j);
}

/* Adds the part to the sums of this thread. */
JM_INLINE void add_part(const struct plane *m, enum kind kind, bool bf16, struct part part)
{
	double *sum = m->sum + 2 * omp_get_thread_num() * m->wide + part.at;
	float s[PANEL] = {0}, q[PANEL] = {0};
	int64_t row = part.from;

	for (; row + QUAD <= part.to; row += QUAD)
		add_rows(m, kind, bf16, row, QUAD, part, s, q);
	for (; row < part.to; row++)
		add_rows(m, kind, bf16, row, 1, part, s, q);
	for (int j = 0; j < part.width; j++) {
		sum[j] += (double)s[j];
		sum[m->wide + j] += (double)q[j];
	}
}

/* Adds this thread's rows to its sums. */
static void add_share(const struct plane *m)
{
	double *sum = m->sum + 2 * omp_get_thread_num() * m->wide;
	int64_t from, to;

	share(m, &from, &to);
	memset(sum, 0, (size_t)(2 * m->wide) * sizeof(*sum));
	for (int64_t row = from; row < to; row += BLOCK)
		for (int64_t at = 0; at < m->c; at += PANEL)
			BY_KIND(add_part, m, part_at(m, row, to, at));
}

/* Adds the sums of a channel over all threads. */
static void join(const struct plane *m, int64_t c, double *ret_sum, double *ret_product)
{
	double sum = 0, product = 0;

	for (int t = 0; t < omp_get_num_threads(); t++) {
		sum += m->sum[2 * t * m->wide + c];
		product += m->sum[(2 * t + 1) * m->wide + c];
	}
	*ret_sum = sum;
	*ret_product = product;
}

/* ---- results --------------------------------------------------------------------------------- */

/* y = (x - mean) scale + beta + add, and its ReLU */
JM_INLINE void forward_vector(const struct plane *m, bool bf16, int64_t at, int64_t c, int width)
{
	const struct cpu_bn *p = m->f;
	jm_l16 floor = jm_lanes_set(p->relu ? 0 : -INFINITY);
	jm_l16 d = jm_lanes_load(m->x, bf16, at, width) - coefs(m, MEAN, c);
	jm_l16 y = d * coefs(m, SCALE, c) + coefs(m, MIDDLE, c);

	if (p->add.data)
		y += jm_lanes_load(p->add.data, bf16, at, width);
	y = jm_lanes_pick(y < floor, floor, y);
	jm_lanes_emit(p->y.data, bf16, p->accumulate & JM_ADD_OUT, at, width, y);
}

/* dx = scale (e - middle - (x - mean) slope) */
JM_INLINE void backward_vector(
	const struct plane *m, enum kind kind, bool bf16, int64_t at, int64_t c, int width)
{
	const struct cpu_bn_grad *p = m->b;
	jm_l16 d = jm_lanes_load(m->x, bf16, at, width) - coefs(m, MEAN, c);
	jm_l16 e = passed(m, kind, bf16, at, c, d, width);
	jm_l16 rest = e - coefs(m, MIDDLE, c);

	if (p->dadd.data)
		jm_lanes_emit(p->dadd.data, bf16, p->accumulate & JM_ADD_NORM_DADD, at, width, e);
	jm_lanes_emit(p->dx.data, bf16, p->accumulate & JM_ADD_OUT, at, width,
		coefs(m, SCALE, c) * (rest - d * coefs(m, SLOPE, c)));
}

JM_INLINE void write_vector(
	const struct plane *m, enum kind kind, bool bf16, int64_t row, int64_t channel, int width)
{
	int64_t at = row * m->c + channel;

	if (kind == FORWARD)
		forward_vector(m, bf16, at, channel, width);
	else
		backward_vector(m, kind, bf16, at, channel, width);
}

JM_INLINE void write_part(const struct plane *m, enum kind kind, bool bf16, struct part part)
{
	int64_t end = part.at + part.width;

	for (int64_t row = part.from; row < part.to; row++) {
		int64_t c = part.at;

		for (; c + LANES <= end; c += LANES)
			write_vector(m, kind, bf16, row, c, LANES);
		if (c < end)
			write_vector(m, kind, bf16, row, c, (int)(end - c));
	}
}

/* In reverse order, because the last rows that the sums read are still in the cache. */
static void write_share(const struct plane *m)
{
	int64_t from, to;

	share(m, &from, &to);
	for (int64_t i = (to - from + BLOCK - 1) / BLOCK - 1; i >= 0; i--)
		for (int64_t at = 0; at < m->c; at += PANEL)
			BY_KIND(write_part, m, part_at(m, from + i * BLOCK, to, at));
}

/* ---- batch norm ------------------------------------------------------------------------------ */

/* Computes the coefficients of channel c from its sums, if sums were made. */
static void finish(const struct plane *m, int64_t c)
{
	const struct cpu_bn *p = m->f;
	double sum, square, shift = (double)coef(m, MEAN)[c];

	if (p->stats) {
		join(m, c, &sum, &square);
		jm_bn_finish(p, c, (double)m->rows, shift, sum, square);
	}
	if (!p->apply)
		return;
	coef(m, MEAN)[c] = p->mean[c];
	coef(m, SCALE)[c] = p->rstd[c] * p->gamma[c];
	coef(m, MIDDLE)[c] = p->beta[c];
}

static void bn(const struct cpu_bn *p, int threads)
{
	struct plane m = plane_of(FORWARD, &p->x, p->scratch, threads);

	m.f = p;
	/* the channel's first element is subtracted before squaring, so that a large mean loses no
	 * digits */
	jm_load(m.x, m.bf16, 0, (size_t)m.c, coef(&m, MEAN));
#pragma omp parallel num_threads(threads)
	{
		if (p->stats) {
			add_share(&m);
#pragma omp barrier
		}
#pragma omp for schedule(static)
		for (int64_t c = 0; c < m.c; c++)
			finish(&m, c);
		if (p->apply)
			write_share(&m);
	}
}

static void finish_grad(const struct plane *m, int64_t c)
{
	const struct cpu_bn_grad *p = m->b;
	double sum, product, n = (double)m->rows, rstd = (double)p->rstd[c];

	join(m, c, &sum, &product);
	jm_bn_grad_finish(p, c, sum, product);
	coef(m, MIDDLE)[c] = (float)(sum / n);
	coef(m, SLOPE)[c] = (float)(product * rstd * rstd / n);
}

static void bn_grad(const struct cpu_bn_grad *p, int threads)
{
	enum kind kind = p->y.data ? BACKWARD_RELU : p->beta ? BACKWARD_NORM : BACKWARD;
	struct plane m = plane_of(kind, &p->x, p->scratch, threads);

	m.b = p;
	memcpy(coef(&m, MEAN), p->mean, (size_t)m.c * sizeof(*p->mean));
	if (p->beta)
		memcpy(coef(&m, BETA), p->beta, (size_t)m.c * sizeof(*p->beta));
	for (int64_t c = 0; c < m.c; c++)
		coef(&m, SCALE)[c] = p->gamma[c] * p->rstd[c];
#pragma omp parallel num_threads(threads)
	{
		add_share(&m);
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t c = 0; c < m.c; c++)
			finish_grad(&m, c);
		write_share(&m);
	}
}

const struct cpu_images JM_CPU(cpu_images_last) = {bn, bn_grad};
