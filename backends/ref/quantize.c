/* SPDX-License-Identifier: Apache-2.0 */
/* quantize and rescale; they work directly on tensors of any type. */
#include "ref_kernels.h"

#include <math.h>

#define MOST_SCALE 0x1p100F /* the inverse is still a normal number */

static double largest(const struct jm_tensor *x)
{
	double most = 0;

	for (int64_t i = 0; i < jm_tensor_count(x); i++)
		most = fmax(most, fabs(jm_element_get(x->type, x->data, i)));
	return most;
}

/* The node's row of ranges; NULL = the node has no ranges. */
static float *row_of(const struct jm_node *n, struct jm_tensor *ranges)
{
	return ranges ? (float *)ranges->data + n->attr.quantize.row * jm_tensor_width(ranges)
		      : NULL;
}

static float scale_of(enum jm_dtype type, float limit)
{
	float top = type == JM_F8E4M3 ? 448.0F : 57344.0F;

	return fminf(top / (limit > 0 ? limit : 1), MOST_SCALE);
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

void jm_ref_quantize(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0];
	const float *before = row_of(n, n->in[1]);
	float *row = row_of(n, n->out[2]), most = (float)largest(x);
	float limit = before && before[0] > 0 ? before[0] : most, scale = scale_of(y->type, limit);

	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(x); i++) {
		float value = scale * (float)jm_element_get(x->type, x->data, i);

		jm_element_set(y->type, y->data, i, (double)value);
	}
	jm_element_set(n->out[1]->type, n->out[1]->data, 0, (double)(1 / scale));
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
