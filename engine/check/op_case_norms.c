/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norms that are added, a norm and a ReLU that are pooled, and those before filters of each
 * channel, for the comparison of backends with ref. */
#include "engine/graph/layer.h"
#include "engine/graph/layer_image.h"
#include "op_case.h"

/* What a norm of a pair has: its statistics, parameters and their gradients. */
struct half {
	struct jm_tensor *x, *mean, *rstd, *gamma, *beta, *dx, *dgamma, *dbeta;
};

static void declare_half(struct kit *k, const struct types *t, struct half *h, bool add)
{
	const int64_t *c = DIMS(h->x->dim[1]);
	struct jm_tensor *var = kit_out(k, t->v, 1, c, NULL);

	h->mean = kit_out(k, t->v, 1, c, NULL);
	h->rstd = kit_out(k, t->v, 1, c, NULL);
	h->beta = kit_normal(k, t->v, 0, 0.02, 1, c);
	h->dx = backend_result(k, t->c, add, 4, h->x->dim);
	h->dgamma = backend_result(k, t->v, add, 1, c);
	h->dbeta = backend_result(k, t->v, add, 1, c);
	jm_graph_node(k->graph, JM_OP_BN_STATS, OPS(h->x), OPS(h->mean, var));
	backend_node(k, JM_OP_BN_FINALIZE, OPS(h->mean, var), OPS(h->rstd), 0)->attr.bn.eps = 1e-5;
}

/*
 * The sum of two norms with a ReLU, and its gradients, of which the second is that of what was
 * added; the flag adds to all gradients. The first norm is of zeros and ones and the second one
 * small, so that rounding does not decide what the ReLU lets through.
 */
static void batchnorm_pair(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {d->b, (d->c + 7) / 8 * 8, 7 + d->s % 5, 5 + d->s % 3};
	struct half a = {.x = kit_whole(k, t->c, 0, 1, 4, dim)};
	struct half b = {.x = kit_normal(k, t->c, 0.5, 2, 4, dim)};
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, dim),
			 *y = kit_out(k, t->c, 4, dim, NULL);
	struct jm_tensor *with = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "with");
	struct jm_tensor *dwith = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "dwith");
	struct jm_node *fwd, *bwd;

	a.gamma = kit_normal(k, t->v, 1, 0.05, 1, &dim[1]);
	b.gamma = kit_normal(k, t->v, 0.05, 0.01, 1, &dim[1]);
	declare_half(k, t, &b, add);
	declare_half(k, t, &a, add);
	jm_graph_node(k->graph, JM_OP_BN_APPLY, OPS(b.x, b.mean, b.rstd, b.gamma, b.beta), &with);
	fwd = backend_node(
		k, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta, with), &y, 0);
	fwd->attr.bn.relu = true;
	bwd = jm_graph_node(k->graph, JM_OP_BN_GRAD, OPS(dy, a.x, y, a.gamma, a.mean, a.rstd),
		OPS(a.dx, a.dgamma, a.dbeta, dwith));
	if (!bwd)
		return;
	bwd->attr.bn.relu = true;
	bwd->accumulate = add ? 7 : 0;
	bwd->fwd = fwd;
	backend_node(k, JM_OP_BN_GRAD, OPS(dwith, b.x, NULL, b.gamma, b.mean, b.rstd),
		OPS(b.dx, b.dgamma, b.dbeta), add ? 7 : 0);
	for (int i = 0; i < 3; i++)
		kit_read(k, bwd->out[i]);
}

/*
 * The gradient of a norm with ReLU, which may replace x, and its result again for a later reader,
 * which may replace dy; dy is the gradient of the image of a convolution of single pixels, or a
 * sum. The flag adds to all gradients. Whole numbers: rounding does not decide what the ReLU lets
 * through.
 */
static void normed_again(
	struct kit *k, const struct types *t, const struct shape *d, bool add, bool filtered)
{
	const int64_t c = filtered ? 64 + 64 * (d->c % 2) : d->c + 8 * (d->b % 2);
	const int64_t dim[] = {d->b, c, 7 + d->s % 5, 5 + d->s % 3},
		      to[] = {d->b, 64, dim[2], dim[3]};
	struct half a = {.x = kit_out(k, t->c, 4, dim, NULL)};
	struct jm_tensor *dy = kit_out(k, t->c, 4, dim, NULL), *y = kit_out(k, t->c, 4, dim, NULL),
			 *again = kit_out(k, t->c, 4, dim, NULL);
	struct jm_node *fwd, *bwd;

