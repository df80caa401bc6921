/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over packed queries, keys and values, qkv[B,S,(H+2G)D], and its gradient if asked for.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/graph/op.h"
#include "engine/graph/rng.h"
#include "engine/graph/tensor.h"
#include "workloads/parts/kernel_run.h"

#define SAMPLES 16 /* rows of a head that are computed again */

struct attention {
	struct jm_kernel kernel; /* first */
	int64_t batch, seq, depth;
	int heads, kv_heads;
	int passes; /* per step; 0 = by the device */
	bool full, backward;
	double scale;
	struct jm_tensor *qkv, *y, *dy, *dqkv;
	struct jm_operand qkv_values, dy_values;
};

#define NUMBER(field, most, value, what)                                                           \
	{                                                                                          \
		.name = #field, JM_BIND(JM_INT, struct attention, field), .min = 1, .max = most,   \
		.fallback = value, .help = what                                                    \
	}

static const struct jm_option options[] = {
	NUMBER(batch, 1e6, "8", "sequences"),
	NUMBER(seq, 1e7, "2048", "tokens per sequence"),
	NUMBER(heads, 1e5, "16", "heads of queries"),
	{.name = "kv-heads",
		JM_BIND(JM_INT, struct attention, kv_heads),
		.min = 1,
		.max = 1e5,
		.help = "heads of keys and values, each shared by several heads; without it as "
			"many "
			"as --heads"},
	NUMBER(depth, 1e4, "128", "width of a head"),
	{.name = "full",
		JM_BIND(JM_FLAG, struct attention, full),
		.help = "every token sees all tokens; else only itself and those before it"},
	{.name = "backward",
		JM_BIND(JM_FLAG, struct attention, backward),
		.help = "the gradient too"},
	{.name = "passes",
		JM_BIND(JM_INT, struct attention, passes),
		.min = 1,
		.max = 1e4,
		.help = "passes per step; without it as many as the device should do in 20 "
			"ms"},
	JM_KERNEL_THREADS(struct attention),
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

static int choose(struct attention *s, struct jm_err *err)
{
	if (!s->kv_heads)
		s->kv_heads = s->heads;
	s->scale = 1 / sqrt((double)s->depth);
	s->qkv_values.seed = jm_rng(s->kernel.work->seed, 0);
	s->dy_values.seed = jm_rng(s->kernel.work->seed, 1);
	if (s->heads % s->kv_heads)
		return jm_err_set(err, JM_EUSAGE,
			"%d heads cannot share %d heads of keys and values evenly; give --kv-heads "
			"a divisor of --heads.",
			s->heads, s->kv_heads);
	return 0;
}

static struct jm_tensor *tensor(
	struct attention *s, enum jm_class class, int64_t width, const char *name)
{
	struct jm_graph *g = s->kernel.graph;

	return jm_graph_tensor(
		g, class, g->compute, 3, (const int64_t[]){s->batch, s->seq, width}, name);
}

static void set_attr(const struct attention *s, struct jm_node *n)
{
	jm_attention_pack(n, s->heads, s->kv_heads);
	n->attr.attention.causal = !s->full;
	n->attr.attention.scale = s->scale;
	jm_node_cost(n); /* a mask halves it */
}

static void declare_pass(struct attention *s, struct jm_tensor *lse)
{
	struct jm_graph *g = s->kernel.graph;
	struct jm_node *fwd, *bwd;

	fwd = jm_graph_node(g, JM_OP_ATTENTION,
		(struct jm_tensor *[JM_NODE_IN]){s->qkv, s->qkv, s->qkv},
		(struct jm_tensor *[JM_NODE_OUT]){s->y, lse});
	if (!fwd)
		return;
	set_attr(s, fwd);
	if (!s->backward)
		return;
	bwd = jm_graph_node(g, JM_OP_ATTENTION_GRAD,
		(struct jm_tensor *[JM_NODE_IN]){s->dy, s->qkv, s->qkv, s->qkv, s->y, lse},
		(struct jm_tensor *[JM_NODE_OUT]){s->dqkv, s->dqkv, s->dqkv});
	if (!bwd)
		return;
	set_attr(s, bwd);
	bwd->fwd = fwd;
}

/* Of one pass: both products of the forward direction, and five of the gradient. */
static int choose_passes(const struct attention *s)
{
	double product = 2.0 * (double)s->batch * s->heads * (double)s->seq * (double)s->seq *
			 (double)s->depth * (s->full ? 1 : 0.5);

	if (s->passes)
		return s->passes;
	return jm_kernel_repeat(&s->kernel, product * (s->backward ? 7 : 2), 0);
}

static void declare(struct attention *s)
{
	int64_t width = s->depth * (s->heads + 2 * s->kv_heads);
	struct jm_graph *g = s->kernel.graph;
	int passes = choose_passes(s);
	struct jm_tensor *lse = jm_graph_tensor(g, JM_CLASS_ACT, g->vector, 3,
		(const int64_t[]){s->batch, s->heads, s->seq}, "lse");

	s->qkv = tensor(s, JM_CLASS_INPUT, width, "qkv");
	s->y = tensor(s, JM_CLASS_SCALAR, s->depth * s->heads, "y");
	if (s->backward) {
		s->dy = tensor(s, JM_CLASS_INPUT, s->depth * s->heads, "dy");
		s->dqkv = tensor(s, JM_CLASS_SCALAR, width, "dqkv");
	}
	for (int i = 0; i < passes; i++)
		declare_pass(s, lse);
	s->kernel.each.items = (double)passes * (double)(s->batch * s->seq);
	snprintf(s->kernel.work->detail, sizeof s->kernel.work->detail,
		"%lld x %lld tokens, %d heads of %lld, %d of keys and values, %s%s, %d passes per "
		"step",
		(long long)s->batch, (long long)s->seq, s->heads, (long long)s->depth, s->kv_heads,
		s->full ? "full" : "causal", s->backward ? ", with gradient" : "", passes);
}

static int prepare(void *state, struct jm_work *work, struct jm_err *err)
{
	struct attention *s = state;
	int code = jm_kernel_open(&s->kernel, work, err);

	if (!code)
		code = choose(s, err);
	if (code)
		return code;
	declare(s);
	code = jm_kernel_ready(&s->kernel, err);
	if (!code)
		code = jm_operand_write(&s->kernel, &s->qkv_values, s->qkv, err);
	if (!code && s->dy)
		code = jm_operand_write(&s->kernel, &s->dy_values, s->dy, err);
	return code;
}

static int attention_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	return jm_kernel_setup(
		work, sizeof(struct attention), prepare, jm_kernel_teardown, ret_state, err);
}

