/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN recognises the graphs of attention, for an H100 that is only described: no GPU is needed,
 * but cuDNN is. Its engines for them are compiled at run time, which needs a GPU; on machines with
 * one test_backend compares their results with ref.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/dnn/dnn_attention.h"
#include "kit/test.h"
#include "backends/cuda/dnn/dnn_plan.h"
#include "backends/cuda/device/math_library.h"

#define WORKSPACE ((size_t)4 << 30)
#define WAYS	  8 /* that are asked for */

static struct cuda_dnn dnn;

static void need_cudnn(void)
{
	struct jm_err err = JM_ERR_INIT;
	char path[4096], json[4096];
	FILE *f;

	if (dnn.device)
		return;
	/* engines that are compiled at run time ask for the driver's library; a stub of it will
	 * do */
	if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) &&
		!dlopen("/usr/local/cuda/lib64/stubs/libcuda.so", RTLD_NOW | RTLD_GLOBAL)) {
		print_message("no library of the driver and no stub of it: %s\n", dlerror());
		skip();
	}
	if (cuda_dnn_load(&dnn, &err)) {
		print_message("%s\n", err.text);
		skip();
	}
	snprintf(path, sizeof path, "%s/tests/data/gpu/h100.json", getenv("JM_SOURCE"));
	f = fopen(path, "re");
	assert_non_null(f);
	json[fread(json, 1, sizeof json - 1, f)] = '\0';
	fclose(f);
	assert_ok(dnn_describe(&dnn, json, &err), err);
}

static struct dnn_attention_shape of_heads(
	int64_t batch, int64_t seq, int64_t heads, int64_t groups, int64_t depth)
{
	const int64_t row = (heads + 2 * groups) * depth;
	const struct dnn_heads packed = {.batch = seq * row, .row = row, .head = depth};

	return (struct dnn_attention_shape){.batch = batch,
		.seq = seq,
		.keys = seq,
		.heads = heads,
		.groups = groups,
		.depth = depth,
		.q = packed,
		.k = packed,
		.v = packed,
		.type = CUDNN_DATA_BFLOAT16,
		.repeatable = true};
}

/* Queries, keys and values in a tensor each, without gaps. */
static struct dnn_attention_shape of_caption(
	int64_t batch, int64_t seq, int64_t keys, int64_t heads, int64_t depth)
{
	const int64_t row = heads * depth;
	struct dnn_attention_shape s = of_heads(batch, seq, heads, heads, depth);

	s.keys = keys;
	s.q = (struct dnn_heads){.batch = seq * row, .row = row, .head = depth};
	s.k = s.v = (struct dnn_heads){.batch = keys * row, .row = row, .head = depth};
	return s;
}

static struct dnn_attention_shape causal(struct dnn_attention_shape s)
{
	s.causal = true;
	return s;
}

#define SHAPES 8

/* gpt-117m, gpt-800m, a llama with 4 query heads to a key head, vit-l16; unet-sd2's levels, which
 * see a caption */
static void get_shapes(struct dnn_attention_shape ret[SHAPES])
{
	const struct dnn_attention_shape shapes[SHAPES] = {
		causal(of_heads(32, 1024, 12, 12, 64)),
		causal(of_heads(8, 2048, 8, 8, 256)),
		causal(of_heads(2, 2048, 32, 8, 128)),
		of_heads(128, 197, 16, 16, 64),
		of_caption(64, 4096, 77, 5, 64),
		of_caption(64, 1024, 77, 10, 64),
		of_caption(64, 256, 77, 20, 64),
		of_caption(64, 64, 77, 20, 64),
	};

	memcpy(ret, shapes, sizeof shapes);
}