	jm_graph_node(k->graph, JM_OP_ADD,
		OPS(kit_whole(k, t->c, 0, 1, 4, dim), kit_whole(k, t->c, 0, 1, 4, dim)), &a.x);
	a.gamma = kit_normal(k, t->v, 1, 0.05, 1, &dim[1]);
	declare_half(k, t, &a, add);
	fwd = backend_node(k, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta), &y, 0);
	fwd->attr.bn.relu = true;
	if (filtered)
		bwd = backend_node(k, JM_OP_CONV_DGRAD,
			OPS(kit_whole(k, t->c, -1, 2, 4, to),
				kit_whole(k, t->c, -1, 1, 4, DIMS(to[1], c, 1, 1))),
			&dy, 0);
	else
		bwd = backend_node(k, JM_OP_ADD,
			OPS(kit_normal(k, t->c, 0, 1, 4, dim), kit_normal(k, t->c, 0, 1, 4, dim)),
			&dy, 0);
	for (int i = 0; filtered && i < 2; i++)
		bwd->attr.conv.stride[i] = bwd->attr.conv.dilation[i] = bwd->attr.conv.groups = 1;
	bwd = backend_node(k, JM_OP_BN_GRAD, OPS(dy, a.x, NULL, a.gamma, a.mean, a.rstd, a.beta),
		OPS(a.dx, a.dgamma, a.dbeta), add ? 7 : 0);
	bwd->attr.bn.relu = true;
	bwd->fwd = fwd;
	bwd = backend_node(k, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta), &again, 0);
	bwd->attr.bn.relu = bwd->again = true;
}

static void batchnorm_again(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	normed_again(k, t, d, add, false);
}

static void pixels_again(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	normed_again(k, t, d, add, true);
}

/* A norm whose result is pooled, with ReLU or without, and its gradient through the pooling; the
 * flag adds to all gradients. The image has whole numbers: rounding does not decide which of them
 * is the largest of a window, or the smallest, where gamma is below 0. */
static void batchnorm_pooled(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {
		d->b, d->s % 2 ? d->c : (d->c + 7) / 8 * 8, 7 + d->s % 5, 5 + d->s % 3};
	struct half a = {.x = kit_whole(k, t->c, 0, 15, 4, dim)};
	struct jm_tensor *y = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "y");
	struct jm_tensor *dy = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "dy"), *pooled,
			 *dp;
	const bool relu = d->s % 3;
	struct jm_node *fwd, *bwd;

	a.gamma = kit_normal(k, t->v, d->s % 4 < 2 ? 1 : -1, 0.05, 1, &dim[1]);
	declare_half(k, t, &a, add);
	fwd = jm_graph_node(
		k->graph, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta), &y);
	pooled = jm_graph_maxpool(k->graph, y, 3, &(struct jm_window){.stride = 2, .pad = 1});
	if (!fwd || !pooled)
		return;
	fwd->attr.bn.relu = relu;
	fwd->beside = true;
	kit_read(k, pooled);
	dp = kit_normal(k, t->c, 0, 1, 4, pooled->dim);
	bwd = jm_graph_node(k->graph, JM_OP_MAXPOOL_GRAD, OPS(dp, y), &dy);
	if (!bwd)
		return;
	bwd->fwd = jm_graph_cell(k->graph, pooled)->producer;
	bwd->attr = bwd->fwd->attr;
	bwd = backend_node(k, JM_OP_BN_GRAD,
		OPS(dy, a.x, NULL, a.gamma, a.mean, a.rstd, relu ? a.beta : NULL),
		OPS(a.dx, a.dgamma, a.dbeta), add ? 7 : 0);
	bwd->attr.bn.relu = relu;
	bwd->fwd = fwd;
}

/*
 * The gradient of a ReLU whose result is pooled, and those of the filter and of the bias before it,
 * which the flag adds to others; without it the ReLU's gradient has another reader, too. What is
 * pooled has whole numbers, of which some windows have none above 0.
 */
