/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm, also with SiLU. A group of an image is one thread's: runs of adjacent elements, which
 * are a channel's pixels in plain images and a pixel's channels where the channels are last.
 */
#include "kernel_set.h"
#include "simd.h"

#include <math.h>

enum { PIECE = 512 };

/* The runs of a group. */
struct runs {
	int64_t first, n, step,
		length;	 /* first element, how many, from one to the next, elements of each */
	int64_t channel; /* of the first element */
	bool last;	 /* a run has a channel in each element; else it is one channel */
};

static struct runs runs_of(const struct cpu_groups *p, int64_t image, int64_t group)
{
	const struct cpu_image *x = &p->x;
	int64_t channels = x->c / p->groups, pixels = x->rows * x->cols;
	struct runs r = {.channel = group * channels, .last = x->lanes > 1};

	r.first = image * x->image + (r.last ? r.channel : r.channel * pixels);
	r.n = r.last ? pixels : channels;
	r.step = r.last ? x->c : pixels;
	r.length = r.last ? channels : pixels;
	return r;
}

/* Up to PIECE adjacent elements: their place, values, and the channel of the first one. */
struct piece {
	int64_t at, channel;
	int n, step; /* step: from one element's channel to the next one's: 1 or 0 */
	float x[PIECE];
};

typedef void each_fn(const struct cpu_groups *p, const struct piece *piece, void *arg);

JM_INLINE void over(const struct cpu_groups *p, const struct runs *r, each_fn *each, void *arg)
{
	struct piece piece = {.step = r->last};

	for (int64_t run = 0; run < r->n; run++)
		for (int64_t i = 0; i < r->length; i += PIECE) {
			piece.n = (int)(r->length - i < PIECE ? r->length - i : PIECE);
			piece.at = r->first + run * r->step + i;
			piece.channel = r->channel + (r->last ? i : run);
			jm_load(p->x.data, p->x.bf16, (size_t)piece.at, (size_t)piece.n, piece.x);
			each(p, &piece, arg);
		}
}

/* ---- forward --------------------------------------------------------------------------------- */

struct moments {
	double sum, squares; /* squares: of the differences to mean */
	float mean, rstd;
};

static void add_up(const struct cpu_groups *p, const struct piece *piece, void *arg)
{
	struct moments *m = arg;
	float sum = 0;

	(void)p;
#pragma omp simd reduction(+ : sum)
	for (int i = 0; i < piece->n; i++)
		sum += piece->x[i];
	m->sum += (double)sum;
}

static void add_squares(const struct cpu_groups *p, const struct piece *piece, void *arg)
{
	struct moments *m = arg;
	float sum = 0;

	(void)p;
#pragma omp simd reduction(+ : sum)
	for (int i = 0; i < piece->n; i++)
		sum += (piece->x[i] - m->mean) * (piece->x[i] - m->mean);
	m->squares += (double)sum;
}

static void normalise(const struct cpu_groups *p, const struct piece *piece, void *arg)
{
	const struct moments *m = arg;
	const float *gamma = p->gamma + piece->channel, *beta = p->beta + piece->channel;
	float y[PIECE];

#pragma omp simd
	for (int i = 0; i < piece->n; i++)
		y[i] = (piece->x[i] - m->mean) * m->rstd * gamma[i * piece->step] +
		       beta[i * piece->step];
#pragma omp simd
	for (int i = 0; i < (p->silu ? piece->n : 0); i++)
		y[i] *= jm_sigmoid(y[i], NULL);
	jm_emit(p->y.data, p->y.bf16, p->accumulate & JM_ADD_OUT, (size_t)piece->at,
		(size_t)piece->n, y);
}

static void norm(const struct cpu_groups *p, int threads)
{
	double size = (double)(p->x.c / p->groups * p->x.rows * p->x.cols);

#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < p->x.n * p->groups; k++) {
		struct runs r = runs_of(p, k / p->groups, k % p->groups);
		struct moments m = {0};

		over(p, &r, add_up, &m);
		m.mean = (float)(m.sum / size);
		over(p, &r, add_squares, &m);
		m.rstd = (float)(1 / sqrt(m.squares / size + p->eps));
		over(p, &r, normalise, &m);
		p->mean[k] = m.mean;
		p->rstd[k] = m.rstd;
	}
}

