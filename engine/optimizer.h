/* SPDX-License-Identifier: Apache-2.0 */
/* What the update of one rank and the sharded update of several have in common. */
#ifndef JM_OPTIMIZER_H
#define JM_OPTIMIZER_H

#include "graph.h"

#define JM_UPDATE_ALIGN 64 /* bytes, of every view of a slab */

bool jm_update_trains(const struct jm_cell *c); /* a parameter with a gradient */
struct jm_tensor *jm_update_flat(
	struct jm_graph *g, enum jm_class class, enum jm_dtype type, int64_t n, const char *name);
/* A flat tensor "adamw.WHAT" (or adam, sgd). */
struct jm_tensor *jm_update_state(struct jm_graph *g, enum jm_class class, enum jm_dtype type,
	enum jm_update kind, const char *what, int64_t n);
/* Appends the node of the update; weight decay applies to the first n_decay elements. v: NULL for SGD. */
struct jm_node *jm_update_node(struct jm_graph *g, const struct jm_adamw *how,
	struct jm_tensor *const in[4], struct jm_tensor *const out[4], int64_t n_decay);

#endif
