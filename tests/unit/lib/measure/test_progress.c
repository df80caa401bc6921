/* SPDX-License-Identifier: Apache-2.0 */
/* Marks through the socket, numbers in output, rates; child processes and their end. */
#include "kit/test.h"
#include "base/ctx.h"
#include "base/clock.h"
#include "base/process/stray_processes.h"
#include "base/process/child_process.h"
#include "kit/got_marks.h"
#include "measure/command/output_items.h"
#include "measure/session/marker.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void marks(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	struct got got = {.n = 0};
	int64_t now;

	(void)state;
	unsetenv("JM_PROGRESS");
	assert_int_equal(jm_progress_send("x", NAN, &err), JM_ENOENT);
	assert_sentence(&err, JM_ENOENT);
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_progress_open(&p, &err), err);
	putenv((char *)jm_progress_env(p));
	assert_ok(jm_progress_send("warmup", NAN, &err), err);
	assert_ok(jm_progress_send("steady", 12.5, &err), err);
	now = jm_clock_now(jm_clock_real());
	assert_int_equal(jm_progress_receive(p, now, get, &got), 2);
	assert_string_equal(got.mark[0].name, "warmup");
	assert_true(isnan(got.mark[0].items));
	assert_near(got.mark[1].items, 12.5, 0);
	assert_true(got.mark[0].t_ns <= got.mark[1].t_ns && got.mark[1].t_ns <= now);
	assert_int_equal(jm_progress_send("two words", NAN, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
	unsetenv("JM_PROGRESS");
	jm_progress_close(p);
}

/* A marker sends until its descriptor is another thing; what took its number is left alone. */
static void markers(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct got got = {.n = 0};
	struct jm_marker *m;
	struct jm_progress *p;
	static char way[256]; /* outlives p in the environment */
	int before, fd, other[2];

	(void)state;
	unsetenv("JM_PROGRESS");
	assert_int_equal(jm_marker_new(&m, &err), JM_ENOENT);
	assert_sentence(&err, JM_ENOENT);
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_progress_open(&p, &err), err);
	snprintf(way, sizeof(way), "%s", jm_progress_env(p));
	putenv(way);
	before = dup(0);
	close(before);
	assert_ok(jm_marker_new(&m, &err), err);
	assert_ok(jm_marker_mark(m, "a", 1, &err), err);
	assert_ok(jm_marker_mark(m, "b", NAN, &err), err);
	assert_int_equal(jm_marker_mark(m, "two words", 1, &err), JM_EUSAGE);
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_progress_receive(p, jm_clock_now(jm_clock_real()), get, &got), 2);
	assert_string_equal(got.mark[1].name, "b");
	/* the first free number was the marker's */
	assert_int_equal(close(before), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, other), 0);
	assert_int_equal(other[0], before);
	assert_int_equal(jm_marker_mark(m, "c", 1, &err), JM_EGONE);
	assert_sentence(&err, JM_EGONE);
	assert_int_equal(recv(other[1], &fd, sizeof(fd), MSG_DONTWAIT), -1);
	jm_marker_free(m);
	assert_int_equal(close(other[0]), 0);
	close(other[1]);
	/* and until the receiver is closed */
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_marker_new(&m, &err), err);
	jm_progress_close(p);
	assert_int_equal(jm_marker_mark(m, "d", 1, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	jm_marker_free(m);
	jm_marker_free(NULL);
	unsetenv("JM_PROGRESS");
}

static void ignore_mark(void *arg, const struct jm_mark *mark)
{
	(void)arg;
	(void)mark;
}

/* A receiver that does not read costs a program two seconds once, not for each mark; later marks arrive again. */
static void a_reader_that_never_reads_delays_once(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct got got = {.n = 0};
	struct jm_marker *m;
	struct jm_progress *p;
	static char way[256]; /* outlives p in the environment */
	int64_t start;
	int lost = 0;

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	snprintf(way, sizeof(way), "%s", jm_progress_env(p));
	putenv(way);
	assert_ok(jm_marker_new(&m, &err), err);
	start = jm_clock_now(jm_clock_real());
	/* the kernel keeps max_dgram_qlen of them: 10, or 512 */
	for (int i = 0; i < 1000 && lost < 20; i++)
		if (jm_marker_mark(m, "a", 1, &err)) {
			assert_sentence(&err, JM_EIO);
			err = (struct jm_err)JM_ERR_INIT;
			lost++;
		}
	assert_int_equal(lost, 20);
	/* at two seconds each it would be 40 */
	assert_true(jm_clock_now(jm_clock_real()) - start < 20 * JM_SECOND);
	while (jm_progress_receive(p, jm_clock_now(jm_clock_real()), ignore_mark, NULL))
		;
	assert_ok(jm_marker_mark(m, "b", 7, &err), err);
	assert_int_equal(jm_progress_receive(p, jm_clock_now(jm_clock_real()), get, &got), 1);
	assert_string_equal(got.mark[0].name, "b");
	jm_marker_free(m);
	jm_progress_close(p);
	unsetenv("JM_PROGRESS");
}

/* Anybody may write to the socket; nothing of it may hurt. */
static void nonsense(void **state)
{
	static const char *const texts[] = {"", "jm1", "jm2 5 mark x", "jm1 5 mark", "jm1 x mark y",
		"jm1 5 mark a b", "jm1 5 mark a -3", "jm1 5 mark a nan", "jm1 5 mark a 1e999",
		"jm1 5 mark a 0x10", "jm1 5 mark a inf", "jm1 5 mark a 3x", "jm1 5 mark a @",
		"jm1 5 mark a @x", "jm1 5 mark a 3 @-1", "jm1 5 mark a 3 4",
		"jm1 5 mark a @99999999999999999999", "jm1 5 mark a @1 3",
		"jm1 5 mark "
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"a"};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	struct got got = {.n = 0};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", strchr(jm_progress_env(p), '=') + 1);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		sendto(fd, texts[i], strlen(texts[i]), 0, (struct sockaddr *)&to, sizeof(to));
		jm_progress_receive(p, 1000, get, &got);
	}
	assert_int_equal(got.n, 0);
	assert_int_equal(jm_progress_malformed(p), sizeof(texts) / sizeof(texts[0]));
	/* a stamp from the future is not believed */
	sendto(fd, "jm1 99999 mark a 3", 18, 0, (struct sockaddr *)&to, sizeof(to));
	assert_int_equal(jm_progress_receive(p, 1000, get, &got), 1);
	assert_int_equal(got.mark[0].t_ns, 1000);
	close(fd);
	jm_progress_close(p);
}

