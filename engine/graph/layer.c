/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by which models declare ops on sequences: each checks shapes and appends one node. */
#include "layer.h"
#include "freeze.h"
#include "layer_private.h"
#include "op.h"
#include "tensor.h"
#include "tensor_parallel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool jm_layer_fits(struct jm_graph *g, bool good, const char *op, const struct jm_tensor *t)
{
	if (!g->err.code && !good)
		jm_err_set(&g->err, JM_EBUG,
			"Operand %s of %s%s has the wrong shape, a defect of the model's function.",
			t ? t->name : "(none)", g->scope, op);
	return !g->err.code;
}

/* A tensor like another except for type and last dim, named after its op and the number of its
 * node. */
static struct jm_tensor *like_operand(struct jm_graph *g, enum jm_dtype type,
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

/* Values of the pictures [B,3,Y,X] that the host writes as bytes. */
static struct jm_tensor *colours_of(struct jm_graph *g, const int64_t *dim)
{
	struct jm_tensor *x = jm_graph_tensor(g, JM_CLASS_INPUT, JM_U8, 4, dim, g->pixels.name);
	struct jm_tensor *y = jm_graph_tensor(g, JM_CLASS_ACT, g->compute, 4, dim, "colours");
	struct jm_node *n = jm_graph_node(g, JM_OP_COLOURS, OPS(x), OPS(y));

	if (n)
		n->attr.colours = g->pixels.scale;
	return y;
}

struct jm_tensor *jm_graph_input(
	struct jm_graph *g, const char *name, enum jm_dtype type, int rank, const int64_t *dim)
{
	if (g->pixels.name && !strcmp(name, g->pixels.name) && rank == 4 && dim[1] == 3)
		return colours_of(g, dim);
	return jm_graph_tensor(g, JM_CLASS_INPUT, type, rank, dim, name);
}

static struct jm_tensor *param(
	struct jm_graph *g, const char *name, enum jm_init init, int rank, const int64_t *dim)
{
	struct jm_tensor *t = jm_graph_tensor(
		g, JM_CLASS_PARAM, rank > 1 ? g->matrix : g->vector, rank, dim, name);

	if (!t)
		return NULL;
	jm_graph_cell(g, t)->init = init;
	jm_freeze_cell(g, jm_graph_cell(g, t));
	return t;
}

struct jm_tensor *jm_graph_vector(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t n)
{
	return param(g, name, init, 1, DIMS(n));
}

struct jm_tensor *jm_graph_matrix(
	struct jm_graph *g, const char *name, enum jm_init init, int64_t rows, int64_t width)
{
	return param(g, name, init, 2, DIMS(rows, width));
}

struct jm_tensor *jm_graph_table(struct jm_graph *g, const char *name, int64_t rows, int64_t width)
{
	struct jm_tensor *t = param(g, name, JM_INIT_NORMAL, 2, DIMS(rows, width));

	if (t)
		jm_graph_cell(g, t)->table = true;
	return t;
}

/* A frozen one in 16 bits is multiplied as it is; others are copied, into padded rows where the
 * device needs them. */
static int64_t row_unit(const struct jm_graph *g, const char *name)
{
	char full[sizeof(((struct jm_tensor *)0)->name)];

	snprintf(full, sizeof(full), "%s%s", g->scope, name);
	if (jm_dtype_bytes(g->compute) == 2 && jm_freezes(&g->freeze, full))
		return JM_ROW_MULTIPLE;
	return g->row_multiple > 1 ? g->row_multiple : 1;
}

struct jm_tensor *jm_graph_vocabulary(struct jm_graph *g, const char *name, bool table,
	enum jm_init init, int64_t rows, int64_t width)
{
	int64_t unit = row_unit(g, name), all = (rows + unit - 1) / unit * unit;
	struct jm_tensor *t = table ? jm_graph_table(g, name, all, width)
				    : jm_graph_matrix(g, name, init, all, width);

	if (t && all > rows)
		jm_graph_cell(g, t)->used = rows;
	return t;
}

struct jm_tensor *jm_graph_ends_block(struct jm_graph *g, struct jm_tensor *t)
{
	if (t)
		jm_graph_cell(g, t)->ends_block = true;
	return t;
}

/* Positions in the type of the table, which is another one where only one of both is frozen. */
static struct jm_tensor *positions_as(
	struct jm_graph *g, const struct jm_tensor *table, struct jm_tensor *positions)
{
	struct jm_tensor *same;

	if (!positions || positions->type == table->type)
		return positions;
	if (table->type == g->compute)
		return jm_layer_weight(g, positions);
	same = jm_graph_tensor(
		g, JM_CLASS_ACT, table->type, positions->rank, positions->dim, "positions");
	jm_graph_node(g, JM_OP_CAST, OPS(positions), OPS(same));
	return same;
}

struct jm_tensor *jm_graph_embed(struct jm_graph *g, struct jm_tensor *ids, struct jm_tensor *table,
	struct jm_tensor *positions)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, ids->rank == 2 && table->rank == 2, "embed", ids) ||
		!jm_layer_fits(g,
			!positions || (positions->dim[0] >= ids->dim[1] &&
					      positions->dim[1] == table->dim[1]),
			"embed", positions))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, g->stream, 3,
		DIMS(ids->dim[0], ids->dim[1], table->dim[1]), "embed");
	positions = positions_as(g, table, positions);
	jm_graph_node(g, JM_OP_EMBED, OPS(ids, table, positions), OPS(y));
	return y;
}

