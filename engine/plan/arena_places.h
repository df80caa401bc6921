/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intervals of the arena that are in use, with their first and last units. They are sorted by
 * offset in blocks; the search skips a whole block if its summary shows that no interval in it can
 * overlap, so it does not visit each of some hundred thousand tensors.
 */
#ifndef JM_ARENA_PLACES_H
#define JM_ARENA_PLACES_H

#include <stdbool.h>
#include <stddef.h>

struct jm_place {
	size_t from, to; /* bytes */
	int first, last; /* units */
};

struct jm_place_block;
struct jm_places {
	struct jm_place_block **block;
	int n, cap;
};

/* The lowest offset from `start` on where `bytes` are free from unit `first` to unit `last`. */
size_t jm_places_find(const struct jm_places *p, size_t start, size_t bytes, int first, int last);
/* Adds the place after those with an equal offset; false = out of memory. */
bool jm_places_add(struct jm_places *p, const struct jm_place *place);
void jm_places_done(struct jm_places *p);

#endif
