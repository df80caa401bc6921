/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm and pooling: turns nodes into the arguments of image_kernels.h. Images have their
 * channels last. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "backends/cuda/device/cuda.h"
#include "ops_image.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/kernels/depthwise/depthwise.h"
#include "op_rows.h"

#define NODE(exec) (&(exec)->node[0])

/* ---- supported operands ---------------------------------------------------------------------- */

/* Accepts groups whose images all have one type. */
static int takes_images(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_tensor *first = NULL;

	(void)dev;
	for (int k = 0; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		for (int i = 0; i < n->n_in + n->n_out; i++) {
			const struct jm_tensor *t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];

			if (!t || t->rank != 4)
				continue;
			first = first ? first : t;
			if (t->type != first->type)
				return jm_err_set(err, JM_ENOSUP,
					"%s of backend cuda needs all its images in one type.",
					jm_op_name(n->op));
		}
	}
	return 0;
}

static int takes_stats(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	if (n->accumulate)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cuda cannot add to its output.",
			jm_op_name(n->op));
	return takes_images(dev, group, err);
}

/* Accepts statistics that are applied to the image that they are computed from. */
static int takes_bn(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	struct jm_node *const *n = (struct jm_node *const *)group->node;

	if (n[0]->accumulate || n[1]->accumulate || n[2]->in[0] != n[0]->in[0] ||
		n[2]->in[1] != n[0]->out[0] || n[2]->in[2] != n[1]->out[0] ||
		n[1]->in[0] != n[0]->out[0] || n[1]->in[1] != n[0]->out[1])
		return jm_err_set(err, JM_ENOSUP,
			"Only statistics of the same image that they are applied to are fused.");
	return takes_images(dev, group, err);
}

static int takes_stats_only(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *stats = group->node[0], *last = group->node[1];

	if (stats->accumulate || last->accumulate || last->in[0] != stats->out[0] ||
		last->in[1] != stats->out[1])
		return jm_err_set(err, JM_ENOSUP, "Only statistics of one image are fused.");
	return takes_images(dev, group, err);
}

