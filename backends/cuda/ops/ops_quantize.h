/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in 8 bits: quantizing, the update of scales, and copies into the layout that products
 * read. */
#ifndef JM_OPS_QUANTIZE_H
#define JM_OPS_QUANTIZE_H

#include "backends/cuda/device/cuda.h"

bool cuda_is_f8(const struct jm_tensor *t); /* false for NULL */
/* The layout whose slowest dim is the last one, which transposes the matrix; products in 8 bits
 * read it. */
void cuda_turned_layout(const struct jm_tensor *t, struct jm_layout *ret);

/* True if each row of both factors of a linear has a scale of its own. */
bool cuda_scales_rows(const struct jm_node *n);

#endif
