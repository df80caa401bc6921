/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guard for a program that is not joulemark: the choice of the guard's program, refusals, and the
 * message for different versions. This program is executed again as a guard of another version.
 */
#include "kit/guard_case.h"
#include "guard/guard_program.h"

#include <sys/socket.h>

#include "kit/test.h"

/* As another program: it does not say that it is joulemark. */
static int setup(void **state)
{
	struct fixture *f;

	if (guard_setup(state))
		return -1;
	f = *state;
	f->ctx.guard_program = NULL;
	setenv("JM_GUARD", getenv("JM_BIN"), 1);
	unsetenv("JM_TEST_GUARD");
	return 0;
}

static void sets_and_restores_by_the_named_program(void **state)
{
	struct fixture *f = *state;
	struct jm_guard *g = start(f);
	char link[64], program[512] = "", real[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/%d/exe", jm_guard_pid(g));
	assert_true(readlink(link, program, sizeof(program) - 1) > 0);
	assert_string_equal(program, realpath(getenv("JM_BIN"), real));
	assert_ok(set(f, g, "", 400), f->err);
	limits_are(f, 400, 400, 400, 400);
	assert_ok(jm_guard_stop(g, &f->err), f->err);
	limits_are(f, 700, 700, 700, 700);
	assert_int_equal(journals(f), 0);
}

static void assert_refused(struct fixture *f, const char *program, int code, const char *said)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_guard *g = NULL;

	setenv("JM_GUARD", program, 1);
	assert_int_equal(jm_guard_start(&f->ctx, "nvml", &g, &err), code);
	assert_sentence(&err, code);
	assert_null(g);
	if (!strstr(err.text, said))
		fail_msg("%s\n%s", err.text, said);
}

static void a_program_that_cannot_be_the_guard_is_named(void **state)
{
	struct fixture *f = *state;
	char path[300];
	FILE *file;

	assert_refused(f, "joulemark", JM_EUSAGE, "absolute path");
	assert_refused(f, "", JM_EUSAGE, "absolute path");
	assert_refused(f, "/nowhere/joulemark", JM_ENOENT, "/nowhere/joulemark");
	assert_refused(f, f->folder, JM_EPERM, "executable file");
	assert_refused(f, "/etc/passwd", JM_EPERM, "executable file");
	assert_refused(f, "/bin/true", JM_ECHILD, "ended 3 times before it answered");
	snprintf(path, sizeof(path), "%s/program", f->folder);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("neither a program nor a script", file);
	fclose(file);
	chmod(path, 0755);
	assert_refused(f, path, JM_EPERM, "cannot be executed");
	chmod(path, 0757);
	assert_refused(f, path, JM_EPERM, "everyone may write");
	if (!geteuid() && !chmod(path, 0755) && !chown(path, 1234, 1234))
		assert_refused(f, path, JM_EPERM, "another user");
}

/* Without JM_GUARD, a program that links the code has no guard program in its folder. */
static void without_a_name_it_is_looked_for(void **state)
{
	struct fixture *f = *state;
	struct jm_err err = JM_ERR_INIT;
	char path[PATH_MAX];
	int rc;

	unsetenv("JM_GUARD");
	rc = jm_guard_program(&f->ctx, path, sizeof(path), &err);
	if (rc) { /* it is not installed here */
		assert_int_equal(rc, JM_ENOENT);
		assert_sentence(&err, JM_ENOENT);
		assert_non_null(strstr(err.text, "JM_GUARD"));
	} else {
		assert_string_equal(strrchr(path, '/'), "/joulemark");
	}
	f->ctx.guard_program = "/proc/self/exe";
	assert_ok(jm_guard_program(&f->ctx, path, sizeof(path), &err), err);
	assert_string_equal(path, "/proc/self/exe");
}

/* ---- other versions -------------------------------------------------------------------------- */

/* The reply of joulemark before the protocol had versions, and of one to come. */
static int be_another_guard(const char *which)
{
	static char message[JM_WIRE_MAX];
	struct {
		int rc, n;
		char text[512];
	} old = {-14, 0, "The guard received a request before it was opened."};
	uint32_t later[200] = {JM_WIRE_MAGIC, JM_WIRE_VERSION + 1};
	uint32_t request[2];

	if (recv(JM_WIRE_FD, message, sizeof(message), 0) < 8)
		return 1;
	memcpy(request, message, sizeof(request));
	if (request[0] != JM_WIRE_MAGIC || request[1] != JM_WIRE_VERSION)
		return 1;
	if (!strcmp(which, "old"))
		return send(JM_WIRE_FD, &old, sizeof(old), 0) < 0;
	if (!strcmp(which, "later"))
		return send(JM_WIRE_FD, later, sizeof(later), 0) < 0;
	if (!strcmp(which, "long"))
		return send(JM_WIRE_FD, message, sizeof(message), 0) < 0;
	return send(JM_WIRE_FD, "x", 1, 0) < 0;
}

