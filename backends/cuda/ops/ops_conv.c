/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN, with channels last. Plans are looked up by select, which needs the size of
 * their workspace, and kept by shape; the fastest is found by timing when the first group of the
 * shape is built. cuDNN writes a filter's gradient in the type of the images with channels last
 * into scratch; a kernel then adds or copies it to the result. Images with few channels are folded
 * (conv_fold.h). In f16 and in the fast mode a convolution also writes the sums that the following
 * batch norm needs. Where there are two ways, the faster one is found by timing, once for each shape:
 * convolutions of single pixels and of whole images are products as well, and a ResNet's first layer and its
 * filter's gradient have own kernels, and so have the gradient of a filter of 3 x 3 in tf32 and filters for each channel.
 */
#include <math.h>
#include <stdlib.h>

#include "conv_depthwise.h"
#include "conv_filter.h"
#include "conv_fold.h"
#include "backends/cuda/choose/conv_plan.h"
#include "ops_conv_product.h"
#include "conv_stem.h"
#include "ops_image.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/device/layouts.h"
#include "op_rows.h"

/*
 * The scratch of a group holds, in this order: cuDNN's workspace; the folded image and filter, or
 * the filter's gradient; the sums of the bias gradient, or the bias in the images' type, or the sums of a
 * batch norm and its mean and variance.
 */
#define SUMS 4 /* of each channel: x, its squares, mean, variance */
struct conv_scratch {
	size_t image, filter, bias, sums, bytes;
};

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

/* Nodes of the groups that begin with a convolution. */
enum { WITH_RELU = 2, WITH_STATS = 3 };

static enum dnn_pattern pattern_of(enum jm_op op, int nodes)
{
	return nodes == WITH_STATS	? DNN_PATTERN_CONV_STATS
	       : nodes == WITH_RELU	? DNN_PATTERN_CONV_RELU
	       : op == JM_OP_CONV	? DNN_PATTERN_CONV
	       : op == JM_OP_CONV_DGRAD ? DNN_PATTERN_DGRAD
					: DNN_PATTERN_WGRAD;
}

/* nodes: the number of nodes in the group, whose first one is the convolution. */
static struct cuda_conv_key key_of(const struct jm_node *n, int nodes)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_key key = {.pattern = pattern_of(n->op, nodes)};

	memcpy(key.shape.x, o.x->dim, sizeof key.shape.x);
	memcpy(key.shape.w, o.w->dim, sizeof key.shape.w);
	memcpy(key.shape.y, o.y->dim, sizeof key.shape.y);
	for (int i = 0; i < 2; i++) {
		key.shape.window.stride[i] = n->attr.conv.stride[i];
		key.shape.window.pad[i] = n->attr.conv.pad[i];
		key.shape.window.more[i] = n->attr.conv.more[i];
		key.shape.window.dilation[i] = n->attr.conv.dilation[i];
	}
	if (cuda_conv_folds(n))
		cuda_conv_fold_shape(n, &key.shape);
	key.shape.type = cuda_dnn_type(o.x->type);
	key.shape.add = n->op != JM_OP_CONV_WGRAD && jm_node_adds(n, 0);
	key.exact = o.x->type == JM_F32 && n->math != JM_MATH_TF32;
	return key;
}

static size_t folded_bytes(const struct cuda_fold *p, enum jm_dtype type)
{
	return (size_t)p->batch * (size_t)p->out[0] * (size_t)p->out[1] * (size_t)p->wide *
	       jm_dtype_bytes(type);
}

/* From the sums of x to those of squares, and so on: each begins at 16 bytes, as dnn_graph.c tells cuDNN of all tensors. */
static int64_t sums_stride(const struct jm_tensor *y)
{
	return (y->dim[1] + 3) / 4 * 4;
}

