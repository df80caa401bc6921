/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a first layer and its filter's gradient into the arguments of stem.cu and stem_grad.cu. */
#include "conv_stem.h"

#include "conv_space_to_depth.h"

/* True for a window that the kernels compute. */
static bool has_window(const struct jm_node *n, const struct cuda_operands *o)
{
	bool fits = n->attr.conv.groups == 1 && o->x->dim[1] == CUDA_STEM_CHANNELS;

	for (int i = 0; i < 2; i++)
		fits = fits && o->w->dim[2 + i] == CUDA_STEM_SIZE &&
		       n->attr.conv.stride[i] == CUDA_STEM_STEP && n->attr.conv.dilation[i] == 1;
	return fits;
}

bool cuda_conv_is_stem(const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool forward = n->op == JM_OP_CONV && !n->accumulate && o.w->type == o.x->type;
	bool gradient = n->op == JM_OP_CONV_WGRAD && o.w->type == JM_F32;

	return (forward || gradient) && !o.bias && has_window(n, &o) && o.w->dim[0] % 8 == 0 &&
	       (o.x->type != JM_F32 || n->math == JM_MATH_TF32);
}

static struct cuda_stem stem_of(const struct cuda_dev *dev, const struct jm_node *n, void *scratch)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_stem p = {
		.batch = (int)o.x->dim[0],
		.filters = (int)o.w->dim[0],
		.processors = dev->prop.multiProcessorCount,
		.x = cuda_vec(o.x),
		.dy = cuda_vec(o.y),
		.w = cuda_vec(o.w),
		.dw = n->op == JM_OP_CONV_WGRAD ? o.w->data : NULL,
		.accumulate = jm_node_adds(n, 0),
		.partial = scratch,
	};

	for (int i = 0; i < 2; i++) {
		p.in[i] = (int)o.x->dim[2 + i];
		p.out[i] = (int)o.y->dim[2 + i];
		p.pad[i] = n->attr.conv.pad[i];
	}
	cuda_conv_strides(o.x, p.stride);
	cuda_conv_strides(o.w, p.w_stride);
	return p;
}

size_t cuda_conv_stem_scratch(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_stem p = stem_of(dev, n, NULL);

	return n->op == JM_OP_CONV_WGRAD ? cuda_stem_scratch(&p) : 0;
}

cudaError_t cuda_conv_stem_run(const struct cuda_dev *dev, const struct jm_node *n, void *scratch)
{
	struct cuda_stem p = stem_of(dev, n, scratch);

	return n->op == JM_OP_CONV ? cuda_stem(&p, dev->stream) : cuda_stem_grad(&p, dev->stream);
}
