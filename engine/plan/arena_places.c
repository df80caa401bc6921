/* SPDX-License-Identifier: Apache-2.0 */
#include "arena_places.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FULL 128

struct jm_place_block {
	struct jm_place at[FULL]; /* by rising `from` */
	int n;
	size_t to, gap;	 /* highest end; largest free interval between its first and last byte */
	int first, last; /* the earliest and the latest unit */
	int all_from, all_to; /* units at which all places are in use, if all_from <= all_to */
};

static void sum_up(struct jm_place_block *b)
{
	b->to = b->gap = 0;
	b->first = b->all_to = INT_MAX;
	b->last = b->all_from = INT_MIN;
	for (int i = 0; i < b->n; i++) {
		const struct jm_place *p = &b->at[i];

		if (i && p->from > b->to && p->from - b->to > b->gap)
			b->gap = p->from - b->to;
		b->to = p->to > b->to ? p->to : b->to;
		b->first = p->first < b->first ? p->first : b->first;
		b->last = p->last > b->last ? p->last : b->last;
		b->all_from = p->first > b->all_from ? p->first : b->all_from;
		b->all_to = p->last < b->all_to ? p->last : b->all_to;
	}
}

/* True if every place is in use at some unit from `first` to `last`: two intervals overlap if each
 * begins before the other ends. */
static bool all_meet(const struct jm_place_block *b, int first, int last)
{
	return b->all_from <= last && b->all_to >= first;
}

/* Moves *at after the places that it may not overlap; true = there is room before one of them. */
static bool pass_block(
	const struct jm_place_block *b, size_t bytes, int first, int last, size_t *at)
{
	for (int i = 0; i < b->n; i++) {
		const struct jm_place *p = &b->at[i];

		if (p->last < first || last < p->first)
			continue;
		if (*at + bytes <= p->from)
			return true;
		if (p->to > *at)
			*at = p->to;
	}
	return false;
}

size_t jm_places_find(const struct jm_places *p, size_t start, size_t bytes, int first, int last)
{
	size_t at = start;

	for (int i = 0; i < p->n; i++) {
		const struct jm_place_block *b = p->block[i];

		if (b->last < first || last < b->first)
			continue;
		if (all_meet(b, first, last) && at + bytes > b->at[0].from && b->gap < bytes)
			at = b->to > at ? b->to : at;
		else if (pass_block(b, bytes, first, last, &at))
			break;
	}
	return at;
}

/* Makes room for one more block before index `i`. */
static struct jm_place_block *insert_block(struct jm_places *p, int i)
{
	struct jm_place_block *b = calloc(1, sizeof(*b)), **more = p->block;

	if (b && p->n == p->cap) {
		int cap = p->cap ? 2 * p->cap : 16;

		more = realloc(p->block, (size_t)cap * sizeof(*more));
		if (more) {
			p->block = more;
			p->cap = cap;
		}
	}
	if (!b || !more) {
		free(b);
		return NULL;
	}
	memmove(p->block + i + 1, p->block + i, (size_t)(p->n - i) * sizeof(*p->block));
	p->n++;
	return p->block[i] = b;
}

/* The last block that begins at or before `from`, or the first. */
static int block_of(const struct jm_places *p, size_t from)
{
	int low = 0, high = p->n;

	while (high - low > 1) {
		int middle = (low + high) / 2;

		if (p->block[middle]->at[0].from <= from)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static bool split(struct jm_places *p, int i)
{
	struct jm_place_block *b = p->block[i], *rest = insert_block(p, i + 1);

	if (!rest)
		return false;
	rest->n = FULL / 2;
	b->n -= rest->n;
	memcpy(rest->at, b->at + b->n, (size_t)rest->n * sizeof(*rest->at));
	sum_up(b);
	sum_up(rest);
	return true;
}

bool jm_places_add(struct jm_places *p, const struct jm_place *place)
{
	struct jm_place_block *b;
	int i = block_of(p, place->from), k;

	if (!p->n && !insert_block(p, 0))
		return false;
	if (p->block[i]->n == FULL) {
		if (!split(p, i))
			return false;
		i = block_of(p, place->from);
	}
	b = p->block[i];
	k = b->n;
	while (k > 0 && b->at[k - 1].from > place->from)
		k--;
	memmove(b->at + k + 1, b->at + k, (size_t)(b->n - k) * sizeof(*b->at));
	b->at[k] = *place;
	b->n++;
	sum_up(b);
	return true;
}

void jm_places_done(struct jm_places *p)
{
	for (int i = 0; i < p->n; i++)
		free(p->block[i]);
	free(p->block);
	*p = (struct jm_places){0};
}
