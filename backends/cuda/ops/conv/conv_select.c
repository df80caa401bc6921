/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of plans, scratch, and which groups cuDNN and the own kernels take. */
#include "conv_select.h"

#include <math.h>
#include <string.h>

#include "conv_depthwise.h"
#include "conv_filter.h"
#include "conv_space_to_depth.h"
#include "conv_stem.h"
#include "ops_conv_product.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/ops/ops_pool.h"

#define SUMS 4 /* of each channel: x, its squares, mean, variance */

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

enum dnn_pattern cuda_conv_pattern_of(enum jm_op op, int nodes)
{
	return nodes == CUDA_CONV_STATS	 ? DNN_PATTERN_CONV_STATS
	       : nodes == CUDA_CONV_RELU ? DNN_PATTERN_CONV_RELU
	       : op == JM_OP_CONV	 ? DNN_PATTERN_CONV
	       : op == JM_OP_CONV_DGRAD	 ? DNN_PATTERN_DGRAD
					 : DNN_PATTERN_WGRAD;
}

struct cuda_conv_key cuda_conv_key_of(const struct jm_node *n, int nodes)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_key key = {.pattern = cuda_conv_pattern_of(n->op, nodes)};

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

int64_t cuda_conv_sums_stride(const struct jm_tensor *y)
{
	return (y->dim[1] + 3) / 4 * 4;
}

struct cuda_conv_scratch cuda_conv_scratch_of(const struct jm_node *n, int nodes, size_t workspace)
{
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_scratch s = {.image = aligned(workspace)};
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
	if (n->op == JM_OP_CONV && o.bias)
		s.bytes += (size_t)o.bias->dim[0] * jm_dtype_bytes(o.x->type);
	if (nodes == CUDA_CONV_STATS)
		s.bytes += SUMS * sizeof(float) * (size_t)cuda_conv_sums_stride(o.y);
	return s;
}