/* ---- verification: rows of y and of the queries' gradient in f64 ----------------------------- */

/* Row `token` of query head h of sequence b, and the number of keys that it attends to. */
struct row {
	int64_t b, token, seen;
	int h;
	double *p; /* [seen] */
};

enum part { QUERY, KEY, VALUE };

/* Element d of the row's query, or of the key or value of token t. */
static double operand(
	const struct attention *s, const struct row *r, enum part part, int64_t t, int64_t d)
{
	int64_t width = s->depth * (s->heads + 2 * s->kv_heads);
	int64_t group = r->h / (s->heads / s->kv_heads);
	int64_t head = part == QUERY ? r->h : s->heads + (part - KEY) * s->kv_heads + group;

	return jm_operand_value(&s->qkv_values, s->kernel.graph->compute,
		(r->b * s->seq + t) * width + head * s->depth + d);
}

static double upstream(const struct attention *s, const struct row *r, int64_t d)
{
	int64_t at = ((r->b * s->seq + r->token) * s->heads + r->h) * s->depth + d;

	return jm_operand_value(&s->dy_values, s->kernel.graph->compute, at);
}

static void weigh(const struct attention *s, struct row *r)
{
	double most = -INFINITY, sum = 0;

	for (int64_t t = 0; t < r->seen; t++) {
		double z = 0;

		for (int64_t d = 0; d < s->depth; d++)
			z += operand(s, r, QUERY, r->token, d) * operand(s, r, KEY, t, d);
		r->p[t] = s->scale * z;
		most = fmax(most, r->p[t]);
	}
	for (int64_t t = 0; t < r->seen; t++)
		sum += r->p[t] = exp(r->p[t] - most);
	for (int64_t t = 0; t < r->seen; t++)
		r->p[t] /= sum;
}

/* Relative to what is summed up: the result's rounding, the weights' by type, and that of sums. */
static double unit_of(const struct attention *s)
{
	return 2 * jm_product_tolerance(&s->kernel, 1, 1);
}

