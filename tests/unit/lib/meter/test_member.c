/* SPDX-License-Identifier: Apache-2.0 */
#include "kit/test.h"
#include "base/ctx.h"
#include "meter/source.h"
#include "guard/control.h"
#include "run/workload.h"

#include <stdlib.h>

static void members_by_name(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	for (int i = 0; jm_sources[i]; i++)
		assert_ptr_equal(jm_source_find(jm_sources[i]->name, &err), jm_sources[i]);
	for (int i = 0; jm_controls[i]; i++)
		assert_ptr_equal(jm_control_find(jm_controls[i]->name, &err), jm_controls[i]);
	for (int i = 0; jm_workloads[i]; i++)
		assert_ptr_equal(jm_workload_find(jm_workloads[i]->name, &err), jm_workloads[i]);
	assert_int_equal(err.code, 0);
}

static void unknown_members(void **state)
{
	struct jm_err near = JM_ERR_INIT, far = JM_ERR_INIT;

	(void)state;
	assert_null(jm_source_find("nul", &near));
	assert_sentence(&near, JM_EUSAGE);
	assert_non_null(strstr(near.text, "did you mean 'null'?"));
	assert_null(jm_workload_find("blockchain", &far));
	assert_sentence(&far, JM_EUSAGE);
	assert_non_null(strstr(far.text, "joulemark list"));
}

static void root_of_the_context(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	char path[600];

	(void)state;
	setenv("JM_ROOT", "/tmp/tree", 1);
	assert_ok(jm_ctx_init(&ctx, &err), err);
	assert_string_equal(ctx.root, "/tmp/tree");
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	setenv("JM_ROOT", path, 1);
	assert_int_equal(jm_ctx_init(&ctx, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
	unsetenv("JM_ROOT");
}

static void remember(void *arg, enum jm_level level, const char *line)
{
	assert_int_equal(level, JM_WARNING);
	strncpy(arg, line, 63);
}

static void log_goes_to_the_callback(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx;
	char line[64] = "";

	(void)state;
	assert_ok(jm_ctx_init(&ctx, &err), err);
	jm_log(&ctx, JM_WARNING, "nobody %s", "listens");
	ctx.log = remember;
	ctx.log_arg = line;
	jm_log(&ctx, JM_WARNING, "GPU %d is %s", 3, "gone");
	assert_string_equal(line, "GPU 3 is gone");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_by_name),
		cmocka_unit_test(unknown_members),
		cmocka_unit_test(root_of_the_context),
		cmocka_unit_test(log_goes_to_the_callback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
