/* SPDX-License-Identifier: Apache-2.0 */
#include "transformer.h"
#include "engine/graph/layer.h"

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

/* ends: into the residual stream, where some start values are smaller */
static struct jm_tensor *linear(struct jm_graph *g, struct jm_tensor *x, int64_t from, int64_t to,
	enum jm_init init, bool ends, const char *name)
{
	char weight[JM_NAME_BYTES], bias[JM_NAME_BYTES];
	struct jm_tensor *w;

	snprintf(weight, sizeof(weight), "%s.weight", name);
	snprintf(bias, sizeof(bias), "%s.bias", name);
	w = jm_graph_matrix(g, weight, init, to, from);
	return jm_graph_linear(g, x, ends ? jm_graph_ends_block(g, w) : w,
		jm_graph_vector(g, bias, JM_INIT_ZERO, to));
}

struct jm_tensor *jm_transformer_linear(struct jm_graph *g, struct jm_tensor *x, int64_t from,
	int64_t to, enum jm_init init, const char *name)
{
	return linear(g, x, from, to, init, false, name);
}

static struct jm_tensor *attention(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_transformer *t)
{
	struct jm_tensor *h = jm_transformer_norm(g, x, t->hidden, t->eps, "ln_1");

	h = linear(g, h, t->hidden, 3 * t->hidden, t->init, false, "attn.qkv");
	if (t->theta > 0)
		h = jm_graph_rope(g, h, t->heads, t->heads, (struct jm_rotary){.theta = t->theta});
	h = jm_graph_attention(g, h, t->heads, t->heads, t->causal);
	return linear(g, h, t->hidden, t->hidden, t->init, true, "attn.out");
}

static struct jm_tensor *feed_forward(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_transformer *t)
{
	struct jm_tensor *h = jm_transformer_norm(g, x, t->hidden, t->eps, "ln_2");

	h = t->activation(g, linear(g, h, t->hidden, t->ffn, t->init, false, "mlp.in"));
	return linear(g, h, t->ffn, t->hidden, t->init, true, "mlp.out");
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
