/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on sequences of tokens other than products and attention: turns nodes into arguments of
 * tokens.cu and wanted_rows.cu. */
#include <math.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/wanted_rows.h"
#include "op_rows.h"

#define ALIGN ((size_t)256)

/* ---- embed ----------------------------------------------------------------------------------- */

static int takes_embed(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	return n->in[2] && n->in[2]->type != n->in[1]->type ? cuda_no_types(n, err) : 0;
}

static int run_embed(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_embed p = {
		.tokens = jm_tensor_count(n->in[0]),
		.seq = jm_tensor_width(n->in[0]),
		.width = jm_tensor_width(n->out[0]),
		.ids = n->in[0]->data,
		.table = cuda_vec(n->in[1]),
		.pos = cuda_vec(n->in[2]),
		.y = cuda_vec(n->out[0]),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	cuda_embed(&p, dev->stream);
	return 0;
}

/* Gradients of parameters are f32, or bf16 for parameters without f32 masters. */
static int takes_gradients(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	for (int i = n->op == JM_OP_TOKENS_GRAD; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->type != JM_F32 && n->out[i]->type != JM_BF16)
			return cuda_no_types(n, err);
	return 0;
}

/* Scratch holds the order of the tokens, then the parts of sums. */
static size_t order_bytes(const struct jm_node *n)
{
	size_t bytes = (size_t)jm_tensor_count(n->in[0]) * sizeof(int32_t);

	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t scratch_embed_grad(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct jm_node *n = group->node[0];
	int64_t blocks = (jm_tensor_count(n->in[0]) + CUDA_EMBED_RANKS - 1) / CUDA_EMBED_RANKS;

	(void)dev;
	return order_bytes(n) + (size_t)(2 * blocks * jm_tensor_width(n->out[0])) * sizeof(float);
}

/* Sums x over the batch into the first rows of y; the other rows become 0. */
static void sum_batch(struct cuda_dev *dev, const struct jm_tensor *x, int64_t rows,
	const struct jm_tensor *y, bool add)
{
	struct cuda_batch_sum p = {
		.batch = x->dim[0],
		.seq = x->dim[1],
		.rows = rows,
		.width = jm_tensor_width(x),
		.x = cuda_vec(x),
		.y = cuda_vec(y),
		.accumulate = add,
	};
	size_t done = (size_t)(rows * p.width) * jm_dtype_bytes(y->type);

	cuda_batch_sum(&p, dev->stream);
	if (!add && y->bytes > done)
		cudaMemsetAsync((char *)y->data + done, 0, y->bytes - done, dev->stream);
}

static int run_embed_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_embed_grad p = {
		.tokens = jm_tensor_count(n->in[0]),
		.width = jm_tensor_width(n->out[0]),
		.rows = n->out[0]->dim[0],
		.ids = n->in[0]->data,
		.dy = cuda_vec(n->in[1]),
		.dtable = cuda_vec(n->out[0]),
		.add_table = jm_node_adds(n, 0),
		.order = exec->scratch,
		.parts = (float *)((char *)exec->scratch + order_bytes(n)),
	};

	(void)err;
	cuda_embed_grad(&p, dev->stream);
	if (n->out[1])
		sum_batch(dev, n->in[1], n->in[1]->dim[1], n->out[1], jm_node_adds(n, 1));
	return 0;
}

/* ---- images to sequences, the first token of each sequence ----------------------------------- */

static const struct jm_layout channels_last = {.rank = 4, .order = {0, 2, 3, 1}};

static const struct jm_tensor *image_of(const struct jm_node *n)
{
	return n->op == JM_OP_TOKENS ? n->in[0] : n->out[0];
}

static int takes_tokens(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	const struct jm_tensor *x = image_of(n), *y = n->op == JM_OP_TOKENS ? n->out[0] : n->in[0];

	if (x->type != y->type && y->type != JM_F32)
		return cuda_no_types(n, err);
	for (int i = 1; i < n->n_in; i++)
		if (n->in[i] && n->in[i]->type != JM_F32)
			return cuda_no_types(n, err);
	return n->op == JM_OP_TOKENS ? 0 : takes_gradients(dev, group, err);
}

static int choices_tokens(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	bool grad = group->node[0]->op == JM_OP_TOKENS_GRAD;

	(void)dev;
	(void)err;
	for (int i = 0; i < 2; i++)
		choice[i].seconds = choice[i].flops_executed = NAN;
	*(grad ? &choice[0].out[0][0] : &choice[0].in[0][0]) = channels_last;
	return 2;
}

static int run_tokens(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *x = image_of(n);
	bool grad = n->op == JM_OP_TOKENS_GRAD, last = x->layout.rank != 0;
	const struct jm_tensor *y = grad ? n->in[0] : n->out[0];
	int64_t plane = x->dim[2] * x->dim[3];
	struct cuda_tokens p = {
		.batch = x->dim[0],
		.seq = y->dim[1],
		.width = y->dim[2],
		.image = x->dim[1] * plane,
		.channel = last ? 1 : plane,
		.pixel = last ? x->dim[1] : 1,
		.behind = (int)(y->dim[1] - plane),
		.x = cuda_vec(x),
		.y = cuda_vec(y),
		.first = grad ? NULL : cuda_data(n->in[1]),
		.pos = grad ? NULL : cuda_data(n->in[2]),
		.grad = grad,
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	if (n->in[0]->data == n->out[0]->data) /* in place */
		return 0;
	cuda_tokens(&p, dev->stream);
	if (grad && n->out[1])
		sum_batch(dev, y, 1, n->out[1], jm_node_adds(n, 1));
	if (grad && n->out[2])
		sum_batch(dev, y, y->dim[1], n->out[2], jm_node_adds(n, 2));
	return 0;
}

static int takes_alike(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	return n->in[0]->type == n->out[0]->type ? 0 : cuda_no_types(n, err);
}

static int run_first(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	bool grad = n->op == JM_OP_FIRST_GRAD;
	const struct jm_tensor *x = grad ? n->out[0] : n->in[0], *y = grad ? n->in[0] : n->out[0];
	struct cuda_first p = {
		.batch = x->dim[0],
		.seq = x->dim[1],
		.width = x->dim[2],
		.x = cuda_vec(x),
		.y = cuda_vec(y),
		.grad = grad,
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	cuda_first(&p, dev->stream);
	return 0;
}

/* ---- rows in place of others ----------------------------------------------------------------- */

static int takes_put(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool grad = n->op == JM_OP_PUT_ROWS_GRAD;
	const struct jm_tensor *x = n->in[0], *rows = grad ? n->out[1] : n->in[1];

	(void)dev;
	if (x->type != n->out[0]->type ||
		(rows && rows->type != x->type && rows->type != JM_F32 && x->type != JM_F32))
		return cuda_no_types(n, err);
	return 0;
}

static int run_put(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	bool grad = n->op == JM_OP_PUT_ROWS_GRAD;
	const struct jm_tensor *x = grad ? n->out[0] : n->in[0];
	struct cuda_put p = {
		.batch = x->dim[0],
		.seq = x->dim[1],
		.places = n->attr.put.places,
		.width = x->dim[2],
		.at = n->in[grad ? 1 : 2]->data,
		.x = cuda_vec(x),
		.rows = cuda_vec(grad ? n->out[1] : n->in[1]),
		.y = cuda_vec(grad ? n->in[0] : n->out[0]),
		.grad = grad,
		.accumulate = jm_node_adds(n, 0),
		.add_rows = jm_node_adds(n, 1),
	};

	(void)err;
	cuda_put(&p, dev->stream);
	return 0;
}

/* ---- rows of which the loss has a target ----------------------------------------------------- */

static int run_spread(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_spread_rows p = {
		.n = n->in[0]->dim[0],
		.all = jm_tensor_rows(n->out[0]),
		.width = jm_tensor_width(n->out[0]),
		.at = n->in[1]->data,
		.x = cuda_vec(n->out[0]),
		.y = cuda_vec(n->in[0]),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	cuda_spread_rows(&p, dev->stream);
	return 0;
}

static int run_wanted(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_wanted_rows p = {
		.rows = (int)jm_tensor_count(n->in[0]),
		.most = (int)n->out[0]->dim[0],
		.target = n->in[0]->data,
		.at = n->out[0]->data,
		.wanted = n->out[1]->data,
	};

	(void)err;
	cuda_wanted_rows(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_tokens[] = {
	{{JM_OP_EMBED}, 1, takes_embed, NULL, NULL, NULL, run_embed, NULL},
	{{JM_OP_EMBED_GRAD}, 1, takes_gradients, NULL, scratch_embed_grad, NULL, run_embed_grad,
		NULL},
	{{JM_OP_TOKENS}, 1, takes_tokens, choices_tokens, NULL, NULL, run_tokens, NULL},
	{{JM_OP_TOKENS_GRAD}, 1, takes_tokens, choices_tokens, NULL, NULL, run_tokens, NULL},
	{{JM_OP_FIRST}, 1, takes_alike, NULL, NULL, NULL, run_first, NULL},
	{{JM_OP_FIRST_GRAD}, 1, takes_alike, NULL, NULL, NULL, run_first, NULL},
	{{JM_OP_PUT_ROWS}, 1, takes_put, NULL, NULL, NULL, run_put, NULL},
	{{JM_OP_PUT_ROWS_GRAD}, 1, takes_put, NULL, NULL, NULL, run_put, NULL},
	{{JM_OP_ROWS_GRAD}, 1, takes_alike, NULL, NULL, NULL, run_spread, NULL},
	{{JM_OP_WANTED_ROWS}, 1, NULL, NULL, NULL, NULL, run_wanted, NULL},
	{.n_nodes = 0},
};
