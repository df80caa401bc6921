/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbouring nodes that the engine offers together, for the comparison of backends with ref. */
#include "engine/graph/layer.h"
#include "op_case.h"

#include <math.h>
#include <string.h>

/* The last parameter, unless noted: the tensor between the two nodes has another reader, too. */
static struct jm_node *pair(struct kit *k, struct jm_node *second, struct jm_tensor *between,
	struct jm_tensor *result, bool keep)
{
	if (!second) {
		k->spare = (struct jm_node){0};
		return &k->spare;
	}
	kit_read(k, result);
	if (keep)
		kit_read(k, between);
	return second;
}

static void linear_act(
	struct kit *k, const struct types *t, const struct shape *d, bool keep, enum jm_op op)
{
	int64_t n = op == JM_OP_SWIGLU ? 2 * d->n : d->n;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(n, d->c));
	struct jm_tensor *bias = kit_normal(k, t->v, 0, 1, 1, DIMS(n));
	struct jm_tensor *y = kit_out(k, t->c, 3, DIMS(d->b, d->s, n), NULL);
	struct jm_tensor *z = kit_out(k, t->c, 3, DIMS(d->b, d->s, d->n), NULL);

	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w, bias), &y);
	pair(k, jm_graph_node(k->graph, op, &y, &z), y, z, keep);
}

static void linear_gelu(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	linear_act(k, t, d, keep, JM_OP_GELU);
}

static void linear_gelu_erf(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	linear_act(k, t, d, keep, JM_OP_GELU_ERF);
}

static void linear_gelu_erf_narrow(
	struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const struct shape many = backend_many_rows(d);

	linear_act(k, t, &many, keep, JM_OP_GELU_ERF);
}

/* The last parameter: the gradient of gelu-erf reads the sum, too. What is added is small, so that
 * the rounding of y in 16 bits remains small beside the sum. */
static void linear_add_gelu_erf(
	struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const struct shape many = backend_many_rows(d);
	const int64_t dim[] = {many.b, many.s, many.n};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(many.b, many.s, many.c));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(many.n, many.c));
	struct jm_tensor *bias = kit_normal(k, t->v, 0, 1, 1, DIMS(many.n));
	struct jm_tensor *other = kit_normal(k, t->c, 0, 0.2, 3, dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, dim, NULL);
	struct jm_tensor *sum = kit_out(k, t->c, 3, dim, NULL);
	struct jm_tensor *z = kit_out(k, t->c, 3, dim, NULL);

	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w, bias), &y);
	jm_graph_node(k->graph, JM_OP_ADD, d->s % 2 ? OPS(y, other) : OPS(other, y), &sum);
	pair(k, jm_graph_node(k->graph, JM_OP_GELU_ERF, &sum, &z), sum, z, keep);
}

/* Operands of two narrow layers with gelu-erf between, in f32 of many rows; some first layers have
 * no bias. */
struct hidden_layer {
	int64_t rows, from, width, to;
	struct jm_tensor *x, *in, *in_bias, *out;
};

static struct hidden_layer hidden_of(struct kit *k, const struct types *t, const struct shape *d)
{
	const struct shape many = t->c == JM_F32 ? backend_many_rows(d) : *d;
	struct hidden_layer h = {.rows = many.b * many.s,
		.from = d->s % 3 == 0	? 16
			: d->s % 3 == 1 ? 25
					: 1 + d->c % 32,
		.width = d->s % 3 ? 1 + d->n % 60 : 64,
		.to = 1 + d->n % (d->s % 3 ? 8 : 4)};

	h.x = kit_normal(k, t->c, 0, 1, 2, DIMS(h.rows, h.from));
	h.in = kit_normal(k, t->c, 0, 0.3, 2, DIMS(h.width, h.from));
	h.in_bias = d->s % 2 ? kit_normal(k, t->v, 0, 1, 1, DIMS(h.width)) : NULL;
	h.out = kit_normal(k, t->c, 0, 0.3, 2, DIMS(h.to, h.width));
	return h;
}