struct jm_tensor *jm_layer_weight(struct jm_graph *g, struct jm_tensor *w)
{
	struct jm_cell *c = jm_graph_cell(g, w);

	if (w->type == g->compute || w->class != JM_CLASS_PARAM)
		return w;
	if (c->copy)
		return c->copy;
	c->copy = jm_graph_tensor(g, JM_CLASS_COPY, g->compute, w->rank, w->dim, "copy");
	if (!c->copy)
		return NULL;
	snprintf(c->copy->name, sizeof(c->copy->name), "%.150s.copy", w->name);
	jm_graph_cell(g, c->copy)->origin = w;
	jm_graph_cell(g, c->copy)->needs_grad = true;
	jm_graph_node(g, JM_OP_CAST, OPS(w), OPS(c->copy));
	return c->copy;
}

struct jm_tensor *jm_graph_linear(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *bias)
{
	struct jm_tensor *y, *copy;

	if (g->err.code ||
		!jm_layer_fits(g, w->rank == 2 && jm_tensor_width(x) == w->dim[1], "linear", x) ||
		!jm_layer_fits(g, !bias || bias->dim[0] == w->dim[0], "linear", bias))
		return NULL;
	copy = jm_layer_weight(g, w);
	if (jm_graph_is_cut(g, w, JM_CUT_ROWS))
		x = jm_graph_gather_rows(g, x);
	y = like_operand(g, g->compute, x, w->dim[0], "linear");
	jm_graph_node(g, JM_OP_LINEAR, OPS(x, copy, bias), OPS(y));
	return jm_graph_is_cut(g, w, JM_CUT_COLUMNS) ? jm_graph_sum_ranks(g, y) : y;
}

static struct jm_tensor *pointwise(
	struct jm_graph *g, enum jm_op op, struct jm_tensor *x, const char *name)
{
	struct jm_tensor *y;

