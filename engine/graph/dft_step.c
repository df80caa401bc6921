/* SPDX-License-Identifier: Apache-2.0 */
#include "dft_step.h"
#include "tensor.h"

#include <math.h>

static const struct jm_tensor *field_of(const struct jm_node *n)
{
	return n->op == JM_OP_DFT ? n->in[0] : n->out[0];
}

int jm_dft_steps(const struct jm_node *n)
{
	return field_of(n)->rank - 2;
}

/* Rows of a point: a real one, or a real and an imaginary one. */
static int64_t parts(const struct jm_dft_step *s)
{
	return s->last ? 1 : 2;
}

struct jm_dft_step jm_dft_step(const struct jm_node *n, int i)
{
	const struct jm_tensor *x = field_of(n);
	int last = x->rank - 3, a = n->op == JM_OP_IDFT ? i : last - i;
	struct jm_dft_step s = {.points = x->dim[1 + a],
		.modes = n->attr.dft.modes[a],
		.outer = x->dim[0],
		.width = jm_tensor_width(x),
		.scale = 1,
		.last = a == last,
		.back = n->op == JM_OP_IDFT,
		.twice = n->attr.dft.twice};

	for (int b = 0; b <= last && i == last; b++)
		s.scale /= sqrt((double)x->dim[1 + b]);
	s.kept = s.modes * (s.last ? 1 : 2);
	for (int b = 0; b < a; b++)
		s.outer *= x->dim[1 + b];
	for (int b = a + 1; b <= last; b++)
		s.width *= n->attr.dft.modes[b] * (b < last ? 2 : 1);
	s.rows = s.back ? s.points * parts(&s) : 2 * s.kept;
	s.n = s.back ? 2 * s.kept : s.points * parts(&s);
	return s;
}

/* The element of row (part, frequency) and column (point, part) of dft; those of idft are
 * transposed. */
static double element(const struct jm_dft_step *a, int64_t row, int64_t column)
{
	int64_t k = row % a->kept, point = column / parts(a);
	bool im_row = row >= a->kept, im_column = column % parts(a);
	int64_t f = !a->last && k >= a->modes ? a->points - a->kept + k : k;
	double t = 2 * M_PI * (double)(f * point % a->points) / (double)a->points;
	double s = a->scale;

	if (a->twice && a->last && f && 2 * f != a->points)
		s *= 2;
	if (im_row == im_column)
		return s * cos(t);
	return im_row ? -s * sin(t) : s * sin(t);
}

double jm_dft_element(const struct jm_dft_step *s, int64_t row, int64_t column)
{
	return s->back ? element(s, column, row) : element(s, row, column);
}
