/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of serving: turns nodes into arguments of pages.cu and few_rows.cu. */
#include <stdlib.h>

#include "backends/cuda/device/gpu.h"
#include "ops_quantize.h"
#include "op_rows.h"
#include "ops_rope.h"

#include "backends/cuda/kernels/few_rows.h"

/* ---- keys and values in pages ---------------------------------------------------------------- */

static struct cuda_pages pages_of(const struct jm_node *n)
{
	const struct jm_tensor *keys = n->in[4];

	return (struct cuda_pages){
		.rows = jm_tensor_rows(n->in[0]),
		.each = n->in[3]->dim[1],
		.f8 = keys->type == JM_F8E4M3,
		.heads = n->attr.pages.heads,
		.groups = n->attr.pages.kv_heads,
		.depth = (int)keys->dim[3],
		.slots = (int)keys->dim[1],
		.scale = (float)n->attr.pages.scale,
		.position = n->in[1]->data,
		.request = n->in[2]->data,
		.page = n->in[3]->data,
		.late = n->in[1]->class == JM_CLASS_ACT || n->in[2]->class == JM_CLASS_ACT,
		.keys = cuda_vec(keys),
		.values = cuda_vec(n->in[5]),
		.splits = 1,
	};
}

static int takes_pages(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	enum jm_dtype type = n->in[0]->type, kept = n->in[4]->type;
	int64_t depth = n->in[4]->dim[3];

	(void)dev;
	if (type != n->out[0]->type || (kept != type && kept != JM_F8E4M3) ||
		kept != n->in[5]->type || depth % 2 || depth > CUDA_ATTENTION_WIDEST)
		return cuda_no_types(n, err);
	return 0;
}

static int run_cache_write(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_pages p = pages_of(n);
	int code;

	p.x = cuda_vec(n->in[0]);
	p.q = cuda_vec(n->out[0]);
	p.positions = p.each * p.slots;
	code = cuda_angles_of(dev, p.positions, p.depth / 2, &n->attr.pages.rotary, &p.angles, err);
	if (!code)
		cuda_cache_write(&p, dev->stream);
	return code;
}

/* The angles are made before a step is recorded. */
static int build_cache_write(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_pages p = pages_of(&exec->node[0]);

	return cuda_angles_of(dev, p.each * p.slots, p.depth / 2, &exec->node[0].attr.pages.rotary,
		&p.angles, err);
}

static struct cuda_pages attention_of(struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_pages p = pages_of(n);

	p.q = cuda_vec(n->in[0]);
	p.y = cuda_vec(n->out[0]);
	p.splits = cuda_pages_splits(dev->prop.multiProcessorCount, &p);
	return p;
}

static size_t scratch_attention(struct cuda_dev *dev, const struct jm_group *group)
{
	struct cuda_pages p = attention_of(dev, group->node[0]);

	return cuda_pages_parts(&p);
}

/* columns: in units of 2 bytes. */
static bool describe(
	const void *data, int64_t columns, int64_t rows, int box_rows, struct cuda_tensor_map *ret)
{
	const struct cuda_tensor_map_shape boxes = {
		.rank = 3, .dim = {columns, rows, 1}, .box = {64, box_rows, 1}};

	return cuda_tensor_map_describe(&boxes, data, ret);
}

/* exec->own: NULL = runs of many rows are not computed by boxes. */
static int build_attention(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_pages p = attention_of(dev, n);
	int64_t slots = n->in[4]->dim[0] * p.slots, width = (int64_t)p.groups * p.depth;
	struct cuda_page_boxes *boxes;

	if (!cuda_is_hopper(dev) || !cuda_tensor_map_exist() || !cuda_pages_runs(&p))
		return 0;
	boxes = aligned_alloc(64, sizeof *boxes);
	if (!boxes)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention over pages.");
	if (describe(p.q.data, (int64_t)p.heads * p.depth, p.rows, CUDA_PAGES_RUN, &boxes->q) &&
		describe(p.keys.data, p.f8 ? width / 2 : width, slots, p.slots, &boxes->keys) &&
		(p.f8 || describe(p.values.data, width, slots, p.slots, &boxes->values)))
		exec->own = boxes;
	else
		free(boxes);
	return 0;
}

static int run_attention(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_pages p = attention_of(dev, &exec->node[0]);

	(void)err;
	p.parts = exec->scratch;
	cuda_attention_pages(&p, exec->own, dev->stream);
	return 0;
}

static void drop_attention(struct cuda_dev *dev, struct cuda_exec *exec)
{
	(void)dev;
	free(exec->own);
}

/* ---- rows by number, the next token ---------------------------------------------------------- */

static int takes_rows(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	return n->in[0]->type == n->out[0]->type ? 0 : cuda_no_types(n, err);
}

static int run_rows(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_rows p = {.rows = n->out[0]->dim[0],
		.width = jm_tensor_count(n->out[0]) / n->out[0]->dim[0],
		.at = n->in[1]->data,
		.x = cuda_vec(n->in[0]),
		.y = cuda_vec(n->out[0])};

	(void)err;
	cuda_rows(&p, dev->stream);
	return 0;
}

