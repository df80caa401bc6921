/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with heads of 512, without gradients, by one kernel of compute capability 9.0
 * (attention_512.cu). */
#include <stdlib.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/attention/attention_512.h"
#include "op_rows.h"

#define BOX 64 /* rows and columns; values have fewer rows */

/* Rows of a multiple of 16 bytes, heads side by side. */
static bool fits(const struct jm_view *v)
{
	return v->offset % 8 == 0 && v->batch % 8 == 0 && v->row % 8 == 0 &&
	       v->head == CUDA_ATTENTION_512;
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool all = n->attr.attention.depth == CUDA_ATTENTION_512 && !n->attr.attention.causal &&
		   n->attr.attention.scale > 0 && !n->in[3] && !n->accumulate &&
		   n->out[0]->type != JM_F32 && fits(&n->attr.attention.q) &&
		   fits(&n->attr.attention.k) && fits(&n->attr.attention.v);

	for (int i = 0; i < 3; i++)
		all = all && n->in[i]->type == n->out[0]->type;
	return all && cuda_is_hopper(dev) && cuda_tensor_map_exist() ? 0 : cuda_no_types(n, err);
}

static bool describe(const struct jm_node *n, const struct jm_tensor *t, const struct jm_view *v,
	int64_t heads, int64_t rows, int box, struct cuda_tensor_map *ret)
{
	const struct cuda_tensor_map_shape boxes = {.rank = 3,
		.dim = {heads * CUDA_ATTENTION_512, rows, n->out[0]->dim[0]},
		.step = {0, v->row, v->batch},
		.box = {BOX, box, 1}};

	return cuda_tensor_map_describe(
		&boxes, (char *)t->data + v->offset * (int64_t)sizeof(uint16_t), ret);
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const int64_t heads = n->attr.attention.heads, groups = n->attr.attention.kv_heads,
		      seq = n->out[0]->dim[1], keys = n->attr.attention.keys;
	struct cuda_attention_512 *p = exec->own = calloc(1, sizeof *p);

	(void)dev;
	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");
	*p = (struct cuda_attention_512){.batch = (int)n->out[0]->dim[0],
		.seq = (int)seq,
		.keys = (int)keys,
		.heads = (int)heads,
		.groups = (int)groups,
		.type = cuda_type_of(n->out[0]->type),
		.scale = (float)n->attr.attention.scale,
		.y = n->out[0]->data,
		.lse = n->out[1]->data};
	if (describe(n, n->in[0], &n->attr.attention.q, heads, seq, BOX, &p->boxes[0]) &&
		describe(n, n->in[1], &n->attr.attention.k, groups, keys, BOX, &p->boxes[1]) &&
		describe(n, n->in[2], &n->attr.attention.v, groups, keys, CUDA_ATTENTION_512_VALUES,
			&p->boxes[2]))
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"The driver does not describe the operands of attention for copies by boxes.");
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	(void)err;
	cuda_attention_512(exec->own, dev->stream);
	return 0;
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	(void)dev;
	free(exec->own);
}

const struct cuda_op cuda_ops_attention_512[] = {
	{{JM_OP_ATTENTION}, 1, takes, NULL, NULL, build, run, drop},
	{.n_nodes = 0},
};
