/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with heads that are wider than what cuDNN and attention.cu take, without gradients: the
 * scores of some sequences by one product each, a softmax of their rows in place, and one product
 * each with the values. Of a sequence whose scores are too large, some rows at a time.
 */
#include <stdlib.h>

#include "backends/cuda/device/cuda.h"
#include "backends/cuda/kernels/softmax.h"
#include "gemm.h"
#include "op_rows.h"

#ifndef CUDA_SCORES
#define CUDA_SCORES ((int64_t)64 << 20) /* elements at a time, unless ROWS rows have more */
#endif
#define ROWS  128
#define PITCH 8 /* elements, of which the length of a row in memory is a multiple */

/* The two products and what is between them. */
struct step {
	struct cuda_product *scores, *result;
	struct cuda_softmax softmax;
};

struct wide {
	int n;
	struct step step[];
};

/* What is computed at a time. */
struct part {
	int64_t sequences, rows;
};

static int64_t rows_of(const struct jm_node *n)
{
	return n->out[0]->dim[1];
}

static int64_t pitch_of(const struct jm_node *n)
{
	return (n->attr.attention.keys + PITCH - 1) / PITCH * PITCH;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static struct part largest_part(const struct jm_node *n)
{
	int64_t batch = n->out[0]->dim[0], rows = CUDA_SCORES / pitch_of(n) / ROWS * ROWS;
	int64_t sequences = CUDA_SCORES / (rows_of(n) * pitch_of(n));

	if (sequences)
		return (struct part){least(sequences, batch), rows_of(n)};
	return (struct part){1, least(rows ? rows : ROWS, rows_of(n))};
}

/* cuBLASLt multiplies elements of 16 bits in pairs. */
static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	bool fits = n->attr.attention.depth > CUDA_ATTENTION_WIDEST && !n->in[3] &&
		    !n->accumulate &&
		    (n->out[0]->type == JM_F32 || n->attr.attention.depth % 2 == 0) &&
		    (!n->attr.attention.causal || n->attr.attention.keys == rows_of(n));

	(void)dev;
	for (int i = 0; i < 3; i++)
		fits = fits && n->in[i]->type == n->out[0]->type;
	return fits ? 0 : cuda_no_types(n, err);
}

static size_t scratch(struct cuda_dev *dev, const struct jm_group *group)
{
	const struct jm_node *n = group->node[0];
	struct part p = largest_part(n);

	(void)dev;
	return (size_t)(p.sequences * p.rows * pitch_of(n)) * sizeof(float);
}

/* ---- build ----------------------------------------------------------------------------------- */

/* Where a step begins. */
struct place {
	int64_t sequence, row;
	int head;
};

static void *at(const struct jm_tensor *t, int64_t element)
{
	return (char *)t->data + (size_t)element * jm_dtype_bytes(t->type);
}

/* Rows of a head, which are columns of depth elements for cuBLASLt. */
static struct cuda_matrix rows_of_view(const struct jm_node *n, const struct jm_tensor *t,
	const struct jm_view *v, int64_t first, int64_t rows, int64_t sequence, int64_t head)
{
	int64_t from = v->offset + sequence * v->batch + first * v->row + head * v->head;

	return (struct cuda_matrix){.data = at(t, from),
		.type = t->type,
		.rows = n->attr.attention.depth,
		.columns = rows,
		.stride = v->row,
		.each = v->batch};
}

/* As the first product writes them, or with elements of a type that may be smaller. */
static struct cuda_matrix scores_of(
	const struct jm_node *n, float *scores, enum jm_dtype type, int64_t rows)
{
	int64_t stride = pitch_of(n) * (int64_t)(sizeof *scores / jm_dtype_bytes(type));

	return (struct cuda_matrix){.data = scores,
		.type = type,
		.rows = n->attr.attention.keys,
		.columns = rows,
		.stride = stride,
		.each = rows * stride};
}

