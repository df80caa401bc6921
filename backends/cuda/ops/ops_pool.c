/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, images that grow, and means over whole images: turns nodes into the arguments of
 * image_kernels.h. Images have their channels last. */
#include <limits.h>
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "ops_pool.h"
#include "ops_image.h"
#include "backends/cuda/kernels/depthwise/depthwise.h"
#include "op_rows.h"

#define NODE(exec) (&(exec)->node[0])

/* upsample is the gradient of windows that do not overlap, of which sums are taken. */
struct cuda_pool cuda_pool_of(
	const struct jm_node *n, const struct jm_tensor *x, const struct jm_tensor *y)
{
	struct cuda_pool p = {
		.batch = (int)x->dim[0],
		.c = (int)x->dim[1],
		.sums = n->op == JM_OP_UPSAMPLE || n->op == JM_OP_UPSAMPLE_GRAD,
		.count_pad = n->attr.pool.count_pad,
		.accumulate = jm_node_adds(n, 0),
		.x = cuda_vec(x),
		.y = cuda_vec(y),
	};

	for (int i = 0; i < 2; i++) {
		p.in[i] = (int)x->dim[2 + i];
		p.out[i] = (int)y->dim[2 + i];
		p.kernel[i] = n->attr.pool.kernel[i];
		p.stride[i] = n->attr.pool.stride[i];
		p.pad[i] = n->attr.pool.pad[i];
	}
	return p;
}

/* Accepts the gradient of a pooling of a norm to which nothing was added before its ReLU. */
static int takes_pooled(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *pool = group->node[0], *norm = group->node[1];
	struct cuda_pool p = cuda_pool_of(pool, pool->in[1], pool->in[0]);
	bool fits = pool->out[0] == norm->in[0] && pool->out[0]->is_virtual && pool->fwd &&
		    !jm_node_adds(pool, 0) && !norm->in[2] && !norm->out[3] &&
		    cuda_maxpool_is_four(&p);

	return fits ? cuda_takes_images(dev, group, err)
		    : jm_err_set(
			      err, JM_ENOSUP, "Only gradients of a pooling of a norm are fused.");
}

static int run_pooled(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *pool = &exec->node[0];
	struct cuda_pool q = cuda_pool_of(pool, pool->in[1], pool->in[0]);
	struct cuda_bn_grad p = cuda_bn_grad_of(&exec->node[1], exec);

	(void)err;
	q.place = exec->fwd_saved;
	cuda_bn_grad_pooled(&p, &q, dev->stream);
	return 0;
}

/* The forward pass saves the position of the maximum in each window, which must fit into 7 bits. */
static int choices_maxpool(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[group->n_nodes - 1];

	if (n->attr.pool.kernel[0] * n->attr.pool.kernel[1] <= SCHAR_MAX)
		choice->saved = (size_t)jm_tensor_count(n->out[0]);
	return cuda_image_choices(dev, group, choice, err);
}

/* Accepts a norm to which nothing is added and whose result is only pooled. */
static int takes_apply_pool(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *norm = group->node[0], *pool = group->node[1];
	struct cuda_pool p = cuda_pool_of(pool, pool->in[0], pool->out[0]);
	bool fits = pool->in[0] == norm->out[0] && norm->out[0]->is_virtual && !norm->in[5] &&
		    !norm->accumulate && cuda_maxpool_by_rows(&p);

	return fits ? cuda_takes_images(dev, group, err)
		    : jm_err_set(err, JM_ENOSUP, "Only poolings of a norm in 16 bits are fused.");
}

static int run_apply_pool(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *norm = &exec->node[0], *pool = &exec->node[1];
	struct cuda_pool p = cuda_pool_of(pool, pool->in[0], pool->out[0]);
	struct cuda_bn bn = cuda_bn_apply_of(norm, NULL);

	(void)err;
	p.x = cuda_vec(norm->in[0]);
	p.place = exec->saved;
	cuda_maxpool_rows(&p, &bn, dev->stream);
	return 0;
}

/* Means of 3 x 3 pixels around each pixel: a filter for each channel, which is its own gradient. */
static bool is_mean_around(const struct cuda_pool *p)
{
	bool around = !p->sums && p->count_pad && p->c % 8 == 0;

	for (int i = 0; i < 2; i++)
		around = around && p->kernel[i] == 3 && p->stride[i] == 1 && p->pad[i] == 1 &&
			 p->in[i] == p->out[i];
	return around;
}

static void mean_around(const struct cuda_dev *dev, const struct cuda_pool *p, struct cuda_vec from,
	struct cuda_vec to)
{
	const struct cuda_depthwise d = {.batch = p->batch,
		.channels = p->c,
		.processors = dev->prop.multiProcessorCount,
		.in = {p->in[0], p->in[1]},
		.accumulate = p->accumulate,
		.x = from,
		.y = to};

	cuda_depthwise(&d, dev->stream);
}

static int run_pool(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	struct cuda_pool p = cuda_pool_of(n, n->in[0], n->out[0]);

	(void)err;
	p.place = exec->saved;
	if (n->op == JM_OP_MAXPOOL)
		cuda_maxpool(&p, dev->stream);
	else if (is_mean_around(&p))
		mean_around(dev, &p, p.x, p.y);
	else
		cuda_avgpool(&p, dev->stream);
	return 0;
}

