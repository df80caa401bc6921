/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that the driver does not return to the source nvml. */
#include "kit/nvml_case.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

static bool is_loaded(const char *library)
{
	void *found = dlopen(library, RTLD_NOW | RTLD_NOLOAD);

	if (found)
		dlclose(found);
	return found;
}

static void a_close_leaves_the_library_to_a_call_in_it(void **state)
{
	char lag[] = "/tmp/jm-nvml-left-XXXXXX", config[100];
	const struct jm_source *nvml = jm_source_find("nvml", NULL);
	struct fixture *f = *state;
	int fd = mkstemp(lag);

	assert_in_range(fd, 0, 1 << 20);
	close(fd);
	snprintf(config, sizeof(config), "gpus=2;readlag=1:1e9;lagfile=%s", lag);
	assert_int_equal(open_nvml(f, config, "", NULL), 0);
	nvml->close(f->state);
	assert_true(is_loaded(getenv("JM_NVML_LIB")));
	unlink(lag);
	while (nvml->waits(f->state))
		usleep(1000);
	close_nvml(f);
	assert_false(is_loaded(getenv("JM_NVML_LIB")));
}

/* pthread_exit, which ends a thread that was left, needs it. */
static void libgcc_is_loaded_at_the_start(void **state)
{
	assert_int_equal(open_nvml(*state, "gpus=1", "", NULL), 0);
	assert_true(is_loaded("libgcc_s.so.1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(libgcc_is_loaded_at_the_start),
		TEST(a_close_leaves_the_library_to_a_call_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