static struct cuda_softmax softmax_of(
	const struct jm_node *n, float *scores, const struct place *from, const struct part *part)
{
	int64_t heads = n->attr.attention.heads, seq = rows_of(n);
	float *lse = n->out[1]->data;

	return (struct cuda_softmax){.sequences = part->sequences,
		.rows = part->rows,
		.keys = n->attr.attention.keys,
		.pitch = pitch_of(n),
		.first = from->row,
		.scale = (float)n->attr.attention.scale,
		.causal = n->attr.attention.causal,
		.scores = scores,
		.type = cuda_type_of(n->out[0]->type),
		.lse = lse + (from->sequence * heads + from->head) * seq + from->row,
		.lse_each = heads * seq};
}

static int build_step(struct cuda_dev *dev, const struct jm_node *n, float *scores,
	const struct place *from, const struct part *part, struct step *ret, struct jm_err *err)
{
	int heads = n->attr.attention.heads, group = heads / n->attr.attention.kv_heads;
	int64_t depth = n->attr.attention.depth, keys = n->attr.attention.keys, b = from->sequence;
	const struct jm_view whole = {
		.batch = rows_of(n) * heads * depth, .row = heads * depth, .head = depth};
	struct cuda_gemm product = {.batches = (int32_t)part->sequences,
		.a = rows_of_view(
			n, n->in[1], &n->attr.attention.k, 0, keys, b, from->head / group),
		.b = rows_of_view(
			n, n->in[0], &n->attr.attention.q, from->row, part->rows, b, from->head),
		.d = scores_of(n, scores, JM_F32, part->rows),
		.k = depth};
	int code;

	product.a.transposed = true;
	code = cuda_product_new(dev, &product, &ret->scores, err);
	product.a = rows_of_view(n, n->in[2], &n->attr.attention.v, 0, keys, b, from->head / group);
	product.b = scores_of(n, scores, n->out[0]->type, part->rows);
	product.d = rows_of_view(n, n->out[0], &whole, from->row, part->rows, b, from->head);
	product.k = keys;
	if (!code)
		code = cuda_product_new(dev, &product, &ret->result, err);
	ret->softmax = softmax_of(n, scores, from, part);
	return code;
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct part most = largest_part(n);
	int64_t batch = n->out[0]->dim[0], seq = rows_of(n), heads = n->attr.attention.heads;
	int64_t steps = (batch + most.sequences - 1) / most.sequences *
			((seq + most.rows - 1) / most.rows) * heads;
	struct wide *w = exec->own = calloc(1, sizeof *w + (size_t)steps * sizeof w->step[0]);
	struct place from = {0};
	int code = w ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");

	for (int64_t i = 0; i < steps && !code; i++) {
		struct part part = {least(most.sequences, batch - from.sequence),
			least(most.rows, seq - from.row)};

		w->n++;
		code = build_step(dev, n, exec->scratch, &from, &part, &w->step[i], err);
		from.head = (int)((i + 1) % heads);
		if (!from.head)
			from.row += part.rows;
		if (from.row == seq) {
			from.row = 0;
			from.sequence += part.sequences;
		}
	}
	return code;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct wide *w = exec->own;
	int code = 0;

	for (int i = 0; i < w->n && !code; i++) {
		code = cuda_product_run(dev, w->step[i].scores, err);
		cuda_softmax(&w->step[i].softmax, dev->stream);
		if (!code)
			code = cuda_product_run(dev, w->step[i].result, err);
	}
	return code;
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct wide *w = exec->own;

	for (int i = 0; w && i < w->n; i++) {
		cuda_product_free(dev, w->step[i].scores);
		cuda_product_free(dev, w->step[i].result);
	}
	free(w);
}

const struct cuda_op cuda_ops_attention_wide[] = {
	{{JM_OP_ATTENTION}, 1, takes, NULL, scratch, build, run, drop},
	{.n_nodes = 0},
};
