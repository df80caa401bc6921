/* SPDX-License-Identifier: Apache-2.0 */
#include "transformer.h"
#include "engine/graph/layer.h"
#include "engine/graph/tensor_parallel.h"

#include <stdio.h>

int jm_transformer_check(int64_t hidden, int64_t heads, bool rotary, struct jm_err *err)
{
	if (hidden % heads == 0 && !(rotary && hidden / heads % 2))
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"%lld heads do not divide a hidden width of %lld%s; change --heads or --hidden.",
		(long long)heads, (long long)hidden,
		rotary ? " into even widths, which rotary positions need" : "");
}

struct jm_tensor *jm_transformer_norm(
	struct jm_graph *g, struct jm_tensor *x, int64_t width, double eps, const char *name)
{
	char weight[JM_NAME_BYTES], bias[JM_NAME_BYTES];
	struct jm_tensor *gamma; /* declared first, whatever the order in which C takes arguments */

	snprintf(weight, sizeof(weight), "%s.weight", name);
	snprintf(bias, sizeof(bias), "%s.bias", name);
	gamma = jm_graph_vector(g, weight, JM_INIT_ONE, width);
	return jm_graph_layernorm(g, x, gamma, jm_graph_vector(g, bias, JM_INIT_ZERO, width), eps);
}

struct layer {
	struct jm_tensor *weight, *bias;
};

static struct layer layer(
	struct jm_graph *g, int64_t from, int64_t to, enum jm_init init, const char *name)
{
	char weight[JM_NAME_BYTES], bias[JM_NAME_BYTES];
	struct layer l;

	snprintf(weight, sizeof(weight), "%s.weight", name);
	snprintf(bias, sizeof(bias), "%s.bias", name);
	l.weight = jm_graph_matrix(g, weight, init, to, from);
	l.bias = jm_graph_vector(g, bias, JM_INIT_ZERO, to);
	return l;
}

struct jm_tensor *jm_transformer_linear(struct jm_graph *g, struct jm_tensor *x, int64_t from,
	int64_t to, enum jm_init init, const char *name)
{
	struct layer l = layer(g, from, to, init, name);

	return jm_graph_linear(g, x, l.weight, l.bias);
}

/* From the residual stream, to n parts of equal width: each rank that shares the model has a part
 * of each. */
static struct jm_tensor *beginning(struct jm_graph *g, struct jm_tensor *x,
	const struct jm_transformer *t, int n, int64_t width, const char *name)
{
	const int64_t part[] = {width, width, width};
	struct layer l = layer(g, t->hidden, n * width, t->init, name);

	return jm_graph_linear(g, x, jm_graph_cut(g, l.weight, JM_CUT_ROWS, n, part),
		jm_graph_cut(g, l.bias, JM_CUT_ROWS, n, part));
}

/* Into the residual stream, where some start values are smaller. */
static struct jm_tensor *ending(struct jm_graph *g, struct jm_tensor *x,
	const struct jm_transformer *t, int64_t from, const char *name)
{
	struct layer l = layer(g, from, t->hidden, t->init, name);

	l.weight = jm_graph_cut(g, l.weight, JM_CUT_COLUMNS, 1, &from);
	return jm_graph_linear(g, x, jm_graph_ends_block(g, l.weight), l.bias);
}

static struct jm_tensor *attention(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_transformer *t)
{
	struct jm_tensor *h = jm_transformer_norm(g, x, t->hidden, t->eps, "ln_1");
	int heads = (int)jm_graph_share(g, t->heads, "heads");

	h = beginning(g, h, t, 3, t->hidden, "attn.qkv");
	if (t->theta > 0)
		h = jm_graph_rope(g, h, heads, heads, (struct jm_rotary){.theta = t->theta});
	h = jm_graph_attention(g, h, heads, heads, t->causal);
	return ending(g, h, t, t->hidden, "attn.out");
}

static struct jm_tensor *feed_forward(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_transformer *t)
{
	struct jm_tensor *h = jm_transformer_norm(g, x, t->hidden, t->eps, "ln_2");

	h = t->activation(g, beginning(g, h, t, 1, t->ffn, "mlp.in"));
	return ending(g, h, t, t->ffn, "mlp.out");
}

struct jm_tensor *jm_transformer_blocks(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_transformer *t)
{
	for (int64_t i = 0; i < t->layers; i++) {
		jm_graph_scope(g, "h%lld.", (long long)i);
		x = jm_graph_add(g, x, jm_graph_dropout(g, attention(g, x, t), g->dropout));
		x = jm_graph_add(g, x, jm_graph_dropout(g, feed_forward(g, x, t), g->dropout));
	}
	jm_graph_scope(g, "%s", "");
	return x;
}
