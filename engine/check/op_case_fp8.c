/* SPDX-License-Identifier: Apache-2.0 */
/* Products in 8 bits, for the comparison of backends with ref: all dims are multiples of 16. */
#include "op_case.h"

static int64_t up(int64_t n)
{
	return (n + 15) / 16 * 16;
}

/* Which operands: -1, 0 and 1 keep every sum of their products within the 14 bits that matrix units
 * add, so that it is exact. */
enum values { NORMAL, WHOLE };

/* In 8 bits by their own maximum, times an inverse that is no power of two. */
static struct jm_tensor *factor(struct kit *k, const struct types *t, enum jm_dtype type,
	enum values values, int rank, const int64_t *dim, struct jm_tensor **ret_inverse)
{
	struct jm_tensor *x = values == WHOLE ? kit_whole(k, t->c, -1, 1, rank, dim)
					      : kit_normal(k, t->c, 0, 1, rank, dim);
	struct jm_tensor *y = kit_out(k, type, rank, dim, NULL);

	*ret_inverse = kit_out(k, JM_F32, 1, DIMS(1), NULL);
	jm_graph_node(k->graph, JM_OP_QUANTIZE, OPS(x), OPS(y, *ret_inverse));
	return y;
}

/* Limits of about 2, at which values are cut. Row 1 has no limit, as in the first step. */
static void quantize(struct kit *k, const struct types *t, const struct shape *d, bool first)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *given = first ? kit_normal(k, JM_F32, 0, 0, 2, DIMS(3, 9))
					: kit_normal(k, JM_F32, 2, 0.1, 2, DIMS(3, 9));
	struct jm_tensor *ranges = kit_out(k, JM_F32, 2, DIMS(3, 9), given);
	struct jm_tensor *sums = backend_result(k, t->v, first, 1, DIMS(d->c));
	struct jm_tensor *y = kit_out(k, first ? JM_F8E5M2 : JM_F8E4M3, 3, x->dim, NULL);
	struct jm_tensor *inverse = kit_out(k, JM_F32, 1, DIMS(1), NULL);
	struct jm_node *n = backend_node(
		k, JM_OP_QUANTIZE, OPS(x, ranges), OPS(y, inverse, ranges, sums), first ? 8 : 0);

	n->attr.quantize.row = 1;
}

static void rescale(struct kit *k, const struct types *t, const struct shape *d, bool longer)
{
	const int64_t *dim = DIMS(d->c, longer ? 1026 : 2 + d->s);
	struct jm_tensor *ranges = kit_out(k, JM_F32, 2, dim, kit_normal(k, JM_F32, 1, 1, 2, dim));

	(void)t;
	backend_node(k, JM_OP_RESCALE, &ranges, &ranges, 0);
}

static void linear_of(struct kit *k, const struct types *t, const struct shape *d,
	enum values values, bool accumulate)
{
	struct jm_tensor *xs, *ws;
	const int64_t *x_dim = DIMS(d->b, up(d->s), up(d->c));
	struct jm_tensor *x = factor(k, t, JM_F8E4M3, values, 3, x_dim, &xs);
	struct jm_tensor *w = factor(k, t, JM_F8E4M3, values, 2, DIMS(up(d->n), up(d->c)), &ws);
	struct jm_tensor *bias =
		d->b > 1 && values == NORMAL ? kit_normal(k, t->v, 0, 1, 1, DIMS(up(d->n))) : NULL;
	struct jm_tensor *y =
		backend_result(k, t->c, accumulate, 3, DIMS(d->b, up(d->s), up(d->n)));

	backend_node(k, JM_OP_LINEAR, OPS(x, w, bias, xs, ws), &y, accumulate);
}

static void linear(struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	linear_of(k, t, d, NORMAL, accumulate);
}

static void linear_dgrad_of(struct kit *k, const struct types *t, const struct shape *d,
	enum values values, bool accumulate)
{
	struct jm_tensor *dys, *ws;
	const int64_t *dy_dim = DIMS(d->b, up(d->s), up(d->n));
	struct jm_tensor *dy = factor(k, t, JM_F8E5M2, values, 3, dy_dim, &dys);
	struct jm_tensor *w = factor(k, t, JM_F8E4M3, values, 2, DIMS(up(d->n), up(d->c)), &ws);
	struct jm_tensor *dx =
		backend_result(k, t->c, accumulate, 3, DIMS(d->b, up(d->s), up(d->c)));

	backend_node(k, JM_OP_LINEAR_DGRAD, OPS(dy, w, dys, ws), &dx, accumulate);
}

static void linear_dgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	linear_dgrad_of(k, t, d, NORMAL, accumulate);
}

static void linear_wgrad_of(struct kit *k, const struct types *t, const struct shape *d,
	enum values values, bool accumulate)
{
	struct jm_tensor *dys, *xs;
	const int64_t *dy_dim = DIMS(d->b, up(d->s), up(d->n));
	const int64_t *x_dim = DIMS(d->b, up(d->s), up(d->c));
	struct jm_tensor *dy = factor(k, t, JM_F8E5M2, values, 3, dy_dim, &dys);
	struct jm_tensor *x = factor(k, t, JM_F8E4M3, values, 3, x_dim, &xs);
	struct jm_tensor *dw = backend_gradient(k, t->a, accumulate, 2, DIMS(up(d->n), up(d->c)));

