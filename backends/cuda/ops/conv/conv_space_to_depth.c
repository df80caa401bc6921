/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of folded images, filters and convolutions. */
#include "conv_space_to_depth.h"
#include "backends/cuda/device/layouts.h"

bool cuda_conv_folds(const struct jm_node *n)
{
	return n->op != JM_OP_CONV_DGRAD && n->attr.conv.groups == 1 &&
	       n->attr.conv.dilation[0] == 1 && n->attr.conv.dilation[1] == 1 &&
	       cuda_operands_of(n).x->dim[1] < CUDA_FEW_CHANNELS;
}

/*
 * How one axis is folded: a window of `size` with stride and pad moves over n positions. Folded
 * position 0 begins at position -ceil(pad / stride) stride; row r of the filter is in folded row (r
 * + lead) / stride.
 */
struct axis {
	int start, lead, taps;
};

static struct axis axis_of(int64_t size, int stride, int pad)
{
	int whole = (pad + stride - 1) / stride * stride;

	return (struct axis){.start = -whole,
		.lead = whole - pad,
		.taps = (int)((size + whole - pad + stride - 1) / stride)};
}

static int wide_of(const struct jm_node *n)
{
	int channels = (int)cuda_operands_of(n).x->dim[1] * n->attr.conv.stride[0] *
		       n->attr.conv.stride[1];

	return (channels + 7) / 8 * 8;
}

void cuda_conv_strides(const struct jm_tensor *t, int64_t ret[4])
{
	const int64_t *dim = t->dim;

	if (jm_layout_equal(&t->layout, &cuda_layout_last)) {
		ret[0] = dim[1] * dim[2] * dim[3];
		ret[1] = 1;
		ret[2] = dim[1] * dim[3];
		ret[3] = dim[1];
	} else {
		ret[0] = dim[1] * dim[2] * dim[3];
		ret[1] = dim[2] * dim[3];
		ret[2] = dim[3];
		ret[3] = 1;
	}
}

struct cuda_fold cuda_conv_fold(const struct jm_node *n, const struct jm_tensor *t)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_fold p = {
		.batch = (int)t->dim[0],
		.c = (int)t->dim[1],
		.wide = wide_of(n),
		.x = cuda_vec(t),
	};

	for (int i = 0; i < 2; i++) {
		struct axis a =
			axis_of(o.w->dim[2 + i], n->attr.conv.stride[i], n->attr.conv.pad[i]);

		p.in[i] = (int)t->dim[2 + i];
		p.step[i] = n->attr.conv.stride[i];
		p.out[i] = t == o.x ? (int)o.y->dim[2 + i] + a.taps - 1 : a.taps;
		p.shift[i] = t == o.x ? a.start : -a.lead;
	}
	cuda_conv_strides(t, p.stride);
	return p;
}

void cuda_conv_fold_shape(const struct jm_node *n, struct dnn_conv_shape *shape)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_fold x = cuda_conv_fold(n, o.x);
	struct cuda_fold w = cuda_conv_fold(n, o.w);

	shape->x[1] = shape->w[1] = x.wide;
	for (int i = 0; i < 2; i++) {
		shape->x[2 + i] = x.out[i];
		shape->w[2 + i] = w.out[i];
		shape->window.stride[i] = 1;
		shape->window.pad[i] = shape->window.more[i] = 0;
	}
}