static void guards_of_other_versions_are_told(void **state)
{
	static const struct {
		const char *which;
		int code;
		const char *said;
	} rows[] = {
		{"old", JM_EVERSION, "an older joulemark"},
		{"later", JM_EVERSION, "The guard speaks version 4 of the guard's protocol"},
		{"long", JM_EFORMAT, "length"},
		{"short", JM_EVERSION, "another program"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv("JM_TEST_GUARD", rows[i].which, 1);
		assert_refused(*state, "/proc/self/exe", rows[i].code, rows[i].said);
	}
}

/* The guard at the other end of a socket, as its parent finds it. */
static int launch_guard(pid_t *ret)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	*ret = fork();
	if (!*ret) {
		close(pair[0]);
		if (pair[1] != JM_WIRE_FD)
			dup2(pair[1], JM_WIRE_FD);
		execl(getenv("JM_BIN"), "joulemark", "guard", NULL);
		_exit(127);
	}
	close(pair[1]);
	return pair[0];
}

static ssize_t tell(int fd, const void *request, size_t bytes, struct jm_wire_reply *ret)
{
	static char message[JM_WIRE_MAX];
	ssize_t got;

	assert_int_equal(send(fd, request, bytes, 0), bytes);
	got = recv(fd, message, sizeof(message), 0);
	memcpy(ret, message, sizeof(*ret));
	return got;
}

static struct {
	int fd;
	pid_t pid;
} own; /* the guard that a test talks to */

static int launch(void **state)
{
	(void)state;
	own.fd = launch_guard(&own.pid);
	return 0;
}

/* Whatever a client has sent, the guard still answers, and ends with status 0. */
static int stop(void **state)
{
	static char message[JM_WIRE_MAX];
	struct jm_err err = JM_ERR_INIT;
	struct jm_wire_reply r;
	int status;

	(void)state;
	assert_true(tell(own.fd, message, jm_wire_put_request(message, JM_WIRE_STOP, 0), &r) >=
		    (ssize_t)sizeof(r));
	assert_ok(jm_wire_check_reply(&r, sizeof(r), JM_WIRE_STOP, 0, &err), err);
	assert_int_equal(waitpid(own.pid, &status, 0), own.pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	close(own.fd);
	return 0;
}

/* Before there were versions a reply was a code, a number and a text of 512 bytes. */
static void a_client_without_versions_gets_a_reply_of_its_form(void **state)
{
	const int old[2] = {0, 0}; /* OPEN */
	struct jm_wire_reply r;
	int reply[2];

	(void)state;
	assert_int_equal(tell(own.fd, old, sizeof(old), &r), 2 * sizeof(int) + 512);
	memcpy(reply, &r, sizeof(reply));
	assert_int_equal(reply[0], JM_EVERSION);
	assert_int_equal(reply[1], 0);
	assert_non_null(strstr((char *)&r + sizeof(reply), "The client does not speak"));
}

static void a_client_of_a_later_version_is_told_its_version(void **state)
{
	struct jm_wire_request later = {.magic = JM_WIRE_MAGIC, .version = JM_WIRE_VERSION + 1};
	struct jm_wire_reply r;

	(void)state;
	assert_true(tell(own.fd, &later, sizeof(later), &r) >= (ssize_t)sizeof(r));
	assert_int_equal(r.rc, JM_EVERSION);
	assert_non_null(strstr(r.text, "The client speaks version 4"));
}

static void zeros_beyond_the_longest_message_are_of_another_version(void **state)
{
	static const char zeros[JM_WIRE_MAX + 1];
	struct jm_wire_reply r;
	int code;

	(void)state;
	tell(own.fd, zeros, sizeof(zeros), &r);
	memcpy(&code, &r, sizeof(code));
	assert_int_equal(code, JM_EVERSION);
}

static void a_request_of_a_wrong_length_is_refused(void **state)
{
	static char message[JM_WIRE_MAX + 1];
	struct jm_wire_reply r;

	(void)state;
	jm_wire_put_request(message, JM_WIRE_SET, 3);
	assert_true(tell(own.fd, message, sizeof(message), &r) >= (ssize_t)sizeof(r));
	assert_int_equal(r.rc, JM_EFORMAT);
}

static void a_request_before_open_is_refused(void **state)
{
	static char message[JM_WIRE_MAX];
	struct jm_wire_reply r;

	(void)state;
	assert_true(tell(own.fd, message, jm_wire_put_request(message, JM_WIRE_GET, 0), &r) >=
		    (ssize_t)sizeof(r));
	assert_int_equal(r.rc, JM_EBUG);
	assert_non_null(strstr(r.text, "before it was opened"));
}

#define CLIENT_TEST(name) cmocka_unit_test_setup_teardown(name, launch, stop)
#define TEST(name)	  cmocka_unit_test_setup_teardown(name, setup, guard_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(sets_and_restores_by_the_named_program),
		TEST(a_program_that_cannot_be_the_guard_is_named),
		TEST(without_a_name_it_is_looked_for),
		TEST(guards_of_other_versions_are_told),
		CLIENT_TEST(a_client_without_versions_gets_a_reply_of_its_form),
		CLIENT_TEST(a_client_of_a_later_version_is_told_its_version),
		CLIENT_TEST(zeros_beyond_the_longest_message_are_of_another_version),
		CLIENT_TEST(a_request_of_a_wrong_length_is_refused),
		CLIENT_TEST(a_request_before_open_is_refused),
	};

	if (argc > 1 && !strcmp(argv[1], "guard"))
		return be_another_guard(getenv("JM_TEST_GUARD"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
