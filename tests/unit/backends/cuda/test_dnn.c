/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's plans for the convolutions of ResNet-50 on an H100 that is only described: no GPU is
 * needed, but cuDNN is.
 */
#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/dnn/dnn_conv.h"
#include "kit/engine_kit.h"
#include "kit/test.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/device/math_library.h"

#define SHAPES	  32
#define WORKSPACE ((size_t)256 << 20)
#define BATCH	  256

static struct cuda_dnn dnn;
static struct dnn_conv_shape shapes[SHAPES];
static int n_shapes;

static struct dnn_conv_shape shape_of(const struct jm_node *n)
{
	struct dnn_conv_shape s;

	memset(&s, 0, sizeof s);
	memcpy(s.x, n->in[0]->dim, sizeof s.x);
	memcpy(s.w, n->in[1]->dim, sizeof s.w);
	memcpy(s.y, n->out[0]->dim, sizeof s.y);
	for (int i = 0; i < 2; i++) {
		s.window.stride[i] = n->attr.conv.stride[i];
		s.window.pad[i] = n->attr.conv.pad[i];
		s.window.dilation[i] = n->attr.conv.dilation[i];
	}
	return s;
}

static void keep_shape(const struct dnn_conv_shape *s)
{
	for (int i = 0; i < n_shapes; i++)
		if (dnn_conv_shape_equal(&shapes[i], s))
			return;
	assert_true(n_shapes < SHAPES);
	shapes[n_shapes++] = *s;
}

static void find_shapes(void)
{
	struct jm_training t = {.batch = BATCH, .precision = JM_F32};
	struct jm_err err = JM_ERR_INIT;
	struct jm_values dims;
	struct jm_graph *g;

	kit_model((const char *const[]){"resnet50", NULL}, &t.model, &dims);
	t.dims = &dims;
	assert_ok(jm_model_train(&t, &g, &err), err);
	for (int i = 0; i < g->n_nodes; i++)
		if (g->node[i]->op == JM_OP_CONV) {
			struct dnn_conv_shape s = shape_of(g->node[i]);

			keep_shape(&s);
		}
	jm_graph_free(g);
	jm_values_done(&dims);
}

static void read_device(char *ret, size_t size)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/tests/data/gpu/h100.json", getenv("JM_SOURCE"));
	f = fopen(path, "re");
	assert_non_null(f);
	ret[fread(ret, 1, size - 1, f)] = '\0';
	fclose(f);
}

/* Once, for all tests; where cuDNN is absent each of them is skipped. */
static void need_cudnn(void)
{
	struct jm_err err = JM_ERR_INIT;
	char json[4096];

	if (dnn.device)
		return;
	if (cuda_dnn_load(&dnn, &err)) {
		print_message("%s\n", err.text);
		skip();
	}
	read_device(json, sizeof json);
	assert_ok(dnn_describe(&dnn, json, &err), err);
	find_shapes();
}

static int plans_of(enum dnn_pattern pattern, const struct dnn_conv_shape *shape,
	cudnnDataType_t type, const struct dnn_want *want, struct dnn_plan *ret, int max)
{
	struct dnn_conv_shape s = *shape;
	struct jm_err err = JM_ERR_INIT;
	struct dnn_conv_ids ids;
	struct dnn_graph *g;
	int n;

	s.type = type;
	g = dnn_conv_graph(&dnn, pattern, &s, &ids);
	assert_non_null(g);
	n = dnn_plans(g, want, ret, max, &err);
	assert_int_equal(n == 0, err.code != 0);
	dnn_graph_free(g);
	return n;
}

static const struct dnn_want any = {.repeatable = true, .ready = true, .workspace = WORKSPACE};

/* How many shapes have a plan of the pattern. */
static int count(enum dnn_pattern pattern, cudnnDataType_t type, const struct dnn_want *want)
{
	int found = 0;

	for (int i = 0; i < n_shapes; i++) {
		struct dnn_plan plan;

		if (plans_of(pattern, &shapes[i], type, want, &plan, 1)) {
			assert_true(plan.workspace <= want->workspace);
			dnn_plan_drop(&dnn, &plan);
			found++;
		}
	}
	return found;
}

/* Of a convolution in f32. */
static int count_one(const struct dnn_conv_shape *shape, const struct dnn_want *want)
{
	struct dnn_plan plan[16];
	int n = plans_of(DNN_PATTERN_CONV, shape, CUDNN_DATA_FLOAT, want, plan, 16);

	for (int k = 0; k < n; k++)
		dnn_plan_drop(&dnn, &plan[k]);
	return n;
}

static void plans_exist_for_every_convolution_of_resnet50(void **unused)
{
	static const enum dnn_pattern plain[] = {
		DNN_PATTERN_CONV, DNN_PATTERN_DGRAD, DNN_PATTERN_WGRAD};
	struct dnn_want exact = any;

	(void)unused;
	need_cudnn();
	exact.exact = true;
	assert_int_equal(n_shapes, 23);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(count(plain[i], CUDNN_DATA_BFLOAT16, &any), n_shapes);
		assert_int_equal(count(plain[i], CUDNN_DATA_HALF, &any), n_shapes);
		assert_int_equal(count(plain[i], CUDNN_DATA_FLOAT, &exact), n_shapes);
	}
}

/* What the backend asks for beyond the shapes of the network: sums into what is there, and the
 * first layer with the squares of its stride as channels. */
