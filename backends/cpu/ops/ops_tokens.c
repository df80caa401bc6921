/* SPDX-License-Identifier: Apache-2.0 */
/* tokens, first, put-rows and their gradients: turns nodes into the kernels' arguments. */
#include <math.h>

#include "layout.h"

/* Scratch holds a row of f32 for each image. */
static size_t scratch_tokens(const struct cpu_dev *dev, const struct jm_node *n)
{
	const struct jm_tensor *x = n->op == JM_OP_TOKENS ? n->in[0] : n->out[0];

	(void)dev;
	return (size_t)(x->dim[0] * x->dim[1]) * sizeof(float);
}

static int run_tokens(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cpu_tokens p = {
		.x = cpu_image(n->in[0]),
		.first = cpu_data(n->in[1]),
		.pos = cpu_data(n->in[2]),
		.y = cpu_vec(n->out[0]),
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	if (n->in[0]->data == n->out[0]->data) /* in place */
		return 0;
	dev->kernels->sequences->tokens(&p, dev->threads);
	return 0;
}

static int run_tokens_grad(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cpu_tokens p = {
		.x = cpu_image(n->out[0]),
		.seq = n->in[0]->dim[1],
		.y = cpu_vec(n->in[0]),
		.dfirst = cpu_data(n->out[1]),
		.dpos = cpu_data(n->out[2]),
		.accumulate = n->accumulate,
		.scratch = exec->scratch,
	};

	(void)err;
	if (n->in[0]->data == n->out[0]->data) /* in place */
		return 0;
	dev->kernels->sequences->tokens_grad(&p, dev->threads);
	return 0;
}

static int run_first(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	bool back = n->op == JM_OP_FIRST_GRAD;
	const struct jm_tensor *x = back ? n->out[0] : n->in[0];
	struct cpu_first p = {
		.n = x->dim[0],
		.seq = x->dim[1],
		.width = x->dim[2],
		.x = cpu_vec(x),
		.y = cpu_vec(back ? n->in[0] : n->out[0]),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	if (back)
		dev->kernels->sequences->first_grad(&p, dev->threads);
	else
		dev->kernels->sequences->first(&p, dev->threads);
	return 0;
}

static int run_put(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	bool back = n->op == JM_OP_PUT_ROWS_GRAD;
	const struct jm_tensor *x = back ? n->out[0] : n->in[0];
	struct cpu_put p = {
		.n = x->dim[0],
		.seq = x->dim[1],
		.places = n->attr.put.places,
		.width = x->dim[2],
		.at = n->in[back ? 1 : 2]->data,
		.x = cpu_vec(x),
		.rows = cpu_vec(back ? n->out[1] : n->in[1]),
		.y = cpu_vec(back ? n->in[0] : n->out[0]),
		.accumulate = n->accumulate,
	};

	(void)err;
	if (back)
		dev->kernels->sequences->put_grad(&p, dev->threads);
	else
		dev->kernels->sequences->put(&p, dev->threads);
	return 0;
}

/* ---- correct answers ------------------------------------------------------------------------- */

static bool is_best(const struct jm_tensor *x, int64_t row, int64_t target)
{
	int64_t width = jm_tensor_width(x), at = row * width;
	double best = jm_element_get(x->type, x->data, at + target);

	if (isnan(best))
		return false;
	for (int64_t i = 0; i < width; i++) {
		double other = jm_element_get(x->type, x->data, at + i);

		if (other > best || (other == best && i < target))
			return false;
	}
	return true;
}

/* The op runs rarely, so plain loops suffice, one row per thread. */
static int run_top1(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const int32_t *target = n->in[1]->data;
	int64_t rows = jm_tensor_rows(n->in[0]), right = 0;
	float *share = n->out[0]->data;

	(void)err;
#pragma omp parallel for reduction(+ : right) num_threads(dev->threads)
	for (int64_t r = 0; r < rows; r++)
		right += target[r] >= 0 && is_best(n->in[0], r, target[r]);
	*share = (float)right / (float)rows + (jm_node_adds(n, 0) ? *share : 0);
	return 0;
}

/* ---- squared differences --------------------------------------------------------------------- */

/* Scratch holds a sum for each row, so that the order is the same for any number of threads. */
static size_t scratch_mse(const struct cpu_dev *dev, const struct jm_node *n)
{
	(void)dev;
	return (size_t)jm_tensor_rows(n->in[0]) * sizeof(double);
}

static double mse_row(const struct jm_node *n, int64_t row, double scale)
{
	const struct jm_tensor *y = n->in[0], *target = n->in[1], *dy = n->out[1];
	int64_t width = jm_tensor_width(y);
	double sum = 0;

	for (int64_t i = row * width; i < (row + 1) * width; i++) {
		double off = jm_element_get(y->type, y->data, i) -
			     jm_element_get(target->type, target->data, i);

		sum += off * off;
		if (dy)
			jm_element_set(dy->type, dy->data, i,
				scale * off +
					(jm_node_adds(n, 1) ? jm_element_get(dy->type, dy->data, i)
							    : 0));
	}
	return sum;
}

static int run_mse(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t rows = jm_tensor_rows(n->in[0]);
	double count = (double)jm_tensor_count(n->in[0]), all = 0, *sum = exec->scratch;
	double weight = n->attr.xent.weight;
	double scale = 2 * weight * n->attr.xent.scale * cpu_scale(n->in[2], 0) / count;
	float *loss = n->out[0]->data;

	(void)err;
#pragma omp parallel for num_threads(dev->threads)
	for (int64_t r = 0; r < rows; r++)
		sum[r] = mse_row(n, r, scale);
	for (int64_t r = 0; r < rows; r++)
		all += sum[r];
	*loss = (float)(weight * all / count + (jm_node_adds(n, 0) ? (double)*loss : 0));
	return 0;
}

const struct cpu_op cpu_ops_tokens[] = {
	{{JM_OP_MSE}, 1, NULL, scratch_mse, NULL, run_mse, NULL},
	{{JM_OP_TOP1}, 1, NULL, NULL, NULL, run_top1, NULL},
	{{JM_OP_TOKENS}, 1, NULL, scratch_tokens, NULL, run_tokens, NULL},
	{{JM_OP_TOKENS_GRAD}, 1, NULL, scratch_tokens, NULL, run_tokens_grad, NULL},
	{{JM_OP_FIRST}, 1, NULL, NULL, NULL, run_first, NULL},
	{{JM_OP_FIRST_GRAD}, 1, NULL, NULL, NULL, run_first, NULL},
	{{JM_OP_PUT_ROWS}, 1, NULL, NULL, NULL, run_put, NULL},
	{{JM_OP_PUT_ROWS_GRAD}, 1, NULL, NULL, NULL, run_put, NULL},
	{.n_nodes = 0},
};
