/* SPDX-License-Identifier: Apache-2.0 */
/* The byte of the output at which a mark is sent. */
#include "test.h"
#include "base/clock.h"
#include "got_marks.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* At which byte of this output a child that writes to it sends a mark: one whose stdout it is, or is not. */
static int64_t byte_from_child(struct jm_progress *p, int out)
{
	struct got got = {.n = 0};
	pid_t child = fork();
	int status;

	if (!child) {
		putenv((char *)jm_progress_env(p));
		_exit(dup2(out, STDOUT_FILENO) < 0 || jm_progress_send("a", 2, NULL));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(jm_progress_receive(p, jm_clock_now(jm_clock_real()), get, &got), 1);
	assert_string_equal(got.mark[0].name, "a");
	assert_near(got.mark[0].items, 2, 0);
	return got.mark[0].byte;
}

static void a_mark_states_its_byte_of_the_output(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	char bytes[8], folder[128];
	int ends[2], other[2];

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	snprintf(folder, sizeof(folder), "%s", strchr(jm_progress_env(p), '=') + 1);
	*strrchr(folder, '/') = '\0';
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(other), 0);
	assert_int_equal(byte_from_child(p, ends[1]), -1); /* nobody counts */
	jm_progress_share_output(p, ends[0]);
	assert_int_equal(byte_from_child(p, ends[1]), 0);
	assert_int_equal(write(ends[1], "hello", 5), 5);
	assert_int_equal(byte_from_child(p, ends[1]), 5);
	assert_int_equal(jm_progress_read(p, ends[0], bytes, 3), 3);
	assert_int_equal(byte_from_child(p, ends[1]), 5);
	assert_int_equal(jm_progress_read(p, ends[0], bytes, 3), 2);
	assert_int_equal(write(ends[1], "you", 3), 3);
	assert_int_equal(byte_from_child(p, ends[1]), 8);
	assert_int_equal(byte_from_child(p, other[1]), -1);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(other[i]);
	}
	jm_progress_close(p);
	assert_int_equal(access(folder, F_OK), -1); /* nothing is left of it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mark_states_its_byte_of_the_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
