/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of single pixels together with the batch norm that reads their result: the
 * statistics of the result, or the gradient of the norm whose result's gradient it is. One way is
 * the convolution alone, then the kernels of the norm; the others are kernels of conv_norm.cu that
 * also compute the norm's sums, with tiles of 64 or 128 columns, and those of wide_pixels.cu, with
 * 256; or the convolution and a kernel of batchnorm_once.cu, which computes the norm as well. The
 * fastest is found by timing, once for each shape.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops_conv_product.h"
#include "backends/cuda/ops/ops_image.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/kernels/wide_pixels.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/ops/op_rows.h"

struct conv_norm {
	struct cuda_exec conv;	 /* the convolution alone */
	struct jm_tensor result; /* of that convolution, with memory where the group's has none */
	struct cuda_pixels pixels;
	enum { APART, FUSED, WIDE, ONCE } way;
};

/* ---- operands -------------------------------------------------------------------------------- */

static struct cuda_pixels pixels_node(
	const struct cuda_dev *dev, const struct jm_node *n, int columns)
{
	const struct jm_tensor *x = n->in[0], *y = n->out[0];

	return (struct cuda_pixels){
		.rows = cuda_pixels_of(y),
		.n = (int)y->dim[1],
		.k = (int)x->dim[1],
		.turned = n->op == JM_OP_CONV_DGRAD,
		.x = cuda_vec(x),
		.w = cuda_vec(n->in[1]),
		.y = cuda_vec(y),
		.columns = columns,
		.processors = dev->prop.multiProcessorCount,
		.shared_block = dev->prop.sharedMemPerBlockOptin,
		.shared_all = dev->prop.sharedMemPerMultiprocessor,
	};
}

static bool knows(const struct cuda_dev *dev, const struct jm_node *n, int columns)
{
	struct cuda_pixels p = pixels_node(dev, n, columns);

	return cuda_pixels_knows(&p);
}

static bool knows_wide(const struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_pixels p = pixels_node(dev, n, 256);

	return cuda_is_hopper(dev) && cuda_wide_pixels_know(&p);
}

/* True if there is a kernel for the convolution; others are left to other rows. */
static bool is_known(const struct cuda_dev *dev, const struct jm_node *n)
{
	enum jm_dtype type = n->in[0]->type;

	return dev->prop.major >= 8 && cuda_conv_is_product(n) && n->in[1]->type == type &&
	       n->out[0]->type == type && (type != JM_F32 || n->math == JM_MATH_TF32) &&
	       (knows(dev, n, 64) || knows(dev, n, 128));
}

static struct jm_group alone(const struct jm_group *group)
{
	return (struct jm_group){.n_nodes = 1, .node = {group->node[0]}, .fwd = group->fwd};
}

/* The row that runs the convolution alone. */
static const struct cuda_op *row_of(enum jm_op op)
{
	const struct cuda_op *row = cuda_ops_conv;

	while (row->n_nodes > 1 || row->cover[0] != op)
		row++;
	return row;
}

static int takes_alone(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	struct jm_group conv = alone(group);

	return row_of(group->node[0]->op)->takes(dev, &conv, err);
}

static int refuse(struct jm_err *err)
{
	return jm_err_set(err, JM_ENOSUP,
		"Backend cuda has no kernel for this convolution together with its batch norm.");
}

static int takes_stats(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *stats = group->node[1], *last = group->node[2];
	bool sums_of_dnn = dev->fast && n->in[0]->type == JM_F16; /* ops_conv.c */

	if (n->accumulate || stats->accumulate || last->accumulate || sums_of_dnn ||
		n->out[0]->is_virtual || stats->in[0] != n->out[0] ||
		last->in[0] != stats->out[0] || last->in[1] != stats->out[1] || !is_known(dev, n))
		return refuse(err);
	return takes_alone(dev, group, err);
}

/* Accepts a norm to which nothing is added. */
static int takes_whole(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *stats = group->node[1], *last = group->node[2], *n = group->node[3];
	struct cuda_bn p = {.x = cuda_vec(n->in[0]),
		.add = {.data = n->in[5] ? &p : NULL},
		.rows = cuda_pixels_of(n->in[0]),
		.c = n->in[0]->dim[1],
		.accumulate = n->accumulate};

	if (n->in[0] != stats->in[0] || n->in[1] != stats->out[0] || n->in[2] != last->out[0] ||
		n->out[0]->type != n->in[0]->type || !cuda_bn_is_once(dev, &p))
		return refuse(err);
	return takes_stats(dev, group, err);
}

/* True if only the norm's gradient reads the gradient that the convolution computes. */
static bool is_internal(const struct jm_tensor *t)
{
	return t->is_virtual || t->is_last;
}

static int takes_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *grad = group->node[1];

	if (grad->in[0] != n->out[0] || !is_internal(n->out[0]) || jm_node_adds(grad, 0) ||
		jm_node_adds(grad, 3) || grad->in[1]->type != n->out[0]->type ||
		grad->out[0]->type != n->out[0]->type ||
		(grad->out[3] && grad->out[3]->type != n->out[0]->type) || !is_known(dev, n) ||
		(group->n_nodes > 2 && cuda_takes_bn_again(grad, group->node[2], err)))
		return refuse(err);
	return takes_alone(dev, group, err);
}

