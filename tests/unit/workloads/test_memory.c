/* SPDX-License-Identifier: Apache-2.0 */
/* Free memory of the machine, of a job's control group, and of a container, with both versions of
 * control groups. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/device/device.h"
#include "base/ctx.h"
#include "kit/test.h"
#include "workloads/train/fit_batch.h"
#include "workloads/parts/memory.h"

#define KB 1024

static void put(const struct jm_ctx *ctx, const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", ctx->root, path);
	for (char *slash = full + strlen(ctx->root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0777);
		*slash = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* A machine with 1000 kB to take. */
static struct jm_ctx machine(void)
{
	struct jm_ctx ctx = {0};

	snprintf(ctx.root, sizeof(ctx.root), "%s/jm-memory-XXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(ctx.root));
	put(&ctx, "/proc/meminfo", "MemTotal: 4000 kB\nMemFree: 10 kB\nMemAvailable:  1000 kB\n");
	return ctx;
}

static void test_machine(void **state)
{
	struct jm_ctx ctx = machine(), nowhere = {.root = "/nonexistent-root"};

	(void)state;
	assert_int_equal(jm_memory_free(&ctx), 1000 * KB);
	assert_int_equal(jm_memory_free(&nowhere), 0);
}

/* A part of the free memory is reserved; a device other than this machine has separate memory. */
static void test_for_a_plan(void **state)
{
	struct jm_backend elsewhere = {.name = "elsewhere"};
	struct jm_ctx ctx = machine();
	struct jm_device device;
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_ok(jm_device_open("ref", 1, &device, &err), err);
	/* less than the program itself takes: nothing is left, which is not the same as unknown */
	assert_int_equal(jm_fit_memory(&ctx, &device), 1);
	put(&ctx, "/proc/meminfo", "MemAvailable:  1000000 kB\n");
	assert_in_range(jm_fit_memory(&ctx, &device), 880000 * (size_t)KB, 920000 * (size_t)KB);
	/* all of the machine's memory is never offered, though all of it were free */
	put(&ctx, "/proc/meminfo", "MemAvailable:  9000000000 kB\n");
	assert_true(device.props.memory_bytes > 0);
	assert_true(jm_fit_memory(&ctx, &device) < device.props.memory_bytes - 64000000);
	jm_device_close(&device);
	device = (struct jm_device){.backend = &elsewhere, .props.memory_bytes = 123 * KB};
	assert_int_equal(jm_fit_memory(&ctx, &device), 123 * KB);
}

/* A job inside a slice; the lower of the two limits counts, and the slice's limit is shared. */
static void test_second_version(void **state)
{
	struct jm_ctx ctx = machine();

	(void)state;
	put(&ctx, "/proc/self/cgroup", "0::/batch.slice/job7\n");
	put(&ctx, "/sys/fs/cgroup/batch.slice/job7/memory.max", "max\n");
	assert_int_equal(jm_memory_free(&ctx), 1000 * KB);
	put(&ctx, "/sys/fs/cgroup/batch.slice/job7/memory.max", "600000\n");
	put(&ctx, "/sys/fs/cgroup/batch.slice/job7/memory.current", "200000\n");
	assert_int_equal(jm_memory_free(&ctx), 400000);
	/* inactive pages of files count as free */
	put(&ctx, "/sys/fs/cgroup/batch.slice/job7/memory.stat",
		"anon 50000\ninactive_file 120000\nactive_file 30000\n");
	assert_int_equal(jm_memory_free(&ctx), 520000);
	put(&ctx, "/sys/fs/cgroup/batch.slice/memory.max", "900000\n");
	put(&ctx, "/sys/fs/cgroup/batch.slice/memory.current", "800000\n");
	assert_int_equal(jm_memory_free(&ctx), 100000);
	/* full is not unknown */
	put(&ctx, "/sys/fs/cgroup/batch.slice/memory.current", "950000\n");
	assert_int_equal(jm_memory_free(&ctx), 1);
}

/* The container's group is at the top; the path is that of the machine outside, and is not
 * there. */
static void test_container(void **state)
{
	struct jm_ctx ctx = machine();

	(void)state;
	put(&ctx, "/proc/self/cgroup", "0::/docker/0123/x\n");
	put(&ctx, "/sys/fs/cgroup/memory.max", "500000\n");
	put(&ctx, "/sys/fs/cgroup/memory.current", "100000\n");
	assert_int_equal(jm_memory_free(&ctx), 400000);
	put(&ctx, "/proc/self/cgroup", "0::/\n");
	assert_int_equal(jm_memory_free(&ctx), 400000);
}

static void test_first_version(void **state)
{
	struct jm_ctx ctx = machine();

	(void)state;
	put(&ctx, "/proc/self/cgroup", "9:cpu,cpuacct:/job\n4:memory:/slurm/job7\n0::/job\n");
	put(&ctx, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(jm_memory_free(&ctx), 1000 * KB);
	put(&ctx, "/sys/fs/cgroup/memory/slurm/job7/memory.limit_in_bytes", "700000\n");
	put(&ctx, "/sys/fs/cgroup/memory/slurm/job7/memory.usage_in_bytes", "300000\n");
	put(&ctx, "/sys/fs/cgroup/memory/slurm/job7/memory.stat",
		"inactive_file 1\ntotal_inactive_file 50000\n");
	assert_int_equal(jm_memory_free(&ctx), 450000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_machine),
		cmocka_unit_test(test_for_a_plan),
		cmocka_unit_test(test_second_version),
		cmocka_unit_test(test_container),
		cmocka_unit_test(test_first_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
