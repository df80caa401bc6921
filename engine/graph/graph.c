/* SPDX-License-Identifier: Apache-2.0 */
/* Building the canonical graph. */
#include "graph.h"
#include "op.h"
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct jm_graph *jm_graph_new(enum jm_dtype precision)
{
	struct jm_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->compute = precision;
	g->vector = precision == JM_F64 ? JM_F64 : JM_F32;
	g->stream = g->vector;
	g->matrix = g->gradient = g->vector;
	return g;
}

const struct jm_tensor *jm_graph_residual(const struct jm_graph *g)
{
	for (int i = 0; i < g->n_nodes; i++)
		if (g->node[i]->op == JM_OP_EMBED || g->node[i]->op == JM_OP_STAGE_IN ||
			(g->node[i]->op == JM_OP_TOKENS && g->node[i]->in[2]))
			return g->node[i]->out[0];
	return NULL;
}

void jm_graph_free(struct jm_graph *g)
{
	if (!g)
		return;
	for (int i = 0; i < g->n_cells; i++)
		free(g->cell[i]);
	for (int i = 0; i < g->n_nodes; i++)
		free(g->node[i]);
	if (g->shard)
		free(g->shard->segment);
	free(g->shard);
	free(g->cell);
	free(g->node);
	free(g);
}

void jm_graph_scope(struct jm_graph *g, const char *fmt, ...)
{
	size_t n = (size_t)snprintf(g->scope, sizeof(g->scope), "%s", g->part);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(g->scope + n, sizeof(g->scope) - n, fmt, ap);
	va_end(ap);
	g->block = g->scope[n] ? ++g->n_blocks : 0;
}

void jm_graph_part(struct jm_graph *g, const char *prefix)
{
	snprintf(g->part, sizeof(g->part), "%s", prefix);
	jm_graph_scope(g, "%s", "");
}

/* Makes room for another pointer in a growing array; false = out of memory. */
static bool grow(void *array, int n, int *cap)
{
	void **at = *(void ***)array;
	int more = *cap ? *cap * 2 : 64;

	if (n < *cap)
		return true;
	at = realloc(at, (size_t)more * sizeof(*at));
	if (!at)
		return false;
	*(void ***)array = at;
	*cap = more;
	return true;
}

static void *append(struct jm_graph *g, void *array, int *n, int *cap, size_t size)
{
	void *item = grow(array, *n, cap) ? calloc(1, size) : NULL;

	if (!item)
		jm_err_set(
			&g->err, JM_ENOMEM, "Out of memory for a graph of %d nodes.", g->n_nodes);
	else
		(*(void ***)array)[(*n)++] = item;
	return item;
}

static bool dims_good(int rank, const int64_t *dim)
{
	double count = 1;

	for (int i = 0; i < rank; i++) {
		if (dim[i] <= 0)
			return false;
		count *= (double)dim[i];
	}
	return rank <= JM_DIMS && count < 1e15;
}

struct jm_tensor *jm_graph_tensor(struct jm_graph *g, enum jm_class class, enum jm_dtype type,
	int rank, const int64_t *dim, const char *name)
{
	struct jm_cell *c;

	if (g->err.code)
		return NULL;
	if (!dims_good(rank, dim)) {
		jm_err_set(&g->err, JM_ERANGE,
			"Tensor %s%s has a dimension below 1, or too many elements to count; check "
			"batch, "
			"sequence and the model's dimensions.",
			g->scope, name);
		return NULL;
	}
	if (strlen(g->scope) + strlen(name) > JM_NAME_MOST) {
		jm_err_set(&g->err, JM_ERANGE,
			"The name %s%s of a tensor has more than %d characters; shorten those of "
			"the "
			"network's parts.",
			g->scope, name, JM_NAME_MOST);
		return NULL;
	}
	c = append(g, &g->cell, &g->n_cells, &g->cap_cells, sizeof(*c));
	if (!c)
		return NULL;
	snprintf(c->t.name, sizeof(c->t.name), "%s%s", g->scope, name);
	c->t.class = class;
	c->t.type = type;
	c->t.rank = rank;
	memcpy(c->t.dim, dim, (size_t)rank * sizeof(*dim));
	c->t.bytes = jm_layout_bytes(&c->t, &c->t.layout);
	c->t.id = g->n_cells - 1;
	c->first = c->last = -1;
	c->block = g->block;
	return &c->t;
}

struct jm_cell *jm_graph_cell(const struct jm_graph *g, const struct jm_tensor *t)
{
	return g->cell[t->id];
}

static bool any_needs_grad(const struct jm_graph *g, const struct jm_node *n)
{
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i] && jm_graph_cell(g, n->in[i])->needs_grad)
			return true;
	return false;
}

struct jm_node *jm_graph_node(struct jm_graph *g, enum jm_op op, struct jm_tensor *const *in,
	struct jm_tensor *const *out)
{
	const struct jm_op_row *row = jm_op_row(op);
	struct jm_node *n;
	bool needs;

	if (g->err.code)
		return NULL;
	n = append(g, &g->node, &g->n_nodes, &g->cap_nodes, sizeof(*n));
	if (!n)
		return NULL;
	n->op = op;
	n->id = g->n_nodes - 1;
	n->math = g->math;
	n->n_in = row->n_in;
	n->n_out = row->n_out;
	if (row->n_in)
		memcpy(n->in, in, (size_t)row->n_in * sizeof(*in));
	if (row->n_out)
		memcpy(n->out, out, (size_t)row->n_out * sizeof(*out));
	needs = any_needs_grad(g, n);
	for (int i = 0; i < n->n_out; i++) {
		struct jm_cell *c = n->out[i] ? jm_graph_cell(g, n->out[i]) : NULL;

		if (c && !c->producer)
			c->producer = n;
		if (c && needs && c->t.class == JM_CLASS_ACT)
			c->needs_grad = true;
	}
	jm_node_cost(n);
	return n;
}

struct jm_tensor *jm_graph_find(const struct jm_graph *g, const char *name)
{
	for (int i = 0; i < g->n_cells; i++)
		if (!strcmp(g->cell[i]->t.name, name))
			return &g->cell[i]->t;
	return NULL;
}

int64_t jm_cell_parameters(const struct jm_graph *g, const struct jm_cell *c)
{
	int64_t own = c->used ? c->used * jm_tensor_width(&c->t) : jm_tensor_count(&c->t);

	return own * (c->cut.n ? jm_graph_tp(g) : 1);
}

int64_t jm_graph_parameters(const struct jm_graph *g)
{
	int64_t n = 0;

	for (int i = 0; i < g->n_cells; i++)
		if (g->cell[i]->t.class == JM_CLASS_PARAM &&
			(g->cell[i]->needs_grad || g->cell[i]->frozen))
			n += jm_cell_parameters(g, g->cell[i]);
	return n;
}
