/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on images with channels last: x[B,Y,X,C], or x[rows,C] where positions do not matter.
 * Like those of kernels.h they are started on a stream and sum in the same order every time.
 */
#ifndef JM_CUDA_IMAGE_KERNELS_H
#define JM_CUDA_IMAGE_KERNELS_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- batchnorm.cu ---------------------------------------------------------------------------- */

/* The statistics of x[rows,c], the norm and its gradient. A pointer that is NULL is not used. */
struct cuda_bn {
	int64_t rows, c;
	struct cuda_vec x, y, add; /* all of one type */
	const float *gamma, *beta;
	float *mean, *var, *rstd; /* [c]; read or written, see each function */
	float *running_mean, *running_var;
	double eps, momentum;
	int64_t count;
	bool relu, accumulate;
	bool backwards;	     /* cuda_bn_stats reads x from its last row to its first */
	unsigned char *mask; /* a bit for each element: y > 0; c is a multiple of 8 */
	void *scratch;	     /* cuda_bn_scratch bytes */
};
struct cuda_bn_grad {
	int64_t rows, c;
	struct cuda_vec dy, x, y, dx, dadd; /* with relu, y or beta is given; dadd may be absent */
	const float *gamma, *mean, *rstd;
	const float *beta;     /* given in place of y: y is recomputed from x */
	struct cuda_vec again; /* with beta: y, which is written, and may lie in dy; or absent */
	float *dgamma, *dbeta;
	const unsigned char *mask; /* given in addition to y, which is then not read */
	unsigned accumulate;	   /* bits 0 to 3: add to dx, dgamma, dbeta, dadd */
	void *scratch;		   /* cuda_bn_scratch bytes */
};
size_t cuda_bn_scratch(int64_t c);
/* Writes mean and var; if rstd is given, also does the work of cuda_bn_finalize. */
void cuda_bn_stats(const struct cuda_bn *p, cudaStream_t stream);
/* The same from the sums of x and of its squares, [c] each. */
void cuda_bn_of_sums(
	const struct cuda_bn *p, const float *sum, const float *squares, cudaStream_t stream);
/* The same from n parts of these sums, parts[n,2,c]. */
void cuda_bn_of_parts(const struct cuda_bn *p, const double *parts, int n, cudaStream_t stream);
/* Computes rstd and the running statistics from mean and var. */
void cuda_bn_finalize(const struct cuda_bn *p, cudaStream_t stream);
/* Computes y from x, mean, rstd, gamma, beta and add. */
void cuda_bn_apply(const struct cuda_bn *p, cudaStream_t stream);
void cuda_bn_grad(const struct cuda_bn_grad *p, cudaStream_t stream);
/* The same from e, the gradient before the ReLU, which may lie in dx, and from n parts of its sums
 * in the scratch memory; c is a multiple of 8. */
void cuda_bn_grad_of_parts(
	const struct cuda_bn_grad *p, struct cuda_vec e, int n, cudaStream_t stream);

/* ---- conv_norm.cu ---------------------------------------------------------------------------- */

/* A convolution of single pixels, y[rows,n] = x[rows,k] w; all operands are of one type. */
struct cuda_pixels {
	int64_t rows;
	int n, k;
	bool turned; /* w[k,n] in memory, else w[n,k] */
	struct cuda_vec x, w, y;
	struct cuda_vec add; /* is added to y, for which it may lie in y; absent: nothing */
	int columns;	     /* of a block: 64 or 128 */
	int processors;
	size_t shared_block, shared_all; /* bytes of shared memory of a block and of a processor */
};
bool cuda_pixels_knows(const struct cuda_pixels *p);
size_t cuda_pixels_scratch(const struct cuda_pixels *p);
/* Computes y, and from it what cuda_bn_stats computes; bn->scratch: cuda_pixels_scratch bytes. */
void cuda_pixels_stats(const struct cuda_pixels *p, const struct cuda_bn *bn, cudaStream_t stream);
/* Computes e from y, the gradient of a norm's result, and writes it in place of y; then dx, dgamma
 * and dbeta of the norm. */
void cuda_pixels_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream);

/* ---- batchnorm_pair.cu ----------------------------------------------------------------------- */

/* The same for two norms of images of one shape whose sum goes through a ReLU; c is a multiple of
 * 8. y = norm of p->x + norm of other->x. */
void cuda_bn_apply_pair(const struct cuda_bn *p, const struct cuda_bn *other, cudaStream_t stream);
/* p has y or mask, and no dadd, which is dy of the other. Each has its own scratch. */
void cuda_bn_grad_pair(
	const struct cuda_bn_grad *p, const struct cuda_bn_grad *other, cudaStream_t stream);

/* ---- pool.cu --------------------------------------------------------------------------------- */

