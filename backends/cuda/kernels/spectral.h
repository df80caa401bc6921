/* SPDX-License-Identifier: Apache-2.0 */
/* What spectral.cu computes. */
#ifndef JM_CUDA_SPECTRAL_H
#define JM_CUDA_SPECTRAL_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A truncated transform along one axis in f32 (engine/graph/dft_step.h): x[outer,points,width] to
 * y[outer,2 modes,width] of a real axis, x[outer,points,2,width] to y[outer,2,2 modes,width] of a
 * complex one, whose frequencies are 0 to modes - 1 and -modes to -1; back: from y to x.
 */
struct cuda_transform_step {
	int64_t outer, width, points, modes;
	bool is_real, back;
	/*
	 * [from,2,to up to a multiple of CUDA_STEP_ROWS], of the frequencies and points below
	 * (back: from frequencies to points): cosines, then sines. Of a complex axis sines are
	 * those of exp(i t) in dft, of exp(-i t) in idft, of a real axis those of exp(-i t).
	 */
	const float *m;
	struct cuda_vec x, y;
	bool accumulate;
};
#define CUDA_STEP_ROWS 4

/* Of n = 0 to points / 2: of two points that are as far from 0 only one. */
static inline int cuda_step_points(const struct cuda_transform_step *p)
{
	return (int)(p->points / 2 + 1);
}

/* Of f = 0 to modes, or to modes - 1 of a real axis. */
static inline int cuda_step_frequencies(const struct cuda_transform_step *p)
{
	return (int)p->modes + !p->is_real;
}

void cuda_transform_step(const struct cuda_transform_step *p, int processors, cudaStream_t stream);

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
