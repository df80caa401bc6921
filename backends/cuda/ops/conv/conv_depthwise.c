/* SPDX-License-Identifier: Apache-2.0 */
/* Turns convolutions with a filter for each channel into the arguments of depthwise.cu and
 * depthwise_grad.cu. */
#include "conv_depthwise.h"

bool cuda_conv_is_depthwise(const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool fits = !o.bias && n->attr.conv.groups == o.x->dim[1] && o.w->dim[0] == o.x->dim[1] &&
		    o.x->dim[1] % 8 == 0;

	for (int i = 0; i < 2; i++)
		fits = fits && o.w->dim[2 + i] == 3 && n->attr.conv.pad[i] == 1 &&
		       n->attr.conv.more[i] == 0 && n->attr.conv.stride[i] == 1 &&
		       n->attr.conv.dilation[i] == 1;
	return fits;
}

struct cuda_depthwise cuda_depthwise_of(
	const struct cuda_dev *dev, const struct jm_node *n, void *scratch)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool turned = n->op == JM_OP_CONV_DGRAD;

	return (struct cuda_depthwise){
		.batch = (int)o.x->dim[0],
		.channels = (int)o.x->dim[1],
		.processors = dev->prop.multiProcessorCount,
		.in = {(int)o.x->dim[2], (int)o.x->dim[3]},
		.turned = turned,
		.accumulate = jm_node_adds(n, 0),
		.x = cuda_vec(turned ? o.y : o.x),
		.w = cuda_vec(o.w),
		.y = cuda_vec(turned ? o.x : o.y),
		.dw = n->op == JM_OP_CONV_WGRAD ? o.w->data : NULL,
		.partial = scratch,
	};
}

size_t cuda_conv_depthwise_scratch(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_depthwise p = cuda_depthwise_of(dev, n, NULL);

	return n->op == JM_OP_CONV_WGRAD ? cuda_depthwise_scratch(&p) : 0;
}

cudaError_t cuda_conv_depthwise_run(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_depthwise p = cuda_depthwise_of(dev, n, exec->scratch);

	n->op == JM_OP_CONV_WGRAD ? cuda_depthwise_grad(&p, dev->stream)
				  : cuda_depthwise(&p, dev->stream);
	return cudaGetLastError();
}
