/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of several parts, images that grow, means of images, norms of groups; for the comparison
 * of backends with ref. */
#include "engine/graph/layer_image.h"
#include "engine/graph/layer.h"
#include "op_case.h"

static void set_parts(struct jm_node *n, int axis, struct jm_tensor *const *part)
{
	n->attr.concat.axis = axis;
	for (int i = 0; i < JM_PARTS && part[i]; i++)
		n->attr.concat.size[i] = part[i]->dim[axis];
}

/* Two to four parts along any axis, and the gradients of the odd ones; the flag adds to all
 * results. */
static void concat(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int axis = (int)d->s % 4, n = 2 + (int)d->s / 4 % 3, unit = d->c % 8 ? 1 : 8;
	struct jm_tensor *part[JM_NODE_IN] = {0}, *back[JM_NODE_OUT] = {0}, *y, *dy;
	int64_t dim[] = {d->b, d->c, 3, 2 + d->s % 3};
	int64_t all = 0;

	for (int i = 0; i < n; i++) {
		dim[axis] = unit * (i + 1);
		all += dim[axis];
		part[i] = kit_normal(k, t->c, 0, 1, 4, dim);
		back[i] = i % 2 ? backend_result(k, t->c, add, 4, dim) : NULL;
	}
	dim[axis] = all;
	back[0] = kit_out(k, t->c, 4, part[0]->dim, NULL);
	dy = kit_normal(k, t->c, 0, 1, 4, dim);
	y = backend_result(k, t->c, add, 4, dim);
	set_parts(backend_node(k, JM_OP_CONCAT, part, &y, add), axis, part);
	set_parts(backend_node(k, JM_OP_SPLIT, &dy, back, add ? 10 : 0), axis, part);
}

/* Results of two convolutions and of a pooling, in the layout that the backend has for these, and
 * back. */
static void concat_branches(struct kit *k, const struct types *t, const struct shape *d, bool wide)
{
	const int64_t from = wide ? 16 : d->c, to = wide ? 32 : d->n;
	const int64_t dim[] = {d->b, from, 5 + d->s % 7, 4 + d->s % 5};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim), *part[JM_NODE_IN] = {0}, *y;
	struct jm_tensor *back[JM_NODE_OUT] = {0}, *dx = kit_out(k, t->c, 4, dim, NULL), *w[2];
	struct jm_node *bwd;

	for (int i = 0; i < 2; i++) {
		w[i] = kit_normal(k, t->c, 0, 0.2, 4, DIMS(to, from, 1 + 2 * i, 1 + 2 * i));
		part[i] = jm_graph_conv(k->graph, x, w[i], NULL, &(struct jm_window){.pad = i});
		back[i] = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, part[i]->dim, "back");
	}
	part[2] =
		jm_graph_avgpool(k->graph, x, 3, &(struct jm_window){.stride = 1, .pad = 1}, true);
	back[2] = kit_out(k, t->c, 4, dim, NULL);
	y = jm_graph_concat(k->graph, 3, part, 1);
	if (!y)
		return;
	kit_read(k, y);
	bwd = jm_graph_node(k->graph, JM_OP_SPLIT, OPS(kit_normal(k, t->c, 0, 1, 4, y->dim)), back);
	set_parts(bwd, 1, part);
	for (int i = 0; i < 2; i++) {
		const struct jm_node *fwd = jm_graph_cell(k->graph, part[i])->producer;

		bwd = jm_graph_node(k->graph, JM_OP_CONV_DGRAD, OPS(back[i], w[i]), &dx);
		bwd->attr = fwd->attr;
		bwd->fwd = fwd;
		bwd->accumulate = (unsigned)i;
	}
	kit_read(k, dx);
	kit_read(k, back[2]);
}

/* Windows that leave the image below and to the right alone, as those of autoencoders, or there
 * further than on the other sides. */
