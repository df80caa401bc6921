/* SPDX-License-Identifier: Apache-2.0 */
/* Building the canonical graph. */
#include "graph.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "op.h"
#include "tensor.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define OPS(...)  ((struct jm_tensor *const[]){__VA_ARGS__})

struct jm_graph *jm_graph_new(enum jm_dtype precision)
{
	struct jm_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->compute = precision;
	g->vector = precision == JM_F64 ? JM_F64 : JM_F32;
	g->stream = g->vector;
	return g;
}

void jm_graph_free(struct jm_graph *g)
{
	if (!g)
		return;
	for (int i = 0; i < g->n_cells; i++)
		free(g->cell[i]);
	for (int i = 0; i < g->n_nodes; i++)
		free(g->node[i]);
	free(g->cell);
	free(g->node);
	free(g);
}

void jm_graph_scope(struct jm_graph *g, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(g->scope, sizeof(g->scope), fmt, ap);
	va_end(ap);
	g->block = *g->scope ? ++g->n_blocks : 0;
}

/* Room for one more pointer in a growing array; false = out of memory. */
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
	n->n_in = row->n_in;
	n->n_out = row->n_out;
	memcpy(n->in, in, (size_t)row->n_in * sizeof(*in));
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

int64_t jm_graph_parameters(const struct jm_graph *g)
{
	int64_t n = 0;

	for (int i = 0; i < g->n_cells; i++)
		if (g->cell[i]->t.class == JM_CLASS_PARAM && g->cell[i]->needs_grad)
			n += jm_tensor_count(&g->cell[i]->t);
	return n;
}

/* ---- what models call -------------------------------------------------------------------------------- */

/* An operand that does not fit is a mistake in the model, not of the user. */
static bool fits(struct jm_graph *g, bool good, const char *op, const struct jm_tensor *t)
{
	if (!g->err.code && !good)
		jm_err_set(&g->err, JM_EBUG,
			"Operand %s of %s%s has the wrong shape: the model's "
			"function must be mended.",
			t ? t->name : "(none)", g->scope, op);
	return !g->err.code;
}

/* Named after its op and the number of its node. */
static struct jm_tensor *activation(struct jm_graph *g, enum jm_dtype type,
	const struct jm_tensor *like, int64_t width, const char *name)
{
	int64_t dim[JM_DIMS];
	char numbered[32];

	if (!like)
		return NULL;
	snprintf(numbered, sizeof(numbered), "%s.%d", name, g->n_nodes);
	memcpy(dim, like->dim, sizeof(dim));
	dim[like->rank - 1] = width;
	return jm_graph_tensor(g, JM_CLASS_ACT, type, like->rank, dim, numbered);
}

struct jm_tensor *jm_graph_input(
	struct jm_graph *g, const char *name, enum jm_dtype type, int rank, const int64_t *dim)
{
	return jm_graph_tensor(g, JM_CLASS_INPUT, type, rank, dim, name);
}

static struct jm_tensor *param(struct jm_graph *g, const char *name, enum jm_init init, double std,
	int rank, const int64_t *dim)
{
	struct jm_tensor *t = jm_graph_tensor(g, JM_CLASS_PARAM, g->vector, rank, dim, name);

	if (!t)
		return NULL;
	jm_graph_cell(g, t)->init = init;
	jm_graph_cell(g, t)->init_std = std;
	jm_graph_cell(g, t)->needs_grad = true;
	return t;
}

struct jm_tensor *jm_graph_vector(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t n)
{
	return param(g, name, init, 0, 1, DIMS(n));
}

struct jm_tensor *jm_graph_matrix(
	struct jm_graph *g, const char *name, double init_std, int64_t rows, int64_t width)
{
	return param(g, name, JM_INIT_NORMAL, init_std, 2, DIMS(rows, width));
}

struct jm_tensor *jm_graph_embed(struct jm_graph *g, struct jm_tensor *ids, struct jm_tensor *table,
	struct jm_tensor *positions)
{
	struct jm_tensor *y;

	if (g->err.code || !fits(g, ids->rank == 2 && table->rank == 2, "embed", ids) ||
		!fits(g,
			!positions || (positions->dim[0] >= ids->dim[1] &&
					      positions->dim[1] == table->dim[1]),
			"embed", positions))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, g->stream, 3,
		DIMS(ids->dim[0], ids->dim[1], table->dim[1]), "embed");
	jm_graph_node(g, JM_OP_EMBED, OPS(ids, table, positions), OPS(y));
	return y;
}

/* The parameter in the compute type: itself, or a copy made by a cast where it is first used. */
static struct jm_tensor *compute_copy(struct jm_graph *g, struct jm_tensor *w)
{
	struct jm_cell *c = jm_graph_cell(g, w);

	if (w->type == g->compute || w->class != JM_CLASS_PARAM)
		return w;
	if (c->copy)
		return c->copy;
	c->copy = jm_graph_tensor(g, JM_CLASS_COPY, g->compute, w->rank, w->dim, "copy");
	if (!c->copy)
		return NULL;
	snprintf(c->copy->name, sizeof(c->copy->name), "%.40s.copy", w->name);
	jm_graph_cell(g, c->copy)->origin = w;
	jm_graph_cell(g, c->copy)->needs_grad = true;
	jm_graph_node(g, JM_OP_CAST, OPS(w), OPS(c->copy));
	return c->copy;
}

