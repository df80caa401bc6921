/* SPDX-License-Identifier: Apache-2.0 */
/* What backend cuda fuses only where results may differ in their last bits (JM_CUDA_FAST), on a
 * fake runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/check/op_kit.h"
#include "kit/test.h"

static char folder[64], plugin[128];

static int start(void **unused)
{
	char path[4096];

	(void)unused;
	snprintf(folder, sizeof(folder), "/tmp/joulemark-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(plugin, sizeof(plugin), "%s/cuda.so", folder);
	snprintf(path, sizeof(path), "%s/tests/peers/cuda-plans.so", getenv("JM_BUILD"));
	assert_int_equal(symlink(path, plugin), 0);
	setenv("JM_BACKENDS", folder, 1);
	snprintf(path, sizeof(path), "%s/tests/peers/libcublaslt-fake.so", getenv("JM_BUILD"));
	setenv("JM_CUBLASLT_LIB", path, 1);
	setenv("JM_CUDNN_LIB", "/nothing.so", 1);
	return 0;
}

static int stop(void **unused)
{
	(void)unused;
	return unlink(plugin) || rmdir(folder);
}

/* Why the backend refuses a convolution with the sums of its batch norm. */
static void ask(struct jm_err *err)
{
	struct jm_choice choice[JM_CHOICE_MAX] = {0};
	struct jm_group group = {.n_nodes = 3};
	struct jm_err none = JM_ERR_INIT;
	struct jm_tensor *x, *w, *y, *mean, *var, *rstd;
	struct kit k;

	assert_ok(kit_open(&k, "cuda:0", 1, JM_F16, &none), none);
	x = kit_normal(&k, JM_F16, 0, 1, 4, DIMS(2, 8, 6, 6));
	w = kit_normal(&k, JM_F16, 0, 1, 4, DIMS(16, 8, 1, 1));
	y = kit_out(&k, JM_F16, 4, DIMS(2, 16, 6, 6), NULL);
	mean = kit_out(&k, JM_F32, 1, DIMS(16), NULL);
	var = kit_out(&k, JM_F32, 1, DIMS(16), NULL);
	rstd = kit_out(&k, JM_F32, 1, DIMS(16), NULL);
	group.node[0] = jm_graph_node(k.graph, JM_OP_CONV, OPS(x, w), &y);
	group.node[1] = jm_graph_node(k.graph, JM_OP_BN_STATS, OPS(y), OPS(mean, var));
	group.node[2] = jm_graph_node(k.graph, JM_OP_BN_FINALIZE, OPS(mean, var), OPS(rstd));
	assert_int_equal(k.device.backend->select(k.device.dev, &group, choice, err), 0);
	kit_done(&k);
}

static void sums_of_a_convolution_need_the_fast_mode(void **unused)
{
	struct jm_err err = JM_ERR_INIT, fast = JM_ERR_INIT;

	(void)unused;
	ask(&err);
	assert_non_null(strstr(err.text, "--fast"));
	setenv("JM_CUDA_FAST", "1", 1);
	ask(&fast);
	assert_non_null(strstr(fast.text, "/nothing.so")); /* it would be cuDNN's */
	unsetenv("JM_CUDA_FAST");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			sums_of_a_convolution_need_the_fast_mode, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