static void conv_lopsided(struct kit *k, const struct types *t, const struct shape *d, bool further)
{
	const int64_t dim[] = {d->b, d->c, 6 + d->s % 5, 5 + d->s % 4},
		      w_dim[] = {d->n, d->c, 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim),
			 *dx = kit_out(k, t->c, 4, dim, NULL);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *dw = backend_gradient(k, t->v, false, 4, w_dim);
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, NULL,
		&(struct jm_window){.stride = 2 - further, .pad = further, .more = 1});
	struct jm_tensor *dy;
	struct jm_node *fwd, *bwd[2];

	if (!y)
		return;
	kit_read(k, y);
	dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	fwd = jm_graph_cell(k->graph, y)->producer;
	bwd[0] = backend_node(k, JM_OP_CONV_DGRAD, OPS(dy, fwd->in[1]), &dx, 0);
	bwd[1] = backend_node(k, JM_OP_CONV_WGRAD, OPS(dy, x), OPS(dw, NULL), 0);
	for (int i = 0; i < 2; i++) {
		bwd[i]->attr = fwd->attr;
		bwd[i]->fwd = fwd;
	}
}

/* The flag adds to results. */
static void upsample(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const bool one = d->s % 4 == 3; /* each image is a single pixel */
	const int64_t dim[] = {d->b, d->c, one ? 1 : 3 + d->s % 3, one ? 1 : 2 + d->s % 5};
	const int times = one ? 13 : 2 + (int)(d->s % 2);
	const int64_t wide[] = {dim[0], dim[1], dim[2] * times, dim[3] * times};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, wide);
	struct jm_tensor *y = backend_result(k, t->c, add, 4, wide);
	struct jm_tensor *dx = backend_result(k, t->c, add, 4, dim);
	struct jm_node *n[] = {backend_node(k, JM_OP_UPSAMPLE, &x, &y, add),
		backend_node(k, JM_OP_UPSAMPLE_GRAD, &dy, &dx, add)};

	for (int i = 0; i < 2; i++)
		for (int axis = 0; axis < 2; axis++)
			n[i]->attr.pool.kernel[axis] = n[i]->attr.pool.stride[axis] = times;
}

/* A pixel that grows to an image, which is added to another one. The flag: another node reads it,
 * too. */
static void upsample_add(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const int times = 3 + (int)(d->s % 7);
	const int64_t wide[] = {d->b, d->c, times, times};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, DIMS(d->b, d->c, 1, 1));
	struct jm_tensor *image = kit_normal(k, t->c, 0, 1, 4, wide);
	struct jm_tensor *large = jm_graph_upsample(k->graph, x, times);
	struct jm_tensor *y = kit_out(k, t->c, 4, wide, NULL);

	backend_node(k, JM_OP_ADD, OPS(image, large), &y, 0);
	if (keep)
		kit_read(k, large);
}

/* A convolution of an image that grows, and its gradients, for which the image grows again. The
 * flag: gradients are added to. */
static void upsample_conv(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t unit = d->s % 3 ? 8 : 1, c = unit * (1 + d->c % 7), n = unit * (1 + d->n % 9);
	const int64_t dim[] = {d->b, c, 3 + d->s % 6, 2 + d->s % 5}, w_dim[] = {n, c, 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *bias = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(n)) : NULL;
	struct jm_tensor *large = jm_graph_upsample(k->graph, x, 2);
	struct jm_tensor *y =
		jm_graph_conv(k->graph, large, w, bias, &(struct jm_window){.stride = 1, .pad = 1});
	struct jm_tensor *dy, *again, *dlarge, *dx;
	struct jm_node *fwd, *grown, *bwd[4];

	if (!y)
		return;
	kit_read(k, y);
	fwd = jm_graph_cell(k->graph, y)->producer;
	grown = jm_graph_cell(k->graph, large)->producer;
	dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	again = kit_out(k, t->c, 4, large->dim, NULL);
	dlarge = kit_out(k, t->c, 4, large->dim, NULL);
	dx = backend_result(k, t->c, add, 4, dim);
	bwd[0] = jm_graph_node(k->graph, JM_OP_UPSAMPLE, &x, &again);
	bwd[1] = backend_node(k, JM_OP_CONV_WGRAD, OPS(dy, again),
		OPS(backend_gradient(k, t->v, add, 4, w_dim),
			bias ? backend_result(k, t->v, add, 1, DIMS(n)) : NULL),
		add ? JM_ADD_OUT | (bias ? JM_ADD_WGRAD_DBIAS : 0) : 0);
	bwd[2] = jm_graph_node(k->graph, JM_OP_CONV_DGRAD, OPS(dy, w), &dlarge);
	bwd[3] = backend_node(k, JM_OP_UPSAMPLE_GRAD, &dlarge, &dx, add);
	if (k->graph->err.code)
		return;
	for (int i = 0; i < 4; i++)
		bwd[i]->attr = i % 3 ? fwd->attr : grown->attr;
}