static void relu_pooled(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t c = d->s % 2 ? d->n : (d->n + 7) / 8 * 8, rows = 2 * (2 + d->s % 4),
		      columns = 2 * (1 + d->s % 5);
	const int64_t x_dim[] = {d->b, d->c, rows, columns}, w_dim[] = {c, d->c, 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *sums =
		jm_graph_conv(k->graph, x, w, NULL, &(struct jm_window){.stride = 1, .pad = 1});
	struct jm_node *conv = jm_graph_cell(k->graph, sums)->producer, *bwd;
	struct jm_tensor *y =
		jm_graph_relu(k->graph, kit_whole(k, t->c, -6, 3, 4, DIMS(d->b, c, rows, columns)));
	struct jm_tensor *pooled =
		jm_graph_maxpool(k->graph, y, 2, &(struct jm_window){.stride = 2});
	struct jm_tensor *dp = kit_normal(k, t->c, 0, 1, 4, pooled->dim);
	struct jm_tensor *dy = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, y->dim, "dy");
	struct jm_tensor *e = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, y->dim, "e");

	kit_read(k, sums);
	kit_read(k, pooled);
	bwd = jm_graph_node(k->graph, JM_OP_MAXPOOL_GRAD, OPS(dp, y), &dy);
	if (!bwd)
		return; /* the graph holds the error */
	bwd->fwd = jm_graph_cell(k->graph, pooled)->producer;
	bwd->attr = bwd->fwd->attr;
	jm_graph_node(k->graph, JM_OP_RELU_GRAD, OPS(dy, y), &e);
	bwd = backend_node(k, JM_OP_CONV_WGRAD, OPS(e, x),
		OPS(backend_gradient(k, t->a, add, 4, w_dim), backend_result(k, t->v, add, 1, &c)),
		add ? JM_ADD_OUT | JM_ADD_WGRAD_DBIAS : 0);
	bwd->attr = conv->attr;
	bwd->fwd = conv;
	if (!add)
		kit_read(k, e);
}

/* The gradient of an image through filters of each channel and a ReLU before them, to which another
 * is added with the flag. */
static void depthwise_relu(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {d->b, d->c, 5 + d->s % 9, 1 + d->s}, w_dim[] = {d->c, 1, 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 4, w_dim);
	struct jm_tensor *y = jm_graph_conv(
		k->graph, x, w, NULL, &(struct jm_window){.pad = 1, .groups = (int)d->c});
	struct jm_node *fwd = jm_graph_cell(k->graph, y)->producer, *bwd;
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *open = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *between =
		jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "between");
	struct jm_tensor *dx = backend_result(k, t->c, add, 4, dim);

	kit_read(k, y);
	bwd = jm_graph_node(k->graph, JM_OP_CONV_DGRAD, OPS(dy, w), &between);
	if (!bwd)
		return; /* the graph holds the error */
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
	backend_node(k, JM_OP_RELU_GRAD, OPS(between, open), &dx, add);
}

/* A norm that two nodes apply, or a ReLU if it has no gamma: a convolution with a filter for each
 * channel, and the gradient of its filter, which the flag adds to another. */
static struct jm_tensor *apply_twice(struct kit *k, const struct types *t, const struct half *a,
	struct jm_tensor *w, struct jm_tensor *dz, bool add)
{
	struct jm_tensor *y[2], *z = NULL;
	struct jm_tensor *dw = backend_gradient(k, t->v, add, 4, w->dim);
	struct jm_node *n;

	for (int i = 0; i < 2; i++) {
		y[i] = kit_out(k, t->c, 4, a->x->dim, NULL);
		n = a->gamma ? jm_graph_node(k->graph, JM_OP_BN_APPLY,
				       OPS(a->x, a->mean, a->rstd, a->gamma, a->beta), &y[i])
			     : jm_graph_node(k->graph, JM_OP_RELU, OPS(a->x), &y[i]);
		if (!n)
			return NULL; /* the graph holds the error */
		n->attr.bn.relu = a->gamma;
		n->beside = true;
		n->again = i;
		if (!i)
			z = jm_graph_conv(k->graph, y[0], w, NULL,
				&(struct jm_window){.pad = 1, .groups = (int)w->dim[0]});
	}
	n = backend_node(k, JM_OP_CONV_WGRAD, OPS(dz, y[1]), OPS(dw, NULL), add);
	n->fwd = z ? jm_graph_cell(k->graph, z)->producer : NULL;
	if (n->fwd)
		n->attr = n->fwd->attr;
	return z;
}

