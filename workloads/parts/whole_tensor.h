/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a program whose model several ranks share (--tp, --pp), as wholes in host memory: each
 * rank has a part of one that is cut, or nothing of one that another stage has. Rank 0 of the gang
 * asks for tensors, all others answer. Where no rank shares the model, a rank has the whole.
 */
#ifndef JM_WHOLE_TENSOR_H
#define JM_WHOLE_TENSOR_H

#include "comm/comm.h"
#include "engine/run/program.h"

/* A parameter, or what is kept of each of its elements (a moment). */
struct jm_whole_item {
	struct jm_tensor t;	    /* of this rank; data NULL = another stage has it */
	const struct jm_cell *cell; /* of the parameter: how it is cut */
};

/* All ranks have the same items in the same order. */
struct jm_whole {
	struct jm_program *p;
	const struct jm_comm *comm; /* of all ranks, in host memory; NULL = none shares the model */
	const struct jm_whole_item *item;
};

/* Bytes of the whole tensor. */
size_t jm_whole_bytes(const struct jm_whole *w, int i);
/* For rank 0: the values of item i, plain, of jm_whole_bytes. Waits for the device. */
int jm_whole_read(const struct jm_whole *w, int i, void *ret, struct jm_err *err);
/* For the other ranks: until rank 0 has ended it. */
int jm_whole_answer(const struct jm_whole *w, struct jm_err *err);
/* For rank 0. */
int jm_whole_end(const struct jm_whole *w, struct jm_err *err);

/* The part that this rank has, of elements of `size` bytes. */
void jm_whole_part(const struct jm_graph *g, const struct jm_cell *c, size_t size,
	const void *whole, void *ret);
/* Writes that part to the tensor t, of the cell or a moment of it; another stage's: nothing. */
int jm_whole_write(struct jm_program *p, const struct jm_cell *c, struct jm_tensor *t,
	const void *whole, struct jm_err *err);

#endif
