/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN, with channels last. Plans are looked up by select, which needs the size of
 * their workspace, and kept by shape; the fastest is found by timing when the first group of the
 * shape is built. cuDNN writes a filter's gradient in the type of the images with channels last
 * into scratch; a kernel then adds or copies it to the result. Images with few channels are folded
 * (conv_space_to_depth.h). In f16 and in the fast mode a convolution also writes the sums that the
 * following batch norm needs. Where there are two ways, the faster one is found by timing, once for
 * each shape: convolutions of single pixels and of whole images are products as well, and a
 * ResNet's first layer and its filter's gradient have own kernels, and so have the gradient of a
 * filter of 3 x 3 in tf32, those of few and of many channels in 16 bits, convolutions of 3 x 3 of
 * many channels in 16 bits, and filters for each channel; cuDNN, that kernel or one pass applies a
 * bias, and a ReLU behind it.
 */
#include <math.h>
#include <stdlib.h>

#include "conv_depthwise.h"
#include "conv_filter.h"
#include "conv_halo.h"
#include "conv_space_to_depth.h"
#include "conv_select.h"
#include "ops_conv_product.h"
#include "conv_stem.h"
#include "backends/cuda/ops/ops_image.h"
#include "backends/cuda/ops/ops_pool.h"
#include "backends/cuda/ops/ops_linear.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/ops/op_rows.h"

struct conv {
	struct dnn_run run;
	struct cuda_product *product; /* runs in place of cuDNN's plan; NULL = there is none */
	/* an own kernel that runs in its place; NULL = none */
	cudaError_t (*kernel)(const struct cuda_dev *dev, const struct cuda_exec *exec);
	struct cuda_conv_scratch at;
	bool ends; /* the plan or the kernel applies bias and ReLU, too */
};

static void drop_conv(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct conv *c = exec->own;

	if (c) {
		dnn_unbind(&dev->dnn, &c->run);
		cuda_product_free(dev, c->product);
	}
	free(c);
}

/* The memory that cuDNN reads or writes in place of an operand. */
static void *stands_for(const struct jm_node *n, const struct jm_tensor *t, char *scratch,
	const struct cuda_conv_scratch *at)
{
	struct cuda_operands o = cuda_operands_of(n);

	if (t == o.x && cuda_conv_folds(n))
		return scratch + at->image;
	if (t == o.w && (cuda_conv_folds(n) || n->op == JM_OP_CONV_WGRAD))
		return scratch + at->filter;
	return t->data;
}

static float *sums_at(const struct cuda_exec *exec)
{
	const struct conv *c = exec->own;

	return (float *)(void *)((char *)exec->scratch + c->at.sums);
}

/* What the group leaves in the place of the convolution's result. */
static const struct jm_tensor *result_of(const struct cuda_exec *exec)
{
	return exec->n_nodes == CUDA_CONV_RELU ? exec->node[1].out[0]
					       : cuda_operands_of(&exec->node[0]).y;
}

static int build_pattern(
	struct cuda_dev *dev, struct cuda_exec *exec, enum dnn_pattern pattern, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_key key = cuda_conv_key_of(n, exec->n_nodes);
	struct cuda_conv_plan *plan;
	int64_t ids[CUDA_CONV_OPERANDS];
	struct conv *c;
	float *sums;
	int code;

	key.pattern = pattern;
	plan = cuda_conv_plan(dev, &key, err);
	if (!plan)
		return err->code;
	code = cuda_conv_tune(dev, plan, err);
	if (code)
		return code;
	exec->own = c = calloc(1, sizeof *c);
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	c->at = cuda_conv_scratch_of(n, exec->n_nodes, plan->workspace);
	c->ends = pattern == DNN_PATTERN_CONV_RELU || pattern == DNN_PATTERN_CONV_BIAS;
	sums = sums_at(exec);
	return dnn_bind(&dev->dnn, &plan->plan[plan->best], cuda_conv_ids(plan, ids), ids,
		(void *const[]){stands_for(n, o.x, exec->scratch, &c->at),
			stands_for(n, o.w, exec->scratch, &c->at), result_of(exec)->data,
			c->ends ? (char *)exec->scratch + c->at.bias : (void *)sums,
			sums + cuda_conv_sums_stride(o.y)},
		exec->scratch, &c->run, err);
}

static int build_dnn(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	int nodes = exec->n_nodes == CUDA_CONV_RELU ? 1 : exec->n_nodes;

	return build_pattern(dev, exec, cuda_conv_pattern_of(exec->node[0].op, nodes), err);
}

