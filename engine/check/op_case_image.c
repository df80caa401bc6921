/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on images, for the comparison of backends with ref. */
#include "engine/graph/layer.h"
#include "engine/graph/layer_image.h"
#include "op_case.h"

struct jm_tensor *backend_result(
	struct kit *k, enum jm_dtype type, bool add, int rank, const int64_t *dim)
{
	return kit_out(k, type, rank, dim, add ? kit_normal(k, type, 0, 1, rank, dim) : NULL);
}

struct jm_tensor *backend_total(struct kit *k, enum jm_dtype type, bool add)
{
	return kit_out(k, type, 1, DIMS(1), add ? kit_normal(k, type, 2, 0.1, 1, DIMS(1)) : NULL);
}

struct jm_tensor *backend_gradient(
	struct kit *k, enum jm_dtype type, bool add, int rank, const int64_t *dim)
{
	struct jm_tensor *t = backend_result(k, type, add, rank, dim);

	if (t)
		t->class = JM_CLASS_GRAD;
	return t;
}

struct jm_node *backend_node(struct kit *k, enum jm_op op, struct jm_tensor **in,
	struct jm_tensor **out, unsigned accumulate)
{
	struct jm_node *n = jm_graph_node(k->graph, op, in, out);

	if (!n) {
		k->spare = (struct jm_node){.op = op};
		return &k->spare;
	}
	n->accumulate = accumulate;
	for (int i = 0; i < n->n_out; i++)
		if (out[i])
			kit_read(k, out[i]);
	return n;
}

/* The image with its channels last, as an activation; ref uses plain tensors only. */
static struct jm_tensor *laid_last(struct kit *k, struct jm_tensor *from, const char *name)
{
	struct jm_tensor *t =
		jm_graph_tensor(k->graph, JM_CLASS_ACT, from->type, from->rank, from->dim, name);

	if (strcmp(k->device.backend->name, "ref") != 0)
		t->layout = (struct jm_layout){.rank = 4, .order = {0, 2, 3, 1}};
	t->bytes = jm_layout_bytes(t, &t->layout);
	jm_graph_node(k->graph, JM_OP_CAST, OPS(from), &t);
	return t;
}

/* Has the name that test_backend.c searches to check that the layout is kept. */
static struct jm_tensor *channels_last(struct kit *k, struct jm_tensor *from)
{
	return laid_last(k, from, "last");
}

/* Both gradients of the convolution that made y. */
static void conv_back(struct kit *k, struct jm_tensor *y, struct jm_tensor *dy,
	struct jm_tensor *dx, struct jm_tensor *dw, struct jm_tensor *db, bool add)
{
	struct jm_node *fwd = jm_graph_cell(k->graph, y)->producer, *bwd[2];

	bwd[0] = backend_node(k, JM_OP_CONV_DGRAD, OPS(dy, fwd->in[1]), &dx, add);
	bwd[1] = backend_node(k, JM_OP_CONV_WGRAD, OPS(dy, fwd->in[0]), OPS(dw, db),
		add ? JM_ADD_OUT | (db ? JM_ADD_WGRAD_DBIAS : 0) : 0);
	for (int i = 0; i < 2; i++) {
		bwd[i]->attr = fwd->attr;
		bwd[i]->fwd = fwd;
	}
}

/* Forward and both gradients. The flag: a window of 1 x 1 with stride 2; else 3 x 3, in groups if
 * possible. */
static void conv(struct kit *k, const struct types *t, const struct shape *d, bool small)
{
	int size = small ? 1 : 3, groups = !small && d->c % 4 == 0 && d->n % 4 == 0 ? 4 : 1;
	const int64_t *x_dim = IMAGE(d);
	const int64_t w_dim[] = {d->n, d->c / groups, size, size};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *bias = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(d->n)) : NULL;
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, bias,
		&(struct jm_window){
			.stride = small ? 2 : 1, .pad = small ? 0 : 1, .groups = groups});
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	struct jm_tensor *dx = kit_out(k, t->c, 4, x_dim, NULL);
	struct jm_tensor *dw = backend_gradient(k, t->a, false, 4, w_dim);
	struct jm_tensor *db = bias ? kit_out(k, t->v, 1, DIMS(d->n), NULL) : NULL;

	kit_read(k, y);
	conv_back(k, y, dy, dx, dw, db, false);
}

