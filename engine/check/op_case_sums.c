/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that accumulate, each by its own bit, for the comparison of backends with ref. All
 * results hold values before the run; those that do not accumulate must be overwritten in full. The
 * flag of all cases: the second and fourth result accumulate; else the first and third.
 */
#include "op_case.h"

static struct jm_tensor *held(struct kit *k, enum jm_dtype type, int rank, const int64_t *dim)
{
	return backend_result(k, type, true, rank, dim);
}

static struct jm_node *sums(
	struct kit *k, enum jm_op op, struct jm_tensor **in, struct jm_tensor **out, bool second)
{
	struct jm_node *n = backend_node(k, op, in, out, 0);

	for (int i = second; i < n->n_out; i += 2)
		if (out[i])
			n->accumulate |= 1u << i;
	return n;
}

static void embed_grad(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	struct jm_tensor *ids = kit_ids(k, 11, 2, DIMS(d->b, d->s));
	struct jm_tensor *dy = kit_normal(k, t->a, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dtable = held(k, t->v, 2, DIMS(11, d->c));
	struct jm_tensor *dpos = held(k, t->v, 2, DIMS(d->s + 3, d->c));

	sums(k, JM_OP_EMBED_GRAD, OPS(ids, dy), OPS(dtable, dpos), second);
}

static void linear_wgrad(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dw = held(k, t->v, 2, DIMS(d->n, d->c));
	struct jm_tensor *db = held(k, t->v, 1, DIMS(d->n));

	sums(k, JM_OP_LINEAR_WGRAD, OPS(dy, x), OPS(dw, db), second);
}

static void norm_grad(
	struct kit *k, const struct types *t, const struct shape *d, bool second, bool centred)
{
	struct jm_tensor *in[JM_NODE_IN];
	enum jm_op op = backend_norm_grad(k, t, d, centred, in);
	struct jm_tensor *dx = held(k, t->a, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *dgamma = held(k, t->v, 1, DIMS(d->c));
	struct jm_tensor *dbeta = centred ? held(k, t->v, 1, DIMS(d->c)) : NULL;

	sums(k, op, in, OPS(dx, dgamma, dbeta), second);
}

static void layernorm_grad(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	norm_grad(k, t, d, second, true);
}

static void rmsnorm_grad(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	norm_grad(k, t, d, second, false);
}

/* The output and the sums belong to no queries, because any numbers are suitable. */
static void attention_grad(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	int64_t depth = d->c / d->heads, width = depth * (d->heads + 2 * d->kv_heads);
	const int64_t *y_dim = DIMS(d->b, d->s, depth * d->heads);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, y_dim);
	struct jm_tensor *qkv = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, width));
	struct jm_tensor *y = kit_normal(k, t->c, 0, 1, 3, y_dim);
	struct jm_tensor *lse = kit_normal(k, t->v, 4, 0.5, 3, DIMS(d->b, d->heads, d->s));
	struct jm_tensor *dqkv = held(k, t->c, 3, qkv->dim);
	struct jm_node *n = sums(k, JM_OP_ATTENTION_GRAD, OPS(dy, qkv, qkv, qkv, y, lse),
		OPS(dqkv, dqkv, dqkv), second);

	n->accumulate = second ? 0 : 7;
	jm_attention_pack(n, d->heads, d->kv_heads);
	n->attr.attention.causal = true;
	n->attr.attention.scale = 0.1;
}

static void rope(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	int64_t width = d->c / d->heads / 2 * 2 * (d->heads + 2 * d->kv_heads);
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, width));
	struct jm_tensor *y = held(k, t->c, 3, x->dim);
	struct jm_node *n = sums(k, JM_OP_ROPE, OPS(x), &y, second);

	n->attr.rope.heads = d->heads;
	n->attr.rope.kv_heads = d->kv_heads;
	n->attr.rope.rotary.theta = 10000;
}

static void cast(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	struct jm_tensor *x = kit_normal(k, t->v, 0, 1, 2, DIMS(d->s, d->c));
	struct jm_tensor *y = held(k, t->c, 2, x->dim);

	sums(k, JM_OP_CAST, &x, &y, second);
}

static void dropout(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, d->c));
	struct jm_tensor *now = kit_ids(k, 1000, 1, DIMS(1)), *y = held(k, t->c, 3, x->dim);
	struct jm_node *n = sums(k, JM_OP_DROPOUT, OPS(x, now), &y, second);

	n->attr.dropout.p = 0.3;
	n->attr.dropout.seed = 5;
}

static void softmax_xent(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	struct jm_tensor *x = kit_normal(k, t->c, 0, 3, 3, DIMS(d->b, d->s, d->n));
	struct jm_tensor *target = kit_ids(k, d->n, 2, DIMS(d->b, d->s));
	struct jm_tensor *loss = backend_total(k, t->v, true), *dx = held(k, t->c, 3, x->dim);

	backend_weigh(
		sums(k, JM_OP_SOFTMAX_XENT, OPS(x, target, NULL), OPS(loss, dx), second), 0.5, 0.4);
}

static void norm(struct kit *k, const struct types *t, const struct shape *d, bool second)
{
	struct jm_tensor *x = kit_normal(k, t->v, 0, 1, 1, DIMS(3 * d->s * d->c));
	struct jm_tensor *y = backend_total(k, t->v, true);

	sums(k, JM_OP_NORM, OPS(x), &y, second);
}

const struct backend_case backend_sums_cases[] = {
	{"embed-grad (+)", embed_grad},
	{"linear-wgrad (+)", linear_wgrad},
	{"layernorm-grad (+)", layernorm_grad},
	{"rmsnorm-grad (+)", rmsnorm_grad},
	{"attention-grad (+)", attention_grad},
	{"rope (+)", rope},
	{"cast (+)", cast},
	{"dropout (+)", dropout},
	{"softmax-xent (+)", softmax_xent},
	{"norm (+)", norm},
	{0},
};
