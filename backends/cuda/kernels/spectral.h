/* SPDX-License-Identifier: Apache-2.0 */
/* What spectral.cu computes. */
#ifndef JM_CUDA_SPECTRAL_H
#define JM_CUDA_SPECTRAL_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_FIXED_ROWS 8 /* columns of the transposed matrix are a multiple of it */

/* y[outer,rows,width] = m[rows,n] x[outer,n,width] in f32. */
struct cuda_fixed_product {
	int64_t outer, rows, n, width;
	const float *m; /* transposed: [n, rows up to a multiple of CUDA_FIXED_ROWS] */
	struct cuda_vec x, y;
	bool accumulate;
};
void cuda_fixed_product(const struct cuda_fixed_product *p, int processors, cudaStream_t stream);

/* A complex matrix for each frequency; strides in elements, one of row and column is 1. */
struct cuda_complex {
	struct cuda_vec data;
	int64_t each, row, column; /* each: from one frequency to the next */
	int64_t imaginary;	   /* from a real part to its imaginary one */
	bool conjugate;
};

/* y[rows,columns] = a[rows,n] b[n,columns] of each frequency; a and b have one type, y has that or
 * f32. */
struct cuda_complex_product {
	int64_t frequencies, rows, n, columns;
	struct cuda_complex a, b, y;
	bool accumulate;
};
void cuda_complex_product(const struct cuda_complex_product *p, cudaStream_t stream);

/* The mean of |y - target| / |target| over the norms of [outer,points,channels] along the points,
 * and its gradient. */
struct cuda_relative {
	int64_t outer, points, channels;
	struct cuda_vec y, target,
		dy;	      /* dy has y's type, absent: loss only; target has y's type or f32 */
	double weight, scale; /* of the loss, of dy; both are divided by the number of norms */
	const float *loss_scale; /* another factor of the gradient, read during the run; NULL = 1 */
	float *loss;
	bool add_loss, add_dy;
	double *partial; /* [outer,cuda_relative_parts,channels,2]: scratch */
	double *factor; /* [outer,channels]: scratch; f32 would make all points wrong by the same share */
};
int cuda_relative_parts(int64_t points);
void cuda_relative(const struct cuda_relative *p, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
