/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights: the tensors of a network that persist between steps (parameters, gradients, optimizer
 * and running state), separate from the programs that use them. The first program that is planned
 * with them defines their set and their layouts; the others find their tensors by name. Programs of
 * one set of weights do not run at the same time, so they share an arena, too.
 */
#ifndef JM_WEIGHTS_H
#define JM_WEIGHTS_H

#include "device.h"

struct jm_weight {
	struct jm_tensor
		t;     /* type, dims, layout and bytes as in the first program; data: see below */
	size_t offset; /* in memory */
};

struct jm_weights {
	struct jm_device *device;
	struct jm_weight *item;
	int n;
	size_t bytes;	    /* of memory */
	size_t arena_bytes; /* the largest arena of the programs planned before the first build */
	char *memory, *arena;
	size_t arena_allocated;
	int64_t written; /* how often a parameter was written or changed without its copies */
	int users;
};

/* The weights have one user, who calls jm_weights_free. NULL = out of memory. */
struct jm_weights *jm_weights_new(struct jm_device *device);
struct jm_weights *jm_weights_share(struct jm_weights *w); /* adds a user; returns w */
/* removes a user and frees the weights with the last one; takes NULL */
void jm_weights_free(struct jm_weights *w);

bool jm_weights_is_one(enum jm_class class);
/* NULL = there is no tensor of this name. */
const struct jm_weight *jm_weights_find(const struct jm_weights *w, const char *name);
int jm_weights_add(
	struct jm_weights *w, const struct jm_tensor *t, size_t offset, struct jm_err *err);

#endif
