/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in bf16 or f16 and its gradient: by cuDNN, whose plans are timed, or by own kernels
 * where these take the shape and are faster, or where cuDNN has no plan. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_plans.h"
#include "attention_tiles.h"
#include "backends/cuda/kernels/image_kernels.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/math_library.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "ops_rope.h"
#include "op_rows.h"

#define ALIGN	 ((size_t)256)
#define OPERANDS 16
#define REPEATS	 4

/* A plan bound to memory; cuDNN reads the numbers given by value during the run. */
struct bound {
	struct cuda_rope turn; /* of cuDNN's gradient, in place; x absent: none */
	bool own;	       /* runs by own kernels, as `forward` or `tiles` says */
	struct cuda_attention_forward forward;
	struct cuda_attention_tiles tiles;
	struct dnn_run run;
	float scale, one, floor;
	void *sum; /* memory to clear before the run; NULL = none */
	size_t sum_bytes;
};

/* q, k and v, which are one tensor if they are packed. */
static struct jm_tensor *const *inputs_of(const struct jm_node *n)
{
	return n->in + (n->op == JM_OP_ATTENTION_GRAD);
}

/* Gradient i of q, k and v; of a group with rope-grad, that of what was turned into the packed
 * projection. */
static struct jm_tensor *gradient_of(const struct cuda_exec *exec, int i)
{
	return exec->n_nodes > 1 ? exec->node[1].out[0] : exec->node[0].out[i];
}

/* True if own kernels can run it. */
static bool has_own(
	const struct cuda_dev *dev, const struct cuda_attention_plan *p, const struct jm_node *n)
{
	if (p->backward)
		return cuda_tiles_take(dev, &p->shape);
	return n->attr.attention.scale > 0 && cuda_forward_take(dev, &p->shape);
}

/* ---- select ---------------------------------------------------------------------------------- */

/* Rows of a multiple of 16 bytes, as cuDNN's kernels load them. */
static bool is_aligned(const struct jm_view *v)
{
	return v->offset % 8 == 0 && v->batch % 8 == 0 && v->row % 8 == 0 && v->head % 8 == 0;
}

static bool has_views(const struct jm_node *n, const struct dnn_attention_shape *s)
{
	bool grad = n->op == JM_OP_ATTENTION_GRAD;

	if (jm_attention_is_packed(n))
		return true;
	return !n->in[grad ? 6 : 3] && !s->causal && (!grad || jm_attention_grads_are_whole(n)) &&
	       is_aligned(&n->attr.attention.q) && is_aligned(&n->attr.attention.k) &&
	       is_aligned(&n->attr.attention.v);
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct dnn_attention_shape s = cuda_attention_shape(dev, n);
	const struct cuda_attention_plan *p;

	if (!has_views(n, &s) || n->accumulate || n->in[0]->type == JM_F32 ||
		n->out[0]->type != n->in[0]->type || s.depth % 8 || s.depth > 256)
		return jm_err_set(err, JM_ENOSUP,
			"cuDNN's attention takes bf16 or f16, heads of a width of a multiple of 8 "
			"up to 256, packed in one tensor or, if it is not causal, apart, and "
			"cannot add to its results.");
	p = cuda_attention_plan_of(dev, n);
	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");
	return p->n || has_own(dev, p, n) ? 0 : jm_err_set(err, p->err.code, "%s", p->err.text);
}

static int takes_rope(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *turn = group->node[1];
	int code = takes(dev, group, err);

	if (code)
		return code;
	if (turn->in[0] != n->out[0] || !n->out[0]->is_virtual || turn->accumulate ||
		turn->attr.rope.heads != n->attr.attention.heads ||
		turn->attr.rope.kv_heads != n->attr.attention.kv_heads)
		return jm_err_set(err, JM_ENOSUP,
			"Attention of backend cuda turns only gradients that no other node reads, "
			"and with the same heads.");
	return cuda_rope_takes(turn, err);
}