/* A window of one pixel over images with channels last: a product of matrices. */
static void conv_pixel(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t *x_dim = IMAGE(d), w_dim[] = {d->n, d->c, 1, 1};
	struct jm_tensor *x = channels_last(k, kit_normal(k, t->c, 0, 1, 4, x_dim));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *bias = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(d->n)) : NULL;
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, bias, &(struct jm_window){.stride = 1});
	struct jm_tensor *dy = channels_last(k, kit_normal(k, t->c, 0, 1, 4, y->dim));
	struct jm_tensor *dx = add ? channels_last(k, kit_normal(k, t->c, 0, 1, 4, x_dim))
				   : kit_out(k, t->c, 4, x_dim, NULL);
	struct jm_tensor *dw = backend_gradient(k, t->a, add, 4, w_dim);
	struct jm_tensor *db = bias ? backend_result(k, t->v, add, 1, DIMS(d->n)) : NULL;

	kit_read(k, y);
	conv_back(k, y, dy, dx, dw, db, add);
}

/* Windows of one pixel that skip pixels or include padding. With a stride the gradients are added
 * to what is there. */
static void conv_step(struct kit *k, const struct types *t, const struct shape *d, bool pad)
{
	const int64_t w_dim[] = {d->n, d->c, 1, 1};
	struct jm_tensor *x = laid_last(k, kit_normal(k, t->c, 0, 1, 4, IMAGE(d)), "image");
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *y = jm_graph_conv(
		k->graph, x, w, NULL, &(struct jm_window){.stride = 2 - pad, .pad = pad});
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);

	kit_read(k, y);
	conv_back(k, y, laid_last(k, dy, "gradient"), backend_result(k, t->c, !pad, 4, x->dim),
		backend_result(k, t->v, !pad, 4, w_dim), NULL, !pad);
}

/* A convolution that adds to its result. */
static void conv_onto(struct kit *k, const struct types *t, const struct shape *d, bool small)
{
	const int64_t w_dim[] = {d->n, d->c, small ? 1 : 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, IMAGE(d));
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *alone =
		jm_graph_conv(k->graph, x, w, NULL, &(struct jm_window){.pad = 1});
	struct jm_tensor *y = backend_result(k, t->c, true, 4, alone->dim);

	kit_read(k, alone);
	backend_node(k, JM_OP_CONV, OPS(x, w), &y, 1)->attr =
		jm_graph_cell(k->graph, alone)->producer->attr;
}

/* Large images, which backends that widen them convert a few at a time, except for the gradient of
 * a bias. */
static void conv_large(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t x_dim[] = {4, 8, 512, 514}, w_dim[] = {8, 8, 1, 1};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, NULL, &(struct jm_window){.stride = 1});

	(void)d;
	kit_read(k, y);
	conv_back(k, y, kit_normal(k, t->c, 0, 1, 4, x_dim), backend_result(k, t->c, add, 4, x_dim),
		backend_result(k, t->v, add, 4, w_dim), NULL, add);
}

const struct backend_case backend_large_case = {"conv, large", conv_large};

/* Two convolutions that read one image: the second gradient is added to the first. */
static void conv_sum(struct kit *k, const struct types *t, const struct shape *d, bool small)
{
	int size = small ? 1 : 3;
	const int64_t *x_dim = IMAGE(d), w_dim[] = {d->n, d->c, size, size};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim),
			 *dx = kit_out(k, t->c, 4, x_dim, NULL);

	for (int i = 0; i < 2; i++) {
		struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
		struct jm_tensor *y = jm_graph_conv(k->graph, x, w, NULL,
			&(struct jm_window){.stride = 2 - small, .pad = size / 2});
		struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
		struct jm_node *fwd = jm_graph_cell(k->graph, y)->producer, *bwd;

		bwd = jm_graph_node(k->graph, JM_OP_CONV_DGRAD, OPS(dy, w), &dx);
		bwd->accumulate = (unsigned)i;
		bwd->attr = fwd->attr;
		bwd->fwd = fwd;
	}
	kit_read(k, dx);
}

/* The first layer: a large window with a stride, or a small one, over three channels; the flag:
 * adds to gradients of weights. */
