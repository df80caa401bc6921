/* SPDX-License-Identifier: Apache-2.0 */
/* Marks through the pipes that senders hand over. */
#include "kit/test.h"
#include "base/clock.h"
#include "kit/got_marks.h"
#include "measure/session/marker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* As before Linux 6.4, which Debian 12 has: no pipe can be read with RWF_NOWAIT. */
ssize_t preadv2(int fd, const struct iovec *iovec, int count, off_t offset, int flags)
{
	(void)fd;
	(void)iovec;
	(void)count;
	(void)offset;
	(void)flags;
	errno = EOPNOTSUPP;
	return -1;
}

static int flood; /* marks that wait; 0 = those of the socket */

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	static const char mark[] = "jm1 5 mark a";

	if (!flood)
		return syscall(SYS_recvmsg, fd, message, flags);
	flood--;
	memcpy(message->msg_iov->iov_base, mark, sizeof(mark) - 1);
	message->msg_controllen = 0;
	return (ssize_t)sizeof(mark) - 1;
}

static void ignore_mark(void *arg, const struct jm_mark *mark)
{
	(void)arg;
	(void)mark;
}

/* A receiver that takes pipes, named in the environment. */
static struct jm_progress *open_for_pipes(void)
{
	struct jm_progress *p = open_receiver();

	jm_progress_take_pipes(p);
	return p;
}