	if (g->err.code)
		return NULL;
	y = like_operand(g, x->type, x, jm_tensor_width(x), name);
	jm_graph_node(g, op, OPS(x), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_gelu(struct jm_graph *g, struct jm_tensor *x)
{
	return pointwise(g, JM_OP_GELU, x, "gelu");
}

struct jm_tensor *jm_graph_gelu_erf(struct jm_graph *g, struct jm_tensor *x)
{
	return pointwise(g, JM_OP_GELU_ERF, x, "gelu");
}

struct jm_tensor *jm_graph_gelu_quick(struct jm_graph *g, struct jm_tensor *x)
{
	return pointwise(g, JM_OP_GELU_QUICK, x, "gelu");
}

struct jm_tensor *jm_graph_relu(struct jm_graph *g, struct jm_tensor *x)
{
	return pointwise(g, JM_OP_RELU, x, "relu");
}

struct jm_tensor *jm_graph_silu(struct jm_graph *g, struct jm_tensor *x)
{
	return pointwise(g, JM_OP_SILU, x, "silu");
}

static struct jm_tensor *gated(
	struct jm_graph *g, enum jm_op op, struct jm_tensor *x, const char *name)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, jm_tensor_width(x) % 2 == 0, name, x))
		return NULL;
	y = like_operand(g, x->type, x, jm_tensor_width(x) / 2, name);
	jm_graph_node(g, op, OPS(x), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_swiglu(struct jm_graph *g, struct jm_tensor *x)
{
	return gated(g, JM_OP_SWIGLU, x, "swiglu");
}

struct jm_tensor *jm_graph_geglu(struct jm_graph *g, struct jm_tensor *x)
{
	return gated(g, JM_OP_GEGLU, x, "geglu");
}

/* The input with the step number, for all nodes that use random numbers. */
static struct jm_tensor *random_now(struct jm_graph *g)
{
	struct jm_tensor *now = jm_graph_find(g, "random.now");
	char scope[sizeof(g->scope)];

	if (now)
		return now;
	memcpy(scope, g->scope, sizeof(scope));
	g->scope[0] = 0;
	now = jm_graph_input(g, "random.now", JM_I32, 1, DIMS(1));
	memcpy(g->scope, scope, sizeof(scope));
	return now;
}

struct jm_tensor *jm_graph_dropout(struct jm_graph *g, struct jm_tensor *x, double p)
{
	struct jm_tensor *y, *now;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, p >= 0 && p < 1, "dropout", x))
		return NULL;
	if (p == 0)
		return x;
	now = random_now(g);
	y = like_operand(g, x->type, x, jm_tensor_width(x), "dropout");
	n = jm_graph_node(g, JM_OP_DROPOUT, OPS(x, now), OPS(y));
	if (!n)
		return NULL;
	n->attr.dropout.p = p;
	/* each node has its own random numbers, the same on any number of ranks */
	n->attr.dropout.seed = (uint64_t)(n->id - g->n_sums);
	return y;
}

struct jm_tensor *jm_graph_layernorm(struct jm_graph *g, struct jm_tensor *x,
	struct jm_tensor *gamma, struct jm_tensor *beta, double eps)
{
	struct jm_tensor *y, *mean, *rstd;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g, gamma->dim[0] == jm_tensor_width(x), "layernorm", gamma) ||
		!jm_layer_fits(g, !beta || beta->dim[0] == jm_tensor_width(x), "layernorm", beta))
		return NULL;
	y = like_operand(g, g->compute, x, jm_tensor_width(x), "layernorm");
	mean = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, x->rank - 1, x->dim, "mean");
	rstd = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, x->rank - 1, x->dim, "rstd");
	n = jm_graph_node(g, JM_OP_LAYERNORM, OPS(x, gamma, beta), OPS(y, mean, rstd));
	jm_graph_sums_gradient(g, gamma);
	jm_graph_sums_gradient(g, beta);
	if (n)
		n->attr.norm.eps = eps;
	return y;
}

