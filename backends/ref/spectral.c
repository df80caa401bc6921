/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms between fields [B,N..,C] and their lowest frequencies [B,2,K,C], products of these,
 * and the relative loss. */
#include "ref_kernels.h"

#include <math.h>

/* ---- transforms ------------------------------------------------------------------------------ */

struct grid {
	int axes;
	int64_t size[JM_AXES], kept[JM_AXES]; /* points and frequencies of each axis */
	int64_t points, n, batch, channels;   /* n: frequencies, of all axes together */
};

static struct grid grid_of(const struct jm_node *n, const struct jm_tensor *x)
{
	struct grid g = {.axes = x->rank > 3 ? x->rank - 2 : 1,
		.points = 1,
		.n = 1,
		.batch = x->dim[0],
		.channels = jm_tensor_width(x)};

	for (int a = 0; a < JM_AXES; a++) /* those that there are not have one point */
		g.size[a] = g.kept[a] = 1;
	for (int a = 0; a < g.axes; a++) {
		g.size[a] = x->dim[1 + a];
		g.kept[a] = n->attr.dft.modes[a] * (a < g.axes - 1 ? 2 : 1);
		g.points *= g.size[a];
		g.n *= g.kept[a];
	}
	return g;
}

/* The frequency number i of an axis: the second half of those of all axes but the last is
 * negative. */
static int64_t frequency(const struct grid *g, int axis, int64_t i)
{
	return axis < g->axes - 1 && i >= g->kept[axis] / 2 ? g->size[axis] - g->kept[axis] + i : i;
}

/* t of frequency k and point p. */
static double angle(const struct grid *g, int64_t k, int64_t p)
{
	double turns = 0;

	for (int a = JM_AXES - 1; a >= 0; a--) {
		int64_t f = frequency(g, a, k % g->kept[a]), at = p % g->size[a];

		turns += (double)(f * at % g->size[a]) / (double)g->size[a];
		k /= g->kept[a];
		p /= g->size[a];
	}
	return 2 * M_PI * turns;
}

/* s, or 2 s. */
static double factor(const struct grid *g, int64_t k, bool twice)
{
	int64_t last = k % g->kept[g->axes - 1], size = g->size[g->axes - 1];

	return (twice && last && 2 * last != size ? 2 : 1) / sqrt((double)g->points);
}

void jm_ref_dft(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct grid g = grid_of(n, n->in[0]);

	for (int64_t k = 0; k < g.n; k++)
		for (int64_t p = 0; p < g.points; p++) {
			double t = angle(&g, k, p), s = factor(&g, k, n->attr.dft.twice);

			for (int64_t i = 0; i < g.batch * g.channels; i++) {
				int64_t b = i / g.channels, c = i % g.channels;
				double x = in[0][(b * g.points + p) * g.channels + c];

				out[0][(2 * b * g.n + k) * g.channels + c] += s * x * cos(t);
				out[0][((2 * b + 1) * g.n + k) * g.channels + c] -= s * x * sin(t);
			}
		}
}

void jm_ref_idft(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct grid g = grid_of(n, n->out[0]);

	for (int64_t k = 0; k < g.n; k++)
		for (int64_t p = 0; p < g.points; p++) {
			double t = angle(&g, k, p), s = factor(&g, k, n->attr.dft.twice);

			for (int64_t i = 0; i < g.batch * g.channels; i++) {
				int64_t b = i / g.channels, c = i % g.channels;
				double re = in[0][(2 * b * g.n + k) * g.channels + c];
				double im = in[0][((2 * b + 1) * g.n + k) * g.channels + c];

				out[0][(b * g.points + p) * g.channels + c] +=
					s * (re * cos(t) - im * sin(t));
			}
		}
}

/* ---- products of each frequency -------------------------------------------------------------- */

/* Elements of x[B,2,K,I], w[2,K,I,O] and y[B,2,K,O], of one b, k, i and o: their real parts, and
 * how far the others are. */
struct term {
	int64_t x, w, y, x_im, w_im, y_im;
};

typedef void term_fn(const struct term *at, double *const *in, double *const *out);

static void each_term(const struct jm_tensor *w, int64_t batch, term_fn *each, double *const *in,
	double *const *out)
{
	int64_t n = w->dim[1], from = w->dim[2], to = w->dim[3];

	for (int64_t q = 0; q < batch * n * from * to; q++) {
		int64_t o = q % to, i = q / to % from, k = q / to / from % n, b = q / to / from / n;
		const struct term at = {.x = (2 * b * n + k) * from + i,
			.w = (k * from + i) * to + o,
			.y = (2 * b * n + k) * to + o,
			.x_im = n * from,
			.w_im = n * from * to,
			.y_im = n * to};

		each(&at, in, out);
	}
}

static void forward(const struct term *t, double *const *in, double *const *out)
{
	const double *x = in[0] + t->x, *w = in[1] + t->w;
	double *y = out[0] + t->y;

	y[0] += x[0] * w[0] - x[t->x_im] * w[t->w_im];
	y[t->y_im] += x[0] * w[t->w_im] + x[t->x_im] * w[0];
}

static void to_x(const struct term *t, double *const *in, double *const *out)
{
	const double *dy = in[0] + t->y, *w = in[1] + t->w;
	double *dx = out[0] + t->x;

	dx[0] += dy[0] * w[0] + dy[t->y_im] * w[t->w_im];
	dx[t->x_im] += dy[t->y_im] * w[0] - dy[0] * w[t->w_im];
}

static void to_w(const struct term *t, double *const *in, double *const *out)
{
	const double *dy = in[0] + t->y, *x = in[1] + t->x;
	double *dw = out[0] + t->w;

	dw[0] += x[0] * dy[0] + x[t->x_im] * dy[t->y_im];
	dw[t->w_im] += x[0] * dy[t->y_im] - x[t->x_im] * dy[0];
}

void jm_ref_mix_modes(const struct jm_node *n, double *const *in, double *const *out)
{
	each_term(n->in[1], n->in[0]->dim[0], forward, in, out);
}

void jm_ref_mix_modes_dgrad(const struct jm_node *n, double *const *in, double *const *out)
{
	each_term(n->in[1], n->in[0]->dim[0], to_x, in, out);
}

void jm_ref_mix_modes_wgrad(const struct jm_node *n, double *const *in, double *const *out)
{
	each_term(n->out[0], n->in[0]->dim[0], to_w, in, out);
}

/* ---- the relative loss ----------------------------------------------------------------------- */

void jm_ref_relative_l2(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *y = n->in[0];
	int64_t channels = jm_tensor_width(y), points = 1, norms;
	double weight, scale;

	for (int a = 0; a < n->attr.xent.axes; a++)
		points *= y->dim[y->rank - 2 - a];
	norms = jm_tensor_count(y) / points;
	weight = n->attr.xent.weight / (double)norms;
	scale = weight * n->attr.xent.scale * (in[2] ? in[2][0] : 1);
	for (int64_t m = 0; m < norms; m++) {
		int64_t first = m / channels * channels * points + m % channels, i = first;
		double off = 0, size = 0;

		for (int64_t p = 0; p < points; p++, i += channels) {
			off += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
			size += in[1][i] * in[1][i];
		}
		out[0][0] += weight * sqrt(off / size);
		for (int64_t p = 0; p < points && out[1] && off > 0; p++) {
			i = first + p * channels;
			out[1][i] = scale * (in[0][i] - in[1][i]) / sqrt(off * size);
		}
	}
}
