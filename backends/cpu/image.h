/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images as the kernels iterate over them, for every layout: `lanes` channels of a pixel are
 * adjacent, `pixel` elements on is the next pixel, `chunk` elements on are the next channels,
 * `image` elements on is the next image. Plain [B,C,Y,X] has one lane; nChw16c has 16; channels
 * last has 16 of its many.
 */
#ifndef JM_CPU_IMAGE_H
#define JM_CPU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Channels last, and more or fewer of them than one chunk holds: rows of a matrix. */
static inline bool cpu_image_last(const struct cpu_image *x)
{
	return x->pixel != x->lanes;
}

/* Channels of chunk k. */
static inline int cpu_image_channels(const struct cpu_image *x, int64_t k)
{
	int64_t rest = x->c - k * x->lanes;

	return (int)(rest < x->lanes ? rest : x->lanes);
}

/* Lanes to be read and written of chunk k: the padding of a blocked layout too, which is and stays 0. */
static inline int cpu_image_width(const struct cpu_image *x, int64_t k)
{
	return cpu_image_last(x) ? cpu_image_channels(x, k) : (int)x->lanes;
}

/* Batch norm of a channel over images and pixels (arXiv 1502.03167). Absent vectors are NULL. */
struct cpu_bn {
	struct cpu_image x, add, y;
	bool stats; /* work out mean, var and, unless NULL, rstd; else mean and rstd are given */
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
	const float *beta; /* with ReLU and without y, which then follows from x; else NULL */
	float *dgamma, *dbeta;
	unsigned accumulate;
	void *scratch;
};

/* For channels last: two sums of f64 per channel and thread, five coefficients. */
static inline size_t cpu_bn_scratch(int64_t channels, int threads)
{
	size_t wide = (size_t)(channels + 15) / 16 * 16;

	return wide * (2 * (size_t)threads * sizeof(double) + 5 * sizeof(float));
}

/* A window passes over `x` and leaves `y`. Gradients: from dy (y) to dx (x). */
struct cpu_pool {
	struct cpu_image x, y, dx;
	int kernel[2], stride[2], pad[2];
	bool count_pad, accumulate;
	float *scratch; /* maxpool-grad, avgpool-grad: 16 lanes of x's rows and columns per thread */
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