static void conv_stem(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	const int step = 1 + (int)d->s % 3, size = step == 2 ? 7 : 3;
	const int64_t x_dim[] = {d->b, 3, 19, 22}, w_dim[] = {d->n, 3, size, size};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.1, 4, w_dim);
	struct jm_tensor *y = jm_graph_conv(
		k->graph, x, w, NULL, &(struct jm_window){.stride = step, .pad = size / 2});
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	struct jm_tensor *dw = backend_result(k, t->v, accumulate, 4, w_dim);
	struct jm_tensor *db = d->b > 1 ? backend_result(k, t->v, accumulate, 1, DIMS(d->n)) : NULL;
	struct jm_node *fwd = jm_graph_cell(k->graph, y)->producer, *bwd;

	kit_read(k, y);
	bwd = backend_node(k, JM_OP_CONV_WGRAD, OPS(dy, x), OPS(dw, db),
		accumulate ? JM_ADD_OUT | (db ? JM_ADD_WGRAD_DBIAS : 0) : 0);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
}

/* The gradient of a filter of 3 x 3 with as many channels as fast kernels need, two tiles of them,
 * or few (odd d->s), also of single wide images; the flag: wide images, most with strides, and adds
 * to what is there. Two images have a bias, whose gradient is computed as well. */
static void conv_filter(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const bool few = !add && d->s % 2, strides = add && d->b != 2;
	const int64_t channels = few ? 32 : strides ? 64 : 128, filters = few && d->b % 2 ? 32 : 64;
	const int64_t width = few	  ? 80 + 3 * d->s
			      : d->b == 1 ? 4 + 2 * d->s
					  : 4 + d->s % (add ? 53 : 21);
	const int64_t x_dim[] = {d->b, channels, 2 + d->s % 9, width},
		      y_dim[] = {x_dim[0], filters, (x_dim[2] + strides) / (1 + strides),
			      (x_dim[3] + strides) / (1 + strides)};
	struct jm_tensor *x = laid_last(k, kit_normal(k, t->c, 0, 1, 4, x_dim), "image");
	struct jm_tensor *dy = laid_last(k, kit_normal(k, t->c, 0, 1, 4, y_dim), "gradient");
	struct jm_tensor *dw = backend_gradient(k, t->v, add, 4, DIMS(filters, channels, 3, 3));
	struct jm_tensor *db =
		!few && d->b == 2 ? backend_result(k, t->v, add, 1, DIMS(filters)) : NULL;
	struct jm_node *n = backend_node(k, JM_OP_CONV_WGRAD, OPS(dy, x), OPS(dw, db),
		add ? JM_ADD_OUT | (db ? JM_ADD_WGRAD_DBIAS : 0) : 0);

	n->attr.conv.groups = 1;
	for (int i = 0; i < 2; i++) {
		n->attr.conv.stride[i] = 1 + strides;
		n->attr.conv.pad[i] = n->attr.conv.dilation[i] = 1;
	}
}

static void conv_depthwise(struct kit *k, const struct types *t, const struct shape *d, bool far)
{
	const int64_t x_dim[] = {d->b, d->c, 5 + d->s % 9, 1 + d->s}, w_dim[] = {d->c, 1, 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.3, 4, w_dim);
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, NULL,
		&(struct jm_window){
			.pad = far ? 3 : 1, .groups = (int)d->c, .dilation = far ? 3 : 1});
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	struct jm_tensor *dx = kit_out(k, t->c, 4, x_dim, NULL);
	struct jm_tensor *dw = kit_out(k, t->v, 4, w_dim, NULL);

	kit_read(k, y);
	conv_back(k, y, dy, dx, dw, NULL, false);
}

/*
 * A convolution with bias and ReLU, then the gradients of a ReLU, of the filter and of the bias.
 * The result of another ReLU opens that one: which elements are 0 depends on roundings. With three
 * channels only the filter reads its gradient.
 */