/* A convolution with a bias whose result is added to another image or to its own, in both orders;
 * of one or of nine pixels. The flag: the result is read, too, or the sum is normed. */
static void conv_add(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const int64_t unit = d->s % 3 ? 8 : 1, n = unit * (1 + d->n % 9),
		      c = d->b > 1 ? n : unit * (1 + d->c % 7), side = d->s % 2 ? 3 : 1;
	const int64_t dim[] = {d->b, c, 3 + d->s % 6, 2 + d->s % 5}, w_dim[] = {n, c, side, side};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *bias = kit_normal(k, t->v, 0, 1, 1, DIMS(n)), *image = x;
	struct jm_tensor *y, *sum;

	if (d->b == 1)
		image = kit_normal(k, t->c, 0, 1, 4, DIMS(d->b, n, dim[2], dim[3]));
	y = jm_graph_conv(
		k->graph, x, w, bias, &(struct jm_window){.stride = 1, .pad = (int)side / 2});
	if (!y)
		return;
	sum = d->s % 4 < 2 ? jm_graph_add(k->graph, y, image) : jm_graph_add(k->graph, image, y);
	kit_read(k, sum);
	if (keep && d->s % 2)
		kit_read(k, y);
	else if (keep)
		kit_read(k, jm_graph_relu(k->graph, sum));
}

/* A window of 3 x 3 over many channels, and the gradient of the image. The flag: a ReLU follows, or
 * another image is added to the result, and the gradient to what is there. */
static void conv_many(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t n = 64 + 8 * (d->n % 6), c = 64 + 8 * (d->c % 5);
	const int64_t x_dim[] = {d->b, c, 1 + d->s % 19, 1 + d->s % 11};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.05, 4, DIMS(n, c, 3, 3));
	struct jm_tensor *bias = d->b > 1 || add ? kit_normal(k, t->v, 0, 1, 1, DIMS(n)) : NULL;
	struct jm_tensor *y =
		jm_graph_conv(k->graph, x, w, bias, &(struct jm_window){.stride = 1, .pad = 1});
	struct jm_tensor *dx = backend_result(k, t->c, add, 4, x_dim), *dy, *end = y;
	struct jm_node *fwd, *bwd;

	if (!y)
		return;
	fwd = jm_graph_cell(k->graph, y)->producer;
	dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	if (add && d->s % 2)
		end = jm_graph_relu(k->graph, y);
	else if (add)
		end = jm_graph_add(k->graph, y, kit_normal(k, t->c, 0, 1, 4, y->dim));
	kit_read(k, end);
	bwd = backend_node(k, JM_OP_CONV_DGRAD, OPS(dy, w), &dx, add);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
}

/* One to four groups; odd sizes apply SiLU, and each third image is so large that a backend may
 * divide its pixels. The flag: results are added to, but for the statistics. */
static void groupnorm_of(
	struct kit *k, const struct types *t, const struct shape *d, int groups, bool add)
{
	const int64_t dim[] = {
		d->b, (d->c + groups - 1) / groups * groups, d->s % 3 ? 7 : 150, 2 + d->s % 5};
	const int64_t *c = &dim[1];
	struct jm_tensor *x = kit_normal(k, t->c, 0.5, 2, 4, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, c);
	struct jm_tensor *beta = kit_normal(k, t->v, 0, 1, 1, c);
	struct jm_tensor *mean = kit_out(k, t->v, 2, DIMS(d->b, groups), NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, DIMS(d->b, groups), NULL);
	struct jm_tensor *y = backend_result(k, t->c, add, 4, dim);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *dx = backend_result(k, t->c, add, 4, dim);
	struct jm_tensor *dgamma = backend_result(k, t->v, add, 1, c);
	struct jm_tensor *dbeta = backend_result(k, t->v, add, 1, c);
	struct jm_node *n[] = {
		backend_node(k, JM_OP_GROUPNORM, OPS(x, gamma, beta), OPS(y, mean, rstd), add),
		backend_node(k, JM_OP_GROUPNORM_GRAD, OPS(dy, x, gamma, beta, mean, rstd),
			OPS(dx, dgamma, dbeta), add ? 7 : 0)};