/* ---- choices --------------------------------------------------------------------------------- */

/* The scratch of a group: that of its kernels, one after the other; then vectors that are not
 * stored. */
static size_t common_scratch(const struct cuda_dev *dev, const struct jm_node *n)
{
	size_t most = 0;

	for (int columns = 64; columns <= 128; columns *= 2) {
		struct cuda_pixels p = pixels_node(dev, n, columns);
		size_t bytes = cuda_pixels_knows(&p) ? cuda_pixels_scratch(&p) : 0;

		most = bytes > most ? bytes : most;
	}
	if (knows_wide(dev, n)) {
		struct cuda_pixels p = pixels_node(dev, n, 256);
		size_t bytes = cuda_wide_pixels_scratch(&p);

		most = bytes > most ? bytes : most;
	}
	return (most + 255) / 256 * 256;
}

/* Mean, variance and rstd, where they are not stored, lie at the end of the scratch. */
static size_t vectors_bytes(const struct jm_node *n)
{
	return 3 * sizeof(float) * (size_t)n->out[0]->dim[1];
}

static int choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	struct jm_group conv = alone(group);
	size_t own = common_scratch(dev, group->node[0]);
	int n = row_of(group->node[0]->op)->choices(dev, &conv, choice, err);

	if (n <= 0)
		return n;
	cuda_image_layouts(group, 1, choice);
	choice->scratch = own > choice->scratch ? own : (choice->scratch + 255) / 256 * 256;
	choice->scratch += vectors_bytes(group->node[0]);
	return 1;
}

/* ---- build and run --------------------------------------------------------------------------- */

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct conv_norm *c = exec->own;

	if (c && c->conv.op && c->conv.op->drop)
		c->conv.op->drop(dev, &c->conv);
	free(c);
}

static struct conv_norm *new_own(struct cuda_exec *exec, struct jm_err *err)
{
	struct conv_norm *c = calloc(1, sizeof *c);
	const struct jm_tensor *y = exec->node[0].out[0];

	if (!c) {
		jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
		return NULL;
	}
	exec->own = c;
	c->result = *y;
	if (y->is_virtual) { /* its place is dx: the norm's gradient works in place */
		c->result.is_virtual = false;
		c->result.data = exec->node[1].out[0]->data;
	}
	return c;
}

static int build_apart(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct conv_norm *c = new_own(exec, err);

	if (!c)
		return err->code;
	c->conv = (struct cuda_exec){.n_nodes = 1,
		.node = {exec->node[0]},
		.scratch = exec->scratch,
		.scratch_bytes = exec->scratch_bytes - vectors_bytes(&exec->node[0]),
		.op = row_of(exec->node[0].op)};
	c->conv.node[0].out[0] = &c->result;
	return c->conv.op->build(dev, &c->conv, err);
}

/* The vectors that are not stored. */
static float *vectors_of(const struct cuda_exec *exec)
{
	size_t at = exec->scratch_bytes - vectors_bytes(&exec->node[0]);

	return (float *)(void *)((char *)exec->scratch + at);
}

/* The group of a convolution with its whole norm; bn-finalize and bn-apply are its last nodes. */
static bool is_whole(const struct cuda_exec *exec)
{
	return exec->n_nodes == 4;
}

static struct cuda_bn stats_of(const struct cuda_exec *exec)
{
	return is_whole(exec)
		       ? cuda_bn_whole_of(&exec->node[1], vectors_of(exec), exec->scratch, NULL)
		       : cuda_bn_stats_of(
				 &exec->node[1], &exec->node[2], vectors_of(exec), exec->scratch);
}

static int build_once(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	bool fits = false;
	int code;

	if (exec->node[0].op == JM_OP_CONV_DGRAD) {
		const struct cuda_bn_grad p = cuda_bn_grad_of(&exec->node[1], exec);

		fits = cuda_bn_grad_is_once(dev, &p);
	} else if (is_whole(exec)) {
		const struct cuda_bn p = stats_of(exec);

		fits = cuda_bn_is_once(dev, &p);
	}
	if (!fits)
		return refuse(err);
	if (!cuda_meeting_of(dev).arrived)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a batch norm.");
	code = build_apart(dev, exec, err);
	if (exec->own)
		((struct conv_norm *)exec->own)->way = ONCE;
	return code;
}

/* True if the ReLU's mask is bits, and a gradient is added. */
static bool has_bits_and_sum(const struct cuda_exec *exec)
{
	struct cuda_bn_grad p = cuda_bn_grad_of(&exec->node[1], exec);

	return p.mask && !p.beta && jm_node_adds(&exec->node[0], 0);
}

