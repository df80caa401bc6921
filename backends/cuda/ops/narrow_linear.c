/* SPDX-License-Identifier: Apache-2.0 */
/* linear-wgrad of narrow layers with many rows in f32, for which cuBLASLt reads its operands at a
 * small share of the rate of memory. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/kernels/kernels.h"
#include "op_rows.h"

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	if (n->math != JM_MATH_F32 || n->in[0]->type != JM_F32 || n->in[1]->type != JM_F32 ||
		n->out[0]->type != JM_F32 ||
		!cuda_narrow_grad_knows(jm_tensor_rows(n->in[0]), jm_tensor_width(n->in[1]),
			jm_tensor_width(n->in[0])))
		return cuda_no_types(n, err);
	return 0;
}

static int parts_of(const struct cuda_dev *dev, const struct jm_node *n)
{
	return cuda_narrow_grad_parts(dev->prop.multiProcessorCount, jm_tensor_rows(n->in[0]));
}

/* Only activations may have padded rows. */
static int choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	int64_t each = jm_tensor_width(n->in[0]) * (jm_tensor_width(n->in[1]) + 1);

	(void)err;
	for (int i = 0; i < 2; i++)
		if (n->in[i]->class == JM_CLASS_ACT)
			cuda_rows_layout(n->in[i], &choice->in[0][i]);
	choice->scratch = (size_t)(parts_of(dev, n) * each) * sizeof(float);
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct cuda_narrow_grad p = {
		.rows = jm_tensor_rows(n->in[0]),
		.dy_stride = cuda_row_stride(n->in[0]),
		.x_stride = cuda_row_stride(n->in[1]),
		.from = (int)jm_tensor_width(n->in[1]),
		.to = (int)jm_tensor_width(n->in[0]),
		.dy = n->in[0]->data,
		.x = n->in[1]->data,
		.dw = n->out[0]->data,
		.db = n->out[1] ? n->out[1]->data : NULL,
		.add_dw = jm_node_adds(n, 0),
		.add_db = n->out[1] && jm_node_adds(n, 1),
		.parts = parts_of(dev, n),
		.partial = exec->scratch,
	};

	(void)err;
	cuda_narrow_grad(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_narrow_linear[] = {
	{{JM_OP_LINEAR_WGRAD}, 1, takes, choices, NULL, NULL, run, NULL},
	{.n_nodes = 0},
};