static int run_pool_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	bool largest = n->op == JM_OP_MAXPOOL_GRAD;
	struct cuda_pool p = cuda_pool_of(n, largest ? n->in[1] : n->out[0], n->in[0]);

	(void)err;
	p.dx = cuda_vec(n->out[0]);
	p.place = largest ? exec->fwd_saved : NULL;
	if (largest)
		cuda_maxpool_grad(&p, dev->stream);
	else if (is_mean_around(&p))
		mean_around(dev, &p, p.y, p.dx);
	else
		cuda_avgpool_grad(&p, dev->stream);
	return 0;
}

/* Also upsample of one pixel, which is a gradient of a sum over the image, and its gradient. */
static int run_gap(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	bool back = n->op == JM_OP_GAP_GRAD || n->op == JM_OP_UPSAMPLE;
	const struct jm_tensor *image = back ? n->out[0] : n->in[0];
	struct cuda_gap p = {
		.batch = (int)image->dim[0],
		.c = (int)image->dim[1],
		.pixels = image->dim[2] * image->dim[3],
		.sums = n->op == JM_OP_UPSAMPLE || n->op == JM_OP_UPSAMPLE_GRAD,
		.accumulate = jm_node_adds(n, 0),
		.image = cuda_vec(image),
		.vector = cuda_vec(back ? n->in[0] : n->out[0]),
	};

	(void)err;
	if (back && p.accumulate)
		p.base = p.image;
	(back ? cuda_gap_grad : cuda_gap)(&p, dev->stream);
	return 0;
}

int cuda_takes_shift(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *grow = group->node[0], *add = group->node[1];
	bool fits = grow->in[0]->dim[2] == 1 && grow->in[0]->dim[3] == 1 &&
		    grow->out[0]->is_virtual && add->in[1] == grow->out[0] &&
		    add->in[0] != grow->out[0] && !add->accumulate;

	return fits ? cuda_takes_images(dev, group, err)
		    : jm_err_set(
			      err, JM_ENOSUP, "Only images of one pixel are added as they grow.");
}

static int run_shift(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *grow = &exec->node[0], *add = &exec->node[1];
	const struct jm_tensor *image = add->out[0];
	struct cuda_gap p = {
		.batch = (int)image->dim[0],
		.c = (int)image->dim[1],
		.pixels = image->dim[2] * image->dim[3],
		.sums = true,
		.image = cuda_vec(image),
		.vector = cuda_vec(grow->in[0]),
		.base = cuda_vec(add->in[0]),
	};

	(void)err;
	cuda_gap_grad(&p, dev->stream);
	return 0;
}

static int run_upsample(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = NODE(exec);
	bool grad = n->op == JM_OP_UPSAMPLE_GRAD;
	const struct jm_tensor *small = grad ? n->out[0] : n->in[0];

	if (small->dim[2] == 1 && small->dim[3] == 1)
		return run_gap(dev, exec, err);
	return (grad ? run_pool : run_pool_grad)(dev, exec, err);
}

static int takes_gap(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	if (n->in[0]->type == n->out[0]->type)
		return 0;
	return jm_err_set(err, JM_ENOSUP, "%s of backend cuda keeps the type.", jm_op_name(n->op));
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cuda_op cuda_ops_pool[] = {
	{{JM_OP_MAXPOOL_GRAD, JM_OP_BN_GRAD}, 2, takes_pooled, cuda_choices_bn, NULL, NULL,
		run_pooled, NULL},
	{{JM_OP_BN_APPLY, JM_OP_MAXPOOL}, 2, takes_apply_pool, choices_maxpool, NULL, NULL,
		run_apply_pool, NULL},
	{{JM_OP_MAXPOOL}, 1, cuda_takes_images, choices_maxpool, NULL, NULL, run_pool, NULL},
	{{JM_OP_MAXPOOL_GRAD}, 1, cuda_takes_images, cuda_image_choices, NULL, NULL, run_pool_grad,
		NULL},
	{{JM_OP_UPSAMPLE, JM_OP_ADD}, 2, cuda_takes_shift, cuda_image_choices, NULL, NULL,
		run_shift, NULL},
	{{JM_OP_UPSAMPLE}, 1, cuda_takes_images, cuda_image_choices, NULL, NULL, run_upsample,
		NULL},
	{{JM_OP_UPSAMPLE_GRAD}, 1, cuda_takes_images, cuda_image_choices, NULL, NULL, run_upsample,
		NULL},
	{{JM_OP_AVGPOOL}, 1, cuda_takes_images, cuda_image_choices, NULL, NULL, run_pool, NULL},
	{{JM_OP_AVGPOOL_GRAD}, 1, cuda_takes_images, cuda_image_choices, NULL, NULL, run_pool_grad,
		NULL},
	{{JM_OP_GAP}, 1, takes_gap, cuda_image_choices, NULL, NULL, run_gap, NULL},
	{{JM_OP_GAP_GRAD}, 1, takes_gap, cuda_image_choices, NULL, NULL, run_gap, NULL},
	{.n_nodes = 0},
};
