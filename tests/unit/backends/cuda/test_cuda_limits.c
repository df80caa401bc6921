/* SPDX-License-Identifier: Apache-2.0 */
/* What backend cuda asks of a GPU, on a fake runtime: each device by its own GPU, and no more
 * shared memory than a block may have. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/check/op_kit.h"
#include "kit/test.h"

static char folder[64], plugin[128];

static void start(const char *fake)
{
	char path[4096];

	snprintf(folder, sizeof(folder), "/tmp/joulemark-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(plugin, sizeof(plugin), "%s/cuda.so", folder);
	snprintf(path, sizeof(path), "%s/tests/peers/%s", getenv("JM_BUILD"), fake);
	assert_int_equal(symlink(path, plugin), 0);
	setenv("JM_BACKENDS", folder, 1);
	snprintf(path, sizeof(path), "%s/tests/peers/libcublaslt-fake.so", getenv("JM_BUILD"));
	setenv("JM_CUBLASLT_LIB", path, 1);
}

static int stop(void **unused)
{
	(void)unused;
	unsetenv("JM_FAKE_CUDA");
	return unlink(plugin) || rmdir(folder);
}

/* The second device that is opened leaves its GPU as the current one. */
static void each_device_selects_on_its_own_gpu(void **unused)
{
	struct jm_device device[2];
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	start("cuda-on-fakes.so");
	setenv("JM_FAKE_CUDA", "gpus=2", 1);
	assert_ok(jm_device_open("cuda:0", 1, &device[0], &err), err);
	assert_ok(jm_device_open("cuda:1", 1, &device[1], &err), err);
	for (int i = 0; i < 2; i++) {
		struct jm_node node = {.op = JM_OP_ADD};
		struct jm_group group = {.n_nodes = 1, .node = {&node}};
		struct jm_choice choice[JM_CHOICE_MAX] = {0};
		struct jm_err why = JM_ERR_INIT;
		char gpu[32];

		device[i].backend->select(device[i].dev, &group, choice, &why);
		snprintf(gpu, sizeof(gpu), "on GPU %d.", i);
		assert_non_null(strstr(why.text, gpu));
	}
	jm_device_close(&device[0]);
	jm_device_close(&device[1]);
}

/* Runs a loss over so many classes, with its gradient. */
static void run_loss(enum jm_dtype type, int64_t classes)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *logits, *targets, *scale, *loss, *dlogits;
	struct jm_node *n;
	struct kit k;

	assert_ok(kit_open(&k, "cuda:0", 1, type, &err), err);
	logits = kit_normal(&k, type, 0, 1, 2, DIMS(2, classes));
	targets = kit_ids(&k, classes, 1, DIMS(2));
	scale = kit_normal(&k, JM_F32, 1, 0, 1, DIMS(1));
	loss = kit_out(&k, JM_F32, 1, DIMS(1), NULL);
	dlogits = kit_out(&k, type, 2, DIMS(2, classes), NULL);
	n = jm_graph_node(
		k.graph, JM_OP_SOFTMAX_XENT, OPS(logits, targets, scale), OPS(loss, dlogits));
	n->attr.xent.scale = n->attr.xent.weight = 1;
	assert_ok(kit_run(&k, &err), err);
	kit_done(&k);
}

/* Rows of 64 to 256 KB: a block of Ampere's GeForce may have 99 KB, one of Hopper 227. */
static void rows_of_a_loss_fit_the_gpu(void **unused)
{
	static const char *const gpu[] = {"graphs=1;cc=86@0;shared=99", "graphs=1;shared=227"};

	(void)unused;
	start("cuda-plans.so");
	for (int i = 0; i < 2; i++) {
		setenv("JM_FAKE_CUDA", gpu[i], 1);
		for (int64_t kb = 64; kb <= 256; kb += 4) {
			run_loss(JM_BF16, kb << 9);
			run_loss(JM_F32, kb << 8);
		}
	}
}

/* Runs a group norm of images of some pixels in each direction, with its gradient. */
static void run_groups(int64_t channels, int64_t side)
{
	const int64_t *dim = DIMS(1, channels, side, side), *c = DIMS(channels);
	struct jm_err err = JM_ERR_INIT;
	struct jm_tensor *x, *dy, *gamma, *beta, *mean, *rstd;
	struct jm_node *fwd, *bwd;
	struct kit k;

	assert_ok(kit_open(&k, "cuda:0", 1, JM_BF16, &err), err);
	x = kit_normal(&k, JM_BF16, 0, 1, 4, dim);
	dy = kit_normal(&k, JM_BF16, 0, 1, 4, dim);
	gamma = kit_normal(&k, JM_F32, 1, 0.1, 1, c);
	beta = kit_normal(&k, JM_F32, 0, 1, 1, c);
	mean = kit_out(&k, JM_F32, 2, DIMS(1, 32), NULL);
	rstd = kit_out(&k, JM_F32, 2, DIMS(1, 32), NULL);
	fwd = jm_graph_node(k.graph, JM_OP_GROUPNORM, OPS(x, gamma, beta),
		OPS(kit_out(&k, JM_BF16, 4, dim, NULL), mean, rstd));
	bwd = jm_graph_node(k.graph, JM_OP_GROUPNORM_GRAD, OPS(dy, x, gamma, beta, mean, rstd),
		OPS(kit_out(&k, JM_BF16, 4, dim, NULL), kit_out(&k, JM_F32, 1, c, NULL),
			kit_out(&k, JM_F32, 1, c, NULL)));
	fwd->attr.group.groups = 32;
	bwd->attr = fwd->attr;
	bwd->fwd = fwd;
	assert_ok(kit_run(&k, &err), err);
	kit_done(&k);
}

/* A GPU with clusters of blocks may have blocks of 99 KB: compute capability 12.0. */
static void images_of_a_group_norm_fit_the_gpu(void **unused)
{
	static const char *const gpu[] = {
		"graphs=1;cc=120@0;shared=99", "graphs=1;cc=86@0;shared=99", "graphs=1"};

	(void)unused;
	start("cuda-plans.so");
	for (int i = 0; i < 3; i++) {
		setenv("JM_FAKE_CUDA", gpu[i], 1);
		for (int64_t side = 8; side <= 128; side *= 2)
			for (int64_t c = 320; c <= 1280; c *= 2)
				run_groups(c, side);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(each_device_selects_on_its_own_gpu, stop),
		cmocka_unit_test_teardown(rows_of_a_loss_fit_the_gpu, stop),
		cmocka_unit_test_teardown(images_of_a_group_norm_fit_the_gpu, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
