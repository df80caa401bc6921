/* SPDX-License-Identifier: Apache-2.0 */
#include "perceptron.h"
#include "engine/graph/layer.h"

#include "transformer.h"

struct jm_tensor *jm_perceptron(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_perceptron *p, const char *name)
{
	int64_t from = p->from;

	for (int64_t i = 0; i < p->layers; i++, from = p->hidden) {
		jm_graph_scope(g, "%sh%lld.", name, (long long)i);
		x = jm_transformer_linear(g, x, from, p->hidden, JM_INIT_XAVIER_UNIFORM, "linear");
		x = jm_graph_gelu(g, x);
	}
	jm_graph_scope(g, "%s", name);
	return jm_transformer_linear(g, x, from, p->to, JM_INIT_XAVIER_UNIFORM, "out");
}
