/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes: how they end, signals before exec, and processes that they leave behind. */
#include "kit/test.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/process/child_process.h"
#include "base/process/stray_processes.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct jm_proc child(char *const *argv, bool capture, int expected)
{
	static const char *const env[] = {"JM_TEST_WORD=hello", NULL};
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_proc_options o = {.argv = argv, .env = env, .capture = capture};
	struct jm_err err = JM_ERR_INIT;
	struct jm_proc p = {0};
	int rc = jm_proc_start(&p, &ctx, &o, &err);

	assert_int_equal(rc, expected);
	if (rc)
		assert_sentence(&err, expected);
	else
		assert_ok(jm_proc_reap(&p, &ctx, &err), err);
	return p;
}

static void an_exit_status_and_the_time_are_reported(void **state)
{
	struct jm_proc p = child((char *[]){"sh", "-c", "sleep 0.1; exit 7", NULL}, false, 0);

	(void)state;
	assert_int_equal(p.status, 7);
	assert_int_equal(p.signal, 0);
	assert_true(p.end_ns - p.start_ns >= 95 * JM_MILLISECOND);
	jm_proc_done(&p);
}

static void the_status_after_a_signal_is_that_of_a_shell(void **state)
{
	struct jm_proc p = child((char *[]){"sh", "-c", "kill -15 $$", NULL}, false, 0);

	(void)state;
	assert_int_equal(p.status, 128 + 15);
	assert_int_equal(p.signal, 15);
	jm_proc_done(&p);
}

static void a_child_has_its_environment_and_its_output_is_captured(void **state)
{
	struct jm_proc p = child((char *[]){"sh", "-c", "echo $JM_TEST_WORD", NULL}, true, 0);
	char bytes[32] = "";

	(void)state;
	assert_int_equal(read(p.out_fd, bytes, sizeof(bytes) - 1), 6);
	assert_string_equal(bytes, "hello\n");
	jm_proc_done(&p);
}

static void a_command_that_cannot_start_is_an_error(void **state)
{
	(void)state;
	child((char *[]){"no-such-command-here", NULL}, false, JM_ENOENT);
	child((char *[]){"/dev/null", NULL}, false, JM_EPERM);
}

static void the_status_of_an_error_is_that_of_a_shell(void **state)
{
	(void)state;
	assert_int_equal(jm_proc_status_of(JM_ENOENT), 127);
	assert_int_equal(jm_proc_status_of(JM_EPERM), 126);
	assert_int_equal(jm_proc_status_of(JM_EIO), 125);
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
	(void)number;
	handled++;
}

static int send_itself_a_signal(void *arg)
{
	(void)arg;
	return kill(getpid(), SIGUSR1);
}

/* A signal that comes before exec is the command's, for which handlers of the parent do not run. */
static void a_signal_before_exec_runs_no_handler_of_the_parent(void **state)
{
	struct jm_ctx ctx = {.clock = jm_clock_real()};
	struct jm_proc_options o = {
		.argv = (char *[]){"true", NULL}, .before_exec = send_itself_a_signal};
	struct jm_err err = JM_ERR_INIT;
	struct jm_proc p = {0};
	sigset_t blocked;

	(void)state;
	signal(SIGUSR1, handle);
	assert_ok(jm_proc_start(&p, &ctx, &o, &err), err);
	assert_ok(jm_proc_reap(&p, &ctx, &err), err);
	assert_int_equal(p.signal, SIGUSR1);
	jm_proc_done(&p);
	assert_int_equal(handled, 0);
	/* the parent keeps its mask and its handler */
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	for (int i = 1; i < NSIG; i++)
		assert_int_not_equal(sigismember(&blocked, i), 1);
	raise(SIGUSR1);
	assert_int_equal(handled, 1);
	signal(SIGUSR1, SIG_DFL);
}

static char orphans_log[512];

static void keep_log(void *arg, enum jm_level level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(orphans_log, sizeof(orphans_log), "%s", line);
}

static const struct jm_ctx orphans_ctx = {.log = keep_log};

static void wait_for_end_of(int fd)
{
	char byte;

	if (read(fd, &byte, 1))
		_exit(1);
}

