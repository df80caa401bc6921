/* SPDX-License-Identifier: Apache-2.0 */
/* quantize and rescale; they work directly on tensors of any type. */
#include "ref_kernels.h"

#include <math.h>

/* Of elements i to i + n - 1. */
static double largest(const struct jm_tensor *x, int64_t i, int64_t n)
{
	double most = 0;

	for (int64_t end = i + n; i < end; i++)
		most = fmax(most, fabs(jm_element_get(x->type, x->data, i)));
	return most;
}

/* The node's row of ranges; NULL = the node has no ranges. */
static float *row_of(const struct jm_node *n, struct jm_tensor *ranges)
{
	return ranges ? (float *)ranges->data + n->attr.quantize.row * jm_tensor_width(ranges)
		      : NULL;
}

static void sum_rows(const struct jm_node *n)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[3];
	int64_t width = jm_tensor_width(x);

	for (int64_t j = 0; y && j < width; j++) {
		double sum = jm_node_adds(n, 3) ? jm_element_get(y->type, y->data, j) : 0;

		for (int64_t i = j; i < jm_tensor_count(x); i += width)
			sum += jm_element_get(x->type, x->data, i);
		jm_element_set(y->type, y->data, j, sum);
	}
}

/* Part k of the parts of equal length, each with an inverse of its own. */
static void quantize_part(const struct jm_node *n, int64_t k, float limit)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0], *inverse = n->out[1];
	int64_t length = jm_tensor_count(x) / jm_tensor_count(inverse);
	float scale = jm_f8_scale(y->type, limit);

	for (int64_t i = k * length; i < (k + 1) * length; i++) {
		float value = scale * (float)jm_element_get(x->type, x->data, i);

		jm_element_set(y->type, y->data, i, (double)value);
	}
	jm_element_set(inverse->type, inverse->data, k, (double)(1 / scale));
}

void jm_ref_quantize(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[0];
	const float *before = row_of(n, n->in[1]);
	int64_t parts = jm_tensor_count(n->out[1]), length = jm_tensor_count(x) / parts;
	float *row = row_of(n, n->out[2]), most = (float)largest(x, 0, jm_tensor_count(x));
	float limit = before && before[0] > 0 ? before[0] : most;

	(void)in;
	(void)out;
	for (int64_t k = 0; k < parts; k++)
		quantize_part(n, k, parts > 1 ? (float)largest(x, k * length, length) : limit);
	if (row) {
		row[0] = limit;
		row[1] = fmaxf(row[1], most);
	}
	sum_rows(n);
}

/* Inserts the maximum of this step before the earlier ones. */
static void push(float *row, int64_t length)
{
	float most = 0;

	if (isfinite(row[1]) && row[1] > 0) {
		memmove(row + 3, row + 2, (size_t)(length - 1) * sizeof(*row));
		row[2] = row[1];
	}
	for (int64_t i = 0; i < length; i++)
		most = fmaxf(most, row[2 + i]);
	row[0] = most;
	row[1] = 0;
}

void jm_ref_rescale(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *t = n->out[0];
	int64_t width = jm_tensor_width(t);

	(void)in;
	(void)out;
	for (int64_t r = 0; r < jm_tensor_rows(t); r++)
		push((float *)t->data + r * width, width - 2);
}