static int build_fused(
	struct cuda_dev *dev, struct cuda_exec *exec, int columns, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct conv_norm *c = new_own(exec, err);
	const struct jm_node *norm = &exec->node[1];

	if (!c)
		return err->code;
	c->way = columns == 256 ? WIDE : FUSED;
	c->pixels = pixels_node(dev, n, columns);
	if (c->way == WIDE ? !knows_wide(dev, n) : !cuda_pixels_knows(&c->pixels))
		return refuse(err);
	if (n->op == JM_OP_CONV)
		return 0;
	if (norm->in[2] && !exec->fwd_saved) /* the mask is that of y */
		return refuse(err);
	c->pixels.y.data = (norm->out[3] ? norm->out[3] : norm->out[0])->data;
	if (jm_node_adds(n, 0))
		c->pixels.add = cuda_vec(n->out[0]);
	return c->way == WIDE && !has_bits_and_sum(exec) ? refuse(err) : 0;
}

static int build_64(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	return build_fused(dev, exec, 64, err);
}

static int build_128(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	return build_fused(dev, exec, 128, err);
}

static int build_256(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	return build_fused(dev, exec, 256, err);
}

/* The key in the plan cache: which operands there are, and which plans cuDNN may use, decide about
 * the time, too. */
static void key_text(
	const struct cuda_dev *dev, const struct cuda_exec *exec, char ret[CUDA_PLAN_KEY])
{
	const struct jm_node *n = &exec->node[0], *norm = &exec->node[1];

	snprintf(ret, CUDA_PLAN_KEY, "norm/%s%zu,%s,%s,%lld,%lld,%lld,%d,%d%d%d%d%s",
		is_whole(exec) ? "whole," : "", dev->dnn.version, jm_op_name(n->op),
		jm_dtype_name(n->in[0]->type), (long long)cuda_pixels_of(n->out[0]),
		(long long)n->in[0]->dim[1], (long long)n->out[0]->dim[1], (int)n->accumulate,
		norm->n_in > 2 && norm->in[2], exec->fwd_saved != NULL,
		norm->n_in > 6 && norm->in[6], norm->n_out > 3 && norm->out[3],
		dev->fast ? ",fast" : "");
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	static const struct cuda_way ways[] = {{"apart", build_apart}, {"64", build_64},
		{"128", build_128}, {"256", build_256}, {"once", build_once}};
	char key[CUDA_PLAN_KEY];

	key_text(dev, exec, key);
	return ways[cuda_way_choose(dev, exec, key, ways, 5)].build(dev, exec, err);
}

/* The convolution and the norm's statistics. */
static int run_stats_way(struct cuda_dev *dev, const struct conv_norm *c, const struct cuda_bn *p,
	struct jm_err *err)
{
	int code;

	if (c->way == WIDE)
		return cuda_check(dev, cuda_wide_pixels_stats(&c->pixels, p, dev->stream),
			"Starting a kernel", err);
	if (c->way == FUSED) {
		cuda_pixels_stats(&c->pixels, p, dev->stream);
		return 0;
	}
	code = c->conv.op->run(dev, &c->conv, err);
	if (!code)
		cuda_bn_stats(p, dev->stream);
	return code;
}

static int run_stats(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct cuda_bn p = stats_of(exec);

	return run_stats_way(dev, exec->own, &p, err);
}

static int run_whole(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct conv_norm *c = exec->own;
	const struct cuda_bn p = stats_of(exec);
	int code;

	if (c->way == ONCE) {
		const struct cuda_meeting m = cuda_meeting_of(dev);

		code = c->conv.op->run(dev, &c->conv, err);
		return code ? code
			    : cuda_check(dev, cuda_bn_once(&p, &m, dev->stream),
				      "Starting a kernel", err);
	}
	code = run_stats_way(dev, c, &p, err);
	if (!code)
		cuda_bn_apply(&p, dev->stream);
	return code;
}

static int run_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct conv_norm *c = exec->own;
	struct cuda_bn_grad p = cuda_bn_grad_of(&exec->node[1], exec);
	int code;

	p.dy.data = c->result.data;
	if (c->way == WIDE)
		return cuda_check(dev, cuda_wide_pixels_grad(&c->pixels, &p, dev->stream),
			"Starting a kernel", err);
	if (c->way == FUSED) {
		cuda_pixels_grad(&c->pixels, &p, dev->stream);
		return 0;
	}
	code = c->conv.op->run(dev, &c->conv, err);
	if (!code && c->way == ONCE) {
		const struct cuda_meeting m = cuda_meeting_of(dev);

		return cuda_check(
			dev, cuda_bn_grad_once(&p, &m, dev->stream), "Starting a kernel", err);
	}
	if (!code)
		cuda_bn_grad(&p, dev->stream);
	return code;
}

const struct cuda_op cuda_ops_conv_norm[] = {
	{{JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 3, takes_stats, choices, NULL, build,
		run_stats, drop},
	{{JM_OP_CONV_DGRAD, JM_OP_BN_GRAD}, 2, takes_grad, choices, NULL, build, run_grad, drop},
	{{JM_OP_CONV_DGRAD, JM_OP_BN_GRAD, JM_OP_BN_APPLY}, 3, takes_grad, choices, NULL, build,
		run_grad, drop},
	{{JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE, JM_OP_BN_APPLY}, 4, takes_whole, choices,
		NULL, build, run_whole, drop},
	{.n_nodes = 0},
};
