/* SPDX-License-Identifier: Apache-2.0 */
/* One product by cuBLASLt: d = op(a) op(b) (+ d) (+ bias), optionally followed by gelu; all
 * matrices are column-major. */
#ifndef JM_CUDA_GEMM_H
#define JM_CUDA_GEMM_H

#include "backends/cuda/device/cuda.h"

struct cuda_matrix {
	void *data;
	enum jm_dtype type;
	int64_t rows, columns,
		stride; /* in memory, before op; stride: elements from column to column */
	bool transposed;
	int64_t each; /* elements from one matrix of a batch to the next */
};

struct cuda_gemm {
	struct cuda_matrix a, b, d;
	int64_t k;	 /* length of the dim that is summed over */
	int32_t batches; /* products of one shape at a time; 0 = one */
	bool accumulate;
	bool tf32; /* f32 operands are rounded to tf32 */
	/* For 8 bits, where a is transposed and b is not: the factors of their elements, on the
	 * device (NULL = 1), and whether sums may have fewer bits than f32. */
	const float *a_scale, *b_scale;
	bool scales_rows; /* each column of a and b in memory, a row of d's factors, has a scale of its own */
	bool fast_sums;
	/* GEMM_GELU: aux = product, d = gelu(aux); GEMM_GELU_GRAD: d = product gelu'(aux); tanh
	 * form */
	enum { GEMM_PLAIN, GEMM_GELU, GEMM_GELU_GRAD } then;
	void *bias;	/* one element per row of d */
	void *sums;	/* f32: the sums of op(b)'s columns over k; overwritten */
	bool bias_as_d; /* the bias has d's type; else f32 */
	void *aux;	/* laid out like d; NULL: the input of gelu is not stored */
};

struct cuda_product;

/* Chooses the algorithm by timing or from the plan cache. JM_ENOSUP: cuBLASLt has no algorithm for
 * the product. */
int cuda_product_new(struct cuda_dev *dev, const struct cuda_gemm *gemm, struct cuda_product **ret,
	struct jm_err *err);
int cuda_product_run(struct cuda_dev *dev, const struct cuda_product *p, struct jm_err *err);
/* Seconds of one run when the algorithm was timed; NAN = it was not timed. */
double cuda_product_seconds(const struct cuda_product *p);
void cuda_product_free(struct cuda_dev *dev, struct cuda_product *p); /* takes NULL */

#endif