static bool is_alike(const struct jm_tensor *a, const struct jm_tensor *b)
{
	return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

/* Accepts a norm whose result is only added to another norm. */
static int takes_apply_pair(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *first = group->node[0], *second = group->node[1];
	bool fits = second->in[5] == first->out[0] && first->out[0]->is_virtual && !first->in[5] &&
		    !first->attr.bn.relu && !first->accumulate && second->in[0] != first->out[0] &&
		    is_alike(first->in[0], second->in[0]) && second->in[0]->dim[1] % 8 == 0;

	return fits ? takes_images(dev, group, err)
		    : jm_err_set(err, JM_ENOSUP, "Only sums of two norms are fused.");
}

/* Accepts the gradients of these two norms; the second one has no ReLU. */
static int takes_grad_pair(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *first = group->node[0], *second = group->node[1];
	const struct jm_tensor *dadd = first->out[3];
	bool fits = dadd && dadd == second->in[0] && dadd->is_virtual && !jm_node_adds(first, 3) &&
		    first->in[2] && !second->in[2] && !second->in[6] && !second->out[3] &&
		    is_alike(first->in[1], second->in[1]) && second->in[1]->dim[1] % 8 == 0;

	return fits ? takes_images(dev, group, err)
		    : jm_err_set(err, JM_ENOSUP,
			      "Only gradients of two norms that were added are fused.");
}

static int takes_gap(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	if (n->in[0]->type == n->out[0]->type)
		return 0;
	return jm_err_set(err, JM_ENOSUP, "%s of backend cuda keeps the type.", jm_op_name(n->op));
}

/* ---- layouts and scratch --------------------------------------------------------------------- */

static size_t scratch_bn(const struct jm_group *group)
{
	const struct jm_node *n = group->node[0];
	int64_t c = n->op == JM_OP_BN_GRAD ? n->in[1]->dim[1] : n->in[0]->dim[1];

	/* and mean, var and rstd where they are internal to the group */
	return cuda_bn_scratch(c) + 3 * sizeof(float) * (size_t)c;
}

void cuda_image_layouts(const struct jm_group *group, int from, struct jm_choice *choice)
{
	for (int k = from; k < group->n_nodes; k++) {
		const struct jm_node *n = group->node[k];

		for (int i = 0; i < n->n_in; i++)
			if (n->in[i] && n->in[i]->rank == 4)
				choice->in[k][i] = cuda_layout_last;
		for (int i = 0; i < n->n_out; i++)
			if (n->out[i] && n->out[i]->rank == 4)
				choice->out[k][i] = cuda_layout_last;
	}
}

int cuda_image_choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	(void)dev;
	(void)err;
	cuda_image_layouts(group, 0, choice);
	if (group->node[0]->op == JM_OP_MAXPOOL_GRAD) /* saved are the positions of the maxima */
		choice->unread[0] = 1 << 1;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* Bytes of the bits that the forward pass saves when a sum lies between norm and ReLU: the gradient
 * reads these bits and not the result of the norm. */
static size_t mask_bytes(const struct jm_node *n)
{
	bool wanted = n->op == JM_OP_BN_APPLY && n->attr.bn.relu && n->in[5] && !n->accumulate &&
		      !n->again && n->in[0]->dim[1] % 8 == 0;

	return wanted ? (size_t)jm_tensor_count(n->out[0]) / 8 : 0;
}

static int choices_bn(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	bool pair = group->n_nodes > 1 && group->node[0]->op == JM_OP_BN_GRAD;

	choice->scratch = group->node[0]->op == JM_OP_BN_APPLY ? 0 : scratch_bn(group);
	choice->scratch *= pair ? 2 : 1;
	choice->saved = mask_bytes(group->node[group->n_nodes - 1]);
	return cuda_image_choices(dev, group, choice, err);
}

/* ---- batch norm ------------------------------------------------------------------------------ */

static void set_stats(struct cuda_bn *p, const struct jm_node *n, void *scratch)
{
	p->x = cuda_vec(n->in[0]);
	p->rows = cuda_pixels_of(n->in[0]);
	p->c = n->in[0]->dim[1];
	p->mean = cuda_data(n->out[0]);
	p->var = cuda_data(n->out[1]);
	p->scratch = scratch;
}

static void set_finalize(struct cuda_bn *p, const struct jm_node *n)
{
	p->c = n->in[0]->dim[0];
	p->rstd = cuda_data(n->out[0]);
	p->running_mean = cuda_data(n->out[1]);
	p->running_var = cuda_data(n->out[2]);
	p->eps = n->attr.bn.eps;
	p->momentum = n->attr.bn.momentum;
	p->count = n->attr.bn.count;
}

static void set_apply(struct cuda_bn *p, const struct jm_node *n, void *mask)
{
	p->x = cuda_vec(n->in[0]);
	p->rows = cuda_pixels_of(n->in[0]);
	p->c = n->in[0]->dim[1];
	p->gamma = cuda_data(n->in[3]);
	p->beta = cuda_data(n->in[4]);
	p->add = cuda_vec(n->in[5]);
	p->y = cuda_vec(n->out[0]);
	p->relu = n->attr.bn.relu;
	p->accumulate = jm_node_adds(n, 0);
	p->mask = mask;
}

/* The address of a vector: in scratch if no node outside the group reads it. */
static float *kept(const struct jm_tensor *t, float *scratch, int64_t i)
{
	return t->is_virtual ? scratch + i * t->dim[0] : t->data;
}

static int run_stats(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = {0};

	(void)err;
	set_stats(&p, NODE(exec), exec->scratch);
	cuda_bn_stats(&p, dev->stream);
	return 0;
}

static int run_finalize(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = {
		.mean = NODE(exec)->in[0]->data,
		.var = NODE(exec)->in[1]->data,
	};

	(void)err;
	set_finalize(&p, NODE(exec));
	cuda_bn_finalize(&p, dev->stream);
	return 0;
}

static struct cuda_bn apply_of(const struct jm_node *n, void *mask)
{
	struct cuda_bn p = {.mean = n->in[1]->data, .rstd = n->in[2]->data};

	set_apply(&p, n, mask);
	return p;
}

static int run_apply(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = apply_of(NODE(exec), exec->saved);

	(void)err;
	cuda_bn_apply(&p, dev->stream);
	return 0;
}

static int run_apply_pair(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = apply_of(&exec->node[1], exec->saved);
	struct cuda_bn other = apply_of(&exec->node[0], NULL);

	(void)err;
	cuda_bn_apply_pair(&p, &other, dev->stream);
	return 0;
}

struct cuda_bn cuda_bn_stats_of(
	const struct jm_node *stats, const struct jm_node *last, float *own, void *scratch)
{
	struct cuda_bn p = {0};

	set_stats(&p, stats, scratch);
	set_finalize(&p, last);
	p.mean = kept(stats->out[0], own, 0);
	p.var = kept(stats->out[1], own, 1);
	return p;
}

static int run_stats_only(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	float *own = (float *)(void *)((char *)exec->scratch + cuda_bn_scratch(n->in[0]->dim[1]));
	struct cuda_bn p = cuda_bn_stats_of(&n[0], &n[1], own, exec->scratch);

	(void)err;
	p.backwards = true;
	cuda_bn_stats(&p, dev->stream);
	return 0;
}

static int run_bn(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	int64_t c = n[0].in[0]->dim[1];
	float *own = (float *)(void *)((char *)exec->scratch + cuda_bn_scratch(c));
	struct cuda_bn p = cuda_bn_stats_of(&n[0], &n[1], own, exec->scratch);

	(void)err;
	set_apply(&p, &n[2], exec->saved);
	p.rstd = kept(n[1].out[0], own, 2);
	cuda_bn_stats(&p, dev->stream);
	cuda_bn_apply(&p, dev->stream);
	return 0;
}

struct cuda_bn_grad cuda_bn_grad_of(const struct jm_node *n, const struct cuda_exec *exec)
{
	return (struct cuda_bn_grad){
		.rows = cuda_pixels_of(n->in[1]),
		.c = n->in[1]->dim[1],
		.dy = cuda_vec(n->in[0]),
		.x = cuda_vec(n->in[1]),
		.y = cuda_vec(n->in[2]),
		.gamma = cuda_data(n->in[3]),
		.mean = cuda_data(n->in[4]),
		.rstd = cuda_data(n->in[5]),
		.beta = cuda_data(n->in[6]),
		.mask = n->in[2] ? exec->fwd_saved : NULL,
		.dx = cuda_vec(n->out[0]),
		.dgamma = cuda_data(n->out[1]),
		.dbeta = cuda_data(n->out[2]),
		.dadd = cuda_vec(n->out[3]),
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};
}

static int run_bn_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn_grad p = cuda_bn_grad_of(NODE(exec), exec);

	(void)err;
	cuda_bn_grad(&p, dev->stream);
	return 0;
}