static void conv_relu(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t c = d->s % 2 ? d->c : 3, x_dim[] = {d->b, c, 7 + d->s % 5, 5 + d->s % 3},
		      w_dim[] = {d->n, c, 3, 3};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *bias = kit_normal(k, t->v, 0, 1, 1, DIMS(d->n));
	struct jm_tensor *sums =
		jm_graph_conv(k->graph, x, w, bias, &(struct jm_window){.stride = 1, .pad = 1});
	struct jm_node *fwd = jm_graph_cell(k->graph, sums)->producer, *bwd;
	struct jm_tensor *y = jm_graph_relu(k->graph, sums);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	struct jm_tensor *other = kit_normal(k, t->c, 0, 1, 4, y->dim);
	struct jm_tensor *e = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, y->dim, "e");

	kit_read(k, y);
	jm_graph_node(k->graph, JM_OP_RELU_GRAD, OPS(dy, other), &e);
	bwd = backend_node(k, JM_OP_CONV_WGRAD, OPS(e, x),
		OPS(backend_gradient(k, t->a, add, 4, w_dim),
			backend_result(k, t->v, add, 1, DIMS(d->n))),
		add ? JM_ADD_OUT | JM_ADD_WGRAD_DBIAS : 0);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
	if (c != 3)
		kit_read(k, e);
}

/* The window is the whole image, as where a VGG's images become vectors. */
static void conv_whole(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t x_dim[] = {d->b, d->c, 3, 1 + d->s % 5}, w_dim[] = {d->n, d->c, 3, x_dim[3]};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.1, 4, w_dim);
	struct jm_tensor *bias = kit_normal(k, t->v, 0, 1, 1, DIMS(d->n));
	struct jm_tensor *y = jm_graph_conv(k->graph, x, w, bias, &(struct jm_window){.stride = 1});
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, y->dim);

	kit_read(k, y);
	conv_back(k, y, dy, backend_result(k, t->c, add, 4, x_dim),
		backend_gradient(k, t->a, add, 4, w_dim),
		backend_result(k, t->v, add, 1, DIMS(d->n)), add);
}

/* A window of 1 x 7, padded along its width only; the flag: of 7 x 1. */
static void conv_flat(struct kit *k, const struct types *t, const struct shape *d, bool tall)
{
	const int64_t *x_dim = IMAGE(d), w_dim[] = {d->n, d->c, tall ? 7 : 1, tall ? 1 : 7};
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, x_dim);
	struct jm_tensor *w = kit_normal(k, t->c, 0, 0.2, 4, w_dim);
	struct jm_tensor *y =
		jm_graph_conv(k->graph, x, w, NULL, &(struct jm_window){.same = true});

	kit_read(k, y);
	conv_back(k, y, kit_normal(k, t->c, 0, 1, 4, y->dim), kit_out(k, t->c, 4, x_dim, NULL),
		backend_gradient(k, t->a, false, 4, w_dim), NULL, false);
}

/* A sum of tensors in different layouts. */
static void cast_sum(struct kit *k, const struct types *t, const struct shape *d, bool back)
{
	struct jm_tensor *x = kit_normal(k, back ? t->c : t->v, 0, 1, 4, IMAGE(d));
	struct jm_tensor *before = kit_normal(k, back ? t->v : t->c, 0, 1, 4, x->dim);

	backend_node(k, JM_OP_CAST, &x, OPS(laid_last(k, before, "sum")), 1);
}

struct norms {
	struct jm_tensor *x, *with, *dy, *gamma, *beta, *mean, *var, *rstd, *rmean, *rvar;
	struct jm_tensor *y, *dx, *dgamma, *dbeta, *dwith;
	bool relu;
	struct jm_tensor *dz,
		*filter; /* dy is the gradient of a convolution's image; NULL = it is given */
	bool add_filtered;
	bool by_y; /* the gradient reads the result of the ReLU also where x would suffice */
	unsigned add, add_grad; /* accumulate of bn-apply and bn-grad */
};

/* A convolution of single pixels, or the gradient of its image. */
static struct jm_node *declare_pixels(
	struct kit *k, enum jm_op op, struct jm_tensor *x, struct jm_tensor *w, struct jm_tensor *y)
{
	struct jm_node *n = jm_graph_node(k->graph, op, OPS(x, w), &y);

	n->attr.conv.groups = 1;
	for (int i = 0; i < 2; i++)
		n->attr.conv.stride[i] = n->attr.conv.dilation[i] = 1;
	return n;
}

/* Statistics, finalize, apply with a sum and ReLU, and the gradient; makes operands that are
 * absent. */