static struct conv_scratch scratch_of(const struct jm_node *n, int nodes, size_t workspace)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct conv_scratch s = {.image = aligned(workspace)};
	size_t image = 0, filter = 0;

	if (cuda_conv_folds(n)) {
		struct cuda_fold x = cuda_conv_fold(n, o.x);
		struct cuda_fold w = cuda_conv_fold(n, o.w);

		image = folded_bytes(&x, o.x->type);
		filter = folded_bytes(&w, o.x->type);
	} else if (n->op == JM_OP_CONV_WGRAD) {
		filter = (size_t)jm_tensor_count(o.w) * jm_dtype_bytes(o.x->type);
	}
	s.filter = s.image + aligned(image);
	s.bias = s.filter + aligned(filter);
	s.sums = s.bytes = s.bias;
	if (n->op == JM_OP_CONV_WGRAD && o.bias)
		s.bytes += cuda_bn_scratch(o.bias->dim[0]);
	if (nodes == WITH_RELU)
		s.bytes += (size_t)o.bias->dim[0] * jm_dtype_bytes(o.x->type);
	if (nodes == WITH_STATS)
		s.bytes += SUMS * sizeof(float) * (size_t)sums_stride(o.y);
	return s;
}

/* ---- select ------------------------------------------------------------------------------------------------- */

static int takes_conv(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_key key = key_of(n, group->n_nodes);

	if (o.x->type != o.y->type || (n->op != JM_OP_CONV_WGRAD && o.w->type != o.x->type))
		return jm_err_set(err, JM_ENOSUP,
			"%s of backend cuda needs images and filter in one type.",
			jm_op_name(n->op));
	if (n->op == JM_OP_CONV_WGRAD && o.w->type != JM_F32)
		return jm_err_set(
			err, JM_ENOSUP, "Backend cuda writes gradients of filters in f32.");
	if (n->op == JM_OP_CONV_WGRAD && o.x->type == JM_F32 &&
		(n->attr.conv.more[0] || n->attr.conv.more[1]))
		return jm_err_set(err, JM_ENOSUP,
			"cuDNN's gradients of filters in f32 are wrong where images are padded "
			"more on one side (seen with 9.19); use --precision bf16 or fp16.");
	return cuda_conv_plan(dev, &key, err) ? 0 : err->code;
}

/* A convolution followed by the statistics of its result; cuDNN has engines for both in f16, whose sums differ in their
 * last bits from run to run, although cuDNN does not say so. */
static int takes_conv_stats(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *stats = group->node[1], *last = group->node[2];

	if (!dev->fast)
		return jm_err_set(err, JM_ENOSUP,
			"cuDNN's sums of the results of a convolution differ in their last bits "
			"from run to run; --fast allows them.");
	if (n->in[0]->type != JM_F16 || n->in[2] || cuda_conv_folds(n) || n->accumulate ||
		stats->accumulate || last->accumulate || stats->in[0] != n->out[0] ||
		last->in[0] != stats->out[0] || last->in[1] != stats->out[1])
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda cannot fuse this convolution with its statistics.");
	return takes_conv(dev, group, err);
}

static bool has_own_way(const struct cuda_dev *dev, const struct jm_node *n)
{
	return cuda_conv_is_stem(n) || cuda_conv_is_filter(dev, n) || cuda_conv_is_depthwise(n) ||
	       cuda_conv_is_product(n) || cuda_conv_scatters(n);
}

/*
 * A bias and a ReLU, which cuDNN applies before the sums are rounded, or an own kernel to its result in one pass. The other ways of a
 * convolution have no such end.
 */
static int takes_conv_relu(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *relu = group->node[1];

	if (!n->in[2] || n->in[0]->type == JM_F32 || n->accumulate || relu->accumulate ||
		relu->in[0] != n->out[0] || !n->out[0]->is_virtual ||
		relu->out[0]->type != n->out[0]->type || has_own_way(dev, n))
		return jm_err_set(
			err, JM_ENOSUP, "Backend cuda cannot fuse this convolution with its ReLU.");
	return takes_conv(dev, group, err);
}

