/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions with a filter for each channel together with what lies before them: a norm or a
 * ReLU, which is applied while the image is read; the gradient of the norm, whose sums are taken
 * where the gradient of the image is written, and the mask of the ReLU.
 */
#include "conv_depthwise.h"

#include "backends/cuda/device/gpu.h"
#include "backends/cuda/ops/op_rows.h"
#include "backends/cuda/ops/ops_image.h"

static int refuse(const char *what, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"Backend cuda fuses %s only with convolutions of 3 x 3 that have a filter for each "
		"channel.",
		what);
}

static bool is_16_bits(const struct jm_tensor *t)
{
	return t->type == JM_BF16 || t->type == JM_F16;
}

/* ---- the gradient of the image, and that of the ReLU or norm which made it ------------------- */

static int takes_relu_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *relu = group->node[1];
	enum jm_dtype type = relu->out[0]->type;
	bool fits = cuda_conv_is_depthwise(n) && !jm_node_adds(n, 0) && relu->in[0] == n->out[0] &&
		    n->out[0]->is_virtual && n->in[0]->type == type && n->in[1]->type == type &&
		    n->out[0]->type == type && relu->in[1]->type == type;

	(void)dev;
	return fits ? 0 : refuse("the gradient of a ReLU", err);
}

static int run_relu_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_depthwise p = cuda_depthwise_of(dev, &exec->node[0], exec->scratch);
	const struct jm_node *relu = &exec->node[1];

	p.y = cuda_vec(relu->out[0]);
	p.open = cuda_vec(relu->in[1]);
	p.accumulate = jm_node_adds(relu, 0);
	cuda_depthwise(&p, dev->stream);
	return cuda_check(dev, cudaGetLastError(), "Starting a kernel", err);
}

/* True for the gradient of a norm with a mask of x, if it has a ReLU, whose result alone is needed
 * of the gradient d. */
static bool is_norm_grad(const struct jm_node *norm, const struct jm_tensor *d)
{
	return norm->in[0] == d && !norm->in[2] && !norm->out[3] && !jm_node_adds(norm, 0) &&
	       is_16_bits(d) && norm->in[1]->type == d->type && norm->out[0]->type == d->type;
}

/* What the kernel stores is the gradient before the norm's ReLU: if it has one, nothing else may
 * read the gradient between both. */
static int takes_norm_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *norm = group->node[1];
	enum jm_dtype type = n->out[0]->type;
	bool fits = cuda_conv_is_depthwise(n) && is_norm_grad(norm, n->out[0]) &&
		    (n->out[0]->is_virtual || n->out[0]->is_last || !norm->in[6]) &&
		    n->in[0]->type == type && n->in[1]->type == type;

	(void)dev;
	return fits ? 0 : refuse("the gradient of a norm", err);
}

static int choices_norm_grad(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	struct cuda_depthwise p = cuda_depthwise_of(dev, group->node[0], NULL);

	choice->scratch = cuda_depthwise_norm_scratch(&p);
	return cuda_image_choices(dev, group, choice, err);
}

/* The gradient between both lies in dx, where it has no memory. */
static int run_norm_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0], *norm = &exec->node[1];
	struct cuda_depthwise p = cuda_depthwise_of(dev, n, NULL);
	struct cuda_bn_grad bn = cuda_bn_grad_of(norm, exec);

	p.y = cuda_vec(n->out[0]->is_virtual ? norm->out[0] : n->out[0]);
	cuda_depthwise_norm_grad(&p, &bn, dev->stream);
	return cuda_check(dev, cudaGetLastError(), "Starting a kernel", err);
}

/* ---- the gradients of the image, of the ReLU which made it, and of the norm before that ------ */

static int takes_relu_norm_grad(
	struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *relu = group->node[1], *norm = group->node[2];

	if (!is_norm_grad(norm, relu->out[0]) || norm->in[6])
		return refuse("the gradients of a ReLU and a norm", err);
	return takes_relu_grad(dev, group, err);
}