static void declare_norms(struct kit *k, const struct types *t, struct norms *n)
{
	const int64_t *c = DIMS(n->x->dim[1]), count = jm_tensor_count(n->x) / c[0];
	bool by_y = n->by_y || n->with || n->add;
	struct jm_node *node[4];

	n->gamma = kit_normal(k, t->v, 1, 0.2, 1, c);
	n->beta = kit_normal(k, t->v, 0, 1, 1, c);
	n->mean = kit_out(k, t->v, 1, c, NULL);
	n->var = kit_out(k, t->v, 1, c, NULL);
	n->rstd = kit_out(k, t->v, 1, c, NULL);
	n->rmean = jm_graph_tensor(k->graph, JM_CLASS_STATE, t->v, 1, c, "rmean");
	n->rvar = jm_graph_tensor(k->graph, JM_CLASS_STATE, t->v, 1, c, "rvar");
	n->dgamma = backend_result(k, t->v, n->add_grad & JM_ADD_NORM_DGAMMA, 1, c);
	n->dbeta = backend_result(k, t->v, n->add_grad & JM_ADD_NORM_DBETA, 1, c);
	node[0] = jm_graph_node(k->graph, JM_OP_BN_STATS, OPS(n->x), OPS(n->mean, n->var));
	node[1] = jm_graph_node(
		k->graph, JM_OP_BN_FINALIZE, OPS(n->mean, n->var), OPS(n->rstd, n->rmean, n->rvar));
	node[2] = jm_graph_node(k->graph, JM_OP_BN_APPLY,
		OPS(n->x, n->mean, n->rstd, n->gamma, n->beta, n->with), &n->y);
	if (n->filter)
		declare_pixels(k, JM_OP_CONV_DGRAD, n->dz, n->filter, n->dy)->accumulate =
			n->add_filtered;
	node[3] = jm_graph_node(k->graph, JM_OP_BN_GRAD,
		OPS(n->dy, n->x, n->relu && by_y ? n->y : NULL, n->gamma, n->mean, n->rstd,
			n->relu && !by_y ? n->beta : NULL),
		OPS(n->dx, n->dgamma, n->dbeta, n->dwith));
	node[2]->accumulate = n->add;
	node[3]->accumulate = n->add_grad;
	node[3]->fwd = node[2];
	for (int i = 0; i < 4; i++) {
		node[i]->attr.bn.eps = 1e-5;
		node[i]->attr.bn.momentum = 0.1;
		node[i]->attr.bn.count = count;
		node[i]->attr.bn.relu = i > 1 && n->relu;
	}
	struct jm_tensor *all[] = {
		n->mean, n->rstd, n->rmean, n->rvar, n->y, n->dx, n->dgamma, n->dbeta, n->dwith};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i])
			kit_read(k, all[i]);
}

/* Even batches have no sum; the flag omits the ReLU and adds to the parameters' gradients. */
static void batchnorm_of(
	struct kit *k, const struct types *t, const struct shape *d, const int64_t *dim, bool plain)
{
	struct norms n = {.x = kit_normal(k, t->c, 0.5, 2, 4, dim),
		.with = d->b % 2 ? kit_normal(k, t->c, 0, 1, 4, dim) : NULL,
		.dy = kit_normal(k, t->c, 0, 1, 4, dim),
		.y = kit_out(k, t->c, 4, dim, NULL),
		.dx = kit_out(k, t->c, 4, dim, NULL),
		.dwith = d->b % 2 ? kit_out(k, t->c, 4, dim, NULL) : NULL,
		.relu = !plain,
		.by_y = d->s % 2,
		.add_grad = plain ? JM_ADD_NORM_DGAMMA | JM_ADD_NORM_DBETA : 0};

	declare_norms(k, t, &n);
}

static void batchnorm(struct kit *k, const struct types *t, const struct shape *d, bool plain)
{
	batchnorm_of(k, t, d, IMAGE(d), plain);
}

/* One value per channel has no variance; the running variance must stay finite. */
static void batchnorm_one(struct kit *k, const struct types *t, const struct shape *d, bool plain)
{
	batchnorm_of(k, t, d, DIMS(1, d->c, 1, 1), plain);
}

