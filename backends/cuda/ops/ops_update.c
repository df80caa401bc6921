/* SPDX-License-Identifier: Apache-2.0 */
/* Loss, the norm of all gradients, optimizers: turns nodes into arguments of loss.cu and
 * update.cu. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/layouts.h"
#include "op_rows.h"

/* ---- loss ------------------------------------------------------------------------------------ */

static int takes_xent(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	if ((n->out[1] && n->out[1]->type != n->in[0]->type) || n->out[0]->type != JM_F32)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda needs logits and their gradient in one type, the loss in "
			"f32.");
	return 0;
}

/* Rows start at multiples of 16 bytes where the products that read them need it. */
static int choices_xent(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct jm_layout layout;

	(void)dev;
	(void)err;
	cuda_rows_layout(n->in[0], &layout);
	choice->in[0][0] = layout;
	if (n->out[1])
		choice->out[0][1] = layout;
	choice->scratch = (size_t)(jm_tensor_rows(n->in[0]) + 1) * sizeof(float);
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

static int run_xent(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t rows = jm_tensor_rows(n->in[0]);
	struct cuda_xent p = {
		.rows = rows,
		.classes = n->attr.xent.classes ? n->attr.xent.classes : jm_tensor_width(n->in[0]),
		.stride = cuda_row_stride(n->in[0]),
		.rows_all = (int)rows,
		.scale = (float)(n->attr.xent.weight * n->attr.xent.scale),
		.weight = (float)n->attr.xent.weight,
		.loss_scale = cuda_data(n->in[2]),
		.logits = cuda_vec(n->in[0]),
		.dlogits = cuda_vec(n->out[1]),
		.targets = n->in[1]->data,
		.loss = n->out[0]->data,
		.losses = (float *)exec->scratch + 1,
		.counted = n->attr.xent.ignores ? exec->scratch : NULL,
		.add_loss = jm_node_adds(n, 0),
		.add_dlogits = jm_node_adds(n, 1),
		.clusters = dev->prop.major >= 9,
		.shared_block = dev->prop.sharedMemPerBlockOptin,
	};

	(void)err;
	if (p.counted)
		cuda_count_targets(p.targets, rows, exec->scratch, dev->stream);
	cuda_xent(&p, dev->stream);
	return 0;
}

static int run_top1(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];

	(void)err;
	cuda_top1(cuda_vec(n->in[0]), n->in[1]->data, jm_tensor_rows(n->in[0]),
		jm_tensor_width(n->in[0]), n->out[0]->data, jm_node_adds(n, 0), dev->stream);
	return 0;
}

static int takes_mse(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	enum jm_dtype y = n->in[0]->type;

	(void)dev;
	if ((n->in[1]->type == y || n->in[1]->type == JM_F32) && n->out[0]->type == JM_F32 &&
		(!n->out[1] || n->out[1]->type == y))
		return 0;
	return jm_err_set(err, JM_ENOSUP, "Backend cuda has no mse of these types.");
}

static size_t scratch_parts(struct cuda_dev *dev, const struct jm_group *group)
{
	(void)dev;
	(void)group;
	return 2 * CUDA_NORM_PARTS * sizeof(double);
}

static int run_mse(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t count = jm_tensor_count(n->in[0]);
	struct cuda_mse p = {
		.n = count,
		.y = cuda_vec(n->in[0]),
		.target = cuda_vec(n->in[1]),
		.dy = cuda_vec(n->out[1]),
		.scale = (float)(2 * n->attr.xent.weight * n->attr.xent.scale / (double)count),
		.weight = (float)n->attr.xent.weight,
		.loss_scale = cuda_data(n->in[2]),
		.loss = n->out[0]->data,
		.partial = exec->scratch,
		.add_loss = jm_node_adds(n, 0),
		.add_dy = jm_node_adds(n, 1),
	};

	(void)err;
	cuda_mse(&p, dev->stream);
	return 0;
}

/* ---- norm ------------------------------------------------------------------------------------ */

static int run_norm(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_norm_all p = {
		.n = jm_tensor_count(n->in[0]),
		.n_more = n->in[1] ? jm_tensor_count(n->in[1]) : 0,
		.x = cuda_vec(n->in[0]),
		.more = cuda_vec(n->in[1]),
		.y = n->out[0]->data,
		.accumulate = jm_node_adds(n, 0),
		.partial = exec->scratch,
	};

	(void)err;
	cuda_norm_all(&p, dev->stream);
	return 0;
}