	for (int i = 0; i < 2; i++) {
		n[i]->attr.group.groups = groups;
		n[i]->attr.group.eps = 1e-5;
		n[i]->attr.group.silu = d->s % 2;
	}
}

static void groupnorm(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	groupnorm_of(k, t, d, 1 + (int)(d->s + d->b) % 4, add);
}

/* Groups of 10 to 40 channels, of which a backend may cut slices of some at a time. */
static void groupnorm_slices(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int groups = d->b > 2 ? 4 : 16;
	struct shape slices = *d;

	slices.b = 1 + d->b % 2;
	slices.c = groups * (d->s % 2 ? 10 : 20) * (groups > 4 ? 1 : 2);
	groupnorm_of(k, t, &slices, groups, add);
}

/* The norm of x, and x after it where the flag says that another node reads it. */
static void norm_of_made(struct kit *k, const struct types *t, const struct shape *d,
	struct jm_tensor *x, int groups, bool keep)
{
	const int64_t *c = &x->dim[1];
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, c);
	struct jm_tensor *beta = kit_normal(k, t->v, 0, 1, 1, c);
	struct jm_tensor *mean = kit_out(k, t->v, 2, DIMS(x->dim[0], groups), NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 2, DIMS(x->dim[0], groups), NULL);
	struct jm_tensor *y = kit_out(k, t->c, 4, x->dim, NULL);
	struct jm_node *n =
		backend_node(k, JM_OP_GROUPNORM, OPS(x, gamma, beta), OPS(y, mean, rstd), 0);

	n->attr.group.groups = groups;
	n->attr.group.eps = 1e-5;
	n->attr.group.silu = d->s % 2;
	if (keep)
		kit_read(k, x);
}

/* Of the sum of two images, the second of which is a single pixel that grows if the size is a
 * multiple of three. */
static void add_groupnorm(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const bool grows = d->s % 3 == 0;
	const int groups = 1 + (int)(d->b % 3), side = d->c % 2 ? 27 : 5;
	const int64_t dim[] = {d->b, (d->c % 3 ? 8 : 3) * groups, side, side};
	struct jm_tensor *image = kit_normal(k, t->c, 0.5, 2, 4, dim), *other, *x;

	other = kit_normal(k, t->c, 0, 1, 4, grows ? DIMS(dim[0], dim[1], 1, 1) : dim);
	if (grows)
		other = jm_graph_upsample(k->graph, other, side);
	x = kit_out(k, t->c, 4, dim, NULL);
	if (!x || !jm_graph_node(k->graph, JM_OP_ADD, OPS(image, other), &x))
		return;
	norm_of_made(k, t, d, x, groups, keep);
}

/* Of two to four images side by side. */
static void concat_groupnorm(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const int groups = 1 + (int)(d->b % 3), unit = d->c % 3 ? 8 : 3, n = 2 + (int)d->s / 2 % 3;
	struct jm_tensor *part[JM_NODE_IN] = {0}, *x;
	int64_t dim[] = {d->b, 0, d->s % 3 ? 7 : 150, 2 + d->s % 5};

	for (int i = 0; i < n; i++) {
		dim[1] = unit * groups * (1 + i % 2);
		part[i] = kit_normal(k, t->c, i, 1 + i, 4, dim);
	}
	x = jm_graph_concat(k->graph, n, part, 1);
	if (x)
		norm_of_made(k, t, d, x, groups, keep);
}

/* The gradient of a norm of two or three parts side by side, and its parts, one of which may be
 * unwanted; odd sizes add it to another one. The flag: another node reads it as a whole, too. */