static int run_made_ids(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];

	(void)err;
	cuda_made_ids(jm_tensor_count(n->in[0]), n->in[0]->data, n->in[1]->data, n->out[0]->data,
		dev->stream);
	return 0;
}

static int run_sample(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_sample p = {.rows = n->in[0]->dim[0],
		.width = jm_tensor_width(n->in[0]),
		.logits = cuda_vec(n->in[0]),
		.rule = n->in[1] ? n->in[1]->data : NULL,
		.draw = n->in[1] ? n->in[2]->data : NULL,
		.token = n->out[0]->data};

	(void)err;
	p.classes = (int)(n->attr.xent.classes ? n->attr.xent.classes : p.width);
	cuda_sample(&p, dev->stream);
	return 0;
}

/* ---- products of few rows -------------------------------------------------------------------- */

static struct cuda_few_rows few_rows_of(const struct jm_node *n)
{
	return (struct cuda_few_rows){.rows = (int)jm_tensor_rows(n->in[0]),
		.from = (int)jm_tensor_width(n->in[0]),
		.to = (int)jm_tensor_width(n->out[0]),
		.x = cuda_vec(n->in[0]),
		.w = cuda_vec(n->in[1]),
		.y = cuda_vec(n->out[0]),
		.xs = cuda_data(n->in[3]),
		.ws = cuda_data(n->in[4]),
		/* a step writes parameters after all that reads them, and no inputs; copies of
		 * parameters are made before */
		.w_stays = n->in[1]->class == JM_CLASS_PARAM || n->in[1]->class == JM_CLASS_INPUT};
}

static int takes_few_rows(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	enum jm_dtype type = n->in[0]->type, made = n->out[0]->type;
	struct cuda_few_rows p = few_rows_of(n);
	float factors;
	bool scaled = cuda_scales_rows(n) && type == JM_F8E4M3 && cuda_has_f8(dev);

	p.ws = scaled ? &factors : NULL; /* not NULL: present; the address is not used */
	if ((made != JM_BF16 && made != JM_F16) || n->in[1]->type != type ||
		(made != type && !scaled) || n->in[2] || jm_node_adds(n, 0) ||
		!cuda_few_rows_knows(&p))
		return cuda_no_types(n, err);
	return 0;
}

static int run_few_rows(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_few_rows p = few_rows_of(&exec->node[0]);

	(void)err;
	cuda_few_rows(&p, dev->stream);
	return 0;
}

/* A product, and swiglu of it. */
static struct cuda_few_held held_of(
	const struct cuda_dev *dev, const struct jm_node *n, const struct jm_node *gated)
{
	struct cuda_few_held p = {.of = few_rows_of(n),
		.processors = dev->prop.major >= 9 ? dev->prop.multiProcessorCount : 0,
		.gated = gated};

	if (gated)
		p.of.y = cuda_vec(gated->out[0]);
	return p;
}

static int takes_few_held(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0],
			     *gated = group->n_nodes > 1 ? group->node[1] : NULL;
	struct cuda_few_held p = held_of(dev, n, gated);
	int code = takes_few_rows(dev, group, err);

	if (!code && (n->in[1]->type == JM_F8E4M3 || !cuda_few_held_knows(&p) ||
			     (gated && (!n->out[0]->is_virtual || jm_node_adds(gated, 0) ||
					       gated->out[0]->type != n->out[0]->type))))
		code = cuda_no_types(n, err);
	return code;
}

static int run_few_held(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_few_held p =
		held_of(dev, &exec->node[0], exec->n_nodes > 1 ? &exec->node[1] : NULL);

	(void)err;
	cuda_few_held(&p, dev->stream);
	return 0;
}

const struct cuda_op cuda_ops_pages[] = {
	{{JM_OP_LINEAR, JM_OP_SWIGLU}, 2, takes_few_held, NULL, NULL, NULL, run_few_held, NULL},
	{{JM_OP_LINEAR}, 1, takes_few_held, NULL, NULL, NULL, run_few_held, NULL},
	{{JM_OP_LINEAR}, 1, takes_few_rows, NULL, NULL, NULL, run_few_rows, NULL},
	{{JM_OP_CACHE_WRITE}, 1, takes_pages, NULL, NULL, build_cache_write, run_cache_write, NULL},
	{{JM_OP_ATTENTION_PAGES}, 1, takes_pages, NULL, scratch_attention, build_attention,
		run_attention, drop_attention},
	{{JM_OP_ROWS}, 1, takes_rows, NULL, NULL, NULL, run_rows, NULL},
	{{JM_OP_MADE_IDS}, 1, NULL, NULL, NULL, NULL, run_made_ids, NULL},
	{{JM_OP_SAMPLE}, 1, NULL, NULL, NULL, NULL, run_sample, NULL},
	{.n_nodes = 0},
};
