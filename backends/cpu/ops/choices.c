/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choices that select returns. Convolutions request the layout that oneDNN prefers. Ops that
 * follow them accept any layout that all their operands share, so that a stage of a network keeps
 * one layout. All others need plain tensors.
 */
#include <math.h>

#include "layout.h"
#include "choices.h"
#include "dnnl_conv.h"
#include "seconds.h"

/* From FOLLOW on: operands share a layout. DENSE_IMAGE: without blocks. */
enum how { PLAIN, AS_GIVEN, CONVOLUTION, FOLLOW, IMAGE, DENSE_IMAGE, SIDE_BY_SIDE };

/* in, out: the operands that have the common layout, as bits; absent operands are ignored. */
static const struct {
	enum how how;
	unsigned in, out;
} rules[JM_OP_COUNT] = {
	[JM_OP_CAST] = {AS_GIVEN, FIRST(1), FIRST(1)},
	[JM_OP_CONV] = {CONVOLUTION, 0, 0},
	[JM_OP_CONV_DGRAD] = {CONVOLUTION, 0, 0},
	[JM_OP_CONV_WGRAD] = {CONVOLUTION, 0, 0},
	[JM_OP_ADD] = {FOLLOW, FIRST(2), FIRST(1)},
	[JM_OP_RELU] = {FOLLOW, FIRST(1), FIRST(1)},
	[JM_OP_RELU_GRAD] = {FOLLOW, FIRST(2), FIRST(1)},
	[JM_OP_GELU_QUICK] = {FOLLOW, FIRST(1), FIRST(1)},
	[JM_OP_GELU_QUICK_GRAD] = {FOLLOW, FIRST(2), FIRST(1)},
	[JM_OP_SILU] = {FOLLOW, FIRST(1), FIRST(1)},
	[JM_OP_SILU_GRAD] = {FOLLOW, FIRST(2), FIRST(1)},
	[JM_OP_GELU_ERF] = {FOLLOW, FIRST(1), FIRST(1)},
	[JM_OP_GELU_ERF_GRAD] = {FOLLOW, FIRST(2), FIRST(1)},
	[JM_OP_BN_STATS] = {IMAGE, FIRST(1), 0},
	[JM_OP_BN_APPLY] = {IMAGE, NTH(0) | NTH(5), FIRST(1)},
	[JM_OP_BN_GRAD] = {IMAGE, FIRST(3), NTH(0) | NTH(3)},
	[JM_OP_MAXPOOL] = {IMAGE, FIRST(1), FIRST(1)},
	[JM_OP_MAXPOOL_GRAD] = {IMAGE, FIRST(2), FIRST(1)},
	[JM_OP_AVGPOOL] = {IMAGE, FIRST(1), FIRST(1)},
	[JM_OP_AVGPOOL_GRAD] = {IMAGE, FIRST(1), FIRST(1)},
	[JM_OP_UPSAMPLE] = {IMAGE, FIRST(1), FIRST(1)},
	[JM_OP_UPSAMPLE_GRAD] = {IMAGE, FIRST(1), FIRST(1)},
	[JM_OP_GROUPNORM] = {DENSE_IMAGE, FIRST(1), FIRST(1)},
	[JM_OP_GROUPNORM_GRAD] = {DENSE_IMAGE, FIRST(2), FIRST(1)},
	[JM_OP_GAP] = {IMAGE, FIRST(1), 0},
	[JM_OP_GAP_GRAD] = {IMAGE, 0, FIRST(1)},
	[JM_OP_CONCAT] = {SIDE_BY_SIDE, FIRST(4), FIRST(1)},
	[JM_OP_SPLIT] = {SIDE_BY_SIDE, FIRST(1), FIRST(4)},
	[JM_OP_TOKENS] = {IMAGE, FIRST(1), 0},
	[JM_OP_TOKENS_GRAD] = {IMAGE, 0, FIRST(1)},
};

struct candidates {
	int n;
	struct jm_layout layout[JM_CHOICE_MAX];
};

