/* SPDX-License-Identifier: Apache-2.0 */
/* Backward nodes. */
#ifndef JM_GRADIENT_H
#define JM_GRADIENT_H

#include "graph.h"

/* Appends the backward nodes of `loss`, which must come from softmax-xent, mse or relative-l2. */
int jm_graph_gradients(struct jm_graph *g, struct jm_tensor *loss, struct jm_err *err);

#endif
