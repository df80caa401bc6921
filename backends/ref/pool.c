/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of images, and images as sequences of tokens. */
#include "ref_kernels.h"

#include <math.h>

/* The part of the window of element i of y that is inside x: [first, end) of rows and columns,
 * and its plane. */
struct window {
	int64_t first[2], end[2];
	int64_t plane, width; /* offset of the plane in x; elements of a row */
};

static struct window window_of(
	const struct jm_node *n, const struct jm_tensor *x, const struct jm_tensor *y, int64_t i)
{
	int64_t at[2] = {i / y->dim[3] % y->dim[2], i % y->dim[3]};
	struct window w = {.width = x->dim[3]};

	w.plane = i / (y->dim[2] * y->dim[3]) * x->dim[2] * x->dim[3];
	for (int k = 0; k < 2; k++) {
		int64_t start = at[k] * n->attr.pool.stride[k] - n->attr.pool.pad[k];
		int64_t end = start + n->attr.pool.kernel[k];

		w.first[k] = start < 0 ? 0 : start;
		w.end[k] = end > x->dim[2 + k] ? x->dim[2 + k] : end;
	}
	return w;
}

/* The position of the first maximum. */
static int64_t largest(const struct window *w, const double *x)
{
	int64_t best = -1;

	for (int64_t r = w->first[0]; r < w->end[0]; r++)
		for (int64_t c = w->first[1]; c < w->end[1]; c++) {
			int64_t at = w->plane + r * w->width + c;

			if (best < 0 || x[at] > x[best] || isnan(x[at]))
				best = at;
		}
	return best;
}

void jm_ref_maxpool(const struct jm_node *n, double *const *in, double *const *out)
{
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		struct window w = window_of(n, n->in[0], n->out[0], i);

		out[0][i] = in[0][largest(&w, in[0])];
	}
}

void jm_ref_maxpool_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		struct window w = window_of(n, n->in[1], n->in[0], i);

		out[0][largest(&w, in[1])] += in[0][i];
	}
}

static double divisor(const struct jm_node *n, const struct window *w)
{
	if (n->attr.pool.count_pad)
		return n->attr.pool.kernel[0] * n->attr.pool.kernel[1];
	return (double)((w->end[0] - w->first[0]) * (w->end[1] - w->first[1]));
}

void jm_ref_avgpool(const struct jm_node *n, double *const *in, double *const *out)
{
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		struct window w = window_of(n, n->in[0], n->out[0], i);

		for (int64_t r = w.first[0]; r < w.end[0]; r++)
			for (int64_t c = w.first[1]; c < w.end[1]; c++)
				out[0][i] += in[0][w.plane + r * w.width + c] / divisor(n, &w);
	}
}

void jm_ref_avgpool_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		struct window w = window_of(n, n->out[0], n->in[0], i);

		for (int64_t r = w.first[0]; r < w.end[0]; r++)
			for (int64_t c = w.first[1]; c < w.end[1]; c++)
				out[0][w.plane + r * w.width + c] += in[0][i] / divisor(n, &w);
	}
}

/* The element of x that element i of y shows. */
static int64_t shown(
	const struct jm_node *n, const struct jm_tensor *x, const struct jm_tensor *y, int64_t i)
{
	int64_t plane = i / (y->dim[2] * y->dim[3]);
	int64_t row = i / y->dim[3] % y->dim[2] / n->attr.pool.kernel[0];

	return (plane * x->dim[2] + row) * x->dim[3] + i % y->dim[3] / n->attr.pool.kernel[1];
}

void jm_ref_upsample(const struct jm_node *n, double *const *in, double *const *out)
{
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		out[0][i] = in[0][shown(n, n->in[0], n->out[0], i)];
}

void jm_ref_upsample_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++)
		out[0][shown(n, n->out[0], n->in[0], i)] += in[0][i];
}

void jm_ref_gap(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t plane = n->in[0]->dim[2] * n->in[0]->dim[3];

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++)
		out[0][i / plane] += in[0][i] / (double)plane;
}

void jm_ref_gap_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t plane = n->out[0]->dim[2] * n->out[0]->dim[3];

	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		out[0][i] = in[0][i / plane] / (double)plane;
}

void jm_ref_tokens(const struct jm_node *n, double *const *in, double *const *out)
{
	const int64_t *dim = n->out[0]->dim;
	int64_t plane = n->in[0]->dim[2] * n->in[0]->dim[3], behind = in[1] ? 1 : 0;

	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		int64_t c = i % dim[2], s = i / dim[2] % dim[1], b = i / (dim[2] * dim[1]);

		out[0][i] = in[2] ? in[2][s * dim[2] + c] : 0;
		if (in[1] && s < behind)
			out[0][i] += in[1][c];
		else
			out[0][i] += in[0][(b * dim[2] + c) * plane + s - behind];
	}
}

void jm_ref_tokens_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	const int64_t *dim = n->in[0]->dim;
	int64_t plane = n->out[0]->dim[2] * n->out[0]->dim[3], behind = dim[1] - plane;

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++) {
		int64_t c = i % dim[2], s = i / dim[2] % dim[1], b = i / (dim[2] * dim[1]);

		if (s >= behind)
			out[0][(b * dim[2] + c) * plane + s - behind] = in[0][i];
		else if (out[1])
			out[1][c] += in[0][i];
		if (out[2])
			out[2][s * dim[2] + c] += in[0][i];
	}
}

void jm_ref_first(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t seq = n->in[0]->dim[1], width = n->in[0]->dim[2];

	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		out[0][i] = in[0][i / width * seq * width + i % width];
}

void jm_ref_first_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t seq = n->out[0]->dim[1], width = n->out[0]->dim[2];

	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++)
		out[0][i / width * seq * width + i % width] = in[0][i];
}
