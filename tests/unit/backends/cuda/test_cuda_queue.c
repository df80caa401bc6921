/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs on their way through backend cuda, on a fake runtime that does queued work as late as it
 * may (tests/peers/cuda_streams.c): a slot of pinned memory, or its copy on the device, that is
 * written before its last reader had it gives a step the values of another batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/run/staging.h"
#include "kit/test.h"

#define FLOATS	5
#define BATCHES 7

struct fixture {
	char folder[64], file[128];
	struct jm_device device;
	struct jm_program program;
	struct jm_tensor tensor;
	struct jm_staging staging;
	float (*seen)[FLOATS]; /* pinned: what each step found */
};

static void fake_path(const char *name, char *ret, size_t size)
{
	snprintf(ret, size, "%s/tests/peers/%s", getenv("JM_BUILD"), name);
}

static void use_fake(const char *variable, const char *name)
{
	char path[4096];

	fake_path(name, path, sizeof(path));
	setenv(variable, path, 1);
}

/* The plug-in under the name of the device, with fake libraries. */
static void link_backend(struct fixture *f)
{
	char fake[4096];

	use_fake("JM_CUBLASLT_LIB", "libcublaslt-fake.so");
	use_fake("JM_CUDNN_LIB", "libcudnn-fake.so");
	fake_path("cuda-on-fakes.so", fake, sizeof(fake));
	snprintf(f->folder, sizeof(f->folder), "/tmp/joulemark-test-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->file, sizeof(f->file), "%s/cuda.so", f->folder);
	assert_int_equal(symlink(fake, f->file), 0);
	setenv("JM_BACKENDS", f->folder, 1);
}

static int start(void **state)
{
	static struct fixture f;
	struct jm_tensor *inputs[] = {&f.tensor};
	struct jm_err err = JM_ERR_INIT;

	memset(&f, 0, sizeof(f));
	*state = &f;
	link_backend(&f);
	setenv("JM_FAKE_CUDA", "late=1", 1);
	assert_ok(jm_device_open("cuda:0", 1, &f.device, &err), err);
	f.program.device = &f.device;
	f.tensor = (struct jm_tensor){.class = JM_CLASS_INPUT,
		.type = JM_F32,
		.bytes = FLOATS * sizeof(float),
		.data = f.device.backend->alloc(f.device.dev, FLOATS * sizeof(float))};
	f.seen = jm_device_pinned_alloc(&f.device, BATCHES * sizeof(*f.seen));
	assert_true(f.tensor.data && f.seen);
	memset(f.seen, 0, BATCHES * sizeof(*f.seen));
	assert_ok(jm_staging_open(&f.staging, &f.program, inputs, 1, &err), err);
	return 0;
}

static int stop(void **state)
{
	struct fixture *f = *state;

	jm_staging_close(&f->staging);
	jm_device_pinned_release(&f->device, f->seen);
	f->device.backend->release(f->device.dev, f->tensor.data);
	jm_device_close(&f->device);
	unsetenv("JM_FAKE_CUDA");
	return unlink(f->file) || rmdir(f->folder);
}

static float value(int batch, int i)
{
	return (float)(100 * batch + i + 1);
}

/* Sends a batch, and queues the step that reads it. */
static int step(struct fixture *f, int batch, struct jm_err *err)
{
	int code = jm_staging_begin(&f->staging, err);
	float *room = jm_staging_room(&f->staging, &f->tensor);

	assert_non_null(room);
	for (int i = 0; i < FLOATS && !code; i++)
		room[i] = value(batch, i);
	if (!code)
		code = jm_staging_end(&f->staging, err);
	return code ? code
		    : jm_device_copy(&f->device, JM_QUEUE_COMPUTE, f->seen[batch], f->tensor.data,
			      f->tensor.bytes, JM_TO_HOST, err);
}

static void each_step_reads_its_own_batch(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct fixture *f = *state;

	for (int batch = 0; batch < BATCHES; batch++)
		assert_ok(step(f, batch, &err), err);
	assert_ok(jm_device_sync(&f->device, &err), err);
	for (int batch = 0; batch < BATCHES; batch++)
		for (int i = 0; i < FLOATS; i++)
			assert_true(f->seen[batch][i] == value(batch, i));
}

/* A slot is waited for until its copy has left, which is sooner than the step that reads the
 * copy. */
static void host_waits_for_copies_and_not_for_steps(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct fixture *f = *state;

	for (int batch = 0; batch < 2 * JM_STAGING_SLOTS; batch++) {
		assert_ok(step(f, batch, &err), err);
		assert_true(f->seen[0][0] == 0);
	}
	assert_ok(step(f, 2 * JM_STAGING_SLOTS, &err), err); /* waited for the slot of step 0 */
	assert_ok(jm_device_sync(&f->device, &err), err);
	assert_true(f->seen[0][0] == value(0, 0));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, start, stop)
	const struct CMUnitTest tests[] = {
		CASE(each_step_reads_its_own_batch),
		CASE(host_waits_for_copies_and_not_for_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
