/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm: turns nodes into the arguments of image_kernels.h. Images have their channels
 * last. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "ops_image.h"
#include "backends/cuda/device/layouts.h"
#include "op_rows.h"

#define NODE(exec) (&(exec)->node[0])

/* ---- supported operands ---------------------------------------------------------------------- */

/* Accepts groups whose images all have one type. */
int cuda_takes_images(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
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
	return cuda_takes_images(dev, group, err);
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
	return cuda_takes_images(dev, group, err);
}

static int takes_stats_only(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *stats = group->node[0], *last = group->node[1];

	if (stats->accumulate || last->accumulate || last->in[0] != stats->out[0] ||
		last->in[1] != stats->out[1])
		return jm_err_set(err, JM_ENOSUP, "Only statistics of one image are fused.");
	return cuda_takes_images(dev, group, err);
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

	return fits ? cuda_takes_images(dev, group, err)
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

	return fits ? cuda_takes_images(dev, group, err)
		    : jm_err_set(err, JM_ENOSUP,
			      "Only gradients of two norms that were added are fused.");
}

int cuda_takes_bn_again(const struct jm_node *grad, const struct jm_node *again, struct jm_err *err)
{
	bool fits = grad->in[6] && !grad->out[3] && again->attr.bn.relu && !again->in[5] &&
		    !again->accumulate && again->in[0] == grad->in[1] &&
		    again->in[4] == grad->in[6] && again->out[0]->type == grad->in[1]->type;

	return fits ? 0 : jm_err_set(err, JM_ENOSUP, "Only a norm with ReLU is computed again.");
}

