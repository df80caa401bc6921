/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of 3 x 3 of images that grow to twice their size in both directions, in 16 bits: a
 * convolution with stride 2 and a filter of 4 x 4 whose elements are sums of those of the 3 x 3
 * that meet the same pixel (cuda_grown), in the opposite direction. It needs 4/9 of the FLOPs, and
 * the larger image is not made:
 *
 *	upsample, conv		  y is the image gradient of that convolution, whose dy is x
 *	conv-dgrad, upsample-grad dx is its result, whose image is dy
 *	upsample, conv-wgrad	  dw is summed from its filter's gradient
 *
 * cuDNN's plans of both forms are timed once for each shape, before memory is planned; where the
 * plain one is faster, the group is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conv_operands.h"
#include "conv_space_to_depth.h"
#include "backends/cuda/choose/conv_plan.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/ops/op_rows.h"

#define WIDE 4 /* rows and columns of the summed filter */

/* The convolution and the node that changes the size of its image. */
struct grown {
	const struct jm_node *conv, *size;
	int of_conv, of_size;		       /* their places in the group */
	const struct jm_tensor *small, *large; /* the image before it grows, and after */
	struct cuda_operands o;
};

static struct grown grown_of(const struct jm_node *first, const struct jm_node *second)
{
	const bool back = first->op == JM_OP_CONV_DGRAD;
	struct grown g = {.conv = back ? first : second,
		.size = back ? second : first,
		.of_conv = !back,
		.of_size = back};

	g.small = back ? g.size->out[0] : g.size->in[0];
	g.large = back ? g.size->in[0] : g.size->out[0];
	g.o = cuda_operands_of(g.conv);
	return g;
}

static struct grown grown_group(const struct jm_group *group)
{
	return grown_of(group->node[0], group->node[1]);
}

/* ---- which groups ---------------------------------------------------------------------------- */

static struct cuda_conv_key key_of(const struct grown *g)
{
	const int64_t c = g->small->dim[1], k = g->o.w->dim[0];
	struct cuda_conv_key key = {.pattern = g->conv->op == JM_OP_CONV ? DNN_PATTERN_DGRAD
					       : g->conv->op == JM_OP_CONV_DGRAD
						       ? DNN_PATTERN_CONV
						       : DNN_PATTERN_WGRAD,
		.shape = {.w = {c, k, WIDE, WIDE},
			.window = {.stride = {2, 2}, .pad = {1, 1}, .dilation = {1, 1}},
			.type = cuda_dnn_type(g->small->type),
			.add = g->size->op == JM_OP_UPSAMPLE_GRAD && jm_node_adds(g->size, 0)}};

	memcpy(key.shape.x, g->o.y->dim, sizeof key.shape.x);
	memcpy(key.shape.y, g->small->dim, sizeof key.shape.y);
	return key;
}

/* The convolution as the node has it. */
static struct cuda_conv_key plain_key(const struct grown *g)
{
	struct cuda_conv_key key = {.pattern = g->conv->op == JM_OP_CONV ? DNN_PATTERN_CONV
					       : g->conv->op == JM_OP_CONV_DGRAD
						       ? DNN_PATTERN_DGRAD
						       : DNN_PATTERN_WGRAD,
		.shape = {.window = {.stride = {1, 1}, .pad = {1, 1}, .dilation = {1, 1}},
			.type = cuda_dnn_type(g->small->type)}};

	memcpy(key.shape.x, g->large->dim, sizeof key.shape.x);
	memcpy(key.shape.w, g->o.w->dim, sizeof key.shape.w);
	memcpy(key.shape.y, g->o.y->dim, sizeof key.shape.y);
	return key;
}

static bool is_16_bits(const struct jm_tensor *t, enum jm_dtype type)
{
	return t->type == type && (type == JM_BF16 || type == JM_F16);
}

static bool fits(const struct grown *g)
{
	const enum jm_dtype type = g->small->type;
	const bool grad = g->conv->op == JM_OP_CONV_WGRAD;
	bool ok = g->large == g->o.x && g->large->is_virtual && is_16_bits(g->large, type) &&
		  is_16_bits(g->o.y, type) && g->o.w->type == (grad ? JM_F32 : type) &&
		  g->small->dim[1] % 8 == 0 && g->o.w->dim[0] % 8 == 0 &&
		  g->conv->attr.conv.groups == 1 && (grad || !g->conv->accumulate);

	for (int i = 0; i < 2; i++)
		ok = ok && g->large->dim[2 + i] == 2 * g->small->dim[2 + i] &&
		     g->o.w->dim[2 + i] == 3 && g->conv->attr.conv.pad[i] == 1 &&
		     g->conv->attr.conv.more[i] == 0 && g->conv->attr.conv.stride[i] == 1 &&
		     g->conv->attr.conv.dilation[i] == 1;
	return ok;
}

#define FEW_FLOPS 1e9 /* take less time than starting them: fewer are not slower */

static double flops_of(const struct grown *g)
{
	return 2. * WIDE * WIDE * (double)jm_tensor_count(g->small) * (double)g->o.w->dim[0];
}

static bool is_faster(struct cuda_dev *dev, const struct cuda_conv_key *key, const struct grown *g)
{
	const struct cuda_conv_key plain = plain_key(g);

	return flops_of(g) < FEW_FLOPS || cuda_conv_is_faster(dev, "grown", key, &plain, 0);
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct grown g = grown_group(group);
	struct cuda_conv_key key;

	if (!fits(&g))
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda cannot fuse this convolution with an image that grows.");
	key = key_of(&g);
	if (!cuda_conv_plan(dev, &key, err))
		return err->code;
	if (is_faster(dev, &key, &g))
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"The convolution of the image that has grown is faster than one with a stride.");
}

