/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's plans for attention and its gradient, which the device keeps by shape. */
#ifndef JM_CUDA_ATTENTION_PLANS_H
#define JM_CUDA_ATTENTION_PLANS_H

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/dnn/dnn_attention.h"
#include "backends/cuda/dnn/dnn_plan.h"

#define CUDA_ATTENTION_PLANS 4 /* of a shape, at most */

/* The plans for a shape, which is their key. n = 0: cuDNN has none; err holds the reason. */
struct cuda_attention_plan {
	struct cuda_attention_plan *next;
	struct dnn_attention_shape shape;
	bool backward;
	struct dnn_attention_ids ids;
	struct dnn_plan plan[CUDA_ATTENTION_PLANS];
	int n, best;	  /* best: -1 until the plans are timed */
	int way;	  /* of attention or its gradient, in `ways`; -1 = not chosen yet */
	size_t workspace; /* bytes that suffice for each plan */
	struct jm_err err;
};

struct dnn_attention_shape cuda_attention_shape(
	const struct cuda_dev *dev, const struct jm_node *n);
/* NULL = out of memory. A shape that cuDNN does not support is kept, too, so that it is tried
 * once, and one without cuDNN as well. */
struct cuda_attention_plan *cuda_attention_plan_of(struct cuda_dev *dev, const struct jm_node *n);
/* The key of the plan cache, of CUDA_PLAN_KEY bytes. */
void cuda_attention_key(
	const struct cuda_dev *dev, const struct cuda_attention_plan *p, char *ret, size_t size);
void cuda_attention_plans_free(struct cuda_dev *dev);

#endif
