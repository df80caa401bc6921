/* SPDX-License-Identifier: Apache-2.0 */
/* Which sample of a data set is at which place of an epoch. */
#ifndef JM_SAMPLE_ORDER_H
#define JM_SAMPLE_ORDER_H

#include "joulemark.h"

/* The sample at place i of an epoch's random order of n: a permutation. */
int64_t jm_sample_order(uint64_t seed, int64_t epoch, int64_t i, int64_t n);

/*
 * In the random order of an epoch, each `size` samples are sorted by their lengths, the longest
 * first. What one thread keeps of the samples that it looked up last; all but the first line zeroed
 * at first.
 */
struct jm_length_groups {
	const int64_t *start; /* of sample i: start[i + 1] - start[i] is its length */
	int64_t n, size;      /* samples of an epoch, and of a group */
	uint64_t seed;
	int64_t epoch, first; /* place of the group's first sample */
	struct jm_length_group {
		int64_t sample, length, place;
	} * at; /* [size]; NULL = none was looked up */
};

/* The sample at place i of an epoch. JM_ENOMEM. */
int jm_length_groups_order(struct jm_length_groups *g, int64_t epoch, int64_t i,
	int64_t *ret_sample, struct jm_err *err);
void jm_length_groups_done(struct jm_length_groups *g);

#endif
