/* SPDX-License-Identifier: Apache-2.0 */
/* add-noise, draw-moments, step-waves and colours: turns nodes into the arguments of noise.cu. */
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/kernels/noise.h"
#include "engine/graph/noise_schedule.h"
#include "op_rows.h"

static int takes_noise(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool fits = n->in[1]->type == n->in[0]->type && n->out[0]->type == n->in[0]->type &&
		    (!n->out[1] || n->out[1]->type == JM_F32);

	(void)dev;
	return fits ? 0 : cuda_no_types(n, err);
}

/* Copies the two factors of every step to the device, which owns them until drop_noise. */
static int copy_parts(
	struct cuda_dev *dev, struct cuda_exec *exec, float *host, size_t bytes, struct jm_err *err)
{
	const union jm_attr *attr = &exec->node[0].attr;
	double kept = 1;
	int code;

	for (int64_t t = 0; t < attr->noise.steps; t++) {
		kept *= 1 - jm_noise_root(attr, t) * jm_noise_root(attr, t);
		host[2 * t] = (float)sqrt(kept);
		host[2 * t + 1] = (float)sqrt(1 - kept);
	}
	code = cuda_check(
		dev, cudaMalloc(&exec->own, bytes), "Allocating the factors of noise", err);
	return code ? code
		    : cuda_upload(dev, exec->own, host, bytes, "Copying the factors of noise", err);
}

static int build_noise(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	size_t bytes = 2 * (size_t)exec->node[0].attr.noise.steps * sizeof(float);
	float *host = malloc(bytes);
	int code;

	if (!host)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the factors of noise.");
	code = copy_parts(dev, exec, host, bytes, err);
	free(host);
	return code;
}

static void drop_noise(struct cuda_dev *dev, struct cuda_exec *exec)
{
	(void)dev;
	cudaFree(exec->own);
}

static int run_noise(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t batch = n->in[0]->dim[0];
	const struct cuda_noise p = {.batch = batch,
		.each = jm_tensor_count(n->in[0]) / batch,
		.x = cuda_vec(n->in[0]),
		.e = cuda_vec(n->in[1]),
		.y = cuda_vec(n->out[0]),
		.target = cuda_data(n->out[1]),
		.t = n->in[2]->data,
		.parts = exec->own,
		.velocity = n->attr.noise.velocity,
		.add_y = jm_node_adds(n, 0),
		.add_target = jm_node_adds(n, 1)};

	(void)err;
	cuda_noise(&p, dev->stream);
	return 0;
}

static int takes_draw(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	return n->in[1]->type == n->in[0]->type && n->out[0]->type == n->in[0]->type
		       ? 0
		       : cuda_no_types(n, err);
}

static int run_draw(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	int64_t batch = n->out[0]->dim[0];
	const struct cuda_draw p = {.batch = batch,
		.each = jm_tensor_count(n->out[0]) / batch,
		.moments = cuda_vec(n->in[0]),
		.e = cuda_vec(n->in[1]),
		.y = cuda_vec(n->out[0]),
		.factor = (float)n->attr.draw.factor,
		.least = (float)JM_LOG_VAR_LEAST,
		.most = (float)JM_LOG_VAR_MOST,
		.accumulate = jm_node_adds(n, 0)};

	(void)err;
	cuda_draw(&p, dev->stream);
	return 0;
}

static int run_waves(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct cuda_waves p = {.batch = n->out[0]->dim[0],
		.width = n->out[0]->dim[1],
		.t = n->in[0]->data,
		.y = cuda_vec(n->out[0]),
		.accumulate = jm_node_adds(n, 0)};

	(void)err;
	cuda_waves(&p, dev->stream);
	return 0;
}

static int run_colours(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_colours p = {.planes = 3 * n->in[0]->dim[0],
		.each = n->in[0]->dim[2] * n->in[0]->dim[3],
		.x = n->in[0]->data,
		.y = cuda_vec(n->out[0]),
		.accumulate = jm_node_adds(n, 0)};

	(void)err;
	memcpy(p.factor, n->attr.colours.factor, sizeof(p.factor));
	memcpy(p.shift, n->attr.colours.shift, sizeof(p.shift));
	cuda_colours(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_noise[] = {
	{{JM_OP_ADD_NOISE}, 1, takes_noise, NULL, NULL, build_noise, run_noise, drop_noise},
	{{JM_OP_DRAW_MOMENTS}, 1, takes_draw, NULL, NULL, NULL, run_draw, NULL},
	{{JM_OP_STEP_WAVES}, 1, NULL, NULL, NULL, NULL, run_waves, NULL},
	{{JM_OP_COLOURS}, 1, NULL, NULL, NULL, NULL, run_colours, NULL},
	{.n_nodes = 0},
};
