/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_parallel.h"
#include "tensor.h"

#include <stdio.h>

int64_t jm_graph_share(struct jm_graph *g, int64_t n, const char *what)
{
	int tp = jm_graph_tp(g);

	if (n % tp == 0)
		return n / tp;
	if (!g->err.code)
		jm_err_set(&g->err, JM_ERANGE,
			"--tp %d does not divide the %lld %s of the model; give a divisor.", tp,
			(long long)n, what);
	return n;
}

struct jm_tensor *jm_graph_cut(
	struct jm_graph *g, struct jm_tensor *t, enum jm_cut_dim dim, int n, const int64_t *size)
{
	struct jm_cell *c = t ? jm_graph_cell(g, t) : NULL;
	int64_t own = 0;

	if (!c || jm_graph_tp(g) == 1)
		return t;
	for (int i = 0; i < n; i++) {
		c->cut.size[i] = size[i];
		own += jm_graph_share(g, size[i], "columns of a layer");
	}
	c->cut.n = n;
	c->cut.dim = dim;
	t->dim[dim] = own;
	t->bytes = jm_layout_bytes(t, &t->layout);
	return t;
}

bool jm_graph_is_cut(const struct jm_graph *g, const struct jm_tensor *t, enum jm_cut_dim dim)
{
	const struct jm_cell *c = jm_graph_cell(g, t);

	if (c->origin)
		c = jm_graph_cell(g, c->origin);
	return c->cut.n && c->cut.dim == (int)dim;
}

struct jm_tensor *jm_graph_sum_ranks(struct jm_graph *g, struct jm_tensor *x)
{
	struct jm_tensor *y;
	char name[32];

	if (g->err.code)
		return NULL;
	snprintf(name, sizeof(name), "sum.%d", g->n_nodes);
	y = jm_graph_tensor(g, JM_CLASS_ACT, x->type, x->rank, x->dim, name);
	jm_graph_node(g, JM_OP_SUM_RANKS, &x, &y);
	g->n_sums++;
	return y;
}

void jm_graph_add_biases_once(struct jm_graph *g)
{
	for (int i = 0; g->tp_rank && i < g->n_nodes; i++) {
		struct jm_node *n = g->node[i];

		if (n->op == JM_OP_LINEAR && jm_graph_is_cut(g, n->in[1], JM_CUT_COLUMNS))
			n->in[2] = NULL;
	}
}

int64_t jm_cell_dim(const struct jm_graph *g, const struct jm_cell *c, int i)
{
	return c->t.dim[i] * (c->cut.n && c->cut.dim == i ? jm_graph_tp(g) : 1);
}

/* The place along the cut dim of the whole parameter. */
static int64_t place_in_whole(const struct jm_graph *g, const struct jm_cell *c, int64_t own)
{
	int64_t before = 0;
	int i = 0;

	for (; own >= c->cut.size[i] / g->tp; i++) {
		own -= c->cut.size[i] / g->tp;
		before += c->cut.size[i];
	}
	return before + g->tp_rank * (c->cut.size[i] / g->tp) + own;
}

int64_t jm_cell_index(const struct jm_graph *g, const struct jm_cell *c, int64_t own)
{
	int64_t width = c->t.rank > 1 ? c->t.dim[1] : 1, row = own / width, column = own % width;

	if (!c->cut.n)
		return own;
	if (c->cut.dim == JM_CUT_ROWS)
		return place_in_whole(g, c, row) * width + column;
	return row * width * g->tp + place_in_whole(g, c, column);
}

double jm_node_model_share(const struct jm_graph *g, const struct jm_node *n)
{
	const struct jm_tensor *w = n->op == JM_OP_LINEAR_WGRAD ? n->out[0] : n->in[1];
	const struct jm_cell *c;

	if (n->op != JM_OP_LINEAR && n->op != JM_OP_LINEAR_DGRAD && n->op != JM_OP_LINEAR_WGRAD)
		return 1;
	c = jm_graph_cell(g, w);
	c = c->made_for ? jm_graph_cell(g, c->made_for) : c;
	c = c->origin ? jm_graph_cell(g, c->origin) : c;
	return c->cut.n ? 1 : 1.0 / jm_graph_tp(g);
}
