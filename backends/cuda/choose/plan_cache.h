/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps choices that were made by timing on disk, so that the same work uses the same algorithms,
 * and gives the same bits, in every process. The file has one line of text per choice. It is
 * "cuda.plans" in the folder JM_PLANS names, else in $XDG_CACHE_HOME/joulemark or
 * ~/.cache/joulemark. A line is valid for one GPU model, driver and set of library versions; lines
 * for others and lines that cannot be parsed are ignored, and the choice is made again.
 */
#ifndef JM_CUDA_PLAN_CACHE_H
#define JM_CUDA_PLAN_CACHE_H

#include "backends/cuda/device/cuda.h"

#define CUDA_PLAN_KEY	160
#define CUDA_PLAN_VALUE 320

struct cuda_plan {
	struct cuda_plan *next;
	char key[CUDA_PLAN_KEY], value[CUDA_PLAN_VALUE];
};

/* The value of the key; NULL = none. Keys and values contain no blanks or line ends. */
const char *cuda_plan_find(struct cuda_dev *dev, const char *key);
/* Keeps the value in memory and, if the file can be written, on disk. */
void cuda_plan_keep(struct cuda_dev *dev, const char *key, const char *value);
void cuda_plans_free(struct cuda_dev *dev);

#endif
