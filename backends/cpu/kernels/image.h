/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images as the kernels iterate over them, for every layout: `lanes` channels of a pixel are
 * adjacent; `pixel`, `chunk` and `image` are the distances in elements to the next pixel, to the
 * next `lanes` channels and to the next image. Plain [B,C,Y,X] has one lane; nChw16c has 16;
 * channels last has 16 lanes and several chunks per pixel.
 */
#ifndef JM_CPU_IMAGE_H
#define JM_CPU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/graph/accumulate.h"

struct cpu_image {
	void *data; /* NULL = absent */
	bool bf16;
	int64_t n, c, rows, cols;
	int64_t lanes, pixel, chunk, image;
};

static inline int64_t cpu_image_chunks(const struct cpu_image *x)
{
	return (x->c + x->lanes - 1) / x->lanes;
}

/* True for channels last with more or fewer channels than a chunk: rows of a matrix. */
static inline bool cpu_image_last(const struct cpu_image *x)
{
	return x->pixel != x->lanes;
}

/* The number of channels in chunk k. */
static inline int cpu_image_channels(const struct cpu_image *x, int64_t k)
{
	int64_t rest = x->c - k * x->lanes;

	return (int)(rest < x->lanes ? rest : x->lanes);
}

/* The number of lanes of chunk k to read and write, including the padding of a blocked layout,
 * which is 0. */
static inline int cpu_image_width(const struct cpu_image *x, int64_t k)
{
	return cpu_image_last(x) ? cpu_image_channels(x, k) : (int)x->lanes;
}

/* Batch norm of a channel over images and pixels (arXiv 1502.03167). Absent vectors are NULL. */
struct cpu_bn {
	struct cpu_image x, add, y;
	bool stats; /* compute mean, var and, unless NULL, rstd; else mean and rstd are given */
	bool apply; /* write y */
	bool relu;
	float *mean, *var, *rstd, *running_mean, *running_var;
	const float *gamma, *beta;
	double eps, momentum;
	int64_t count;	     /* n of the running variance */
	unsigned accumulate; /* of y */
	void *scratch;
};

struct cpu_bn_grad {
	struct cpu_image dy, x, y, dx, dadd; /* y: absent without ReLU */
	const float *gamma, *mean, *rstd;
	/* given with ReLU and without y, which is then recomputed from x; else NULL */
	const float *beta;
	float *dgamma, *dbeta;
	unsigned accumulate;
	void *scratch;
};

/* For channels last: two f64 sums per channel and thread, and five coefficients per channel. */
static inline size_t cpu_bn_scratch(int64_t channels, int threads)
{
	size_t wide = (size_t)(channels + 15) / 16 * 16;

	return wide * (2 * (size_t)threads * sizeof(double) + 5 * sizeof(float));
}

/* Pooling of x to y. For gradients y is dy and x is dx. */
struct cpu_pool {
	struct cpu_image x, y, dx;
	int kernel[2], stride[2], pad[2];
	bool count_pad, accumulate;
	bool sums; /* in place of the mean of a window its sum */
	/* maxpool-grad, avgpool-grad: 16 lanes of x's rows and columns per thread */
	float *scratch;
};

/* Group norm; images plain or with their channels last. In the gradient y is dy, and dx, dgamma and
 * dbeta are written. */
struct cpu_groups {
	struct cpu_image x, y, dx;
	int groups;
	bool silu;
	double eps;
	const float *gamma, *beta;
	float *mean, *rstd; /* [n, groups] */
	float *dgamma, *dbeta;
	unsigned accumulate; /* bits of the results: y; or dx, dgamma, dbeta */
	double *scratch;     /* of the gradient: two sums for each channel of each image */
};

struct cpu_groupnorms {
	void (*norm)(const struct cpu_groups *p, int threads);
	void (*grad)(const struct cpu_groups *p, int threads);
};

struct cpu_images {
	void (*bn)(const struct cpu_bn *p, int threads);
	void (*bn_grad)(const struct cpu_bn_grad *p, int threads);
};

struct cpu_pools {
	void (*max)(const struct cpu_pool *p, int threads);
	void (*max_grad)(const struct cpu_pool *p, int threads);
	void (*mean)(const struct cpu_pool *p, int threads);
	void (*mean_grad)(const struct cpu_pool *p, int threads);
	/* y[n,c] plain, f32 or bf16 */
	void (*global)(const struct cpu_image *x, void *y, bool add, int threads);
	void (*global_grad)(const struct cpu_image *dx, const void *dy, bool add, int threads);
};

#endif
