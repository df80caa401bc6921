/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that layer.c and layer_image.c share. */
#ifndef JM_LAYER_PRIVATE_H
#define JM_LAYER_PRIVATE_H

#include "graph.h"
#include "tensor.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define OPS(...)  ((struct jm_tensor *const[JM_NODE_IN]){__VA_ARGS__})

/* Sets the graph's error unless `good`; a wrong operand is a defect of the model, not a user's
 * error. */
bool jm_layer_fits(struct jm_graph *g, bool good, const char *op, const struct jm_tensor *t);
/* The parameter in the compute type: the parameter itself, or a copy that is made at its first
 * use. */
struct jm_tensor *jm_layer_weight(struct jm_graph *g, struct jm_tensor *w);

#endif
