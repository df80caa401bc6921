/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions with a bias to whose result another image is added, in 16 bits: cuDNN, or a kernel
 * of this backend where it is faster, adds both before the sums are rounded. cuDNN's plans with and
 * without that image are timed once for each shape, before memory is planned; where the add, also
 * as a part of the group norm behind it, takes less time than the image costs the convolution, the
 * group is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conv_halo.h"
#include "conv_select.h"
#include "conv_space_to_depth.h"
#include "ops_conv_product.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/ops/op_rows.h"
#include "backends/cuda/ops/ops_linear.h"

/* ---- which groups ---------------------------------------------------------------------------- */

/* What is added to the convolution's result. */
static const struct jm_tensor *added(const struct jm_node *conv, const struct jm_node *add)
{
	return add->in[add->in[0] == conv->out[0]];
}

static struct cuda_conv_key key_of(const struct jm_node *conv, enum dnn_pattern pattern)
{
	struct cuda_conv_key key = cuda_conv_key_of(conv, 1);

	key.pattern = pattern;
	return key;
}

static bool fits(const struct cuda_dev *dev, const struct jm_node *conv, const struct jm_node *add)
{
	const struct jm_tensor *sums = conv->out[0], *image = added(conv, add);
	const enum cuda_conv_way way = cuda_conv_way(dev, conv);

	return conv->in[2] && sums->is_virtual && image != sums && !conv->accumulate &&
	       !add->accumulate && (sums->type == JM_BF16 || sums->type == JM_F16) &&
	       image->type == sums->type && add->out[0]->type == sums->type &&
	       image->rank == sums->rank && !memcmp(image->dim, sums->dim, sizeof sums->dim) &&
	       (way == CUDA_CONV_DNN || way == CUDA_CONV_PRODUCT) && !cuda_conv_folds(conv) &&
	       !cuda_conv_is_whole(conv);
}

#define FEW_FLOPS 1e9 /* take less time than starting another kernel */

/* Seconds in which the sum is written and an operand of it read: what the add behind the
 * convolution takes at least, and what a group norm takes for adding. */
static double seconds_of_add(struct cuda_dev *dev, const struct jm_tensor *sums)
{
	struct jm_device_props props;

	cuda_props(dev, &props);
	return props.peak_bytes > 0 ? 2 * (double)sums->bytes / props.peak_bytes : 0;
}

static bool is_faster(struct cuda_dev *dev, const struct jm_node *conv)
{
	const struct cuda_conv_key own = key_of(conv, DNN_PATTERN_CONV_ADD);
	const struct cuda_conv_key plain = key_of(conv, DNN_PATTERN_CONV_BIAS);

	return conv->flops_executed < FEW_FLOPS ||
	       cuda_conv_is_faster(dev, "added", &own, &plain, seconds_of_add(dev, conv->out[0]));
}

static int takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	const struct jm_node *conv = group->node[0];
	struct cuda_conv_key key;
	int code;

	if (!fits(dev, conv, group->node[1]))
		return jm_err_set(err, JM_ENOSUP,
			"Backend cuda cannot fuse this convolution with the image that is added.");
	code = cuda_takes_conv(
		dev, &(struct jm_group){.n_nodes = 1, .node = {group->node[0]}}, err);
	if (code)
		return code;
	key = key_of(conv, DNN_PATTERN_CONV_ADD);
	if (!cuda_conv_plan(dev, &key, err))
		return err->code;
	if (is_faster(dev, conv))
		return 0;
	return jm_err_set(
		err, JM_ENOSUP, "The image is added faster by itself than by the convolution.");
}

static int choices(struct cuda_dev *dev, const struct jm_group *group, struct jm_choice *choice,
	struct jm_err *err)
{
	const struct cuda_conv_key key = key_of(group->node[0], DNN_PATTERN_CONV_ADD);
	const struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);

	if (!plan)
		return 0;
	for (int k = 0; k < 2; k++) {
		choice->in[k][0] = choice->in[k][1] = cuda_layout_last;
		choice->out[k][0] = cuda_layout_last;
	}
	choice->scratch = cuda_conv_scratch_of(group->node[0], 1, plan->workspace).bytes;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

/* ---- build and run --------------------------------------------------------------------------- */

struct conv_add {
	struct dnn_run run;
	void *bias; /* in the images' type */
	bool halo;  /* an own kernel runs in place of cuDNN's plan */
};

static void drop(struct cuda_dev *dev, struct cuda_exec *exec)
{
	struct conv_add *c = exec->own;

	if (c)
		dnn_unbind(&dev->dnn, &c->run);
	free(c);
}

static int build_dnn(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	const struct jm_node *conv = &exec->node[0], *add = &exec->node[1];
	const struct cuda_conv_key key = key_of(conv, DNN_PATTERN_CONV_ADD);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	int64_t ids[CUDA_CONV_OPERANDS];
	struct conv_add *c;

	if (!plan || cuda_conv_tune(dev, plan, err))
		return err->code;
	exec->own = c = calloc(1, sizeof *c);
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	c->bias = (char *)exec->scratch + cuda_conv_scratch_of(conv, 1, plan->workspace).bias;
	return dnn_bind(&dev->dnn, &plan->plan[plan->best], cuda_conv_ids(plan, ids), ids,
		(void *const[]){conv->in[0]->data, conv->in[1]->data, add->out[0]->data, c->bias,
			added(conv, add)->data},
		exec->scratch, &c->run, err);
}

static int build_halo(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	struct conv_add *c = calloc(1, sizeof *c);

	(void)dev;
	exec->own = c;
	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a convolution.");
	c->halo = true;
	return 0;
}

static int build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	static const struct cuda_way ways[] = {{"dnn", build_dnn}, {"halo", build_halo}};
	const struct cuda_conv_key key = key_of(&exec->node[0], DNN_PATTERN_CONV_ADD);
	struct cuda_conv_plan *plan = cuda_conv_plan(dev, &key, err);
	char name[CUDA_PLAN_KEY];

	if (!plan || cuda_conv_tune(dev, plan, err)) /* first, while memory is free */
		return err->code;
	if (!cuda_conv_is_halo(dev, &exec->node[0]))
		return build_dnn(dev, exec, err);
	cuda_conv_key_text(dev, "way", &key, name);
	return ways[cuda_way_choose(dev, exec, name, ways, 2)].build(dev, exec, err);
}

static int run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	const struct conv_add *c = exec->own;

	if (c->halo)
		return cuda_check(dev, cuda_conv_halo_run(dev, exec), "Starting a kernel", err);
	cuda_cast_bias(dev, exec->node[0].in[2], c->bias, exec->node[1].out[0]->type);
	return dnn_run(&dev->dnn, &c->run, err);
}

const struct cuda_op cuda_ops_conv_add[] = {
	{{JM_OP_CONV, JM_OP_ADD}, 2, takes, choices, NULL, build, run, drop},
	{.n_nodes = 0},
};
