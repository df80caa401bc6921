/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Infinite, NaN, very large and denormal operands, for the comparison of backends with ref: results
 * are infinite or NaN at the same places, and finite where ref's are. Numbers of one row that would
 * spread to all others, as in the gradient of gamma, are not compared.
 */
#include "engine/graph/layer.h"
#include "engine/graph/layer_image.h"
#include "op_case.h"

enum {
	NOT_LARGE = KIT_INFINITE | KIT_NAN | KIT_TINY,
	NOT_HUGE = NOT_LARGE | KIT_LARGE,
	ALL = NOT_HUGE | KIT_HUGE
};

/* An activation and its gradient; the flag: dy is special in place of x. What is multiplied by the
 * small end of a slope or of a gate is not large: it would show that one's absolute error. */
static void activation(
	struct kit *k, const struct types *t, const struct shape *d, enum jm_op op, bool of_dy)
{
	bool gated = op == JM_OP_SWIGLU || op == JM_OP_GEGLU;
	const int64_t *dim = DIMS(d->b, d->s, d->c),
		      *in = DIMS(d->b, d->s, gated ? 2 * d->c : d->c);
	struct jm_tensor *x = kit_special(k, t->c, of_dy ? 0 : gated ? NOT_LARGE : ALL, 3, in);
	struct jm_tensor *dy = kit_special(k, t->c, of_dy ? NOT_LARGE : 0, 3, dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, dim, NULL), *dx = kit_out(k, t->c, 3, in, NULL);

	backend_node(k, op, &x, &y, 0);
	backend_node(k, (enum jm_op)(op + 1), OPS(dy, op == JM_OP_RELU ? y : x), &dx, 0);
}

#define ACTIVATION(name, op)                                                                       \
	static void name(struct kit *k, const struct types *t, const struct shape *d, bool of_dy)  \
	{                                                                                          \
		activation(k, t, d, op, of_dy);                                                    \
	}

ACTIVATION(relu, JM_OP_RELU)
ACTIVATION(gelu, JM_OP_GELU)
ACTIVATION(gelu_erf, JM_OP_GELU_ERF)
ACTIVATION(gelu_quick, JM_OP_GELU_QUICK)
ACTIVATION(silu, JM_OP_SILU)
ACTIVATION(swiglu, JM_OP_SWIGLU)
ACTIVATION(geglu, JM_OP_GEGLU)

static void add(struct kit *k, const struct types *t, const struct shape *d, bool back)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c);
	struct jm_tensor *a = kit_special(k, t->a, ALL, 3, dim),
			 *b = kit_special(k, t->c, ALL, 3, dim);
	struct jm_tensor *x = back ? b : kit_special(k, t->v, ALL, 3, dim);
	struct jm_tensor *y = kit_out(k, t->a, 3, dim, NULL);
	struct jm_tensor *z = kit_out(k, back ? t->v : t->c, 3, dim, NULL);

	backend_node(k, JM_OP_ADD, OPS(a, b), &y, 0);
	backend_node(k, JM_OP_CAST, &x, &z, 0);
}

/* all: some rows hold a NaN or an infinity, and so would the loss, which is not compared; else some
 * have all logits about 5e4, beside which the logarithm of a sum would be lost. wide: rows of a
 * large vocabulary, and of fewer classes than they have room for. */
static void xent_of(
	struct kit *k, const struct types *t, const struct shape *d, bool all, bool wide)
{
	const int64_t n = wide ? 9000 + 8 * d->n : d->n, width = wide ? n + 8 : n;
	const int64_t *dim = DIMS(1, wide ? 9 : d->s, width);
	struct jm_tensor *x =
		all || d->s % 2 ? kit_special(k, t->c, (all ? ALL : KIT_TINY) | KIT_MASKED, 3, dim)
				: kit_normal(k, t->c, 5e4, 2, 3, dim);
	struct jm_tensor *target = kit_whole(k, JM_I32, (int)width / 2, (int)n - 1, 2, dim);
	struct jm_tensor *loss = kit_out(k, t->v, 1, DIMS(1), NULL);
	struct jm_tensor *dx = kit_out(k, t->c, 3, dim, NULL);
	struct jm_node *node =
		jm_graph_node(k->graph, JM_OP_SOFTMAX_XENT, OPS(x, target, NULL), OPS(loss, dx));

