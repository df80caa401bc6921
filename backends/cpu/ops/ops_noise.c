/* SPDX-License-Identifier: Apache-2.0 */
/* add-noise, draw-moments, step-waves and colours: each runs once in a step and touches little, so
 * plain loops suffice. */
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

static void scale_plane(const uint8_t *x, int64_t n, float factor, float shift, float *y)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = factor * (float)x[i] + shift;
}

static void scale_plane_bf16(const uint8_t *x, int64_t n, float factor, float shift, uint16_t *y)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = jm_bf16_set(factor * (float)x[i] + shift);
}

static int run_colours(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t planes = n->in[0]->dim[0] * 3, each = n->in[0]->dim[2] * n->in[0]->dim[3];
	const uint8_t *x = n->in[0]->data;

	(void)err;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
	for (int64_t p = 0; p < planes; p++) {
		float factor = n->attr.colours.factor[p % 3], shift = n->attr.colours.shift[p % 3];

		for (int64_t i = p * each; i < (p + 1) * each && jm_node_adds(n, 0); i++)
			put(n, 0, i, (double)(factor * (float)x[i] + shift));
		if (jm_node_adds(n, 0))
			continue;
		if (n->out[0]->type == JM_F32)
			scale_plane(x + p * each, each, factor, shift,
				(float *)n->out[0]->data + p * each);
		else
			scale_plane_bf16(x + p * each, each, factor, shift,
				(uint16_t *)n->out[0]->data + p * each);
	}
	return 0;
}

const struct cpu_op cpu_ops_noise[] = {
	{{JM_OP_ADD_NOISE}, 1, NULL, NULL, NULL, run_noise, NULL},
	{{JM_OP_DRAW_MOMENTS}, 1, NULL, NULL, NULL, run_draw, NULL},
	{{JM_OP_STEP_WAVES}, 1, NULL, NULL, NULL, run_waves, NULL},
	{{JM_OP_COLOURS}, 1, NULL, NULL, NULL, run_colours, NULL},
	{.n_nodes = 0},
};
