/* SPDX-License-Identifier: Apache-2.0 */
/* Turns convolutions of 3 x 3 into the arguments of halo_conv.cu. */
#include "conv_halo.h"

#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/kernels/halo/halo_conv.h"

#define FEWEST 64 /* channels: a slice of the kernel */

/* The gradient of an image is a convolution of dy with the filter turned by half a circle. */
static struct cuda_halo_conv halo_of(const struct cuda_dev *dev, const struct jm_node *n)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0], *bias = n->in[2];
	const bool turned = n->op == JM_OP_CONV_DGRAD;

	return (struct cuda_halo_conv){
		.batch = (int)x->dim[0],
		.in = {(int)x->dim[2], (int)x->dim[3]},
		.channels = (int)x->dim[1],
		.filters = (int)y->dim[1],
		.processors = dev->prop.multiProcessorCount,
		.turned = turned,
		.x = cuda_vec(x),
		.w = cuda_vec(n->in[1]),
		.y = cuda_vec(y),
		.add = jm_node_adds(n, 0) ? cuda_vec(y) : (struct cuda_vec){0},
		.bias = !turned && bias ? bias->data : NULL,
	};
}

bool cuda_conv_is_halo(const struct cuda_dev *dev, const struct jm_node *n)
{
	const struct jm_tensor *x = n->in[0], *w = n->in[1], *y = n->out[0];
	struct cuda_halo_conv p;
	bool is = (n->op == JM_OP_CONV || n->op == JM_OP_CONV_DGRAD) && n->attr.conv.groups == 1;

	for (int i = 0; i < 2; i++)
		is = is && w->dim[2 + i] == 3 && n->attr.conv.stride[i] == 1 &&
		     n->attr.conv.pad[i] == 1 && n->attr.conv.more[i] == 0 &&
		     n->attr.conv.dilation[i] == 1;
	if (!is || !cuda_is_hopper(dev) || x->type != w->type || x->type != y->type ||
		x->dim[1] < FEWEST || y->dim[1] < FEWEST)
		return false;
	p = halo_of(dev, n);
	return cuda_halo_knows(&p);
}

cudaError_t cuda_conv_halo_run(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0], *next = &exec->node[1];
	struct cuda_halo_conv p = halo_of(dev, n);

	if (exec->n_nodes > 1) {
		p.y = cuda_vec(next->out[0]);
		p.relu = next->op == JM_OP_RELU;
		if (!p.relu)
			p.add = cuda_vec(next->in[next->in[0] == n->out[0]]);
	}
	return cuda_halo_conv(&p, dev->stream);
}
