/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on images that run on own kernels: turns nodes into the kernels' arguments. */
#include "backends/cpu/kernels/batchnorm.h"
#include "layout.h"

#define LANE_BYTES (16 * sizeof(float))

/* Accepts groups whose images all have one type. */
static int takes_images(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	const struct jm_tensor *first = n->in[0];

	(void)dev;
	for (int i = 0; i < n->n_in + n->n_out; i++) {
		const struct jm_tensor *t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];

		if (t && first && t->rank == 4 && first->rank == 4 && t->type != first->type)
			return jm_err_set(err, JM_ENOSUP,
				"%s of backend cpu needs all its images in one type.",
				jm_op_name(n->op));
	}
	return 0;
}

/* ---- batch norm ------------------------------------------------------------------------------ */

static float *floats(const struct jm_tensor *t)
{
	return t ? t->data : NULL;
}

static int takes_stats(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	if (n->accumulate)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cpu cannot add to its output.",
			jm_op_name(n->op));
	return 0;
}

/* Scratch holds the f64 sums of channels last, first for alignment, then mean, var and rstd if they
 * are virtual. */
static size_t scratch_bn(const struct cpu_dev *dev, const struct jm_node *n)
{
	const struct jm_tensor *x = n->op == JM_OP_BN_GRAD ? n->in[1] : n->in[0];

	return cpu_bn_scratch(x->dim[1], dev->threads) + 3 * (size_t)x->dim[1] * sizeof(float);
}

static const struct cpu_images *kernels_for(const struct cpu_dev *dev, const struct cpu_image *x)
{
	return cpu_image_last(x) ? dev->kernels->images_last : dev->kernels->images;
}

static int run_bn_stats(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_bn p = {
		.x = cpu_image(n->in[0]),
		.stats = true,
		.mean = floats(n->out[0]),
		.var = floats(n->out[1]),
		.scratch = exec->scratch,
	};

	(void)err;
	kernels_for(dev, &p.x)->bn(&p, dev->threads);
	return 0;
}

/* Sets the results and attributes of bn-finalize, except a virtual rstd. */
static void set_finalize(const struct jm_node *n, struct cpu_bn *p)
{
	p->rstd = floats(n->out[0]);
	p->running_mean = floats(n->out[1]);
	p->running_var = floats(n->out[2]);
	p->eps = n->attr.bn.eps;
	p->momentum = n->attr.bn.momentum;
	p->count = n->attr.bn.count;
}

static int run_bn_finalize(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_bn p = {
		.mean = n->in[0]->data,
		.var = n->in[1]->data,
	};

	(void)dev;
	(void)err;
	set_finalize(n, &p);
	for (int64_t c = 0; c < jm_tensor_count(n->in[0]); c++)
		jm_bn_finalize(&p, c);
	return 0;
}

static struct cpu_bn apply_of(const struct jm_node *n)
{
	return (struct cpu_bn){
		.x = cpu_image(n->in[0]),
		.mean = floats(n->in[1]),
		.rstd = floats(n->in[2]),
		.gamma = floats(n->in[3]),
		.beta = floats(n->in[4]),
		.add = cpu_image(n->in[5]),
		.y = cpu_image(n->out[0]),
		.apply = true,
		.relu = n->attr.bn.relu,
		.accumulate = n->accumulate,
	};
}

static int run_bn_apply(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	struct cpu_bn p = apply_of(exec->node);

	(void)err;
	p.scratch = exec->scratch;
	kernels_for(dev, &p.x)->bn(&p, dev->threads);
	return 0;
}

static float *kept(const struct jm_tensor *t, float *scratch, int64_t at)
{
	return t->is_virtual ? scratch + at * t->dim[0] : t->data;
}

static int takes_bn(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	for (int i = 0; i < 2; i++)
		if (takes_stats(dev, &n[i], err))
			return -1;
	if (n[2].in[0] != n[0].in[0] || n[2].in[1] != n[0].out[0] || n[2].in[2] != n[1].out[0] ||
		n[1].in[0] != n[0].out[0] || n[1].in[1] != n[0].out[1])
		return jm_err_set(err, JM_ENOSUP,
			"Only statistics of the same image that they are applied to are fused.");
	return takes_images(dev, &n[2], err);
}