struct jm_tensor *jm_graph_linear(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *bias)
{
	struct jm_tensor *y, *copy;

	if (g->err.code || !fits(g, w->rank == 2 && jm_tensor_width(x) == w->dim[1], "linear", x) ||
		!fits(g, !bias || bias->dim[0] == w->dim[0], "linear", bias))
		return NULL;
	copy = compute_copy(g, w);
	y = activation(g, g->compute, x, w->dim[0], "linear");
	jm_graph_node(g, JM_OP_LINEAR, OPS(x, copy, bias), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_gelu(struct jm_graph *g, struct jm_tensor *x)
{
	struct jm_tensor *y;

	if (g->err.code)
		return NULL;
	y = activation(g, x->type, x, jm_tensor_width(x), "gelu");
	jm_graph_node(g, JM_OP_GELU, OPS(x), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_layernorm(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *gamma, struct jm_tensor *beta, double eps)
{
	struct jm_tensor *y, *mean, *rstd;
	struct jm_node *n;

	if (g->err.code || !fits(g, gamma->dim[0] == jm_tensor_width(x), "layernorm", gamma) ||
		!fits(g, !beta || beta->dim[0] == jm_tensor_width(x), "layernorm", beta))
		return NULL;
	y = activation(g, g->compute, x, jm_tensor_width(x), "layernorm");
	mean = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, x->rank - 1, x->dim, "mean");
	rstd = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, x->rank - 1, x->dim, "rstd");
	n = jm_graph_node(g, JM_OP_LAYERNORM, OPS(x, gamma, beta), OPS(y, mean, rstd));
	if (n)
		n->attr.norm.eps = eps;
	return y;
}

static bool heads_good(const struct jm_tensor *qkv, int heads, int kv_heads)
{
	return qkv->rank == 3 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 &&
	       qkv->dim[2] % (heads + 2 * kv_heads) == 0;
}

struct jm_tensor *jm_graph_rope(
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, double theta)
{
	struct jm_tensor *y;
	struct jm_node *n;

	if (g->err.code || !fits(g,
				   heads_good(qkv, heads, kv_heads) &&
					   qkv->dim[2] / (heads + 2 * kv_heads) % 2 == 0,
				   "rope", qkv))
		return NULL;
	y = activation(g, qkv->type, qkv, jm_tensor_width(qkv), "rope");
	n = jm_graph_node(g, JM_OP_ROPE, OPS(qkv), OPS(y));
	if (!n)
		return NULL;
	n->attr.rope.heads = heads;
	n->attr.rope.kv_heads = kv_heads;
	n->attr.rope.theta = theta;
	return y;
}

struct jm_tensor *jm_graph_attention(
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, bool causal)
{
	struct jm_tensor *y, *lse;
	struct jm_node *n;
	int64_t head;

	if (g->err.code || !fits(g, heads_good(qkv, heads, kv_heads), "attention", qkv))
		return NULL;
	head = qkv->dim[2] / (heads + 2 * kv_heads);
	y = activation(g, qkv->type, qkv, head * heads, "attention");
	lse = jm_graph_tensor(
		g, JM_CLASS_ACT, g->vector, 3, DIMS(qkv->dim[0], heads, qkv->dim[1]), "lse");
	n = jm_graph_node(g, JM_OP_ATTENTION, OPS(qkv), OPS(y, lse));
	if (!n)
		return NULL;
	n->attr.attention.heads = heads;
	n->attr.attention.kv_heads = kv_heads;
	n->attr.attention.causal = causal;
	n->attr.attention.scale = 1 / sqrt((double)head);
	jm_node_cost(n); /* the mask halves it */
	return y;
}

struct jm_tensor *jm_graph_add(struct jm_graph *g, struct jm_tensor *a, struct jm_tensor *b)
{
	struct jm_tensor *y;

	if (g->err.code || !fits(g, jm_tensor_count(a) == jm_tensor_count(b), "add", b))
		return NULL;
	y = activation(g, a->type, a, jm_tensor_width(a), "add");
	jm_graph_node(g, JM_OP_ADD, OPS(a, b), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_softmax_xent(
	struct jm_graph *g, struct jm_tensor *logits, struct jm_tensor *target)
{
	struct jm_tensor *loss, *dlogits;
	struct jm_node *n;

	if (g->err.code ||
		!fits(g, jm_tensor_count(target) == jm_tensor_rows(logits), "softmax-xent", target))
		return NULL;
	loss = jm_graph_tensor(g, JM_CLASS_SCALAR, g->vector, 1, DIMS(1), "loss");
	dlogits = activation(g, logits->type, logits, jm_tensor_width(logits), "dlogits");
	n = jm_graph_node(g, JM_OP_SOFTMAX_XENT, OPS(logits, target), OPS(loss, dlogits));
	if (n)
		n->attr.xent.scale = 1;
	return loss;
}
