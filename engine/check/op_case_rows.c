/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on rows: products, norms, activations, tokens; for the comparison of backends with ref. */
#include "op_case.h"

#include <math.h>

static void embed(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *ids = kit_ids(k, 11, 2, DIMS(d->b, d->s));
	struct jm_tensor *table = kit_normal(k, t->v, 0, 1, 2, DIMS(11, d->c));
	struct jm_tensor *pos =
		d->b > 1 ? kit_normal(k, t->v, 0, 1, 2, DIMS(d->s + 3, d->c)) : NULL;
	struct jm_tensor *y = backend_result(k, t->a, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_EMBED, OPS(ids, table, pos), &y, accumulate);
}

static void embed_grad(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *ids = kit_ids(k, 11, 2, DIMS(d->b, d->s));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dtable = backend_gradient(k, t->a, accumulate, 2, DIMS(11, d->c));
	struct jm_tensor *dpos =
		d->b > 1 ? backend_gradient(k, t->a, accumulate, 2, DIMS(d->s + 3, d->c)) : NULL;

	backend_node(k, JM_OP_EMBED_GRAD, OPS(ids, dy), OPS(dtable, dpos), accumulate ? 3 : 0);
}

/* Few ids: each has more rows than a kernel would sum in one piece. */
static void embed_grad_long(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int64_t s = d->s + 200;
	struct jm_tensor *ids = kit_ids(k, 3, 2, DIMS(d->b, s));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, s, d->c));
	struct jm_tensor *dtable = backend_gradient(k, t->a, accumulate, 2, DIMS(5, d->c));

	backend_node(k, JM_OP_EMBED_GRAD, OPS(ids, dy), OPS(dtable, NULL), accumulate ? 1 : 0);
}

static void linear(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(d->n, d->c));
	struct jm_tensor *bias = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(d->n)) : NULL;
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->n));

	backend_node(k, JM_OP_LINEAR, OPS(x, w, bias), &y, accumulate);
}

static void linear_dgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(d->n, d->c));
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_LINEAR_DGRAD, OPS(dy, w), &dx, accumulate);
}

static void linear_wgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dw = backend_gradient(k, t->a, accumulate, 2, DIMS(d->n, d->c));
	struct jm_tensor *db = d->b > 1 ? backend_result(k, t->v, accumulate, 1, DIMS(d->n)) : NULL;

	backend_node(k, JM_OP_LINEAR_WGRAD, OPS(dy, x), OPS(dw, db), accumulate ? 3 : 0);
}

struct shape backend_many_rows(const struct shape *d)
{
	struct shape many = *d;

	many.s = 4096 / d->b + 1 + d->s;
	many.n = 1 + d->n % 70;
	many.c = 1 + d->c % 30;
	return many;
}

struct shape backend_long_rows(const struct shape *d)
{
	static const int64_t widths[] = {256, 320, 384, 640, 768, 1024, 1280, 1536};
	struct shape rows = *d;

	rows.c = widths[(d->b + d->s) % (int64_t)(sizeof widths / sizeof *widths)];
	rows.s = 2 + d->s % 9;
	rows.n = 1 + d->n % 70;
	return rows;
}

static void linear_narrow(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const struct shape many = backend_many_rows(d);

	linear(k, t, &many, accumulate);
}

/* Rows that are longer than a block of few columns has threads for its results. */
static void linear_to_few(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct shape many = backend_many_rows(d);

	many.c = 65 + d->n % 61;
	many.n = 1 + d->s % 4;
	linear(k, t, &many, accumulate);
}

static void linear_dgrad_narrow(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const struct shape many = backend_many_rows(d);

	linear_dgrad(k, t, &many, accumulate);
}

static void linear_wgrad_narrow(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const struct shape many = backend_many_rows(d);

	linear_wgrad(k, t, &many, accumulate);
}

static void gelu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_GELU, &x, &y, accumulate);
}

static void gelu_grad(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, DIMS(d->b, d->s, d->c));

	backend_node(k, JM_OP_GELU_GRAD, OPS(dy, x), &dx, accumulate);
}

