/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: finds neighbouring nodes that are offered to the backend together. */
#include "group.h"
#include "op.h"
#include "tensor.h"

#include <stddef.h>

#define COVER_MAX 8

/* What is true of a cover: */
enum {
	/* the other nodes begin when the first has ended, so that its result may be laid over its
	 * operand */
	FIRST_ENDS = 1,
	/* the gradient of an activation, and that activation, recomputed from the same operand:
	 * both work elementwise, so that its result may replace the gradient of it, and the result
	 * of its gradient the operand; other nodes begin when both have ended */
	SHARED = 2,
	/* the gradients of two layers with an activation between, whose first nodes are computed
	 * again */
	HIDDEN = 4,
	/* as SHARED, of the second node and the third, whose result replaces nothing */
	SHARED_LATER = 8,
};

/*
 * Covers: sequences of ops, each of which reads a result of an earlier one or (SHARED, HIDDEN) its
 * operand. Larger covers come first. A result between two nodes of a cover is virtual
 * unless another node reads it: it has no memory. The comments name it.
 */
static const struct cover {
	int n;
	enum jm_op op[COVER_MAX];
	unsigned flags;
} covers[] = {
	/* what is between the two layers, and its gradients; that of the input, which a gelu-erf
	 * made */
	{8,
		{JM_OP_LINEAR, JM_OP_GELU_ERF, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD,
			JM_OP_GELU_ERF_GRAD, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD,
			JM_OP_GELU_ERF_GRAD},
		HIDDEN},
	{7,
		{JM_OP_LINEAR, JM_OP_GELU_ERF, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD,
			JM_OP_GELU_ERF_GRAD, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD},
		HIDDEN},
	/* what is between the two layers, unless a gradient reads it */
	{3, {JM_OP_LINEAR, JM_OP_GELU_ERF, JM_OP_LINEAR}, 0},
	/* the logits and their gradient */
	{4, {JM_OP_LINEAR, JM_OP_SOFTMAX_XENT, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD}, 0},
	/* the linear's output; the normalized row; the sum, unless another node reads it */
	{4, {JM_OP_LINEAR, JM_OP_ADD, JM_OP_RMSNORM, JM_OP_QUANTIZE}, 0},
	/* the linear's output; what is quantized */
	{3, {JM_OP_LINEAR, JM_OP_SWIGLU, JM_OP_QUANTIZE}, 0},
	/* the normalized row; the sum, unless another node reads it */
	{3, {JM_OP_ADD, JM_OP_RMSNORM, JM_OP_QUANTIZE}, 0},
	/* batch norms; mean and rstd, unless a gradient reads them */
	{4, {JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}, 0},
	{3, {JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}, 0},
	{3, {JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 0},
	/* the gradient of the pooled image; that of the convolution's result, as below */
	{3, {JM_OP_MAXPOOL_GRAD, JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, 0},
	/* the gradient of the ReLU's result; that of its operand, unless another node reads it */
	{3, {JM_OP_CONV_DGRAD, JM_OP_RELU_GRAD, JM_OP_BN_GRAD}, 0},
	/* the bias of the layer has the sum of the first node's rows as its gradient */
	{3, {JM_OP_GEGLU_GRAD, JM_OP_GEGLU, JM_OP_LINEAR_WGRAD}, SHARED},
	{2, {JM_OP_LAYERNORM_GRAD, JM_OP_LINEAR_WGRAD}, FIRST_ENDS},
	{2, {JM_OP_GEGLU_GRAD, JM_OP_LINEAR_WGRAD}, FIRST_ENDS},
	{2, {JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, FIRST_ENDS},
	/* the gradient between them */
	{2, {JM_OP_ATTENTION_GRAD, JM_OP_ROPE_GRAD}, 0},
	/* the linear's output; the sum, unless another node reads it */
	{3, {JM_OP_LINEAR, JM_OP_ADD, JM_OP_GELU_ERF}, 0},
	/* the linear's output */
	{2, {JM_OP_LINEAR, JM_OP_GELU}, 0},
	{2, {JM_OP_LINEAR, JM_OP_GELU_ERF}, 0},
	{2, {JM_OP_LINEAR, JM_OP_SILU}, 0},
	{2, {JM_OP_LINEAR, JM_OP_SWIGLU}, 0},
	/* the gradient between them */
	{2, {JM_OP_LINEAR_DGRAD, JM_OP_GELU_GRAD}, 0},
	{2, {JM_OP_LINEAR_DGRAD, JM_OP_GELU_ERF_GRAD}, 0},
	/* the gradient between them, or it is_last */
	{3, {JM_OP_CONV_DGRAD, JM_OP_BN_GRAD, JM_OP_BN_APPLY}, SHARED_LATER},
	{2, {JM_OP_CONV_DGRAD, JM_OP_BN_GRAD}, 0},
	/* the gradient between them */
	{2, {JM_OP_CONV_DGRAD, JM_OP_RELU_GRAD}, 0},
	/* the gradient of the joined image, or it is_last */
	{2, {JM_OP_GROUPNORM_GRAD, JM_OP_SPLIT}, 0},
	/* the convolution's output */
	{2, {JM_OP_CONV, JM_OP_RELU}, 0},
	{2, {JM_OP_CONV, JM_OP_ADD}, 0},
	/* the larger image, which is added, and the sum or the joined image, unless another node
	 * reads them */
	{3, {JM_OP_UPSAMPLE, JM_OP_ADD, JM_OP_GROUPNORM}, 0},
	{2, {JM_OP_ADD, JM_OP_GROUPNORM}, 0},
	{2, {JM_OP_CONCAT, JM_OP_GROUPNORM}, 0},
	/* the larger image */
	{2, {JM_OP_UPSAMPLE, JM_OP_ADD}, 0},
	/* the larger image, or its gradient: two directions of one convolution with a stride */
	{2, {JM_OP_UPSAMPLE, JM_OP_CONV}, 0},
	{2, {JM_OP_UPSAMPLE, JM_OP_CONV_WGRAD}, 0},
	{2, {JM_OP_CONV_DGRAD, JM_OP_UPSAMPLE_GRAD}, 0},
	{2, {JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 0},
	/* the first result, which is added to the second norm; its gradient; that of the pooled
	 * image */
	{2, {JM_OP_BN_APPLY, JM_OP_BN_APPLY}, 0},
	{2, {JM_OP_BN_GRAD, JM_OP_BN_GRAD}, 0},
	{2, {JM_OP_MAXPOOL_GRAD, JM_OP_BN_GRAD}, 0},
	/* the normalized image */
	{2, {JM_OP_BN_APPLY, JM_OP_MAXPOOL}, 0},
	{2, {JM_OP_BN_APPLY, JM_OP_CONV}, 0},
	{2, {JM_OP_BN_APPLY, JM_OP_CONV_WGRAD}, 0},
	/* the image after the ReLU */
	{2, {JM_OP_RELU, JM_OP_CONV}, 0},
	{2, {JM_OP_RELU, JM_OP_CONV_WGRAD}, 0},
	/* the sum */
	{2, {JM_OP_ADD, JM_OP_LAYERNORM}, 0},
	{2, {JM_OP_ADD, JM_OP_RMSNORM}, 0},
	/* what is quantized */
	{2, {JM_OP_RMSNORM, JM_OP_QUANTIZE}, 0},
	{2, {JM_OP_SWIGLU, JM_OP_QUANTIZE}, 0},
	/* the norm of the gradients and the update */
	{2, {JM_OP_NORM, JM_OP_ADAMW}, 0},
	{2, {JM_OP_NORM, JM_OP_ADAM}, 0},
	{2, {JM_OP_NORM, JM_OP_SGD}, 0},
	/* the gradient in the wider type */
	{2, {JM_OP_LAYERNORM_GRAD, JM_OP_CAST}, 0},
	{2, {JM_OP_RMSNORM_GRAD, JM_OP_CAST}, 0},
	/* the gradient of an activation, and the activation again */
	{2, {JM_OP_GELU_ERF_GRAD, JM_OP_GELU_ERF}, SHARED},
	{2, {JM_OP_SWIGLU_GRAD, JM_OP_SWIGLU}, SHARED},
	{2, {JM_OP_GEGLU_GRAD, JM_OP_GEGLU}, SHARED},
	{2, {JM_OP_BN_GRAD, JM_OP_BN_APPLY}, SHARED},
};

/* The number of operands of nodes i .. i + n - 1 that name t. */
static int uses_inside(const struct jm_graph *g, int i, int n, const struct jm_tensor *t)
{
	int uses = 0;

	for (int k = i; k < i + n; k++) {
		for (int j = 0; j < g->node[k]->n_in; j++)
			uses += g->node[k]->in[j] == t;
		for (int j = 0; j < g->node[k]->n_out; j++)
			uses += g->node[k]->out[j] == t;
	}
	return uses;
}

/* Does a node from `first` on name t? Nodes that were added since the uses were counted are at the
 * end. */
static bool is_used_from(
	const struct jm_graph *g, int first, const struct jm_tensor *t, const struct jm_uses *uses)
{
	int added = first > uses->n_nodes ? first : uses->n_nodes;

	return uses->last[t->id] >= first || uses_inside(g, added, g->n_nodes - added, t);
}

static void mark_internal(struct jm_graph *g, int i, int n, const struct jm_uses *uses)
{
	for (int k = i; k < i + n; k++)
		for (int j = 0; j < g->node[k]->n_out; j++) {
			struct jm_tensor *t = g->node[k]->out[j];

			/* A result that no node reads may still be an operand outside: it is not
			 * internal. */
			if (t && t->class == JM_CLASS_ACT && k + 1 < i + n &&
				!jm_graph_cell(g, t)->kept && jm_node_reads(g->node[k + 1], t)) {
				t->is_virtual = uses_inside(g, i, n, t) == uses->count[t->id];
				t->is_last = jm_node_adds(g->node[k], j) &&
					     !is_used_from(g, i + n, t, uses);
			}
		}
}

/* True if node k reads a result of nodes i to k - 1. */
static bool follows(const struct jm_graph *g, int i, int k)
{
	for (int b = i; b < k; b++)
		for (int o = 0; o < g->node[b]->n_out; o++)
			if (g->node[b]->out[o] && jm_node_reads(g->node[k], g->node[b]->out[o]))
				return true;
	return false;
}

static bool shares(const struct jm_node *grad, const struct jm_node *n)
{
	return n->again && grad->in[1] == n->in[0];
}

/* True if node k is the activation or the norm of the gradient before it. */
static bool ends_pair(const struct jm_graph *g, int k)
{
	const struct jm_node *grad = k ? g->node[k - 1] : NULL;

	return grad && jm_group_gradient(g->node[k]->op) == grad->op && shares(grad, g->node[k]);
}

/*
 * True if nodes k and k + 1 run as one, rather than the first of them with the node before it:
 * gradients of two norms that were added, or the gradient of an activation and that activation,
 * which is then recomputed as cheaply as rematerialize.c assumes, as is a norm that a convolution
 * or the gradient of its filter applies, or a ReLU; or a norm that is pooled.
 */
static bool begins_pair(const struct jm_graph *g, int k)
{
	const struct jm_node *n = g->node[k], *next = k + 1 < g->n_nodes ? g->node[k + 1] : NULL;

	if (!next)
		return false;
	if ((n->op == JM_OP_BN_APPLY || n->op == JM_OP_RELU) && n->beside && !ends_pair(g, k))
		return (next->op == JM_OP_CONV || next->op == JM_OP_CONV_WGRAD ||
			       next->op == JM_OP_MAXPOOL) &&
		       jm_node_reads(next, n->out[0]);
	if (next->beside && jm_group_gradient(next->op) == n->op)
		return shares(n, next);
	return n->op == JM_OP_BN_GRAD && n->out[3] && next->op == JM_OP_BN_GRAD &&
	       jm_node_reads(next, n->out[3]);
}

/*
 * Of seven nodes or eight: linear and gelu-erf again; the gradients of the weights and of the input
 * of the linear after them; gelu-erf's; those of the first linear; that of an activation before it.
 * True if each reads what it should of the others.
 */
static bool is_hidden_grad(struct jm_node *const *n, int count)
{
	const struct jm_tensor *open = n[0]->out[0], *d_open = n[4]->out[0];

	return n[0]->again && n[1]->again && n[1]->in[0] == open && n[2]->in[1] == n[1]->out[0] &&
	       n[3]->in[0] == n[2]->in[0] && n[4]->in[0] == n[3]->out[0] && n[4]->in[1] == open &&
	       n[5]->in[0] == d_open && n[5]->in[1] == n[0]->in[0] && n[6]->in[0] == d_open &&
	       n[6]->in[1] == n[0]->in[1] && (count < 8 || n[7]->in[0] == n[6]->out[0]);
}

static bool has_ops(const struct jm_graph *g, int i, const struct cover *c)
{
	for (int k = 0; k < c->n; k++)
		if (i + k >= g->n_nodes || g->node[i + k]->op != c->op[k])
			return false;
	return true;
}

/* True if node k is to begin a group of its own rather than to end one. */
static bool begins_group(const struct jm_graph *g, int k)
{
	return begins_pair(g, k) || jm_group_wgrad(g, k);
}

/* The place of the activation in a cover whose gradient is before it; 0 = there is none. */
static int again_of(const struct cover *c)
{
	return c && c->flags & SHARED ? 1 : c && c->flags & SHARED_LATER ? 2 : 0;
}

/* True for a norm that is computed twice: the bits of its sums depend on what it is computed with,
 * so that it runs alone both times. */
static bool is_computed_twice(const struct jm_graph *g, const struct jm_node *n)
{
	return n->op == JM_OP_GROUPNORM && (n->again || jm_graph_cell(g, n->out[0])->kept);
}

static bool matches(const struct jm_graph *g, int i, int end, const struct cover *c)
{
	const int again = again_of(c);

	if (i + c->n > end || (c->n > 1 && begins_group(g, i + c->n - 1)) || !has_ops(g, i, c) ||
		is_computed_twice(g, g->node[i + c->n - 1]))
		return false;
	if (again && !shares(g->node[i + again - 1], g->node[i + again]))
		return false;
	if (c->flags & HIDDEN)
		return is_hidden_grad(g->node + i, c->n);
	for (int k = 1; k < c->n; k++)
		if (k != again && !follows(g, i, i + k))
			return false;
	return true;
}

int jm_group_cover(struct jm_graph *g, int i, int end, const struct jm_uses *uses)
{
	for (size_t k = 0; k < sizeof(covers) / sizeof(*covers); k++)
		if (matches(g, i, end, &covers[k])) {
			mark_internal(g, i, covers[k].n, uses);
			return covers[k].n;
		}
	return 1;
}

void jm_group_uncover(struct jm_graph *g, int i, int n)
{
	for (int k = i; k < i + n; k++)
		for (int j = 0; j < g->node[k]->n_out; j++)
			if (g->node[k]->out[j])
				g->node[k]->out[j]->is_virtual = g->node[k]->out[j]->is_last =
					false;
}

/* The cover with these ops; NULL = a single node. */
static const struct cover *cover_of(const struct jm_group *group)
{
	for (size_t k = 0; k < sizeof(covers) / sizeof(*covers); k++) {
		int same = 0;

		while (same < group->n_nodes && same < covers[k].n &&
			group->node[same]->op == covers[k].op[same])
			same++;
		if (same == group->n_nodes && same == covers[k].n)
			return &covers[k];
	}
	return NULL;
}

int jm_group_replaces(const struct jm_group *group, struct jm_over ret[2])
{
	const struct cover *c = cover_of(group);
	const struct jm_node *n = group->node[0];
	const struct jm_op_row *row = jm_op_row(n->op);

	if (c && c->flags & SHARED) {
		ret[0] = (struct jm_over){group->node[1]->out[0], 0};
		ret[1] = (struct jm_over){n->out[0], 1};
		return 2;
	}
	if (row->place_out < 0 || (group->n_nodes > 1 && !(c && c->flags & FIRST_ENDS)))
		return 0;
	ret[0] = (struct jm_over){n->out[row->place_out], row->place_in};
	return ret[0].to != NULL;
}

double jm_group_bytes(const struct jm_group *group)
{
	const int again = again_of(cover_of(group));
	double bytes = 0;

	for (int k = 0; k < group->n_nodes; k++)
		bytes += group->node[k]->bytes;
	return again ? bytes - (double)group->node[again]->in[0]->bytes : bytes;
}

const struct jm_node *jm_group_wgrad(const struct jm_graph *g, int i)
{
	for (size_t k = 0; k < sizeof(covers) / sizeof(*covers); k++) {
		const int last = covers[k].n - 1;

		if (covers[k].op[last] == JM_OP_LINEAR_WGRAD && has_ops(g, i, &covers[k])) {
			const struct jm_node *n = g->node[i + last];

			return n->out[1] && n->in[0] == g->node[i]->out[0] ? n : NULL;
		}
	}
	return NULL;
}

enum jm_op jm_group_gradient(enum jm_op activation)
{
	for (size_t k = 0; k < sizeof(covers) / sizeof(*covers); k++)
		if (covers[k].flags & SHARED && covers[k].op[1] == activation)
			return covers[k].op[0];
	return JM_OP_COUNT;
}

/* The gradient of the pooling names y, but reads the positions of the maxima. */
static bool is_only_pooled(const struct jm_graph *g, const struct jm_tensor *y)
{
	int readers = 0;

	for (int k = 0; k < g->n_nodes; k++) {
		const struct jm_node *n = g->node[k];

		for (int i = 0; i < n->n_in; i++)
			readers += n->in[i] == y && (n->op != JM_OP_MAXPOOL_GRAD || !i);
	}
	return readers == 1;
}

void jm_group_join_pooled(struct jm_graph *g)
{
	for (int f = 0; f + 1 < g->n_forward; f++) {
		struct jm_node *n = g->node[f];
		const struct jm_node *pool = g->node[f + 1];

		if (n->op == JM_OP_BN_APPLY && !n->in[5] && jm_dtype_bytes(n->out[0]->type) == 2 &&
			pool->op == JM_OP_MAXPOOL && pool->in[0] == n->out[0] &&
			pool->attr.pool.kernel[0] == 3 && pool->attr.pool.stride[0] == 2 &&
			is_only_pooled(g, n->out[0]))
			n->beside = true;
	}
}