static bool lies_last(const struct jm_tensor *t)
{
	return jm_layout_equal(&t->layout, &cuda_layout_last);
}

/* The bytes that suffice for each way to run the group. */
static size_t most_scratch(
	const struct cuda_dev *dev, const struct jm_node *n, int nodes, size_t workspace)
{
	size_t bytes = scratch_of(n, nodes, workspace).bytes;
	size_t other = cuda_conv_scatters(n)	     ? cuda_conv_compact(n)
		       : cuda_conv_is_stem(n)	     ? cuda_conv_stem_scratch(dev, n)
		       : cuda_conv_is_filter(dev, n) ? cuda_conv_filter_scratch(dev, n)
		       : cuda_conv_is_depthwise(n)   ? cuda_conv_depthwise_scratch(dev, n)
						     : 0;

	return bytes > other ? bytes : other;
}

static int choices_conv(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_conv_key key = key_of(n, group->n_nodes);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err), *alone = plan;

	if (plan && group->n_nodes == WITH_RELU) {
		key.pattern = DNN_PATTERN_CONV;
		alone = cuda_conv_plan(dev, &key, err);
	}
	if (!plan || !alone)
		return 0;
	if (group->n_nodes > 1)
		choice->in[1][0] = cuda_layout_last;
	if (group->n_nodes == WITH_RELU)
		choice->out[1][0] = cuda_layout_last;
	for (int i = 0; i < 2; i++)
		choice->in[0][i] = cuda_layout_last;
	if (cuda_conv_folds(n)) /* keeps its layout, because folding copies it anyway */
		choice->in[0][n->op == JM_OP_CONV_WGRAD] =
			lies_last(cuda_operands_of(n).x) ? cuda_layout_last : (struct jm_layout){0};
	/* a gradient has the layout of its parameter; channels last needs no copy */
	if (n->op != JM_OP_CONV_WGRAD || n->out[0]->class == JM_CLASS_ACT ||
		jm_layout_equal(&n->out[0]->layout, &cuda_layout_last))
		choice->out[0][0] = cuda_layout_last;
	choice->scratch = most_scratch(dev, n, group->n_nodes,
		plan->workspace > alone->workspace ? plan->workspace : alone->workspace);
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* ---- build and run ----------------------------------------------------------------------------------------------- */

struct conv {
	struct dnn_run run;
	struct cuda_product *product; /* runs in place of cuDNN's plan; NULL = there is none */
	/* an own kernel that runs in its place; NULL = none */
	cudaError_t (*kernel)(const struct cuda_dev *dev, const struct jm_node *n, void *scratch);
	struct conv_scratch at;
	bool ends; /* cuDNN's plan applies bias and ReLU, too */
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
	const struct conv_scratch *at)
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
	return exec->n_nodes == WITH_RELU ? exec->node[1].out[0]
					  : cuda_operands_of(&exec->node[0]).y;
}

static int build_pattern(
	struct cuda_dev *dev, struct cuda_exec *exec, enum dnn_pattern pattern, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_key key = key_of(n, exec->n_nodes);
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
	c->at = scratch_of(n, exec->n_nodes, plan->workspace);
	c->ends = pattern == DNN_PATTERN_CONV_RELU;
	sums = sums_at(exec);
	return dnn_bind(&dev->dnn, &plan->plan[plan->best], cuda_conv_ids(plan, ids), ids,
		(void *const[]){stands_for(n, o.x, exec->scratch, &c->at),
			stands_for(n, o.w, exec->scratch, &c->at), result_of(exec)->data,
			c->ends ? (char *)exec->scratch + c->at.bias : (void *)sums,
			sums + sums_stride(o.y)},
		exec->scratch, &c->run, err);
}

static int build_dnn(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	int nodes = exec->n_nodes == WITH_RELU ? 1 : exec->n_nodes;

	return build_pattern(dev, exec, pattern_of(exec->node[0].op, nodes), err);
}