/* The same with channels last, also with many channels and rows; the flag adds to every result. */
static void batchnorm_last(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	bool wide = d->c == 256;
	const int64_t dim[] = {d->b, wide ? 773 : d->c, 7 + d->s % 5, wide ? 11 : 5 + d->s};
	bool sum = d->b % 2;
	struct norms n = {.relu = d->c % 2 || !add,
		.by_y = d->s % 2,
		.add = add,
		.add_grad = add ? JM_ADD_NORM_GRAD : 0};
	struct jm_tensor **before[] = {&n.y, &n.dx, sum ? &n.dwith : NULL};

	n.x = channels_last(k, kit_normal(k, t->c, 5, 2, 4, dim));
	n.dy = channels_last(k, kit_normal(k, t->c, 0, 1, 4, dim));
	n.with = sum ? channels_last(k, kit_normal(k, t->c, 0, 1, 4, dim)) : NULL;
	for (int i = 0; i < 3 && before[i]; i++)
		*before[i] = add ? channels_last(k, kit_normal(k, t->c, 0, 1, 4, dim))
				 : kit_out(k, t->c, 4, dim, NULL);
	declare_norms(k, t, &n);
}

/* Statistics of one image that are applied to another, so that they cannot be fused. */
static void batchnorm_other(struct kit *k, const struct types *t, const struct shape *d, bool relu)
{
	const int64_t *dim = IMAGE(d), *c = DIMS(d->c);
	struct jm_tensor *x = kit_normal(k, t->c, 0.5, 2, 4, dim);
	struct jm_tensor *other = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, c);
	struct jm_tensor *beta = kit_normal(k, t->v, 0, 1, 1, c);
	struct jm_tensor *mean = kit_out(k, t->v, 1, c, NULL), *var = kit_out(k, t->v, 1, c, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 1, c, NULL), *y = kit_out(k, t->c, 4, dim, NULL);

	jm_graph_node(k->graph, JM_OP_BN_STATS, OPS(x), OPS(mean, var));
	jm_graph_node(k->graph, JM_OP_BN_FINALIZE, OPS(mean, var), OPS(rstd))->attr.bn.eps = 1e-5;
	backend_node(k, JM_OP_BN_APPLY, OPS(other, mean, rstd, gamma, beta), &y, 0)->attr.bn.relu =
		relu;
}

/*
 * The norm after a convolution of 1 x 1 or 3 x 3 pixels, whose result has another reader. Operands
 * are whole numbers, which every type adds exactly: the rounding of a sum in another order would
 * decide for some elements whether the ReLU lets their gradient through.
 */
static void conv_batchnorm(struct kit *k, const struct types *t, const struct shape *d, bool wide)
{
	const int64_t *in = IMAGE(d), size = wide ? 3 : 1, dim[] = {in[0], d->n, in[2], in[3]};
	struct jm_tensor *x = kit_whole(k, t->c, -1, 2, 4, in);
	struct jm_tensor *w = kit_whole(k, t->c, -1, 1, 4, DIMS(d->n, d->c, size, size));
	struct jm_tensor *with = kit_normal(k, t->c, 0, 1, 4, dim);
	struct norms n = {.x = kit_out(k, t->c, 4, dim, NULL),
		.with = d->b % 2 ? with : NULL,
		.dy = with,
		.y = kit_out(k, t->c, 4, dim, NULL),
		.dx = kit_out(k, t->c, 4, dim, NULL),
		.relu = true};
	struct jm_node *node = jm_graph_node(k->graph, JM_OP_CONV, OPS(x, w), &n.x);

	node->attr.conv.groups = 1;
	for (int i = 0; i < 2; i++) {
		node->attr.conv.stride[i] = node->attr.conv.dilation[i] = 1;
		node->attr.conv.pad[i] = wide;
	}
	declare_norms(k, t, &n);
	kit_read(k, n.x);
}

/*
 * A norm between two convolutions of single pixels with channels in multiples of 64, and its
 * gradient; odd batches add to the norm. The flag adds the gradient of another branch. Whole
 * numbers as above.
 */
static void pixels_batchnorm(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t c = 64 + 64 * (d->c % 4), n = 64LL << d->n % 3;
	const int64_t in[] = {d->b, c, 3 + d->s % 7, 5 + d->s % 9},
		      dim[] = {in[0], n, in[2], in[3]};
	struct jm_tensor *x = kit_whole(k, t->c, -1, 2, 4, in);
	struct jm_tensor *w = kit_whole(k, t->c, -1, 1, 4, DIMS(n, c, 1, 1));
	struct jm_tensor *other = add ? kit_whole(k, t->c, -3, 3, 4, dim) : NULL;
	struct norms norms = {.x = kit_out(k, t->c, 4, dim, NULL),
		.with = d->b % 2 ? kit_normal(k, t->c, 0, 1, 4, dim) : NULL,
		.dz = kit_whole(k, t->c, -1, 2, 4, in),
		.filter = kit_whole(k, t->c, -1, 1, 4, DIMS(c, n, 1, 1)),
		.dy = kit_out(k, t->c, 4, dim, other),
		.add_filtered = add,
		.y = kit_out(k, t->c, 4, dim, NULL),
		.dx = kit_out(k, t->c, 4, dim, NULL),
		.dwith = d->b % 2 ? kit_out(k, t->c, 4, dim, NULL) : NULL,
		.relu = d->s % 3};

	declare_pixels(k, JM_OP_CONV, x, w, norms.x);
	declare_norms(k, t, &norms);
}

