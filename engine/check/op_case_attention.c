/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, packed and through views of several tensors, and rotary positions. */
#include "op_case.h"

#include <math.h>

static void attention_of(
	struct kit *k, const struct types *t, const struct shape *d, int64_t depth, bool causal)
{
	int64_t width = depth * (d->heads + 2 * d->kv_heads);
	struct jm_tensor *qkv = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, width));
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, depth * d->heads));
	struct jm_tensor *y = kit_out(k, t->c, 3, dy->dim, NULL);
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(d->b, d->heads, d->s), NULL);
	struct jm_tensor *dqkv = kit_out(k, t->c, 3, qkv->dim, NULL);
	struct jm_node *fwd = backend_node(k, JM_OP_ATTENTION, OPS(qkv, qkv, qkv), OPS(y, lse), 0),
		       *bwd;

	bwd = backend_node(
		k, JM_OP_ATTENTION_GRAD, OPS(dy, qkv, qkv, qkv, y, lse), OPS(dqkv, dqkv, dqkv), 0);
	jm_attention_pack(fwd, d->heads, d->kv_heads);
	fwd->attr.attention.causal = causal;
	fwd->attr.attention.scale = 1 / sqrt((double)depth);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
}

static void attention(struct kit *k, const struct types *t, const struct shape *d, bool causal)
{
	attention_of(k, t, d, d->c / d->heads / 2 * 2, causal);
}

/* Widths for which backends have own kernels in 16 bits, which work in tiles: sequences are longer
 * than one. There are few shapes, because backends compile kernels for each. */
static void attention_wide(struct kit *k, const struct types *t, const struct shape *d, bool causal)
{
	static const struct shape shapes[] = {
		{.b = 2, .s = 181, .c = 64, .heads = 2, .kv_heads = 1},
		{.b = 1, .s = 130, .c = 128, .heads = 1, .kv_heads = 1},
		{.b = 1, .s = 97, .c = 256, .heads = 2, .kv_heads = 1}};
	struct shape s = shapes[d->s % 3];

	if (t->c == JM_F32)
		s = (struct shape){.b = 1, .s = 65, .c = 64, .heads = 2, .kv_heads = 1};
	attention_of(k, t, &s, s.c, causal);
}

/* Scores that differ so much that weights would overflow in 16 bits if the largest score among the
 * first keys were that of the row: packed, without a gradient. */
static void attention_peaked(
	struct kit *k, const struct types *t, const struct shape *d, bool causal)
{
	const int64_t depth = d->s % 2 ? 64 : 128, seq = 140 + d->s % 64, heads = 2;
	struct jm_tensor *qkv = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, seq, 3 * heads * depth));
	struct jm_tensor *y = backend_result(k, t->c, false, 3, DIMS(d->b, seq, heads * depth));
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(d->b, heads, seq), NULL);
	struct jm_node *n = backend_node(k, JM_OP_ATTENTION, OPS(qkv, qkv, qkv), OPS(y, lse), 0);

	jm_attention_pack(n, (int)heads, (int)heads);
	n->attr.attention.causal = causal;
	n->attr.attention.scale = 7 / sqrt((double)depth);
}

/* The one head of a picture's encoder, which is frozen: packed and causal, with two queries and so
 * many keys that a backend handles a row of scores in pieces, or with more queries than a tile of a
 * backend. A backend may refuse. */
