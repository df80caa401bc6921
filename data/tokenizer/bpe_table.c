/* SPDX-License-Identifier: Apache-2.0 */
/* The table of merges: what a pair of tokens becomes, and in which order. */
#include "data/tokenizer/bpe_table.h"

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

static bool grow(struct jm__merges *m)
{
	size_t n = m->n_slots ? 2 * m->n_slots : SLOTS_FIRST;
	struct jm__merge *slot;

	if (m->n_slots > 2 * m->n)
		return true;
	slot = malloc(n * sizeof(*slot));
	if (!slot)
		return false;
	memset(slot, 0xff, n * sizeof(*slot));
	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slot[i].pair != UINT64_MAX)
			slot[slot_of(slot, n, m->slot[i].pair)] = m->slot[i];
	free(m->slot);
	m->slot = slot;
	m->n_slots = n;
	return true;
}

bool jm__merges_add(struct jm__merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
	struct jm__merge *merge;

	if (!grow(m))
		return false;
	merge = &m->slot[slot_of(m->slot, m->n_slots, pair_of(left, right))];
	m->n += merge->pair == UINT64_MAX;
	*merge = (struct jm__merge){pair_of(left, right), rank, id};
	return true;
}

const struct jm__merge *jm__merges_find(const struct jm__merges *m, int32_t left, int32_t right)
{
	const struct jm__merge *merge;

	if (!m->n_slots)
		return NULL;
	merge = &m->slot[slot_of(m->slot, m->n_slots, pair_of(left, right))];
	return merge->pair == UINT64_MAX ? NULL : merge;
}

void jm__merges_done(struct jm__merges *m)
{
	free(m->slot);
}