struct jm_tensor *jm_graph_rmsnorm(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *gamma, double eps)
{
	struct jm_tensor *y, *rstd;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, gamma->dim[0] == jm_tensor_width(x), "rmsnorm", gamma))
		return NULL;
	y = like_operand(g, g->compute, x, jm_tensor_width(x), "rmsnorm");
	rstd = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, x->rank - 1, x->dim, "rstd");
	n = jm_graph_node(g, JM_OP_RMSNORM, OPS(x, gamma), OPS(y, rstd));
	jm_graph_sums_gradient(g, gamma);
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
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, struct jm_rotary rotary)
{
	struct jm_tensor *y;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g,
				   heads_good(qkv, heads, kv_heads) &&
					   qkv->dim[2] / (heads + 2 * kv_heads) % 2 == 0,
				   "rope", qkv))
		return NULL;
	y = like_operand(g, qkv->type, qkv, jm_tensor_width(qkv), "rope");
	n = jm_graph_node(g, JM_OP_ROPE, OPS(qkv), OPS(y));
	if (!n)
		return NULL;
	n->attr.rope.heads = heads;
	n->attr.rope.kv_heads = kv_heads;
	n->attr.rope.rotary = rotary;
	return y;
}

struct jm_tensor *jm_graph_attention(
	struct jm_graph *g, struct jm_tensor *qkv, int heads, int kv_heads, bool causal)
{
	struct jm_tensor *y, *lse;
	struct jm_node *n;
	int64_t head;

	if (g->err.code || !jm_layer_fits(g, heads_good(qkv, heads, kv_heads), "attention", qkv))
		return NULL;
	head = qkv->dim[2] / (heads + 2 * kv_heads);
	y = like_operand(g, qkv->type, qkv, head * heads, "attention");
	lse = jm_graph_tensor(
		g, JM_CLASS_ACT, g->vector, 3, DIMS(qkv->dim[0], heads, qkv->dim[1]), "lse");
	n = jm_graph_node(g, JM_OP_ATTENTION, OPS(qkv, qkv, qkv), OPS(y, lse));
	if (!n)
		return NULL;
	jm_attention_pack(n, heads, kv_heads);
	n->attr.attention.causal = causal;
	n->attr.attention.scale = 1 / sqrt((double)head);
	jm_node_cost(n); /* again, because the mask halves the FLOPs */
	return y;
}

/* Of [B,S,heads depth]. */
static struct jm_view view_of_heads(const struct jm_tensor *t, int64_t depth)
{
	return (struct jm_view){0, t->dim[1] * t->dim[2], t->dim[2], depth};
}

struct jm_tensor *jm_graph_attention_apart(struct jm_graph *g, struct jm_tensor *q,
	struct jm_tensor *k, struct jm_tensor *v, int heads)
{
	int64_t depth;
	struct jm_tensor *y, *lse;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g, q->rank == 3 && q->dim[2] % heads == 0, "attention", q) ||
		!jm_layer_fits(g, k->rank == 3 && k->dim[0] == q->dim[0] && k->dim[2] == q->dim[2],
			"attention", k) ||
		!jm_layer_fits(g,
			v->rank == 3 && jm_tensor_count(v) == jm_tensor_count(k) &&
				v->dim[1] == k->dim[1],
			"attention", v))
		return NULL;
	depth = q->dim[2] / heads;
	y = like_operand(g, q->type, q, q->dim[2], "attention");
	lse = jm_graph_tensor(
		g, JM_CLASS_ACT, g->vector, 3, DIMS(q->dim[0], heads, q->dim[1]), "lse");
	n = jm_graph_node(g, JM_OP_ATTENTION, OPS(q, k, v), OPS(y, lse));
	if (!n)
		return NULL;
	n->attr.attention.heads = n->attr.attention.kv_heads = heads;
	n->attr.attention.depth = depth;
	n->attr.attention.keys = k->dim[1];
	n->attr.attention.scale = 1 / sqrt((double)depth);
	n->attr.attention.q = view_of_heads(q, depth);
	n->attr.attention.k = n->attr.attention.v = view_of_heads(k, depth);
	jm_node_cost(n); /* again, because the number of keys is known only now */
	return y;
}