static void attention_widest(
	struct kit *k, const struct types *t, const struct shape *d, bool causal)
{
	const bool tiles = !causal && d->s % 2;
	const int64_t depth = 512, seq = causal ? 2 + d->s % 40 : tiles ? 60 + d->s % 80 : 2;
	const int64_t keys = causal ? seq : tiles ? 100 + d->s : 2040 + d->s % 40;
	const int64_t b = causal || tiles ? d->b : 1;
	struct jm_tensor *q, *kv, *y = backend_result(k, t->c, false, 3, DIMS(b, seq, depth));
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(b, 1, seq), NULL);
	struct jm_node *n;

	kv = kit_normal(k, t->c, 0, 1, 3, DIMS(b, keys, causal ? 3 * depth : depth));
	q = causal ? kv : kit_normal(k, t->c, 0, 1, 3, DIMS(b, seq, depth));
	n = backend_node(k, JM_OP_ATTENTION, OPS(q, kv, kv), OPS(y, lse), 0);
	if (causal)
		jm_attention_pack(n, 1, 1);
	else {
		n->attr.attention.heads = n->attr.attention.kv_heads = 1;
		n->attr.attention.depth = depth;
		n->attr.attention.keys = keys;
		n->attr.attention.q = (struct jm_view){0, seq * depth, depth, depth};
		n->attr.attention.k = (struct jm_view){0, keys * depth, depth, depth};
		n->attr.attention.v = n->attr.attention.k;
	}
	n->attr.attention.causal = causal;
	n->attr.attention.scale = 1 / sqrt((double)depth);
}

void backend_attend(
	struct jm_node *n, const struct shape *d, int64_t seq, int64_t depth, bool causal)
{
	n->attr.attention.heads = d->heads;
	n->attr.attention.kv_heads = d->kv_heads;
	n->attr.attention.depth = depth;
	n->attr.attention.keys = seq;
	n->attr.attention.causal = causal;
	n->attr.attention.scale = 1 / sqrt((double)depth);
	n->attr.attention.q = (struct jm_view){0, d->heads * seq * depth, depth, seq * depth};
	n->attr.attention.k =
		(struct jm_view){0, seq * d->kv_heads * depth, d->kv_heads * depth, depth};
	n->attr.attention.v = n->attr.attention.k;
}

/* Queries, keys and values in separate tensors; in queries heads precede positions. There are two
 * keys at least: the gradient of one is 0, of which no rounding is a share. A backend may
 * refuse. */
static void attention_apart(
	struct kit *k, const struct types *t, const struct shape *d, bool causal)
{
	int64_t depth = d->c / d->heads / 2 * 2, groups = d->kv_heads, seq = d->s > 1 ? d->s : 2;
	const int64_t *q_dim = DIMS(d->b, d->heads, seq, depth),
		      *k_dim = DIMS(d->b, seq, groups, depth);
	struct jm_tensor *q = kit_normal(k, t->c, 0, 1, 4, q_dim);
	struct jm_tensor *keys = kit_normal(k, t->c, 0, 1, 4, k_dim);
	struct jm_tensor *v = kit_normal(k, t->c, 0, 1, 4, k_dim);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, seq, depth * d->heads));
	struct jm_tensor *y = kit_out(k, t->c, 3, dy->dim, NULL);
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(d->b, d->heads, seq), NULL);
	struct jm_node *fwd = backend_node(k, JM_OP_ATTENTION, OPS(q, keys, v), OPS(y, lse), 0),
		       *bwd;

	bwd = backend_node(k, JM_OP_ATTENTION_GRAD, OPS(dy, q, keys, v, y, lse),
		OPS(kit_out(k, t->c, 4, q_dim, NULL), kit_out(k, t->c, 4, k_dim, NULL),
			kit_out(k, t->c, 4, k_dim, NULL)),
		0);
	backend_attend(fwd, d, seq, depth, causal);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
}

static void rope(struct kit *k, const struct types *t, const struct shape *d, bool back)
{
	int64_t depth = (d->c / d->heads + 1) / 2 * 2, width = depth * (d->heads + 2 * d->kv_heads);
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 3, DIMS(d->b, d->s, width));
	struct jm_tensor *y = kit_out(k, t->c, 3, x->dim, NULL);
	struct jm_node *n = backend_node(k, back ? JM_OP_ROPE_GRAD : JM_OP_ROPE, OPS(x), &y, 0);

	n->attr.rope.heads = d->heads;
	n->attr.rope.kv_heads = d->kv_heads;
	n->attr.rope.rotary.theta = 10000;
}

const struct backend_case backend_attention_cases[] = {
	{"attention", attention},
	{"attention-wide", attention_wide},
	{"attention-peaked", attention_peaked},
	{"attention-widest", attention_widest},
	{"attention-apart", attention_apart},
	{"rope", rope},
	{0},
};