/* y = pool(x) of one kind, and its gradient, which is accumulated for odd batches of plain
 * images. */
static void pool(struct kit *k, const struct types *t, const struct shape *d, enum jm_op op,
	int size, const struct jm_window *how, bool count_pad, bool last)
{
	bool largest = op == JM_OP_MAXPOOL, add = !last && d->b % 2;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, IMAGE(d)), *y, *dy;
	struct jm_tensor *dx = backend_result(k, t->c, add, 4, x->dim);
	struct jm_node *bwd;

	if (last)
		x = channels_last(k, x);
	if (largest)
		y = jm_graph_maxpool(k->graph, x, size, how);
	else
		y = jm_graph_avgpool(k->graph, x, size, how, count_pad);
	kit_read(k, y);
	dy = kit_normal(k, t->c, 0, 1, 4, y->dim);
	if (last)
		dy = channels_last(k, dy);
	bwd = backend_node(k, largest ? JM_OP_MAXPOOL_GRAD : JM_OP_AVGPOOL_GRAD,
		OPS(dy, largest ? x : NULL), &dx, add);
	bwd->fwd = jm_graph_cell(k->graph, y)->producer;
	bwd->attr = bwd->fwd->attr;
}

static const struct jm_window halves = {.stride = 2, .pad = 1};

static void maxpool(struct kit *k, const struct types *t, const struct shape *d, bool large)
{
	pool(k, t, d, JM_OP_MAXPOOL, large ? 3 : 2, &halves, false, false);
}

static void avgpool(struct kit *k, const struct types *t, const struct shape *d, bool count_pad)
{
	pool(k, t, d, JM_OP_AVGPOOL, 3, &halves, count_pad, false);
}

/* Means of the pixels around each pixel, too; maxima of windows that lie inside. */
static void pool_last(struct kit *k, const struct types *t, const struct shape *d, bool mean)
{
	const struct jm_window how = {.stride = mean ? 1 + (int)d->b % 2 : 2, .pad = mean};

	pool(k, t, d, mean ? JM_OP_AVGPOOL : JM_OP_MAXPOOL, 3, &how, true, true);
}

/* Windows go further beyond the image below and to the right than on the other sides. */
static void pool_lopsided(struct kit *k, const struct types *t, const struct shape *d, bool mean)
{
	const struct jm_window how = {
		.stride = 1 + (int)(d->s % 2), .pad = (int)(d->c % 2), .more = 1};

	pool(k, t, d, mean ? JM_OP_AVGPOOL : JM_OP_MAXPOOL, 3, &how, d->n % 2, d->b % 3 == 1);
}

const struct backend_case backend_image_cases[] = {
	{"conv", conv},
	{"conv, pixel", conv_pixel},
	{"conv, step", conv_step},
	{"conv, onto", conv_onto},
	{"conv, sum", conv_sum},
	{"conv, stem", conv_stem},
	{"conv-wgrad, filter", conv_filter},
	{"conv, flat", conv_flat},
	{"conv, whole", conv_whole},
	{"conv + relu", conv_relu},
	{"conv, depthwise", conv_depthwise},
	{"cast, sum", cast_sum},
	{"batchnorm", batchnorm},
	{"batchnorm, one", batchnorm_one},
	{"batchnorm, last", batchnorm_last},
	{"batchnorm, other", batchnorm_other},
	{"conv + batchnorm", conv_batchnorm},
	{"pixels + batchnorm", pixels_batchnorm},
	{"maxpool", maxpool},
	{"avgpool", avgpool},
	{"pool, last", pool_last},
	{"pool, lopsided", pool_lopsided},
	{0},
};
