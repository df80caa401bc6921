/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define SLOTS 65536
#define STORE (4 << 20) /* bytes */

bool jm__word_cache_init(struct jm__word_cache *c)
{
	*c = (struct jm__word_cache){.n_slots = SLOTS};
	c->slots = calloc(SLOTS, sizeof(*c->slots));
	c->store = malloc(STORE);
	return c->slots && c->store;
}

void jm__word_cache_done(struct jm__word_cache *c)
{
	free(c->slots);
	free(c->store);
}

uint64_t jm__word_hash(const char *word, size_t n)
{
	return XXH3_64bits(word, n);
}

const int32_t *jm__word_cache_find(
	const struct jm__word_cache *c, const char *word, size_t n, uint64_t hash, size_t *ret_n)
{
	for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
		const struct jm__word *w = &c->slots[i];
		const char *ids = c->store + w->at;

		if (!w->ids)
			return NULL;
		if (w->hash == hash && w->n == n && !memcmp(ids + 4 * w->ids, word, n)) {
			*ret_n = w->ids;
			return (const int32_t *)(const void *)ids;
		}
	}
}

static void clear(struct jm__word_cache *c)
{
	memset(c->slots, 0, SLOTS * sizeof(*c->slots));
	c->used = c->stored = 0;
}

void jm__word_cache_add(struct jm__word_cache *c, const char *word, size_t n, uint64_t hash,
	const int32_t *ids, size_t n_ids)
{
	size_t bytes = (4 * n_ids + n + 3) & ~(size_t)3, i;

	if (!n_ids || n_ids > JM__WORD_MOST)
		return;
	if (c->used >= SLOTS / 2 || c->stored + bytes > STORE)
		clear(c);
	for (i = hash & (SLOTS - 1); c->slots[i].ids;)
		i = (i + 1) & (SLOTS - 1);
	c->slots[i] = (struct jm__word){hash, (uint32_t)c->stored, (uint16_t)n, (uint16_t)n_ids};
	memcpy(c->store + c->stored, ids, 4 * n_ids);
	memcpy(c->store + c->stored + 4 * n_ids, word, n);
	c->stored += bytes;
	c->used++;
}
