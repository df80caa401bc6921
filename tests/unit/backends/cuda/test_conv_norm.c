/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of single pixels together with a batch norm in backend cuda, without a GPU: which
 * groups are accepted, and which memory each way reads and writes. The kernels and the other rows
 * of the backend are fakes: they keep their arguments.
 */
#include "backends/cuda/ops/conv/ops_conv_product.h"
#include "backends/cuda/ops/ops_image.h"
#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/choose/timed_choice.h"
#include "backends/cuda/device/gpu.h"
#include "backends/cuda/kernels/wide_pixels.h"
#include "kit/conv_norm_fakes.h"
#include "kit/test.h"
#include "backends/cuda/device/layouts.h"
#include "backends/cuda/ops/op_rows.h"

/* ---- a group --------------------------------------------------------------------------------- */

#define C 64

static struct cuda_dev dev;
static struct jm_tensor x, w, y, mean, var, rstd, gamma_of, dgamma, dbeta, norm_x, dx, dadd, z;
static struct jm_node node[4];
static struct jm_group group;
static struct cuda_exec exec;
static char memory[16], scratch[16384], bits[1];

static struct jm_tensor image(int64_t c, int at)
{
	return (struct jm_tensor){
		.type = JM_BF16, .rank = 4, .dim = {2, c, 3, 5}, .data = &memory[at]};
}

static struct jm_tensor vector(int at)
{
	return (struct jm_tensor){.type = JM_F32, .rank = 1, .dim = {C}, .data = &memory[at]};
}

static void set_group(int n)
{
	group = (struct jm_group){.n_nodes = n, .node = {&node[0], &node[1], &node[2], &node[3]}};
	exec = (struct cuda_exec){.n_nodes = n, .scratch = scratch};
	dev = (struct cuda_dev){.prop = {.major = 9, .multiProcessorCount = 132}};
	memset(&fake, 0, sizeof fake);
}

static void set_stats(void **unused)
{
	(void)unused;
	x = image(128, 0);
	w = image(128, 1);
	y = image(C, 2);
	mean = vector(3), var = vector(4), rstd = vector(5);
	node[0] = (struct jm_node){
		.op = JM_OP_CONV, .n_in = 2, .n_out = 1, .in = {&x, &w}, .out = {&y}};
	node[1] = (struct jm_node){
		.op = JM_OP_BN_STATS, .n_in = 1, .n_out = 2, .in = {&y}, .out = {&mean, &var}};
	node[2] = (struct jm_node){.op = JM_OP_BN_FINALIZE,
		.n_in = 2,
		.n_out = 1,
		.in = {&mean, &var},
		.out = {&rstd}};
	set_group(3);
}

/* The norm of y, to which nothing is added, is z. */
static void set_whole(void **unused)
{
	set_stats(unused);
	z = image(C, 12), gamma_of = vector(9);
	node[3] = (struct jm_node){.op = JM_OP_BN_APPLY,
		.n_in = 5,
		.n_out = 1,
		.in = {&y, &mean, &rstd, &gamma_of, &gamma_of},
		.out = {&z}};
	set_group(4);
	fake.once = true;
}

/* dgrad writes y, the gradient of the norm's result; the norm adds nothing and has a ReLU. */
static void set_grad(void **unused)
{
	set_stats(unused);
	norm_x = image(C, 6), dx = image(C, 7), dadd = image(C, 8);
	gamma_of = vector(9), dgamma = vector(10), dbeta = vector(11);
	y.is_virtual = true;
	y.data = NULL;
	node[0].op = JM_OP_CONV_DGRAD;
	node[1] = (struct jm_node){.op = JM_OP_BN_GRAD,
		.n_in = 7,
		.n_out = 4,
		.in = {&y, &norm_x, NULL, &gamma_of, &mean, &rstd, &gamma_of},
		.out = {&dx, &dgamma, &dbeta, NULL}};
	set_group(2);
}

/* A residual was added to the norm: y is read for the ReLU, and the other branch's gradient was
 * written before. */
static void set_residual(void **unused)
{
	set_grad(unused);
	y.is_virtual = false;
	y.is_last = true;
	y.data = &memory[2];
	node[0].accumulate = 1;
	node[1].in[2] = &x;
	node[1].in[6] = NULL;
	node[1].out[3] = &dadd;
	exec.fwd_saved = bits;
}

static const struct cuda_op *row(void)
{
	return &cuda_ops_conv_norm[group.n_nodes == 4 ? 3 : group.n_nodes == 2];
}

static bool takes(void)
{
	struct jm_err err = JM_ERR_INIT;

	return row()->takes(&dev, &group, &err) == 0;
}

