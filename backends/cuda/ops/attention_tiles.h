/* SPDX-License-Identifier: Apache-2.0 */
/* The own kernels for attention and its gradient on compute capability 9.0 (attention_forward.cu,
 * attention_tiles.cu). */
#ifndef JM_CUDA_ATTENTION_TILES_H
#define JM_CUDA_ATTENTION_TILES_H

#include "backends/cuda/dnn/dnn_attention.h"
#include "backends/cuda/kernels/attention_forward.h"

struct cuda_dev;

/* Queries, keys and values, then their gradients, then dy. */
struct cuda_tiles_data {
	void *part[3], *grad[3], *dy;
};

/* True if they take the shape on the device. */
bool cuda_tiles_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s);
/* Bytes of scratch. */
size_t cuda_tiles_scratch(const struct dnn_attention_shape *s);
/* The same for the kernel that computes scores once; its scratch includes that of the others. */
bool cuda_once_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s);
size_t cuda_once_scratch(const struct cuda_dev *dev, const struct dnn_attention_shape *s);
/* Its share of the scratch, which begins with ret->rows. */
void cuda_once_describe(const struct cuda_dev *dev, const struct dnn_attention_shape *s,
	struct cuda_attention_tiles *ret);
/* Describes the operands, also to the copies of the kernels. */
int cuda_tiles_describe(const struct dnn_attention_shape *s, const struct cuda_tiles_data *data,
	struct cuda_attention_tiles *ret, struct jm_err *err);

/* The same of attention itself, without scratch; part: queries, keys and values. */
bool cuda_forward_take(const struct cuda_dev *dev, const struct dnn_attention_shape *s);
int cuda_forward_describe(const struct cuda_dev *dev, const struct dnn_attention_shape *s,
	void *const part[3], struct cuda_attention_forward *ret, struct jm_err *err);

#endif
