/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of all ops, in the order in which they are tried. */
#ifndef JM_OPS_H
#define JM_OPS_H

#include "backends/cuda/device/cuda.h"

/* Tables of rows, each of which ends with a row without nodes; ops.c lists them. */
extern const struct cuda_op cuda_ops_attention[], cuda_ops_conv[], cuda_ops_conv_norm[],
	cuda_ops_conv_product[], cuda_ops_dnn_attention[], cuda_ops_head[], cuda_ops_image[],
	cuda_ops_linear[], cuda_ops_norm[], cuda_ops_pointwise[], cuda_ops_quantize[],
	cuda_ops_pages[], cuda_ops_rope[], cuda_ops_tokens[], cuda_ops_update[];

/* The row for the group, and its number; NULL = none supports the group, err holds the reason. */
const struct cuda_op *cuda_op_find(
	struct cuda_dev *dev, const struct jm_group *group, uint32_t *ret_row, struct jm_err *err);
/* JM_ENOSUP: there is no kernel for the node's types or shapes. */
static inline int cuda_no_types(const struct jm_node *n, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP, "Backend cuda has no %s of these types or shapes.",
		jm_op_name(n->op));
}
/* The row with the number that cuda_op_find returned. */
const struct cuda_op *cuda_op_row(uint32_t row);

#endif
