/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by which models declare ops on fields [B, N.., C]. */
#include "layer_spectral.h"
#include "freeze.h"
#include "layer_private.h"
#include "op.h"

#include <stdio.h>
#include <string.h>

static struct jm_tensor *numbered(
	struct jm_graph *g, const char *name, int rank, const int64_t *dim)
{
	char full[32];

	snprintf(full, sizeof(full), "%s.%d", name, g->n_nodes);
	return jm_graph_tensor(g, JM_CLASS_ACT, g->compute, rank, dim, full);
}

static void transform(struct jm_graph *g, enum jm_op op, struct jm_tensor *from,
	struct jm_tensor *to, int axes, const int64_t *modes)
{
	struct jm_node *n = jm_graph_node(g, op, OPS(from), OPS(to));

	if (!n)
		return;
	memcpy(n->attr.dft.modes, modes, (size_t)axes * sizeof(*modes));
	n->attr.dft.twice = op == JM_OP_IDFT;
	jm_node_cost(n); /* again, because the frequencies are known only now */
}

/* Complex matrices with real and imaginary parts uniform in 0 to 1, as in CARAML. */
static struct jm_tensor *matrices(
	struct jm_graph *g, const char *name, int64_t n, int64_t from, int64_t to)
{
	struct jm_tensor *t =
		jm_graph_tensor(g, JM_CLASS_PARAM, g->matrix, 4, DIMS(2, n, from, to), name);

	if (!t)
		return NULL;
	jm_graph_cell(g, t)->init = JM_INIT_UNIFORM;
	jm_graph_cell(g, t)->table = true; /* --init is for matrices of real numbers */
	jm_freeze_cell(g, jm_graph_cell(g, t));
	return t;
}

static bool fits(const struct jm_tensor *x, int axes, const int64_t *modes)
{
	if (axes < 1 || axes > JM_AXES)
		return false;
	for (int a = 0; a < axes; a++) {
		int64_t most = x->dim[1 + a] / 2 + (a == axes - 1);

		if (modes[a] < 1 || modes[a] > most)
			return false;
	}
	return true;
}

struct jm_tensor *jm_graph_spectral_conv(
	struct jm_graph *g, struct jm_tensor *x, const char *name, int64_t to, const int64_t *modes)
{
	int axes = x ? x->rank - 2 : 0; /* NULL after an error */
	int64_t n = 1, from, dim[JM_DIMS];
	struct jm_tensor *w, *spectrum, *mixed, *y;

	if (!x || g->err.code || !jm_layer_fits(g, fits(x, axes, modes), "spectral-conv", x))
		return NULL;
	for (int a = 0; a < axes; a++)
		n *= modes[a] * (a < axes - 1 ? 2 : 1);
	from = x->dim[1 + axes];
	memcpy(dim, x->dim, sizeof(dim));
	dim[1 + axes] = to;
	w = jm_layer_weight(g, matrices(g, name, n, from, to));
	spectrum = numbered(g, "dft", 4, DIMS(x->dim[0], 2, n, from));
	transform(g, JM_OP_DFT, x, spectrum, axes, modes);
	mixed = numbered(g, "mix-modes", 4, DIMS(x->dim[0], 2, n, to));
	jm_graph_node(g, JM_OP_MIX_MODES, OPS(spectrum, w), OPS(mixed));
	y = numbered(g, "idft", x->rank, dim);
	transform(g, JM_OP_IDFT, mixed, y, axes, modes);
	return y;
}

struct jm_tensor *jm_graph_relative_l2(
	struct jm_graph *g, struct jm_tensor *y, struct jm_tensor *target, int axes)
{
	struct jm_tensor *loss, *dy;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g,
			y->rank == target->rank && axes >= 1 && axes <= y->rank - 2 &&
				!memcmp(y->dim, target->dim, (size_t)y->rank * sizeof(*y->dim)),
			"relative-l2", target))
		return NULL;
	loss = jm_graph_tensor(g, JM_CLASS_SCALAR, g->vector, 1, DIMS(1), "loss");
	dy = g->evaluate ? NULL : numbered(g, "dy", y->rank, y->dim);
	n = jm_graph_node(g, JM_OP_RELATIVE_L2, OPS(y, target, NULL), OPS(loss, dy));
	if (!n)
		return NULL;
	n->attr.xent.scale = n->attr.xent.weight = 1;
	n->attr.xent.axes = axes;
	return loss;
}
