/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/conv_norm_fakes.h"
#include "backends/cuda/ops/conv/ops_conv_product.h"
#include "backends/cuda/ops/ops_image.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/kernels/wide_pixels.h"
#include "kit/test.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/ops/op_rows.h"

struct conv_norm_fake fake;

const struct jm_layout cuda_layout_last = {.rank = 4, .order = {0, 2, 3, 1}};

bool cuda_conv_is_product(const struct jm_node *n)
{
	(void)n;
	return !fake.strided;
}

bool cuda_pixels_knows(const struct cuda_pixels *p)
{
	return !fake.unknown && p->n % p->columns == 0;
}

size_t cuda_pixels_scratch(const struct cuda_pixels *p)
{
	return PIXEL_SCRATCH + (size_t)p->columns;
}

void cuda_pixels_stats(const struct cuda_pixels *p, const struct cuda_bn *bn, cudaStream_t stream)
{
	(void)stream;
	fake.pixels = *p;
	fake.stats = *bn;
	fake.fused++;
}

void cuda_pixels_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream)
{
	(void)stream;
	fake.pixels = *p;
	fake.grad = *g;
	fake.fused++;
}

bool cuda_wide_pixels_know(const struct cuda_pixels *p)
{
	assert_int_equal(p->columns, 256);
	return fake.wide;
}

size_t cuda_wide_pixels_scratch(const struct cuda_pixels *p)
{
	assert_true(cuda_wide_pixels_know(p));
	return WIDE_SCRATCH;
}

cudaError_t cuda_wide_pixels_stats(
	const struct cuda_pixels *p, const struct cuda_bn *bn, cudaStream_t stream)
{
	(void)stream;
	fake.pixels = *p;
	fake.stats = *bn;
	fake.wider++;
	return fake.rc;
}

cudaError_t cuda_wide_pixels_grad(
	const struct cuda_pixels *p, const struct cuda_bn_grad *g, cudaStream_t stream)
{
	(void)stream;
	fake.pixels = *p;
	fake.grad = *g;
	fake.wider++;
	return fake.rc;
}

int cuda_check(const struct cuda_dev *device, cudaError_t rc, const char *what, struct jm_err *err)
{
	(void)device;
	return rc ? jm_err_set(err, JM_EIO, "%s failed.", what) : 0;
}

void cuda_bn_stats(const struct cuda_bn *p, cudaStream_t stream)
{
	(void)stream;
	fake.stats = *p;
	fake.apart++;
}

void cuda_bn_grad(const struct cuda_bn_grad *p, cudaStream_t stream)
{
	(void)stream;
	fake.grad = *p;
	fake.apart++;
}

void cuda_bn_apply(const struct cuda_bn *p, cudaStream_t stream)
{
	(void)stream;
	assert_ptr_equal(p->y.data, fake.stats.y.data);
	fake.applied++;
}

bool cuda_bn_is_once(const struct cuda_dev *device, const struct cuda_bn *p)
{
	(void)device;
	return fake.once && !p->add.data && !p->accumulate;
}

bool cuda_bn_grad_is_once(const struct cuda_dev *device, const struct cuda_bn_grad *p)
{
	(void)device;
	return fake.once && p->beta;
}

static unsigned arrived[1];

struct cuda_meeting cuda_meeting_of(struct cuda_dev *device)
{
	return (struct cuda_meeting){device->prop.multiProcessorCount, arrived};
}

cudaError_t cuda_bn_once(const struct cuda_bn *p, const struct cuda_meeting *m, cudaStream_t stream)
{
	(void)stream;
	assert_ptr_equal(m->arrived, arrived);
	fake.stats = *p;
	fake.whole++;
	return fake.rc;
}

cudaError_t cuda_bn_grad_once(
	const struct cuda_bn_grad *p, const struct cuda_meeting *m, cudaStream_t stream)
{
	(void)stream;
	assert_ptr_equal(m->arrived, arrived);
	fake.grad = *p;
	fake.whole++;
	return fake.rc;
}

struct cuda_bn cuda_bn_whole_of(const struct jm_node *n, float *own, void *scratch, void *mask)
{
	assert_null(mask);
	return (struct cuda_bn){.mean = own, .scratch = scratch, .y = cuda_vec(n[2].out[0])};
}

void cuda_image_layouts(const struct jm_group *group, int from, struct jm_choice *choice)
{
	for (int k = from; k < group->n_nodes; k++)
		choice->in[k][0] = cuda_layout_last;
}

struct cuda_bn cuda_bn_stats_of(
	const struct jm_node *stats, const struct jm_node *last, float *own, void *scratch)
{
	(void)stats, (void)last;
	return (struct cuda_bn){.mean = own, .scratch = scratch};
}

struct cuda_bn_grad cuda_bn_grad_of(const struct jm_node *n, const struct cuda_exec *exec)
{
	return (struct cuda_bn_grad){.dy = cuda_vec(n->in[0]),
		.beta = cuda_data(n->in[6]),
		.mask = n->in[2] ? exec->fwd_saved : NULL,
		.dx = cuda_vec(n->out[0]),
		.scratch = exec->scratch};
}

int cuda_takes_bn_again(const struct jm_node *grad, const struct jm_node *again, struct jm_err *err)
{
	(void)grad;
	(void)again;
	(void)err;
	return 0;
}

static int conv_choices(struct cuda_dev *dev, const struct jm_group *group,
	struct jm_choice *choice, struct jm_err *err)
{
	(void)dev, (void)err;
	assert_int_equal(group->n_nodes, 1);
	choice->scratch = CONV_SCRATCH;
	return 1;
}

static int conv_build(struct cuda_dev *dev, struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev, (void)err;
	assert_true(exec->scratch_bytes >= CONV_SCRATCH);
	return 0;
}

static int conv_run(struct cuda_dev *dev, const struct cuda_exec *exec, struct jm_err *err)
{
	(void)dev, (void)err;
	fake.conv_wrote = exec->node[0].out[0]->data;
	return 0;
}

static int conv_takes(struct cuda_dev *dev, const struct jm_group *group, struct jm_err *err)
{
	(void)dev;
	assert_int_equal(group->n_nodes, 1);
	return fake.no_plan ? jm_err_set(err, JM_ENOSUP, "There is no plan.") : 0;
}

const struct cuda_op cuda_ops_conv[] = {
	{{JM_OP_CONV, JM_OP_BN_STATS}, 2, NULL, NULL, NULL, NULL, NULL, NULL},
	{{JM_OP_CONV}, 1, conv_takes, conv_choices, NULL, conv_build, conv_run, NULL},
	{{JM_OP_CONV_DGRAD}, 1, conv_takes, conv_choices, NULL, conv_build, conv_run, NULL},
	{.n_nodes = 0},
};

int cuda_way_choose(struct cuda_dev *dev, const struct cuda_exec *exec, const char *key,
	const struct cuda_way *way, int n)
{
	(void)dev, (void)exec;
	assert_true(fake.way < n);
	assert_string_equal(way[0].name, "apart");
	snprintf(fake.key, sizeof fake.key, "%s", key);
	return fake.way;
}
