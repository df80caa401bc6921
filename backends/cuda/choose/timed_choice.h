/* SPDX-License-Identifier: Apache-2.0 */
/* The fastest of several ways to run a group, found by timing each on separate memory with random
 * values: the group's own operands may be parameters. */
#ifndef JM_CUDA_TIMED_CHOICE_H
#define JM_CUDA_TIMED_CHOICE_H

#include "backends/cuda/device/cuda.h"

#define CUDA_WAYS 5 /* at most */
struct cuda_way {
	const char *name;
	/* Sets exec->own; exec->op runs and drops it. */
	int (*build)(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err);
};

/* The number of the way that the plan cache has; -1 = it has none, or one that was chosen among
 * fewer or more. */
int cuda_way_known(struct cuda_dev *dev, const char *key, const struct cuda_way *way, int n);
/* The number of the fastest way, from the plan cache or by timing. 0 where none can be timed, as
 * without memory for the copies: the first way must need no more than the group has. */
int cuda_way_choose(struct cuda_dev *dev, const struct cuda_exec *exec, const char *key,
	const struct cuda_way *way, int n);

/* The median of times, without NAN, which are sorted in place; of an even number the upper one. */
double cuda_median(double *seconds, int n);

#endif