/* Plans, builds and runs the group in the fake's way; false = it cannot be built. */
static bool runs(void)
{
	struct jm_choice choice = {0};
	struct jm_err err = JM_ERR_INIT;
	bool built;

	assert_true(takes());
	assert_int_equal(row()->choices(&dev, &group, &choice, &err), 1);
	assert_true(choice.scratch >= PIXEL_SCRATCH + 64 + 3 * C * sizeof(float));
	assert_true(jm_layout_equal(&choice.in[1][0], &cuda_layout_last));
	exec.scratch_bytes = choice.scratch;
	for (int i = 0; i < group.n_nodes; i++)
		exec.node[i] = node[i];
	built = !row()->build(&dev, &exec, &err);
	if (built)
		assert_int_equal(row()->run(&dev, &exec, &err), 0);
	row()->drop(&dev, &exec);
	return built;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void other_convolutions_are_left_to_other_rows(void **unused)
{
	for (int grad = 0; grad < 2; grad++) {
		void (*const set)(void **) = grad ? set_grad : set_stats;

		set(unused);
		assert_true(takes());
		fake.strided = true;
		assert_false(takes());
		set(unused);
		fake.unknown = true;
		assert_false(takes());
		set(unused);
		fake.no_plan = true;
		assert_false(takes());
		set(unused);
		dev.prop.major = 7;
		assert_false(takes());
		set(unused);
		w.type = JM_F32;
		assert_false(takes());
		x.type = y.type = norm_x.type = dx.type = JM_F32;
		assert_false(takes()); /* exact products */
		node[0].math = JM_MATH_TF32;
		assert_true(takes());
	}
}

static void sums_of_cudnn_come_first_where_they_are_allowed(void **unused)
{
	set_stats(unused);
	dev.fast = true;
	assert_true(takes());
	x.type = w.type = y.type = JM_F16;
	assert_false(takes());
	dev.fast = false;
	assert_true(takes());
}

static void results_that_others_read_are_kept(void **unused)
{
	set_stats(unused);
	y.is_virtual = true; /* the norm reads it */
	assert_false(takes());
	set_grad(unused);
	y.is_virtual = false;
	assert_false(takes());
	y.is_last = true;
	assert_true(takes());
	node[1].accumulate = 1; /* dx is added: e cannot lie there */
	assert_false(takes());
	set_residual(unused);
	assert_true(takes());
	node[1].accumulate = JM_ADD_NORM_DADD;
	assert_false(takes());
}

static void statistics_follow_in_each_way(void **unused)
{
	for (int way = 0; way < 2; way++) {
		set_stats(unused);
		dev.dnn.version = 91900;
		dev.fast = way;
		fake.way = way;
		assert_true(runs());
		assert_int_equal(fake.fused, way);
		assert_int_equal(fake.apart, !way);
		assert_ptr_equal(way ? fake.pixels.y.data : fake.conv_wrote, y.data);
		assert_ptr_equal(fake.stats.scratch, scratch);
		assert_true((char *)fake.stats.mean >= scratch + PIXEL_SCRATCH + 64);
		assert_string_equal(fake.key, way ? "norm/91900,conv,bf16,30,128,64,0,0000,fast"
						  : "norm/91900,conv,bf16,30,128,64,0,0000");
	}
}

static void the_kernel_gets_pixels_as_rows(void **unused)
{
	set_stats(unused);
	fake.way = 1;
	assert_true(runs());
	assert_int_equal(fake.pixels.columns, 64);
	assert_int_equal(fake.pixels.rows, 30);
	assert_int_equal(fake.pixels.k, 128);
	assert_int_equal(fake.pixels.n, C);
	assert_false(fake.pixels.turned);
}

static void wider_tiles_than_channels_are_no_way(void **unused)
{
	set_stats(unused);
	fake.way = 2; /* 128 columns of 64 */
	assert_false(runs());
}

#define WIDE 3 /* the way */

static void statistics_of_256_columns_have_memory_for_all_parts(void **unused)
{
	set_stats(unused);
	fake.way = WIDE;
	assert_false(runs());
	fake.wide = true;
	assert_true(runs());
	assert_int_equal(fake.wider, 1);
	assert_int_equal(fake.fused + fake.apart, 0);
	assert_int_equal(fake.pixels.columns, 256);
	assert_true((char *)fake.stats.mean >= scratch + WIDE_SCRATCH);
	dev.prop.major = 8; /* instructions of 9.0 */
	assert_false(runs());
}

static void a_kernel_that_does_not_start_is_an_error(void **unused)
{
	struct jm_err err = JM_ERR_INIT;

	set_residual(unused);
	fake.way = WIDE, fake.wide = true;
	for (int i = 0; i < group.n_nodes; i++)
		exec.node[i] = node[i];
	assert_int_equal(row()->build(&dev, &exec, &err), 0);
	fake.rc = cudaErrorInvalidValue;
	assert_true(row()->run(&dev, &exec, &err) < 0);
	row()->drop(&dev, &exec);
}

static void gradients_of_256_columns_need_bits_and_a_branch(void **unused)
{
	set_grad(unused);
	fake.way = WIDE, fake.wide = true;
	assert_false(runs());
	set_residual(unused);
	fake.way = WIDE, fake.wide = true;
	assert_true(runs());
	assert_int_equal(fake.wider, 1);
	assert_ptr_equal(fake.pixels.y.data, dadd.data);
	assert_ptr_equal(fake.pixels.add.data, y.data);
	node[0].accumulate = 0;
	assert_false(runs());
}

#define ONCE 4 /* the way */

static void whole_norms_are_taken_where_one_kernel_computes_them(void **unused)
{
	set_whole(unused);
	assert_true(takes());
	fake.once = false;
	assert_false(takes());
	set_whole(unused);
	node[3].in[5] = &x; /* a residual */
	assert_false(takes());
	set_whole(unused);
	node[3].accumulate = 1;
	assert_false(takes());
	set_whole(unused);
	node[3].in[0] = &x; /* the norm of another image */
	assert_false(takes());
	set_whole(unused);
	node[3].in[2] = &var; /* the factors of another norm */
	assert_false(takes());
}

static void a_norm_follows_in_each_way(void **unused)
{
	for (int way = 0; way <= ONCE; way++) {
		set_whole(unused);
		fake.wide = true;
		dev.dnn.version = 91900;
		fake.way = way;
		assert_int_equal(runs(), way != 2); /* 128 columns of 64 */
		assert_string_equal(fake.key, "norm/whole,91900,conv,bf16,30,128,64,0,0000");
		if (way == 2)
			continue;
		assert_int_equal(fake.whole, way == ONCE);
		assert_int_equal(fake.applied, way != ONCE);
		assert_int_equal(fake.apart, way == 0);
		assert_int_equal(fake.fused, way == 1);
		assert_int_equal(fake.wider, way == WIDE);
		if (way == 0 || way == ONCE)
			assert_ptr_equal(fake.conv_wrote, y.data);
		assert_ptr_equal(fake.stats.y.data, z.data);
		assert_true((char *)fake.stats.mean >= scratch + WIDE_SCRATCH);
	}
}

static void statistics_alone_are_no_whole_norm(void **unused)
{
	set_stats(unused);
	fake.way = ONCE, fake.once = true;
	assert_false(runs());
}

static void a_gradient_is_computed_by_one_kernel_where_there_is_one(void **unused)
{
	set_grad(unused);
	fake.way = ONCE;
	assert_false(runs());
	fake.once = true;
	assert_true(runs());
	assert_int_equal(fake.whole, 1);
	assert_int_equal(fake.apart, 0);
	assert_ptr_equal(fake.conv_wrote, dx.data);
	assert_ptr_equal(fake.grad.dy.data, dx.data);
	set_residual(unused);
	fake.way = ONCE, fake.once = true;
	assert_false(runs()); /* the mask is not that of the norm */
}

static void a_gradient_without_memory_lies_in_the_result(void **unused)
{
	set_grad(unused);
	assert_true(runs());
	assert_ptr_equal(fake.conv_wrote, dx.data);
	assert_ptr_equal(fake.grad.dy.data, dx.data);
	set_grad(unused);
	fake.way = 1;
	assert_true(runs());
	assert_ptr_equal(fake.pixels.y.data, dx.data);
	assert_null(fake.pixels.add.data);
	assert_true(fake.pixels.turned);
}

static void the_branch_gets_the_masked_gradient(void **unused)
{
	set_residual(unused);
	assert_true(runs());
	assert_ptr_equal(fake.conv_wrote, y.data);
	assert_ptr_equal(fake.grad.dy.data, y.data);
	fake.way = 1;
	assert_true(runs());
	assert_ptr_equal(fake.pixels.y.data, dadd.data);
	assert_ptr_equal(fake.pixels.add.data, y.data);
	exec.fwd_saved = NULL; /* the kernel does not read y for the ReLU */
	assert_false(runs());
	fake.way = 0;
	assert_true(runs());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_convolutions_are_left_to_other_rows),
		cmocka_unit_test(sums_of_cudnn_come_first_where_they_are_allowed),
		cmocka_unit_test(results_that_others_read_are_kept),
		cmocka_unit_test(statistics_follow_in_each_way),
		cmocka_unit_test(the_kernel_gets_pixels_as_rows),
		cmocka_unit_test(wider_tiles_than_channels_are_no_way),
		cmocka_unit_test(statistics_of_256_columns_have_memory_for_all_parts),
		cmocka_unit_test(a_kernel_that_does_not_start_is_an_error),
		cmocka_unit_test(gradients_of_256_columns_need_bits_and_a_branch),
		cmocka_unit_test(whole_norms_are_taken_where_one_kernel_computes_them),
		cmocka_unit_test(a_norm_follows_in_each_way),
		cmocka_unit_test(statistics_alone_are_no_whole_norm),
		cmocka_unit_test(a_gradient_is_computed_by_one_kernel_where_there_is_one),
		cmocka_unit_test(a_gradient_without_memory_lies_in_the_result),
		cmocka_unit_test(the_branch_gets_the_masked_gradient),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