/* A process in a separate session, whose parent has ended. It waits until our end of `until` is
 * closed; with of_child, it then leaves a child, in its session, that waits for the end of
 * of_child. */
static void leave_behind(int *until, int *of_child)
{
	pid_t parent = fork();

	if (!parent) {
		setsid(); /* before it is orphaned: it must not appear in our session */
		if (fork())
			_exit(0);
		close(until[1]);
		if (of_child)
			close(of_child[1]);
		wait_for_end_of(until[0]);
		if (of_child && !fork())
			wait_for_end_of(of_child[0]);
		_exit(0);
	}
	assert_int_equal(waitpid(parent, NULL, 0), parent);
}

/* From here on orphans come to us: a process as above, with a child to come. */
static void begin_with_family(struct jm_strays *o, int *until, int *of_child)
{
	assert_int_equal(pipe(until) | pipe(of_child), 0);
	jm_strays_begin(o, &orphans_ctx);
	leave_behind(until, of_child);
}

static void wait_for_a_zombie(void)
{
	siginfo_t info;

	assert_int_equal(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
}

static bool adopts_orphans(void)
{
	int does;

	assert_int_equal(prctl(PR_GET_CHILD_SUBREAPER, &does), 0);
	return does;
}

static void orphans_that_end_are_reaped(void **state)
{
	struct jm_strays o;
	int first[2], second[2];

	(void)state;
	begin_with_family(&o, first, second);
	assert_true(adopts_orphans());
	close(first[1]); /* ends, and leaves a child */
	wait_for_a_zombie();
	jm_strays_end(&o, JM_STRAYS_LEAVE, -1);
	assert_false(adopts_orphans());
	assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* that child alone is there */
	close(second[1]);
	wait_for_a_zombie();
	jm_strays_begin(&o, &orphans_ctx);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	jm_strays_end(&o, JM_STRAYS_ASK, -1);
	close(first[0]);
	close(second[0]);
}

static void a_daemons_child_is_spared(void **state)
{
	struct jm_strays o;
	int first[2], second[2];

	(void)state;
	begin_with_family(&o, first, second);
	jm_strays_end(&o, JM_STRAYS_LEAVE, -1);
	jm_strays_begin(&o, &orphans_ctx); /* the next case, in which the daemon ends */
	close(first[1]);
	assert_true(waitpid(-1, NULL, 0) > 0);
	jm_strays_end(&o, JM_STRAYS_ASK, -1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
	close(second[1]);
	assert_true(waitpid(-1, NULL, 0) > 0);
	close(first[0]);
	close(second[0]);
}

static void too_many_orphans_are_told(void **state)
{
	struct jm_strays o;
	int until[2];

	(void)state;
	assert_int_equal(pipe(until), 0);
	jm_strays_begin(&o, &orphans_ctx);
	for (int i = 0; i <= JM_STRAYS_KNOWN; i++)
		leave_behind(until, NULL);
	jm_strays_end(&o, JM_STRAYS_LEAVE, -1);
	assert_string_equal(orphans_log, "");
	jm_strays_begin(&o, &orphans_ctx);
	assert_non_null(strstr(orphans_log, "More than 64 processes"));
	jm_strays_end(&o, JM_STRAYS_ASK, -1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
	close(until[1]);
	for (int i = 0; i <= JM_STRAYS_KNOWN; i++)
		assert_true(waitpid(-1, NULL, 0) > 0);
	close(until[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_exit_status_and_the_time_are_reported),
		cmocka_unit_test(the_status_after_a_signal_is_that_of_a_shell),
		cmocka_unit_test(a_child_has_its_environment_and_its_output_is_captured),
		cmocka_unit_test(a_command_that_cannot_start_is_an_error),
		cmocka_unit_test(the_status_of_an_error_is_that_of_a_shell),
		cmocka_unit_test(a_signal_before_exec_runs_no_handler_of_the_parent),
		cmocka_unit_test(orphans_that_end_are_reaped),
		cmocka_unit_test(a_daemons_child_is_spared),
		cmocka_unit_test(too_many_orphans_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