static int differs(
	const struct row *r, const char *what, double got, double want, struct jm_err *err)
{
	return jm_err_set(err, JM_ERANGE,
		"%s of token %lld, head %d, sequence %lld is %.9g, and by f64 it is %.9g: the "
		"device or its library computes wrongly; do not trust its results.",
		what, (long long)r->token, r->h, (long long)r->b, got, want);
}

static int compare_y(
	const struct attention *s, const struct row *r, const void *y, struct jm_err *err)
{
	for (int64_t d = 0; d < s->depth; d++) {
		double want = 0, size = 0, got;

		for (int64_t t = 0; t < r->seen; t++) {
			double term = r->p[t] * operand(s, r, VALUE, t, d);

			want += term;
			size += fabs(term);
		}
		got = jm_element_get(s->y->type, y,
			((r->b * s->seq + r->token) * s->heads + r->h) * s->depth + d);
		if (!(fabs(got - want) <= unit_of(s) * (fabs(want) + size)))
			return differs(r, "Attention", got, want, err);
	}
	return 0;
}

/* dq = scale sum of p (dp - delta) k, with dp = dy v and delta = sum of p dp; here p becomes p (dp
 * - delta). */
static double turn(const struct attention *s, struct row *r)
{
	double *dp = calloc((size_t)r->seen, sizeof *dp), delta = 0, size = 0;

	if (!dp)
		return NAN;
	for (int64_t t = 0; t < r->seen; t++) {
		double most = 0;

		for (int64_t d = 0; d < s->depth; d++) {
			double term = upstream(s, r, d) * operand(s, r, VALUE, t, d);

			dp[t] += term;
			most += fabs(term);
		}
		delta += r->p[t] * dp[t];
		size += r->p[t] * most;
	}
	for (int64_t t = 0; t < r->seen; t++)
		r->p[t] *= dp[t] - delta;
	free(dp);
	return size;
}

static int compare_dq(
	const struct attention *s, struct row *r, const void *dqkv, struct jm_err *err)
{
	int64_t width = s->depth * (s->heads + 2 * s->kv_heads);
	double size = turn(s, r);

	for (int64_t d = 0; d < s->depth; d++) {
		double want = 0, terms = 0, got;

		for (int64_t t = 0; t < r->seen; t++) {
			double term = s->scale * r->p[t] * operand(s, r, KEY, t, d);

			want += term;
			terms += fabs(term);
		}
		got = jm_element_get(s->dqkv->type, dqkv,
			(r->b * s->seq + r->token) * width + r->h * s->depth + d);
		if (!(fabs(got - want) <= unit_of(s) * (fabs(want) + terms + s->scale * size)))
			return differs(r, "The query's gradient", got, want, err);
	}
	return 0;
}

static int compare(const struct attention *s, const void *y, const void *dqkv, struct jm_err *err)
{
	double *p = calloc((size_t)s->seq, sizeof *p);
	int code = p ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory to verify.");

	for (int i = 0; i < SAMPLES && !code; i++) {
		uint64_t bits = jm_rng(s->kernel.work->seed ^ 0x61747465, (uint64_t)i);
		struct row r = {.b = (int64_t)(bits % (uint64_t)s->batch),
			.token = i ? (int64_t)((bits >> 20) % (uint64_t)s->seq) : s->seq - 1,
			.h = (int)((bits >> 50) % (uint64_t)s->heads),
			.p = p};

		r.seen = s->full ? s->seq : r.token + 1;
		weigh(s, &r);
		code = compare_y(s, &r, y, err);
		if (!code && dqkv)
			code = compare_dq(s, &r, dqkv, err);
	}
	free(p);
	return code;
}

static int attention_verify(void *state, struct jm_err *err)
{
	struct attention *s = state;
	void *y = jm_kernel_read(&s->kernel, s->y, err);
	void *dqkv = y && s->dqkv ? jm_kernel_read(&s->kernel, s->dqkv, err) : NULL;
	int code = y && (dqkv || !s->dqkv) ? compare(s, y, dqkv, err) : err->code;

	free(y);
	free(dqkv);
	return code;
}

const struct jm_workload jm_workload_attention = {
	.name = "attention",
	.summary = "attention, and its gradient if asked for",
	.unit = "token",
	.options = options,
	.check = jm_kernel_check,
	.setup = attention_setup,
	.step = jm_kernel_step,
	.finish = jm_kernel_finish,
	.verify = attention_verify,
	.teardown = jm_kernel_teardown,
};
