/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define SLOTS_FIRST 1024

/* Where the text is, or belongs, in a table of n_slots. */
static size_t slot_of(const struct jm__vocabulary *v, const int32_t *slots, size_t n_slots,
	const char *text, size_t n)
{
	size_t slot = XXH3_64bits(text, n) & (n_slots - 1);

	while (slots[slot] >= 0) {
		const struct jm__token *t = &v->tokens[slots[slot]];

		if (t->n == n && !memcmp(v->bytes.at + t->at, text, n))
			break;
		slot = (slot + 1) & (n_slots - 1);
	}
	return slot;
}

/* Slots for one more token, at most half of them used. */
static bool grow_slots(struct jm__vocabulary *v)
{
	size_t n = v->n_slots ? 2 * v->n_slots : SLOTS_FIRST;
	int32_t *slots;

	if (v->n_slots > 2 * v->used)
		return true;
	slots = malloc(n * sizeof(*slots));
	if (!slots)
		return false;
	memset(slots, -1, n * sizeof(*slots));
	for (int32_t id = 0; id < v->size; id++) {
		const struct jm__token *t = &v->tokens[id];

		if (t->present)
			slots[slot_of(v, slots, n, v->bytes.at + t->at, t->n)] = id;
	}
	free(v->slots);
	v->slots = slots;
	v->n_slots = n;
	return true;
}

static bool grow_tokens(struct jm__vocabulary *v, size_t n)
{
	size_t room = v->room ? v->room : SLOTS_FIRST;
	struct jm__token *tokens;

	if (n <= v->room)
		return true;
	while (room < n)
		room *= 2;
	tokens = realloc(v->tokens, room * sizeof(*tokens));
	if (!tokens)
		return false;
	memset(tokens + v->room, 0, (room - v->room) * sizeof(*tokens));
	v->tokens = tokens;
	v->room = room;
	return true;
}

int jm__vocabulary_add(struct jm__vocabulary *v, const char *text, size_t n, int64_t id)
{
	size_t slot;

	if (id < 0 || id > JM__ID_MOST || v->bytes.n + n > UINT32_MAX)
		return JM_EFORMAT;
	if (!grow_tokens(v, (size_t)id + 1) || !grow_slots(v))
		return JM_ENOMEM;
	slot = slot_of(v, v->slots, v->n_slots, text, n);
	if (v->slots[slot] >= 0 || v->tokens[id].present)
		return JM_EFORMAT;
	v->tokens[id] = (struct jm__token){(uint32_t)v->bytes.n, (uint32_t)n, true};
	if (!jm__bytes_add(&v->bytes, text, n)) {
		v->tokens[id].present = false;
		return JM_ENOMEM;
	}
	v->slots[slot] = (int32_t)id;
	v->used++;
	v->size = id >= v->size ? (int32_t)id + 1 : v->size;
	return 0;
}

int32_t jm__vocabulary_find(const struct jm__vocabulary *v, const char *text, size_t n)
{
	return v->n_slots ? v->slots[slot_of(v, v->slots, v->n_slots, text, n)] : -1;
}

const char *jm__vocabulary_text(const struct jm__vocabulary *v, int32_t id, size_t *ret_n)
{
	if (id < 0 || id >= v->size || !v->tokens[id].present)
		return NULL;
	*ret_n = v->tokens[id].n;
	return v->bytes.at + v->tokens[id].at;
}

void jm__vocabulary_done(struct jm__vocabulary *v)
{
	free(v->bytes.at);
	free(v->tokens);
	free(v->slots);
	*v = (struct jm__vocabulary){0};
}
