/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a data set as Megatron reads it (corpus.h): NAME.bin has the tokens, NAME.idx where each
 * document begins. Both get their names when all of them is on the disk; until then there is
 * nothing, or the older set, also after a kill. The memory does not depend on the number of tokens
 * or documents.
 */
#ifndef JM_MEGATRON_H
#define JM_MEGATRON_H

#include "joulemark.h"

struct jm_megatron; /* a set that is being written */

/* Appends tokens to the document. JM_EIO: the disk is full, or another error. */
int jm_megatron_add(struct jm_megatron *m, const int32_t *ids, size_t n, struct jm_err *err);
/* Ends the document; one without tokens is left out. */
int jm_megatron_end(struct jm_megatron *m, struct jm_err *err);

struct jm_megatron_size {
	int64_t documents, tokens;
};

/* Gives all documents to the set. Returns 0 or an error, with which nothing is written. */
typedef int jm_megatron_fn(void *arg, struct jm_megatron *m, struct jm_err *err);
/*
 * Writes NAME.bin and NAME.idx, in place of those that are there. tokens: ids are below it; two
 * bytes each if it is below 65,500, as in Megatron, else four. JM_ERANGE: there were no tokens.
 */
int jm_megatron_write(const char *name, int32_t tokens, jm_megatron_fn *give, void *arg,
	struct jm_megatron_size *ret, struct jm_err *err);

#endif