static int run_bn(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *stats = &exec->node[0], *finalize = &exec->node[1];
	struct cpu_bn p = apply_of(&exec->node[2]);
	float *own = (float *)(void *)((char *)exec->scratch + cpu_bn_scratch(p.x.c, dev->threads));

	(void)err;
	p.stats = true;
	p.scratch = exec->scratch;
	p.mean = kept(stats->out[0], own, 0);
	p.var = kept(stats->out[1], own, 1);
	set_finalize(finalize, &p);
	p.rstd = kept(finalize->out[0], own, 2);
	kernels_for(dev, &p.x)->bn(&p, dev->threads);
	return 0;
}

static int run_bn_grad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_bn_grad p = {
		.dy = cpu_image(n->in[0]),
		.x = cpu_image(n->in[1]),
		.y = cpu_image(n->in[2]),
		.gamma = floats(n->in[3]),
		.mean = floats(n->in[4]),
		.rstd = floats(n->in[5]),
		.beta = floats(n->in[6]),
		.dx = cpu_image(n->out[0]),
		.dgamma = floats(n->out[1]),
		.dbeta = floats(n->out[2]),
		.dadd = cpu_image(n->out[3]),
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	kernels_for(dev, &p.x)->bn_grad(&p, dev->threads);
	return 0;
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* upsample is the gradient of windows that do not overlap, of which sums are taken. */
static struct cpu_pool pool_of(const struct jm_node *n, void *scratch)
{
	struct cpu_pool p = {
		.sums = n->op == JM_OP_UPSAMPLE || n->op == JM_OP_UPSAMPLE_GRAD,
		.count_pad = n->attr.pool.count_pad,
		.accumulate = jm_node_adds(n, 0),
		.scratch = scratch,
	};

	for (int i = 0; i < 2; i++) {
		p.kernel[i] = n->attr.pool.kernel[i];
		p.stride[i] = n->attr.pool.stride[i];
		p.pad[i] = n->attr.pool.pad[i];
	}
	return p;
}

static int run_pool(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_pool p = pool_of(n, exec->scratch);

	(void)err;
	p.x = cpu_image(n->in[0]);
	p.y = cpu_image(n->out[0]);
	if (n->op == JM_OP_MAXPOOL)
		dev->kernels->pools->max(&p, dev->threads);
	else
		dev->kernels->pools->mean(&p, dev->threads);
	return 0;
}

/* A plane of f32 per thread. */
static size_t scratch_pool_grad(const struct cpu_dev *dev, const struct jm_node *n)
{
	return (size_t)(n->out[0]->dim[2] * n->out[0]->dim[3]) * LANE_BYTES * (size_t)dev->threads;
}

static int run_pool_grad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_pool p = pool_of(n, exec->scratch);

	(void)err;
	p.y = cpu_image(n->in[0]);
	p.dx = cpu_image(n->out[0]);
	p.x = n->op == JM_OP_MAXPOOL_GRAD ? cpu_image(n->in[1]) : p.dx;
	if (n->op == JM_OP_MAXPOOL_GRAD)
		dev->kernels->pools->max_grad(&p, dev->threads);
	else
		dev->kernels->pools->mean_grad(&p, dev->threads);
	return 0;
}

static int takes_gap(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	if (n->in[0]->type != n->out[0]->type)
		return jm_err_set(
			err, JM_ENOSUP, "%s of backend cpu keeps the type.", jm_op_name(n->op));
	return 0;
}

static int run_gap(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	bool back = n->op == JM_OP_GAP_GRAD;
	struct cpu_image image = cpu_image(back ? n->out[0] : n->in[0]);

	(void)err;
	if (back)
		dev->kernels->pools->global_grad(
			&image, n->in[0]->data, jm_node_adds(n, 0), dev->threads);
	else
		dev->kernels->pools->global(
			&image, n->out[0]->data, jm_node_adds(n, 0), dev->threads);
	return 0;
}

