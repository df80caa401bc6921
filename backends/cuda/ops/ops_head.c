/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a network over a large vocabulary: logits, their loss and the gradients of both
 * factors are computed for one chunk of rows at a time, so that memory never holds all logits. Each
 * chunk runs the ops of ops_linear.c and loss.cu on its part of the tensors. The order of the
 * chunks, and so every bit of the result, is always the same.
 */
#include <math.h>
#include <stdlib.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"
#include "op_rows.h"

#define ROW_STEP    128 /* the rows of a chunk are a multiple of this */
#define CHUNKS_MOST 64

enum { LOGITS, LOSS, WEIGHTS, DATA };

struct chunk {
	int64_t first, rows;
	struct jm_tensor x, logits, dx;
	struct cuda_exec logits_of, weights_of, data_of;
};

struct head {
	int n;
	struct chunk chunk[CHUNKS_MOST];
};

static int64_t rows_of(const struct jm_node *n)
{
	return jm_tensor_rows(n[LOGITS].in[0]);
}

/* The logits of a chunk in scratch, with padded rows where the products need them. */
static struct jm_tensor chunk_of_logits(const struct jm_node *n, int64_t rows)
{
	struct jm_tensor t = *n[LOGITS].out[0];

	t.rank = 2;
	t.dim[1] = jm_tensor_width(n[LOGITS].out[0]);
	t.dim[0] = rows;
	t.is_virtual = false;
	cuda_rows_layout(&t, &t.layout);
	t.bytes = jm_layout_bytes(&t, &t.layout);
	return t;
}

/* The smallest number of chunks whose logits fit into the bytes that JM_CUDA_LOGITS allows. */
static int64_t parts_by_bytes(const struct cuda_dev *dev, const struct jm_node *n)
{
	size_t each = chunk_of_logits(n, 1).bytes;
	int64_t rows = rows_of(n), parts = 1;

	while (parts < CHUNKS_MOST && (size_t)(rows / parts) * each > dev->logits_bytes)
		parts *= 2;
	return parts;
}

#define COST 0.05 /* of the time of the three products; this is less than 1 % of a step */

/* The largest number of chunks within COST: each one after the first reads and writes the gradient
 * of the weights again. */
static int64_t parts_by_cost(const struct cuda_dev *dev, const struct jm_node *n)
{
	double flops = 3 * n[LOGITS].flops_executed, per_byte = cuda_flops_per_byte(dev);
	double bytes = 2 * (double)jm_tensor_count(n[LOGITS].in[1]) * sizeof(float);
	int64_t parts = 1;

	while (parts < CHUNKS_MOST && (double)(2 * parts - 1) * bytes * per_byte <= COST * flops)
		parts *= 2;
	return parts;
}

/* The number of rows of a chunk; the number of chunks is a power of two. */
static int64_t rows_at_a_time(const struct cuda_dev *dev, const struct jm_node *n)
{
	int64_t rows = rows_of(n);
	int64_t parts = dev->logits_bytes ? parts_by_bytes(dev, n) : parts_by_cost(dev, n);

	return (rows + parts * ROW_STEP - 1) / (parts * ROW_STEP) * ROW_STEP;
}

static bool is_head(const struct jm_node *const *n)
{
	const struct jm_tensor *logits = n[LOGITS]->out[0], *dlogits = n[LOSS]->out[1];

	return n[LOSS]->in[0] == logits && dlogits && n[WEIGHTS]->in[0] == dlogits &&
	       n[DATA]->in[0] == dlogits && n[WEIGHTS]->in[1] == n[LOGITS]->in[0] &&
	       n[DATA]->in[1] == n[LOGITS]->in[1] && logits->is_virtual && dlogits->is_virtual;
}

/* True if the nodes have none of: a bias or its gradient, accumulation in between, scales of 8
 * bits. */
static bool is_plain(const struct jm_node *const *n)
{
	const struct jm_tensor *x = n[LOGITS]->in[0], *w = n[LOGITS]->in[1];
	bool narrow = x->type == JM_BF16 || x->type == JM_F16;

	for (int i = 2; i < n[LOGITS]->n_in; i++)
		if (n[LOGITS]->in[i])
			return false;
	return narrow && w->type == x->type && n[LOGITS]->out[0]->type == x->type &&
	       n[DATA]->out[0]->type == x->type && !n[WEIGHTS]->out[1] && !n[LOGITS]->accumulate &&
	       !jm_node_adds(n[LOSS], 1) && n[LOSS]->out[0]->type == JM_F32 &&
	       (n[WEIGHTS]->out[0]->type == JM_F32 || n[WEIGHTS]->out[0]->type == x->type) &&
	       jm_tensor_width(x) % 8 == 0;
}

static int takes_head(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[LOGITS];

	if (!is_head(group->node) || !is_plain(group->node))
		return jm_err_set(
			err, JM_ENOSUP, "Backend cuda cannot fuse this end of a network.");
	if (rows_at_a_time(dev, n) >= rows_of(n))
		return jm_err_set(
			err, JM_ENOSUP, "These logits are small enough to be kept whole.");
	return 0;
}

static size_t bytes_of_logits(const struct cuda_dev *dev, const struct jm_node *n)
{
	return (chunk_of_logits(n, rows_at_a_time(dev, n)).bytes + 255) / 256 * 256;
}