/* keep: what is between them has another reader. */
static void hidden(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const struct hidden_layer h = hidden_of(k, t, d);
	struct jm_tensor *bias = kit_normal(k, t->v, 0, 1, 1, DIMS(h.to));
	struct jm_tensor *open = kit_out(k, t->c, 2, DIMS(h.rows, h.width), NULL);
	struct jm_tensor *y = kit_out(k, t->c, 2, DIMS(h.rows, h.width), NULL);
	struct jm_tensor *z = kit_out(k, t->c, 2, DIMS(h.rows, h.to), NULL);

	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(h.x, h.in, h.in_bias), &open);
	jm_graph_node(k->graph, JM_OP_GELU_ERF, &open, &y);
	pair(k, jm_graph_node(k->graph, JM_OP_LINEAR, OPS(y, h.out, bias), &z), y, z, keep);
}

/* Their gradients, with what is between computed again, and of some an activation's before them.
 * add: to all results. */
static void hidden_grad(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const struct hidden_layer h = hidden_of(k, t, d);
	struct jm_tensor *dz = kit_normal(k, t->c, 0, 1, 2, DIMS(h.rows, h.to));
	struct jm_tensor *wide[4]; /* before and after gelu, and their gradients */
	struct jm_tensor *d_out = backend_gradient(k, t->v, add, 2, DIMS(h.to, h.width));
	struct jm_tensor *d_out_bias = backend_result(k, t->v, add, 1, DIMS(h.to));
	struct jm_tensor *d_in = backend_gradient(k, t->v, add, 2, DIMS(h.width, h.from));
	struct jm_tensor *d_in_bias = backend_result(k, t->v, add, 1, DIMS(h.width));
	struct jm_tensor *dx = backend_result(k, t->c, add, 2, DIMS(h.rows, h.from)), *between = dx;
	struct jm_node *first, *act, *wgrad[2], *last;

	for (int i = 0; i < 4; i++)
		wide[i] = kit_out(k, t->c, 2, DIMS(h.rows, h.width), NULL);
	first = jm_graph_node(k->graph, JM_OP_LINEAR, OPS(h.x, h.in, h.in_bias), &wide[0]);
	act = jm_graph_node(k->graph, JM_OP_GELU_ERF, &wide[0], &wide[1]);
	wgrad[0] = jm_graph_node(
		k->graph, JM_OP_LINEAR_WGRAD, OPS(dz, wide[1]), OPS(d_out, d_out_bias));
	jm_graph_node(k->graph, JM_OP_LINEAR_DGRAD, OPS(dz, h.out), &wide[2]);
	jm_graph_node(k->graph, JM_OP_GELU_ERF_GRAD, OPS(wide[2], wide[0]), &wide[3]);
	wgrad[1] = jm_graph_node(
		k->graph, JM_OP_LINEAR_WGRAD, OPS(wide[3], h.x), OPS(d_in, d_in_bias));
	if (d->s % 2)
		between = kit_out(k, t->c, 2, DIMS(h.rows, h.from), NULL);
	last = jm_graph_node(k->graph, JM_OP_LINEAR_DGRAD, OPS(wide[3], h.in), &between);
	if (d->s % 2)
		last = jm_graph_node(k->graph, JM_OP_GELU_ERF_GRAD, OPS(between, h.x), &dx);
	if (!first || !act || !wgrad[0] || !wgrad[1] || !last)
		return; /* the graph holds the error */
	first->again = act->again = true;
	wgrad[0]->accumulate = wgrad[1]->accumulate = add ? JM_ADD_OUT | JM_ADD_WGRAD_DBIAS : 0;
	last->accumulate = add ? JM_ADD_OUT : 0;
	kit_read(k, d_out);
	kit_read(k, d_out_bias);
	kit_read(k, d_in);
	kit_read(k, d_in_bias);
	kit_read(k, dx);
}

static void linear_silu(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	linear_act(k, t, d, keep, JM_OP_SILU);
}

static void linear_swiglu(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	linear_act(k, t, d, keep, JM_OP_SWIGLU);
}

/* A number of classes that is no multiple of a vector: their weights may be copied into a layout
 * with padding. */