	if (!node)
		return;
	backend_weigh(node, (double)dim[1], 1);
	node->attr.xent.classes = wide ? n : 0;
	kit_read(k, dx);
	if (!all)
		kit_read(k, loss);
}

static void xent(struct kit *k, const struct types *t, const struct shape *d, bool all)
{
	xent_of(k, t, d, all, false);
}

static void xent_wide(struct kit *k, const struct types *t, const struct shape *d, bool all)
{
	xent_of(k, t, d, all, true);
}

/* Two classes, so that many rows are right; a NaN never is. */
static void top1(struct kit *k, const struct types *t, const struct shape *d, bool masked)
{
	const int64_t *dim = DIMS(d->b, d->s, 2);
	struct jm_tensor *x = kit_special(k, t->c, masked ? ALL | KIT_MASKED : KIT_NAN, 3, dim);
	struct jm_tensor *target = kit_ids(k, 2, 2, dim);
	struct jm_tensor *share = kit_out(k, t->v, 1, DIMS(1), NULL);

	backend_node(k, JM_OP_TOP1, OPS(x, target), &share, 0);
}

/* Forward, and the gradient of x alone. The flag: rows that several warps may share. */
static void norm(struct kit *k, const struct types *t, const struct shape *d, bool centred)
{
	const int64_t *dim = DIMS(d->b, d->s, d->c), *c = DIMS(d->c);
	struct jm_tensor *x = kit_special(k, t->a, NOT_HUGE, 3, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, c);
	struct jm_tensor *beta = centred ? kit_normal(k, t->v, 0, 1, 1, c) : NULL;
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, dim, NULL), *dx = kit_out(k, t->a, 3, dim, NULL);
	struct jm_tensor *mean = kit_out(k, t->v, 2, dim, NULL),
			 *rstd = kit_out(k, t->v, 2, dim, NULL);
	struct jm_node *fwd, *bwd;

	if (centred) {
		fwd = backend_node(k, JM_OP_LAYERNORM, OPS(x, gamma, beta), OPS(y, mean, rstd), 0);
		bwd = backend_node(k, JM_OP_LAYERNORM_GRAD, OPS(dy, x, gamma, mean, rstd),
			OPS(dx, NULL, NULL), 0);
	} else {
		fwd = backend_node(k, JM_OP_RMSNORM, OPS(x, gamma), OPS(y, rstd), 0);
		bwd = backend_node(
			k, JM_OP_RMSNORM_GRAD, OPS(dy, x, gamma, rstd), OPS(dx, NULL), 0);
	}
	fwd->attr.norm.eps = bwd->attr.norm.eps = 1e-5;
	bwd->fwd = fwd;
}

static void norm_long(struct kit *k, const struct types *t, const struct shape *d, bool centred)
{
	const struct shape rows = backend_long_rows(d);

	norm(k, t, &rows, centred);
}

/* Channels and groups of few pixels, so that some are finite. The flag: each channel of its own, of
 * all images; else groups of each image. */
static void norm_image(struct kit *k, const struct types *t, const struct shape *d, bool batch)
{
	const int64_t dim[] = {1 + d->b % 2, (d->c + 1) / 2 * 2, 1, 4 + d->s % 5}, *c = &dim[1];
	const int groups = (int)dim[1] / 2;
	struct jm_tensor *x = kit_special(k, t->c, NOT_HUGE, 4, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, c);
	struct jm_tensor *beta = kit_normal(k, t->v, 0, 1, 1, c);
	struct jm_tensor *mean =
		kit_out(k, t->v, batch ? 1 : 2, batch ? c : DIMS(dim[0], groups), NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, mean->rank, mean->dim, NULL);
	struct jm_tensor *y = kit_out(k, t->c, 4, dim, NULL);
	struct jm_node *n;

	if (batch) {
		struct jm_tensor *var = kit_out(k, t->v, 1, c, NULL);

		jm_graph_node(k->graph, JM_OP_BN_STATS, &x, OPS(mean, var));
		backend_node(k, JM_OP_BN_FINALIZE, OPS(mean, var), OPS(rstd), 0)->attr.bn.eps =
			1e-5;
		n = backend_node(k, JM_OP_BN_APPLY, OPS(x, mean, rstd, gamma, beta), &y, 0);
		n->attr.bn.relu = d->s % 2;
		return;
	}
	n = jm_graph_node(k->graph, JM_OP_GROUPNORM, OPS(x, gamma, beta), OPS(y, mean, rstd));
	if (!n)
		return;
	kit_read(k, y); /* means of large values of both signs are as rounding has them */
	kit_read(k, rstd);
	n->attr.group.groups = groups;
	n->attr.group.eps = 1e-5;
	n->attr.group.silu = d->s % 2;
}