static void suggest(struct candidates *c, const struct jm_layout *layout)
{
	for (int i = 0; i < c->n; i++)
		if (jm_layout_equal(&c->layout[i], layout))
			return;
	if (c->n < JM_CHOICE_MAX)
		c->layout[c->n++] = *layout;
}

static void suggest_of_operand(
	struct candidates *c, const struct jm_node *node, const struct jm_tensor *t)
{
	enum how how = rules[node->op].how;
	struct cpu_image unused;
	bool known = true;

	if (how == IMAGE || how == DENSE_IMAGE)
		known = cpu_layout_image(t, &t->layout, &unused) &&
			(how == IMAGE || !t->layout.n_blocks);
	else if (how == SIDE_BY_SIDE)
		known = cpu_layout_joins(node, &t->layout);
	if (known)
		suggest(c, &t->layout);
}

static void suggest_of(struct candidates *c, const struct jm_node *node)
{
	for (int i = 0; i < node->n_out; i++)
		if (node->out[i] && rules[node->op].out >> i & 1 && jm_node_adds(node, i))
			suggest_of_operand(c, node, node->out[i]);
	for (int i = 0; i < node->n_in; i++)
		if (node->in[i] && rules[node->op].in >> i & 1 && !node->in[i]->is_virtual)
			suggest_of_operand(c, node, node->in[i]);
	/* a gradient whose operands are no images has the layout of the forward image */
	if (!rules[node->op].in && rules[node->op].out && node->fwd && node->fwd->in[0])
		suggest_of_operand(c, node, node->fwd->in[0]);
}

static void fill(
	struct jm_choice *choice, const struct jm_group *group, const struct jm_layout *layout)
{
	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *node = group->node[k];

		for (int i = 0; i < node->n_in; i++)
			if (node->in[i] && rules[node->op].in >> i & 1)
				choice->in[k][i] = *layout;
		for (int i = 0; i < node->n_out; i++)
			if (node->out[i] && rules[node->op].out >> i & 1)
				choice->out[k][i] = *layout;
	}
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Where channels are not adjacent, windows are processed one lane at a time, which limits their
 * speed. */
static double follower_seconds(
	const struct cpu_dev *dev, const struct jm_group *group, const struct jm_layout *layout)
{
	double sum = 0;

	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];
		bool window = n->op == JM_OP_MAXPOOL || n->op == JM_OP_MAXPOOL_GRAD ||
			      n->op == JM_OP_AVGPOOL || n->op == JM_OP_AVGPOOL_GRAD;

		sum += cpu_seconds(dev, n, CPU_PRODUCT) * (window && !layout->rank ? 16 : 1);
	}
	return sum;
}

static int offer_as_given(const struct jm_node *node, struct jm_choice *choice)
{
	choice->in[0][0] = node->in[0]->layout;
	choice->out[0][0] = node->out[0]->layout;
	return 1;
}

int cpu_choices(const struct cpu_dev *dev, const struct jm_group *group, const struct cpu_op *op,
	struct jm_choice *choice, struct jm_err *err)
{
	enum how how = rules[group->node[0]->op].how;
	struct candidates all = {0};
	struct jm_node node[CPU_NODES];
	size_t scratch;
	int n = 1;

	if (group->n_nodes > 1 && how != IMAGE)
		how = PLAIN; /* fused with ops on rows of matrices */
	if (how == CONVOLUTION)
		return cpu_conv_offer(dev, group->node[0], choice, err);
	for (int k = 0; k < group->n_nodes; k++) {
		node[k] = *group->node[k];
		if (rules[node[k].op].how >= FOLLOW)
			suggest_of(&all, &node[k]);
	}
	suggest(&all, &(struct jm_layout){0});
	scratch = op->scratch ? op->scratch(dev, node) : 0;
	if (how == AS_GIVEN)
		offer_as_given(group->node[0], choice);
	else if (how != PLAIN)
		for (n = 0; n < all.n; n++)
			fill(&choice[n], group, &all.layout[n]);
	for (int i = 0; i < n; i++) {
		choice[i].scratch = scratch;
		choice[i].seconds = follower_seconds(dev, group, &all.layout[i]);
		choice[i].flops_executed = NAN;
	}
	return n;
}