static void classifier_of(
	struct kit *k, const struct types *t, const struct shape *d, bool keep, int64_t classes)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 0.1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *w = kit_param(k, 2, DIMS(classes, d->c));
	struct jm_tensor *target = kit_ids(k, classes, 2, DIMS(d->b, d->s));
	struct jm_tensor *y = jm_graph_linear(k->graph, x, w, NULL);
	struct jm_tensor *copy = jm_graph_cell(k->graph, w)->copy;
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dlogits = kit_out(k, t->c, 3, y->dim, NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 3, x->dim, NULL);
	struct jm_tensor *dw = kit_out(k, t->v, 2, w->dim, NULL);

	backend_weigh(
		backend_node(k, JM_OP_SOFTMAX_XENT, OPS(y, target, NULL), OPS(loss, dlogits), 0), 1,
		1);
	backend_node(k, JM_OP_LINEAR_DGRAD, OPS(dlogits, copy ? copy : w), &dx, 0);
	backend_node(k, JM_OP_LINEAR_WGRAD, OPS(dlogits, x), OPS(dw, NULL), 0);
	if (keep)
		kit_read(k, y);
}

static void classifier(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	classifier_of(k, t, d, keep, 101);
}

/* Rows of logits that a backend may divide among blocks of threads; few rows, because each is
 * long. */
static void large_classifier(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const struct shape few = {1, 2, 8, d->n, d->heads, d->kv_heads};

	classifier_of(k, t, &few, keep, keep ? 20001 : 60003);
}

/* keep: the product's gradient has another reader, too. */
static void dgrad_act(
	struct kit *k, const struct types *t, const struct shape *d, bool keep, enum jm_op grad)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(d->n, d->c));
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *between = kit_out(k, t->c, 3, x->dim, NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 3, x->dim, NULL);

	jm_graph_node(k->graph, JM_OP_LINEAR_DGRAD, OPS(dy, w), &between);
	pair(k, jm_graph_node(k->graph, grad, OPS(between, x), &dx), between, dx, keep);
}

static void dgrad_gelu_grad(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	dgrad_act(k, t, d, keep, JM_OP_GELU_GRAD);
}

static void dgrad_gelu_erf_grad(
	struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const struct shape many = backend_many_rows(d);

	dgrad_act(k, t, &many, keep, JM_OP_GELU_ERF_GRAD);
}

/* The gradient of a linear whose result has the gradient dy, after the nodes that make dy; add: to
 * the results. */
static void wgrad(
	struct kit *k, const struct types *t, const struct shape *d, struct jm_tensor *dy, bool add)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *dw = backend_gradient(k, t->a, add, 2, DIMS(d->c, d->n));
	struct jm_tensor *dbias = backend_result(k, t->v, add, 1, DIMS(d->c));

	backend_node(k, JM_OP_LINEAR_WGRAD, OPS(dy, x), OPS(dw, dbias),
		add ? JM_ADD_OUT | JM_ADD_WGRAD_DBIAS : 0);
}

/* Widths as those of attention-wide (op_case_attention.c), and one for which kernels in tiles are
 * rare. */
static void attention_grad_rope_grad(
	struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	static const struct shape shapes[] = {
		{.b = 2, .s = 181, .c = 64, .heads = 4, .kv_heads = 2},
		{.b = 1, .s = 130, .c = 128, .heads = 2, .kv_heads = 1},
		{.b = 1, .s = 97, .c = 256, .heads = 2, .kv_heads = 1},
		{.b = 2, .s = 33, .c = 16, .heads = 2, .kv_heads = 2}};
	const struct shape *s = &shapes[t->c == JM_BF16 ? d->s % 4 : 3];
	int64_t width = s->c * (s->heads + 2 * s->kv_heads);
	struct jm_tensor *qkv = kit_normal(k, t->c, 0, 1, 3, DIMS(s->b, s->s, width));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(s->b, s->s, s->c * s->heads));
	struct jm_tensor *y = kit_out(k, t->c, 3, dy->dim, NULL);
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(s->b, s->heads, s->s), NULL);
	struct jm_tensor *between = kit_out(k, t->c, 3, qkv->dim, NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 3, qkv->dim, NULL);
	struct jm_node *fwd = jm_graph_node(
			       k->graph, JM_OP_ATTENTION, OPS(qkv, qkv, qkv), OPS(y, lse)),
		       *bwd = jm_graph_node(k->graph, JM_OP_ATTENTION_GRAD,
			       OPS(dy, qkv, qkv, qkv, y, lse), OPS(between, between, between));
	struct jm_node *turn = pair(
		k, jm_graph_node(k->graph, JM_OP_ROPE_GRAD, OPS(between), &dx), between, dx, keep);

	if (!fwd || !bwd)
		return; /* the graph holds the error */
	jm_attention_pack(fwd, s->heads, s->kv_heads);
	fwd->attr.attention.causal = d->c % 2;
	fwd->attr.attention.scale = 1 / sqrt((double)s->c);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
	turn->attr.rope.heads = s->heads;
	turn->attr.rope.kv_heads = s->kv_heads;
	turn->attr.rope.rotary.theta = 10000;
}