struct cuda_pool {
	int batch, c;
	int in[2], out[2]; /* rows and columns of x and of y */
	int kernel[2], stride[2], pad[2];
	bool count_pad, accumulate;
	bool sums;	      /* in place of the mean of a window its sum */
	struct cuda_vec x, y; /* for the gradient of max pooling, y is dy */
	struct cuda_vec dx;
	/* position of the maximum in its window, below 128, and a bit that says whether it is above
	 * 0, [batch,out,c]; NULL = search x again */
	unsigned char *place;
};
void cuda_maxpool(const struct cuda_pool *p, cudaStream_t stream);
void cuda_maxpool_grad(const struct cuda_pool *p, cudaStream_t stream);
/* Windows of 3 x 3 with stride 2 and pad 1, c a multiple of 8. */
bool cuda_maxpool_is_four(const struct cuda_pool *p);
/* batchnorm_pool.cu: cuda_maxpool_grad of q, whose dx is not written, then cuda_bn_grad of p, whose
 * dy it is. q is_four and has places. */
void cuda_bn_grad_pooled(
	const struct cuda_bn_grad *p, const struct cuda_pool *q, cudaStream_t stream);
/* maxpool.cu: the same with windows of 3 x 3 and stride 2 in 16 bits. bn: x is normed before it is
 * pooled, by mean, rstd, gamma and beta, with relu or without; its other members are not used.
 * NULL = x is pooled. */
bool cuda_maxpool_by_rows(const struct cuda_pool *p);
void cuda_maxpool_rows(const struct cuda_pool *p, const struct cuda_bn *bn, cudaStream_t stream);
/* Windows of 2 x 2 that cover the image once, c a multiple of 8. */
bool cuda_maxpool_covers(const struct cuda_pool *p);
void cuda_avgpool(const struct cuda_pool *p, cudaStream_t stream);
void cuda_avgpool_grad(const struct cuda_pool *p, cudaStream_t stream);
/* image[batch,pixels,c] and vector[batch,c]: the mean over pixels, or its gradient; of fewer than
 * 2^32 packs of channels. */
struct cuda_gap {
	int batch, c;
	int64_t pixels;
	bool sums, accumulate; /* sums: in place of the mean the sum */
	struct cuda_vec image, vector;
	struct cuda_vec base; /* of the gradient: an image that it is added to; absent: none */
};
void cuda_gap(const struct cuda_gap *p, cudaStream_t stream);
void cuda_gap_grad(const struct cuda_gap *p, cudaStream_t stream);

/* ---- bias.cu --------------------------------------------------------------------------------- */

/* y[rows,c] += bias[c]; relu: then y = max(0, y), which keeps NaN. */
void cuda_bias_add(struct cuda_vec y, const float *bias, int64_t rows, int64_t c, bool relu,
	cudaStream_t stream);
/* dbias[c] = or += the sum of dx[rows,c]: dy where y > 0, else 0; without y it is dy, and is not
 * written. */
struct cuda_bias_grad {
	int64_t rows, c;
	struct cuda_vec dy, y, dx; /* of one type; dx may be dy */
	float *dbias;
	bool accumulate;
	void *scratch; /* cuda_bn_scratch bytes */
};
void cuda_bias_grad(const struct cuda_bias_grad *p, cudaStream_t stream);
/* For kernels that sum rows themselves: where their parts of the sums go, and the sums of these. */
float *cuda_bias_parts(const struct cuda_bias_grad *p);
void cuda_bias_finish(const struct cuda_bias_grad *p, int parts, cudaStream_t stream);
/* pool.cu: cuda_maxpool_grad, then the gradient of the ReLU whose result was pooled, which is p's
 * dx, and dbias. p covers its image and has places; of bias only dbias, accumulate and scratch
 * count. */
void cuda_maxpool_relu_grad(
	const struct cuda_pool *p, const struct cuda_bias_grad *bias, cudaStream_t stream);

/* ---- space_to_depth.cu: images of few channels --------------------------------------------- */

/*
 * Rearranges x[batch,c,in], in any dense order, so that squares of step[0] x step[1] pixels become
 * channels: y[batch,out,wide], where channel (u step[1] + v) c + k of pixel (i, j) is channel k of
 * pixel (step i + u + shift, step j + v + shift) of x, and 0 outside x. A convolution with that
 * stride becomes one with stride 1 that has enough channels for tensor cores. wide: a multiple of
 * 8.
 */
struct cuda_fold {
	int batch, c, wide;
	int in[2], out[2], step[2], shift[2];
	int64_t stride[4]; /* of x, in elements: image, channel, row, column */
	struct cuda_vec x, y;
	bool accumulate; /* used by unfold only */
};
void cuda_fold(const struct cuda_fold *p, cudaStream_t stream);
/* The inverse for the gradient of a filter: x, in f32, plain or channels last, is set to or
 * increased by the values of y. */
void cuda_unfold(const struct cuda_fold *p, cudaStream_t stream);

/* y[batch,to,c], at rows and columns that are multiples of step, += x[batch,from,c], in f32. c is a
 * multiple of 8. */