static int build_joined(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	return build_pattern(dev, exec,
		exec->n_nodes == CUDA_CONV_RELU ? DNN_PATTERN_CONV_RELU : DNN_PATTERN_CONV_BIAS,
		err);
}

/* The product of a strided convolution writes to scratch, from where its result is added to every
 * n-th pixel. */
static int build_product(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_gemm g = cuda_conv_product_of(&exec->node[0], exec->scratch);
	struct conv *c = calloc(1, sizeof *c);

	exec->own = c;
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	c->at = cuda_conv_scratch_of(
		&exec->node[0], 1, 0); /* of which only the sums of a bias are used */
	return cuda_product_new(dev, &g, &c->product, err);
}

/* A kernel of this backend, which runs in place of cuDNN's plan. */
static int build_kernel(struct cuda_exec *exec,
	cudaError_t (*kernel)(const struct cuda_dev *dev, const struct cuda_exec *exec),
	struct jm_err *err)
{
	struct conv *c = calloc(1, sizeof *c);

	exec->own = c;
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	c->kernel = kernel;
	return 0;
}

static int build_stem(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	int code = build_kernel(exec, cuda_conv_stem_run, err);
	struct conv *c = exec->own;

	(void)dev;
	if (!code)
		c->ends = cuda_conv_stem_ends(&exec->node[0]);
	return code;
}

static int build_filter(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_kernel(exec, cuda_conv_filter_run, err);
}

static int build_slim(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_kernel(exec, cuda_conv_slim_run, err);
}

static int build_wide(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_kernel(exec, cuda_conv_wide_run, err);
}

static int build_halo(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	int code = build_kernel(exec, cuda_conv_halo_run, err);
	struct conv *c = exec->own;

	(void)dev;
	if (!code)
		c->ends = true;
	return code;
}

static int build_depthwise(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_kernel(exec, cuda_conv_depthwise_run, err);
}

/* The ways to run the convolution, of which cuDNN is the first; NULL = it is the only one. */
static const struct cuda_way *ways_of(
	struct cuda_dev *dev, const struct cuda_exec *exec, int *ret_n)
{
	static const struct cuda_way products[] = {{"dnn", build_dnn}, {"product", build_product}};
	static const struct cuda_way stems[] = {{"dnn", build_dnn}, {"stem", build_stem}};
	static const struct cuda_way filters[] = {{"dnn", build_dnn}, {"filter", build_filter}};
	static const struct cuda_way slim[] = {{"dnn", build_dnn}, {"slim", build_slim}};
	static const struct cuda_way wide[] = {{"dnn", build_dnn}, {"wide", build_wide}};
	static const struct cuda_way channels[] = {
		{"dnn", build_dnn}, {"depthwise", build_depthwise}};
	static const struct cuda_way ends[] = {
		{"joined", build_joined}, {"dnn", build_dnn}, {"stem", build_stem}};
	static const struct cuda_way halos[] = {
		{"joined", build_joined}, {"dnn", build_dnn}, {"halo", build_halo}};
	const bool joins = exec->n_nodes == 1 && cuda_conv_bias_plan(dev, &exec->node[0]),
		   halo = cuda_conv_is_halo(dev, &exec->node[0]);

	*ret_n = 2;
	if (exec->n_nodes == CUDA_CONV_RELU) {
		const bool stem = cuda_conv_is_stem(&exec->node[0]);

		*ret_n += stem || halo;
		return stem ? ends : halos;
	}
	if (exec->n_nodes > 1)
		return NULL;
	switch (cuda_conv_way(dev, &exec->node[0])) {
	case CUDA_CONV_STEM:
		return stems;
	case CUDA_CONV_FILTER:
		return filters;
	case CUDA_CONV_SLIM:
		return slim;
	case CUDA_CONV_WIDE:
		return wide;
	case CUDA_CONV_DEPTHWISE:
		return channels;
	case CUDA_CONV_PRODUCT:
		return products;
	case CUDA_CONV_DNN:
		break;
	}
	*ret_n = joins + 1 + halo;
	return joins ? halos : halo ? halos + 1 : NULL;
}

static int build_conv(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_conv_key key = cuda_conv_key_of(n, exec->n_nodes);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	char name[CUDA_PLAN_KEY];
	int best = 0, n_ways;
	const struct cuda_way *ways = ways_of(dev, exec, &n_ways);

	if (!plan || cuda_conv_tune(dev, plan, err)) /* first, while memory is free */
		return err->code;
	if (!ways)
		return build_dnn(dev, exec, err);
	cuda_conv_way_text(dev, n, &key, name);
	best = cuda_way_choose(dev, exec, name, ways, n_ways);
	return ways[best].build(dev, exec, err);
}

