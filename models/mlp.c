/* SPDX-License-Identifier: Apache-2.0 */
/* A multilayer perceptron that learns numbers from numbers; its loss is the mean of squared
 * differences. */
#include "perceptron.h"
#include "engine/graph/layer.h"

static const struct jm_option options[] = {
	JM_MODEL_INT(struct jm_perceptron, layers, "layers", 4000, "hidden layers"),
	JM_MODEL_INT(
		struct jm_perceptron, hidden, "hidden", 10000000, "width of the hidden layers"),
	JM_MODEL_INT(struct jm_perceptron, from, "features", 10000000,
		"numbers that a sample consists of"),
	JM_MODEL_INT(struct jm_perceptron, to, "outputs", 10000000,
		"numbers that are predicted from them"),
	{0},
};

static int mlp_complete(struct jm_values *v, int64_t seq, struct jm_err *err)
{
	int code = jm_dim_default(v, "features", 64, err);

	(void)seq;
	return code ? code : jm_dim_default(v, "outputs", 1, err);
}

static int mlp_build(struct jm_graph *g, const struct jm_values *v, int64_t batch, int64_t seq,
	struct jm_tensor **ret_loss, struct jm_err *err)
{
	struct jm_perceptron p = {0};
	struct jm_tensor *x, *target;

	(void)err;
	(void)seq;
	JM_FILL(v, &p);
	x = jm_graph_input(g, "sample", g->compute, 2, (const int64_t[]){batch, p.from});
	target = jm_graph_input(g, "target", g->compute, 2, (const int64_t[]){batch, p.to});
	*ret_loss = jm_graph_mse(g, jm_perceptron(g, x, &p, ""), target);
	return 0;
}

static const struct jm_input inputs[] = {
	{.name = "sample", .fill = JM_FILL_NORMAL},
	{.name = "target", .fill = JM_FILL_NORMAL},
	{0},
};

const struct jm_model jm_model_mlp = {
	.name = "mlp",
	.summary = "multilayer perceptron for regression",
	.item = "sample",
	.inputs = inputs,
	.options = options,
	.complete = mlp_complete,
	.build = mlp_build,
};
