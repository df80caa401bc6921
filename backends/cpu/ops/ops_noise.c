/* SPDX-License-Identifier: Apache-2.0 */
/* add-noise, draw-moments and step-waves: each runs once in a step and touches little, so plain
 * loops suffice. */
#include "engine/graph/noise_schedule.h"
#include "layout.h"

static double get(const struct jm_tensor *t, int64_t i)
{
	return jm_element_get(t->type, t->data, i);
}

static void put(const struct jm_node *n, int k, int64_t i, double value)
{
	const struct jm_tensor *t = n->out[k];

	jm_element_set(t->type, t->data, i, value + (jm_node_adds(n, k) ? get(t, i) : 0));
}

static int run_noise(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t batch = n->in[0]->dim[0], each = jm_tensor_count(n->in[0]) / batch;
	const int32_t *t = n->in[2]->data;

	(void)err;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
	for (int64_t b = 0; b < batch; b++) {
		double kept = jm_noise_kept(&n->attr, t[b]), own = sqrt(kept),
		       other = sqrt(1 - kept);

		for (int64_t i = b * each; i < (b + 1) * each; i++) {
			double x = get(n->in[0], i), e = get(n->in[1], i);

			put(n, 0, i, own * x + other * e);
			if (n->out[1])
				put(n, 1, i, n->attr.noise.velocity ? own * e - other * x : e);
		}
	}
	return 0;
}

static int run_draw(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t batch = n->out[0]->dim[0], each = jm_tensor_count(n->out[0]) / batch;

	(void)err;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
	for (int64_t i = 0; i < batch * each; i++) {
		int64_t at = i / each * 2 * each + i % each;
		double log_var = get(n->in[0], at + each);
		double std = exp(fmin(fmax(log_var, JM_LOG_VAR_LEAST), JM_LOG_VAR_MOST) / 2);

		put(n, 0, i, n->attr.draw.factor * (get(n->in[0], at) + std * get(n->in[1], i)));
	}
	return 0;
}

static int run_waves(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t batch = n->out[0]->dim[0], width = n->out[0]->dim[1], half = width / 2;
	const int32_t *t = n->in[0]->data;

	(void)err;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
	for (int64_t i = 0; i < batch * half; i++) {
		int64_t b = i / half, k = i % half;
		double angle = t[b] * pow(10000, -(double)k / (double)half);

		put(n, 0, b * width + k, cos(angle));
		put(n, 0, b * width + half + k, sin(angle));
	}
	return 0;
}

const struct cpu_op cpu_ops_noise[] = {
	{{JM_OP_ADD_NOISE}, 1, NULL, NULL, NULL, run_noise, NULL},
	{{JM_OP_DRAW_MOMENTS}, 1, NULL, NULL, NULL, run_draw, NULL},
	{{JM_OP_STEP_WAVES}, 1, NULL, NULL, NULL, run_waves, NULL},
	{.n_nodes = 0},
};
