/* SPDX-License-Identifier: Apache-2.0 */
/* The merges of one word: a short one by looking at all pairs each time, a long one with a queue of
 * pairs. */
#include "data/tokenizer/bpe_merge.h"

#include <stdlib.h>
#include <string.h>

#define SHORT 48 /* tokens */

struct jm__link {
	int32_t id, previous, next; /* id -1: merged into the previous one */
};

/* A pair that may be merged: the place of its left token, and the merge when it was noticed. */
struct jm__pair {
	uint32_t rank;
	int32_t at, id;
};

/* ---- short words ----------------------------------------------------------------------------- */

static void merge_short(struct jm__bpe_word *w)
{
	const struct jm__merge *merge[SHORT];
	int32_t *ids = w->ids.at;
	size_t n = w->ids.n;

	for (size_t i = 0; i + 1 < n; i++)
		merge[i] = jm__merges_find(w->merges, ids[i], ids[i + 1]);
	while (n > 1) {
		size_t best = n;

		for (size_t i = 0; i + 1 < n; i++)
			if (merge[i] && (best == n || merge[i]->rank < merge[best]->rank))
				best = i;
		if (best == n)
			break;
		ids[best] = merge[best]->id;
		memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof(*ids));
		if (n - best > 2)
			memmove(merge + best + 1, merge + best + 2,
				(n - best - 3) * sizeof(merge[0]));
		n--;
		if (best > 0)
			merge[best - 1] = jm__merges_find(w->merges, ids[best - 1], ids[best]);
		if (best + 1 < n)
			merge[best] = jm__merges_find(w->merges, ids[best], ids[best + 1]);
	}
	w->ids.n = n;
}

/* ---- long words: a binary heap --------------------------------------------------------------- */

static bool is_before(const struct jm__pair *a, const struct jm__pair *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool push(struct jm__bpe_word *w, int32_t at)
{
	const struct jm__link *left = &w->links[at];
	const struct jm__merge *m;
	struct jm__pair *q;
	size_t i = w->n_queue;

	m = left->next < 0 ? NULL : jm__merges_find(w->merges, left->id, w->links[left->next].id);
	if (!m)
		return true;
	if (i == w->queue_room) {
		size_t room = w->queue_room ? 2 * w->queue_room : 256;

		q = realloc(w->queue, room * sizeof(*q));
		if (!q)
			return false;
		w->queue = q;
		w->queue_room = room;
	}
	q = w->queue;
	q[i] = (struct jm__pair){m->rank, at, m->id};
	for (; i && is_before(&q[i], &q[(i - 1) / 2]); i = (i - 1) / 2) {
		struct jm__pair moved = q[i];

		q[i] = q[(i - 1) / 2];
		q[(i - 1) / 2] = moved;
	}
	w->n_queue++;
	return true;
}

static struct jm__pair pop(struct jm__bpe_word *w)
{
	struct jm__pair *q = w->queue, first = q[0], last = q[--w->n_queue];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < w->n_queue) {
		if (child + 1 < w->n_queue && is_before(&q[child + 1], &q[child]))
			child++;
		if (!is_before(&q[child], &last))
			break;
		q[i] = q[child];
		i = child;
	}
	q[i] = last;
	return first;
}

/* Merges the pair unless one of its tokens has changed since. */
static bool merge_pair(struct jm__bpe_word *w, const struct jm__pair *pair)
{
	struct jm__link *left = &w->links[pair->at], *right;
	const struct jm__merge *m;

	if (left->id < 0 || left->next < 0)
		return true;
	right = &w->links[left->next];
	m = jm__merges_find(w->merges, left->id, right->id);
	if (!m || m->id != pair->id)
		return true;
	left->id = m->id;
	right->id = -1;
	left->next = right->next;
	if (right->next >= 0)
		w->links[right->next].previous = pair->at;
	return (left->previous < 0 || push(w, left->previous)) && push(w, pair->at);
}

static bool link_word(struct jm__bpe_word *w)
{
	size_t n = w->ids.n;
	struct jm__link *links = w->links;

	if (n > INT32_MAX)
		return false;
	if (n > w->links_room) {
		links = realloc(w->links, n * sizeof(*links));
		if (!links)
			return false;
		w->links = links;
		w->links_room = n;
	}
	for (size_t i = 0; i < n; i++)
		links[i] = (struct jm__link){w->ids.at[i], (int32_t)i - 1, (int32_t)i + 1};
	links[n - 1].next = -1;
	return true;
}

static bool merge_long(struct jm__bpe_word *w)
{
	size_t n = 0;

	if (!link_word(w))
		return false;
	w->n_queue = 0;
	for (size_t i = 0; i < w->ids.n; i++)
		if (!push(w, (int32_t)i))
			return false;
	while (w->n_queue) {
		struct jm__pair pair = pop(w);

		if (!merge_pair(w, &pair))
			return false;
	}
	for (int32_t i = 0; i >= 0; i = w->links[i].next)
		w->ids.at[n++] = w->links[i].id;
	w->ids.n = n;
	return true;
}

bool jm__bpe_merge_word(struct jm__bpe_word *w, const struct jm__merges *merges)
{
	w->merges = merges;
	if (w->ids.n > SHORT)
		return merge_long(w);
	if (w->ids.n > 1)
		merge_short(w);
	return true;
}

void jm__bpe_word_done(struct jm__bpe_word *w)
{
	free(w->ids.at);
	free(w->links);
	free(w->queue);
}
