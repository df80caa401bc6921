/* SPDX-License-Identifier: Apache-2.0 */
/* What the transformers with biases, GPT and the vision transformer, have in common. */
#ifndef JM_TRANSFORMER_H
#define JM_TRANSFORMER_H

#include "engine/graph/graph.h"

/*
 * A stack of blocks, layer norm before each part (Xiong et al., arXiv 2002.04745):
 *	x += dropout(attention(norm x));  x += dropout(W2 activation(W1 norm x))
 */
struct jm_transformer {
	int64_t layers, hidden, ffn;
	int heads; /* divide hidden */
	bool causal;
	double theta; /* of rotary positions; 0 = none */
	double eps;   /* of the norms */
	enum jm_init init;
	struct jm_tensor *(*activation)(struct jm_graph *g, struct jm_tensor *x);
};

/* JM_ERANGE: the heads do not divide the width, or not into the pairs that rotary positions
 * turn. */
int jm_transformer_check(int64_t hidden, int64_t heads, bool rotary, struct jm_err *err);
/* x[B,S,hidden] -> the same. Parameters are named "h0.ln_1.weight", "h0.attn.qkv.bias"... */
struct jm_tensor *jm_transformer_blocks(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_transformer *t);
/* With parameters "NAME.weight" and "NAME.bias". */
struct jm_tensor *jm_transformer_norm(
	struct jm_graph *g, struct jm_tensor *x, int64_t width, double eps, const char *name);
/* y[..,to] = x[..,from] w[to,from]^T + b, with parameters "NAME.weight" and "NAME.bias". */
struct jm_tensor *jm_transformer_linear(struct jm_graph *g, struct jm_tensor *x, int64_t from,
	int64_t to, enum jm_init init, const char *name);

#endif
