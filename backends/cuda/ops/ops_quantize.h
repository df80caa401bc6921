/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in 8 bits: quantizing, the update of scales, and copies into the layout that products read. */
#ifndef JM_OPS_QUANTIZE_H
#define JM_OPS_QUANTIZE_H

#include "backends/cuda/device/cuda.h"

bool cuda_is_f8(const struct jm_tensor *t); /* false for NULL */
/* The layout whose slowest dim is the last one, which transposes the matrix; products in 8 bits
 * read it. */
void cuda_turned_layout(const struct jm_tensor *t, struct jm_layout *ret);

#endif