static int build_joined(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	return build_pattern(dev, exec, DNN_PATTERN_CONV_RELU, err);
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
	c->at = scratch_of(&exec->node[0], 1, 0); /* of which only the sums of a bias are used */
	return cuda_product_new(dev, &g, &c->product, err);
}

/* A kernel of this backend, which runs in place of cuDNN's plan. */
static int build_kernel(struct cuda_exec *exec,
	cudaError_t (*kernel)(const struct cuda_dev *dev, const struct jm_node *n, void *scratch),
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
	(void)dev;
	return build_kernel(exec, cuda_conv_stem_run, err);
}

static int build_filter(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_kernel(exec, cuda_conv_filter_run, err);
}

static int build_depthwise(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev;
	return build_kernel(exec, cuda_conv_depthwise_run, err);
}

/* The ways to run the convolution, of which cuDNN is the first; NULL = it is the only one. */
static const struct cuda_way *ways_of(const struct cuda_dev *dev, const struct cuda_exec *exec)
{
	static const struct cuda_way products[] = {{"dnn", build_dnn}, {"product", build_product}};
	static const struct cuda_way stems[] = {{"dnn", build_dnn}, {"stem", build_stem}};
	static const struct cuda_way filters[] = {{"dnn", build_dnn}, {"filter", build_filter}};
	static const struct cuda_way channels[] = {
		{"dnn", build_dnn}, {"depthwise", build_depthwise}};
	static const struct cuda_way ends[] = {{"joined", build_joined}, {"dnn", build_dnn}};
	const struct jm_node *n = &exec->node[0];

	if (exec->n_nodes > 1)
		return exec->n_nodes == WITH_RELU ? ends : NULL;
	if (cuda_conv_is_stem(n))
		return stems;
	if (cuda_conv_is_filter(dev, n))
		return filters;
	if (cuda_conv_is_depthwise(n))
		return channels;
	return cuda_conv_is_product(n) || cuda_conv_scatters(n) ? products : NULL;
}

static int build_conv(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *n = &exec->node[0];
	const struct cuda_way *ways = ways_of(dev, exec);
	struct cuda_conv_key key = key_of(n, exec->n_nodes);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	char name[CUDA_PLAN_KEY];
	int best = 0;

	if (!plan || cuda_conv_tune(dev, plan, err)) /* first, while memory is free */
		return err->code;
	if (!ways)
		return build_dnn(dev, exec, err);
	cuda_conv_key_text(dev, "way", &key, name);
	best = cuda_way_choose(dev, exec, name, ways, 2);
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
	const struct jm_node *n = &exec->node[0];
	const struct conv *c = exec->own;
	int code;

	if (c->kernel)
		return cuda_check(dev, c->kernel(dev, n, exec->scratch), "Starting a kernel", err);
	code = c->product ? cuda_product_run(dev, c->product, err)
			  : dnn_run(&dev->dnn, &c->run, err);
	if (!code && c->product && cuda_conv_scatters(n))
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

static void cast_bias(struct cuda_dev *dev, const struct cuda_exec *exec)
{
	const struct conv *c = exec->own;
	const struct jm_tensor *bias = exec->node[0].in[2];
	struct cuda_pointwise p = {.map = CUDA_CAST,
		.n = bias->dim[0],
		.a = cuda_vec(bias),
		.y = {(char *)exec->scratch + c->at.bias, cuda_vec(result_of(exec)).type}};

	cuda_pointwise(&p, dev->stream);
}

static int run_conv(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_tensor *y = result_of(exec), *bias = exec->node[0].in[2];
	const struct conv *c = exec->own;
	int code;

	if (c->ends)
		cast_bias(dev, exec);
	fold_operands(dev, exec);
	code = start(dev, exec, err);
	if (!code && exec->node[0].op == JM_OP_CONV && bias && !c->ends)
		cuda_bias_add(cuda_vec(y), bias->data, y->dim[0] * y->dim[2] * y->dim[3], y->dim[1],
			exec->n_nodes == WITH_RELU, dev->stream);
	return code;
}

/* Computes mean, variance, rstd and running statistics from the sums that the convolution wrote. */
static int run_conv_stats(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	float *sums = sums_at(exec);
	int64_t stride = sums_stride(exec->node[0].out[0]);
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
	if (dbias) {
		struct cuda_bias_grad sum = bias_grad_of(n, (char *)exec->scratch + c->at.bias);

		cuda_bias_grad(&sum, dev->stream);
	}
	return 0;
}

/* ---- the gradient of a ReLU, which also adds up that of the bias -------------------------------------- */

static int takes_relu_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *relu = group->node[0], *n = group->node[1];
	const struct jm_group conv = {.n_nodes = 1, .node = {n}};
	enum jm_dtype type = relu->out[0]->type;

	if (!n->out[1] || relu->accumulate || n->in[0] != relu->out[0] ||
		relu->out[0]->is_virtual || relu->in[0]->type != type || relu->in[1]->type != type)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda does not compute this gradient of a bias before %s.",
			jm_op_name(n->op));
	return takes_conv(dev, &conv, err);
}

