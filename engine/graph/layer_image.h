/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of images, for models; as layer.h. */
#ifndef JM_LAYER_IMAGE_H
#define JM_LAYER_IMAGE_H

#include "graph.h"

/* Windows over images [B, C, Y, X]. Zero means the default: stride, dilation and groups 1, no
 * padding. */
struct jm_window {
	int stride, pad, dilation, groups;
	int more; /* rows of padding below the image and columns to its right, in addition to pad */
	/* in place of pad: what keeps the size of an image with stride 1 and odd windows */
	bool same;
};
struct jm_tensor *jm_graph_filter(struct jm_graph *g, const char *name, enum jm_init init,
	int64_t to, int64_t from, int64_t rows, int64_t columns);
struct jm_tensor *jm_graph_conv(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *w,
	struct jm_tensor *bias, const struct jm_window *how);
/*
 * Normalises by the batch's statistics (in evaluation by the running ones), then adds `add` (may be
 * NULL), then applies ReLU if requested. Makes the parameters NAME.weight and .bias and the state
 * NAME.running_mean and .running_var.
 */
struct jm_tensor *jm_graph_batchnorm(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *add,
	bool relu, double eps, const char *name);
/* Over windows of kernel x kernel pixels; of `how` stride, pad and more. Each window has a pixel of
 * the image. count_pad: a mean is over the padding, too. */
struct jm_tensor *jm_graph_maxpool(
	struct jm_graph *g, struct jm_tensor *x, int kernel, const struct jm_window *how);
struct jm_tensor *jm_graph_avgpool(struct jm_graph *g, struct jm_tensor *x, int kernel,
	const struct jm_window *how, bool count_pad);
/* Each pixel becomes times x times equal ones: nearest neighbours. */
struct jm_tensor *jm_graph_upsample(struct jm_graph *g, struct jm_tensor *x, int times);
/* Normalises each group of channels of an image (Wu and He, arXiv 1803.08494), then applies SiLU if
 * requested. Makes the parameters NAME.weight and .bias. */
struct jm_tensor *jm_graph_groupnorm(struct jm_graph *g, struct jm_tensor *x, int groups, bool silu,
	double eps, const char *name);
struct jm_tensor *jm_graph_gap(struct jm_graph *g, struct jm_tensor *x); /* [B, C] */
/* The pixels of an image as a sequence after a token `first`, plus positions (both may be NULL). */
struct jm_tensor *jm_graph_tokens(struct jm_graph *g, struct jm_tensor *x, struct jm_tensor *first,
	struct jm_tensor *positions);
/* The pixels of an image as rows [B, YX, C] in the compute type, and such rows as an image. */
struct jm_tensor *jm_graph_rows_of_image(struct jm_graph *g, struct jm_tensor *x);
struct jm_tensor *jm_graph_image_of_rows(
	struct jm_graph *g, struct jm_tensor *x, int64_t rows, int64_t columns);
struct jm_tensor *jm_graph_first(struct jm_graph *g, struct jm_tensor *x); /* [B, C] of [B, S, C] */

#endif
