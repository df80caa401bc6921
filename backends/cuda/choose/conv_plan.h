/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of convolutions, which the device keeps by shape, and the choice of the fastest. */
#ifndef JM_CUDA_CONV_PLAN_H
#define JM_CUDA_CONV_PLAN_H

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/dnn/dnn_conv.h"
#include "plan_cache.h"

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
	int n, best;	  /* best: -1 until the plans are timed */
	size_t workspace; /* bytes that suffice for each plan */
	double seconds;	  /* of one run of the best plan; NAN = not timed */
};

/* The plans for the key, which are made at the first call. NULL = there are none; err holds the
 * reason. */
struct cuda_conv_plan *cuda_conv_plan(
	struct cuda_dev *dev, const struct cuda_conv_key *key, struct jm_err *err);
/* The ids of the plan's operands: image, filter, result, then its bias and the image that is added,
 * or sums and squares. Returns their number. */
#define CUDA_CONV_OPERANDS 5
int cuda_conv_ids(const struct cuda_conv_plan *plan, int64_t ret[CUDA_CONV_OPERANDS]);
/* Times the plans once, on random data in separate memory; if that memory is not available, chooses
 * the plan that cuDNN prefers. */
int cuda_conv_tune(struct cuda_dev *dev, struct cuda_conv_plan *plan, struct jm_err *err);
/* The key in the plan cache: kind, version of cuDNN, shapes, window and type of the convolution. */
void cuda_conv_key_text(const struct cuda_dev *dev, const char *kind,
	const struct cuda_conv_key *key, char ret[CUDA_PLAN_KEY]);
/* The key of a choice among ways to run the node, which also differ in what they do for a bias. */
void cuda_conv_way_text(const struct cuda_dev *dev, const struct jm_node *n,
	const struct cuda_conv_key *key, char ret[CUDA_PLAN_KEY]);
/* True where the convolution takes less time than the other one and `more` seconds: from the plan
 * cache, whose lines begin with `kind`, or by timing both. Where that fails or plans are estimates,
 * true as well, and nothing is kept. */
bool cuda_conv_is_faster(struct cuda_dev *dev, const char *kind, const struct cuda_conv_key *key,
	const struct cuda_conv_key *other, double more);
void cuda_conv_drop(struct cuda_dev *dev); /* drops all plans of the device */

#endif