static void groupnorm_split(struct kit *k, const struct types *t, const struct shape *d, bool keep)
{
	const int groups = 2 + (int)(d->b % 3), n = 2 + (int)(d->s / 2 % 2),
		  unit = d->c % 3 ? 8 : 3;
	int64_t dim[] = {1 + d->b % 2, 0, d->s % 3 ? 7 : 150, 2 + d->s % 5}, all = 0;
	struct jm_tensor *back[JM_NODE_OUT] = {0}, *in[JM_NODE_IN] = {0}, *dx, *dgamma, *dbeta;
	struct jm_node *grad, *split;

	for (int i = 0; i < n; i++) {
		dim[1] = unit * groups * (i + 1);
		all += dim[1];
		back[i] = i == 1 && d->s % 4 == 3 ? NULL : kit_out(k, t->c, 4, dim, NULL);
	}
	dim[1] = all;
	for (int i = 0; i < 2; i++)
		in[i] = kit_normal(k, t->c, i * 0.5, 1 + i, 4, dim);
	for (int i = 2; i < 4; i++)
		in[i] = kit_normal(k, t->v, 3 - i, 0.5, 1, &all);
	for (int i = 4; i < 6; i++)
		in[i] = kit_normal(k, t->v, i - 4, 0.1, 2, DIMS(dim[0], groups));
	dx = backend_result(k, t->c, d->s % 2, 4, dim);
	dgamma = kit_out(k, t->v, 1, &all, NULL);
	dbeta = kit_out(k, t->v, 1, &all, NULL);
	grad = jm_graph_node(k->graph, JM_OP_GROUPNORM_GRAD, in, OPS(dx, dgamma, dbeta));
	split = jm_graph_node(k->graph, JM_OP_SPLIT, &dx, back);
	if (!grad || !split)
		return;
	grad->attr.group.groups = groups;
	grad->attr.group.eps = 1e-5;
	grad->attr.group.silu = d->s / 2 % 2;
	grad->accumulate = d->s % 2 ? JM_ADD_OUT : 0;
	split->attr.concat.axis = 1;
	for (int i = 0; i < n; i++) {
		split->attr.concat.size[i] = unit * groups * (i + 1);
		if (back[i])
			kit_read(k, back[i]);
	}
	kit_read(k, dgamma);
	kit_read(k, dbeta);
	if (keep)
		kit_read(k, dx);
}

/* Rows in place of others: of some sequences (those with a position below 0 keep theirs), with one
 * sequence of all but the first; the flag adds to all results. */
static void put_rows(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t places = 3, dim[] = {d->b, d->s + places, d->c}, few[] = {d->b, places, d->c};
	struct jm_tensor *x = kit_normal(k, t->a, 0, 1, 3, dim);
	struct jm_tensor *rows = kit_normal(k, t->c, 0, 1, 3, few);
	struct jm_tensor *at = kit_whole(k, JM_I32, d->b > 1 ? -1 : 0, (int)d->s, 1, DIMS(d->b));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 3, dim);
	struct jm_tensor *y = backend_result(k, t->a, add, 3, dim);
	struct jm_tensor *dx = backend_result(k, t->a, add, 3, dim);
	struct jm_tensor *drows = d->s % 2 ? backend_result(k, t->c, add, 3, few) : NULL;
	struct jm_node *n[] = {backend_node(k, JM_OP_PUT_ROWS, OPS(x, rows, at), &y, add),
		backend_node(k, JM_OP_PUT_ROWS_GRAD, OPS(dy, at), OPS(dx, drows), add ? 3 : 0)};

	for (int i = 0; i < 2; i++)
		n[i]->attr.put.places = places;
}

static void gap(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, IMAGE(d));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 2, DIMS(d->b, d->c));
	struct jm_tensor *y = backend_result(k, t->c, accumulate, 2, DIMS(d->b, d->c));
	struct jm_tensor *dx = backend_result(k, t->c, accumulate, 4, x->dim);

	backend_node(k, JM_OP_GAP, &x, &y, accumulate);
	backend_node(k, JM_OP_GAP_GRAD, &dy, &dx, accumulate);
}

const struct backend_case backend_parts_cases[] = {
	{"conv, lopsided", conv_lopsided},
	{"upsample", upsample},
	{"upsample + conv", upsample_conv},
	{"upsample + add", upsample_add},
	{"conv + add", conv_add},
	{"conv, many channels", conv_many},
	{"groupnorm", groupnorm},
	{"groupnorm, slices", groupnorm_slices},
	{"add + groupnorm", add_groupnorm},
	{"concat + groupnorm", concat_groupnorm},
	{"groupnorm-grad + split", groupnorm_split},
	{"put-rows", put_rows},
	{"concat", concat},
	{"concat, branches", concat_branches},
	{"gap", gap},
	{0},
};
