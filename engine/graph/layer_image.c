/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by which models declare ops on images [B, C, Y, X]. */
#include "layer_image.h"
#include "freeze.h"
#include "layer.h"
#include "layer_private.h"
#include "op.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

#define MOMENTUM 0.1 /* of running statistics; PyTorch's default */

struct jm_tensor *jm_graph_filter(struct jm_graph *g, const char *name, enum jm_init init,
	int64_t to, int64_t from, int64_t rows, int64_t columns)
{
	struct jm_tensor *t = jm_graph_tensor(
		g, JM_CLASS_PARAM, g->matrix, 4, DIMS(to, from, rows, columns), name);

	if (!t)
		return NULL;
	jm_graph_cell(g, t)->init = init;
	jm_freeze_cell(g, jm_graph_cell(g, t));
	return t;
}

/* The number of window positions along one axis with `pad` on both sides together; below 1 = the
 * image is too small. */
static int64_t places(int64_t size, int64_t window, int stride, int pad, int dilation)
{
	int64_t room = size + pad - dilation * (window - 1) - 1;

	return room < 0 ? 0 : room / stride + 1;
}

static struct jm_tensor *windowed(struct jm_graph *g, const struct jm_tensor *x, int64_t channels,
	int64_t rows, int64_t columns, const char *name)
{
	char numbered[32];

	if (!g->err.code && (rows < 1 || columns < 1))
		jm_err_set(&g->err, JM_ERANGE,
			"An image of %lld x %lld pixels at %s%s is smaller than the window of the "
			"operation; give a larger --image.",
			(long long)x->dim[2], (long long)x->dim[3], g->scope, name);
	if (g->err.code)
		return NULL;
	snprintf(numbered, sizeof(numbered), "%s.%d", name, g->n_nodes);
	return jm_graph_tensor(
		g, JM_CLASS_ACT, g->compute, 4, DIMS(x->dim[0], channels, rows, columns), numbered);
}

/* Along an axis on which the window has this size. */
static int pad_of(const struct jm_window *how, int64_t window)
{
	int dilation = how->dilation ? how->dilation : 1;

	return how->same ? dilation * (int)(window - 1) / 2 : how->pad;
}

struct jm_tensor *jm_graph_conv(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w,
	struct jm_tensor *bias, const struct jm_window *how)
{
	int stride = how->stride ? how->stride : 1, dilation = how->dilation ? how->dilation : 1;
	int groups = how->groups ? how->groups : 1;
	int pad[2];
	struct jm_tensor *y, *copy;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(g,
			x->rank == 4 && w->rank == 4 && w->dim[1] * groups == x->dim[1] &&
				w->dim[0] % groups == 0,
			"conv", x) ||
		!jm_layer_fits(g, !bias || bias->dim[0] == w->dim[0], "conv", bias))
		return NULL;
	for (int i = 0; i < 2; i++)
		pad[i] = pad_of(how, w->dim[2 + i]);
	copy = jm_layer_weight(g, w);
	y = windowed(g, x, w->dim[0],
		places(x->dim[2], w->dim[2], stride, 2 * pad[0] + how->more, dilation),
		places(x->dim[3], w->dim[3], stride, 2 * pad[1] + how->more, dilation), "conv");
	n = jm_graph_node(g, JM_OP_CONV, OPS(x, copy, bias), OPS(y));
	if (!n)
		return NULL;
	n->attr.conv.groups = groups;
	n->attr.conv.stem =
		!jm_graph_cell(g, x)->needs_grad && !g->freeze.patterns && !g->freeze.always;
	for (int i = 0; i < 2; i++) {
		n->attr.conv.stride[i] = stride;
		n->attr.conv.pad[i] = pad[i];
		n->attr.conv.dilation[i] = dilation;
		n->attr.conv.more[i] = how->more;
	}
	return y;
}

static struct jm_tensor *named(struct jm_graph *g, enum jm_class class, enum jm_init init,
	int64_t n, const char *name, const char *part)
{
	struct jm_tensor *t;
	char full[JM_NAME_BYTES];

	snprintf(full, sizeof(full), "%.140s.%s", name, part);
	t = jm_graph_tensor(g, class, g->vector, 1, &n, full);
	if (!t)
		return NULL;
	jm_graph_cell(g, t)->init = init;
	if (class == JM_CLASS_PARAM)
		jm_freeze_cell(g, jm_graph_cell(g, t));
	return t;
}

