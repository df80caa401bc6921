/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_plans.h"

#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/device/math_library.h"

#define WORKSPACE ((size_t)4 << 30) /* bytes, upper limit */

static struct dnn_heads heads_of(const struct jm_view *v)
{
	return (struct dnn_heads){.batch = v->batch, .row = v->row, .head = v->head};
}

struct dnn_attention_shape cuda_attention_shape(const struct cuda_dev *dev, const struct jm_node *n)
{
	const struct jm_tensor *y = n->op == JM_OP_ATTENTION_GRAD ? n->in[0] : n->out[0];

	return (struct dnn_attention_shape){
		.batch = y->dim[0],
		.seq = y->dim[1],
		.keys = n->attr.attention.keys,
		.heads = n->attr.attention.heads,
		.groups = n->attr.attention.kv_heads,
		.depth = n->attr.attention.depth,
		.q = heads_of(&n->attr.attention.q),
		.k = heads_of(&n->attr.attention.k),
		.v = heads_of(&n->attr.attention.v),
		.type = cuda_dnn_type(y->type),
		.causal = n->attr.attention.causal,
		.repeatable = !dev->fast,
	};
}

static bool same_heads(const struct dnn_heads *a, const struct dnn_heads *b)
{
	return a->batch == b->batch && a->row == b->row && a->head == b->head;
}

static bool same_shape(const struct dnn_attention_shape *a, const struct dnn_attention_shape *b)
{
	return a->batch == b->batch && a->seq == b->seq && a->keys == b->keys &&
	       a->heads == b->heads && a->groups == b->groups && a->depth == b->depth &&
	       same_heads(&a->q, &b->q) && same_heads(&a->k, &b->k) && same_heads(&a->v, &b->v) &&
	       a->type == b->type && a->causal == b->causal && a->repeatable == b->repeatable;
}

/* True if a row holds queries, keys and values of all heads. */
static bool is_packed(const struct dnn_attention_shape *s)
{
	return s->q.row == (s->heads + 2 * s->groups) * s->depth && same_heads(&s->q, &s->k);
}

void cuda_attention_key(
	const struct cuda_dev *dev, const struct cuda_attention_plan *p, char *ret, size_t size)
{
	const struct dnn_attention_shape *s = &p->shape;
	char apart[64] = "";

	if (!is_packed(s))
		snprintf(apart, sizeof apart, "/apart-%lld-%lld-%lld-%lld", (long long)s->keys,
			(long long)s->q.row, (long long)s->k.row, (long long)s->v.row);
	snprintf(ret, size, "attention/%zu/%lldx%lld/%lld:%lldx%lld%s%s%s%s%s", dev->dnn.version,
		(long long)s->batch, (long long)s->seq, (long long)s->heads, (long long)s->groups,
		(long long)s->depth, apart, s->causal ? "/causal" : "", p->backward ? "/grad" : "",
		s->repeatable ? "/repeatable" : "", s->type == CUDNN_DATA_HALF ? "/f16" : "");
}

/* Finds the plan that was chosen before by its name, or else several to choose from. */
static void find_plans(struct cuda_dev *dev, struct cuda_attention_plan *p, struct dnn_graph *g)
{
	struct dnn_want want = {.repeatable = p->shape.repeatable, .workspace = WORKSPACE};
	char key[CUDA_PLAN_KEY], name[CUDA_PLAN_VALUE];
	const char *known;

	cuda_attention_key(dev, p, key, sizeof key);
	known = cuda_plan_find(dev, key);
	if (known) {
		snprintf(name, sizeof name, "%s", known);
		want.name = name;
		p->n = dnn_plans(g, &want, p->plan, 1, &p->err);
	}
	want.name = NULL;
	if (!p->n)
		p->n = dnn_plans(g, &want, p->plan, CUDA_ATTENTION_PLANS, &p->err);
	p->best = p->n == 1 ? 0 : -1;
	for (int i = 0; i < p->n; i++)
		if (p->plan[i].workspace > p->workspace)
			p->workspace = p->plan[i].workspace;
}

static void look(struct cuda_dev *dev, struct cuda_attention_plan *p)
{
	struct dnn_graph *g;

	if (cuda_dnn_open(dev, &p->err))
		return;
	g = p->backward ? dnn_attention_backward(&dev->dnn, &p->shape, &p->ids)
			: dnn_attention_forward(&dev->dnn, &p->shape, &p->ids);
	if (g)
		find_plans(dev, p, g);
	else
		jm_err_set(&p->err, JM_ENOMEM, "Out of memory for attention.");
	dnn_graph_free(g);
}

struct cuda_attention_plan *cuda_attention_plan_of(struct cuda_dev *dev, const struct jm_node *n)
{
	struct dnn_attention_shape shape = cuda_attention_shape(dev, n);
	bool backward = n->op == JM_OP_ATTENTION_GRAD;
	struct cuda_attention_plan *p;

	for (p = dev->attention_plans; p; p = p->next)
		if (p->backward == backward && same_shape(&p->shape, &shape))
			return p;
	p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->shape = shape;
	p->backward = backward;
	p->way = -1;
	look(dev, p);
	p->next = dev->attention_plans;
	dev->attention_plans = p;
	return p;
}

void cuda_attention_plans_free(struct cuda_dev *dev)
{
	while (dev->attention_plans) {
		struct cuda_attention_plan *next = dev->attention_plans->next;

		for (int i = 0; i < dev->attention_plans->n; i++)
			dnn_plan_drop(&dev->dnn, &dev->attention_plans->plan[i]);
		free(dev->attention_plans);
		dev->attention_plans = next;
	}
}
