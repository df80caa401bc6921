/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norms that are added, and one that is pooled, for the comparison of backends with ref. */
#include "engine/graph/layer_image.h"
#include "op_case.h"

/* What a norm of a pair has: its statistics, parameters and their gradients. */
struct half {
	struct jm_tensor *x, *mean, *rstd, *gamma, *beta, *dx, *dgamma, *dbeta;
};

static void declare_half(struct kit *k, const struct types *t, struct half *h, bool add)
{
	const int64_t *c = DIMS(h->x->dim[1]);
	struct jm_tensor *var = kit_out(k, t->v, 1, c, NULL);

	h->mean = kit_out(k, t->v, 1, c, NULL);
	h->rstd = kit_out(k, t->v, 1, c, NULL);
	h->beta = kit_normal(k, t->v, 0, 0.02, 1, c);
	h->dx = backend_result(k, t->c, add, 4, h->x->dim);
	h->dgamma = backend_result(k, t->v, add, 1, c);
	h->dbeta = backend_result(k, t->v, add, 1, c);
	jm_graph_node(k->graph, JM_OP_BN_STATS, OPS(h->x), OPS(h->mean, var));
	backend_node(k, JM_OP_BN_FINALIZE, OPS(h->mean, var), OPS(h->rstd), 0)->attr.bn.eps = 1e-5;
}

/*
 * The sum of two norms with a ReLU, and its gradients, of which the second is that of what was
 * added; the flag adds to all gradients. The first norm is of zeros and ones and the second one
 * small, so that rounding does not decide what the ReLU lets through.
 */
static void batchnorm_pair(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {d->b, (d->c + 7) / 8 * 8, 7 + d->s % 5, 5 + d->s % 3};
	struct half a = {.x = kit_whole(k, t->c, 0, 1, 4, dim)};
	struct half b = {.x = kit_normal(k, t->c, 0.5, 2, 4, dim)};
	struct jm_tensor *dy = kit_normal(k, t->c, 0, 1, 4, dim),
			 *y = kit_out(k, t->c, 4, dim, NULL);
	struct jm_tensor *with = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "with");
	struct jm_tensor *dwith = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "dwith");
	struct jm_node *fwd, *bwd;

	a.gamma = kit_normal(k, t->v, 1, 0.05, 1, &dim[1]);
	b.gamma = kit_normal(k, t->v, 0.05, 0.01, 1, &dim[1]);
	declare_half(k, t, &b, add);
	declare_half(k, t, &a, add);
	jm_graph_node(k->graph, JM_OP_BN_APPLY, OPS(b.x, b.mean, b.rstd, b.gamma, b.beta), &with);
	fwd = backend_node(
		k, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta, with), &y, 0);
	fwd->attr.bn.relu = true;
	bwd = jm_graph_node(k->graph, JM_OP_BN_GRAD, OPS(dy, a.x, y, a.gamma, a.mean, a.rstd),
		OPS(a.dx, a.dgamma, a.dbeta, dwith));
	if (!bwd)
		return;
	bwd->attr.bn.relu = true;
	bwd->accumulate = add ? 7 : 0;
	bwd->fwd = fwd;
	backend_node(k, JM_OP_BN_GRAD, OPS(dwith, b.x, NULL, b.gamma, b.mean, b.rstd),
		OPS(b.dx, b.dgamma, b.dbeta), add ? 7 : 0);
	for (int i = 0; i < 3; i++)
		kit_read(k, bwd->out[i]);
}

/* A norm with ReLU whose result is pooled, and its gradient through the pooling; the flag adds to
 * all gradients. The image has whole numbers: rounding does not decide which of them is the largest
 * of a window. */
static void batchnorm_pooled(struct kit *k, const struct types *t, const struct shape *d, bool add)
{
	const int64_t dim[] = {
		d->b, d->s % 2 ? d->c : (d->c + 7) / 8 * 8, 7 + d->s % 5, 5 + d->s % 3};
	struct half a = {.x = kit_whole(k, t->c, 0, 15, 4, dim)};
	struct jm_tensor *y = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "y");
	struct jm_tensor *dy = jm_graph_tensor(k->graph, JM_CLASS_ACT, t->c, 4, dim, "dy"), *pooled,
			 *dp;
	struct jm_node *fwd, *bwd;

	a.gamma = kit_normal(k, t->v, 1, 0.05, 1, &dim[1]);
	declare_half(k, t, &a, add);
	fwd = jm_graph_node(
		k->graph, JM_OP_BN_APPLY, OPS(a.x, a.mean, a.rstd, a.gamma, a.beta), &y);
	pooled = jm_graph_maxpool(k->graph, y, 3, &(struct jm_window){.stride = 2, .pad = 1});
	if (!fwd || !pooled)
		return;
	fwd->attr.bn.relu = true;
	kit_read(k, pooled);
	dp = kit_normal(k, t->c, 0, 1, 4, pooled->dim);
	bwd = jm_graph_node(k->graph, JM_OP_MAXPOOL_GRAD, OPS(dp, y), &dy);
	if (!bwd)
		return;
	bwd->fwd = jm_graph_cell(k->graph, pooled)->producer;
	bwd->attr = bwd->fwd->attr;
	bwd = backend_node(k, JM_OP_BN_GRAD, OPS(dy, a.x, NULL, a.gamma, a.mean, a.rstd, a.beta),
		OPS(a.dx, a.dgamma, a.dbeta), add ? 7 : 0);
	bwd->attr.bn.relu = true;
	bwd->fwd = fwd;
}

const struct backend_case backend_norms_cases[] = {
	{"batchnorm, pair", batchnorm_pair},
	{"batchnorm, pooled", batchnorm_pooled},
	{0},
};
