/* SPDX-License-Identifier: Apache-2.0 */
/* Work on many elements, divided among threads. */
#ifndef JM_PARALLEL_FOR_H
#define JM_PARALLEL_FOR_H

#include <stdint.h>

#define JM_SHARES_MOST 64

/* Works on elements first to first + n - 1; share: its number, from 0; n may be 0. */
typedef void jm_share_fn(void *arg, int share, int64_t first, int64_t n);

struct jm_shares {
	int64_t count;	/* of elements */
	int64_t weight; /* of an element: a thread is worth its start from 2^18 of them on */
	int64_t unit;	/* a share begins at a multiple of it */
	int most;	/* shares, up to JM_SHARES_MOST; there are no more than processors */
	jm_share_fn *fn;
	void *arg;
};

/* Returns the number of shares when all are done: the last one by the caller's thread, as those
 * whose thread cannot start. */
int jm_shares_run(const struct jm_shares *s);

#endif