static int run_grad_pair(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn_grad p = cuda_bn_grad_of(&exec->node[0], exec);
	struct cuda_bn_grad other = cuda_bn_grad_of(&exec->node[1], exec);

	(void)err;
	p.dadd.data = NULL;
	other.scratch = (char *)exec->scratch + cuda_bn_scratch(p.c);
	cuda_bn_grad_pair(&p, &other, dev->stream);
	return 0;
}

/* ---- pooling --------------------------------------------------------------------------------- */

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

	return fits ? takes_images(dev, group, err)
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

	return fits ? takes_images(dev, group, err)
		    : jm_err_set(err, JM_ENOSUP, "Only poolings of a norm in 16 bits are fused.");
}

static int run_apply_pool(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *norm = &exec->node[0], *pool = &exec->node[1];
	struct cuda_pool p = cuda_pool_of(pool, pool->in[0], pool->out[0]);
	struct cuda_bn bn = apply_of(norm, NULL);

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

/* Accepts an image of which each pixel is the same, and which is added to another one. */
static int takes_shift(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *grow = group->node[0], *add = group->node[1];
	bool fits = grow->in[0]->dim[2] == 1 && grow->in[0]->dim[3] == 1 &&
		    grow->out[0]->is_virtual && add->in[1] == grow->out[0] &&
		    add->in[0] != grow->out[0] && !add->accumulate;

	return fits ? takes_images(dev, group, err)
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

/* ---- the table ------------------------------------------------------------------------------- */

const struct cuda_op cuda_ops_image[] = {
	{{JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}, 3, takes_bn, choices_bn, NULL, NULL,
		run_bn, NULL},
	{{JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 2, takes_stats_only, choices_bn, NULL, NULL,
		run_stats_only, NULL},
	{{JM_OP_BN_APPLY, JM_OP_BN_APPLY}, 2, takes_apply_pair, choices_bn, NULL, NULL,
		run_apply_pair, NULL},
	{{JM_OP_BN_GRAD, JM_OP_BN_GRAD}, 2, takes_grad_pair, choices_bn, NULL, NULL, run_grad_pair,
		NULL},
	{{JM_OP_MAXPOOL_GRAD, JM_OP_BN_GRAD}, 2, takes_pooled, choices_bn, NULL, NULL, run_pooled,
		NULL},
	{{JM_OP_BN_APPLY, JM_OP_MAXPOOL}, 2, takes_apply_pool, choices_maxpool, NULL, NULL,
		run_apply_pool, NULL},
	{{JM_OP_BN_STATS}, 1, takes_stats, choices_bn, NULL, NULL, run_stats, NULL},
	{{JM_OP_BN_FINALIZE}, 1, takes_stats, NULL, NULL, NULL, run_finalize, NULL},
	{{JM_OP_BN_APPLY}, 1, takes_images, choices_bn, NULL, NULL, run_apply, NULL},
	{{JM_OP_BN_GRAD}, 1, takes_images, choices_bn, NULL, NULL, run_bn_grad, NULL},
	{{JM_OP_MAXPOOL}, 1, takes_images, choices_maxpool, NULL, NULL, run_pool, NULL},
	{{JM_OP_MAXPOOL_GRAD}, 1, takes_images, cuda_image_choices, NULL, NULL, run_pool_grad,
		NULL},
	{{JM_OP_UPSAMPLE, JM_OP_ADD}, 2, takes_shift, cuda_image_choices, NULL, NULL, run_shift,
		NULL},
	{{JM_OP_UPSAMPLE}, 1, takes_images, cuda_image_choices, NULL, NULL, run_upsample, NULL},
	{{JM_OP_UPSAMPLE_GRAD}, 1, takes_images, cuda_image_choices, NULL, NULL, run_upsample,
		NULL},
	{{JM_OP_AVGPOOL}, 1, takes_images, cuda_image_choices, NULL, NULL, run_pool, NULL},
	{{JM_OP_AVGPOOL_GRAD}, 1, takes_images, cuda_image_choices, NULL, NULL, run_pool_grad,
		NULL},
	{{JM_OP_GAP}, 1, takes_gap, cuda_image_choices, NULL, NULL, run_gap, NULL},
	{{JM_OP_GAP_GRAD}, 1, takes_gap, cuda_image_choices, NULL, NULL, run_gap, NULL},
	{.n_nodes = 0},
};
