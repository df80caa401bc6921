/* SPDX-License-Identifier: Apache-2.0 */
/* A multilayer perceptron as a part of networks. */
#ifndef JM_PERCEPTRON_H
#define JM_PERCEPTRON_H

#include "engine/graph/model.h"

struct jm_perceptron {
	int64_t layers; /* hidden ones */
	int64_t from, hidden, to;
};

/* x[B,from] -> [B,to]: linear layers with biases, GELU after each hidden one. Parameters are named
 * "NAMEh0.linear.weight", "NAMEh0.linear.bias"..., "NAMEout.weight". Glorot and Bengio's start
 * values. */
struct jm_tensor *jm_perceptron(
	struct jm_graph *g, struct jm_tensor *x, const struct jm_perceptron *p, const char *name);

#endif