/* Forward and backward together, so that the statistics match. */
static void layernorm(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int64_t *x_dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *x = kit_normal(k, t->a, 0.5, 2, 3, x_dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	struct jm_tensor *beta = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(d->c)) : NULL;
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, x_dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, x_dim, NULL);
	struct jm_tensor *mean = kit_out(k, t->v, 2, x_dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, x_dim, NULL);
	struct jm_tensor *dx = backend_result(k, t->a, accumulate, 3, x_dim);
	struct jm_tensor *dgamma = /* NULL = gamma is frozen */
		d->s % 2 ? backend_result(k, t->v, accumulate, 1, DIMS(d->c)) : NULL;
	struct jm_tensor *dbeta = beta ? backend_result(k, t->v, accumulate, 1, DIMS(d->c)) : NULL;
	struct jm_node *fwd = backend_node(
			       k, JM_OP_LAYERNORM, OPS(x, gamma, beta), OPS(y, mean, rstd), 0),
		       *bwd;

	bwd = backend_node(k, JM_OP_LAYERNORM_GRAD, OPS(dy, x, gamma, mean, rstd),
		OPS(dx, dgamma, dbeta), accumulate ? 7 : 0);
	fwd->attr.norm.eps = bwd->attr.norm.eps = 1e-5;
	bwd->fwd = fwd;
}

static void layernorm_long(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const struct shape rows = backend_long_rows(d);

	layernorm(k, t, &rows, accumulate);
}

static void add(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *a = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *b = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = backend_result(k, t->a, accumulate, 3, a->dim);

	backend_node(k, JM_OP_ADD, OPS(a, b), &y, accumulate);
}

/* The logits are an activation without another reader, so that dlogits may reuse their memory. */
static void softmax_xent(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	struct jm_tensor *given = kit_normal(k, t->c, 0, 3, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *x = kit_out(k, t->c, 3, given->dim, given);
	struct jm_tensor *target = kit_ids(k, d->n, 2, DIMS(d->b, d->s));
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dx = alone ? NULL : kit_out(k, t->c, 3, given->dim, NULL);

	struct jm_tensor *scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));

	backend_weigh(backend_node(k, JM_OP_SOFTMAX_XENT, OPS(x, target, scale), OPS(loss, dx), 0),
		0.5, 0.4);
}

/* Classes after the first ones are padding. */
static void softmax_xent_of_some(
	struct kit *k, const struct types *t, const struct shape *d, bool kept)
{
	int64_t width = (d->n + 63) / 64 * 64;
	struct jm_tensor *given = kit_normal(k, t->c, 0, 3, 3, DIMS(d->b, d->s, width));
	struct jm_tensor *x = kit_out(k, t->c, 3, given->dim, given);
	struct jm_tensor *target = kit_ids(k, d->n, 2, DIMS(d->b, d->s));
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 3, given->dim, NULL);
	struct jm_node *n =
		backend_node(k, JM_OP_SOFTMAX_XENT, OPS(x, target, NULL), OPS(loss, dx), 0);

	backend_weigh(n, 0.5, 1);
	n->attr.xent.classes = d->n;
	if (kept)
		kit_read(k, x);
}

static void mse(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	struct jm_tensor *y = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *target = kit_normal(k, t->v, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dy = alone ? NULL : kit_out(k, t->c, 3, y->dim, NULL);
	struct jm_tensor *scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));

	backend_weigh(
		backend_node(k, JM_OP_MSE, OPS(y, target, scale), OPS(loss, dy), 0), 0.5, 0.4);
}

/* About a third of the rows, or all of them, do not count. */
static void softmax_xent_ignored(
	struct kit *k, const struct types *t, const struct shape *d, bool all)
{
	int most = all ? -1 : (int)d->n - 1, least = all ? -100 : -(int)d->n / 2;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 3, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *target = kit_whole(k, JM_I32, least, most, 2, DIMS(d->b, d->s));
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 3, x->dim, NULL);
	struct jm_node *n =
		backend_node(k, JM_OP_SOFTMAX_XENT, OPS(x, target, NULL), OPS(loss, dx), 0);

	backend_weigh(n, 0.5, 0.4);
	n->attr.xent.ignores = true;
}

