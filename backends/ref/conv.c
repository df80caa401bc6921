/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution and its gradients: one loop over all pairs of an element of y and a position in its
 * window. */
#include "ref_kernels.h"

enum part { FORWARD, DGRAD, WGRAD };

/* x [B,C,Y,X], w [K,C/g,R,S], y [B,K,P,Q]; results are added to. */
struct conv {
	enum part part;
	const struct jm_node *n;
	const int64_t *x_dim, *w_dim, *y_dim;
	double *x, *w, *y;
};

/* The elements from..to of a window, in one dimension, that are inside x; element i is at start + i
 * dilation. */
struct inside {
	int64_t start, from, to;
};

static inline struct inside inside(const struct conv *v, int axis, int64_t at)
{
	int64_t dilation = v->n->attr.conv.dilation[axis], size = v->x_dim[2 + axis];
	struct inside in = {.start = at * v->n->attr.conv.stride[axis] - v->n->attr.conv.pad[axis],
		.to = v->w_dim[2 + axis]};

	if (in.start < 0)
		in.from = (-in.start + dilation - 1) / dilation;
	if (in.start + (in.to - 1) * dilation >= size)
		in.to = in.start < size ? (size - 1 - in.start) / dilation + 1 : 0;
	return in;
}

/* n elements of a row of the window: w[s] is paired with x[s dilation]. */
static inline void row(const struct conv *v, double *x, double *w, int64_t n, double *y)
{
	int64_t step = v->n->attr.conv.dilation[1];
	double here = *y;

	if (v->part == FORWARD) {
		for (int64_t s = 0; s < n; s++)
			here += w[s] * x[s * step];
		*y = here;
	} else if (v->part == DGRAD) {
		for (int64_t s = 0; s < n; s++)
			x[s * step] += w[s] * here;
	} else {
		for (int64_t s = 0; s < n; s++)
			w[s] += x[s * step] * here;
	}
}

/* The window of an element of y on one channel of x. */
static inline void plane(const struct conv *v, double *x, double *w, struct inside rows,
	struct inside columns, double *y)
{
	int64_t left = columns.start + columns.from * v->n->attr.conv.dilation[1];
	int64_t n = columns.to - columns.from;

	for (int64_t r = rows.from; r < rows.to && n > 0; r++) {
		int64_t at = rows.start + r * v->n->attr.conv.dilation[0];

		row(v, x + at * v->x_dim[3] + left, w + r * v->w_dim[3] + columns.from, n, y);
	}
}

/* Output channel k of image b on one channel of x. */
static void planes(const struct conv *v, double *x, double *w, double *y)
{
	for (int64_t p = 0; p < v->y_dim[2]; p++) {
		struct inside rows = inside(v, 0, p);

		for (int64_t q = 0; q < v->y_dim[3]; q++)
			plane(v, x, w, rows, inside(v, 1, q), y++);
	}
}

/* All elements of output channel k of image b. */
static void channel(const struct conv *v, int64_t b, int64_t k)
{
	int64_t depth = v->w_dim[1];
	int64_t first = k / (v->w_dim[0] / v->n->attr.conv.groups) * depth;
	double *y = v->y + (b * v->y_dim[1] + k) * v->y_dim[2] * v->y_dim[3];

	for (int64_t c = 0; c < depth; c++) {
		double *x = v->x + (b * v->x_dim[1] + first + c) * v->x_dim[2] * v->x_dim[3];
		double *w = v->w + (k * depth + c) * v->w_dim[2] * v->w_dim[3];

		planes(v, x, w, y);
	}
}

static void walk(const struct conv *v)
{
	for (int64_t b = 0; b < v->y_dim[0]; b++)
		for (int64_t k = 0; k < v->y_dim[1]; k++)
			channel(v, b, k);
}

static int64_t channel_of(const int64_t *dim, int64_t i)
{
	return i / (dim[2] * dim[3]) % dim[1];
}

void jm_ref_conv(const struct jm_node *n, double *const *in, double *const *out)
{
	const int64_t *dim = n->out[0]->dim;

	for (int64_t i = 0; in[2] && i < jm_tensor_count(n->out[0]); i++)
		out[0][i] = in[2][channel_of(dim, i)];
	walk(&(struct conv){FORWARD, n, n->in[0]->dim, n->in[1]->dim, dim, in[0], in[1], out[0]});
}

void jm_ref_conv_dgrad(const struct jm_node *n, double *const *in, double *const *out)
{
	walk(&(struct conv){
		DGRAD, n, n->out[0]->dim, n->in[1]->dim, n->in[0]->dim, out[0], in[1], in[0]});
}

void jm_ref_conv_wgrad(const struct jm_node *n, double *const *in, double *const *out)
{
	const int64_t *dim = n->in[0]->dim;

	for (int64_t i = 0; out[1] && i < jm_tensor_count(n->in[0]); i++)
		out[1][channel_of(dim, i)] += in[0][i];
	walk(&(struct conv){WGRAD, n, n->in[1]->dim, n->out[0]->dim, dim, in[1], out[0], in[0]});
}
