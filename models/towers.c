/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two towers that learn which things belong together (Yi et al., Sampling-bias-corrected neural
 * modeling for large corpus item recommendations, RecSys 2019): a perceptron for each side of a
 * pair, and the similarity of each left side with each right side of the batch. The loss is
 * contrastive and symmetric (Radford et al., arXiv 2103.00020): the cross-entropy of the right
 * sides for each left side plus that of the left sides for each right side; the sum of both, not
 * their mean. RMS norms, whose gains are learned, keep the similarities in range.
 */
#include "perceptron.h"
#include "engine/graph/layer.h"

#define EPS   1e-6
#define LEAST 2 /* pairs in a batch */

static const struct jm_option options[] = {
	JM_MODEL_INT(struct jm_perceptron, layers, "layers", 4000, "hidden layers of each tower"),
	JM_MODEL_INT(
		struct jm_perceptron, hidden, "hidden", 10000000, "width of the hidden layers"),
	JM_MODEL_INT(struct jm_perceptron, from, "features", 10000000,
		"numbers that each side of a pair consists of"),
	JM_MODEL_INT(struct jm_perceptron, to, "embedding", 10000000,
		"width in which both sides are compared"),
	{0},
};

static int towers_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_dim_default(v, "features", 64, err);

	(void)seq;
	if (!code && jm_values_text(v, "hidden"))
		code = jm_dim_default(v, "embedding", jm_dim(v, "hidden"), err);
	return code;
}

static struct jm_tensor *tower(struct jm_graph *g, const struct jm_perceptron *p, int64_t batch,
	const char *input, const char *scope)
{
	const int64_t dim[] = {batch, p->from};
	struct jm_tensor *x = jm_graph_input(g, input, g->compute, 2, dim);

	jm_graph_scope(g, "%s", scope);
	x = jm_perceptron(g, x, p, scope);
	x = jm_graph_rmsnorm(g, x, jm_graph_vector(g, "gain", JM_INIT_ONE, p->to), EPS);
	jm_graph_scope(g, "%s", "");
	return x;
}

static int towers_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct jm_perceptron p = {0};
	struct jm_tensor *left, *right, *pair;

	(void)seq;
	JM_FILL(v, &p);
	if (batch < LEAST)
		return jm_err_set(err, JM_ERANGE,
			"A batch of %lld has no second pair to compare a pair with; give --batch "
			"%d or more.",
			(long long)batch, LEAST);
	left = tower(g, &p, batch, "left", "left.");
	right = tower(g, &p, batch, "right", "right.");
	pair = jm_graph_input(g, "pair", JM_I32, 1, &batch);
	*ret_loss = jm_graph_softmax_xent(g, jm_graph_linear(g, left, right, NULL), pair);
	*ret_loss = jm_graph_softmax_xent_add(
		g, *ret_loss, 1, jm_graph_linear(g, right, left, NULL), pair);
	return 0;
}

static const struct jm_input inputs[] = {
	{.name = "left", .fill = JM_FILL_NORMAL},
	{.name = "right", .fill = JM_FILL_NORMAL},
	{.name = "pair", .fill = JM_FILL_ROW},
	{0},
};

const struct jm_model jm_model_towers = {
	.name = "towers",
	.summary = "two towers with a contrastive loss",
	.item = "pair",
	.inputs = inputs,
	.options = options,
	.complete = towers_complete,
	.build = towers_build,
};
