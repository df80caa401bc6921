/* SPDX-License-Identifier: Apache-2.0 */
#include "sample_order.h"

#include <stdlib.h>

#include "engine/graph/rng.h"

#define ROUNDS 4

/* A network of Feistel over the next even number of bits; values beyond n go through it again. */
int64_t jm_sample_order(uint64_t seed, int64_t epoch, int64_t i, int64_t n)
{
	uint64_t stream = jm_rng(seed, (uint64_t)epoch), x = (uint64_t)i, mask;
	int half = 1;

	while ((uint64_t)n > UINT64_C(1) << 2 * half)
		half++;
	mask = (UINT64_C(1) << half) - 1;
	do {
		for (uint64_t round = 0; round < ROUNDS; round++) {
			uint64_t left = x >> half, right = x & mask;

			x = right << half |
			    (left ^ (jm_rng(stream, right * ROUNDS + round) & mask));
		}
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Of two of one length the one that was first stays first. */
static int longer_first(const void *a, const void *b)
{
	const struct jm_length_group *x = a, *y = b;

	if (x->length != y->length)
		return x->length > y->length ? -1 : 1;
	return x->place < y->place ? -1 : 1;
}

static int64_t count_from(const struct jm_length_groups *g, int64_t first)
{
	return g->n - first < g->size ? g->n - first : g->size;
}

static void sort_group(struct jm_length_groups *g, int64_t epoch, int64_t first)
{
	int64_t n = count_from(g, first);

	for (int64_t k = 0; k < n; k++) {
		int64_t sample = jm_sample_order(g->seed, epoch, first + k, g->n);

		g->at[k] = (struct jm_length_group){
			sample, g->start[sample + 1] - g->start[sample], k};
	}
	qsort(g->at, (size_t)n, sizeof(*g->at), longer_first);
	g->epoch = epoch;
	g->first = first;
}

int jm_length_groups_order(struct jm_length_groups *g, int64_t epoch, int64_t i,
	int64_t *ret_sample, struct jm_err *err)
{
	int64_t first = i / g->size * g->size;
	bool is_new = !g->at;

	if (is_new)
		g->at = calloc((size_t)count_from(g, 0), sizeof(*g->at));
	if (!g->at)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the order of samples.");
	if (is_new || epoch != g->epoch || first != g->first)
		sort_group(g, epoch, first);
	*ret_sample = g->at[i - first].sample;
	return 0;
}

void jm_length_groups_done(struct jm_length_groups *g)
{
	free(g->at);
	g->at = NULL;
}
