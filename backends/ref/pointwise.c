/* SPDX-License-Identifier: Apache-2.0 */
/* Element by element; these work on the tensors themselves, whatever their types. */
#include "ref.h"

#include <math.h>

#define SQRT_2_PI 0.79788456080286535588 /* sqrt(2/pi) */
#define CUBIC	  0.044715		 /* Hendrycks and Gimpel, arXiv 1606.08415 */

static double get(const struct jm_tensor *t, int64_t i)
{
	return jm_element_get(t->type, t->data, i);
}

static void put(const struct jm_node *n, int64_t i, double value)
{
	const struct jm_tensor *t = n->out[0];

	jm_element_set(t->type, t->data, i, value + (n->accumulate & 1 ? get(t, i) : 0));
}

static double inner(double x)
{
	return tanh(SQRT_2_PI * (x + CUBIC * x * x * x));
}

void jm_ref_gelu(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		double x = get(n->in[0], i);

		put(n, i, 0.5 * x * (1 + inner(x)));
	}
}

void jm_ref_gelu_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++) {
		double x = get(n->in[1], i), t = inner(x);
		double slope = SQRT_2_PI * (1 + 3 * CUBIC * x * x);

		put(n, i, get(n->in[0], i) * 0.5 * (1 + t + x * (1 - t * t) * slope));
	}
}

void jm_ref_add(const struct jm_node *n, double *const *in, double *const *out)
{
	(void)in;
	(void)out;
	for (int64_t i = 0; i < jm_tensor_count(n->out[0]); i++)
		put(n, i, get(n->in[0], i) + get(n->in[1], i));
}

/* The only op that knows layouts: element by index. */
void jm_ref_cast(const struct jm_node *n, double *const *in, double *const *out)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0];

	(void)in;
	(void)out;
	if (y->layout.rank && !(n->accumulate & 1))
		memset(y->data, 0, y->bytes);
	for (int64_t i = 0; i < jm_tensor_count(y); i++) {
		int64_t index[JM_DIMS], left = i;

		for (int d = y->rank - 1; d >= 0; d--) {
			index[d] = left % y->dim[d];
			left /= y->dim[d];
		}
		put(n, jm_layout_offset(y, &y->layout, index),
			get(x, jm_layout_offset(x, &x->layout, index)));
	}
}
