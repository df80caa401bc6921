/* SPDX-License-Identifier: Apache-2.0 */
/* linear and its gradients, each of which is one product by cuBLASLt. */
#ifndef JM_OPS_LINEAR_H
#define JM_OPS_LINEAR_H

#include "backends/cuda/device/cuda.h"

/* Starts a copy of the vector to memory in that type. */
void cuda_cast_bias(
	const struct cuda_dev *dev, const struct jm_tensor *bias, void *to, enum jm_dtype type);

/*
 * ops_linear.c: a linear-wgrad at the end of a group whose other nodes compute the gradient of the
 * bias. takes: 0 if dy, which the node reads, is in memory and neither operand needs padded rows.
 */
int cuda_wgrad_takes(struct cuda_dev *dev, const struct jm_node *n, const struct jm_tensor *dy,
	struct jm_err *err);
/* Sets exec->own to the product of the linear-wgrad that is the last node. */
int cuda_wgrad_build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err);
int cuda_wgrad_run(struct cuda_dev *dev, const struct cuda_exec *product, struct jm_err *err);
void cuda_wgrad_drop(struct cuda_dev *dev, struct cuda_exec *exec);

#endif