/* ---- group norm ------------------------------------------------------------------------------ */

static size_t scratch_groups(const struct cpu_dev *dev, const struct jm_node *n)
{
	(void)dev;
	return 2 * (size_t)(n->in[1]->dim[0] * n->in[1]->dim[1]) * sizeof(double);
}

static struct cpu_groups groups_of(const struct jm_node *n, const struct jm_tensor *x)
{
	return (struct cpu_groups){
		.x = cpu_image(x),
		.groups = n->attr.group.groups,
		.silu = n->attr.group.silu,
		.eps = n->attr.group.eps,
		.accumulate = n->accumulate,
	};
}

/* Statistics are written as a whole. */
static int takes_groups(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	if (n->accumulate & JM_ADD_NORM_STATS)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cpu cannot add to statistics.",
			jm_op_name(n->op));
	return takes_images(dev, n, err);
}

static int run_groupnorm(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_groups p = groups_of(n, n->in[0]);

	(void)err;
	p.gamma = floats(n->in[1]);
	p.beta = floats(n->in[2]);
	p.y = cpu_image(n->out[0]);
	p.mean = floats(n->out[1]);
	p.rstd = floats(n->out[2]);
	dev->kernels->groupnorms->norm(&p, dev->threads);
	return 0;
}

static int run_groupnorm_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_groups p = groups_of(n, n->in[1]);

	(void)err;
	p.y = cpu_image(n->in[0]);
	p.gamma = floats(n->in[2]);
	p.beta = floats(n->in[3]);
	p.mean = floats(n->in[4]);
	p.rstd = floats(n->in[5]);
	p.dx = cpu_image(n->out[0]);
	p.dgamma = floats(n->out[1]);
	p.dbeta = floats(n->out[2]);
	p.scratch = exec->scratch;
	dev->kernels->groupnorms->grad(&p, dev->threads);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_image[] = {
	{{JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}, 3, takes_bn, scratch_bn, NULL, run_bn,
		NULL},
	{{JM_OP_BN_STATS}, 1, takes_stats, scratch_bn, NULL, run_bn_stats, NULL},
	{{JM_OP_BN_FINALIZE}, 1, takes_stats, NULL, NULL, run_bn_finalize, NULL},
	{{JM_OP_BN_APPLY}, 1, takes_images, scratch_bn, NULL, run_bn_apply, NULL},
	{{JM_OP_BN_GRAD}, 1, takes_images, scratch_bn, NULL, run_bn_grad, NULL},
	{{JM_OP_MAXPOOL}, 1, takes_images, NULL, NULL, run_pool, NULL},
	{{JM_OP_MAXPOOL_GRAD}, 1, takes_images, scratch_pool_grad, NULL, run_pool_grad, NULL},
	{{JM_OP_AVGPOOL}, 1, takes_images, NULL, NULL, run_pool, NULL},
	{{JM_OP_AVGPOOL_GRAD}, 1, takes_images, scratch_pool_grad, NULL, run_pool_grad, NULL},
	{{JM_OP_UPSAMPLE}, 1, takes_images, scratch_pool_grad, NULL, run_pool_grad, NULL},
	{{JM_OP_UPSAMPLE_GRAD}, 1, takes_images, NULL, NULL, run_pool, NULL},
	{{JM_OP_GROUPNORM}, 1, takes_groups, NULL, NULL, run_groupnorm, NULL},
	{{JM_OP_GROUPNORM_GRAD}, 1, takes_images, scratch_groups, NULL, run_groupnorm_grad, NULL},
	{{JM_OP_GAP}, 1, takes_gap, NULL, NULL, run_gap, NULL},
	{{JM_OP_GAP_GRAD}, 1, takes_gap, NULL, NULL, run_gap, NULL},
	{.n_nodes = 0},
};
