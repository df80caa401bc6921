/* SPDX-License-Identifier: Apache-2.0 */
/* Fields on grids, for the comparison of backends with ref. */
#include "op_case.h"

#define CHANNELS(d) ((d)->c % 40 + 1)

/* One to three axes, odd and even; the last one with and without its highest frequency. */
static int axes_of(const struct shape *d, int64_t *points, int64_t *modes, int64_t *ret_n)
{
	int axes = 1 + (int)(d->s + d->n) % 3;

	*ret_n = 1;
	for (int a = 0; a < axes; a++) {
		bool last = a == axes - 1;

		points[a] = 4 + (d->s + 3 * a) % (axes == 1 ? 90 : axes == 2 ? 12 : 5);
		modes[a] = last ? points[a] / 2 + d->s % 2 : 1 + (d->n + a) % (points[a] / 2);
		*ret_n *= modes[a] * (last ? 1 : 2);
	}
	return axes;
}

static void set_modes(struct jm_node *n, int axes, const int64_t *modes, bool twice)
{
	for (int a = 0; a < axes; a++)
		n->attr.dft.modes[a] = modes[a];
	n->attr.dft.twice = twice;
}

/* Odd sizes have the terms that count twice in dft, the others in idft. */
static void transforms(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	int64_t dim[JM_DIMS] = {d->b}, modes[JM_AXES], n;
	int axes = axes_of(d, dim + 1, modes, &n);
	const int64_t spectrum[] = {d->b, 2, n, CHANNELS(d)};
	struct jm_tensor *x, *y, *from, *back;

	dim[1 + axes] = CHANNELS(d);
	x = kit_normal(k, t->c, 0, 1, 2 + axes, dim);
	from = kit_normal(k, t->c, 0, 1, 4, spectrum);
	y = backend_result(k, t->c, add, 4, spectrum);
	back = backend_result(k, t->c, add, 2 + axes, dim);
	set_modes(backend_node(k, JM_OP_DFT, &x, &y, add), axes, modes, d->c % 2);
	set_modes(backend_node(k, JM_OP_IDFT, &from, &back, add), axes, modes, d->c % 2 == 0);
}

static void mix_modes(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t n = d->s, from = CHANNELS(d), to = d->n % 40 + 1;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, DIMS(d->b, 2, n, from));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 1, 4, DIMS(2, n, from, to));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, DIMS(d->b, 2, n, to));
	struct jm_tensor *y = backend_result(k, t->c, add, 4, dy->dim);
	struct jm_tensor *dx = backend_result(k, t->c, add, 4, x->dim);
	struct jm_tensor *dw = backend_gradient(k, t->v, add, 4, w->dim);

	backend_node(k, JM_OP_MIX_MODES, OPS(x, w), &y, add);
	backend_node(k, JM_OP_MIX_MODES_DGRAD, OPS(dy, w), &dx, add);
	backend_node(k, JM_OP_MIX_MODES_WGRAD, OPS(dy, x), &dw, add);
}

/* Norms over some of one to three axes. */
static void relative_l2(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	int64_t dim[JM_DIMS] = {d->b}, unused[JM_AXES], n;
	int axes = axes_of(d, dim + 1, unused, &n);
	struct jm_tensor *y, *target, *loss, *dy, *scale;
	struct jm_node *node;

	dim[1 + axes] = CHANNELS(d);
	y = kit_normal(k, t->c, 0, 1, 2 + axes, dim);
	target = kit_normal(k, t->v, 0.2, 1, 2 + axes, dim);
	loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	dy = alone ? NULL : kit_out(k, t->c, 2 + axes, dim, NULL);
	scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));
	node = backend_node(k, JM_OP_RELATIVE_L2, OPS(y, target, scale), OPS(loss, dy), 0);
	backend_weigh(node, 0.5, 0.4);
	node->attr.xent.axes = 1 + (int)d->n % axes;
}

const struct backend_case backend_spectral_cases[] = {
	{"transforms", transforms},
	{"mix-modes", mix_modes},
	{"relative-l2", relative_l2},
	{0},
};