	backend_node(k, JM_OP_LINEAR_WGRAD, OPS(dy, x, dys, xs), OPS(dw), accumulate);
}

static void linear_wgrad(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	linear_wgrad_of(k, t, d, NORMAL, accumulate);
}

/* x in e4m3, with an inverse of each row. */
static struct jm_tensor *in_8_bits(
	struct kit *k, struct jm_tensor *x, struct jm_tensor **ret_inverse)
{
	struct jm_tensor *y = kit_out(k, JM_F8E4M3, x->rank, x->dim, NULL);

	*ret_inverse = kit_out(k, JM_F32, 1, DIMS(jm_tensor_rows(y)), NULL);
	jm_graph_node(k->graph, JM_OP_QUANTIZE, OPS(x), OPS(y, *ret_inverse));
	return y;
}

static struct jm_tensor *factor_rows(struct kit *k, const struct types *t, int rank,
	const int64_t *dim, struct jm_tensor **ret_inverse)
{
	return in_8_bits(k, kit_normal(k, t->c, 0, 1, rank, dim), ret_inverse);
}

static void quantize_rows(struct kit *k, const struct types *t, const struct shape *d, bool several)
{
	const int64_t *dim = DIMS(d->b, several ? d->s : 1, d->c);
	struct jm_tensor *inverse, *y = factor_rows(k, t, 3, dim, &inverse);

	kit_read(k, y);
	kit_read(k, inverse);
}

/* As in serving: a product of few rows, or of more than kernels for few rows take. */
static void linear_rows(struct kit *k, const struct types *t, const struct shape *d, bool more)
{
	int64_t rows = more ? 16 * (2 + d->n % 4) : 1 + d->n % 16, from = 64 * (1 + d->c % 8);
	struct jm_tensor *xs, *ws, *y = kit_out(k, t->c, 2, DIMS(rows, 16 * d->s), NULL);
	struct jm_tensor *x = factor_rows(k, t, 2, DIMS(rows, from), &xs);
	struct jm_tensor *w = factor_rows(k, t, 2, DIMS(16 * d->s, from), &ws);

	backend_node(k, JM_OP_LINEAR, OPS(x, w, NULL, xs, ws), &y, 0);
}

static void linear_wide(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	const int64_t from[] = {4096, 6144, 8192, 14336};
	const int64_t *dim = DIMS(1 + d->n % 8, from[d->c % 4]), to = 32 * d->s;
	struct jm_tensor *xs, *ws, *y = kit_out(k, t->c, 2, DIMS(dim[0], to), NULL);
	struct jm_tensor *x = factor_rows(k, t, 2, dim, &xs);
	struct jm_tensor *w = factor_rows(k, t, 2, DIMS(to, dim[1]), &ws);

	(void)flag;
	backend_node(k, JM_OP_LINEAR, OPS(x, w, NULL, xs, ws), &y, 0);
}

/* The product of what is made by a node that backends run with the quantizing behind it. */
static void linear_of_made(
	struct kit *k, const struct types *t, const struct shape *d, struct jm_tensor *made)
{
	struct jm_tensor *xs, *ws;
	const int64_t *dim = DIMS(16 * d->s, jm_tensor_width(made));
	struct jm_tensor *y = kit_out(k, t->c, 2, DIMS(made->dim[0], dim[0]), NULL);
	struct jm_tensor *x = in_8_bits(k, made, &xs), *w = factor_rows(k, t, 2, dim, &ws);

	backend_node(k, JM_OP_LINEAR, OPS(x, w, NULL, xs, ws), &y, 0);
}

/* kept: the sum has another reader. */
static void linear_normed(struct kit *k, const struct types *t, const struct shape *d, bool kept)
{
	const int64_t *dim = DIMS(1 + d->n % 16, 64 * (1 + d->c % 8));
	struct jm_tensor *a = kit_normal(k, t->c, 0, 2, 2, dim);
	struct jm_tensor *b = kit_normal(k, t->c, 0, 1, 2, dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(dim[1]));
	struct jm_tensor *sum = kit_out(k, t->c, 2, dim, NULL), *y = kit_out(k, t->c, 2, dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 1, dim, NULL);

	jm_graph_node(k->graph, JM_OP_ADD, OPS(a, b), &sum);
	jm_graph_node(k->graph, JM_OP_RMSNORM, OPS(d->b % 2 ? sum : a, gamma), OPS(y, rstd))
		->attr.norm.eps = 1e-5;
	linear_of_made(k, t, d, y);
	if (kept)
		kit_read(k, sum);
}

static void linear_gated(struct kit *k, const struct types *t, const struct shape *d, bool more)
{
	int64_t rows = more ? 32 : 1 + d->n % 16, width = 64 * (1 + d->c % 8);
	struct jm_tensor *x = kit_normal(k, t->c, 0, 2, 2, DIMS(rows, 2 * width));
	struct jm_tensor *y = kit_out(k, t->c, 2, DIMS(rows, width), NULL);

	jm_graph_node(k->graph, JM_OP_SWIGLU, &x, &y);
	linear_of_made(k, t, d, y);
}

