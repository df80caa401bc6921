/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a first layer and its filter's gradient into the arguments of stem.cu, stem_grad.cu and
 * small_stem.cu. */
#include "conv_stem.h"

#include "conv_space_to_depth.h"

/* True for a square window of this size over three channels. */
static bool has_window(const struct jm_node *n, const struct cuda_operands *o, int size)
{
	bool fits = n->attr.conv.groups == 1 && o->x->dim[1] == CUDA_STEM_CHANNELS &&
		    n->attr.conv.stride[0] == n->attr.conv.stride[1];

	for (int i = 0; i < 2; i++)
		fits = fits && o->w->dim[2 + i] == size && n->attr.conv.dilation[i] == 1;
	return fits;
}

static bool is_small(const struct jm_node *n, const struct cuda_operands *o)
{
	return has_window(n, o, CUDA_STEM_SMALL) &&
	       (o->x->type == JM_BF16 || o->x->type == JM_F16) &&
	       o->x->dim[1] * o->x->dim[2] * o->x->dim[3] < INT32_MAX &&
	       o->y->dim[0] * o->y->dim[2] * o->y->dim[3] < INT32_MAX;
}

static bool is_large(const struct jm_node *n, const struct cuda_operands *o)
{
	return has_window(n, o, CUDA_STEM_SIZE) && n->attr.conv.stride[0] == CUDA_STEM_STEP &&
	       !o->bias && (o->x->type != JM_F32 || n->math == JM_MATH_TF32);
}

bool cuda_conv_is_stem(const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool forward = n->op == JM_OP_CONV && !n->accumulate && o.w->type == o.x->type;
	bool gradient = n->op == JM_OP_CONV_WGRAD && o.w->type == JM_F32;

	return (forward || gradient) && o.w->dim[0] % 8 == 0 &&
	       (is_small(n, &o) || is_large(n, &o));
}

bool cuda_conv_stem_ends(const struct jm_node *n)
{
	struct cuda_operands o = cuda_operands_of(n);

	return is_small(n, &o);
}

static struct cuda_stem stem_of(const struct cuda_dev *dev, const struct jm_node *n, void *scratch)
{
	struct cuda_operands o = cuda_operands_of(n);
	bool forward = n->op == JM_OP_CONV;
	struct cuda_stem p = {
		.batch = (int)o.x->dim[0],
		.filters = (int)o.w->dim[0],
		.processors = dev->prop.multiProcessorCount,
		.step = n->attr.conv.stride[0],
		.x = cuda_vec(o.x),
		.dy = cuda_vec(o.y),
		.w = cuda_vec(o.w),
		.dw = forward ? NULL : o.w->data,
		.accumulate = jm_node_adds(n, 0),
		.partial = scratch,
		.bias = forward && o.bias ? o.bias->data : NULL,
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

	if (n->op == JM_OP_CONV)
		return 0;
	return cuda_conv_stem_ends(n) ? cuda_small_stem_scratch(&p) : cuda_stem_scratch(&p);
}

cudaError_t cuda_conv_stem_run(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_stem p = stem_of(dev, n, exec->scratch);

	if (!cuda_conv_stem_ends(n))
		return n->op == JM_OP_CONV ? cuda_stem(&p, dev->stream)
					   : cuda_stem_grad(&p, dev->stream);
	if (exec->n_nodes > 1) {
		p.relu = true;
		p.dy = cuda_vec(exec->node[1].out[0]);
	}
	(n->op == JM_OP_CONV ? cuda_small_stem : cuda_small_stem_grad)(&p, dev->stream);
	return cudaGetLastError();
}

cudaError_t cuda_conv_stem_opened(const struct cuda_dev *dev, const struct jm_node *relu,
	const struct jm_node *n, void *scratch)
{
	struct cuda_stem p = stem_of(dev, n, scratch);

	p.dy = cuda_vec(relu->in[0]);
	p.open = cuda_vec(relu->in[1]);
	p.dbias = n->out[1]->data;
	p.accumulate_bias = jm_node_adds(n, 1);
	cuda_small_stem_grad(&p, dev->stream);
	return cudaGetLastError();
}