static size_t rounded(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Scratch holds delta, the sum of dq and cuDNN's workspace, in this order. */
static size_t delta_bytes(const struct cuda_attention_plan *p)
{
	const struct dnn_attention_shape *s = &p->shape;

	return p->backward ? rounded((size_t)(s->batch * s->heads * s->seq) * sizeof(float)) : 0;
}

static size_t sum_bytes(const struct cuda_attention_plan *p)
{
	return p->ids.sum ? delta_bytes(p) * (size_t)p->shape.depth : 0;
}

static size_t dnn_scratch(const struct cuda_attention_plan *p)
{
	return delta_bytes(p) + sum_bytes(p) + rounded(p->workspace);
}

/* ---- build and run --------------------------------------------------------------------------- */

struct operands {
	int n;
	int64_t id[OPERANDS];
	void *data[OPERANDS];
};

static void give(struct operands *o, int64_t id, void *data)
{
	if (!id)
		return;
	o->id[o->n] = id;
	o->data[o->n++] = data;
}

static void *at(const struct jm_tensor *t, const struct jm_view *v)
{
	return (uint16_t *)t->data + v->offset;
}

/* Adds queries, keys and values, or their gradients, as operands. */
static void give_views(struct operands *o, const struct jm_node *n,
	const struct jm_tensor *const t[3], int64_t q, int64_t k, int64_t v)
{
	give(o, q, at(t[0], &n->attr.attention.q));
	give(o, k, at(t[1], &n->attr.attention.k));
	give(o, v, at(t[2], &n->attr.attention.v));
}

static struct operands operands_of(
	const struct cuda_exec *exec, const struct cuda_attention_plan *p, struct bound *b)
{
	const struct jm_node *n = &exec->node[0];
	const struct dnn_attention_ids *id = &p->ids;
	const struct jm_tensor *const *in = (const struct jm_tensor *const *)inputs_of(n);
	struct operands o = {0};

	give_views(&o, n, in, id->q, id->k, id->v);
	give(&o, id->y, p->backward ? n->in[4]->data : n->out[0]->data);
	give(&o, id->lse, p->backward ? n->in[5]->data : n->out[1]->data);
	if (p->backward) {
		give(&o, id->dy, n->in[0]->data);
		give_views(&o, n,
			(const struct jm_tensor *const[]){
				gradient_of(exec, 0), gradient_of(exec, 1), gradient_of(exec, 2)},
			id->dq, id->dk, id->dv);
		give(&o, id->delta, exec->scratch);
	}
	give(&o, id->sum, b->sum);
	give(&o, id->scale, &b->scale);
	give(&o, id->one, &b->one);
	give(&o, id->floor, &b->floor);
	return o;
}

static int bind_plan(struct cuda_dev *dev, const struct cuda_exec *exec,
	const struct cuda_attention_plan *p, int which, struct bound *b, struct jm_err *err)
{
	struct operands o = operands_of(exec, p, b);
	char *memory = exec->scratch;

	return dnn_bind(&dev->dnn, &p->plan[which], o.n, o.id, o.data,
		memory ? memory + delta_bytes(p) + b->sum_bytes : NULL, &b->run, err);
}

/* The shortest time of several runs in seconds; NAN = a run failed. */
static double time_plan(struct cuda_dev *dev, const struct cuda_exec *exec,
	const struct cuda_attention_plan *p, int which, struct bound b, const char *key)
{
	struct cuda_stopwatch watch;
	double best = NAN;

	if (bind_plan(dev, exec, p, which, &b, NULL))
		return NAN;
	if (cuda_stopwatch_open(&watch)) {
		for (int i = 0; i <= REPEATS; i++) {
			cuda_stopwatch_start(&watch, dev->stream);
			if (dnn_run(&dev->dnn, &b.run, NULL))
				break;
			best = fmin(best, i ? cuda_stopwatch_stop(&watch, dev->stream) : NAN);
		}
		cuda_stopwatch_close(&watch);
	}
	cuda_timed(dev, jm_op_name(exec->node[0].op), p->plan[which].name, key);
	dnn_unbind(&dev->dnn, &b.run);
	return best;
}

static void fill(struct cuda_dev *dev, const struct jm_tensor *t)
{
	if (t && t->type != JM_I32)
		cuda_random(cuda_vec(t), jm_tensor_count(t), 1, dev->stream);
}

/* Times the plans on random numbers in the real operands, which hold no data while a program is
 * built. */
static void tune(struct cuda_dev *dev, const struct cuda_exec *exec, struct cuda_attention_plan *p,
	const struct bound *b)
{
	const struct jm_node *n = &exec->node[0];
	char key[CUDA_PLAN_KEY];
	double least = INFINITY;

	if (p->best >= 0)
		return;
	p->best = 0;
	cuda_attention_key(dev, p, key, sizeof key);
	for (int i = 0; i < n->n_in; i++)
		fill(dev, n->in[i]);
	for (int i = 0; i < p->n; i++) {
		double seconds = time_plan(dev, exec, p, i, *b, key);

		if (seconds < least) {
			least = seconds;
			p->best = i;
		}
	}
	if (!isinf(least) && !dev->lost.code) /* one was timed, and all could be */
		cuda_plan_keep(dev, key, p->plan[p->best].name);
}

static int build_dnn(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_attention_plan *p = cuda_attention_plan_of(dev, n);
	struct bound *b = exec->own = calloc(1, sizeof *b);

	if (!b || !p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");
	if (!p->n)
		return jm_err_set(err, p->err.code, "%s", p->err.text);
	b->scale = (float)n->attr.attention.scale;
	b->one = 1;
	b->floor = -FLT_MAX;
	b->sum_bytes = sum_bytes(p);
	b->sum = b->sum_bytes ? (char *)exec->scratch + delta_bytes(p) : NULL;
	tune(dev, exec, p, b);
	return bind_plan(dev, exec, p, p->best, b, err);
}

static int build_forward(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct dnn_attention_shape s = cuda_attention_shape(dev, n);
	struct bound *b = exec->own = calloc(1, sizeof *b);
	void *const part[] = {at(n->in[0], &n->attr.attention.q),
		at(n->in[1], &n->attr.attention.k), at(n->in[2], &n->attr.attention.v)};

	if (!b)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");
	b->own = true;
	b->forward = (struct cuda_attention_forward){.scale = (float)n->attr.attention.scale,
		.y = n->out[0]->data,
		.lse = n->out[1]->data};
	return cuda_forward_describe(dev, &s, part, &b->forward, err);
}

static int build_own(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_view *const view[] = {
		&n->attr.attention.q, &n->attr.attention.k, &n->attr.attention.v};
	struct dnn_attention_shape s = cuda_attention_shape(dev, n);
	struct bound *b = exec->own = calloc(1, sizeof *b);
	struct cuda_tiles_data data = {.dy = n->in[0]->data};

	if (!b)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");
	for (int i = 0; i < 3; i++) {
		data.part[i] = at(inputs_of(n)[i], view[i]);
		data.grad[i] = at(gradient_of(exec, i), view[i]);
	}
	b->own = true;
	b->tiles = (struct cuda_attention_tiles){
		.scale = (float)n->attr.attention.scale,
		.y = n->in[4]->data,
		.lse = n->in[5]->data,
		.rows = exec->scratch,
	};
	return cuda_tiles_describe(&s, &data, &b->tiles, err);
}

static int build_once(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct dnn_attention_shape s = cuda_attention_shape(dev, &exec->node[0]);
	int code = build_own(dev, exec, err);

	if (!code)
		cuda_once_describe(dev, &s, &((struct bound *)exec->own)->tiles);
	return code;
}

/* The first one needs the least scratch; the last one, of gradients only, does not take all
 * shapes. */
enum { OWN, DNN, ONCE, WAYS };
static const struct cuda_way ways[2][WAYS] = {{{"own", build_forward}, {"cudnn", build_dnn}},
	{{"own", build_own}, {"cudnn", build_dnn}, {"once", build_once}}};

static int ways_of(const struct cuda_dev *dev, const struct cuda_attention_plan *p)
{
	return p->backward && cuda_once_take(dev, &p->shape) ? WAYS : ONCE;
}

static void write_ways_key(
	const struct cuda_dev *dev, const struct cuda_attention_plan *p, char *ret, size_t size)
{
	cuda_attention_key(dev, p, ret, size);
	snprintf(ret + strlen(ret), size - strlen(ret), "/ways");
}

static size_t scratch_of(const struct cuda_dev *dev, const struct cuda_attention_plan *p, int way)
{
	return way == DNN    ? dnn_scratch(p)
	       : way == ONCE ? cuda_once_scratch(dev, &p->shape)
	       : p->backward ? cuda_tiles_scratch(&p->shape)
			     : 0;
}

/* Bytes that suffice for every way. */
static size_t most_scratch(const struct cuda_dev *dev, const struct cuda_attention_plan *p)
{
	size_t most = 0;

	for (int way = 0; way < ways_of(dev, p); way++) {
		size_t bytes = scratch_of(dev, p, way);

		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Memory is planned for the way that will run, so it is chosen before: by the plan cache, or by
 * timing with the scratch that suffices for every way. */
static int way_of(struct cuda_dev *dev, struct cuda_attention_plan *p, const struct jm_node *n)
{
	struct jm_tensor dq = *n->out[0]; /* in memory, also where it is virtual in a group */
	struct cuda_exec exec = {.op = &cuda_ops_dnn_attention[p->backward],
		.node = {*n},
		.n_nodes = 1,
		.scratch_bytes = most_scratch(dev, p)};
	char key[CUDA_PLAN_KEY];

	if (p->way >= 0)
		return p->way;
	dq.is_virtual = false;
	for (int i = 0; i < 3; i++)
		if (n->out[i] == n->out[0])
			exec.node[0].out[i] = &dq;
	write_ways_key(dev, p, key, sizeof key);
	p->way = has_own(dev, p, n)
			 ? cuda_way_choose(dev, &exec, key, ways[p->backward], ways_of(dev, p))
			 : DNN;
	return p->way;
}

/* True if the way is chosen, or could be without timing. */
static bool way_is_known(
	struct cuda_dev *dev, const struct cuda_attention_plan *p, const struct jm_node *n)
{
	char key[CUDA_PLAN_KEY];

	if (p->way >= 0 || !has_own(dev, p, n))
		return true;
	write_ways_key(dev, p, key, sizeof key);
	return cuda_way_known(dev, key, ways[p->backward], ways_of(dev, p)) >= 0;
}

static size_t scratch(struct cuda_dev *dev, const struct jm_group *group)
{
	struct cuda_attention_plan *p = cuda_attention_plan_of(dev, group->node[0]);

	if (!p)
		return 0;
	if (dev->rough && !way_is_known(dev, p, group->node[0]))
		return most_scratch(dev, p);
	return scratch_of(dev, p, way_of(dev, p, group->node[0]));
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_attention_plan *p = cuda_attention_plan_of(dev, &exec->node[0]);

	if (!p)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for attention.");
	return ways[p->backward][way_of(dev, p, &exec->node[0])].build(dev, exec, err);
}

static int build_rope(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	int code = build(dev, exec, err);
	struct bound *b = exec->own;

	if (!code)
		code = cuda_rope_of(dev, &exec->node[1], &b->turn, err);
	if (code)
		return code;
	b->turn.x = b->turn.y;
	b->tiles.angles = b->turn.angles;
	return 0;
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct bound *b = exec->own;
	int code;

	if (b->own) {
		if (b->forward.y)
			cuda_attention_forward(&b->forward, dev->stream);
		else
			cuda_attention_tiles(&b->tiles, dev->stream);
		return 0;
	}
	if (b->sum)
		cudaMemsetAsync(b->sum, 0, b->sum_bytes, dev->stream);
	code = dnn_run(&dev->dnn, &b->run, err);
	if (!code && b->turn.x.data)
		cuda_rope(&b->turn, dev->stream);
	return code;
}

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct bound *b = exec->own;

	if (b && !b->own)
		dnn_unbind(&dev->dnn, &b->run);
	free(b);
}

const struct cuda_op cuda_ops_dnn_attention[] = {
	{{JM_OP_ATTENTION}, 1, takes, NULL, scratch, build, run, drop},
	{{JM_OP_ATTENTION_GRAD}, 1, takes, NULL, scratch, build, run, drop},
	{{JM_OP_ATTENTION_GRAD, JM_OP_ROPE_GRAD}, 2, takes_rope, NULL, scratch, build_rope, run,
		drop},
	{.n_nodes = 0},
};
