/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of choices that backend cuda keeps on disk; no GPU is needed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cuda/choose/plan_cache.h"
#include "backends/cuda/device/math_library.h"
#include "kit/test.h"

static char folder[] = "/tmp/joulemark-plans.XXXXXX";

static struct cuda_dev *device(const char *name)
{
	struct cuda_dev *dev = calloc(1, sizeof *dev);

	assert_non_null(dev);
	snprintf(dev->prop.name, sizeof dev->prop.name, "%s", name);
	dev->prop.multiProcessorCount = 132;
	return dev;
}

static void done(struct cuda_dev *dev)
{
	cuda_plans_free(dev);
	cuda_libraries_close(dev);
	free(dev);
}

static void path_of(char *ret, size_t size)
{
	snprintf(ret, size, "%s/cuda.plans", folder);
}

static int fresh(void **unused)
{
	char path[4096];

	(void)unused;
	path_of(path, sizeof path);
	unlink(path);
	return 0;
}

static void keep_one(const char *name, const char *key, const char *value)
{
	struct cuda_dev *dev = device(name);

	assert_null(cuda_plan_find(dev, key));
	cuda_plan_keep(dev, key, value);
	assert_string_equal(cuda_plan_find(dev, key), value);
	done(dev);
}

static void is_found_again_by_another_process(void **unused)
{
	struct cuda_dev *dev;

	(void)unused;
	keep_one("NVIDIA H100", "gemm/64", "0.5,abc");
	dev = device("NVIDIA H100");
	assert_string_equal(cuda_plan_find(dev, "gemm/64"), "0.5,abc");
	assert_null(cuda_plan_find(dev, "gemm/65"));
	done(dev);
}

/* Ranks: the second one has looked before the first one chose. */
static void is_found_while_both_run(void **unused)
{
	struct cuda_dev *first = device("NVIDIA H100"), *second = device("NVIDIA H100");

	(void)unused;
	cuda_plan_keep(second, "gemm/63", "own");
	assert_null(cuda_plan_find(second, "gemm/64"));
	cuda_plan_keep(first, "gemm/64", "0.5,abc");
	cuda_plan_keep(first, "gemm/63", "other");
	assert_string_equal(cuda_plan_find(second, "gemm/64"), "0.5,abc");
	assert_string_equal(cuda_plan_find(second, "gemm/63"), "own");
	done(first);
	done(second);
}

static void is_not_found_by_another_gpu(void **unused)
{
	struct cuda_dev *dev;

	(void)unused;
	keep_one("NVIDIA H100", "gemm/64", "0.5,abc");
	dev = device("NVIDIA H200");
	assert_null(cuda_plan_find(dev, "gemm/64"));
	done(dev);
}

/* The line of another version: its owner ends with another number. */
static void is_not_found_by_another_version(void **unused)
{
	char path[4096], owner[256], key[64], value[64];
	struct cuda_dev *dev;
	FILE *f;

	(void)unused;
	keep_one("NVIDIA H100", "gemm/64", "0.5,abc");
	path_of(path, sizeof path);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%255s %63s %63s", owner, key, value), 3);
	fclose(f);
	assert_string_equal(strrchr(owner, '/') + 1, jm_version());
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%.*s/0.0.1 %s %s\n", (int)(strrchr(owner, '/') - owner), owner, key, value);
	fclose(f);
	dev = device("NVIDIA H100");
	assert_null(cuda_plan_find(dev, key));
	done(dev);
}

static void later_choice_wins(void **unused)
{
	struct cuda_dev *dev;

	(void)unused;
	keep_one("NVIDIA H100", "gemm/64", "first");
	dev = device("NVIDIA H100");
	cuda_plan_keep(dev, "gemm/64", "second");
	done(dev);
	dev = device("NVIDIA H100");
	assert_string_equal(cuda_plan_find(dev, "gemm/64"), "second");
	done(dev);
}

/* Half a line, a line without blanks, one that is too long, zero bytes: what is whole is still
 * found. */
static void broken_lines_are_passed_over(void **unused)
{
	struct cuda_dev *dev;
	char path[4096];
	FILE *f;

	(void)unused;
	path_of(path, sizeof path);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "NVIDIA_H100/132/\nnoblanks\n\n");
	for (int i = 0; i < 3000; i++)
		fputc('x', f);
	fputc('\n', f);
	fwrite("a\0b c\n", 1, 6, f);
	fclose(f);
	keep_one("NVIDIA H100", "gemm/64", "whole");
	f = fopen(path, "a");
	assert_non_null(f);
	fprintf(f, "NVIDIA_H100/132/13000/130100 gemm/6");
	fclose(f);
	dev = device("NVIDIA H100");
	assert_string_equal(cuda_plan_find(dev, "gemm/64"), "whole");
	done(dev);
}

static void works_where_nothing_can_be_written(void **unused)
{
	struct cuda_dev *dev = device("NVIDIA H100");

	(void)unused;
	setenv("JM_PLANS", "/proc/no/such/folder", 1);
	cuda_plan_keep(dev, "gemm/64", "kept");
	assert_string_equal(cuda_plan_find(dev, "gemm/64"), "kept");
	done(dev);
	setenv("JM_PLANS", folder, 1);
}

static void takes_a_folder_without_a_slash(void **unused)
{
	struct cuda_dev *dev = device("NVIDIA H100");
	char path[4096];

	(void)unused;
	assert_int_equal(chdir(folder), 0);
	setenv("JM_PLANS", "plans", 1);
	cuda_plan_keep(dev, "gemm/64", "kept");
	done(dev);
	dev = device("NVIDIA H100");
	assert_string_equal(cuda_plan_find(dev, "gemm/64"), "kept");
	done(dev);
	snprintf(path, sizeof path, "%s/plans/cuda.plans", folder);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir("plans"), 0);
	assert_int_equal(chdir("/"), 0);
	setenv("JM_PLANS", folder, 1);
}

static void an_empty_name_is_none(void **unused)
{
	struct cuda_dev *dev = device("NVIDIA H100");
	char path[4096];

	(void)unused;
	setenv("JM_PLANS", "", 1);
	setenv("XDG_CACHE_HOME", folder, 1);
	cuda_plan_keep(dev, "gemm/64", "kept");
	done(dev);
	unsetenv("XDG_CACHE_HOME");
	setenv("JM_PLANS", folder, 1);
	snprintf(path, sizeof path, "%s/joulemark/cuda.plans", folder);
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = 0;
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(is_found_again_by_another_process, fresh),
		cmocka_unit_test_setup(is_found_while_both_run, fresh),
		cmocka_unit_test_setup(is_not_found_by_another_gpu, fresh),
		cmocka_unit_test_setup(is_not_found_by_another_version, fresh),
		cmocka_unit_test_setup(later_choice_wins, fresh),
		cmocka_unit_test_setup(broken_lines_are_passed_over, fresh),
		cmocka_unit_test_setup(works_where_nothing_can_be_written, fresh),
		cmocka_unit_test_setup(takes_a_folder_without_a_slash, fresh),
		cmocka_unit_test_setup(an_empty_name_is_none, fresh)};
	int failed;

	if (!mkdtemp(folder))
		return 1;
	setenv("JM_PLANS", folder, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	fresh(NULL);
	rmdir(folder);
	return failed;
}
