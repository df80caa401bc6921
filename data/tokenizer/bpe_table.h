/* SPDX-License-Identifier: Apache-2.0 */
/* The table of merges: what a pair of tokens becomes, and in which order. */
#ifndef JM_BPE_TABLE_H
#define JM_BPE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "joulemark.h"

struct jm__merge {
	uint64_t pair; /* left id << 32 | right id; UINT64_MAX = empty */
	uint32_t rank;
	int32_t id; /* of the merged token */
};

/* A hash table; zeroed = empty. */
struct jm__merges {
	struct jm__merge *slot;
	size_t n_slots, n;
};

/* Replaces an earlier merge of this pair. False: memory ran out. */
bool jm__merges_add(struct jm__merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* The merge of a pair; NULL = there is none. */
const struct jm__merge *jm__merges_find(const struct jm__merges *m, int32_t left, int32_t right);
void jm__merges_done(struct jm__merges *m);

#endif