/* Two classes, so that a third of the rows are correct; another third has no target. */
static void top1(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, 2));
	struct jm_tensor *target = kit_whole(k, JM_I32, -1, 1, 2, DIMS(d->b, d->s));
	struct jm_tensor *share = backend_total(k, t->v, accumulate);

	backend_node(k, JM_OP_TOP1, OPS(x, target), &share, accumulate);
}

static void cast(struct kit *k, const struct types *t, const struct shape *d, bool back)
{
	struct jm_tensor *x = kit_normal(k, back ? t->c : t->v, 0, 1, 2, DIMS(d->s, d->c));
	struct jm_tensor *y = kit_out(k, back ? t->v : t->c, 2, DIMS(d->s, d->c), NULL);

	backend_node(k, JM_OP_CAST, &x, &y, 0);
}

static void rmsnorm(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int64_t *x_dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *x = kit_normal(k, t->a, 0.5, 2, 3, x_dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(d->c));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, x_dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, x_dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, x_dim, NULL);
	struct jm_tensor *dx = backend_result(k, t->a, accumulate, 3, x_dim);
	struct jm_tensor *dgamma = /* NULL = gamma is frozen */
		d->s % 2 ? backend_result(k, t->v, accumulate, 1, DIMS(d->c)) : NULL;
	struct jm_node *fwd = backend_node(k, JM_OP_RMSNORM, OPS(x, gamma), OPS(y, rstd), 0), *bwd;

	bwd = backend_node(k, JM_OP_RMSNORM_GRAD, OPS(dy, x, gamma, rstd), OPS(dx, dgamma),
		accumulate ? 3 : 0);
	fwd->attr.norm.eps = bwd->attr.norm.eps = 1e-5;
	bwd->fwd = fwd;
}

/* Forward, and backward from x or, where it suffices, from y. */
static void pointwise(struct kit *k, const struct types *t, const struct shape *d, bool accumulate,
	enum jm_op op, bool from_y)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 3, dim);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, dim);
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, dim);
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, dim);

	backend_node(k, op, &x, &y, accumulate);
	backend_node(k, (enum jm_op)(op + 1), OPS(dy, from_y ? y : x), &dx, accumulate);
}

static void relu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_RELU, true);
}

static void gelu_erf(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_GELU_ERF, false);
}

static void gelu_quick(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_GELU_QUICK, false);
}

static void silu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	pointwise(k, t, d, accumulate, JM_OP_SILU, false);
}

static void gated(struct kit *k, const struct types *t, const struct shape *d, bool accumulate,
	enum jm_op op, enum jm_op gradient)
{
	struct jm_tensor *a = kit_normal(k, t->c, 0, 1.5, 3, DIMS(d->b, d->s, 2 * d->c));
	struct jm_tensor *b = kit_normal(k, t->c, 0, 1.5, 3, a->dim);
	struct jm_tensor *x = kit_out(k, t->c, 3, a->dim, NULL); /* dx may replace it */
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 3, dy->dim);
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 3, x->dim);

	jm_graph_node(k->graph, JM_OP_ADD, OPS(a, b), &x);
	backend_node(k, op, &x, &y, accumulate);
	backend_node(k, gradient, OPS(dy, x), &dx, accumulate);
}

static void swiglu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	gated(k, t, d, accumulate, JM_OP_SWIGLU, JM_OP_SWIGLU_GRAD);
}

static void geglu(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	gated(k, t, d, accumulate, JM_OP_GEGLU, JM_OP_GEGLU_GRAD);
}