/* The gradient of the norm's result lies in dx, where only the norm's reads it. */
static int run_relu_norm_grad(
	struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_depthwise p = cuda_depthwise_of(dev, &exec->node[0], NULL);
	struct cuda_bn_grad bn = cuda_bn_grad_of(&exec->node[2], exec);
	const struct jm_node *relu = &exec->node[1];

	p.y = cuda_vec(relu->out[0]->is_virtual ? exec->node[2].out[0] : relu->out[0]);
	p.open = cuda_vec(relu->in[1]);
	p.accumulate = jm_node_adds(relu, 0);
	cuda_depthwise_norm_grad(&p, &bn, dev->stream);
	return cuda_check(dev, cudaGetLastError(), "Starting a kernel", err);
}

/* ---- the convolution or the gradient of its filter, and the norm or ReLU before it ----------- */

/* Also a ReLU without a norm. */
static int takes_norm(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *norm = group->node[0], *n = group->node[1];
	const struct cuda_operands o = cuda_operands_of(n);
	const struct jm_tensor *image = o.x, *other = n->op == JM_OP_CONV ? o.w : o.y;
	bool relu = norm->op == JM_OP_RELU || (norm->attr.bn.relu && !norm->in[5]);
	bool fits = cuda_conv_is_depthwise(n) && image == norm->out[0] && image->is_virtual &&
		    relu && !norm->accumulate && is_16_bits(image) &&
		    norm->in[0]->type == image->type && other->type == image->type &&
		    (n->op == JM_OP_CONV ? n->out[0]->type == image->type && !n->accumulate
					 : n->out[0]->type == JM_F32 && !n->out[1]);

	(void)dev;
	return fits ? 0 : refuse("a norm or a ReLU", err);
}

/* A filter's gradient has the layout of its parameter, in which channels are not last. */
static int choices_norm(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[1];
	int found = cuda_image_choices(dev, group, choice, err);

	if (n->op == JM_OP_CONV_WGRAD)
		choice->out[1][0] = n->out[0]->layout;
	choice->scratch = cuda_conv_depthwise_scratch(dev, n);
	return found;
}

static int run_norm(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *norm = &exec->node[0], *n = &exec->node[1];
	struct cuda_depthwise p = cuda_depthwise_of(dev, n, exec->scratch);

	p.x = cuda_vec(norm->in[0]);
	p.relu = norm->op == JM_OP_RELU;
	if (!p.relu) {
		p.norm.mean = cuda_data(norm->in[1]);
		p.norm.rstd = cuda_data(norm->in[2]);
		p.norm.gamma = cuda_data(norm->in[3]);
		p.norm.beta = cuda_data(norm->in[4]);
	}
	n->op == JM_OP_CONV ? cuda_depthwise(&p, dev->stream)
			    : cuda_depthwise_grad(&p, dev->stream);
	return cuda_check(dev, cudaGetLastError(), "Starting a kernel", err);
}

const struct cuda_op cuda_ops_depthwise[] = {
	{{JM_OP_CONV_DGRAD, JM_OP_RELU_GRAD, JM_OP_BN_GRAD}, 3, takes_relu_norm_grad,
		choices_norm_grad, NULL, NULL, run_relu_norm_grad, NULL},
	{{JM_OP_CONV_DGRAD, JM_OP_RELU_GRAD}, 2, takes_relu_grad, cuda_image_choices, NULL, NULL,
		run_relu_grad, NULL},
	{{JM_OP_CONV_DGRAD, JM_OP_BN_GRAD}, 2, takes_norm_grad, choices_norm_grad, NULL, NULL,
		run_norm_grad, NULL},
	{{JM_OP_BN_APPLY, JM_OP_CONV}, 2, takes_norm, choices_norm, NULL, NULL, run_norm, NULL},
	{{JM_OP_BN_APPLY, JM_OP_CONV_WGRAD}, 2, takes_norm, choices_norm, NULL, NULL, run_norm,
		NULL},
	{{JM_OP_RELU, JM_OP_CONV}, 2, takes_norm, choices_norm, NULL, NULL, run_norm, NULL},
	{{JM_OP_RELU, JM_OP_CONV_WGRAD}, 2, takes_norm, choices_norm, NULL, NULL, run_norm, NULL},
	{.n_nodes = 0},
};