int cuda_takes_conv(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_operands o = cuda_operands_of(n);
	struct cuda_conv_key key = cuda_conv_key_of(n, group->n_nodes);

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

/* A convolution followed by the statistics of its result; cuDNN has engines for both in f16, whose
 * sums differ in their last bits from run to run, although cuDNN does not say so. */
int cuda_takes_conv_stats(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
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
	return cuda_takes_conv(dev, group, err);
}

enum cuda_conv_way cuda_conv_way(const struct cuda_dev *dev, const struct jm_node *n)
{
	if (cuda_conv_is_stem(n))
		return CUDA_CONV_STEM;
	if (cuda_conv_is_filter(dev, n))
		return CUDA_CONV_FILTER;
	if (cuda_conv_is_slim(dev, n))
		return CUDA_CONV_SLIM;
	if (cuda_conv_is_wide(dev, n))
		return CUDA_CONV_WIDE;
	if (cuda_conv_is_depthwise(n))
		return CUDA_CONV_DEPTHWISE;
	return cuda_conv_is_product(n) || cuda_conv_scatters(n) ? CUDA_CONV_PRODUCT : CUDA_CONV_DNN;
}

struct cuda_conv_plan *cuda_conv_bias_plan(struct cuda_dev *dev, const struct jm_node *n)
{
	struct cuda_conv_key key = cuda_conv_key_of(n, 1);
	struct jm_err none = JM_ERR_INIT;

	if (n->op != JM_OP_CONV || !n->in[2] || n->in[0]->type == JM_F32 || n->accumulate ||
		cuda_conv_folds(n) || cuda_conv_way(dev, n) != CUDA_CONV_DNN)
		return NULL;
	key.pattern = DNN_PATTERN_CONV_BIAS;
	return cuda_conv_plan(dev, &key, &none);
}

/*
 * A bias and a ReLU, which cuDNN or the kernel of a small first layer applies before the sums are
 * rounded, or an own kernel to cuDNN's result in one pass. The other ways have no such end.
 */
int cuda_takes_conv_relu(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *n = group->node[0], *relu = group->node[1];

	if (!n->in[2] || n->in[0]->type == JM_F32 || n->accumulate || relu->accumulate ||
		relu->in[0] != n->out[0] || !n->out[0]->is_virtual ||
		relu->out[0]->type != n->out[0]->type || cuda_conv_is_whole(n) ||
		!(cuda_conv_way(dev, n) == CUDA_CONV_DNN ||
			(cuda_conv_is_stem(n) && cuda_conv_stem_ends(n))))
		return jm_err_set(
			err, JM_ENOSUP, "Backend cuda cannot fuse this convolution with its ReLU.");
	return cuda_takes_conv(dev, group, err);
}

static bool lies_last(const struct jm_tensor *t)
{
	return jm_layout_equal(&t->layout, &cuda_layout_last);
}

/* The bytes that suffice for each way to run the group. */
static size_t most_scratch(
	const struct cuda_dev *dev, const struct jm_node *n, int nodes, size_t workspace)
{
	size_t bytes = cuda_conv_scratch_of(n, nodes, workspace).bytes;
	size_t other = 0;

	switch (cuda_conv_way(dev, n)) {
	case CUDA_CONV_STEM:
		other = cuda_conv_stem_scratch(dev, n);
		break;
	case CUDA_CONV_FILTER:
		other = cuda_conv_filter_scratch(dev, n);
		break;
	case CUDA_CONV_SLIM:
		other = cuda_conv_slim_scratch(dev, n);
		break;
	case CUDA_CONV_WIDE:
		other = cuda_conv_wide_scratch(dev, n);
		break;
	case CUDA_CONV_DEPTHWISE:
		other = cuda_conv_depthwise_scratch(dev, n);
		break;
	case CUDA_CONV_PRODUCT:
		other = cuda_conv_scatters(n) ? cuda_conv_compact(n) : 0;
		break;
	case CUDA_CONV_DNN:
		break;
	}
	return bytes > other ? bytes : other;
}

int cuda_choices_conv(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	const struct jm_node *n = group->node[0];
	struct cuda_conv_key key = cuda_conv_key_of(n, group->n_nodes);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err), *alone = plan, *joined;

	if (plan && group->n_nodes == CUDA_CONV_RELU) {
		key.pattern = DNN_PATTERN_CONV;
		alone = cuda_conv_plan(dev, &key, err);
	}
	if (!plan || !alone)
		return 0;
	joined = group->n_nodes == 1 ? cuda_conv_bias_plan(dev, n) : NULL;
	if (joined && joined->workspace > alone->workspace)
		alone = joined;
	if (group->n_nodes > 1)
		choice->in[1][0] = cuda_layout_last;
	if (group->n_nodes == CUDA_CONV_RELU)
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

/* A pooling whose gradient is computed in one pass with that of the ReLU behind it. */
static bool takes_pooled(const struct jm_node *pool, const struct jm_node *relu)
{
	struct cuda_pool p = cuda_pool_of(pool, pool->in[1], pool->in[0]);

	return pool->fwd && !jm_node_adds(pool, 0) && pool->out[0] == relu->in[0] &&
	       pool->out[0]->is_virtual && pool->in[1] == relu->in[1] &&
	       pool->in[0]->type == relu->out[0]->type && cuda_maxpool_covers(&p);
}

int cuda_takes_relu_grad(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	struct jm_node *const *last = (struct jm_node *const *)&group->node[group->n_nodes - 1];
	const struct jm_node *relu = last[-1], *n = last[0];
	const struct jm_group conv = {.n_nodes = 1, .node = {last[0]}};
	enum jm_dtype type = relu->out[0]->type;

	if (!n->out[1] || relu->accumulate || n->in[0] != relu->out[0] ||
		relu->in[0]->type != type || relu->in[1]->type != type ||
		(group->n_nodes > 2 && !takes_pooled(group->node[0], relu)))
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda does not compute this gradient of a bias before %s.",
			jm_op_name(n->op));
	return cuda_takes_conv(dev, &conv, err);
}

size_t cuda_conv_opened_bytes(const struct jm_node *relu)
{
	return relu->out[0]->is_virtual ? aligned(relu->out[0]->bytes) : 0;
}

/* The gradient of the filter runs without that of the bias, and may do so in ways that need more
 * memory than those of both. */
int cuda_choices_relu_grad(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	const int last = group->n_nodes - 1;
	const struct jm_group both = {.n_nodes = 1, .node = {group->node[last]}};
	struct jm_node filter = *group->node[last];
	const struct jm_group alone = {.n_nodes = 1, .node = {&filter}};
	size_t scratch;
	int found;

	filter.out[1] = NULL;
	if (cuda_choices_conv(dev, &alone, choice, err) <= 0)
		return 0;
	scratch = choice->scratch;
	found = cuda_choices_conv(dev, &both, choice, err);
	choice->scratch = choice->scratch > scratch ? choice->scratch : scratch;
	memcpy(choice->in[last], choice->in[0], sizeof choice->in[last]);
	memcpy(choice->out[last], choice->out[0], sizeof choice->out[last]);
	memset(choice->in[0], 0, sizeof choice->in[0]);
	memset(choice->out[0], 0, sizeof choice->out[0]);
	for (int k = 0; k < last; k++)
		choice->in[k][0] = choice->in[k][1] = choice->out[k][0] = cuda_layout_last;
	if (last == 2) /* the saved positions of maxima say which of them are above 0, too */
		choice->unread[0] = choice->unread[1] = 1 << 1;
	choice->scratch += cuda_conv_opened_bytes(group->node[last - 1]);
	return found;
}
