/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: turns nodes into arguments of rope.cu. */
#ifndef JM_OPS_ROPE_H
#define JM_OPS_ROPE_H

#include "backends/cuda/device/cuda.h"

/* 0 if the rope or its gradient can run; then its arguments. */
int cuda_rope_takes(const struct jm_node *n, struct jm_err *err);
int cuda_rope_of(
	struct cuda_dev *dev, const struct jm_node *n, struct cuda_rope *ret, struct jm_err *err);
/* Cosines of the angles of positions 0 to `positions` - 1 and of the `half` pairs of a head, then
 * their sines; the device keeps them. */
int cuda_angles_of(struct cuda_dev *dev, int64_t positions, int64_t half,
	const struct jm_rotary *rotary, const float **ret, struct jm_err *err);
void cuda_angles_free(struct cuda_dev *dev);

#endif
