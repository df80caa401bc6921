/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over views of queries, keys and values; rotary positions. */
#include "ref_kernels.h"

#include <math.h>
#include <stdlib.h>

/* The elements of a head of a sequence. */
struct rows {
	int64_t at, row; /* in elements: offset of position 0, distance between positions */
};

static struct rows rows_of(const struct jm_view *v, int64_t batch, int64_t head)
{
	return (struct rows){v->offset + batch * v->batch + head * v->head, v->row};
}

/* One head of one sequence. */
struct head {
	int64_t queries, keys, depth; /* keys: the number of valid keys */
	struct rows q, k, v, y;
	const double *q_data, *k_data, *v_data;
	double scale;
	bool causal;
};

/* in: q, k, v; lengths may be NULL */
static struct head head_of(const struct jm_node *n, double *const *in, const double *lengths,
	const struct jm_tensor *y, int64_t bh)
{
	int64_t heads = n->attr.attention.heads, groups = n->attr.attention.kv_heads;
	int64_t batch = bh / heads, h = bh % heads, g = h / (heads / groups);
	int64_t depth = n->attr.attention.depth, seq = y->dim[1], width = heads * depth;
	struct jm_view whole = {0, seq * width, width, depth};

	return (struct head){.queries = seq,
		.keys = lengths ? (int64_t)lengths[batch] : n->attr.attention.keys,
		.depth = depth,
		.q = rows_of(&n->attr.attention.q, batch, h),
		.k = rows_of(&n->attr.attention.k, batch, g),
		.v = rows_of(&n->attr.attention.v, batch, g),
		.y = rows_of(&whole, batch, h),
		.q_data = in[0],
		.k_data = in[1],
		.v_data = in[2],
		.scale = n->attr.attention.scale,
		.causal = n->attr.attention.causal};
}

static int64_t place(const struct rows *r, int64_t s)
{
	return r->at + s * r->row;
}

static double dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* The number of keys that the query at s sees; with a mask the last query sees all. */
static int64_t seen(const struct head *e, int64_t s)
{
	int64_t n = s + 1 + e->keys - e->queries;

	if (!e->causal)
		return e->keys;
	return n < 0 ? 0 : n;
}

static double score(const struct head *e, int64_t s, int64_t t)
{
	return e->scale * dot(e->q_data + place(&e->q, s), e->k_data + place(&e->k, t), e->depth);
}

static double log_sum_exp(const struct head *e, int64_t s)
{
	double most = -INFINITY, sum = 0;

	for (int64_t t = 0; t < seen(e, s); t++)
		most = fmax(most, score(e, s, t));
	for (int64_t t = 0; t < seen(e, s); t++)
		sum += exp(score(e, s, t) - most);
	return most + log(sum);
}

static void forward_row(const struct head *e, int64_t s, double lse, double *y)
{
	for (int64_t t = 0; t < seen(e, s); t++) {
		double p = exp(score(e, s, t) - lse);

		for (int64_t i = 0; i < e->depth; i++)
			y[i] += p * e->v_data[place(&e->v, t) + i];
	}
}

void jm_ref_attention(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t all = n->out[0]->dim[0] * n->attr.attention.heads;

	for (int64_t bh = 0; bh < all; bh++) {
		struct head e = head_of(n, in, in[3], n->out[0], bh);

		for (int64_t s = 0; s < e.queries; s++) {
			double lse = log_sum_exp(&e, s);

			forward_row(&e, s, lse, out[0] + place(&e.y, s));
			out[1][bh * e.queries + s] = lse;
		}
	}
}

/* Adds the contribution of query s: p are the weights, dp = dy v^T, dz = p (dp - dy.y). out: dq,
 * dk, dv */
static void backward_row(const struct head *e, int64_t s, double lse, const double *dy,
	const double *y, double *const *out)
{
	const double *q = e->q_data + place(&e->q, s);
	double *dq = out[0] + place(&e->q, s), dyy = dot(dy, y, e->depth);

	for (int64_t t = 0; t < seen(e, s); t++) {
		const double *k = e->k_data + place(&e->k, t), *v = e->v_data + place(&e->v, t);
		double *dk = out[1] + place(&e->k, t), *dv = out[2] + place(&e->v, t);
		double p = exp(score(e, s, t) - lse);
		double dz = e->scale * p * (dot(dy, v, e->depth) - dyy);

		for (int64_t i = 0; i < e->depth; i++) {
			dv[i] += p * dy[i];
			dq[i] += dz * k[i];
			dk[i] += dz * q[i];
		}
	}
}

void jm_ref_attention_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t all = n->in[0]->dim[0] * n->attr.attention.heads;

	for (int64_t bh = 0; bh < all; bh++) {
		struct head e = head_of(n, in + 1, in[6], n->in[0], bh);

		for (int64_t s = 0; s < e.queries; s++)
			backward_row(&e, s, in[5][bh * e.queries + s], in[0] + place(&e.y, s),
				in[4] + place(&e.y, s), out);
	}
}

/* The position of row b S + s: from the operand if it is given, else s. */
static double position(const struct jm_node *n, const double *at, int64_t row)
{
	int64_t seq = n->in[0]->dim[1];

	if (!at)
		return (double)(row % seq);
	return at[n->in[1]->rank > 1 ? row : row % seq];
}

/* Rotates the first heads of each row, for the gradient backwards; the values after them are
 * copied. */
static void rotate(
	const struct jm_node *n, const double *x, const double *at_each, double *y, double sign)
{
	int turned = n->attr.rope.heads + n->attr.rope.kv_heads;
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);
	int64_t depth = width / (turned + n->attr.rope.kv_heads), half = depth / 2;

	memcpy(y, x, (size_t)(rows * width) * sizeof(*y));
	for (int64_t i = 0; i < rows * turned * half; i++) {
		int64_t row = i / (turned * half), head = i / half % turned, pair = i % half;
		int64_t at = row * width + head * depth + pair;
		double w = jm_rotary_speed(&n->attr.rope.rotary, pair, depth);
		double angle = position(n, at_each, row) * w;
		double c = cos(angle), s = sign * sin(angle);

		y[at] = x[at] * c - x[at + half] * s;
		y[at + half] = x[at + half] * c + x[at] * s;
	}
}

void jm_ref_rope(const struct jm_node *n, double *const *in, double *const *out)
{
	rotate(n, in[0], in[1], out[0], 1);
}

void jm_ref_rope_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	rotate(n, in[0], in[1], out[0], -1);
}
