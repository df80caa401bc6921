/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients: a table from each op to its backward nodes, applied from the loss to the parameters.
 *
 * A tensor used several times gets its gradient in several parts: the first part is written, the
 * next ones add to it. A part that equals another tensor's gradient (both terms of a sum) is
 * shared, and copied only if a node adds to it before the other owner has read it.
 */
#include "gradient.h"
#include "duplicate_node.h"
#include "op.h"
#include "tensor.h"
#include "tensor_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An operand of a backward node, named from the forward node. */
enum role { NONE, IN, OUT, GRAD_OUT, GRAD_IN };
struct operand {
	uint8_t role, index;
};
#define X(i)                                                                                       \
	{                                                                                          \
		IN, i                                                                              \
	}
#define Y(i)                                                                                       \
	{                                                                                          \
		OUT, i                                                                             \
	}
#define DY(i)                                                                                      \
	{                                                                                          \
		GRAD_OUT, i                                                                        \
	}
#define DX(i)                                                                                      \
	{                                                                                          \
		GRAD_IN, i                                                                         \
	}

/* One backward node of an op; pass: no node, the gradient in[0] is passed on unchanged. */
struct rule {
	enum jm_op op;
	bool pass;
	struct operand in[JM_NODE_IN], out[JM_NODE_OUT];
};

