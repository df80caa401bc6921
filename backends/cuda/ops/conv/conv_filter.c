/* SPDX-License-Identifier: Apache-2.0 */
/* Turns gradients of filters of 3 x 3 into the arguments of filter_grad.cu, slim_grad.cu and
 * wide_grad.cu. */
#include "conv_filter.h"

#include "conv_space_to_depth.h"
#include "backends/cuda/kernels/wide_grad.h"

static struct cuda_filter_grad grad_of(
	const struct cuda_dev *dev, const struct jm_node *n, void *scratch)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_filter_grad p = {
		.batch = (int)o.x->dim[0],
		.channels = (int)o.x->dim[1],
		.filters = (int)o.y->dim[1],
		.processors = dev->prop.multiProcessorCount,
		.stride = n->attr.conv.stride[0],
		.x = cuda_vec(o.x),
		.dy = cuda_vec(o.y),
		.dw = o.w->data,
		.accumulate = jm_node_adds(n, 0),
		.partial = scratch,
	};

	for (int i = 0; i < 2; i++) {
		p.in[i] = (int)o.x->dim[2 + i];
		p.out[i] = (int)o.y->dim[2 + i];
		p.pad[i] = n->attr.conv.pad[i];
	}
	cuda_conv_strides(o.w, p.w_stride);
	return p;
}

/* A gradient of filters of 3 x 3 that are neither grouped nor dilated. */
static bool is_grad_of_3x3(const struct jm_node *n, const struct cuda_operands *o)
{
	bool is = n->op == JM_OP_CONV_WGRAD && n->attr.conv.groups == 1;

	for (int i = 0; i < 2; i++)
		is = is && o->w->dim[2 + i] == 3 && n->attr.conv.dilation[i] == 1;
	return is;
}

static bool has_stride_1(const struct jm_node *n)
{
	return n->attr.conv.stride[0] == 1 && n->attr.conv.stride[1] == 1;
}

/* By one pixel on each side. */
static bool is_padded(const struct jm_node *n)
{
	bool is = true;

	for (int i = 0; i < 2; i++)
		is = is && n->attr.conv.pad[i] == 1 && n->attr.conv.more[i] == 0;
	return is;
}

bool cuda_conv_is_filter(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_filter_grad p = grad_of(dev, n, NULL);

	return is_grad_of_3x3(n, &o) && is_padded(n) && cuda_is_hopper(dev) && !o.bias &&
	       o.x->type == JM_F32 && n->math == JM_MATH_TF32 &&
	       n->attr.conv.stride[0] == n->attr.conv.stride[1] && cuda_filter_knows(&p);
}

size_t cuda_conv_filter_scratch(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_filter_grad p = grad_of(dev, n, NULL);

	return cuda_filter_scratch(&p);
}

cudaError_t cuda_conv_filter_run(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	struct cuda_filter_grad p = grad_of(dev, &exec->node[0], exec->scratch);

	return cuda_filter_grad(&p, dev->stream);
}

bool cuda_conv_is_slim(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_filter_grad p = grad_of(dev, n, NULL);

	return is_grad_of_3x3(n, &o) && has_stride_1(n) && !o.bias && o.w->type == JM_F32 &&
	       o.x->type == o.y->type && cuda_slim_knows(&p);
}

size_t cuda_conv_slim_scratch(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_filter_grad p = grad_of(dev, n, NULL);

	return cuda_slim_scratch(&p);
}

cudaError_t cuda_conv_slim_run(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	struct cuda_filter_grad p = grad_of(dev, &exec->node[0], exec->scratch);

	cuda_slim_grad(&p, dev->stream);
	return cudaGetLastError();
}

bool cuda_conv_is_wide(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_filter_grad p = grad_of(dev, n, NULL);

	return is_grad_of_3x3(n, &o) && has_stride_1(n) && is_padded(n) && cuda_is_hopper(dev) &&
	       o.w->type == JM_F32 && o.x->type == o.y->type && cuda_wide_knows(&p);
}

size_t cuda_conv_wide_scratch(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_filter_grad p = grad_of(dev, n, NULL);

	return cuda_wide_scratch(&p);
}

cudaError_t cuda_conv_wide_run(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_filter_grad p = grad_of(dev, n, exec->scratch);
	struct cuda_wide_bias bias = {n->out[1] ? n->out[1]->data : NULL, jm_node_adds(n, 1)};

	return cuda_wide_grad(&p, &bias, dev->stream);
}