static double scanned(const char *regex, const char *key, const char *output, int *ret_n)
{
	struct jm_err err = JM_ERR_INIT;
	struct got got = {.n = 0};
	struct jm_scan *scan;
	double sum = 0;

	assert_ok(jm_scan_new(regex, key, &scan, &err), err);
	for (size_t n; *output; output += n) { /* in odd pieces */
		n = strnlen(output, 3);
		jm_scan_feed(scan, output, n, 5, get, &got);
	}
	jm_scan_end(scan, 1000, get, &got);
	jm_scan_free(scan);
	for (int i = 0; i < got.n; i++)
		sum += got.mark[i].items;
	*ret_n = got.n;
	return sum;
}

static void numbers_in_output(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_scan *scan;
	int n;

	(void)state;
	assert_near(scanned("([0-9.]+) tokens", NULL, "a 12 tokens\n3.5 tokens 4 tokens\nx", &n),
		19.5, 0);
	assert_int_equal(n, 3);
	/* a return begins a line as well; what is no number as a whole is not its beginning */
	assert_near(scanned("^n ([^ ]+)", NULL, "n 1\rn 2\r\nn 1,234\nn many\n", &n), 3, 0);
	assert_int_equal(n, 2);
	assert_near(scanned("^step", NULL, "step 1\n step\nstep 2", &n), 2, 0);
	assert_near(
		scanned(NULL, "tokens", "{\"tokens\": 5}\nhello\n{\"tokens\": 7}\n", &n), 12, 0);
	assert_near(scanned(NULL, "result.tokens", "{\"result\":\n {\"tokens\": 5}}\n", &n), 5, 0);
	assert_near(scanned(NULL, "tokens", "[1, 2]\n{\"tokens\": \"5\"}\n", &n), 0, 0);
	assert_int_equal(n, 0);
	/* neither an empty match nor bytes that are no UTF-8 keep it from going on; ^ is the line's beginning */
	assert_near(scanned("x*", NULL, "a\xff\xc3z", &n), 4, 0);
	assert_near(scanned("^n?([0-9])", NULL, "n1n2\n\xfe 4\n3", &n), 4, 0);
	assert_near(scanned("\xc3\xa9([0-9]+)", NULL,
			    "\xff \xc3\xa9"
			    "12",
			    &n),
		12, 0);
	assert_int_equal(jm_scan_new("(", NULL, &scan, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_scan_new("a", "b", &scan, &err), JM_EUSAGE);
}

/* Searches that would not end, or not within the stack, are counted: such a line is not one without items. */
static void limits_of_a_search(void **state)
{
	static const char *const patterns[] = {"(a*)(a*)\\1\\2b", "^(a+)+b$", "(?:a|aa|a?)+?b"};
	char line[3002];

	(void)state;
	memset(line, 'a', sizeof(line));
	line[sizeof(line) - 3] = 'X';
	line[sizeof(line) - 2] = 'b'; /* the last letter that they ask for is there */
	line[sizeof(line) - 1] = '\n';
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct got got = {.n = 0};
		struct jm_scan *scan;

		assert_ok(jm_scan_new(patterns[i], NULL, &scan, &err), err);
		for (int k = 0; k < 500; k++)
			jm_scan_feed(scan, line, sizeof(line), 5, get, &got);
		assert_int_equal(got.n, 0);
		assert_int_equal(jm_scan_limited(scan), 500);
		jm_scan_free(scan);
	}
}

