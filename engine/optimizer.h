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
	struct jm_tensor *const in[4], struct jm_tensor *const out[3], int64_t n_decay);

/* An interval of the slabs whose gradients are summed at once; each rank updates an equal share of it. */
struct jm_segment {
	int64_t from, n;	     /* elements of the slabs, of all ranks */
	struct jm_tensor *grads;     /* all of the interval */
	struct jm_tensor *own_grads; /* this rank's share of their sum */
	struct jm_tensor *updated,
		*whole; /* gathered after the update: this rank's share, the interval */
	struct jm_tensor *masters, *params; /* the same in the type of the masters */
	const struct jm_node *last;	    /* of the update; completes `updated` */
	int reader; /* the first unit that reads `whole`, before transfers are placed */
};

/* shard_update.c: the update of a program whose ranks divide it among themselves. */
struct jm_shard {
	struct jm_segment *segment;
	int n, cap;
	struct jm_tensor *own_norm, *norms; /* of this rank's share [1], of all ranks [ranks] */
};

int jm_graph_shard_update(struct jm_graph *g, const struct jm_adamw *how, struct jm_err *err);
void jm_shard_free(struct jm_shard *s); /* takes NULL */

#endif
