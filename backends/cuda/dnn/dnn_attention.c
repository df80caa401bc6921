/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by cuDNN. q is [B,H,S,D], k and v are [B,G,T,D], with the strides of the tensors that
 * they are in, packed or apart, so that nothing is copied. cuDNN recognises the two patterns below
 * and fuses each into one kernel, which writes no scores to memory.
 */
#include "dnn_attention.h"

#define F32  CUDNN_DATA_FLOAT
#define I32  CUDNN_DATA_INT32
#define BOOL CUDNN_DATA_BOOLEAN

/* What the functions below share: the graph, the shape, and the indices of the scores. */
struct scores_graph {
	struct dnn_graph *g;
	const struct dnn_attention_shape *s;
};

/* Heads as they are in memory, [B,heads,positions,D]; virtual ones are results of the graph. */
static int64_t heads_view(const struct scores_graph *d, enum dnn_kind kind, int64_t heads,
	int64_t positions, const struct dnn_heads *at)
{
	const int64_t dim[4] = {d->s->batch, heads, positions, d->s->depth};
	const int64_t stride[4] = {at->batch, at->head, at->row, 1};

	return dnn_tensor(d->g, kind, d->s->type, 4, dim, stride);
}

static int64_t queries(const struct scores_graph *d)
{
	return heads_view(d, DNN_REAL, d->s->heads, d->s->seq, &d->s->q);
}

static int64_t keys(const struct scores_graph *d, const struct dnn_heads *at)
{
	return heads_view(d, DNN_REAL, d->s->groups, d->s->keys, at);
}

/* The results [B,S,H D] and their gradient. */
static int64_t results(const struct scores_graph *d)
{
	const struct dnn_attention_shape *s = d->s;
	const int64_t row = s->heads * s->depth;

	return heads_view(d, DNN_REAL, s->heads, s->seq,
		&(struct dnn_heads){.batch = s->seq * row, .row = row, .head = s->depth});
}

/* Keys or values with positions and depth exchanged: [B,G,D,T]. */
static int64_t turned_keys(const struct scores_graph *d, const struct dnn_heads *at)
{
	const struct dnn_attention_shape *s = d->s;
	const int64_t dim[4] = {s->batch, s->groups, s->depth, s->keys};
	const int64_t stride[4] = {at->batch, at->head, 1, at->row};

	return dnn_tensor(d->g, DNN_REAL, s->type, 4, dim, stride);
}

/* A dense tensor [B,H,rows,columns]. */
static int64_t dense(const struct scores_graph *d, enum dnn_kind kind, cudnnDataType_t type,
	int64_t rows, int64_t columns)
{
	const struct dnn_attention_shape *s = d->s;
	const int64_t dim[4] = {s->batch, s->heads, rows, columns};
	const int64_t stride[4] = {s->heads * rows * columns, rows * columns, columns, 1};

	return dnn_tensor(d->g, kind, type, 4, dim, stride);
}

static int64_t scores(const struct scores_graph *d, cudnnDataType_t type)
{
	return dense(d, DNN_VIRTUAL, type, d->s->seq, d->s->keys);
}

static int64_t per_row(const struct scores_graph *d, enum dnn_kind kind)
{
	return dense(d, kind, F32, d->s->seq, 1);
}

/* y = mode(x, b), where y are scores or rows in f32. */
static int64_t apply(
	const struct scores_graph *d, cudnnPointwiseMode_t mode, int64_t x, int64_t b, int64_t y)
{
	dnn_pointwise(d->g, mode, F32, -1, x, b, 0, y);
	return y;
}

static int64_t reduce(const struct scores_graph *d, cudnnReduceTensorOp_t op, int64_t x)
{
	int64_t y = per_row(d, DNN_VIRTUAL);

	dnn_reduce(d->g, op, x, y);
	return y;
}

/* Replaces the scores of later keys by a number whose exp is 0. */
static int64_t mask(const struct scores_graph *d, int64_t x, int64_t floor)
{
	int64_t row, column, seen, y;

	if (!d->s->causal)
		return x;
	row = scores(d, I32);
	column = scores(d, I32);
	seen = scores(d, BOOL);
	y = scores(d, F32);
	dnn_pointwise(d->g, CUDNN_POINTWISE_GEN_INDEX, F32, 2, x, 0, 0, row);
	dnn_pointwise(d->g, CUDNN_POINTWISE_GEN_INDEX, F32, 3, x, 0, 0, column);
	dnn_pointwise(d->g, CUDNN_POINTWISE_CMP_GE, BOOL, -1, row, column, 0, seen);
	dnn_pointwise(d->g, CUDNN_POINTWISE_BINARY_SELECT, F32, -1, x, floor, seen, y);
	return y;
}

struct dnn_graph *dnn_attention_forward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret)
{
	const struct scores_graph d = {dnn_graph_new(dnn), s};
	int64_t x, most, sum, p;

