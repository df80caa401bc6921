/* SPDX-License-Identifier: Apache-2.0 */
/* The byte of the output at which a mark is sent. */
#include "kit/test.h"
#include "base/clock.h"
#include "kit/got_marks.h"
#include "measure/session/marker.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* At which byte of this output a child that writes to it sends a mark: one whose stdout it is, or
 * is not. */
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

/* A receiver, an output that it counts and another pipe. */
static struct {
	struct jm_progress *p;
	int out[2], other[2];
} page;

static int setup(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_ok(jm_progress_open(&page.p, &err), err);
	assert_int_equal(pipe(page.out) | pipe(page.other), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		close(page.out[i]);
		close(page.other[i]);
	}
	jm_progress_close(page.p);
	return 0;
}

static void a_mark_beside_an_output_that_nobody_counts_has_no_byte(void **state)
{
	(void)state;
	assert_int_equal(byte_from_child(page.p, page.out[1]), -1);
}

static void a_mark_beside_another_output_has_no_byte(void **state)
{
	(void)state;
	jm_progress_share_output(page.p, page.out[0]);
	assert_int_equal(byte_from_child(page.p, page.other[1]), -1);
}

static void a_mark_has_the_byte_of_what_was_written_before_it(void **state)
{
	(void)state;
	jm_progress_share_output(page.p, page.out[0]);
	assert_int_equal(byte_from_child(page.p, page.out[1]), 0);
	assert_int_equal(write(page.out[1], "hello", 5), 5);
	assert_int_equal(byte_from_child(page.p, page.out[1]), 5);
}

static void reading_the_output_changes_no_byte(void **state)
{
	char bytes[8];

	(void)state;
	jm_progress_share_output(page.p, page.out[0]);
	assert_int_equal(write(page.out[1], "hello", 5), 5);
	assert_int_equal(jm_progress_read(page.p, page.out[0], bytes, 3), 3);
	assert_int_equal(byte_from_child(page.p, page.out[1]), 5);
	assert_int_equal(jm_progress_read(page.p, page.out[0], bytes, 3), 2);
	assert_int_equal(write(page.out[1], "you", 3), 3);
	assert_int_equal(byte_from_child(page.p, page.out[1]), 8);
}

static void nothing_is_left_of_a_receiver(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	char folder[128];

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	snprintf(folder, sizeof(folder), "%s", strchr(jm_progress_env(p), '=') + 1);
	*strrchr(folder, '/') = '\0';
	assert_int_equal(access(folder, F_OK), 0);
	jm_progress_close(p);
	assert_int_equal(access(folder, F_OK), -1);
}

/* Sends "a" at once; after a byte from `go` "b", and "c" with another stdout. */
static pid_t start_sender(const struct jm_progress *p, int out, int other, const int *go)
{
	struct jm_marker *m;
	pid_t child = fork();
	char byte;

	if (child)
		return child;
	putenv((char *)jm_progress_env(p));
	if (dup2(out, STDOUT_FILENO) < 0 || jm_marker_new(&m, NULL) ||
		jm_marker_mark(m, "a", NAN, NULL) || read(go[0], &byte, 1) != 1 ||
		jm_marker_mark(m, "b", NAN, NULL) || dup2(other, STDOUT_FILENO) < 0 ||
		jm_marker_mark(m, "c", NAN, NULL))
		_exit(1);
	_exit(0);
}

static void wait_and_receive(struct jm_progress *p, struct got *got, int n)
{
	*got = (struct got){.n = 0};
	for (int i = 0; i < 5000 && got->n < n; i++) {
		jm_progress_receive(p, jm_clock_now(jm_clock_real()), get, got);
		usleep(1000);
	}
	assert_int_equal(got->n, n);
}

/* A mark without a byte is late in a pipe, so it wakes the receiver. */
static void marks_with_their_byte_go_through_a_pipe(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	struct got got;
	char text[64] = "";
	int ends[2], other[2], go[2], status;
	pid_t child;

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	jm_progress_take_pipes(p);
	assert_int_equal(pipe(ends) | pipe(other) | pipe(go), 0);
	jm_progress_share_output(p, ends[0]);
	assert_int_equal(write(ends[1], "hello", 5), 5);
	child = start_sender(p, ends[1], other[1], go);
	wait_and_receive(p, &got, 1);
	assert_true(jm_progress_has_pipes(p));
	assert_int_equal(write(ends[1], "you", 3), 3);
	assert_int_equal(write(go[1], "g", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(recv(jm_progress_fd(p), text, sizeof(text) - 1, MSG_PEEK | MSG_DONTWAIT) > 0);
	assert_non_null(strstr(text, " mark c"));
	wait_and_receive(p, &got, 2);
	assert_string_equal(got.mark[0].name, "b");
	assert_int_equal(got.mark[0].byte, 8);
	assert_string_equal(got.mark[1].name, "c");
	assert_int_equal(got.mark[1].byte, -1);
	assert_int_equal(jm_progress_malformed(p), 0);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(other[i]);
		close(go[i]);
	}
	jm_progress_close(p);
}

/* A sender of the version before states no byte, so its marks stay datagrams, which are read at
 * once. */
static void pipes_without_bytes_are_not_taken_beside_an_output(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	struct jm_marker *m;
	struct got got;
	int ends[2];

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	jm_progress_take_pipes(p);
	assert_int_equal(pipe(ends), 0);
	putenv((char *)jm_progress_env(p));
	assert_ok(jm_marker_new(&m, &err), err); /* it finds no output */
	jm_progress_share_output(p, ends[0]);
	assert_ok(jm_marker_mark(m, "a", NAN, &err), err);
	wait_and_receive(p, &got, 1);
	assert_false(jm_progress_has_pipes(p));
	assert_int_equal(jm_progress_malformed(p), 0);
	jm_marker_free(m);
	unsetenv(JM_MARK_VARIABLE);
	close(ends[0]);
	close(ends[1]);
	jm_progress_close(p);
}

int main(void)
{
#define PAGE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		PAGE_TEST(a_mark_beside_an_output_that_nobody_counts_has_no_byte),
		PAGE_TEST(a_mark_beside_another_output_has_no_byte),
		PAGE_TEST(a_mark_has_the_byte_of_what_was_written_before_it),
		PAGE_TEST(reading_the_output_changes_no_byte),
		cmocka_unit_test(nothing_is_left_of_a_receiver),
		cmocka_unit_test(marks_with_their_byte_go_through_a_pipe),
		cmocka_unit_test(pipes_without_bytes_are_not_taken_beside_an_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
