/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of the gradients and the update of the parameters, alone or together: turns nodes into
 * the kernels' arguments. */
#include <math.h>

#include "backends/cpu/device/cpu.h"

/* The scratch bytes of the larger operand. */
static size_t scratch(const struct cpu_dev *dev, const struct jm_node *n)
{
	size_t most = 0;

	for (int i = 0; i < n->n_in; i++) {
		size_t bytes =
			n->in[i] ? dev->kernels->optims->norm_scratch(jm_tensor_count(n->in[i]))
				 : 0;

		most = bytes > most ? bytes : most;
	}
	return most;
}

static int run_norm(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	float *y = n->out[0]->data;
	double sum = 0;

	(void)err;
	for (int i = 0; i < n->n_in; i++)
		if (n->in[i])
			sum += dev->kernels->optims->squares(n->in[i]->data,
				jm_tensor_count(n->in[i]), n->in[i]->type == JM_BF16, exec->scratch,
				dev->threads);
	*y = (float)sqrt(sum) + (jm_node_adds(n, 0) ? *y : 0);
	return 0;
}

static void set_rule(struct cpu_update *u, const struct jm_node *n)
{
	if (n->op == JM_OP_SGD) {
		u->rule = CPU_SGD;
		u->n_decay = n->attr.sgd.n_decay;
		u->first = n->attr.sgd.first;
		u->beta1 = n->attr.sgd.momentum;
		u->weight_decay = n->attr.sgd.weight_decay;
		u->clip = n->attr.sgd.clip;
		u->nesterov = n->attr.sgd.nesterov;
		return;
	}
	u->rule = n->op == JM_OP_ADAM ? CPU_ADAM : CPU_ADAMW;
	u->n_decay = n->attr.adamw.n_decay;
	u->first = n->attr.adamw.first;
	u->beta1 = n->attr.adamw.beta1;
	u->beta2 = n->attr.adamw.beta2;
	u->eps = n->attr.adamw.eps;
	u->weight_decay = n->attr.adamw.weight_decay;
	u->clip = n->attr.adamw.clip;
}

/* The slab of copies; NULL = none. */
static const struct jm_tensor *copy_of(const struct jm_node *n)
{
	return n->n_out > 3 ? n->out[3] : NULL;
}

static void copy(const struct cpu_dev *dev, const struct jm_node *n)
{
	struct cpu_vec x = {(float *)n->out[0]->data + n->attr.adamw.copy_first, false};

	dev->kernels->pointwise->cast(
		x, cpu_vec(n->out[3]), jm_tensor_count(n->out[3]), false, dev->threads);
}

static int run_update(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[exec->op->n_nodes - 1];
	struct cpu_update u = {
		.n = jm_tensor_count(n->in[0]),
		.g = n->in[0]->data,
		.norm = cpu_data(n->in[1]),
		.now = n->in[2]->data,
		.n_now = (int)jm_tensor_count(n->in[2]),
		.p = n->out[0]->data,
		.m = n->out[1]->data,
		.v = n->op == JM_OP_SGD ? NULL : n->out[2]->data,
		.unscale = cpu_scale(n->in[3], 1),
		.bf16 = n->out[0]->type == JM_BF16,
		.bf16_g = n->in[0]->type == JM_BF16,
	};

	(void)err;
	set_rule(&u, n);
	dev->kernels->optims->update(&u, dev->threads);
	if (copy_of(n) && (!u.norm || isfinite(*u.norm)))
		copy(dev, n);
	return 0;
}

static int takes_update(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	(void)dev;
	for (int i = 1; i < n->n_out && i < 3; i++)
		if (n->out[i]->type != n->out[0]->type)
			return jm_err_set(err, JM_ENOSUP,
				"Parameters and optimizer state of backend cpu have one type.");
	return 0;
}

static int run_both(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	run_norm(dev, exec, err);
	return run_update(dev, exec, err);
}

/* The update follows the complete norm, but finds the end of the gradients in the cache. */
static int takes_both(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	if (n[0].in[0] != n[1].in[0] || n[0].out[0] != n[1].in[1] || n[0].in[1])
		return jm_err_set(err, JM_ENOSUP,
			"Only the norm of the gradients themselves is fused with their update.");
	return takes_update(dev, &n[1], err);
}

static float element(const struct jm_tensor *t, int64_t i)
{
	return t->type == JM_BF16 ? jm_bf16_get(((const uint16_t *)t->data)[i])
				  : ((const float *)t->data)[i];
}

static int run_average(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	float weight = ((const float *)n->in[1]->data)[n->attr.average.at], *e = n->out[0]->data;
	int64_t count = jm_tensor_count(n->in[0]);

	(void)err;
	if (weight != 1 && n->in[2] && !isfinite(*(const float *)n->in[2]->data))
		return 0;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
	for (int64_t i = 0; i < count; i++) {
		float p = element(n->in[0], i);

		e[i] = weight == 1 ? p : e[i] + weight * (p - e[i]);
	}
	return 0;
}

const struct cpu_op cpu_ops_update[] = {
	{{JM_OP_NORM}, 1, NULL, scratch, NULL, run_norm, NULL},
	{{JM_OP_ADAMW}, 1, takes_update, NULL, NULL, run_update, NULL},
	{{JM_OP_ADAM}, 1, takes_update, NULL, NULL, run_update, NULL},
	{{JM_OP_SGD}, 1, takes_update, NULL, NULL, run_update, NULL},
	{{JM_OP_NORM, JM_OP_ADAMW}, 2, takes_both, scratch, NULL, run_both, NULL},
	{{JM_OP_NORM, JM_OP_ADAM}, 2, takes_both, scratch, NULL, run_both, NULL},
	{{JM_OP_NORM, JM_OP_SGD}, 2, takes_both, scratch, NULL, run_both, NULL},
	{{JM_OP_AVERAGE}, 1, NULL, NULL, NULL, run_average, NULL},
	{.n_nodes = 0},
};
