/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of convolutions by shape, kept by the device; and which of them is fastest. */
#ifndef JM_CUDA_CONV_PLAN_H
#define JM_CUDA_CONV_PLAN_H

#include "cuda.h"
#include "dnn_conv.h"

struct cuda_conv_key {
	enum dnn_pattern pattern;
	bool exact;
	struct dnn_conv_shape shape;
};

#define CUDA_CONV_PLANS 16
struct cuda_conv_plan {
	struct cuda_conv_plan *next;
	struct cuda_conv_key key;
	struct dnn_conv_ids ids;
	struct dnn_plan plan[CUDA_CONV_PLANS];
	int n, best;	  /* best: -1 until it was timed */
	size_t workspace; /* enough for each of them */
	double seconds;	  /* of the best; NAN = not timed */
};

/* The plans for the key, made when it is new; NULL and a reason: there are none. */
struct cuda_conv_plan *cuda_conv_plan(
	struct cuda_dev *dev, const struct cuda_conv_key *key, struct jm_err *err);
/* Times the plans on random data in memory of its own, once; without memory for that, chooses the plan
 * that cuDNN prefers. */
int cuda_conv_tune(struct cuda_dev *dev, struct cuda_conv_plan *plan, struct jm_err *err);
void cuda_conv_drop(struct cuda_dev *dev); /* all of them */

#endif