static bool datagrams_wait(const struct jm_progress *p)
{
	char byte;

	return recv(jm_progress_fd(p), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* A marker whose pipe the receiver has taken. */
static struct jm_marker *taken_marker(struct jm_progress *p)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_marker *m;
	struct got got;

	assert_ok(jm_marker_new(&m, &err), err);
	receive(p, &got);
	return m;
}

static void a_mark_before_the_pipe_is_taken_goes_by_datagram(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	struct jm_marker *m;
	struct got got;

	(void)state;
	assert_ok(jm_marker_new(&m, &err), err);
	assert_ok(jm_marker_mark(m, "first", NAN, &err), err);
	assert_true(datagrams_wait(p));
	assert_int_equal(receive(p, &got), 1);
	assert_true(jm_progress_has_pipes(p));
	jm_marker_free(m);
	close_receiver(p);
}

static void a_mark_in_a_pipe_wakes_nobody_up(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	struct jm_marker *m = taken_marker(p);

	(void)state;
	assert_ok(jm_marker_mark(m, "one", 1, &err), err);
	assert_false(datagrams_wait(p));
	jm_marker_free(m);
	close_receiver(p);
}

/* Of two markers, of a child that is killed, and of a process that sends one datagram. */
static void marks_of_all_senders_arrive_in_order(void **state)
{
	static const char *const names[] = {"one", "two", "three", "four", "five"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	struct jm_marker *a = taken_marker(p), *b = taken_marker(p);
	struct got got;
	pid_t child;

	(void)state;
	assert_ok(jm_marker_mark(b, "one", 1, &err), err);
	assert_ok(jm_marker_mark(a, "two", 2.5, &err), err);
	assert_ok(jm_marker_mark(b, "three", NAN, &err), err);
	child = fork();
	if (!child) {
		jm_marker_mark(a, "four", NAN, NULL);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_ok(jm_progress_send("five", 5, &err), err);
	assert_int_equal(receive(p, &got), 5);
	for (int i = 0; i < 5; i++)
		assert_string_equal(got.mark[i].name, names[i]);
	jm_marker_free(a);
	jm_marker_free(b);
	close_receiver(p);
}

static void items_go_through_a_pipe(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	struct jm_marker *m = taken_marker(p);
	struct got got;

	(void)state;
	assert_ok(jm_marker_mark(m, "a", 2.5, &err), err);
	assert_ok(jm_marker_mark(m, "b", NAN, &err), err);
	assert_int_equal(receive(p, &got), 2);
	assert_near(got.mark[0].items, 2.5, 0);
	assert_true(isnan(got.mark[1].items));
	assert_int_equal(jm_progress_malformed(p), 0);
	jm_marker_free(m);
	close_receiver(p);
}

static void marks_of_a_sender_that_has_gone_arrive_and_its_pipe_is_closed(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	struct jm_marker *m = taken_marker(p);
	struct got got;

	(void)state;
	assert_ok(jm_marker_mark(m, "last", NAN, &err), err);
	jm_marker_free(m);
	assert_int_equal(receive(p, &got), 1);
	assert_false(jm_progress_has_pipes(p));
	close_receiver(p);
}

/* A mark that does not fit in the pipe goes by datagram, so none is lost; and a receiver that has
 * gone is no signal. */
static void a_full_pipe_is_not_the_end(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	struct jm_marker *m;
	struct got got;
	int sent = 0, left;

	(void)state;
	assert_ok(jm_marker_new(&m, &err), err);
	receive(p, &got);
	while (!datagrams_wait(p)) {
		assert_ok(jm_marker_mark(m, "a", 1, &err), err);
		sent++;
	}
	assert_in_range(sent, JM_MARK_PIPE / 64, JM_MARK_PIPE / 16);
	assert_int_equal(
		jm_progress_receive(p, jm_clock_now(jm_clock_real()), ignore_mark, NULL), sent);
	assert_ok(jm_marker_mark(m, "b", 1, &err), err);
	assert_false(datagrams_wait(p));
	jm_progress_close(p);
	for (left = JM_MARK_PIPE; left > 0 && !jm_marker_mark(m, "c", 1, &err); left--)
		;
	assert_true(left > 0);
	assert_sentence(&err, JM_EIO);
	jm_marker_free(m);
	unsetenv("JM_PROGRESS");
}

/* Where pages have 16 KiB, a new pipe has JM_MARK_PIPE bytes, and nobody needs to have taken it. */
static void a_pipe_that_is_offered_is_small(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p = open_for_pipes();
	char text[32], control[64];
	struct iovec into = {text, sizeof(text)};
	struct msghdr message = {.msg_iov = &into,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control)};
	struct jm_marker *m;
	int fd;

	(void)state;
	assert_ok(jm_marker_new(&m, &err), err);
	assert_true(recvmsg(jm_progress_fd(p), &message, 0) > 0);
	assert_non_null(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	assert_int_equal(fcntl(fd, F_GETPIPE_SZ), sysconf(_SC_PAGESIZE));
	close(fd);
	jm_marker_free(m);
	jm_progress_close(p);
	unsetenv("JM_PROGRESS");
}

/* Processes that send faster than one can receive do not keep the receiver. */
static void a_flood_is_received_in_parts(void **state)
{
	const int all = 1 << 20;
	struct jm_progress *p = open_for_pipes();

	(void)state;
	flood = all;
	assert_in_range(jm_progress_receive(p, 1000, ignore_mark, NULL), 1, all / 2);
	assert_true(flood > 0);
	flood = 0;
	jm_progress_close(p);
	unsetenv("JM_PROGRESS");
}

static void hand_over(const struct jm_progress *p, const char *text, int fd)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec from = {(char *)(uintptr_t)text, strlen(text)};
	struct msghdr message = {.msg_name = &to,
		.msg_namelen = sizeof(to),
		.msg_iov = &from,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	int s = socket(AF_UNIX, SOCK_DGRAM, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", strchr(jm_progress_env(p), '=') + 1);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	assert_true(sendmsg(s, &message, 0) >= 0);
	close(s);
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A mark that comes with it counts all the same. */
static void a_descriptor_that_is_no_pipe_is_closed(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int before = open_descriptors();
	struct got got;

	(void)state;
	hand_over(p, "jm1 pipe", 0);
	hand_over(p, "jm1 5 mark with-a-descriptor", 0);
	assert_int_equal(receive(p, &got), 1);
	assert_int_equal(open_descriptors(), before);
	close_receiver(p);
}

/* A pipe whose end for writing is returned; the receiver has the other one. */
static int hand_over_a_pipe(struct jm_progress *p)
{
	struct got got;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	hand_over(p, "jm1 pipe", ends[0]);
	close(ends[0]);
	assert_int_equal(receive(p, &got), 0);
	assert_true(jm_progress_has_pipes(p));
	return ends[1];
}

static void put(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void an_empty_pipe_that_blocks_delays_nobody(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int end = hand_over_a_pipe(p);
	struct got got;

	(void)state;
	assert_int_equal(receive(p, &got), 0);
	close(end);
	close_receiver(p);
}

static void lines_that_are_no_marks_are_counted(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int end = hand_over_a_pipe(p);
	struct got got;

	(void)state;
	put(end, "nonsense\njm1 5 mark a b\n\njm1 5 mark good 2\n");
	assert_int_equal(receive(p, &got), 1);
	assert_string_equal(got.mark[0].name, "good");
	assert_int_equal(jm_progress_malformed(p), 3);
	close(end);
	close_receiver(p);
}

static void a_line_may_come_in_two_pieces(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int end = hand_over_a_pipe(p);
	struct got got;

	(void)state;
	put(end, "jm1 5 mark to");
	assert_int_equal(receive(p, &got), 0);
	put(end, "gether 3\n");
	assert_int_equal(receive(p, &got), 1);
	assert_string_equal(got.mark[0].name, "together");
	assert_int_equal(jm_progress_malformed(p), 0);
	close(end);
	close_receiver(p);
}

static void a_line_that_is_too_long_is_counted_and_the_next_one_is_read(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int end = hand_over_a_pipe(p);
	char longest[1000];
	struct got got;

	(void)state;
	memset(longest, 'x', sizeof(longest));
	assert_int_equal(write(end, longest, sizeof(longest)), sizeof(longest));
	put(end, "\njm1 5 mark c\n");
	assert_int_equal(receive(p, &got), 1);
	assert_string_equal(got.mark[0].name, "c");
	assert_int_equal(jm_progress_malformed(p), 1);
	close(end);
	close_receiver(p);
}

static void a_line_that_is_torn_at_the_end_is_counted(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int before = open_descriptors(), end = hand_over_a_pipe(p);
	struct got got;

	(void)state;
	put(end, "jm1 5 mark c\njm1");
	close(end);
	assert_int_equal(receive(p, &got), 1);
	assert_int_equal(jm_progress_malformed(p), 1);
	assert_false(jm_progress_has_pipes(p));
	assert_int_equal(open_descriptors(), before);
	close_receiver(p);
}

static void pipes_beyond_a_limit_are_closed(void **state)
{
	struct jm_progress *p = open_for_pipes();
	int before = open_descriptors();
	struct got got;

	(void)state;
	for (int i = 0; i < 100; i++) {
		int ends[2];

		assert_int_equal(pipe(ends), 0);
		hand_over(p, "jm1 pipe", ends[0]);
		close(ends[0]);
		receive(p, &got);
	}
	assert_in_range(open_descriptors(), before + 100 + 1, before + 100 + 99);
	close_receiver(p);
	for (int fd = before; fd < 1024; fd++)
		close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mark_before_the_pipe_is_taken_goes_by_datagram),
		cmocka_unit_test(a_mark_in_a_pipe_wakes_nobody_up),
		cmocka_unit_test(marks_of_all_senders_arrive_in_order),
		cmocka_unit_test(items_go_through_a_pipe),
		cmocka_unit_test(marks_of_a_sender_that_has_gone_arrive_and_its_pipe_is_closed),
		cmocka_unit_test(a_full_pipe_is_not_the_end),
		cmocka_unit_test(a_pipe_that_is_offered_is_small),
		cmocka_unit_test(a_flood_is_received_in_parts),
		cmocka_unit_test(a_descriptor_that_is_no_pipe_is_closed),
		cmocka_unit_test(an_empty_pipe_that_blocks_delays_nobody),
		cmocka_unit_test(lines_that_are_no_marks_are_counted),
		cmocka_unit_test(a_line_may_come_in_two_pieces),
		cmocka_unit_test(a_line_that_is_too_long_is_counted_and_the_next_one_is_read),
		cmocka_unit_test(a_line_that_is_torn_at_the_end_is_counted),
		cmocka_unit_test(pipes_beyond_a_limit_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