/* ---- backward -------------------------------------------------------------------------------- */

struct slopes {
	float mean, rstd;
	double sum, product;	/* of g, and of g h */
	double *dgamma, *dbeta; /* of the image's channels */
};

/* h and e of a piece. */
JM_INLINE void slopes_of(const struct cpu_groups *p, const struct piece *piece,
	const struct slopes *s, float *restrict h, float *restrict e)
{
	const float *gamma = p->gamma + piece->channel, *beta = p->beta + piece->channel;

	jm_load(p->y.data, p->y.bf16, (size_t)piece->at, (size_t)piece->n, e);
#pragma omp simd
	for (int i = 0; i < piece->n; i++)
		h[i] = (piece->x[i] - s->mean) * s->rstd;
	for (int i = 0; i < (p->silu ? piece->n : 0); i++) {
		float t = h[i] * gamma[i * piece->step] + beta[i * piece->step];
		float by = jm_sigmoid(t, NULL);

		e[i] *= by * (1 + t * (1 - by));
	}
}

static void add_slopes(const struct cpu_groups *p, const struct piece *piece, void *arg)
{
	struct slopes *s = arg;
	float h[PIECE], e[PIECE];

	slopes_of(p, piece, s, h, e);
	for (int i = 0; i < piece->n; i++) {
		int64_t c = piece->channel + i * piece->step;
		double g = (double)(e[i] * p->gamma[c]);

		s->sum += g;
		s->product += g * (double)h[i];
		s->dgamma[c] += (double)(e[i] * h[i]);
		s->dbeta[c] += (double)e[i];
	}
}

static void store_slopes(const struct cpu_groups *p, const struct piece *piece, void *arg)
{
	const struct slopes *s = arg;
	const float *gamma = p->gamma + piece->channel;
	const float sum = (float)s->sum, product = (float)s->product;
	float h[PIECE], e[PIECE];

	slopes_of(p, piece, s, h, e);
#pragma omp simd
	for (int i = 0; i < piece->n; i++)
		e[i] = s->rstd * (e[i] * gamma[i * piece->step] - sum - h[i] * product);
	jm_emit(p->dx.data, p->dx.bf16, p->accumulate & JM_ADD_OUT, (size_t)piece->at,
		(size_t)piece->n, e);
}

/* The sums of all images, in their order. */
static void add_images(const struct cpu_groups *p, const double *each, float *to, bool add)
{
	for (int64_t c = 0; c < p->x.c; c++) {
		double sum = add ? (double)to[c] : 0;

		for (int64_t n = 0; n < p->x.n; n++)
			sum += each[n * 2 * p->x.c + c];
		to[c] = (float)sum;
	}
}

static void grad(const struct cpu_groups *p, int threads)
{
	double size = (double)(p->x.c / p->groups * p->x.rows * p->x.cols);

	memset(p->scratch, 0, (size_t)(2 * p->x.n * p->x.c) * sizeof(*p->scratch));
#pragma omp parallel for schedule(static) num_threads(threads)
	for (int64_t k = 0; k < p->x.n * p->groups; k++) {
		struct runs r = runs_of(p, k / p->groups, k % p->groups);
		double *each = p->scratch + k / p->groups * 2 * p->x.c;
		struct slopes s = {.mean = p->mean[k],
			.rstd = p->rstd[k],
			.dgamma = each,
			.dbeta = each + p->x.c};

		over(p, &r, add_slopes, &s);
		s.sum /= size;
		s.product /= size;
		over(p, &r, store_slopes, &s);
	}
	add_images(p, p->scratch, p->dgamma, p->accumulate & JM_ADD_NORM_DGAMMA);
	add_images(p, p->scratch + p->x.c, p->dbeta, p->accumulate & JM_ADD_NORM_DBETA);
}

const struct cpu_groupnorms JM_CPU(cpu_groupnorms) = {norm, grad};
