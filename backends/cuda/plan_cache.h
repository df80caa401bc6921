/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was chosen by timing, kept on disk: a line of text per choice, so that the same work has the same
 * algorithms, and the same bits, in every process. The file is "cuda.plans" in the folder JM_PLANS names,
 * else in $XDG_CACHE_HOME/joulemark or ~/.cache/joulemark. A line belongs to one GPU model, driver and
 * versions of the libraries; what does not fit or cannot be read is passed over and chosen anew.
 */
#ifndef JM_CUDA_PLAN_CACHE_H
#define JM_CUDA_PLAN_CACHE_H

#include "cuda.h"

#define CUDA_PLAN_KEY	160
#define CUDA_PLAN_VALUE 320

struct cuda_plan {
	struct cuda_plan *next;
	char key[CUDA_PLAN_KEY], value[CUDA_PLAN_VALUE];
};

/* The value kept for the key; NULL = none. Neither has blanks or ends of lines. */
const char *cuda_plan_find(struct cuda_dev *dev, const char *key);
/* Here and on disk, as far as that can be written. */
void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value);
void cuda_plans_free(struct cuda_dev *dev);

#endif