static void plans_exist_for_sums_and_the_folded_first_layer(void **unused)
{
	struct dnn_conv_shape first = {.x = {BATCH, 16, 115, 115},
		.w = {64, 16, 4, 4},
		.y = {BATCH, 64, 112, 112},
		.window = {.stride = {1, 1}, .dilation = {1, 1}}};
	struct dnn_plan plan;

	(void)unused;
	need_cudnn();
	for (int i = 0; i < n_shapes; i++)
		shapes[i].add = true;
	assert_int_equal(count(DNN_PATTERN_CONV, CUDNN_DATA_BFLOAT16, &any), n_shapes);
	assert_int_equal(count(DNN_PATTERN_DGRAD, CUDNN_DATA_BFLOAT16, &any), n_shapes);
	for (int i = 0; i < n_shapes; i++)
		shapes[i].add = false;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(plans_of(i ? DNN_PATTERN_WGRAD : DNN_PATTERN_CONV, &first,
					 CUDNN_DATA_BFLOAT16, &any, &plan, 1),
			1);
		dnn_plan_drop(&dnn, &plan);
	}
}

/* Of fp16 all but the stem, whose three channels no engine takes; of bf16 none. */
static void joined_operations_exist_in_fp16_only(void **unused)
{
	static const enum dnn_pattern joined[] = {DNN_PATTERN_CONV_STATS,
		DNN_PATTERN_NORM_CONV_STATS, DNN_PATTERN_DGRAD_NORM, DNN_PATTERN_NORM_WGRAD};

	(void)unused;
	need_cudnn();
	if (dnn.version != 91900) {
		print_message("cuDNN is %zu; the table is of 91900\n", dnn.version);
		skip();
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(count(joined[i], CUDNN_DATA_HALF, &any), n_shapes - 1);
		assert_int_equal(count(joined[i], CUDNN_DATA_BFLOAT16, &any), 0);
	}
}

/* All but the stem, whose three channels are folded to 16 first (conv_space_to_depth.h). */
static void bias_relu_and_residual_join_convolutions_in_16_bits(void **unused)
{
	(void)unused;
	need_cudnn();
	assert_int_equal(count(DNN_PATTERN_CONV_RELU, CUDNN_DATA_BFLOAT16, &any), n_shapes);
	assert_int_equal(count(DNN_PATTERN_CONV_RELU, CUDNN_DATA_HALF, &any), n_shapes);
	assert_int_equal(count(DNN_PATTERN_CONV_ADD, CUDNN_DATA_BFLOAT16, &any), n_shapes);
	assert_int_equal(count(DNN_PATTERN_CONV_ADD, CUDNN_DATA_HALF, &any), n_shapes);
}

/* Without tensor cores cuDNN names few engines first, and most of them turn images around in a
 * workspace. */
static void exact_plans_are_several_where_the_workspace_is_large(void **unused)
{
	const struct dnn_want few = {
		.exact = true, .repeatable = true, .ready = true, .workspace = WORKSPACE};
	struct dnn_want want = few;

	(void)unused;
	need_cudnn();
	want.all = true;
	want.workspace = (size_t)2 << 30;
	for (int i = 0; i < n_shapes; i++) {
		int n = count_one(&shapes[i], &want);

		assert_true(n >= 4);
		assert_true(n >= count_one(&shapes[i], &few));
	}
}

static void plan_is_found_again_by_its_name(void **unused)
{
	struct dnn_plan all[4], one;
	struct dnn_want again = any;
	int n;

	(void)unused;
	need_cudnn();
	n = plans_of(DNN_PATTERN_CONV, &shapes[5], CUDNN_DATA_BFLOAT16, &any, all, 4);
	assert_int_equal(n, 4);
	again.name = all[3].name;
	assert_int_equal(
		plans_of(DNN_PATTERN_CONV, &shapes[5], CUDNN_DATA_BFLOAT16, &again, &one, 1), 1);
	assert_string_equal(one.name, all[3].name);
	assert_string_not_equal(one.name, all[0].name);
	assert_int_equal(one.workspace, all[3].workspace);
	again.name = "e9999";
	dnn_plan_drop(&dnn, &one);
	assert_int_equal(
		plans_of(DNN_PATTERN_CONV, &shapes[5], CUDNN_DATA_BFLOAT16, &again, &one, 1), 0);
	for (int i = 0; i < n; i++)
		dnn_plan_drop(&dnn, &all[i]);
}

/* Four rows of x cannot give five of y. */
static void says_why_a_graph_is_refused(void **unused)
{
	struct dnn_conv_shape s = {.x = {1, 8, 4, 4}, .w = {8, 8, 1, 1}, .y = {1, 8, 5, 4}};
	struct jm_err err = JM_ERR_INIT;
	struct dnn_conv_ids ids;
	struct dnn_graph *g;
	struct dnn_plan one;

	(void)unused;
	need_cudnn();
	for (int i = 0; i < 2; i++)
		s.window.stride[i] = s.window.dilation[i] = 1;
	s.type = CUDNN_DATA_BFLOAT16;
	g = dnn_conv_graph(&dnn, DNN_PATTERN_CONV, &s, &ids);
	assert_int_equal(dnn_plans(g, &any, &one, 1, &err), 0);
	assert_int_equal(err.code, JM_ENOSUP);
	assert_non_null(strstr(err.text, "cuDNN refuses a convolution"));
	dnn_graph_free(g);
}

static int forget(void **unused)
{
	(void)unused;
	dnn_forget(&dnn);
	return 0;
}

/* cuDNN unloads libraries whose memory LeakSanitizer can then neither follow nor name. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_exist_for_every_convolution_of_resnet50),
		cmocka_unit_test(plans_exist_for_sums_and_the_folded_first_layer),
		cmocka_unit_test(joined_operations_exist_in_fp16_only),
		cmocka_unit_test(bias_relu_and_residual_join_convolutions_in_16_bits),
		cmocka_unit_test(exact_plans_are_several_where_the_workspace_is_large),
		cmocka_unit_test(plan_is_found_again_by_its_name),
		cmocka_unit_test(says_why_a_graph_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, forget);
}