/* Where all of a window is equal, its first element is the largest; a NaN is larger than all.
 * Without infinities: cuda has -infinity beyond the image, where it may find the first largest. */
static void pool_of(
	struct kit *k, const struct types *t, const struct shape *d, int size, int stride, int pad)
{
	const int64_t dim[] = {
		d->b, d->n % 2 ? d->c : (d->c + 7) / 8 * 8, 7 + d->s % 5, 5 + d->s % 3};
	const struct jm_window how = {.stride = stride, .pad = pad};
	struct jm_tensor *x = kit_special(k, t->c, ALL, 4, dim);
	struct jm_tensor *y = jm_graph_maxpool(k->graph, x, size, &how);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	struct jm_tensor *dx = kit_out(k, t->c, 4, dim, NULL);
	struct jm_node *bwd;

	kit_read(k, y);
	bwd = backend_node(k, JM_OP_MAXPOOL_GRAD, OPS(dy, x), &dx, 0);
	bwd->fwd = jm_graph_cell(k->graph, y)->producer;
	bwd->attr = bwd->fwd->attr;
}

static void pool(struct kit *k, const struct types *t, const struct shape *d, bool pad)
{
	pool_of(k, t, d, 3, 2, pad);
}

static void pool_small(struct kit *k, const struct types *t, const struct shape *d, bool pad)
{
	pool_of(k, t, d, 2 + (int)d->b % 2, 1 + (int)d->n % 2, pad);
}

/* A first layer whose bias is special, with a ReLU behind it or without. */
static void stem(struct kit *k, const struct types *t, const struct shape *d, bool opens)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, DIMS(d->b, 3, 19, 22));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.1, 4, DIMS(d->n, 3, 3, 3));
	struct jm_tensor *bias = kit_special(k, t->v, ALL, 1, DIMS(d->n));
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, bias, &(struct jm_window){.pad = 1});

	kit_read(k, opens ? jm_graph_relu(k->graph, y) : y);
}

/* Rows of queries that hold a NaN, or are so large that one key has all of the weight; whole
 * numbers, so that this is the same key for all. */
static void attention(struct kit *k, const struct types *t, const struct shape *d, bool causal)
{
	static const int64_t depths[] = {16, 64, 128};
	const int64_t depth = depths[d->s % 3], seq = d->s + (d->b > 1 ? 128 : 0);
	const int64_t *q_dim = DIMS(1, d->heads, seq, depth),
		      *k_dim = DIMS(1, seq, d->kv_heads, depth);
	struct jm_tensor *q = d->c % 2 ? kit_special(k, t->c, KIT_NAN, 4, q_dim)
				       : kit_whole(k, t->c, -100, 100, 4, q_dim);
	struct jm_tensor *keys = kit_whole(k, t->c, -10, 10, 4, k_dim);
	struct jm_tensor *v = kit_normal(k, t->c, 0, 1, 4, k_dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, DIMS(1, seq, d->heads * depth), NULL);
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(1, d->heads, seq), NULL);
	struct jm_node *n = backend_node(k, JM_OP_ATTENTION, OPS(q, keys, v), OPS(y, lse), 0);

	backend_attend(n, d, seq, depth, causal);
}

const struct backend_case backend_special_cases[] = {
	{"special values, relu", relu},
	{"special values, gelu", gelu},
	{"special values, gelu-erf", gelu_erf},
	{"special values, gelu-quick", gelu_quick},
	{"special values, silu", silu},
	{"special values, swiglu", swiglu},
	{"special values, geglu", geglu},
	{"special values, add and cast", add},
	{"special values, softmax-xent", xent},
	{"special values, softmax-xent, wide", xent_wide},
	{"special values, top1", top1},
	{"special values, norm", norm},
	{"special values, norm, long rows", norm_long},
	{"special values, norm of images", norm_image},
	{"special values, maxpool", pool},
	{"special values, maxpool, small", pool_small},
	{"special values, first layer", stem},
	{"special values, attention", attention},
	{0},
};