static int takes_grad_again(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	int code = cuda_takes_bn_again(group->node[0], group->node[1], err);

	return code ? code : cuda_takes_images(dev, group, err);
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
		if (n->op == JM_OP_BN_GRAD) /* the bits of a ReLU behind a sum are saved */
			choice->unread[k] = 1 << 2;
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

int cuda_choices_bn(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	bool pair = group->n_nodes > 1 && group->node[0]->op == JM_OP_BN_GRAD &&
		    group->node[1]->op == JM_OP_BN_GRAD;

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

struct cuda_bn cuda_bn_apply_of(const struct jm_node *n, void *mask)
{
	struct cuda_bn p = {.mean = n->in[1]->data, .rstd = n->in[2]->data};

	set_apply(&p, n, mask);
	return p;
}

static int run_apply(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = cuda_bn_apply_of(NODE(exec), exec->saved);

	(void)err;
	cuda_bn_apply(&p, dev->stream);
	return 0;
}

static int run_apply_pair(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = cuda_bn_apply_of(&exec->node[1], exec->saved);
	struct cuda_bn other = cuda_bn_apply_of(&exec->node[0], NULL);

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

struct cuda_bn cuda_bn_whole_of(const struct jm_node *n, float *own, void *scratch, void *mask)
{
	struct cuda_bn p = cuda_bn_stats_of(&n[0], &n[1], own, scratch);

	set_apply(&p, &n[2], mask);
	p.rstd = kept(n[1].out[0], own, 2);
	return p;
}

static struct cuda_bn whole_of(const struct cuda_exec *exec)
{
	int64_t c = exec->node[0].in[0]->dim[1];
	float *own = (float *)(void *)((char *)exec->scratch + cuda_bn_scratch(c));

	return cuda_bn_whole_of(exec->node, own, exec->scratch, exec->saved);
}

static int run_bn(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_bn p = whole_of(exec);

	if (exec->own) {
		const struct cuda_meeting m = cuda_meeting_of(dev);

		return cuda_check(dev, cuda_bn_once(&p, &m, dev->stream), "Starting a kernel", err);
	}
	cuda_bn_stats(&p, dev->stream);
	cuda_bn_apply(&p, dev->stream);
	return 0;
}

struct cuda_bn_grad cuda_bn_grad_of(const struct jm_node *n, const struct cuda_exec *exec)
{
	const struct jm_node *last = &exec->node[exec->n_nodes - 1];

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
		.again = cuda_vec(last->op == JM_OP_BN_APPLY ? last->out[0] : NULL),
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

	if (exec->own) {
		const struct cuda_meeting m = cuda_meeting_of(dev);

		return cuda_check(
			dev, cuda_bn_grad_once(&p, &m, dev->stream), "Starting a kernel", err);
	}
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

/* ---- kernels that read their operands once, where they are faster ---------------------------- */

struct cuda_meeting cuda_meeting_of(struct cuda_dev *dev)
{
	if (!dev->arrived)
		dev->arrived = cuda_keep(dev, CUDA_MEETING_BYTES);
	return (struct cuda_meeting){dev->prop.multiProcessorCount, dev->arrived};
}

bool cuda_bn_is_once(const struct cuda_dev *dev, const struct cuda_bn *p)
{
	return cuda_is_hopper(dev) && cuda_bn_once_knows(p, dev->prop.multiProcessorCount);
}

bool cuda_bn_grad_is_once(const struct cuda_dev *dev, const struct cuda_bn_grad *p)
{
	return cuda_is_hopper(dev) && cuda_bn_grad_once_knows(p, dev->prop.multiProcessorCount);
}

static int build_apart(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev, (void)err;
	exec->own = NULL;
	return 0;
}

/* exec->own then says only that it is not NULL. */
static int build_once(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	exec->own = cuda_meeting_of(dev).arrived;
	return exec->own ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a batch norm.");
}

static void drop_way(struct cuda_dev *dev, struct cuda_exec *exec)
{
	(void)dev;
	exec->own = NULL;
}

/* x: the norm's image. */
static int build_faster(
	struct cuda_dev *dev, struct cuda_exec *exec, const struct jm_tensor *x, struct jm_err *err)
{
	static const struct cuda_way ways[] = {{"apart", build_apart}, {"once", build_once}};
	char key[CUDA_PLAN_KEY];

	snprintf(key, sizeof key, "bn/%s,%s,%lld,%lld,%d", jm_op_name(NODE(exec)->op),
		jm_dtype_name(x->type), (long long)cuda_pixels_of(x), (long long)x->dim[1],
		exec->n_nodes);
	return ways[cuda_way_choose(dev, exec, key, ways, 2)].build(dev, exec, err);
}

static int build_bn(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct cuda_bn p = whole_of(exec);

	return cuda_bn_is_once(dev, &p) ? build_faster(dev, exec, NODE(exec)->in[0], err) : 0;
}

static int build_bn_grad(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct cuda_bn_grad p = cuda_bn_grad_of(NODE(exec), exec);

	return cuda_bn_grad_is_once(dev, &p) ? build_faster(dev, exec, NODE(exec)->in[1], err) : 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cuda_op cuda_ops_image[] = {
	{{JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}, 3, takes_bn, cuda_choices_bn, NULL,
		build_bn, run_bn, drop_way},
	{{JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 2, takes_stats_only, cuda_choices_bn, NULL, NULL,
		run_stats_only, NULL},
	{{JM_OP_BN_APPLY, JM_OP_BN_APPLY}, 2, takes_apply_pair, cuda_choices_bn, NULL, NULL,
		run_apply_pair, NULL},
	{{JM_OP_BN_GRAD, JM_OP_BN_GRAD}, 2, takes_grad_pair, cuda_choices_bn, NULL, NULL,
		run_grad_pair, NULL},
	{{JM_OP_BN_GRAD, JM_OP_BN_APPLY}, 2, takes_grad_again, cuda_choices_bn, NULL, build_bn_grad,
		run_bn_grad, drop_way},
	{{JM_OP_BN_STATS}, 1, takes_stats, cuda_choices_bn, NULL, NULL, run_stats, NULL},
	{{JM_OP_BN_FINALIZE}, 1, takes_stats, NULL, NULL, NULL, run_finalize, NULL},
	{{JM_OP_BN_APPLY}, 1, cuda_takes_images, cuda_choices_bn, NULL, NULL, run_apply, NULL},
	{{JM_OP_BN_GRAD}, 1, cuda_takes_images, cuda_choices_bn, NULL, build_bn_grad, run_bn_grad,
		drop_way},
	{.n_nodes = 0},
};