struct jm_tensor *jm_graph_put_rows(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *rows, struct jm_tensor *at)
{
	struct jm_tensor *y;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g, rows->rank == 3 && rows->dim[1] <= x->dim[1], "put-rows", rows) ||
		!jm_layer_fits(g, x->rank == 3 && x->dim[0] == rows->dim[0], "put-rows", x) ||
		!jm_layer_fits(g, x->dim[2] == rows->dim[2], "put-rows", x) ||
		!jm_layer_fits(g, at->rank == 1 && at->dim[0] == x->dim[0], "put-rows", at))
		return NULL;
	y = like_operand(g, x->type, x, jm_tensor_width(x), "put-rows");
	n = jm_graph_node(g, JM_OP_PUT_ROWS, OPS(x, rows, at), OPS(y));
	if (n)
		n->attr.put.places = rows->dim[1];
	return y;
}

struct jm_tensor *jm_graph_behind_first(struct jm_graph *g, struct jm_tensor *x)
{
	struct jm_tensor *first, *others, *y;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, x->rank == 3 && x->dim[1] > 1, "behind-first", x))
		return NULL;
	first = jm_graph_tensor(
		g, JM_CLASS_ACT, x->type, 3, DIMS(x->dim[0], 1, x->dim[2]), "first");
	others = jm_graph_tensor(
		g, JM_CLASS_ACT, x->type, 3, DIMS(x->dim[0], x->dim[1] - 1, x->dim[2]), "others");
	n = jm_graph_node(g, JM_OP_SPLIT, OPS(x), OPS(first, others));
	if (!n)
		return NULL;
	n->attr.concat.axis = 1;
	n->attr.concat.size[0] = 1;
	n->attr.concat.size[1] = x->dim[1] - 1;
	if (x->type == g->compute)
		return others;
	y = like_operand(g, g->compute, others, jm_tensor_width(others), "narrow");
	jm_graph_node(g, JM_OP_CAST, OPS(others), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_add(struct jm_graph *g, struct jm_tensor *a, struct jm_tensor *b)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, jm_tensor_count(a) == jm_tensor_count(b), "add", b))
		return NULL;
	y = like_operand(g, a->type, a, jm_tensor_width(a), "add");
	jm_graph_node(g, JM_OP_ADD, OPS(a, b), OPS(y));
	return y;
}

/* True if part i differs from the first one at most along the axis, and is no earlier part. */
static bool is_part(struct jm_tensor *const *part, int i, int axis)
{
	const struct jm_tensor *t = part[i], *first = part[0];

	if (t->rank != first->rank || t->type != first->type)
		return false;
	for (int dim = 0; dim < t->rank; dim++)
		if (dim != axis && t->dim[dim] != first->dim[dim])
			return false;
	for (int k = 0; k < i; k++)
		if (part[k] == t)
			return false;
	return true;
}

struct jm_tensor *jm_graph_concat(
	struct jm_graph *g, int n, struct jm_tensor *const *part, int axis)
{
	struct jm_tensor *in[JM_NODE_IN] = {0}, *y;
	int64_t dim[JM_DIMS], all = 0;
	char name[32];
	struct jm_node *node;

	for (int i = 0; i < n; i++) {
		if (g->err.code || !part[i] ||
			!jm_layer_fits(g, n > 1 && n <= JM_PARTS && is_part(part, i, axis),
				"concat", part[i]))
			return NULL;
		in[i] = part[i];
		all += part[i]->dim[axis];
	}
	memcpy(dim, part[0]->dim, sizeof(dim));
	dim[axis] = all;
	snprintf(name, sizeof(name), "concat.%d", g->n_nodes);
	y = jm_graph_tensor(g, JM_CLASS_ACT, part[0]->type, part[0]->rank, dim, name);
	node = jm_graph_node(g, JM_OP_CONCAT, in, OPS(y));
	if (!node)
		return NULL;
	node->attr.concat.axis = axis;
	for (int i = 0; i < n; i++)
		node->attr.concat.size[i] = part[i]->dim[axis];
	return y;
}

