/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own kernels: each function starts one or a few on a stream and returns; an error is what
 * cudaGetLastError says then. Shapes are in the comment on top of each file. Read as C and as C++.
 * Vectors of 16 bytes are used where widths allow; sums are in f32 or better, always in the same order.
 */
#ifndef JM_CUDA_KERNELS_H
#define JM_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An operand: f32, or bf16. data NULL: absent. */
struct cuda_vec {
	void *data;
	bool bf16;
};

/* ---- pointwise.cu ------------------------------------------------------------------------------------- */

enum cuda_map {
	CUDA_GELU,
	CUDA_GELU_ERF,
	CUDA_SILU,
	CUDA_RELU,
	CUDA_GELU_GRAD,
	CUDA_GELU_ERF_GRAD,
	CUDA_SILU_GRAD,
	CUDA_RELU_GRAD,
	CUDA_ADD,
	CUDA_CAST,
};

/* y = f(a), or f(a, b) for gradients (dy, x) and sums; of n elements. */
struct cuda_pointwise {
	enum cuda_map map;
	int64_t n;
	struct cuda_vec a, b, y;
	bool accumulate;
};
/* Types: a and b alike but for add and cast; y as a but for cast. */
bool cuda_pointwise_knows(const struct cuda_pointwise *p);
void cuda_pointwise(const struct cuda_pointwise *p, cudaStream_t stream);

/* dx: of the gradient; else y. */
struct cuda_swiglu {
	int64_t rows, width;
	struct cuda_vec x, dy, y, dx;
	bool accumulate;
};
void cuda_swiglu(const struct cuda_swiglu *p, cudaStream_t stream);

/* Plain operands. */
struct cuda_dropout {
	int64_t n;
	struct cuda_vec x, y;
	const int32_t *now;
	uint64_t seed, least; /* kept: the 32 bits are >= least */
	float scale;
	bool accumulate;
};
void cuda_dropout(const struct cuda_dropout *p, cudaStream_t stream);

/* Copies elements between dense layouts: dim and strides from the slowest to the fastest of y. */
struct cuda_reorder {
	int rank;
	int64_t dim[6], x_stride[6], y_stride[6];
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_reorder(const struct cuda_reorder *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
