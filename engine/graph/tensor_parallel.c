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

static struct jm_tensor *exchange(
	struct jm_graph *g, enum jm_op op, struct jm_tensor *x, int rank, const int64_t *dim)
{
	struct jm_tensor *y;
	char name[32];

	if (g->err.code)
		return NULL;
	snprintf(name, sizeof(name), "%s.%d", jm_op_name(op), g->n_nodes);
	y = jm_graph_tensor(g, JM_CLASS_ACT, x->type, rank, dim, name);
	jm_graph_node(g, op, &x, &y);
	g->n_sums++;
	return y;
}

static struct jm_tensor *to_own(struct jm_graph *g, enum jm_op op, struct jm_tensor *x)
{
	int64_t rows = g->err.code ? 0 : jm_tensor_rows(x);
	const int64_t dim[] = {1, rows / jm_graph_tp(g), rows ? jm_tensor_width(x) : 0};

	if (rows % jm_graph_tp(g) && !g->err.code)
		jm_err_set(&g->err, JM_ERANGE,
			"%d ranks do not divide the %lld rows of a batch evenly, which "
			"--sequence-parallel needs; change --batch or --seq.",
			jm_graph_tp(g), (long long)rows);
	return exchange(g, op, x, 3, dim);
}

static struct jm_tensor *to_whole(struct jm_graph *g, enum jm_op op, struct jm_tensor *x)
{
	const int64_t dim[] = {g->batch, g->seq, g->err.code ? 0 : jm_tensor_width(x)};

	return exchange(g, op, x, 3, dim);
}

struct jm_tensor *jm_graph_sum_ranks(struct jm_graph *g, struct jm_tensor *x)
{
	if (g->err.code)
		return NULL;
	return g->sp ? to_own(g, JM_OP_SUM_ROWS, x)
		     : exchange(g, JM_OP_SUM_RANKS, x, x->rank, x->dim);
}

struct jm_tensor *jm_graph_gather_rows(struct jm_graph *g, struct jm_tensor *x)
{
	return g->sp ? to_whole(g, JM_OP_GATHER_ROWS, x) : x;
}

struct jm_tensor *jm_graph_own_rows(struct jm_graph *g, struct jm_tensor *x)
{
	if (!g->sp || g->err.code)
		return x;
	g->batch = x->dim[0];
	g->seq = x->dim[1];
	return to_own(g, JM_OP_OWN_ROWS, x);
}

struct jm_tensor *jm_graph_whole_rows(struct jm_graph *g, struct jm_tensor *x)
{
	return g->sp ? to_whole(g, JM_OP_WHOLE_ROWS, x) : x;
}

void jm_graph_sums_gradient(struct jm_graph *g, struct jm_tensor *t)
{
	if (t && g->sp)
		jm_graph_cell(g, t)->summed = true;
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

/* The place along the cut dim of the whole parameter; ret_rest: places from there on that the rank
 * has, too. */
static int64_t place_in_whole(const struct jm_graph *g, const struct jm_cell *c, int tp_rank,
	int64_t own, int64_t *ret_rest)
{
	int64_t before = 0, share;
	int i = 0;

	for (; own >= c->cut.size[i] / g->tp; i++) {
		own -= c->cut.size[i] / g->tp;
		before += c->cut.size[i];
	}
	share = c->cut.size[i] / g->tp;
	*ret_rest = share - own;
	return before + tp_rank * share + own;
}

int64_t jm_cell_stretch(const struct jm_graph *g, const struct jm_cell *c, int tp_rank, int64_t own,
	int64_t *ret_whole)
{
	int64_t width = c->t.rank > 1 ? c->t.dim[1] : 1, row = own / width, column = own % width;
	int64_t rest;

	if (!c->cut.n) {
		*ret_whole = own;
		return jm_tensor_count(&c->t) - own;
	}
	if (c->cut.dim == JM_CUT_ROWS) {
		*ret_whole = place_in_whole(g, c, tp_rank, row, &rest) * width + column;
		return rest * width - column;
	}
	*ret_whole = row * width * g->tp + place_in_whole(g, c, tp_rank, column, &rest);
	return rest;
}

int64_t jm_cell_count(const struct jm_graph *g, const struct jm_cell *c)
{
	return jm_tensor_count(&c->t) * (c->cut.n ? jm_graph_tp(g) : 1);
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