/* ---- optimizers ------------------------------------------------------------------------------ */

/* The slab of copies; NULL = none. */
static const struct jm_tensor *copy_of(const struct jm_node *n)
{
	return n->n_out > 3 ? n->out[3] : NULL;
}

static int takes_update(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	for (int i = 1; i < n->n_out && i < 3; i++)
		if (n->out[i]->type != n->out[0]->type)
			return jm_err_set(err, JM_ENOSUP,
				"Backend cuda needs parameters and optimizer state in one type.");
	if (n->out[0]->type == JM_F16 || n->in[0]->type == JM_F16)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda keeps parameters, optimizer state and their gradients in f32 "
			"or bf16, not in f16.");
	if (copy_of(n) && n->out[0]->type != JM_F32)
		return jm_err_set(err, JM_ENOSUP, "Backend cuda copies parameters in f32 only.");
	return 0;
}

static struct cuda_update update_of(const struct jm_node *n)
{
	return (struct cuda_update){
		.n = jm_tensor_count(n->out[0]),
		.g = cuda_vec(n->in[0]),
		.p = cuda_vec(n->out[0]),
		.m = cuda_vec(n->out[1]),
		.norm = cuda_data(n->in[1]),
		.now = n->in[2]->data,
		.n_now = (int)jm_tensor_count(n->in[2]),
		.scale = cuda_data(n->in[3]),
	};
}

static int run_adam(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_update p = update_of(n);

	(void)err;
	p.rule = n->op == JM_OP_ADAM ? CUDA_ADAM : CUDA_ADAMW;
	p.v = cuda_vec(n->out[2]);
	p.n_decay = n->attr.adamw.n_decay;
	p.first = n->attr.adamw.first;
	p.beta1 = (float)n->attr.adamw.beta1;
	p.beta2 = (float)n->attr.adamw.beta2;
	p.one_beta1 = (float)(1 - n->attr.adamw.beta1);
	p.one_beta2 = (float)(1 - n->attr.adamw.beta2);
	p.eps = (float)n->attr.adamw.eps;
	p.weight_decay = (float)n->attr.adamw.weight_decay;
	p.clip = (float)n->attr.adamw.clip;
	p.copy = cuda_vec(copy_of(n));
	p.copy_first = n->attr.adamw.copy_first;
	p.n_copy = copy_of(n) ? jm_tensor_count(copy_of(n)) : 0;
	cuda_update(&p, dev->stream);
	return 0;
}

static int run_sgd(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_update p = update_of(n);

	(void)err;
	p.rule = CUDA_SGD;
	p.n_decay = n->attr.sgd.n_decay;
	p.first = n->attr.sgd.first;
	p.beta1 = (float)n->attr.sgd.momentum;
	p.weight_decay = (float)n->attr.sgd.weight_decay;
	p.clip = (float)n->attr.sgd.clip;
	p.nesterov = n->attr.sgd.nesterov;
	cuda_update(&p, dev->stream);
	return 0;
}

static int run_average(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];

	(void)err;
	cuda_average(cuda_vec(n->in[0]), (const float *)n->in[1]->data + n->attr.average.at,
		n->in[2] ? n->in[2]->data : NULL, n->out[0]->data, jm_tensor_count(n->in[0]),
		dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_update[] = {
	{{JM_OP_SOFTMAX_XENT}, 1, takes_xent, choices_xent, NULL, NULL, run_xent, NULL},
	{{JM_OP_TOP1}, 1, NULL, NULL, NULL, NULL, run_top1, NULL},
	{{JM_OP_MSE}, 1, takes_mse, NULL, scratch_parts, NULL, run_mse, NULL},
	{{JM_OP_NORM}, 1, NULL, NULL, scratch_parts, NULL, run_norm, NULL},
	{{JM_OP_ADAMW}, 1, takes_update, NULL, NULL, NULL, run_adam, NULL},
	{{JM_OP_ADAM}, 1, takes_update, NULL, NULL, NULL, run_adam, NULL},
	{{JM_OP_SGD}, 1, takes_update, NULL, NULL, NULL, run_sgd, NULL},
	{{JM_OP_AVERAGE}, 1, NULL, NULL, NULL, NULL, run_average, NULL},
	{.n_nodes = 0},
};