struct statistics {
	struct jm_tensor *running_mean, *running_var, *mean, *rstd;
};

/* Uses the statistics of the batch and updates the running statistics. */
static struct jm_node *of_batch(
	struct jm_graph *g, struct jm_tensor *x, const char *name, struct statistics *s)
{
	int64_t channels = x->dim[1];
	struct jm_tensor *var = named(g, JM_CLASS_ACT, JM_INIT_ZERO, channels, name, "var");

	s->mean = named(g, JM_CLASS_ACT, JM_INIT_ZERO, channels, name, "mean");
	s->rstd = named(g, JM_CLASS_ACT, JM_INIT_ZERO, channels, name, "rstd");
	jm_graph_node(g, JM_OP_BN_STATS, OPS(x), OPS(s->mean, var));
	return jm_graph_node(g, JM_OP_BN_FINALIZE, OPS(s->mean, var),
		OPS(s->rstd, s->running_mean, s->running_var));
}

/* Uses the running statistics without changing them. */
static struct jm_node *of_training(
	struct jm_graph *g, struct jm_tensor *x, const char *name, struct statistics *s)
{
	s->mean = s->running_mean;
	s->rstd = named(g, JM_CLASS_ACT, JM_INIT_ZERO, x->dim[1], name, "rstd");
	return jm_graph_node(g, JM_OP_BN_FINALIZE, OPS(s->running_mean, s->running_var),
		OPS(s->rstd, NULL, NULL));
}

/* Mean and rstd; undefined if the graph has an error. */
static void statistics(struct jm_graph *g, struct jm_tensor *x, double eps, bool frozen,
	const char *name, struct statistics *ret)
{
	int64_t channels = x->dim[1];
	struct jm_node *n;

	ret->running_mean = named(g, JM_CLASS_STATE, JM_INIT_ZERO, channels, name, "running_mean");
	ret->running_var = named(g, JM_CLASS_STATE, JM_INIT_ONE, channels, name, "running_var");
	n = g->evaluate || frozen ? of_training(g, x, name, ret) : of_batch(g, x, name, ret);
	if (!n)
		return;
	jm_graph_cell(g, ret->running_mean)->frozen = frozen;
	jm_graph_cell(g, ret->running_var)->frozen = frozen;
	n->attr.bn.eps = eps;
	n->attr.bn.momentum = MOMENTUM;
	n->attr.bn.count = jm_tensor_count(x) / channels;
}

static bool is_read(const struct jm_graph *g, int first, const struct jm_tensor *t)
{
	for (int k = first; k < g->n_nodes; k++)
		if (jm_node_reads(g->node[k], t))
			return true;
	return false;
}

/*
 * Makes the norm whose result t is added to another norm the last node so far, next to that norm: a
 * backend that runs both, or both their gradients, as one does not store t or its gradient.
 */
static void move_norm_of(struct jm_graph *g, const struct jm_tensor *t)
{
	struct jm_node *n = t ? jm_graph_cell(g, t)->producer : NULL;
	int at;

	if (!n || n->op != JM_OP_BN_APPLY || is_read(g, n->id + 1, t))
		return;
	for (at = n->id; at + 1 < g->n_nodes; at++) {
		g->node[at] = g->node[at + 1];
		g->node[at]->id = at;
	}
	g->node[at] = n;
	n->id = at;
}

/* Both parameters or none. */
static bool is_frozen_norm(
	struct jm_graph *g, const struct jm_tensor *gamma, const struct jm_tensor *beta)
{
	bool first = gamma && jm_graph_cell(g, gamma)->frozen;
	bool second = beta && jm_graph_cell(g, beta)->frozen;

	if (gamma && beta && first != second)
		jm_err_set(&g->err, JM_EUSAGE,
			"--freeze fits %s and not %s, but a batch norm is frozen as a whole; "
			"give a pattern that fits both.",
			first ? gamma->name : beta->name, first ? beta->name : gamma->name);
	return first && second;
}