struct cuda_scatter {
	int batch, c;
	int from[2], to[2], step[2];
	const float *x;
	struct cuda_vec y;
};
void cuda_scatter_add(const struct cuda_scatter *p, cudaStream_t stream);

/*
 * An image whose pixels are squares of 2 x 2 in the image that a filter w[filters,3,3,channels]
 * with pad 1 is applied to: the result is the image gradient of a convolution of stride 2 and pad 1
 * with the filter wide[channels,4,4,filters], whose elements are sums of those of w that meet the
 * same pixel. Both types have 2 bytes.
 */
struct cuda_grown {
	int filters, channels;
	struct cuda_vec w, wide;
	float *dw;	   /* the gradient, in any layout */
	int64_t stride[4]; /* of dw: filter, channel, row, column */
	bool accumulate;   /* to dw */
};
void cuda_grow_filter(const struct cuda_grown *p, cudaStream_t stream); /* wide from w */
/* dw from the gradient of wide. */
void cuda_grown_grad(const struct cuda_grown *p, cudaStream_t stream);

/* ---- stem.cu, stem_grad.cu, small_stem.cu: first layers -------------------------------------- */

#define CUDA_STEM_CHANNELS 3
#define CUDA_STEM_SIZE	   7
#define CUDA_STEM_STEP	   2
#define CUDA_STEM_SMALL	   3

/*
 * A convolution with stride 2 of x[batch,3,in] and w[filters,3,7,7], which writes
 * y[batch,out,filters], and the gradient dw of the filter from x and dy, on tensor cores: f32 is
 * rounded to tf32. All but dw have one type. x and the filter are plain or have their channels
 * last; filters is a multiple of 8.
 */
struct cuda_stem {
	int batch, filters, processors, step;
	int in[2], out[2], pad[2];
	int64_t stride[4],
		w_stride[4];	  /* of x; of w or dw: image or filter, channel, row, column */
	struct cuda_vec x, dy, w; /* forward, dy is y */
	float *dw;
	bool accumulate; /* used by the gradient only */
	float *partial;	 /* of the gradient: cuda_stem_scratch bytes */
	/* of a small stem alone: */
	const float *bias; /* is added, if there is one; relu: then y = max(0, y) */
	bool relu;
	struct cuda_vec open; /* dy counts where this is above 0, if there is one */
	float *dbias;	      /* the sum of such dy; needed for open */
	bool accumulate_bias;
};
size_t cuda_stem_scratch(const struct cuda_stem *p);
/* Both fail where a block cannot have as much shared memory as the kernel needs. */
cudaError_t cuda_stem(const struct cuda_stem *p, cudaStream_t stream);
cudaError_t cuda_stem_grad(const struct cuda_stem *p, cudaStream_t stream);
/* The same with w[filters,3,3,3] and any stride, in 16 bits; of fewer than 2^32 - 2^20 pixels. */
size_t cuda_small_stem_scratch(const struct cuda_stem *p);
void cuda_small_stem(const struct cuda_stem *p, cudaStream_t stream);
void cuda_small_stem_grad(const struct cuda_stem *p, cudaStream_t stream);

/* ---- filter_grad.cu: filters of 3 x 3 in tf32 ------------------------------------------------ */

/*
 * The gradient dw[filters,channels,3,3] of the filter of a convolution with the same stride in both
 * directions from x[batch,in,channels] and dy[batch,out,filters].
 */
struct cuda_filter_grad {
	int batch, channels, filters, processors, stride;
	int in[2], out[2], pad[2];
	int64_t w_stride[4]; /* of dw: filter, channel, row, column */
	struct cuda_vec x, dy;
	float *dw;
	bool accumulate;
	float *partial; /* cuda_filter_scratch bytes, or cuda_slim_scratch */
};
/* In f32 that is rounded to tf32, with pad 1, for compute capability 9.0. True for stride 1 or 2,
 * channels and filters that are multiples of 64, and rows of dy that are not too long. */
bool cuda_filter_knows(const struct cuda_filter_grad *p);
size_t cuda_filter_scratch(const struct cuda_filter_grad *p);
cudaError_t cuda_filter_grad(const struct cuda_filter_grad *p, cudaStream_t stream);

/* ---- slim_grad.cu -------------------------------------------------------------------------- */

/* In 16 bits, with stride 1 and any pad. True for 32 or 64 channels and as many filters. */
bool cuda_slim_knows(const struct cuda_filter_grad *p);
size_t cuda_slim_scratch(const struct cuda_filter_grad *p);
void cuda_slim_grad(const struct cuda_filter_grad *p, cudaStream_t stream);

/* ---- noise.cu -------------------------------------------------------------------------------- */

/* Writes random numbers that are approximately normal. */
void cuda_random(struct cuda_vec x, int64_t n, uint64_t seed, cudaStream_t stream);
/* Writes random codes that are finite numbers in both types of 8 bits. */
void cuda_random_codes(void *x, int64_t n, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