static void add_layernorm(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *a = kit_normal(k, t->a, 0, 2, 3, dim);
	struct jm_tensor *b = kit_normal(k, t->c, 0, 1, 3, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	struct jm_tensor *sum = kit_out(k, t->a, 3, dim, NULL), *y = kit_out(k, t->c, 3, dim, NULL);
	struct jm_tensor *mean = kit_out(k, t->v, 2, dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, dim, NULL);

	jm_graph_node(k->graph, JM_OP_ADD, OPS(a, b), &sum);
	backend_node(k, JM_OP_LAYERNORM, OPS(sum, gamma), OPS(y, mean, rstd), 0)->attr.norm.eps =
		1e-5;
	if (keep)
		kit_read(k, sum);
}

static void add_rmsnorm(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *a = kit_normal(k, t->a, 0, 2, 3, dim);
	struct jm_tensor *b = kit_normal(k, t->c, 0, 1, 3, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	struct jm_tensor *sum = kit_out(k, t->a, 3, dim, NULL), *y = kit_out(k, t->c, 3, dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, dim, NULL);

	jm_graph_node(k->graph, JM_OP_ADD, OPS(a, b), &sum);
	backend_node(k, JM_OP_RMSNORM, OPS(sum, gamma), OPS(y, rstd), 0)->attr.norm.eps = 1e-5;
	if (keep)
		kit_read(k, sum);
}

enum jm_op backend_norm_grad(struct kit *k, const struct types *t, const struct shape *d,
	bool centred, struct jm_tensor **ret_in)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	int n = 0;

	ret_in[n++] = kit_normal(k, t->c, 0, 1, 3, dim);
	ret_in[n++] = kit_normal(k, t->a, 0.5, 2, 3, dim);
	ret_in[n++] = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	if (centred)
		ret_in[n++] = kit_normal(k, t->v, 0.5, 0.1, 2, dim);
	ret_in[n] = kit_normal(k, t->v, 0.6, 0.1, 2, dim);
	return centred ? JM_OP_LAYERNORM_GRAD : JM_OP_RMSNORM_GRAD;
}

/* The flag: dx is accumulated and stored. */
static void grad_cast(
	struct kit *k, const struct types *t, const struct shape *d, bool keep, bool centred)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *in[JM_NODE_IN];
	enum jm_op op = backend_norm_grad(k, t, d, centred, in);
	struct jm_tensor *dx = backend_result(k, t->a, keep, 3, dim);
	struct jm_tensor *dgamma = kit_out(k, t->v, 1, DIMS(d->c), NULL);
	struct jm_tensor *dbeta = centred ? kit_out(k, t->v, 1, DIMS(d->c), NULL) : NULL;
	struct jm_tensor *copy = kit_out(k, t->c, 3, dim, NULL);
	struct jm_node *n = jm_graph_node(k->graph, op, in, OPS(dx, dgamma, dbeta));

	if (!n)
		return; /* the graph holds the error */
	n->attr.norm.eps = 1e-5;
	n->accumulate = keep;
	pair(k, jm_graph_node(k->graph, JM_OP_CAST, &dx, &copy), dx, copy, keep);
	kit_read(k, dgamma);
	if (centred)
		kit_read(k, dbeta);
}

static void layernorm_grad_cast(
	struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	grad_cast(k, t, d, keep, true);
}

static void rmsnorm_grad_cast(
	struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	grad_cast(k, t, d, keep, false);
}