static void scatter(struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *dx = n->out[0], *dy = n->in[0];
	struct cuda_scatter p = {.batch = (int)dx->dim[0],
		.c = (int)dx->dim[1],
		.x = exec->scratch,
		.y = cuda_vec(dx)};

	for (int i = 0; i < 2; i++) {
		p.from[i] = (int)dy->dim[2 + i];
		p.to[i] = (int)dx->dim[2 + i];
		p.step[i] = n->attr.conv.stride[i];
	}
	cuda_scatter_add(&p, dev->stream);
}

/* Starts the convolution itself. */
static int start(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct conv *c = exec->own;
	int code;

	if (c->kernel)
		return cuda_check(dev, c->kernel(dev, exec), "Starting a kernel", err);
	code = c->product ? cuda_product_run(dev, c->product, err)
			  : dnn_run(&dev->dnn, &c->run, err);
	if (!code && c->product && cuda_conv_scatters(&exec->node[0]))
		scatter(dev, exec);
	return code;
}

static void fold(
	struct cuda_dev *dev, const struct cuda_exec *exec, const struct jm_tensor *t, size_t at)
{
	struct cuda_fold p = cuda_conv_fold(&exec->node[0], t);

	p.y = (struct cuda_vec){(char *)exec->scratch + at, cuda_type_of(t->type)};
	cuda_fold(&p, dev->stream);
}

/* Folds the image and, in the forward direction, the filter. */
static void fold_operands(struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct jm_node *n = &exec->node[0];
	const struct conv *c = exec->own;
	struct cuda_operands o = cuda_operands_of(n);

	if (!cuda_conv_folds(n) || c->kernel)
		return;
	fold(dev, exec, o.x, c->at.image);
	if (n->op == JM_OP_CONV)
		fold(dev, exec, o.w, c->at.filter);
}

static int run_conv(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *y = result_of(exec), *bias = exec->node[0].in[2];
	const struct conv *c = exec->own;
	int code;

	if (c->ends && !c->kernel)
		cuda_cast_bias(dev, bias, (char *)exec->scratch + c->at.bias, y->type);
	fold_operands(dev, exec);
	code = start(dev, exec, err);
	if (!code && exec->node[0].op == JM_OP_CONV && bias && !c->ends)
		cuda_bias_add(cuda_vec(y), bias->data, y->dim[0] * y->dim[2] * y->dim[3], y->dim[1],
			exec->n_nodes == CUDA_CONV_RELU, dev->stream);
	return code;
}

/* Computes mean, variance, rstd and running statistics from the sums that the convolution wrote. */
static int run_conv_stats(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	float *sums = sums_at(exec);
	int64_t stride = cuda_conv_sums_stride(exec->node[0].out[0]);
	struct cuda_bn p =
		cuda_bn_stats_of(&exec->node[1], &exec->node[2], sums + 2 * stride, NULL);
	int code = run_conv(dev, exec, err);

	if (!code)
		cuda_bn_of_sums(&p, sums, sums + stride, dev->stream);
	return code;
}

/* Copies dw to its result; without folding the squares are single pixels. */
static struct cuda_fold unfold_of(const struct jm_node *n)
{
	const struct jm_tensor *dw = n->out[0];
	struct cuda_fold p = {.batch = (int)dw->dim[0], .c = (int)dw->dim[1], .x = cuda_vec(dw)};

	if (cuda_conv_folds(n)) {
		p = cuda_conv_fold(n, dw);
	} else {
		p.wide = p.c;
		for (int i = 0; i < 2; i++) {
			p.step[i] = 1;
			p.in[i] = p.out[i] = (int)dw->dim[2 + i];
		}
		cuda_conv_strides(dw, p.stride);
	}
	p.accumulate = jm_node_adds(n, 0);
	return p;
}

static struct cuda_bias_grad bias_grad_of(const struct jm_node *n, void *scratch)
{
	const struct jm_tensor *dy = n->in[0];

	return (struct cuda_bias_grad){.rows = dy->dim[0] * dy->dim[2] * dy->dim[3],
		.c = dy->dim[1],
		.dy = cuda_vec(dy),
		.dbias = n->out[1]->data,
		.accumulate = jm_node_adds(n, 1),
		.scratch = scratch};
}