static bool has_variance(struct jm_graph *g, const struct jm_tensor *x, const char *name)
{
	if (jm_tensor_count(x) > x->dim[1])
		return true;
	jm_err_set(&g->err, JM_ERANGE,
		"A batch of one image has only one value per channel at %s%s and therefore no "
		"variance for the normalisation; give a larger --batch or --image.",
		g->scope, name);
	return false;
}

struct jm_tensor *jm_graph_batchnorm(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *add,
	bool relu, double eps, const char *name)
{
	struct jm_tensor *gamma, *beta, *y;
	struct statistics s;
	struct jm_node *n;
	bool frozen;

	if (g->err.code || !jm_layer_fits(g, x->rank == 4, "batchnorm", x) ||
		!jm_layer_fits(
			g, !add || jm_tensor_count(add) == jm_tensor_count(x), "batchnorm", add))
		return NULL;
	gamma = named(g, JM_CLASS_PARAM, JM_INIT_ONE, x->dim[1], name, "weight");
	if (add)
		jm_graph_ends_block(g, gamma);
	beta = named(g, JM_CLASS_PARAM, JM_INIT_ZERO, x->dim[1], name, "bias");
	frozen = is_frozen_norm(g, gamma, beta);
	if (!g->evaluate && !frozen && !has_variance(g, x, name))
		return NULL;
	statistics(g, x, eps, frozen, name, &s);
	y = windowed(g, x, x->dim[1], x->dim[2], x->dim[3], "batchnorm");
	if (g->err.code)
		return NULL;
	move_norm_of(g, add);
	n = jm_graph_node(g, JM_OP_BN_APPLY, OPS(x, s.mean, s.rstd, gamma, beta, add), OPS(y));
	if (!n)
		return NULL;
	n->attr.bn.eps = eps;
	n->attr.bn.count = jm_tensor_count(x) / x->dim[1];
	n->attr.bn.relu = relu;
	return y;
}

/* The padding below and to the right is in the size of y alone: windows end at the image. */
static struct jm_tensor *pool(struct jm_graph *g, enum jm_op op, struct jm_tensor *x, int kernel,
	const struct jm_window *how, const char *name)
{
	int stride = how->stride ? how->stride : 1, pad = how->pad;
	struct jm_tensor *y;
	struct jm_node *n;

	if (g->err.code ||
		!jm_layer_fits(
			g, x->rank == 4 && 2 * pad <= kernel && pad + how->more < kernel, name, x))
		return NULL;
	y = windowed(g, x, x->dim[1], places(x->dim[2], kernel, stride, 2 * pad + how->more, 1),
		places(x->dim[3], kernel, stride, 2 * pad + how->more, 1), name);
	n = jm_graph_node(g, op, OPS(x), OPS(y));
	for (int i = 0; n && i < 2; i++) {
		n->attr.pool.kernel[i] = kernel;
		n->attr.pool.stride[i] = stride;
		n->attr.pool.pad[i] = pad;
	}
	return y;
}

struct jm_tensor *jm_graph_maxpool(
	struct jm_graph *g, struct jm_tensor *x, int kernel, const struct jm_window *how)
{
	return pool(g, JM_OP_MAXPOOL, x, kernel, how, "maxpool");
}

struct jm_tensor *jm_graph_avgpool(struct jm_graph *g, struct jm_tensor *x, int kernel,
	const struct jm_window *how, bool count_pad)
{
	struct jm_tensor *y = pool(g, JM_OP_AVGPOOL, x, kernel, how, "avgpool");

	if (y)
		jm_graph_cell(g, y)->producer->attr.pool.count_pad = count_pad;
	return y;
}

struct jm_tensor *jm_graph_upsample(struct jm_graph *g, struct jm_tensor *x, int times)
{
	struct jm_tensor *y;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, x->rank == 4 && times > 0, "upsample", x))
		return NULL;
	y = windowed(g, x, x->dim[1], x->dim[2] * times, x->dim[3] * times, "upsample");
	n = jm_graph_node(g, JM_OP_UPSAMPLE, OPS(x), OPS(y));
	for (int i = 0; n && i < 2; i++)
		n->attr.pool.kernel[i] = n->attr.pool.stride[i] = times;
	return y;
}

