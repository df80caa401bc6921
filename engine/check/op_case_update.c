/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of all gradients and the optimizers' updates, for the comparison of backends with
 * ref. */
#include "op_case.h"

#include <math.h>

/* Large: the squares overflow f32. */
static void norm(struct kit *k, const struct types *t, const struct shape *d, bool large)
{
	struct jm_tensor *x = kit_normal(k, t->v, 0, large ? 1e25 : 1, 1, DIMS(3 * d->s * d->c));
	struct jm_tensor *y = kit_out(k, t->v, 1, DIMS(1), NULL);

	backend_node(k, JM_OP_NORM, OPS(x), &y, 0);
}

/* Gradients of matrices and of vectors. */
static void norm_of_two(struct kit *k, const struct types *t, const struct shape *d, bool large)
{
	double spread = large && t->a != JM_F16 ? 1e25 : 1;
	struct jm_tensor *x = kit_normal(k, t->a, 0, spread, 1, DIMS(3 * d->s * d->c + 5));
	struct jm_tensor *more = kit_normal(k, t->v, 0, spread, 1, DIMS(d->s * d->n));
	struct jm_tensor *y = kit_out(k, t->v, 1, DIMS(1), NULL);

	backend_node(k, JM_OP_NORM, OPS(x, more), &y, 0);
}

/* With a norm that clips, or without one. For bf16 the last element of `now` is the step number. */
static void adams(
	struct kit *k, const struct types *t, const struct shape *d, bool alone, enum jm_op op)
{
	int64_t n = d->s * d->c * 3;
	struct jm_tensor *g = kit_normal(k, t->a, 0, 1, 1, &n);
	struct jm_tensor *size = alone ? NULL : kit_normal(k, t->v, 7, 0, 1, DIMS(1));
	struct jm_tensor *now = kit_normal(k, t->v, 0.1, 0, 1, DIMS(4));
	struct jm_tensor *p = backend_result(k, t->a, true, 1, &n),
			 *m = backend_result(k, t->a, true, 1, &n);
	struct jm_tensor *v = kit_out(k, t->a, 1, &n, kit_normal(k, t->a, 8, 0.5, 1, &n));
	struct jm_tensor *scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));
	struct jm_node *u = backend_node(k, op, OPS(g, size, now, scale), OPS(p, m, v), 0);

	u->attr.adamw.beta1 = 0.9;
	u->attr.adamw.beta2 = 0.95;
	u->attr.adamw.eps = 1e-6;
	u->attr.adamw.weight_decay = 0.3;
	u->attr.adamw.clip = 2;
	u->attr.adamw.n_decay = n / 2 + 1;
	u->attr.adamw.first = alone ? 0 : 1 << 20;
}

/* A part of the parameters is copied, whose end is no multiple of 8; in f32 nothing is. Gradients
 * of a bf16 copy may be in bf16 as well. */
static void adamw_copy(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	int64_t n = 96 + d->s * d->c * 3;
	struct jm_tensor *g = kit_normal(k, alone && t->c == JM_BF16 ? t->c : JM_F32, 0, 1, 1, &n);
	struct jm_tensor *size = alone ? NULL : kit_normal(k, JM_F32, 7, 0, 1, DIMS(1));
	struct jm_tensor *now = kit_normal(k, JM_F32, 0.1, 0, 1, DIMS(3));
	struct jm_tensor *p = backend_result(k, JM_F32, true, 1, &n);
	struct jm_tensor *m = backend_result(k, JM_F32, true, 1, &n);
	struct jm_tensor *v = kit_out(k, JM_F32, 1, &n, kit_normal(k, JM_F32, 8, 0.5, 1, &n));
	struct jm_tensor *copy =
		t->c == JM_F32 ? NULL : kit_out(k, t->c, 1, DIMS(n - 96 - 5), NULL);
	struct jm_node *u = backend_node(k, JM_OP_ADAMW, OPS(g, size, now), OPS(p, m, v, copy), 0);

	u->attr.adamw.beta1 = 0.9;
	u->attr.adamw.beta2 = 0.95;
	u->attr.adamw.eps = 1e-6;
	u->attr.adamw.clip = 2;
	u->attr.adamw.n_decay = n;
	u->attr.adamw.copy_first = 96;
}

static void adamw(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	adams(k, t, d, alone, JM_OP_ADAMW);
}

static void adam(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	adams(k, t, d, alone, JM_OP_ADAM);
}

static void sgd(struct kit *k, const struct types *t, const struct shape *d, bool alone)
{
	int64_t n = d->s * d->c * 3;
	struct jm_tensor *g = kit_normal(k, t->a, 0, 1, 1, &n);
	struct jm_tensor *size = alone ? NULL : kit_normal(k, t->v, 7, 0, 1, DIMS(1));
	struct jm_tensor *now = kit_normal(k, t->v, 0.1, 0, 1, DIMS(2));
	struct jm_tensor *p = backend_result(k, t->a, true, 1, &n),
			 *m = backend_result(k, t->a, true, 1, &n);
	struct jm_tensor *scale = alone ? NULL : kit_normal(k, t->v, 3, 0.5, 1, DIMS(2));
	struct jm_node *u = backend_node(k, JM_OP_SGD, OPS(g, size, now, scale), OPS(p, m), 0);

	u->attr.sgd.momentum = 0.9;
	u->attr.sgd.weight_decay = 0.3;
	u->attr.sgd.clip = 2;
	u->attr.sgd.nesterov = alone;
	u->attr.sgd.n_decay = n / 2 + 1;
	u->attr.sgd.first = alone ? 0 : 96;
}

/* first: the mean begins with the parameters. Of some shapes there is a norm, which may be
 * infinite. */
static void average(struct kit *k, const struct types *t, const struct shape *d, bool first)
{
	int64_t n = d->s * d->c * 3 + 1;
	struct jm_tensor *p = kit_normal(k, t->a, 0, 1, 1, &n);
	struct jm_tensor *now = kit_normal(k, t->v, first ? 1 : 0.125, 0, 1, DIMS(4));
	struct jm_tensor *e = backend_result(k, t->v, true, 1, &n);
	double norm = d->s % 2 ? 7 : (double)INFINITY;
	struct jm_tensor *size = d->b % 3 ? kit_normal(k, JM_F32, norm, 0, 1, DIMS(1)) : NULL;
	struct jm_node *u = backend_node(k, JM_OP_AVERAGE, OPS(p, now, size), OPS(e), 0);

	u->attr.average.at = 3;
}

const struct backend_case backend_update_cases[] = {
	{"norm", norm},
	{"norm of two", norm_of_two},
	{"adamw", adamw},
	{"adamw with copies", adamw_copy},
	{"adam", adam},
	{"sgd", sgd},
	{"average", average},
	{0},
};