/* y = the RMS norm of a random tensor plus x; the sum has another reader. */
static void add_and_norm(
	struct kit *k, const struct types *t, struct jm_tensor *x, struct jm_tensor *y)
{
	struct jm_tensor *a = kit_normal(k, t->c, 0, 2, 2, x->dim);
	struct jm_tensor *gamma = kit_normal(k, t->v, 1, 0.2, 1, DIMS(x->dim[1]));
	struct jm_tensor *sum = kit_out(k, t->c, 2, x->dim, NULL);
	struct jm_tensor *rstd = kit_out(k, t->v, 1, x->dim, NULL);

	jm_graph_node(k->graph, JM_OP_ADD, OPS(a, x), &sum);
	jm_graph_node(k->graph, JM_OP_RMSNORM, OPS(sum, gamma), OPS(y, rstd))->attr.norm.eps = 1e-5;
	kit_read(k, sum);
}

/*
 * A product of many rows that a norm after an add, or a gated activation, reads, whose result is
 * quantized. Nearly all rows of the factors have the maximum 7, so that their scales are powers of
 * two: then it makes no difference whether a result is rounded before it is scaled, or after.
 */
static void linear_quantize(struct kit *k, const struct types *t, const struct shape *d, bool flag)
{
	/* the range of f16 is too small for a product of both parts */
	bool gated = flag && t->c != JM_F16;
	int64_t rows = d->b > 1 ? 1024 : 16 * (1 + d->n % 4), from = 64 * (1 + d->c % 2);
	int64_t width = 16 * (1 + d->n % 8);
	const int64_t *dim = DIMS(rows, gated ? 2 * width : width);
	struct jm_tensor *xs, *ws, *x, *w;
	struct jm_tensor *made = kit_out(k, t->c, 2, dim, NULL);
	struct jm_tensor *y = kit_out(k, t->c, 2, DIMS(rows, width), NULL);

	x = in_8_bits(k, kit_whole(k, t->c, -7, 7, 2, DIMS(rows, from)), &xs);
	w = in_8_bits(k, kit_whole(k, t->c, -7, 7, 2, DIMS(dim[1], from)), &ws);
	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w, NULL, xs, ws), &made);
	if (gated)
		jm_graph_node(k->graph, JM_OP_SWIGLU, &made, &y);
	else
		add_and_norm(k, t, made, y);
	kit_read(k, in_8_bits(k, y, &xs));
	kit_read(k, xs);
}

/* All three, exact but for the rounding of the result: the tolerance is that of its type alone. */
static void linear_whole(
	struct kit *k, const struct types *t, const struct shape *d, bool accumulate)
{
	linear_of(k, t, d, WHOLE, accumulate);
	linear_dgrad_of(k, t, d, WHOLE, accumulate);
	linear_wgrad_of(k, t, d, WHOLE, accumulate);
}

/* A product and a gelu, as in a block of a transformer. kept: the product has another reader. */
static void linear_gelu(struct kit *k, const struct types *t, const struct shape *d, bool kept)
{
	struct jm_tensor *xs, *ws;
	const int64_t *y_dim = DIMS(d->b, up(d->s), up(d->n));
	struct jm_tensor *x =
		factor(k, t, JM_F8E4M3, NORMAL, 3, DIMS(d->b, up(d->s), up(d->c)), &xs);
	struct jm_tensor *w = factor(k, t, JM_F8E4M3, NORMAL, 2, DIMS(up(d->n), up(d->c)), &ws);
	struct jm_tensor *bias = d->b > 1 ? kit_normal(k, t->v, 0, 1, 1, DIMS(up(d->n))) : NULL;
	struct jm_tensor *h = kit_out(k, t->c, 3, y_dim, NULL);
	struct jm_tensor *y = kit_out(k, t->c, 3, y_dim, NULL);

	jm_graph_node(k->graph, JM_OP_LINEAR, OPS(x, w, bias, xs, ws), &h);
	jm_graph_node(k->graph, JM_OP_GELU, &h, &y);
	if (kept)
		kit_read(k, h);
	kit_read(k, y);
}

/* The names contain the ops that a graph must have for the case to matter. */
const struct backend_case backend_fp8_cases[] = {
	{"quantize", quantize},
	{"rescale", rescale},
	{"quantize + linear", linear},
	{"quantize + linear, whole", linear_whole},
	{"quantize, rows", quantize_rows},
	{"quantize + linear, rows", linear_rows},
	{"quantize + linear, wide rows", linear_wide},
	{"quantize + linear, norm", linear_normed},
	{"quantize + linear, gated", linear_gated},
	{"quantize + linear, then quantize", linear_quantize},
	{"quantize + linear-dgrad", linear_dgrad},
	{"quantize + linear-wgrad", linear_wgrad},
	{"quantize + linear + gelu", linear_gelu},
	{0},
};