	if (!d.g)
		return NULL;
	ret->q = queries(&d);
	ret->k = turned_keys(&d, &s->k);
	ret->v = keys(&d, &s->v);
	ret->y = results(&d);
	ret->lse = per_row(&d, DNN_REAL);
	ret->scale = dnn_scalar(d.g, DNN_BY_VALUE, F32);
	ret->floor = s->causal ? dnn_scalar(d.g, DNN_BY_VALUE, F32) : 0;
	x = scores(&d, F32);
	dnn_matmul(d.g, ret->q, ret->k, x);
	x = mask(&d, apply(&d, CUDNN_POINTWISE_MUL, x, ret->scale, scores(&d, F32)), ret->floor);
	most = reduce(&d, CUDNN_REDUCE_TENSOR_MAX, x);
	x = apply(&d, CUDNN_POINTWISE_SUB, x, most, scores(&d, F32));
	x = apply(&d, CUDNN_POINTWISE_EXP, x, 0, scores(&d, F32));
	sum = reduce(&d, CUDNN_REDUCE_TENSOR_ADD, x);
	apply(&d, CUDNN_POINTWISE_ADD, most,
		apply(&d, CUDNN_POINTWISE_LOG, sum, 0, per_row(&d, DNN_VIRTUAL)), ret->lse);
	p = apply(&d, CUDNN_POINTWISE_DIV, x, sum, scores(&d, s->type));
	dnn_matmul(d.g, p, ret->v, ret->y);
	return d.g;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The transposed scores in 16 bits: rows are keys. */
static int64_t transposed(const struct scores_graph *d, int64_t x)
{
	const struct dnn_attention_shape *s = d->s;
	const int64_t dim[4] = {s->batch, s->heads, s->keys, s->seq};
	const int64_t stride[4] = {s->heads * s->seq * s->keys, s->seq * s->keys, 1, s->keys};
	int64_t y = dnn_tensor(d->g, DNN_VIRTUAL, s->type, 4, dim, stride);

	dnn_reshape(d->g, x, y);
	return y;
}

/* to = x b, summed over the query heads that share a key head. */
static void into_group(const struct scores_graph *d, int64_t x, int64_t b, int64_t to)
{
	int64_t each;

	if (d->s->heads == d->s->groups) {
		dnn_matmul(d->g, x, b, to);
		return;
	}
	each = dense(d, DNN_VIRTUAL, d->s->type, d->s->keys, d->s->depth);
	dnn_matmul(d->g, x, b, each);
	dnn_reduce(d->g, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

/* The keys in their own order, not transposed. */
static int64_t turned_back(const struct scores_graph *d, int64_t k)
{
	int64_t y = heads_view(d, DNN_VIRTUAL, d->s->groups, d->s->keys, &d->s->k);

	dnn_reshape(d->g, k, y);
	return y;
}

/* p = exp(scale q k - lse) */
static int64_t probabilities(const struct scores_graph *d, const struct dnn_attention_ids *id)
{
	int64_t x = scores(d, F32);

	dnn_matmul(d->g, id->q, id->k, x);
	x = apply(d, CUDNN_POINTWISE_MUL, x, id->scale, scores(d, F32));
	x = mask(d, apply(d, CUDNN_POINTWISE_SUB, x, id->lse, scores(d, F32)), id->floor);
	return apply(d, CUDNN_POINTWISE_EXP, x, 0, scores(d, F32));
}

/* delta = sum over D of dy y */
static void row_sums(const struct scores_graph *d, const struct dnn_attention_ids *id)
{
	int64_t x = dense(d, DNN_VIRTUAL, F32, d->s->seq, d->s->depth);

	apply(d, CUDNN_POINTWISE_MUL, id->dy, id->y, x);
	apply(d, CUDNN_POINTWISE_MUL, reduce(d, CUDNN_REDUCE_TENSOR_ADD, x), id->one, id->delta);
}

static void declare_backward(const struct scores_graph *d, struct dnn_attention_ids *ret)
{
	const struct dnn_attention_shape *s = d->s;

	ret->q = queries(d);
	ret->k = turned_keys(d, &s->k);
	ret->v = turned_keys(d, &s->v);
	ret->y = results(d);
	ret->dy = results(d);
	ret->lse = per_row(d, DNN_REAL);
	ret->delta = per_row(d, DNN_REAL);
	ret->dq = queries(d);
	ret->dk = keys(d, &s->k);
	ret->dv = keys(d, &s->v);
	ret->sum = s->repeatable ? 0 : dense(d, DNN_REAL, F32, s->seq, s->depth);
	ret->scale = dnn_scalar(d->g, DNN_BY_VALUE, F32);
	ret->one = dnn_scalar(d->g, DNN_BY_VALUE, F32);
	ret->floor = s->causal ? dnn_scalar(d->g, DNN_BY_VALUE, F32) : 0;
}

struct dnn_graph *dnn_attention_backward(const struct cuda_dnn *dnn,
	const struct dnn_attention_shape *s, struct dnn_attention_ids *ret)
{
	const struct scores_graph d = {dnn_graph_new(dnn), s};
	int64_t p, x;

	if (!d.g)
		return NULL;
	declare_backward(&d, ret);
	row_sums(&d, ret);
	p = probabilities(&d, ret);
	into_group(&d, transposed(&d, p), ret->dy, ret->dv);
	x = scores(&d, F32);
	dnn_matmul(d.g, ret->dy, ret->v, x);
	x = apply(&d, CUDNN_POINTWISE_SUB, x, ret->delta, scores(&d, F32));
	x = apply(&d, CUDNN_POINTWISE_MUL, x, p, scores(&d, F32));
	x = apply(&d, CUDNN_POINTWISE_MUL, x, ret->scale, scores(&d, F32));
	into_group(&d, transposed(&d, x), ret->q, ret->dk);
	p = turned_back(&d, ret->k);
	if (s->repeatable) {
		dnn_matmul(d.g, x, p, ret->dq);
	} else {
		dnn_matmul(d.g, x, p, ret->sum);
		apply(&d, CUDNN_POINTWISE_IDENTITY, ret->sum, 0, ret->dq);
	}
	return d.g;
}