static int run_wgrad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct jm_tensor *dy = n->in[0], *dbias = n->out[1];
	const struct conv *c = exec->own;
	struct cuda_fold p = unfold_of(n);
	int code;

	fold_operands(dev, exec);
	code = start(dev, exec, err);
	if (code)
		return code;
	if (!c->product && !c->kernel) { /* these wrote dw itself */
		p.y = (struct cuda_vec){
			(char *)exec->scratch + c->at.filter, cuda_type_of(dy->type)};
		cuda_unfold(&p, dev->stream);
	}
	if (dbias && c->kernel != cuda_conv_wide_run) {
		struct cuda_bias_grad sum = bias_grad_of(n, (char *)exec->scratch + c->at.bias);

		cuda_bias_grad(&sum, dev->stream);
	}
	return 0;
}

/* ---- the gradient of a ReLU, which also adds up that of the bias ------------------------- */

/* The convolution of the group by itself, whose bias another node adds up. */
struct opened {
	struct cuda_exec conv;
	struct jm_tensor
		dy; /* in front of the convolution's scratch where no other node reads it */
};

static const struct jm_node *relu_of(const struct cuda_exec *exec)
{
	return &exec->node[exec->n_nodes - 2];
}

static void open_conv(const struct cuda_exec *exec, struct opened *ret)
{
	static const struct cuda_op alone = {
		{JM_OP_CONV_WGRAD}, 1, NULL, NULL, NULL, NULL, run_wgrad, drop_conv};
	const struct jm_node *relu = relu_of(exec);

	*ret = (struct opened){.conv = *exec, .dy = *relu->out[0]};
	ret->conv.op = &alone;
	ret->conv.n_nodes = 1;
	ret->conv.node[0] = exec->node[exec->n_nodes - 1];
	ret->conv.node[0].out[1] = NULL;
	if (!relu->out[0]->is_virtual)
		return;
	ret->dy.data = exec->scratch;
	ret->dy.is_virtual = false;
	ret->conv.node[0].in[0] = &ret->dy;
	ret->conv.scratch = (char *)exec->scratch + cuda_conv_opened_bytes(relu);
}

static int build_relu_grad(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct opened o;
	int code;

	open_conv(exec, &o);
	code = build_conv(dev, &o.conv, err);
	exec->own = o.conv.own;
	return code;
}

/* True where the kernel of the filter's gradient opens dy itself, so that it is not written. */
static bool opens_stem(const struct cuda_exec *exec)
{
	const struct conv *c = exec->own;

	return exec->n_nodes == 2 && exec->node[0].out[0]->is_virtual &&
	       c->kernel == cuda_conv_stem_run && cuda_conv_stem_ends(&exec->node[1]);
}

static int run_relu_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *relu = relu_of(exec), *pool = &exec->node[0];
	struct cuda_bias_grad sum;
	struct opened o;

	open_conv(exec, &o);
	if (opens_stem(exec))
		return cuda_check(dev,
			cuda_conv_stem_opened(dev, relu, &exec->node[1], o.conv.scratch),
			"Starting a kernel", err);
	sum = bias_grad_of(&exec->node[exec->n_nodes - 1], o.conv.scratch);
	sum.dx = cuda_vec(&o.dy);
	if (pool != relu) {
		struct cuda_pool p = cuda_pool_of(pool, pool->in[1], pool->in[0]);

		p.dx = sum.dx;
		p.place = exec->fwd_saved;
		cuda_maxpool_relu_grad(&p, &sum, dev->stream);
	} else {
		sum.dy = cuda_vec(relu->in[0]);
		sum.y = cuda_vec(relu->in[1]);
		cuda_bias_grad(&sum, dev->stream);
	}
	return run_wgrad(dev, &o.conv, err);
}

const struct cuda_op cuda_ops_conv[] = {
	{{JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 3, cuda_takes_conv_stats,
		cuda_choices_conv, NULL, build_conv, run_conv_stats, drop_conv},
	{{JM_OP_CONV, JM_OP_RELU}, 2, cuda_takes_conv_relu, cuda_choices_conv, NULL, build_conv,
		run_conv, drop_conv},
	{{JM_OP_CONV}, 1, cuda_takes_conv, cuda_choices_conv, NULL, build_conv, run_conv,
		drop_conv},
	{{JM_OP_MAXPOOL_GRAD, JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, 3, cuda_takes_relu_grad,
		cuda_choices_relu_grad, NULL, build_relu_grad, run_relu_grad, drop_conv},
	{{JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, 2, cuda_takes_relu_grad, cuda_choices_relu_grad, NULL,
		build_relu_grad, run_relu_grad, drop_conv},
	{{JM_OP_CONV_DGRAD}, 1, cuda_takes_conv, cuda_choices_conv, NULL, build_conv, run_conv,
		drop_conv},
	{{JM_OP_CONV_WGRAD}, 1, cuda_takes_conv, cuda_choices_conv, NULL, build_conv, run_wgrad,
		drop_conv},
	{.n_nodes = 0},
};