static int choices_head(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[LOGITS];

	(void)err;
	if (n->in[1]->class == JM_CLASS_COPY) {
		cuda_tall_layout(n->in[1], &choice->in[LOGITS][1]);
		choice->in[DATA][1] = choice->in[LOGITS][1];
	}
	choice->scratch = bytes_of_logits(dev, n) + (size_t)(rows_of(n) + 1) * sizeof(float);
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* The rows of a plain tensor that belong to the chunk. */
static struct jm_tensor part_of(const struct jm_tensor *whole, const struct chunk *c)
{
	struct jm_tensor t = *whole;
	size_t row = (size_t)jm_tensor_width(whole) * jm_dtype_bytes(whole->type);

	t.rank = 2;
	t.dim[1] = jm_tensor_width(whole);
	t.dim[0] = c->rows;
	t.bytes = (size_t)c->rows * row;
	t.data = (char *)whole->data + (size_t)c->first * row;
	return t;
}

/* Builds one of the three products by its row of ops_linear.c. */
static int build_product(
	struct cuda_dev *dev, struct cuda_exec *ret, const struct jm_node *node, struct jm_err *err)
{
	const struct cuda_op *op = cuda_ops_linear;

	while (op->n_nodes && (op->n_nodes != 1 || op->cover[0] != node->op))
		op++;
	*ret = (struct cuda_exec){.op = op, .node = {*node}, .n_nodes = 1};
	return op->build(dev, ret, err);
}

static int build_chunk(
	struct cuda_dev *dev, const struct cuda_exec *exec, struct chunk *c, struct jm_err *err)
{
	struct jm_node node[4];
	int code;

	for (int i = 0; i < 4; i++)
		node[i] = exec->node[i];
	c->x = part_of(node[LOGITS].in[0], c);
	c->dx = part_of(node[DATA].out[0], c);
	c->logits = chunk_of_logits(&exec->node[LOGITS], c->rows);
	c->logits.data = exec->scratch;
	node[LOGITS].in[0] = node[WEIGHTS].in[1] = &c->x;
	node[LOGITS].out[0] = node[WEIGHTS].in[0] = node[DATA].in[0] = &c->logits;
	node[DATA].out[0] = &c->dx;
	node[WEIGHTS].accumulate |= c->first > 0;
	code = build_product(dev, &c->logits_of, &node[LOGITS], err);
	if (!code)
		code = build_product(dev, &c->weights_of, &node[WEIGHTS], err);
	if (!code)
		code = build_product(dev, &c->data_of, &node[DATA], err);
	return code;
}

static int build_head(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	int64_t rows = rows_of(exec->node), each = rows_at_a_time(dev, exec->node);
	struct head *h = exec->own = calloc(1, sizeof *h);
	int code = 0;

	if (!h)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the end of a network.");
	for (int64_t at = 0; at < rows && !code; at += each) {
		struct chunk *c = &h->chunk[h->n++];

		c->first = at;
		c->rows = rows - at < each ? rows - at : each;
		code = build_chunk(dev, exec, c, err);
	}
	return code;
}

static void drop_head(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct head *h = exec->own;

	for (int i = 0; h && i < h->n; i++) {
		struct cuda_exec *part[] = {
			&h->chunk[i].logits_of, &h->chunk[i].weights_of, &h->chunk[i].data_of};

		for (int k = 0; k < 3; k++)
			if (part[k]->op)
				part[k]->op->drop(dev, part[k]);
	}
	free(h);
}

/* In scratch behind the logits: how many rows count, then the losses of all rows. */
static int *counted_of(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	return (int *)(void *)((char *)exec->scratch + bytes_of_logits(dev, exec->node));
}

static void run_loss(struct cuda_dev *dev, const struct cuda_exec *exec, const struct chunk *c)
{
	const struct jm_node *n = &exec->node[LOSS];
	int *counted = counted_of(dev, exec);
	float *losses = (float *)(counted + 1);
	struct cuda_xent p = {
		.rows = c->rows,
		.rows_before = c->first,
		.classes = n->attr.xent.classes ? n->attr.xent.classes : c->logits.dim[1],
		.stride = cuda_row_stride(&c->logits),
		.rows_all = (int)rows_of(exec->node),
		.counted = n->attr.xent.ignores ? counted : NULL,
		.scale = (float)(n->attr.xent.weight * n->attr.xent.scale),
		.weight = (float)n->attr.xent.weight,
		.loss_scale = cuda_data(n->in[2]),
		.logits = cuda_vec(&c->logits),
		.dlogits = cuda_vec(&c->logits),
		.targets = (const int32_t *)n->in[1]->data + c->first,
		.loss = c->first + c->rows == rows_of(exec->node) ? n->out[0]->data : NULL,
		.losses = losses + c->first,
		.add_loss = jm_node_adds(n, 0),
		.clusters = dev->prop.major >= 9,
		.shared_block = dev->prop.sharedMemPerBlockOptin,
	};

	cuda_xent(&p, dev->stream);
}

static int run_head(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct head *h = exec->own;
	const struct jm_node *loss = &exec->node[LOSS];
	int code = 0;

	if (loss->attr.xent.ignores)
		cuda_count_targets(
			loss->in[1]->data, rows_of(exec->node), counted_of(dev, exec), dev->stream);
	for (int i = 0; i < h->n && !code; i++) {
		const struct chunk *c = &h->chunk[i];

		code = c->logits_of.op->run(dev, &c->logits_of, err);
		if (!code)
			run_loss(dev, exec, c);
		if (!code)
			code = c->weights_of.op->run(dev, &c->weights_of, err);
		if (!code)
			code = c->data_of.op->run(dev, &c->data_of, err);
	}
	return code;
}

const struct cuda_op cuda_ops_head[] = {
	{{JM_OP_LINEAR, JM_OP_SOFTMAX_XENT, JM_OP_LINEAR_WGRAD, JM_OP_LINEAR_DGRAD}, 4, takes_head,
		choices_head, NULL, build_head, run_head, drop_head},
	{.n_nodes = 0},
};
