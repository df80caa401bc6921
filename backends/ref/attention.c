/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over packed queries, keys and values; rotary positions. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

/* One head of one sequence: where its rows are, and how far apart. */
struct head {
	int64_t seq, depth, stride, y_stride;
	const double *q, *k, *v;
	double scale;
	bool causal;
	int64_t q_at, k_at, v_at, y_at; /* offsets of row 0 in qkv and in y */
};

static struct head head_of(const struct jm_node *n, const struct jm_tensor *qkv, const double *data,
	int64_t batch, int64_t h)
{
	int64_t heads = n->attr.attention.heads, groups = n->attr.attention.kv_heads;
	int64_t seq = qkv->dim[1], width = qkv->dim[2], depth = width / (heads + 2 * groups);
	int64_t row = batch * seq * width, g = h / (heads / groups);
	struct head e = {.seq = seq, .depth = depth, .stride = width, .y_stride = heads * depth};

	e.scale = n->attr.attention.scale;
	e.causal = n->attr.attention.causal;
	e.q_at = row + h * depth;
	e.k_at = row + (heads + g) * depth;
	e.v_at = row + (heads + groups + g) * depth;
	e.y_at = batch * seq * heads * depth + h * depth;
	e.q = data + e.q_at;
	e.k = data + e.k_at;
	e.v = data + e.v_at;
	return e;
}

static double dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* How many positions the query at s sees. */
static int64_t seen(const struct head *e, int64_t s)
{
	return e->causal ? s + 1 : e->seq;
}

static double score(const struct head *e, int64_t s, int64_t t)
{
	return e->scale * dot(e->q + s * e->stride, e->k + t * e->stride, e->depth);
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
			y[i] += p * e->v[t * e->stride + i];
	}
}

void jm_ref_attention(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t heads = n->attr.attention.heads, batch = n->in[0]->dim[0];

	for (int64_t bh = 0; bh < batch * heads; bh++) {
		struct head e = head_of(n, n->in[0], in[0], bh / heads, bh % heads);

		for (int64_t s = 0; s < e.seq; s++) {
			double lse = log_sum_exp(&e, s);

			forward_row(&e, s, lse, out[0] + e.y_at + s * e.y_stride);
			out[1][bh * e.seq + s] = lse;
		}
	}
}

/* Adds the part of query s: with p the weights, dp = dy v^T, dz = p (dp - dy.y). */
static void backward_row(const struct head *e, int64_t s, double lse, const double *dy,
	const double *y, double *dqkv)
{
	double *dq = dqkv + e->q_at + s * e->stride, dyy = dot(dy, y, e->depth);

	for (int64_t t = 0; t < seen(e, s); t++) {
		const double *k = e->k + t * e->stride, *v = e->v + t * e->stride;
		double *dk = dqkv + e->k_at + t * e->stride, *dv = dqkv + e->v_at + t * e->stride;
		double p = exp(score(e, s, t) - lse);
		double dz = e->scale * p * (dot(dy, v, e->depth) - dyy);

		for (int64_t i = 0; i < e->depth; i++) {
			dv[i] += p * dy[i];
			dq[i] += dz * k[i];
			dk[i] += dz * e->q[s * e->stride + i];
		}
	}
}

void jm_ref_attention_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	int64_t heads = n->attr.attention.heads, batch = n->in[1]->dim[0];

	for (int64_t bh = 0; bh < batch * heads; bh++) {
		struct head e = head_of(n, n->in[1], in[1], bh / heads, bh % heads);

		for (int64_t s = 0; s < e.seq; s++) {
			int64_t at = e.y_at + s * e.y_stride;

			backward_row(&e, s, in[3][bh * e.seq + s], in[0] + at, in[2] + at, out[0]);
		}
	}
}

/* Turns (or turns back) the first heads of each row; the values behind them are copied. */
static void rotate(const struct jm_node *n, const double *x, double *y, double sign)
{
	int turned = n->attr.rope.heads + n->attr.rope.kv_heads;
	int64_t rows = jm_tensor_rows(n->in[0]), width = jm_tensor_width(n->in[0]);
	int64_t depth = width / (turned + n->attr.rope.kv_heads), half = depth / 2;

	memcpy(y, x, (size_t)(rows * width) * sizeof(*y));
	for (int64_t i = 0; i < rows * turned * half; i++) {
		int64_t row = i / (turned * half), head = i / half % turned, pair = i % half;
		int64_t at = row * width + head * depth + pair;
		double w = pow(n->attr.rope.theta, -2.0 * (double)pair / (double)depth);
		double angle = (double)(row % n->in[0]->dim[1]) * w;
		double c = cos(angle), s = sign * sin(angle);

		y[at] = x[at] * c - x[at + half] * s;
		y[at + half] = x[at + half] * c + x[at] * s;
	}
}

void jm_ref_rope(const struct jm_node *n, double *const *in, double *const *out)
{
	rotate(n, in[0], out[0], 1);
}

void jm_ref_rope_grad(const struct jm_node *n, double *const *in, double *const *out)
{
	rotate(n, in[0], out[0], -1);
}
