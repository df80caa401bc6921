/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm, also with what makes its image, or with the parts of its gradient: turns nodes into
 * arguments of groupnorm.h. Images have their channels last. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/groupnorm.h"
#include "op_rows.h"
#include "ops_image.h"
#include "ops_pool.h"

/* The norm or its gradient; beside it are what makes its image, or what divides the gradient. */
static bool is_norm(const struct jm_node *n)
{
	return n->op == JM_OP_GROUPNORM || n->op == JM_OP_GROUPNORM_GRAD;
}

/* ---- takes ----------------------------------------------------------------------------------- */

/* Images of one type, and statistics that are written as a whole. */
static int takes_groups(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[group->n_nodes - 1];

	if (n->op == JM_OP_GROUPNORM && n->accumulate & JM_ADD_NORM_STATS)
		return cuda_no_types(n, err);
	return cuda_takes_images(dev, group, err);
}

#define SMALL 64 /* pixels of an image of which the norm by itself is faster */

/* An image that is made of others: the norm stores it, and reads it again. */
static int takes_made(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *make = group->node[group->n_nodes - 2];
	const struct jm_node *n = group->node[group->n_nodes - 1];
	const struct jm_tensor *x = make->out[0];

	if (x != n->in[0] || x->is_virtual || make->accumulate || x->dim[2] * x->dim[3] <= SMALL ||
		(make->op == JM_OP_CONCAT && make->attr.concat.axis != 1))
		return cuda_no_types(n, err);
	return takes_groups(dev, group, err);
}

/* The same, of which one image is a single pixel. */
static int takes_grown(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const int code = cuda_takes_shift(dev, group, err);

	return code ? code : takes_made(dev, group, err);
}

/* The parts of the gradient, which are not added to; the whole has no other reader. */
static int takes_split(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *split = group->node[1];
	const struct jm_tensor *whole = n->out[0];

	if (split->in[0] != whole || !(whole->is_virtual || whole->is_last) || split->accumulate ||
		split->attr.concat.axis != 1)
		return cuda_no_types(n, err);
	return takes_groups(dev, group, err);
}

/* ---- operands -------------------------------------------------------------------------------- */

static void set_parts(struct cuda_groups *p, const struct jm_node *n, struct jm_tensor *const *part)
{
	for (int i = 0; i < CUDA_GROUP_PARTS && n->attr.concat.size[i]; i++) {
		p->width[i] = (int)n->attr.concat.size[i];
		p->part[i] = cuda_vec(part[i]);
		p->n_parts++;
	}
}

/* What makes the image; add: of a group with one. */
static void set_sum(struct cuda_groups *p, const struct jm_node *first, const struct jm_node *add)
{
	p->grows = first->op == JM_OP_UPSAMPLE;
	p->sum[0] = cuda_vec(add->in[0]);
	p->sum[1] = cuda_vec(p->grows ? first->in[0] : add->in[1]);
}

/* Of a group with these nodes at its ends. */
static struct cuda_groups groups_of(
	const struct cuda_dev *dev, const struct jm_node *first, const struct jm_node *last)
{
	const struct jm_node *n = is_norm(first) ? first : last;
	const int x = n->op == JM_OP_GROUPNORM_GRAD; /* behind it the vectors follow */
	const struct jm_tensor *image = n->in[x];
	struct cuda_groups p = {
		.batch = (int)image->dim[0],
		.c = (int)image->dim[1],
		.groups = n->attr.group.groups,
		.pixels = image->dim[2] * image->dim[3],
		.silu = n->attr.group.silu,
		.clusters = dev->prop.major >= 9,
		.eps = (float)n->attr.group.eps,
		.x = cuda_vec(image),
		.gamma = cuda_data(n->in[x + 1]),
		.beta = cuda_data(n->in[x + 2]),
		.accumulate = n->accumulate,
	};

	if (first->op == JM_OP_CONCAT)
		set_parts(&p, first, first->in);
	if (last->op == JM_OP_SPLIT)
		set_parts(&p, last, last->out);
	return p;
}

static int choices_groups(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct cuda_groups p =
		groups_of(dev, group->node[0], group->node[group->n_nodes - 1]);

	(void)err;
	cuda_image_layouts(group, 0, choice);
	choice->scratch = cuda_groups_scratch(&p);
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int run_groups(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[exec->n_nodes - 1];
	struct cuda_groups p = groups_of(dev, exec->node, n);

	(void)err;
	if (exec->n_nodes > 1 && n[-1].op == JM_OP_ADD)
		set_sum(&p, exec->node, n - 1);
	p.y = cuda_vec(n->out[0]);
	p.mean = cuda_data(n->out[1]);
	p.rstd = cuda_data(n->out[2]);
	p.scratch = exec->scratch;
	cuda_groupnorm(&p, dev->stream);
	return 0;
}

static int run_groups_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_groups p = groups_of(dev, n, &exec->node[exec->n_nodes - 1]);

	(void)err;
	p.y = cuda_vec(n->in[0]);
	p.mean = cuda_data(n->in[4]);
	p.rstd = cuda_data(n->in[5]);
	p.dx = cuda_vec(n->out[0]);
	p.dgamma = cuda_data(n->out[1]);
	p.dbeta = cuda_data(n->out[2]);
	p.scratch = exec->scratch;
	cuda_groupnorm_grad(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_groupnorm[] = {
	{{JM_OP_UPSAMPLE, JM_OP_ADD, JM_OP_GROUPNORM}, 3, takes_grown, choices_groups, NULL, NULL,
		run_groups, NULL},
	{{JM_OP_ADD, JM_OP_GROUPNORM}, 2, takes_made, choices_groups, NULL, NULL, run_groups, NULL},
	{{JM_OP_CONCAT, JM_OP_GROUPNORM}, 2, takes_made, choices_groups, NULL, NULL, run_groups,
		NULL},
	{{JM_OP_GROUPNORM}, 1, takes_groups, choices_groups, NULL, NULL, run_groups, NULL},
	{{JM_OP_GROUPNORM_GRAD, JM_OP_SPLIT}, 2, takes_split, choices_groups, NULL, NULL,
		run_groups_grad, NULL},
	{{JM_OP_GROUPNORM_GRAD}, 1, takes_groups, choices_groups, NULL, NULL, run_groups_grad,
		NULL},
	{.n_nodes = 0},
};
