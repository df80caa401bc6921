/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of serving: keys and values in pages, rows by number, the next token. */
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/device/cpu.h"
#include "draw.h"
#include "ops_quantize.h"

#define CODES 256 /* of e4m3 */

/* Keys and values may be in e4m3. */
static bool has_f8_cache(const struct jm_node *n)
{
	return n->n_in > 5 && cpu_is_f8(n->in[4]) && cpu_is_f8(n->in[5]);
}

/* All other operands that are no numbers of rows have one type. */
static int takes(const struct cpu_dev *dev, const struct jm_node *n, struct jm_err *err)
{
	bool paged = n->op == JM_OP_CACHE_WRITE || n->op == JM_OP_ATTENTION_PAGES;
	int last = !paged ? 0 : has_f8_cache(n) ? 3 : 5;

	(void)dev;
	for (int i = 1; i <= last; i++)
		if (n->in[i]->type != n->in[0]->type && n->in[i]->type != JM_I32)
			return jm_err_set(err, JM_ENOSUP, "Backend cpu has no %s of %s with %s.",
				jm_op_name(n->op), jm_dtype_name(n->in[0]->type),
				jm_dtype_name(n->in[i]->type));
	if (n->out[0]->type != n->in[0]->type && n->out[0]->type != JM_I32)
		return jm_err_set(err, JM_ENOSUP, "Backend cpu has no %s of %s into %s.",
			jm_op_name(n->op), jm_dtype_name(n->in[0]->type),
			jm_dtype_name(n->out[0]->type));
	if (n->accumulate)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cpu cannot add to its result.",
			jm_op_name(n->op));
	return 0;
}

static struct cpu_paged paged_of(const struct jm_node *n)
{
	const struct jm_tensor *page = n->in[3], *keys = n->in[4];

	return (struct cpu_paged){
		.bf16 = n->in[0]->type == JM_BF16,
		.f8 = has_f8_cache(n),
		.tokens = jm_tensor_rows(n->in[0]),
		.pages_each = page->dim[1],
		.slots = keys->dim[1],
		.heads = n->attr.pages.heads,
		.groups = n->attr.pages.kv_heads,
		.head = keys->dim[3],
		.scale = n->attr.pages.scale,
		.position = n->in[1]->data,
		.request = n->in[2]->data,
		.page = page->data,
		.x = n->in[0]->data,
		.keys = keys->data,
		.values = n->in[5]->data,
		.y = n->out[0]->data,
	};
}

/* exec->own holds the speeds of the pairs, f64 [D/2]. */
static int build_write(const struct cpu_dev *dev, struct cpu_exec *exec, struct jm_err *err)
{
	int64_t head = exec->node->in[4]->dim[3];
	double *speed = malloc((size_t)(head / 2) * sizeof *speed);

	(void)dev;
	if (!speed)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the angles of rope.");
	for (int64_t i = 0; i < head / 2; i++)
		speed[i] = jm_rotary_speed(&exec->node->attr.pages.rotary, i, head);
	exec->own = speed;
	return 0;
}

static void drop_write(struct cpu_exec *exec)
{
	free(exec->own);
	exec->own = NULL;
}

static int run_write(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	struct cpu_paged p = paged_of(exec->node);

	(void)err;
	p.speed = exec->own;
	dev->kernels->pages->write(&p, dev->threads);
	return 0;
}

static size_t scratch_attention(const struct cpu_dev *dev, const struct jm_node *n)
{
	struct cpu_paged p = paged_of(n);

	return dev->kernels->pages->scratch(&p, dev->threads);
}

static int run_attention(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	struct cpu_paged p = paged_of(exec->node);
	float code[CODES];

	(void)err;
	for (int i = 0; p.f8 && i < CODES; i++)
		code[i] = (float)jm_element_get(JM_F8E4M3, &(uint8_t){(uint8_t)i}, 0);
	p.code = code;
	p.scratch = exec->scratch;
	dev->kernels->pages->attention(&p, dev->threads);
	return 0;
}

static int run_rows(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	size_t width = n->out[0]->bytes / (size_t)n->out[0]->dim[0];
	const int32_t *at = n->in[1]->data;
	const char *x = n->in[0]->data;
	char *y = n->out[0]->data;

	(void)dev;
	(void)err;
	for (size_t r = 0; r < (size_t)n->out[0]->dim[0]; r++)
		memcpy(y + r * width, x + (size_t)at[r] * width, width);
	return 0;
}

