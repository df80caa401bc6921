/* SPDX-License-Identifier: Apache-2.0 */
/* The table of merges: what a pair of tokens becomes, and in which order. */
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 1024

static uint64_t pair_of(int32_t left, int32_t right)
{
	return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const struct jm__merge *merges, size_t n_slots, uint64_t pair)
{
	size_t slot = (pair * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (n_slots - 1);

	while (merges[slot].pair != pair && merges[slot].pair != UINT64_MAX)
		slot = (slot + 1) & (n_slots - 1);
	return slot;
}

static bool grow_merges(struct jm__bpe *b)
{
	size_t n = b->n_slots ? 2 * b->n_slots : SLOTS_FIRST;
	struct jm__merge *merges;

	if (b->n_slots > 2 * b->n_merges)
		return true;
	merges = malloc(n * sizeof(*merges));
	if (!merges)
		return false;
	memset(merges, 0xff, n * sizeof(*merges));
	for (size_t i = 0; i < b->n_slots; i++)
		if (b->merges[i].pair != UINT64_MAX)
			merges[slot_of(merges, n, b->merges[i].pair)] = b->merges[i];
	free(b->merges);
	b->merges = merges;
	b->n_slots = n;
	return true;
}

bool jm__bpe_add_merge(struct jm__bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
	struct jm__merge *m;

	if (!grow_merges(b))
		return false;
	m = &b->merges[slot_of(b->merges, b->n_slots, pair_of(left, right))];
	b->n_merges += m->pair == UINT64_MAX;
	*m = (struct jm__merge){pair_of(left, right), rank, id};
	return true;
}

const struct jm__merge *jm__bpe_merge(const struct jm__bpe *b, int32_t left, int32_t right)
{
	const struct jm__merge *m;

	if (!b->n_slots)
		return NULL;
	m = &b->merges[slot_of(b->merges, b->n_slots, pair_of(left, right))];
	return m->pair == UINT64_MAX ? NULL : m;
}