/* ---- choices --------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

/* The scratch: cuDNN's workspace, the summed filter or its gradient, the sums of the bias. */
struct places {
	size_t filter, bias, bytes;
};

static struct places places_of(const struct grown *g, size_t workspace)
{
	struct places p = {.filter = aligned(workspace)};
	const bool sums = g->conv->op == JM_OP_CONV_WGRAD && g->o.bias;

	p.bias = p.filter + aligned((size_t)(g->small->dim[1] * g->o.w->dim[0] * WIDE * WIDE) *
				    jm_dtype_bytes(g->small->type));
	p.bytes = p.bias + (sums ? cuda_bn_scratch(g->o.bias->dim[0]) : 0);
	return p;
}

static int choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	const struct grown g = grown_group(group);
	const struct cuda_conv_key key = key_of(&g);
	const struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	const struct jm_tensor *first = g.conv->out[0];

	if (!plan)
		return 0;
	choice->in[g.of_size][0] = choice->out[g.of_size][0] = cuda_layout_last;
	choice->in[g.of_conv][0] = choice->in[g.of_conv][1] = cuda_layout_last;
	/* a gradient has the layout of its parameter */
	if (first != g.o.w || first->class == JM_CLASS_ACT ||
		jm_layout_equal(&first->layout, &cuda_layout_last))
		choice->out[g.of_conv][0] = cuda_layout_last;
	choice->scratch = places_of(&g, plan->workspace).bytes;
	choice->flops_executed = flops_of(&g);
	choice->seconds = NAN;
	return 1;
}

/* ---- build and run --------------------------------------------------------------------------- */

struct conv_grown {
	struct dnn_run run;
	struct places at;
};

static struct grown grown_exec(const struct cuda_exec *exec)
{
	return grown_of(&exec->node[0], &exec->node[1]);
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct conv_grown *c = exec->own;

	if (c)
		dnn_unbind(&dev->dnn, &c->run);
	free(c);
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct grown g = grown_exec(exec);
	const struct cuda_conv_key key = key_of(&g);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	int64_t ids[CUDA_CONV_OPERANDS];
	struct conv_grown *c;
	int n;

	if (!plan || cuda_conv_tune(dev, plan, err))
		return err->code;
	exec->own = c = calloc(1, sizeof *c);
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	c->at = places_of(&g, plan->workspace);
	n = cuda_conv_ids(plan, ids);
	return dnn_bind(&dev->dnn, &plan->plan[plan->best], n, ids,
		(void *const[]){g.o.y->data, (char *)exec->scratch + c->at.filter, g.small->data},
		exec->scratch, &c->run, err);
}

static struct cuda_grown filter_of(const struct grown *g, const struct cuda_exec *exec)
{
	const struct conv_grown *c = exec->own;
	struct cuda_grown p = {.filters = (int)g->o.w->dim[0],
		.channels = (int)g->o.w->dim[1],
		.wide = {(char *)exec->scratch + c->at.filter, cuda_type_of(g->small->type)},
		.accumulate = jm_node_adds(g->conv, 0)};

	if (g->conv->op != JM_OP_CONV_WGRAD) {
		p.w = cuda_vec(g->o.w);
		return p;
	}
	p.dw = g->o.w->data;
	cuda_conv_strides(g->o.w, p.stride);
	return p;
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct conv_grown *c = exec->own;
	const struct grown g = grown_exec(exec);
	const struct cuda_grown filter = filter_of(&g, exec);
	const struct jm_tensor *y = g.o.y;
	int code;

	cuda_grow_filter(&filter, dev->stream);
	code = dnn_run(&dev->dnn, &c->run, err);
	if (!code && g.o.bias)
		cuda_bias_add(cuda_vec(y), g.o.bias->data, y->dim[0] * y->dim[2] * y->dim[3],
			y->dim[1], false, dev->stream);
	return code;
}

static int run_wgrad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct conv_grown *c = exec->own;
	const struct grown g = grown_exec(exec);
	const struct cuda_grown filter = filter_of(&g, exec);
	const struct jm_tensor *dy = g.o.y;
	int code = dnn_run(&dev->dnn, &c->run, err);

	if (code)
		return code;
	cuda_grown_grad(&filter, dev->stream);
	if (g.o.bias) {
		const struct cuda_bias_grad sum = {.rows = dy->dim[0] * dy->dim[2] * dy->dim[3],
			.c = dy->dim[1],
			.dy = cuda_vec(dy),
			.dbias = g.o.bias->data,
			.accumulate = jm_node_adds(g.conv, 1),
			.scratch = (char *)exec->scratch + c->at.bias};

		cuda_bias_grad(&sum, dev->stream);
	}
	return 0;
}

const struct cuda_op cuda_ops_conv_grown[] = {
	{{JM_OP_UPSAMPLE, JM_OP_CONV}, 2, takes, choices, NULL, build, run, drop},
	{{JM_OP_UPSAMPLE, JM_OP_CONV_WGRAD}, 2, takes, choices, NULL, build, run_wgrad, drop},
	{{JM_OP_CONV_DGRAD, JM_OP_UPSAMPLE_GRAD}, 2, takes, choices, NULL, build, run, drop},
	{.n_nodes = 0},
};
