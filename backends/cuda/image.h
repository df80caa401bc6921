/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on images with channels last: x[B,Y,X,C], or as rows x[rows,C] where pixels do not matter. As
 * those of kernels.h: they start on a stream, sums run in the same order every time.
 */
#ifndef JM_CUDA_IMAGE_H
#define JM_CUDA_IMAGE_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- batchnorm.cu ------------------------------------------------------------------------------------- */

/* Statistics of x[rows,c], what follows from them, and the gradient; what is NULL is not wanted. */
struct cuda_bn {
	int64_t rows, c;
	struct cuda_vec x, y, add; /* all images of one type */
	const float *gamma, *beta;
	float *mean, *var, *rstd; /* [c]; read or written, as the function says */
	float *running_mean, *running_var;
	double eps, momentum;
	int64_t count;
	bool relu, accumulate;
	unsigned char *mask; /* where y > 0, a bit for each element; c is a multiple of 8 */
	void *scratch;	     /* cuda_bn_scratch bytes */
};
struct cuda_bn_grad {
	int64_t rows, c;
	struct cuda_vec dy, x, y, dx, dadd; /* with relu y or beta is there; dadd may be absent */
	const float *gamma, *mean, *rstd;
	const float *beta; /* given in place of y: y follows from x by this norm alone */
	float *dgamma, *dbeta;
	const unsigned char *mask; /* given with y, which need not be read then */
	unsigned accumulate;	   /* bits 0 to 3: dx, dgamma, dbeta, dadd */
	void *scratch;		   /* cuda_bn_scratch bytes */
};
size_t cuda_bn_scratch(int64_t c);
/* Writes mean and var; with rstd also what cuda_bn_finalize does. */
void cuda_bn_stats(const struct cuda_bn *p, cudaStream_t stream);
/* The same from the sums over x and its squares, [c] each. */
void cuda_bn_of_sums(
	const struct cuda_bn *p, const float *sum, const float *squares, cudaStream_t stream);
/* From mean and var: rstd, and the running statistics. */
void cuda_bn_finalize(const struct cuda_bn *p, cudaStream_t stream);
/* y from x, mean, rstd, gamma, beta and add. */
void cuda_bn_apply(const struct cuda_bn *p, cudaStream_t stream);
void cuda_bn_grad(const struct cuda_bn_grad *p, cudaStream_t stream);

/* ---- pool.cu ------------------------------------------------------------------------------------------- */

struct cuda_pool {
	int batch, c;
	int in[2], out[2]; /* rows and columns of x and of y */
	int kernel[2], stride[2], pad[2];
	bool count_pad, accumulate;
	struct cuda_vec x, y; /* of the largest's gradient: x read, y = dy */
	struct cuda_vec dx;
	unsigned char *place; /* of the largest in its window, [batch,out,c]; NULL = look again */
};
void cuda_maxpool(const struct cuda_pool *p, cudaStream_t stream);
void cuda_maxpool_grad(const struct cuda_pool *p, cudaStream_t stream);
void cuda_avgpool(const struct cuda_pool *p, cudaStream_t stream);
void cuda_avgpool_grad(const struct cuda_pool *p, cudaStream_t stream);
/* image[batch,pixels,c], vector[batch,c]: the mean over pixels, or its gradient. */
struct cuda_gap {
	int batch, c;
	int64_t pixels;
	bool accumulate;
	struct cuda_vec image, vector;
};
void cuda_gap(const struct cuda_gap *p, cudaStream_t stream);
void cuda_gap_grad(const struct cuda_gap *p, cudaStream_t stream);

/* ---- bias.cu ---------------------------------------------------------------------------------------- */

/* y[rows,c] += bias[c]. */
void cuda_bias_add(
	struct cuda_vec y, const float *bias, int64_t rows, int64_t c, cudaStream_t stream);
/* dbias[c] = or += the sum of dy[rows,c]; scratch: cuda_bn_scratch bytes. */
void cuda_bias_grad(struct cuda_vec dy, float *dbias, int64_t rows, int64_t c, bool accumulate,
	void *scratch, cudaStream_t stream);

/* ---- fold.cu: images of few channels ---------------------------------------------------------------- */

/*
 * x[batch,c,in] in any dense order, its squares of step[0] x step[1] pixels laid into channels: y[batch,out,
 * wide], where channel (u step[1] + v) c + k of pixel (i, j) is channel k of pixel (step i + u + shift, step j
 * + v + shift) of x, and zero where there is none. A convolution with that stride becomes one with stride 1
 * whose channels are enough for tensor cores. wide: a multiple of 8.
 */
struct cuda_fold {
	int batch, c, wide;
	int in[2], out[2], step[2], shift[2];
	int64_t stride[4]; /* of x, in elements: image, channel, row, column */
	struct cuda_vec x, y;
	bool accumulate; /* of unfold */
};
void cuda_fold(const struct cuda_fold *p, cudaStream_t stream);
/* The way back, of a filter's gradient: x f32, plain or channels last, = or += what y says. */
void cuda_unfold(const struct cuda_fold *p, cudaStream_t stream);

/* ---- random.cu -------------------------------------------------------------------------------------- */

/* Random normal numbers, or nearly. */
void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream);
/* Likewise codes of either type of 8 bits, without infinities and NaN. */
void cuda_random_codes(void *x, int64_t n, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
