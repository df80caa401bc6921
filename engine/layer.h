/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions that models call have in common. */
#ifndef JM_LAYER_H
#define JM_LAYER_H

#include "graph.h"
#include "tensor.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define OPS(...)  ((struct jm_tensor *const[JM_NODE_IN]){__VA_ARGS__})

/* An operand that does not fit is a mistake in the model, not of the user. */
bool jm_layer_fits(struct jm_graph *g, bool good, const char *op, const struct jm_tensor *t);
/* The parameter in the compute type: itself, or a copy made by a cast where it is first used. */
struct jm_tensor *jm_layer_weight(struct jm_graph *g, struct jm_tensor *w);

#endif