/* x and dx are in the compute type. The flag: all results are accumulated; without it dx may
 * replace dy, which a node computes. */
static void layernorm_grad_wgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const struct types narrow = {t->name, t->c, t->c, t->v};
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *in[JM_NODE_IN];
	enum jm_op op = backend_norm_grad(k, &narrow, d, true, in);
	struct jm_tensor *b = kit_normal(k, t->c, 0.5, 1, 3, dim);
	struct jm_tensor *dy = kit_out(k, t->c, 3, dim, NULL);
	struct jm_tensor *dx = backend_result(k, t->c, add, 3, dim);
	struct jm_tensor *dgamma = backend_gradient(k, t->v, add, 1, DIMS(d->c));
	struct jm_tensor *dbeta = backend_gradient(k, t->v, add, 1, DIMS(d->c));

	jm_graph_node(k->graph, JM_OP_ADD, OPS(in[0], b), &dy);
	in[0] = dy;
	backend_node(k, op, in, OPS(dx, dgamma, dbeta), add ? 7 : 0)->attr.norm.eps = 1e-5;
	wgrad(k, t, d, dx, add);
}

static void layernorm_grad_wgrad_long(
	struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const struct shape rows = backend_long_rows(d);

	layernorm_grad_wgrad(k, t, &rows, add);
}

/* A sum, which a node computes, so that a result may replace it. */
static struct jm_tensor *made(struct kit *k, enum jm_dtype type, double spread, const int64_t *dim)
{
	struct jm_tensor *a = kit_normal(k, type, 0.5, spread, 3, dim);
	struct jm_tensor *b = kit_normal(k, type, 0, spread, 3, dim);
	struct jm_tensor *sum = kit_out(k, type, 3, dim, NULL);

	jm_graph_node(k->graph, JM_OP_ADD, OPS(a, b), &sum);
	return sum;
}

/* dx may replace x. add: to both results of the linear's gradient. again: geglu is computed again
 * for a later reader, and may replace dy. */
static void geglu_sums(
	struct kit *k, const struct types *t, const struct shape *d, bool add, bool again)
{
	const int64_t half = d->s % 3 ? 8 * (1 + d->c / 16) : d->c / 2 + 1;
	const struct shape own = {.b = d->b, .s = d->s, .c = 2 * half, .n = d->n};
	struct jm_tensor *dy = made(k, t->c, 1, DIMS(d->b, d->s, half));
	struct jm_tensor *x = made(k, t->c, 1.5, DIMS(d->b, d->s, 2 * half));
	struct jm_tensor *dx = kit_out(k, t->c, 3, x->dim, NULL);
	struct jm_tensor *y = again ? kit_out(k, t->c, 3, dy->dim, NULL) : NULL;

	backend_node(k, JM_OP_GEGLU_GRAD, OPS(dy, x), &dx, 0);
	if (again)
		backend_node(k, JM_OP_GEGLU, &x, &y, 0)->again = true;
	wgrad(k, t, &own, dx, add);
}

static void geglu_grad_wgrad(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	geglu_sums(k, t, d, add, false);
}

static void geglu_again_wgrad(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	geglu_sums(k, t, d, add, true);
}

/* The gradient of an activation, which may replace x, and itself again for a later reader, which
 * may replace dy. add: to the gradient. */
