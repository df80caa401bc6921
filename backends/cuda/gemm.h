/* SPDX-License-Identifier: Apache-2.0 */
/* One product by cuBLASLt: d = op(a) op(b) (+ d) (+ bias) (through gelu), all column-major. */
#ifndef JM_CUDA_GEMM_H
#define JM_CUDA_GEMM_H

#include "cuda.h"

struct cuda_matrix {
	void *data;
	enum jm_dtype type;
	int64_t rows, columns, stride; /* as it lies: stride elements from column to column */
	bool transposed;
};

struct cuda_gemm {
	struct cuda_matrix a, b, d;
	int64_t k; /* summed over */
	bool accumulate;
	bool tf32; /* f32 operands are rounded to tf32 */
	/* Of 8 bits, where a is transposed and b is not: what their elements are multiplied by, on the device
	 * (NULL = 1), and whether sums may have fewer bits than f32. */
	const float *a_scale, *b_scale;
	bool fast_sums;
	/* GEMM_GELU: d = gelu of what aux gets; GEMM_GELU_GRAD: d = product gelu'(aux); the tanh form */
	enum { GEMM_PLAIN, GEMM_GELU, GEMM_GELU_GRAD } then;
	void *bias;	/* of a's rows */
	void *sums;	/* f32: of op(b)'s columns, over k; overwritten */
	bool bias_as_d; /* in d's type; else f32 */
	void *aux;	/* as d lies; NULL: what goes into gelu is not wanted */
};

struct cuda_product;

/* Chosen by timing, or found in the cache of plans. JM_ENOSUP: cuBLASLt has no algorithm for it. */
int cuda_product_new(struct cuda_dev *dev, const struct cuda_gemm *gemm, struct cuda_product **ret,
	struct jm_err *err);
int cuda_product_run(struct cuda_dev *dev, const struct cuda_product *p, struct jm_err *err);
/* Seconds that one run took when it was timed; NAN = it was not. */
double cuda_product_seconds(const struct cuda_product *p);
void cuda_product_free(struct cuda_dev *dev, struct cuda_product *p); /* takes NULL */

#endif
