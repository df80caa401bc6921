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

/* A row of the window on a row of x: w[s] is paired with x[start + s dilation] if that is inside
 * x. */
static void row(const struct conv *v, double *x, int64_t start, double *w, double *y)
{
	for (int64_t s = 0; s < v->w_dim[3]; s++) {
		int64_t at = start + s * v->n->attr.conv.dilation[1];

		if (at < 0 || at >= v->x_dim[3])
			continue;
		if (v->part == FORWARD)
			*y += w[s] * x[at];
		else if (v->part == DGRAD)
			x[at] += w[s] * *y;
		else
			w[s] += x[at] * *y;
	}
}

/* The window of element (p, q) of y on one channel of x. */
static void plane(const struct conv *v, double *x, double *w, int64_t p, int64_t q, double *y)
{
	int64_t top = p * v->n->attr.conv.stride[0] - v->n->attr.conv.pad[0];
	int64_t left = q * v->n->attr.conv.stride[1] - v->n->attr.conv.pad[1];

	for (int64_t r = 0; r < v->w_dim[2]; r++) {
		int64_t at = top + r * v->n->attr.conv.dilation[0];

		if (at >= 0 && at < v->x_dim[2])
			row(v, x + at * v->x_dim[3], left, w + r * v->w_dim[3], y);
	}
}

/* All elements of output channel k of image b. */
static void channel(const struct conv *v, int64_t b, int64_t k)
{
	int64_t depth = v->w_dim[1], places = v->y_dim[2] * v->y_dim[3];
	int64_t first = k / (v->w_dim[0] / v->n->attr.conv.groups) * depth;
	double *y = v->y + (b * v->y_dim[1] + k) * places;

	for (int64_t c = 0; c < depth; c++) {
		double *x = v->x + (b * v->x_dim[1] + first + c) * v->x_dim[2] * v->x_dim[3];
		double *w = v->w + (k * depth + c) * v->w_dim[2] * v->w_dim[3];

		for (int64_t i = 0; i < places; i++)
			plane(v, x, w, i / v->y_dim[3], i % v->y_dim[3], y + i);
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