#define RULES_MAX 2
static const struct rule rules[JM_OP_COUNT][RULES_MAX] = {
	[JM_OP_EMBED] = {{JM_OP_EMBED_GRAD, false, {X(0), DY(0)}, {DX(1), DX(2)}}},
	[JM_OP_LINEAR] = {{JM_OP_LINEAR_WGRAD, false, {DY(0), X(0)}, {DX(1), DX(2)}},
		{JM_OP_LINEAR_DGRAD, false, {DY(0), X(1)}, {DX(0)}}},
	[JM_OP_GELU] = {{JM_OP_GELU_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_LAYERNORM] = {{JM_OP_LAYERNORM_GRAD, false, {DY(0), X(0), X(1), Y(1), Y(2)},
		{DX(0), DX(1), DX(2)}}},
	[JM_OP_ROPE] = {{JM_OP_ROPE_GRAD, false, {DY(0), X(1)}, {DX(0)}}},
	[JM_OP_ATTENTION] = {{JM_OP_ATTENTION_GRAD, false,
		{DY(0), X(0), X(1), X(2), Y(0), Y(1), X(3)}, {DX(0), DX(1), DX(2)}}},
	[JM_OP_ADD] = {{JM_OP_ADD, true, {DY(0)}, {DX(0)}}, {JM_OP_ADD, true, {DY(0)}, {DX(1)}}},
	[JM_OP_SUM_RANKS] = {{JM_OP_SUM_RANKS, true, {DY(0)}, {DX(0)}}},
	[JM_OP_OWN_ROWS] = {{JM_OP_WHOLE_ROWS, false, {DY(0)}, {DX(0)}}},
	[JM_OP_WHOLE_ROWS] = {{JM_OP_OWN_ROWS, false, {DY(0)}, {DX(0)}}},
	[JM_OP_GATHER_ROWS] = {{JM_OP_SUM_ROWS, false, {DY(0)}, {DX(0)}}},
	[JM_OP_SUM_ROWS] = {{JM_OP_GATHER_ROWS, false, {DY(0)}, {DX(0)}}},
	[JM_OP_SOFTMAX_XENT] = {{JM_OP_SOFTMAX_XENT, true, {Y(1)}, {DX(0)}}},
	[JM_OP_MSE] = {{JM_OP_MSE, true, {Y(1)}, {DX(0)}}},
	[JM_OP_RELATIVE_L2] = {{JM_OP_RELATIVE_L2, true, {Y(1)}, {DX(0)}}},
	[JM_OP_DFT] = {{JM_OP_IDFT, false, {DY(0)}, {DX(0)}}},
	[JM_OP_IDFT] = {{JM_OP_DFT, false, {DY(0)}, {DX(0)}}},
	[JM_OP_MIX_MODES] = {{JM_OP_MIX_MODES_WGRAD, false, {DY(0), X(0)}, {DX(1)}},
		{JM_OP_MIX_MODES_DGRAD, false, {DY(0), X(1)}, {DX(0)}}},
	[JM_OP_CAST] = {{JM_OP_CAST, false, {DY(0)}, {DX(0)}}},
	[JM_OP_CONV] = {{JM_OP_CONV_WGRAD, false, {DY(0), X(0)}, {DX(1), DX(2)}},
		{JM_OP_CONV_DGRAD, false, {DY(0), X(1)}, {DX(0)}}},
	[JM_OP_BN_APPLY] = {{JM_OP_BN_GRAD, false, {DY(0), X(0), Y(0), X(3), X(1), X(2), X(4)},
		{DX(0), DX(3), DX(4), DX(5)}}},
	[JM_OP_RMSNORM] = {{JM_OP_RMSNORM_GRAD, false, {DY(0), X(0), X(1), Y(1)}, {DX(0), DX(1)}}},
	[JM_OP_MAXPOOL] = {{JM_OP_MAXPOOL_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_AVGPOOL] = {{JM_OP_AVGPOOL_GRAD, false, {DY(0)}, {DX(0)}}},
	[JM_OP_GAP] = {{JM_OP_GAP_GRAD, false, {DY(0)}, {DX(0)}}},
	[JM_OP_UPSAMPLE] = {{JM_OP_UPSAMPLE_GRAD, false, {DY(0)}, {DX(0)}}},
	[JM_OP_GROUPNORM] = {{JM_OP_GROUPNORM_GRAD, false, {DY(0), X(0), X(1), X(2), Y(1), Y(2)},
		{DX(0), DX(1), DX(2)}}},
	[JM_OP_RELU] = {{JM_OP_RELU_GRAD, false, {DY(0), Y(0)}, {DX(0)}}},
	[JM_OP_GELU_ERF] = {{JM_OP_GELU_ERF_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_GELU_QUICK] = {{JM_OP_GELU_QUICK_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_SILU] = {{JM_OP_SILU_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_SWIGLU] = {{JM_OP_SWIGLU_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_GEGLU] = {{JM_OP_GEGLU_GRAD, false, {DY(0), X(0)}, {DX(0)}}},
	[JM_OP_TOKENS] = {{JM_OP_TOKENS_GRAD, false, {DY(0)}, {DX(0), DX(1), DX(2)}}},
	[JM_OP_TOKENS_GRAD] = {{JM_OP_TOKENS, false, {DY(0)}, {DX(0)}}},
	[JM_OP_FIRST] = {{JM_OP_FIRST_GRAD, false, {DY(0)}, {DX(0)}}},
	[JM_OP_PUT_ROWS] = {{JM_OP_PUT_ROWS_GRAD, false, {DY(0), X(2)}, {DX(0), DX(1)}}},
	[JM_OP_ROWS] = {{JM_OP_ROWS_GRAD, false, {DY(0), X(1)}, {DX(0)}}},
	[JM_OP_CONCAT] = {{JM_OP_SPLIT, false, {DY(0)}, {DX(0), DX(1), DX(2), DX(3)}}},
	[JM_OP_DROPOUT] = {{JM_OP_DROPOUT, false, {DY(0), X(1)}, {DX(0)}}},
};

/* The state of the pass; node: the current forward node. */
struct walk {
	struct jm_graph *g;
	struct jm_tensor **grad; /* [tensor id]: its gradient so far; NULL = none yet */
	struct jm_tensor **next; /* [tensor id]: the tensor that shares its gradient next */
	const struct jm_node *node;
	struct jm_tensor *gathered; /* its first operand again; NULL = it is kept */
};

/* The gradient of a compute copy is that of its parameter. */
static struct jm_tensor *owner(const struct walk *w, struct jm_tensor *t)
{
	struct jm_cell *c = jm_graph_cell(w->g, t);

	return c->origin ? c->origin : t;
}

static struct jm_tensor *new_gradient(struct walk *w, struct jm_tensor *t)
{
	bool param = t->class == JM_CLASS_PARAM;
	enum jm_dtype type = !param ? t->type : t->rank > 1 ? w->g->gradient : w->g->vector;
	struct jm_tensor *d;

	d = jm_graph_tensor(w->g, param ? JM_CLASS_GRAD : JM_CLASS_ACT, type, t->rank, t->dim, "");
	if (!d)
		return NULL;
	snprintf(d->name, sizeof(d->name), "d.%.155s", t->name);
	jm_graph_cell(w->g, d)->made_for = t;
	if (param)
		jm_graph_cell(w->g, t)->grad = d;
	return d;
}

/* True if d is still the gradient of this tensor, and its producer is not yet handled. Once false,
 * it stays false. */
static bool is_awaited(
	const struct walk *w, const struct jm_tensor *owner, const struct jm_tensor *d)
{
	const struct jm_cell *c = jm_graph_cell(w->g, owner);

	return w->grad[owner->id] == d && c->producer && c->producer->id < w->node->id;
}

/*
 * True if another tensor than t, whose producer is not yet handled, shares this gradient. Tensors
 * that are handled are removed from the list, because a residual stream passes one gradient through
 * all layers.
 */
static bool awaited_elsewhere(
	const struct walk *w, const struct jm_tensor *t, const struct jm_tensor *d)
{
	struct jm_cell *c = jm_graph_cell(w->g, d);
	struct jm_tensor **link = &c->passed_to;

	if (c->made_for && c->made_for != t && is_awaited(w, c->made_for, d))
		return true;
	while (*link) {
		struct jm_tensor *s = *link;

		if (!is_awaited(w, s, d))
			*link = w->next[s->id];
		else if (s != t)
			return true;
		else
			link = &w->next[s->id];
	}
	return false;
}

/* True if the gradient is added to that of earlier micro-steps. */
static bool adds_up(const struct walk *w, const struct jm_tensor *t)
{
	return t->class == JM_CLASS_PARAM && w->g->micro_steps > 1;
}

/* The tensor to which a part of t's gradient is written; ret_add: the part is added. */
static struct jm_tensor *part_of(struct walk *w, struct jm_tensor *t, bool *ret_add)
{
	struct jm_tensor *shared = w->grad[t->id];

	*ret_add = shared || adds_up(w, t);
	if (!shared)
		return w->grad[t->id] = new_gradient(w, t);
	if (!awaited_elsewhere(w, t, shared))
		return shared;
	w->grad[t->id] = new_gradient(w, t);
	jm_graph_node(w->g, JM_OP_CAST, &shared, &w->grad[t->id]);
	return w->grad[t->id];
}

/* Makes d, which other nodes read, too, the gradient of t or a part of it. */
static void pass_on(struct walk *w, struct jm_tensor *d, struct jm_tensor *t)
{
	struct jm_tensor *sum, *have = w->grad[t->id];
	struct jm_node *n;

	if (d->type == t->type && !have && t->class != JM_CLASS_PARAM) {
		w->grad[t->id] = d;
		w->next[t->id] = jm_graph_cell(w->g, d)->passed_to;
		jm_graph_cell(w->g, d)->passed_to = t;
		return;
	}
	sum = have && t->class == JM_CLASS_PARAM ? have : new_gradient(w, t);
	if (have)
		n = jm_graph_node(w->g, JM_OP_ADD, (struct jm_tensor *[]){have, d}, &sum);
	else
		n = jm_graph_node(w->g, JM_OP_CAST, &d, &sum);
	if (n && !have)
		n->accumulate = adds_up(w, t);
	w->grad[t->id] = sum;
}

/* The tensor that an operand names; NULL = the forward node does not have it. */
static struct jm_tensor *source(const struct walk *w, struct operand o)
{
	struct jm_tensor *t;

	switch (o.role) {
	case IN:
		return w->gathered && !o.index ? w->gathered : w->node->in[o.index];
	case OUT:
		return w->node->out[o.index];
	case GRAD_OUT:
		t = w->node->out[o.index];
		return t ? w->grad[t->id] : NULL;
	default:
		return NULL;
	}
}

/* The tensor whose gradient the operand is; NULL = none, or its gradient is not needed. */
static struct jm_tensor *target(const struct walk *w, struct operand o)
{
	struct jm_tensor *t = o.role == GRAD_IN ? w->node->in[o.index] : NULL;

	return t && jm_graph_cell(w->g, t)->needs_grad ? owner(w, t) : NULL;
}

/* The first result that is the gradient of the same tensor as result i: views of one tensor share
 * it. */
static int same_target(const struct walk *w, const struct rule *rule, int i)
{
	int j = 0;

	while (target(w, rule->out[j]) != target(w, rule->out[i]))
		j++;
	return j;
}

/* Chooses the operand from which the gradient finds where the ReLU of a norm passed its input: x
 * and beta, or y if a tensor was added. */
static void show_relu(struct jm_node *n)
{
	bool relu = n->attr.bn.relu, added = n->fwd->in[5];

	if (!relu || !added)
		n->in[2] = NULL;
	if (!relu || added)
		n->in[6] = NULL;
}

/* For a result that the op has and no other op reads; filters' is in f32, as backends write it. */
static struct jm_tensor *unread(const struct walk *w, const struct jm_tensor *t)
{
	const struct jm_cell *c = jm_graph_cell(w->g, t);
	bool param = t->class == JM_CLASS_PARAM || c->origin;
	enum jm_dtype type = !param ? t->type : t->rank == 2 ? w->g->gradient : w->g->vector;
	struct jm_tensor *d = jm_graph_tensor(w->g, JM_CLASS_ACT, type, t->rank, t->dim, "unread");

	if (d)
		snprintf(d->name, sizeof(d->name), "d.%.155s", t->name);
	return d;
}

/* Frozen gains and biases of such a norm get no gradient; other ops write it, which costs nothing.
 */
static bool spares_vectors(enum jm_op op)
{
	return op == JM_OP_LAYERNORM_GRAD || op == JM_OP_RMSNORM_GRAD;
}

/*
 * The first result is not optional: it is written even if no op reads it. Neither are, for some
 * ops, those of vectors; nor those of attention.
 */
static void fill_unread(const struct walk *w, const struct rule *rule, struct jm_tensor **out)
{
	bool vectors = !spares_vectors(rule->op);

	for (int i = 0; i < JM_NODE_OUT; i++) {
		const struct jm_tensor *t =
			rule->out[i].role == GRAD_IN ? w->node->in[rule->out[i].index] : NULL;

		if (t && !out[i] &&
			(!i || (vectors && t->rank == 1) || rule->op == JM_OP_ATTENTION_GRAD))
			out[i] = unread(w, t);
	}
}

/* True for the gradient of what is added to a norm without ReLU, as its first part: it is that of
 * the norm's result, which is passed on. */
static bool is_passed(const struct walk *w, const struct rule *rule, int i)
{
	const struct jm_node *n = w->node;

	return rule->op == JM_OP_BN_GRAD && i == 3 && !n->attr.bn.relu &&
	       n->in[5]->type == n->out[0]->type && n->in[5]->class != JM_CLASS_PARAM &&
	       !w->grad[n->in[5]->id];
}

static void emit(struct walk *w, const struct rule *rule)
{
	struct jm_tensor *in[JM_NODE_IN], *out[JM_NODE_OUT] = {0};
	unsigned accumulate = 0;
	struct jm_node *n;
	bool wanted = false;

	for (int i = 0; i < JM_NODE_IN; i++)
		in[i] = source(w, rule->in[i]);
	for (int i = 0; i < JM_NODE_OUT; i++) {
		struct jm_tensor *t = target(w, rule->out[i]);
		int before = t ? same_target(w, rule, i) : i;
		bool add = accumulate >> before & 1;

		if (!t)
			continue;
		if (is_passed(w, rule, i)) {
			pass_on(w, in[0], t);
			continue;
		}
		wanted = true;
		out[i] = before < i ? out[before] : part_of(w, t, &add);
		accumulate |= (unsigned)add << i;
	}
	if (!wanted)
		return;
	fill_unread(w, rule, out);
	n = jm_graph_node(w->g, rule->op, in, out);
	if (!n)
		return;
	n->attr = w->node->attr;
	n->fwd = w->node;
	if (n->op == JM_OP_BN_GRAD)
		show_relu(n);
	n->accumulate = accumulate;
	jm_node_cost(n);
}

/* A frozen norm multiplies by constants, gamma rstd, so its gradient is the norm again, without
 * mean and beta. */
static struct jm_tensor *zeros(struct jm_graph *g, const struct jm_tensor *gamma)
{
	struct jm_tensor *t = jm_graph_tensor(g, JM_CLASS_STATE, gamma->type, 1, gamma->dim, "");

	if (!t)
		return NULL;
	snprintf(t->name, sizeof(t->name), "%.150s.zero", gamma->name);
	jm_graph_cell(g, t)->init = JM_INIT_ZERO;
	return t;
}

static void frozen_norm(struct walk *w)
{
	const struct jm_node *f = w->node;
	struct jm_tensor *y = f->out[0], *d = w->grad[y->id], *e = d, *zero;
	bool add = false;
	struct jm_node *n;

	if (f->attr.bn.relu) {
		e = new_gradient(w, y);
		n = jm_graph_node(w->g, JM_OP_RELU_GRAD, (struct jm_tensor *[]){d, y}, &e);
		if (n)
			n->fwd = f;
	}
	if (e && f->in[5] && jm_graph_cell(w->g, f->in[5])->needs_grad)
		pass_on(w, e, f->in[5]);
	if (!e || !jm_graph_cell(w->g, f->in[0])->needs_grad)
		return;
	zero = zeros(w->g, f->in[3]);
	d = part_of(w, f->in[0], &add);
	n = jm_graph_node(w->g, JM_OP_BN_APPLY,
		(struct jm_tensor *[]){e, zero, f->in[2], f->in[3], zero, NULL}, &d);
	if (!n)
		return;
	n->attr = f->attr;
	n->attr.bn.relu = false;
	n->accumulate = add;
	jm_node_cost(n);
}

/* Each rank that shares the model has the gradient of x through its own rows of w: x has their
 * sum. */
static void summed_dgrad(struct walk *w)
{
	const struct jm_node *f = w->node;
	struct jm_tensor *part, *sum;
	struct jm_node *n;

	if (!jm_graph_cell(w->g, f->in[0])->needs_grad)
		return;
	part = new_gradient(w, f->in[0]);
	sum = new_gradient(w, f->in[0]);
	n = jm_graph_node(w->g, JM_OP_LINEAR_DGRAD,
		(struct jm_tensor *[]){w->grad[f->out[0]->id], f->in[1], NULL, NULL}, &part);
	if (!n || !jm_graph_node(w->g, JM_OP_SUM_RANKS, &part, &sum))
		return;
	n->attr = f->attr;
	n->fwd = f;
	jm_node_cost(n);
	pass_on(w, sum, f->in[0]);
}

static bool sums_dgrad(const struct walk *w)
{
	return w->node->op == JM_OP_LINEAR && !w->g->sp &&
	       jm_graph_is_cut(w->g, w->node->in[1], JM_CUT_ROWS);
}

/* The rows of all ranks are not kept for a gradient, but gathered again. */
static void gather_again(struct walk *w)
{
	struct jm_tensor *x = w->node->in[0];
	const struct jm_node *maker = x ? jm_graph_cell(w->g, x)->producer : NULL;
	struct jm_node *n;

	w->gathered = NULL;
	if (!maker || maker->op != JM_OP_GATHER_ROWS || w->node->op != JM_OP_LINEAR ||
		!target(w, (struct operand){GRAD_IN, 1}))
		return;
	w->gathered = jm_duplicate_tensor(w->g, x);
	n = jm_graph_node(w->g, maker->op, maker->in, &w->gathered);
	if (n)
		n->again = true;
}

/* The gradients of a part of a stage begin where the part ended. */
static void cross_border(struct walk *w, const struct jm_tensor *loss)
{
	bool ends = w->node->op == JM_OP_STAGE_OUT;
	struct jm_tensor *t = ends ? w->node->in[0] : w->node->out[0], **d = &w->grad[t->id];

	if (ends && t != loss) {
		*d = new_gradient(w, t);
		jm_graph_node(w->g, JM_OP_STAGE_IN, NULL, d);
	} else if (!ends && *d) {
		jm_graph_node(w->g, JM_OP_STAGE_OUT, d, NULL);
	}
}

static bool is_frozen_norm(const struct walk *w)
{
	return w->node->op == JM_OP_BN_APPLY && jm_graph_cell(w->g, w->node->in[3])->frozen;
}

static void apply(struct walk *w, const struct rule *rule)
{
	struct jm_tensor *d = source(w, rule->in[0]), *t;

	if (rule->in[0].role == NONE || w->g->err.code)
		return;
	if (!rule->pass) {
		emit(w, rule);
		return;
	}
	t = target(w, rule->out[0]);
	if (d && t)
		pass_on(w, d, t);
}

/* True if a result of the node has a gradient; the loss needs none. */
static bool reached(const struct walk *w, const struct jm_tensor *loss)
{
	const struct jm_tensor *y = w->node->out[0];

	return y == loss || w->grad[y->id];
}

/* The cast that makes a compute copy has no backward node: the copy's gradient goes directly to the
 * parameter. */
static bool is_copy(const struct jm_node *n)
{
	return n->op == JM_OP_CAST && n->out[0]->class == JM_CLASS_COPY;
}

/* A loss node writes the gradient of its first operand as its second result. */
static bool makes_loss(const struct jm_node *n)
{
	const struct rule *rule = &rules[n->op][0];

	return rule->pass && rule->in[0].role == OUT;
}

static void walk_back(struct walk *w, const struct jm_tensor *loss)
{
	struct jm_graph *g = w->g;

	g->n_forward = g->n_nodes;
	for (int i = g->n_forward - 1; i >= 0 && !g->err.code; i--) {
		w->node = g->node[i];
		if (jm_op_is_border(w->node->op)) {
			cross_border(w, loss);
			continue;
		}
		if (!reached(w, loss) || is_copy(w->node))
			continue;
		if (is_frozen_norm(w)) {
			frozen_norm(w);
			continue;
		}
		if (rules[w->node->op][0].in[0].role == NONE)
			jm_err_set(&g->err, JM_EBUG, "Op %s has no gradient, and %s needs one.",
				jm_op_name(w->node->op), w->node->out[0]->name);
		gather_again(w);
		for (int r = 0; r < RULES_MAX; r++)
			if (r && sums_dgrad(w))
				summed_dgrad(w);
			else
				apply(w, &rules[w->node->op][r]);
	}
}

int jm_graph_gradients(struct jm_graph *g, struct jm_tensor *loss, struct jm_err *err)
{
	size_t n = (size_t)g->n_cells + 1;
	struct walk w = {.g = g,
		.grad = calloc(n, sizeof(struct jm_tensor *)),
		.next = calloc(n, sizeof(struct jm_tensor *))};

	const struct jm_node *maker = g->err.code ? NULL : jm_graph_cell(g, loss)->producer;

	if (maker && !makes_loss(maker)) /* NULL: of another stage */
		jm_err_set(&g->err, JM_EBUG,
			"A gradient can only start at a softmax-xent, mse or relative-l2 loss.");
	if (!w.grad || !w.next) {
		jm_err_set(&g->err, JM_ENOMEM, "Out of memory for gradients.");
	} else {
		jm_graph_scope(g, "%s", "");
		walk_back(&w, loss);
	}
	free(w.grad);
	free(w.next);
	return g->err.code ? jm_err_set(err, g->err.code, "%s", g->err.text) : 0;
}