static void act_again(
	struct kit *k, const struct types *t, const struct shape *d, bool add, enum jm_op op)
{
	int64_t n = op == JM_OP_GELU_ERF ? d->c : 2 * d->c;
	struct jm_tensor *x = made(k, t->c, 1.5, DIMS(d->b, d->s, n));
	struct jm_tensor *dy = made(k, t->c, 1, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = kit_out(k, t->c, 3, dy->dim, NULL);
	struct jm_tensor *dx = backend_result(k, t->c, add, 3, x->dim);

	backend_node(k, jm_group_gradient(op), OPS(dy, x), &dx, add);
	backend_node(k, op, &x, &y, 0)->again = true;
}

static void gelu_erf_again(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	act_again(k, t, d, add, JM_OP_GELU_ERF);
}

static void swiglu_again(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	act_again(k, t, d, add, JM_OP_SWIGLU);
}

static void geglu_again(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	act_again(k, t, d, add, JM_OP_GEGLU);
}

/* Several blocks, which threads share. The flag: gradients are clipped. */
static void norm_update(
	struct kit *k, const struct types *t, const struct shape *d, bool clip, enum jm_op op)
{
	int64_t n = 3000 * d->s + 5;
	struct jm_tensor *g = kit_normal(k, t->v, 0, 1, 1, &n);
	struct jm_tensor *size = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *now = kit_normal(k, t->v, 0.1, 0, 1, DIMS(op == JM_OP_SGD ? 1 : 3));
	struct jm_tensor *p = backend_result(k, t->v, true, 1, &n);
	struct jm_tensor *m = backend_result(k, t->v, true, 1, &n);
	struct jm_tensor *v = op == JM_OP_SGD
				      ? NULL
				      : kit_out(k, t->v, 1, &n, kit_normal(k, t->v, 8, 0.5, 1, &n));
	struct jm_node *u;

	jm_graph_node(k->graph, JM_OP_NORM, OPS(g), &size);
	u = pair(k, jm_graph_node(k->graph, op, OPS(g, size, now), OPS(p, m, v)), size, p, true);
	kit_read(k, m);
	if (op == JM_OP_SGD) {
		u->attr.sgd.momentum = 0.9;
		u->attr.sgd.weight_decay = 0.3;
		u->attr.sgd.clip = clip ? 20 : 0;
		u->attr.sgd.n_decay = n / 2 + 1;
		return;
	}
	kit_read(k, v);
	u->attr.adamw.beta1 = 0.9;
	u->attr.adamw.beta2 = 0.95;
	u->attr.adamw.eps = 1e-6;
	u->attr.adamw.weight_decay = 0.3;
	u->attr.adamw.clip = clip ? 20 : 0;
	u->attr.adamw.n_decay = n / 2 + 1;
}

static void norm_adamw(struct kit *k, const struct types *t, const struct shape *d, bool clip)
{
	norm_update(k, t, d, clip, JM_OP_ADAMW);
}

static void norm_adam(struct kit *k, const struct types *t, const struct shape *d, bool clip)
{
	norm_update(k, t, d, clip, JM_OP_ADAM);
}

static void norm_sgd(struct kit *k, const struct types *t, const struct shape *d, bool clip)
{
	norm_update(k, t, d, clip, JM_OP_SGD);
}

const struct backend_case backend_group_cases[] = {
	{"linear + gelu", linear_gelu},
	{"linear + gelu-erf", linear_gelu_erf},
	{"linear + gelu-erf, narrow", linear_gelu_erf_narrow},
	{"linear + add + gelu-erf", linear_add_gelu_erf},
	{"hidden layer", hidden},
	{"hidden layer's gradients", hidden_grad},
	{"linear + silu", linear_silu},
	{"linear + swiglu", linear_swiglu},
	{"linear-dgrad + gelu-grad", dgrad_gelu_grad},
	{"linear-dgrad + gelu-erf-grad", dgrad_gelu_erf_grad},
	{"attention-grad + rope-grad", attention_grad_rope_grad},
	{"linear, 101 classes", classifier},
	{"linear, 20001 or 60003 classes", large_classifier},
	{"add + layernorm", add_layernorm},
	{"add + rmsnorm", add_rmsnorm},
	{"layernorm-grad + cast", layernorm_grad_cast},
	{"rmsnorm-grad + cast", rmsnorm_grad_cast},
	{"layernorm-grad + linear-wgrad", layernorm_grad_wgrad},
	{"layernorm-grad + linear-wgrad, long rows", layernorm_grad_wgrad_long},
	{"geglu-grad + linear-wgrad", geglu_grad_wgrad},
	{"geglu-grad + geglu + linear-wgrad", geglu_again_wgrad},
	{"gelu-erf-grad + gelu-erf", gelu_erf_again},
	{"swiglu-grad + swiglu", swiglu_again},
	{"geglu-grad + geglu", geglu_again},
	{"norm + adamw", norm_adamw},
	{"norm + adam", norm_adam},
	{"norm + sgd", norm_sgd},
	{0},
};