/* Ways to run it that cuDNN's heuristics name for the whole graph; 0 = it is no pattern of its. */
static int64_t ways_of(struct dnn_graph *g)
{
	const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	struct dnn_want want = {.ready = true, .workspace = WORKSPACE};
	struct jm_err why = JM_ERR_INIT;
	cudnnBackendDescriptor_t ask = NULL, way[WAYS];
	struct dnn_plan plan;
	int64_t count = 0;

	dnn_plans(g, &want, &plan, 1,
		&why); /* none: they are not ready; but the graph is whole now */
	if (g->err.code)
		return 0;
	assert_int_equal(
		dnn.call.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &ask),
		CUDNN_STATUS_SUCCESS);
	dnn.call.cudnnBackendSetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
		CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->whole);
	dnn.call.cudnnBackendSetAttribute(
		ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	dnn.call.cudnnBackendSetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
		CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dnn.device);
	for (int i = 0; i < WAYS; i++)
		assert_int_equal(dnn.call.cudnnBackendCreateDescriptor(
					 CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &way[i]),
			CUDNN_STATUS_SUCCESS);
	if (dnn.call.cudnnBackendFinalize(ask) ||
		dnn.call.cudnnBackendGetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS,
			CUDNN_TYPE_BACKEND_DESCRIPTOR, WAYS, &count, way))
		count = 0;
	for (int i = 0; i < WAYS; i++)
		dnn.call.cudnnBackendDestroyDescriptor(way[i]);
	dnn.call.cudnnBackendDestroyDescriptor(ask);
	return count;
}

static void check_in(const struct dnn_attention_shape *s, bool backward)
{
	struct dnn_attention_ids ids = {0};
	struct dnn_graph *g = backward ? dnn_attention_backward(&dnn, s, &ids)
				       : dnn_attention_forward(&dnn, s, &ids);
	int64_t ways;

	assert_non_null(g);
	ways = ways_of(g);
	print_message("%s, %d x %d to %d, heads %d/%d of %d, %s: %d ways\n",
		s->type == CUDNN_DATA_HALF ? "f16" : "bf16", (int)s->batch, (int)s->seq,
		(int)s->keys, (int)s->heads, (int)s->groups, (int)s->depth,
		backward ? "backward" : "forward", (int)ways);
	assert_true(ways > 0);
	dnn_graph_free(g);
}

/* In both types of 16 bits. */
static void check(const struct dnn_attention_shape *s, bool backward)
{
	struct dnn_attention_shape half = *s;

	half.type = CUDNN_DATA_HALF;
	check_in(s, backward);
	check_in(&half, backward);
}

/* No engine holds rows of heads as wide as these. */
static void too_wide_heads_are_not(void **unused)
{
	const struct dnn_attention_shape s = causal(of_heads(2, 1024, 4, 4, 1024));
	struct dnn_attention_ids ids = {0};
	struct dnn_graph *g;

	(void)unused;
	need_cudnn();
	g = dnn_attention_backward(&dnn, &s, &ids);
	assert_non_null(g);
	assert_int_equal(ways_of(g), 0);
	dnn_graph_free(g);
}

/* Of all shapes; repeatable: the gradient repeats its bits. */
static void check_all(bool backward, bool repeatable)
{
	struct dnn_attention_shape shapes[SHAPES];

	need_cudnn();
	get_shapes(shapes);
	for (int i = 0; i < SHAPES; i++) {
		shapes[i].repeatable = repeatable;
		check(&shapes[i], backward);
	}
}

static void forward_is_recognised(void **unused)
{
	(void)unused;
	check_all(false, true);
}

static void backward_that_repeats_its_bits_is_recognised(void **unused)
{
	(void)unused;
	check_all(true, true);
}

static void backward_that_need_not_repeat_is_recognised(void **unused)
{
	(void)unused;
	check_all(true, false);
}

/* cuDNN unloads libraries whose memory LeakSanitizer can then neither follow nor name. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(forward_is_recognised),
		cmocka_unit_test(backward_that_repeats_its_bits_is_recognised),
		cmocka_unit_test(backward_that_need_not_repeat_is_recognised),
		cmocka_unit_test(too_wide_heads_are_not)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