struct jm_tensor *jm_graph_mse(struct jm_graph *g, struct jm_tensor *y, struct jm_tensor *target)
{
	struct jm_tensor *loss, *dy;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g, jm_tensor_count(y) == jm_tensor_count(target), "mse", target))
		return NULL;
	loss = jm_graph_tensor(g, JM_CLASS_SCALAR, g->vector, 1, DIMS(1), "loss");
	dy = g->evaluate ? NULL : like_operand(g, y->type, y, jm_tensor_width(y), "dy");
	n = jm_graph_node(g, JM_OP_MSE, OPS(y, target, NULL), OPS(loss, dy));
	if (n)
		n->attr.xent.scale = n->attr.xent.weight = 1;
	return loss;
}

static struct jm_node *xent_node(struct jm_graph *g, struct jm_tensor *loss,
	struct jm_tensor *logits, struct jm_tensor *target)
{
	struct jm_tensor *dlogits = g->evaluate ? NULL
						: like_operand(g, logits->type, logits,
							  jm_tensor_width(logits), "dlogits");
	struct jm_node *n =
		jm_graph_node(g, JM_OP_SOFTMAX_XENT, OPS(logits, target, NULL), OPS(loss, dlogits));

	if (n)
		n->attr.xent.scale = n->attr.xent.weight = 1;
	return n;
}

struct jm_tensor *jm_graph_softmax_xent(
	struct jm_graph *g, struct jm_tensor *logits, struct jm_tensor *target)
{
	struct jm_tensor *loss;

	if (g->err.code || !jm_layer_fits(g, jm_tensor_count(target) == jm_tensor_rows(logits),
				   "softmax-xent", target))
		return NULL;
	loss = jm_graph_tensor(g, JM_CLASS_SCALAR, g->vector, 1, DIMS(1), "loss");
	xent_node(g, loss, logits, target);
	if (g->wants_top1)
		jm_graph_node(g, JM_OP_TOP1, OPS(logits, target),
			OPS(jm_graph_tensor(g, JM_CLASS_SCALAR, g->vector, 1, DIMS(1), "top1")));
	return loss;
}

struct jm_tensor *jm_graph_softmax_xent_add(struct jm_graph *g, struct jm_tensor *loss,
	double weight, struct jm_tensor *logits, struct jm_tensor *target)
{
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, jm_tensor_count(target) == jm_tensor_rows(logits),
				   "softmax-xent", target))
		return NULL;
	n = xent_node(g, loss, logits, target);
	if (!n)
		return NULL;
	n->accumulate = 1;
	n->attr.xent.weight = weight;
	return loss;
}

struct jm_tensor *jm_graph_ignore_targets(struct jm_graph *g, struct jm_tensor *loss)
{
	for (int i = 0; loss && i < g->n_nodes; i++)
		if (g->node[i]->out[0] == loss && g->node[i]->op == JM_OP_SOFTMAX_XENT)
			g->node[i]->attr.xent.ignores = true;
	return loss;
}

struct jm_tensor *jm_graph_classify(
	struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *target)
{
	struct jm_tensor *logits, *loss;
	struct jm_node *linear;

	if (g->err.code)
		return NULL;
	logits = jm_graph_linear(g, x, w, NULL);
	linear = logits ? jm_graph_cell(g, logits)->producer : NULL;
	loss = jm_graph_softmax_xent(g, logits, target);
	if (!linear || !loss)
		return NULL;
	linear->attr.linear.used = jm_graph_cell(g, w)->used;
	jm_node_cost(linear);
	jm_graph_cell(g, loss)->producer->attr.xent.classes = jm_graph_cell(g, w)->used;
	return loss;
}