static void dropout(struct kit *k, const struct types *t, const struct shape *d, bool stream)
{
	struct jm_tensor *x = kit_normal(k, stream ? t->a : t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *now = kit_ids(k, 1000, 1, DIMS(1));
	struct jm_tensor *y = kit_out(k, x->type, 3, x->dim, NULL);
	struct jm_node *n = backend_node(k, JM_OP_DROPOUT, OPS(x, now), &y, 0);

	n->attr.dropout.p = 0.3;
	n->attr.dropout.seed = 5;
}

/* The end of a network, whose logits have no other reader. Flag: with a loss scale, added to
 * gradients. */
static void head(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	int64_t classes = d->b > 1 ? 101 : d->n;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 2, DIMS(classes, d->c));
	bool ignores = d->s % 2;
	struct jm_tensor *target =
		kit_whole(k, JM_I32, ignores ? -2 : 0, (int)classes - 1, 2, DIMS(d->b, d->s));
	struct jm_tensor *scale = second ? kit_normal(k, t->v, 3, 0.5, 1, DIMS(2)) : NULL;
	struct jm_tensor *loss = backend_total(k, t->v, second);
	struct jm_tensor *dw = backend_gradient(k, t->a, second, 2, w->dim);
	struct jm_tensor *dx = backend_result(k, t->c, second, 3, x->dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, DIMS(d->b, d->s, classes), NULL);
	struct jm_tensor *dy = kit_out(k, t->c, 3, y->dim, NULL);
	struct jm_node *n[4];

	n[0] = jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w), &y);
	n[1] = jm_graph_node(k->graph, JM_OP_SOFTMAX_XENT, OPS(y, target, scale), OPS(loss, dy));
	n[2] = jm_graph_node(k->graph, JM_OP_LINEAR_WGRAD, OPS(dy, x), OPS(dw, NULL));
	n[3] = jm_graph_node(k->graph, JM_OP_LINEAR_DGRAD, OPS(dy, w), &dx);
	if (!n[0] || !n[1] || !n[2] || !n[3])
		return;
	backend_weigh(n[1], 0.5, 0.4);
	n[1]->attr.xent.ignores = ignores;
	for (int i = 1; i < 4; i++)
		n[i]->accumulate = second;
	kit_read(k, loss);
	kit_read(k, dw);
	kit_read(k, dx);
}

static void tokens(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	const int64_t *dim = IMAGE(d), seq = dim[2] * dim[3] + !alone;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *first = alone ? NULL : kit_normal(k, t->v, 0, 1, 1, DIMS(d->c));
	struct jm_tensor *pos = alone ? NULL : kit_normal(k, t->v, 0, 1, 2, DIMS(seq, d->c));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, seq, d->c));
	struct jm_tensor *y = kit_out(k, t->a, 3, dy->dim, NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 4, dim, NULL);
	struct jm_tensor *dfirst = alone ? NULL : kit_out(k, t->v, 1, DIMS(d->c), NULL);
	struct jm_tensor *dpos = alone ? NULL : backend_result(k, t->v, true, 2, pos->dim);

	backend_node(k, JM_OP_TOKENS, OPS(x, first, pos), &y, 0);
	backend_node(k, JM_OP_TOKENS_GRAD, &dy, OPS(dx, dfirst, dpos), alone ? 0 : 4);
}

static void first(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 2, DIMS(d->b, d->c));
	struct jm_tensor *y = backend_result(k, t->a, accumulate, 2, dy->dim);
	struct jm_tensor *dx = backend_result(k, t->a, accumulate, 3, x->dim);

	backend_node(k, JM_OP_FIRST, &x, &y, accumulate);
	backend_node(k, JM_OP_FIRST_GRAD, &dy, &dx, accumulate);
}

const struct backend_case backend_row_cases[] = {
	{"rmsnorm", rmsnorm},
	{"relu", relu},
	{"gelu-erf", gelu_erf},
	{"gelu-quick", gelu_quick},
	{"silu", silu},
	{"swiglu", swiglu},
	{"geglu", geglu},
	{"dropout", dropout},
	{"embed", embed},
	{"embed-grad", embed_grad},
	{"embed-grad, long", embed_grad_long},
	{"linear", linear},
	{"linear-dgrad", linear_dgrad},
	{"linear-wgrad", linear_wgrad},
	{"linear, narrow", linear_narrow},
	{"linear, to few", linear_to_few},
	{"linear-dgrad, narrow", linear_dgrad_narrow},
	{"linear-wgrad, narrow", linear_wgrad_narrow},
	{"gelu", gelu},
	{"gelu-grad", gelu_grad},
	{"layernorm", layernorm},
	{"layernorm, long rows", layernorm_long},
	{"add", add},
	{"softmax-xent", softmax_xent},
	{"softmax-xent, some classes", softmax_xent_of_some},
	{"softmax-xent, ignored rows", softmax_xent_ignored},
	{"end of a network", head},
	{"top1", top1},
	{"mse", mse},
	{"cast", cast},
	{"tokens", tokens},
	{"first", first},
	{0},
};
