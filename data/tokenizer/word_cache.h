/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of words that occurred: a table of fixed size, which is emptied when it is full. */
#ifndef JM_WORD_CACHE_H
#define JM_WORD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JM__WORD_MOST 128 /* bytes of a word that is kept */

struct jm__word {
	uint64_t hash;
	uint32_t at;	 /* in the store: ids, then the bytes of the word */
	uint16_t n, ids; /* ids = 0: the slot is empty */
};

struct jm__word_cache {
	struct jm__word *slots;
	char *store;
	size_t n_slots, used, stored;
};

bool jm__word_cache_init(struct jm__word_cache *c);
void jm__word_cache_done(struct jm__word_cache *c);
uint64_t jm__word_hash(const char *word, size_t n);
/* The ids of a word of at most JM__WORD_MOST bytes; NULL = it is not there. */
const int32_t *jm__word_cache_find(
	const struct jm__word_cache *c, const char *word, size_t n, uint64_t hash, size_t *ret_n);
/* 1 to JM__WORD_MOST ids; a word without ids or with more is not kept. */
void jm__word_cache_add(struct jm__word_cache *c, const char *word, size_t n, uint64_t hash,
	const int32_t *ids, size_t n_ids);

#endif