static int choices_relu_grad(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_group conv = {.n_nodes = 1, .node = {group->node[1]}};
	int found = choices_conv(dev, &conv, choice, err);

	memcpy(choice->in[1], choice->in[0], sizeof choice->in[1]);
	memcpy(choice->out[1], choice->out[0], sizeof choice->out[1]);
	memset(choice->out[0], 0, sizeof choice->out[0]);
	choice->in[0][0] = choice->in[0][1] = choice->out[0][0] = cuda_layout_last;
	return found;
}

/* The convolution of the group by itself, whose bias the other node adds up. */
static struct cuda_exec wgrad_of(const struct cuda_exec *exec)
{
	static const struct cuda_op alone = {
		{JM_OP_CONV_WGRAD}, 1, NULL, NULL, NULL, NULL, run_wgrad, drop_conv};
	struct cuda_exec own = *exec;

	own.op = &alone;
	own.n_nodes = 1;
	own.node[0] = exec->node[1];
	own.node[0].out[1] = NULL;
	return own;
}

static int build_relu_grad(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct cuda_exec conv = wgrad_of(exec);
	int code = build_conv(dev, &conv, err);

	exec->own = conv.own;
	return code;
}

static int run_relu_grad(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *relu = &exec->node[0];
	const struct cuda_exec conv = wgrad_of(exec);
	struct cuda_bias_grad sum = bias_grad_of(&exec->node[1], exec->scratch);

	sum.dy = cuda_vec(relu->in[0]);
	sum.y = cuda_vec(relu->in[1]);
	sum.dx = cuda_vec(relu->out[0]);
	cuda_bias_grad(&sum, dev->stream);
	return run_wgrad(dev, &conv, err);
}

const struct cuda_op cuda_ops_conv[] = {
	{{JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 3, takes_conv_stats, choices_conv, NULL,
		build_conv, run_conv_stats, drop_conv},
	{{JM_OP_CONV, JM_OP_RELU}, 2, takes_conv_relu, choices_conv, NULL, build_conv, run_conv,
		drop_conv},
	{{JM_OP_CONV}, 1, takes_conv, choices_conv, NULL, build_conv, run_conv, drop_conv},
	{{JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, 2, takes_relu_grad, choices_relu_grad, NULL,
		build_relu_grad, run_relu_grad, drop_conv},
	{{JM_OP_CONV_DGRAD}, 1, takes_conv, choices_conv, NULL, build_conv, run_conv, drop_conv},
	{{JM_OP_CONV_WGRAD}, 1, takes_conv, choices_conv, NULL, build_conv, run_wgrad, drop_conv},
	{.n_nodes = 0},
};