struct jm_tensor *jm_graph_groupnorm(struct jm_graph *g, struct jm_tensor *x, int groups, bool silu,
	double eps, const char *name)
{
	struct jm_tensor *gamma, *beta, *y, *mean, *rstd;
	struct jm_node *n;

	if (g->err.code || !jm_layer_fits(g, x->rank == 4 && groups > 0 && x->dim[1] % groups == 0,
				   "groupnorm", x))
		return NULL;
	gamma = named(g, JM_CLASS_PARAM, JM_INIT_ONE, x->dim[1], name, "weight");
	beta = named(g, JM_CLASS_PARAM, JM_INIT_ZERO, x->dim[1], name, "bias");
	y = windowed(g, x, x->dim[1], x->dim[2], x->dim[3], "groupnorm");
	mean = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, 2, DIMS(x->dim[0], groups), "mean");
	rstd = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, 2, DIMS(x->dim[0], groups), "rstd");
	n = jm_graph_node(g, JM_OP_GROUPNORM, OPS(x, gamma, beta), OPS(y, mean, rstd));
	if (!n)
		return NULL;
	n->attr.group.groups = groups;
	n->attr.group.eps = eps;
	n->attr.group.silu = silu;
	return y;
}

struct jm_tensor *jm_graph_gap(struct jm_graph *g, struct jm_tensor *x)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, x->rank == 4, "gap", x))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, g->compute, 2, x->dim, "gap");
	jm_graph_node(g, JM_OP_GAP, OPS(x), OPS(y));
	return y;
}

/* A table converted to the type of vectors, which an op needs. */
static struct jm_tensor *widened(struct jm_graph *g, struct jm_tensor *t)
{
	struct jm_tensor *wide;

	if (!t || t->type == g->vector)
		return t;
	wide = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, t->rank, t->dim, "wide");
	jm_graph_node(g, JM_OP_CAST, OPS(t), OPS(wide));
	return wide;
}

struct jm_tensor *jm_graph_tokens(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *first,
	struct jm_tensor *positions)
{
	int64_t seq, channels;
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, x->rank == 4, "tokens", x))
		return NULL;
	channels = x->dim[1];
	seq = x->dim[2] * x->dim[3] + (first ? 1 : 0);
	if (!jm_layer_fits(g, !first || jm_tensor_count(first) == channels, "tokens", first) ||
		!jm_layer_fits(g, !positions || jm_tensor_count(positions) == seq * channels,
			"tokens", positions))
		return NULL;
	positions = widened(g, positions);
	y = jm_graph_tensor(
		g, JM_CLASS_ACT, g->stream, 3, DIMS(x->dim[0], seq, channels), "tokens");
	jm_graph_node(g, JM_OP_TOKENS, OPS(x, first, positions), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_rows_of_image(struct jm_graph *g, struct jm_tensor *x)
{
	struct jm_tensor *y;
	char name[32];

	if (g->err.code || !jm_layer_fits(g, x->rank == 4, "rows-of-image", x))
		return NULL;
	snprintf(name, sizeof(name), "rows.%d", g->n_nodes);
	y = jm_graph_tensor(g, JM_CLASS_ACT, g->compute, 3,
		DIMS(x->dim[0], x->dim[2] * x->dim[3], x->dim[1]), name);
	jm_graph_node(g, JM_OP_TOKENS, OPS(x, NULL, NULL), OPS(y));
	return y;
}

struct jm_tensor *jm_graph_image_of_rows(
	struct jm_graph *g, struct jm_tensor *x, int64_t rows, int64_t columns)
{
	struct jm_tensor *y;

	if (g->err.code ||
		!jm_layer_fits(g, x->rank == 3 && x->dim[1] == rows * columns, "image-of-rows", x))
		return NULL;
	y = windowed(g, x, x->dim[2], rows, columns, "image");
	jm_graph_node(g, JM_OP_TOKENS_GRAD, OPS(x), OPS(y, NULL, NULL));
	return y;
}

struct jm_tensor *jm_graph_first(struct jm_graph *g, struct jm_tensor *x)
{
	struct jm_tensor *y;

	if (g->err.code || !jm_layer_fits(g, x->rank == 3, "first", x))
		return NULL;
	y = jm_graph_tensor(g, JM_CLASS_ACT, x->type, 2, DIMS(x->dim[0], x->dim[2]), "first");
	jm_graph_node(g, JM_OP_FIRST, OPS(x), OPS(y));
	return y;
}
