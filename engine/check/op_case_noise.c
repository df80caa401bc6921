/* SPDX-License-Identifier: Apache-2.0 */
/* What networks that remove noise need: noise of a step, its waves, samples of moments, attention
 * to other keys than the own ones; colours of pixels; for the comparison of backends with ref. */
#include "engine/graph/layer.h"
#include "op_case.h"

#include <math.h>

/* Even sizes learn the noise, odd ones v. */
static void add_noise(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	const int64_t dim[] = {d->b, d->c, 3, 2 + d->s % 5}, steps = 40;
	struct jm_tensor *x = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *e = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *at = kit_ids(k, steps, 1, dim);
	struct jm_tensor *y = backend_result(k, t->c, false, 4, dim);
	struct jm_tensor *target = alone ? NULL : backend_result(k, t->v, false, 4, dim);
	struct jm_node *n = backend_node(k, JM_OP_ADD_NOISE, OPS(x, e, at), OPS(y, target), 0);

	n->attr.noise.steps = steps;
	n->attr.noise.first = 0.00085;
	n->attr.noise.last = 0.3;
	n->attr.noise.velocity = d->s % 2;
}

/* Some logarithms of variances are beyond what counts. */
static void draw_moments(struct kit *k, const struct types *t, const struct shape *d, bool far)
{
	const int64_t dim[] = {d->b, d->c, 3, 2 + d->s % 5}, both[] = {d->b, 2 * d->c, 3, dim[3]};
	struct jm_tensor *m = kit_normal(k, t->c, 0, far ? 15 : 1, 4, both);
	struct jm_tensor *e = kit_normal(k, t->c, 0, 1, 4, dim);
	struct jm_tensor *y = backend_result(k, t->c, false, 4, dim);
	struct jm_node *n = backend_node(k, JM_OP_DRAW_MOMENTS, OPS(m, e), &y, 0);

	n->attr.draw.factor = 0.18215;
}

static void step_waves(struct kit *k, const struct types *t, const struct shape *d, bool near)
{
	struct jm_tensor *at = kit_ids(k, near ? 3 : 1000, 1, DIMS(d->b));
	struct jm_tensor *y = backend_result(k, t->c, false, 4, DIMS(d->b, d->c / 2 * 2 + 2, 1, 1));

	backend_node(k, JM_OP_STEP_WAVES, OPS(at), &y, 0);
}

static void colours(struct kit *k, const struct types *t, const struct shape *d, bool signs)
{
	const int64_t dim[] = {d->b, 3, 7 + d->s % 5, 5 + d->n % 9};
	struct jm_tensor *x = kit_whole(k, JM_U8, 0, 255, 4, dim);
	struct jm_tensor *y = backend_result(k, t->c, false, 4, dim);
	struct jm_node *n = backend_node(k, JM_OP_COLOURS, OPS(x), &y, 0);

	for (int c = 0; c < 3; c++) {
		n->attr.colours.factor[c] = (float)(0.01 + 0.003 * c);
		n->attr.colours.shift[c] = (float)(signs ? -1.5 + c : 0.25 * c);
	}
}

static struct jm_view view_of(const struct jm_tensor *t, int64_t depth)
{
	return (struct jm_view){0, t->dim[1] * t->dim[2], t->dim[2], depth};
}

/* The flag adds to the gradients. */
static void cross_of(struct kit *k, const struct types *t, const struct shape *d, int64_t depth,
	int64_t keys, bool add)
{
	const int64_t *q_dim = DIMS(d->b, d->s, depth * d->heads);
	const int64_t *k_dim = DIMS(d->b, keys, depth * d->heads);
	struct jm_tensor *q = kit_normal(k, t->c, 0, 1, 3, q_dim);
	struct jm_tensor *key = kit_normal(k, t->c, 0, 1, 3, k_dim);
	struct jm_tensor *v = kit_normal(k, t->c, 0, 1, 3, k_dim);
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 3, q_dim);
	struct jm_tensor *y = kit_out(k, t->c, 3, q_dim, NULL);
	struct jm_tensor *lse = kit_out(k, t->v, 3, DIMS(d->b, d->heads, d->s), NULL);
	struct jm_node *fwd = backend_node(k, JM_OP_ATTENTION, OPS(q, key, v), OPS(y, lse), 0),
		       *bwd;

	bwd = backend_node(k, JM_OP_ATTENTION_GRAD, OPS(dy, q, key, v, y, lse),
		OPS(backend_result(k, t->c, add, 3, q_dim), backend_result(k, t->c, add, 3, k_dim),
			backend_result(k, t->c, add, 3, k_dim)),
		add ? 7 : 0);
	fwd->attr.attention.heads = fwd->attr.attention.kv_heads = d->heads;
	fwd->attr.attention.depth = depth;
	fwd->attr.attention.keys = keys;
	fwd->attr.attention.scale = 1 / sqrt((double)depth);
	fwd->attr.attention.q = view_of(q, depth);
	fwd->attr.attention.k = fwd->attr.attention.v = view_of(key, depth);
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
}

/* More or fewer keys than queries, and more than a tile of both. */
static void attention_cross(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	struct shape s = *d;

	s.s = d->s % 3 ? d->s : 70;
	cross_of(k, t, &s, d->c / d->heads / 2 * 2, d->s % 2 ? 77 : 2 + d->b, add);
}

/* Widths for which backends have own kernels, as attention-wide (op_case_attention.c). */
static void attention_cross_wide(
	struct kit *k, const struct types *t, const struct shape *d, bool few)
{
	static const struct shape shapes[] = {{.b = 2, .s = 181, .c = 64, .heads = 2},
		{.b = 1, .s = 70, .c = 128, .heads = 1}, {.b = 1, .s = 97, .c = 256, .heads = 2}};
	const struct shape *s = &shapes[t->c == JM_F32 ? 0 : d->s % 3];

	cross_of(k, t, s, s->c, few ? 77 : 130, false);
}

const struct backend_case backend_noise_cases[] = {
	{"add-noise", add_noise},
	{"draw-moments", draw_moments},
	{"step-waves", step_waves},
	{"colours", colours},
	{"attention-cross", attention_cross},
	{"attention-cross-wide", attention_cross_wide},
	{0},
};
