/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer/bytes.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 64

/* Room for `more` elements beyond n; NULL: memory ran out, and the list stays. */
static void *grow(void *at, size_t size, size_t n, size_t more, size_t *room)
{
	size_t next = *room ? *room : ROOM_FIRST;
	void *moved;

	if (more > SIZE_MAX / 4 / size - n)
		return NULL;
	while (next < n + more)
		next *= 2;
	moved = realloc(at, next * size);
	if (moved)
		*room = next;
	return moved;
}

bool jm__bytes_reserve(struct jm_bytes *b, size_t more)
{
	char *at = b->at && b->room - b->n >= more ? b->at : grow(b->at, 1, b->n, more, &b->room);

	if (at)
		b->at = at;
	return at;
}

bool jm__bytes_add(struct jm_bytes *b, const char *at, size_t n)
{
	if (!jm__bytes_reserve(b, n))
		return false;
	if (n) /* `at` may be NULL */
		memcpy(b->at + b->n, at, n);
	b->n += n;
	return true;
}

bool jm__ids_add(struct jm_ids *ids, const int32_t *at, size_t n)
{
	int32_t *moved = ids->at;

	if (!moved || ids->room - ids->n < n)
		moved = grow(ids->at, sizeof(*at), ids->n, n, &ids->room);
	if (!moved)
		return false;
	ids->at = moved;
	if (n)
		memcpy(ids->at + ids->n, at, n * sizeof(*at));
	ids->n += n;
	return true;
}
