/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a program whose model, or whose update, several ranks share, as wholes in host memory.
 * Of ranks that share the model (--tp, --pp) each has a part of a tensor that is cut, or nothing of
 * one that another stage has; with a sharded update (shard_update.h) each rank has a share of what
 * is kept of such a part. Rank 0 of the gang asks for pieces of tensors, all others answer: the
 * shares are joined on the first rank that has the part, which sends it to rank 0. Where no rank
 * shares anything, a rank has the whole.
 */
#ifndef JM_WHOLE_TENSOR_H
#define JM_WHOLE_TENSOR_H

#include "comm/comm.h"
#include "engine/run/program.h"

/* A parameter, or what is kept of each of its elements (a moment). */
struct jm_whole_item {
	struct jm_tensor t;	    /* of this rank; data NULL = others have it, or shares of it */
	const struct jm_cell *cell; /* of the parameter: how it is cut, and who has it */
	enum jm_kept kept;	    /* JM_KEPT_NONE: the parameter itself */
	int rank; /* of the gang, whose values are meant; 0 = all that have it have the same */
};

/* All ranks have the same items in the same order. */
struct jm_whole {
	struct jm_program *p;
	/* of all ranks, in host memory; NULL = none shares the model or its update */
	const struct jm_comm *comm;
	const struct jm_whole_item *item;
};

/* Elements and bytes of the whole tensor. */
int64_t jm_whole_count(const struct jm_whole *w, int i);
size_t jm_whole_bytes(const struct jm_whole *w, int i);
/* Elements to read or write at once, so that the host needs little memory: of a tensor that is cut,
 * or does not lie plain, all. */
int64_t jm_whole_piece(const struct jm_whole *w, int i);
/* For rank 0: n values of item i from `first` on, plain: a piece, or all. Waits for the device. */
int jm_whole_read(
	const struct jm_whole *w, int i, int64_t first, int64_t n, void *ret, struct jm_err *err);
/* For the other ranks: until rank 0 has ended it. */
int jm_whole_answer(const struct jm_whole *w, struct jm_err *err);
/* For rank 0. */
int jm_whole_end(const struct jm_whole *w, struct jm_err *err);
/* Has this rank something of the piece? */
bool jm_whole_has(const struct jm_whole *w, int i, int64_t first, int64_t n);
/* For each rank, on its own: writes what it has of a piece, or of all, and of a parameter also the
 * copy that persists. */
int jm_whole_write(const struct jm_whole *w, int i, int64_t first, int64_t n, const void *from,
	struct jm_err *err);

/* The part that this rank has of a whole parameter, of elements of `size` bytes. */
void jm_whole_part(const struct jm_graph *g, const struct jm_cell *c, size_t size,
	const void *whole, void *ret);

#endif