/* The same with the gradient of the norm, which the flag adds to that of another branch. The norm
 * is of whole numbers: rounding does not decide what the ReLU lets through. */
static void batchnorm_depthwise(
	struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {d->b, d->s % 2 ? d->c : (d->c + 7) / 8 * 8, 5 + d->s % 9, 1 + d->s},
		      w_dim[] = {dim[1], 1, 3, 3};
	struct half a = {.x = kit_whole(k, t->c, 0, 15, 4, dim)};
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 4, w_dim), *z;
	struct jm_tensor *dz = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *other = add ? kit_normal(k, t->c, 0, 1, 4, dim) : NULL;
	struct jm_tensor *dy = kit_out(k, t->c, 4, dim, other);
	struct jm_node *bwd;

	a.gamma = kit_normal(k, t->v, 1, 0.05, 1, &dim[1]);
	declare_half(k, t, &a, false);
	z = apply_twice(k, t, &a, w, dz, add);
	bwd = jm_graph_node(k->graph, JM_OP_CONV_DGRAD, OPS(dz, w), &dy);
	if (!z || !bwd)
		return; /* the graph holds the error */
	kit_read(k, z);
	bwd->fwd = jm_graph_cell(k->graph, z)->producer;
	bwd->attr = bwd->fwd->attr;
	bwd->accumulate = add;
	bwd = backend_node(k, JM_OP_BN_GRAD, OPS(dy, a.x, NULL, a.gamma, a.mean, a.rstd, a.beta),
		OPS(a.dx, a.dgamma, a.dbeta), 0);
	bwd->attr.bn.relu = true;
}

/*
 * A ReLU that a convolution with a filter for each channel and the gradient of its filter apply,
 * and the gradients of the image, of the ReLU, and of a norm without ReLU before it; the flag adds
 * the second to that of another branch, without which only the norm's may read it.
 */
static void depthwise_relu_norm(
	struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {d->b, d->s % 2 ? d->c : (d->c + 7) / 8 * 8, 5 + d->s % 9, 1 + d->s},
		      w_dim[] = {dim[1], 1, 3, 3};
	struct half a = {.x = kit_normal(k, t->c, 0.5, 2, 4, dim)},
		    open = {.x = kit_normal(k, t->c, 0, 1, 4, dim)};
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 4, w_dim), *z;
	struct jm_tensor *dz = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *between =
		jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "between");
	struct jm_tensor *e = add ? backend_result(k, t->c, true, 4, dim)
				  : jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "e");
	struct jm_tensor *y = kit_out(k, t->c, 4, dim, NULL);
	struct jm_node *bwd;

	a.gamma = kit_normal(k, t->v, 1, 0.2, 1, &dim[1]);
	declare_half(k, t, &a, false);
	backend_node(k, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta), &y, 0);
	z = apply_twice(k, t, &open, w, dz, add);
	bwd = jm_graph_node(k->graph, JM_OP_CONV_DGRAD, OPS(dz, w), &between);
	if (!z || !bwd)
		return; /* the graph holds the error */
	kit_read(k, z);
	bwd->fwd = jm_graph_cell(k->graph, z)->producer;
	bwd->attr = bwd->fwd->attr;
	backend_node(k, JM_OP_RELU_GRAD, OPS(between, open.x), &e, add);
	backend_node(k, JM_OP_BN_GRAD, OPS(e, a.x, NULL, a.gamma, a.mean, a.rstd),
		OPS(a.dx, a.dgamma, a.dbeta), 0);
}

const struct backend_case backend_norms_cases[] = {
	{"batchnorm, pair", batchnorm_pair},
	{"batchnorm, again", batchnorm_again},
	{"batchnorm, pixels, again", pixels_again},
	{"batchnorm, pooled", batchnorm_pooled},
	{"batchnorm, depthwise", batchnorm_depthwise},
	{"relu, pooled", relu_pooled},
	{"relu, depthwise", depthwise_relu},
	{"relu, depthwise, norm", depthwise_relu_norm},
	{0},
};
