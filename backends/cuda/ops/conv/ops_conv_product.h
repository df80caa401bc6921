/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions that are products of matrices: windows of one pixel, and of the whole image. */
#ifndef JM_CUDA_OPS_CONV_PRODUCT_H
#define JM_CUDA_OPS_CONV_PRODUCT_H

#include "conv_operands.h"
#include "backends/cuda/ops/gemm.h"

/* True for conv, conv-dgrad and conv-wgrad with windows of one pixel and stride 1, or of the whole
 * image; without their bias. */
bool cuda_conv_is_product(const struct jm_node *n);
/* True if the window is the whole image: a product as soon as the filter has channels last. */
bool cuda_conv_is_whole(const struct jm_node *n);
/* True for a strided conv-dgrad that adds to dx, where cuDNN reads and writes all pixels though
 * most do not change: the product goes to compact memory and is then added to those that do. */
bool cuda_conv_scatters(const struct jm_node *n);
/* The bytes of that memory: the pixels of dy with the channels of dx, in f32. */
size_t cuda_conv_compact(const struct jm_node *n);
/* y = x w^T, dx = dy w, dw = dy^T x; compact: the memory for the result where it scatters. */
struct cuda_gemm cuda_conv_product_of(const struct jm_node *n, void *compact);

#endif
