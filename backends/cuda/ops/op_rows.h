/* SPDX-License-Identifier: Apache-2.0 */
/* What each ops_*.c gives: rows of ops, in the order in which they are tried. */
#ifndef JM_OP_ROWS_H
#define JM_OP_ROWS_H

#include "backends/cuda/device/cuda.h"

/* Tables, each of which ends with a row without nodes; ops.c lists them. */
extern const struct cuda_op cuda_ops_attention[], cuda_ops_attention_512[],
	cuda_ops_attention_wide[], cuda_ops_concat[], cuda_ops_conv[], cuda_ops_conv_add[],
	cuda_ops_conv_grown[], cuda_ops_conv_norm[], cuda_ops_conv_product[], cuda_ops_depthwise[],
	cuda_ops_dnn_attention[], cuda_ops_groupnorm[], cuda_ops_head[], cuda_ops_image[],
	cuda_ops_pool[], cuda_ops_linear[], cuda_ops_narrow_linear[], cuda_ops_noise[],
	cuda_ops_norm[], cuda_ops_pointwise[], cuda_ops_quantize[], cuda_ops_pages[],
	cuda_ops_rope[], cuda_ops_spectral[], cuda_ops_tokens[], cuda_ops_update[];

/* JM_ENOSUP: there is no kernel for the node's types or shapes. */
static inline int cuda_no_types(const struct jm_node *n, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP, "Backend cuda has no %s of these types or shapes.",
		jm_op_name(n->op));
}

#endif