static void expressions_that_are_refused(void **state)
{
	char deep[100001];

	(void)state;
	memset(deep, '(', 50000);
	memset(deep + 50000, ')', 50000);
	deep[100000] = '\0';
	for (int i = 0; i < 4; i++) {
		static const char *const others[] = {"a{2,1}", "[b-a]", "((a?){0,200}){0,200}b"};
		struct jm_err err = JM_ERR_INIT;
		struct jm_scan *scan;

		assert_int_equal(
			jm_scan_new(i ? others[i - 1] : deep, NULL, &scan, &err), JM_EUSAGE);
		assert_sentence(&err, JM_EUSAGE);
	}
}

static void rates(void **state)
{
	struct jm_tally t = {0}, one = {0}, late = {.late = true};
	int64_t s = JM_SECOND;

	(void)state;
	for (int i = 0; i < 5; i++)
		jm_tally_add(&t, &(struct jm_mark){.t_ns = (2 + i) * s, .items = 10});
	assert_near(jm_tally_rate(&t, 0, 20 * s), 10, 1e-9); /* 4 stretches of 1 s */
	jm_tally_add(&one, &(struct jm_mark){.t_ns = 10 * s, .items = 50});
	assert_near(jm_tally_rate(&one, 0, 10 * s), 5, 1e-9);
	for (int i = 0; i < 5; i++)
		jm_tally_add(&late, &(struct jm_mark){.t_ns = 10 * s + i, .items = 10});
	assert_near(jm_tally_rate(&late, 0, 10 * s), 5, 1e-9);
	assert_true(isnan(jm_tally_rate(&(struct jm_tally){0}, 0, s)));
}

/* ---- children ---- */

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

static void ends(void **state)
{
	struct jm_proc p;
	char bytes[32] = "";

	(void)state;
	p = child((char *[]){"sh", "-c", "sleep 0.1; exit 7", NULL}, false, 0);
	assert_int_equal(p.status, 7);
	assert_int_equal(p.signal, 0);
	assert_true(p.end_ns - p.start_ns >= 95 * JM_MILLISECOND);
	jm_proc_done(&p);
	p = child((char *[]){"sh", "-c", "kill -15 $$", NULL}, false, 0);
	assert_int_equal(p.status, 128 + 15);
	assert_int_equal(p.signal, 15);
	jm_proc_done(&p);
	p = child((char *[]){"sh", "-c", "echo $JM_TEST_WORD", NULL}, true, 0);
	assert_int_equal(read(p.out_fd, bytes, sizeof(bytes) - 1), 6);
	assert_string_equal(bytes, "hello\n");
	jm_proc_done(&p);
	p = child((char *[]){"no-such-command-here", NULL}, false, JM_ENOENT);
	p = child((char *[]){"/dev/null", NULL}, false, JM_EPERM);
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

/* ---- orphans ---- */

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

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int connect_to(const struct jm_progress *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s",
		strchr(jm_progress_env(p), '=') + 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* The descriptor twice or more in one datagram. */
static void send_copies(int to, int fd, int n, const char *text)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec from = {(void *)(uintptr_t)text, strlen(text)};
	struct msghdr message = {.msg_iov = &from,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &fd, sizeof(fd));
	assert_true(sendmsg(to, &message, MSG_DONTWAIT) > 0);
}

/* Whatever a command sends, the receiver keeps no descriptor but those of pipes that it takes. */
static void descriptors_of_senders_are_closed(void **state)
{
	static const char *const texts[] = {JM_MARK_HANDOVER, "jm1 5 mark a", "x"};
	struct jm_err err = JM_ERR_INIT;
	struct got got = {.n = 0};
	struct jm_progress *p;
	int before, to, file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	jm_progress_take_pipes(p);
	to = connect_to(p);
	before = open_descriptors();
	for (int n = 1; n <= 8; n++)
		for (int i = 0; i < 3; i++) {
			send_copies(to, file, n, texts[i]);
			got.n = 0;
			jm_progress_receive(p, jm_clock_now(jm_clock_real()), get, &got);
			assert_int_equal(open_descriptors(), before);
		}
	close(to);
	close(file);
	jm_progress_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(marks),
		cmocka_unit_test(markers),
		cmocka_unit_test(a_reader_that_never_reads_delays_once),
		cmocka_unit_test(nonsense),
		cmocka_unit_test(numbers_in_output),
		cmocka_unit_test(limits_of_a_search),
		cmocka_unit_test(expressions_that_are_refused),
		cmocka_unit_test(rates),
		cmocka_unit_test(descriptors_of_senders_are_closed),
		cmocka_unit_test(ends),
		cmocka_unit_test(a_signal_before_exec_runs_no_handler_of_the_parent),
		cmocka_unit_test(orphans_that_end_are_reaped),
		cmocka_unit_test(a_daemons_child_is_spared),
		cmocka_unit_test(too_many_orphans_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