static int run_rows_grad(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	struct cpu_spread_rows p = {
		.n = n->in[0]->dim[0],
		.all = jm_tensor_rows(n->out[0]),
		.width = jm_tensor_width(n->out[0]),
		.at = n->in[1]->data,
		.x = cpu_vec(n->out[0]),
		.y = cpu_vec(n->in[0]),
		.accumulate = jm_node_adds(n, 0),
	};

	(void)err;
	dev->kernels->sequences->spread_rows(&p, dev->threads);
	return 0;
}

static int run_wanted_rows(
	const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	int64_t rows = jm_tensor_count(n->in[0]), most = n->out[0]->dim[0], made = 0;
	const int32_t *target = n->in[0]->data;
	int32_t *at = n->out[0]->data, *wanted = n->out[1]->data;

	(void)dev;
	(void)err;
	for (int round = 0; round < 2; round++)
		for (int64_t i = 0; i < rows && made < most; i++)
			if ((target[i] < 0) == round) {
				at[made] = (int32_t)i;
				wanted[made++] = target[i];
			}
	return 0;
}

static int run_made_ids(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	const int32_t *id = n->in[0]->data, *token = n->in[1]->data;
	int32_t *y = n->out[0]->data;

	(void)dev;
	(void)err;
	for (int64_t i = 0; i < jm_tensor_count(n->in[0]); i++)
		y[i] = id[i] < 0 ? token[-1 - id[i]] : id[i];
	return 0;
}

static int32_t largest(const float *x, int64_t n)
{
	int64_t best = 0;

	for (int64_t i = 1; i < n; i++)
		best = x[i] > x[best] ? i : best;
	return (int32_t)best;
}

static int32_t one_of(const struct jm_node *n, int64_t row, const float *x, int64_t classes)
{
	const float *rule = n->in[1] ? (const float *)n->in[1]->data + 3 * row : NULL;
	const int32_t *draw = n->in[1] ? (const int32_t *)n->in[2]->data + 2 * row : NULL;

	if (!rule || !(rule[0] > 0))
		return largest(x, classes);
	return cpu_draw(x, classes, rule, (uint32_t)draw[0] | (uint64_t)(uint32_t)draw[1] << 32);
}

static size_t scratch_sample(const struct cpu_dev *dev, const struct jm_node *n)
{
	(void)dev;
	return n->in[0]->type == JM_BF16 ? (size_t)jm_tensor_width(n->in[0]) * sizeof(float) : 0;
}

/* A row of logits in f32. */
static const float *logits_of(const struct cpu_exec *exec, int64_t row)
{
	const struct jm_tensor *x = exec->node->in[0];
	int64_t width = jm_tensor_width(x);
	const uint16_t *from = (const uint16_t *)x->data + row * width;
	float *to = exec->scratch;

	if (x->type == JM_F32)
		return (const float *)x->data + row * width;
	for (int64_t i = 0; i < width; i++)
		to[i] = jm_bf16_get(from[i]);
	return to;
}

static int run_sample(const struct cpu_dev *dev, const struct cpu_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = exec->node;
	int64_t width = jm_tensor_width(n->in[0]), classes = n->attr.xent.classes;
	int32_t *token = n->out[0]->data;

	(void)dev;
	(void)err;
	for (int64_t r = 0; r < n->in[0]->dim[0]; r++)
		token[r] = one_of(n, r, logits_of(exec, r), classes ? classes : width);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct cpu_op cpu_ops_pages[] = {
	{{JM_OP_CACHE_WRITE}, 1, takes, NULL, build_write, run_write, drop_write},
	{{JM_OP_ATTENTION_PAGES}, 1, takes, scratch_attention, NULL, run_attention, NULL},
	{{JM_OP_ROWS}, 1, takes, NULL, NULL, run_rows, NULL},
	{{JM_OP_ROWS_GRAD}, 1, takes, NULL, NULL, run_rows_grad, NULL},
	{{JM_OP_WANTED_ROWS}, 1, takes, NULL, NULL, run_wanted_rows, NULL},
	{{JM_OP_MADE_IDS}, 1, takes, NULL, NULL, run_made_ids, NULL},
	{{JM_OP_SAMPLE}, 1, takes, scratch_sample, NULL, run_sample, NULL},
	{.n_nodes = 0},
};
