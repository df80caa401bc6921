/* SPDX-License-Identifier: Apache-2.0 */
/* Marks through the socket: what arrives, what is refused, what a hostile sender can do; rates of
 * items. */
#include "kit/test.h"
#include "base/clock.h"
#include "kit/got_marks.h"
#include "measure/session/marker.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(const struct jm_progress *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s",
		strchr(jm_progress_env(p), '=') + 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void without_a_receiver_nothing_is_sent(void **state)
{
	struct jm_err err = JM_ERR_INIT, other = JM_ERR_INIT;
	struct jm_marker *m;

	(void)state;
	unsetenv("JM_PROGRESS");
	assert_int_equal(jm_progress_send("x", NAN, &err), JM_ENOENT);
	assert_sentence(&err, JM_ENOENT);
	assert_int_equal(jm_marker_new(&m, &other), JM_ENOENT);
	assert_sentence(&other, JM_ENOENT);
}

static void marks_arrive_in_order_with_name_and_items(void **state)
{
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT;
	struct got got;

	(void)state;
	assert_ok(jm_progress_send("warmup", NAN, &err), err);
	assert_ok(jm_progress_send("steady", 12.5, &err), err);
	assert_int_equal(receive(p, &got), 2);
	assert_string_equal(got.mark[0].name, "warmup");
	assert_true(isnan(got.mark[0].items));
	assert_string_equal(got.mark[1].name, "steady");
	assert_near(got.mark[1].items, 12.5, 0);
	close_receiver(p);
}

static void a_mark_has_the_time_at_which_it_was_sent(void **state)
{
	int64_t before = jm_clock_now(jm_clock_real()), after;
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT;
	struct got got;

	(void)state;
	assert_ok(jm_progress_send("first", NAN, &err), err);
	assert_ok(jm_progress_send("second", NAN, &err), err);
	after = jm_clock_now(jm_clock_real());
	assert_int_equal(receive(p, &got), 2);
	assert_in_range(got.mark[0].t_ns, before, got.mark[1].t_ns);
	assert_in_range(got.mark[1].t_ns, got.mark[0].t_ns, after);
	close_receiver(p);
}

static void a_time_in_the_future_is_that_of_its_arrival(void **state)
{
	struct jm_progress *p = open_receiver();
	struct got got = {.n = 0};
	int fd = connect_to(p);

	(void)state;
	assert_int_equal(send(fd, "jm1 99999 mark a 3", 18, 0), 18);
	assert_int_equal(jm_progress_receive(p, 1000, get, &got), 1);
	assert_int_equal(got.mark[0].t_ns, 1000);
	close(fd);
	close_receiver(p);
}

static void a_name_is_one_word(void **state)
{
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT, other = JM_ERR_INIT;
	struct jm_marker *m;

	(void)state;
	assert_int_equal(jm_progress_send("two words", NAN, &err), JM_EUSAGE);
	assert_sentence(&err, JM_EUSAGE);
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_marker_new(&m, &err), err);
	assert_int_equal(jm_marker_mark(m, "two words", 1, &other), JM_EUSAGE);
	jm_marker_free(m);
	close_receiver(p);
}

static void a_marker_sends_any_number_of_marks(void **state)
{
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT;
	struct jm_marker *m;
	struct got got;

	(void)state;
	assert_ok(jm_marker_new(&m, &err), err);
	assert_ok(jm_marker_mark(m, "a", 1, &err), err);
	assert_ok(jm_marker_mark(m, "b", NAN, &err), err);
	assert_int_equal(receive(p, &got), 2);
	assert_string_equal(got.mark[1].name, "b");
	jm_marker_free(m);
	jm_marker_free(NULL);
	close_receiver(p);
}

/* A program that closes all descriptors closes the marker's as well; the number may then be that of
 * another file. */
static void a_marker_writes_to_no_descriptor_that_took_its_number(void **state)
{
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT;
	struct jm_marker *m;
	int first_free = dup(0), byte, other[2];

	(void)state;
	close(first_free);
	assert_ok(jm_marker_new(&m, &err), err); /* it has this number */
	assert_int_equal(close(first_free), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, other), 0);
	assert_int_equal(other[0], first_free);
	assert_int_equal(jm_marker_mark(m, "c", 1, &err), JM_EGONE);
	assert_sentence(&err, JM_EGONE);
	assert_int_equal(recv(other[1], &byte, sizeof(byte), MSG_DONTWAIT), -1);
	jm_marker_free(m);
	assert_int_equal(close(other[0]), 0);
	close(other[1]);
	close_receiver(p);
}

static void a_marker_whose_receiver_was_closed_says_so(void **state)
{
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT;
	struct jm_marker *m;

	(void)state;
	assert_ok(jm_marker_new(&m, &err), err);
	close_receiver(p);
	assert_int_equal(jm_marker_mark(m, "d", 1, &err), JM_EIO);
	assert_sentence(&err, JM_EIO);
	jm_marker_free(m);
}

static void ignore_mark(void *arg, const struct jm_mark *mark)
{
	(void)arg;
	(void)mark;
}

/* A receiver that does not read costs a program two seconds once, not for each mark; later marks
 * arrive again. */
static void a_reader_that_never_reads_delays_once(void **state)
{
	struct jm_err err = JM_ERR_INIT;
	struct got got = {.n = 0};
	struct jm_marker *m;
	struct jm_progress *p;
	int64_t start;
	int lost = 0;

	(void)state;
	p = open_receiver();
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
	close_receiver(p);
}

/* Anybody may write to the socket; nothing of it may hurt. */
/* As many marks as the kernel keeps. */
static void fill(const struct jm_progress *p)
{
	static const char mark[] = "jm1 5 mark a";
	int fd = connect_to(p);

	while (send(fd, mark, sizeof(mark) - 1, MSG_DONTWAIT) > 0)
		;
	close(fd);
}

static void on_alarm(int number)
{
	(void)number;
}

/* A profiler's timer, each 10 ms. */
static void set_timer(long us)
{
	const struct itimerval each = {{0, us}, {0, us}};
	const struct sigaction act = {.sa_handler = on_alarm};

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
}

static void *read_later(void *p)
{
	usleep(200000);
	jm_progress_receive(p, jm_clock_now(jm_clock_real()), ignore_mark, NULL);
	return NULL;
}

/* A signal that ends a system call loses no mark while the receiver is late. */
static void a_timer_of_the_program_loses_no_mark(void **state)
{
	struct jm_progress *p = open_receiver();
	struct jm_err err = JM_ERR_INIT;
	struct jm_marker *m;
	sigset_t alarm, before;
	pthread_t reader;
	int rc;

	(void)state;
	assert_ok(jm_marker_new(&m, &err), err);
	fill(p);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, &before);
	pthread_create(&reader, NULL, read_later, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	set_timer(10000);
	rc = jm_marker_mark(m, "late", NAN, &err);
	set_timer(0);
	pthread_join(reader, NULL);
	assert_ok(rc, err);
	jm_marker_free(m);
	close_receiver(p);
}

static void nonsense_is_counted_and_ignored(void **state)
{
	static const char *const texts[] = {"", "jm1", "jm2 5 mark x", "jm1 5 mark", "jm1 x mark y",
		"jm1 5 mark a b", "jm1 5 mark a -3", "jm1 5 mark a nan", "jm1 5 mark a 1e999",
		"jm1 5 mark a 0x10", "jm1 5 mark a inf", "jm1 5 mark a 3x", "jm1 5 mark a @",
		"jm1 5 mark a @x", "jm1 5 mark a 3 @-1", "jm1 5 mark a 3 4",
		"jm1 5 mark a @99999999999999999999", "jm1 5 mark a @1 3",
		"jm1 5 mark "
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"a"};
	struct jm_err err = JM_ERR_INIT;
	struct jm_progress *p;
	struct got got = {.n = 0};
	int fd;

	(void)state;
	assert_ok(jm_progress_open(&p, &err), err);
	fd = connect_to(p);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_true(send(fd, texts[i], strlen(texts[i]), 0) >= 0);
		jm_progress_receive(p, 1000, get, &got);
	}
	assert_int_equal(got.n, 0);
	assert_int_equal(jm_progress_malformed(p), sizeof(texts) / sizeof(texts[0]));
	close(fd);
	jm_progress_close(p);
}

/* Five marks of 10 items, a second apart: four seconds lie between them. */
static void a_rate_is_that_between_the_marks(void **state)
{
	struct jm_tally t = {0};

	(void)state;
	for (int i = 0; i < 5; i++)
		jm_tally_add(&t, &(struct jm_mark){.t_ns = (2 + i) * JM_SECOND, .items = 10});
	assert_near(jm_tally_rate(&t, 0, 20 * JM_SECOND), 10, 1e-9);
}

static void the_rate_of_one_mark_is_that_since_the_start(void **state)
{
	struct jm_tally t = {0};

	(void)state;
	jm_tally_add(&t, &(struct jm_mark){.t_ns = 10 * JM_SECOND, .items = 50});
	assert_near(jm_tally_rate(&t, 0, 10 * JM_SECOND), 5, 1e-9);
}

static void the_rate_of_marks_that_came_late_is_that_since_the_start(void **state)
{
	struct jm_tally t = {.late = true};

	(void)state;
	for (int i = 0; i < 5; i++)
		jm_tally_add(&t, &(struct jm_mark){.t_ns = 10 * JM_SECOND + i, .items = 10});
	assert_near(jm_tally_rate(&t, 0, 10 * JM_SECOND), 5, 1e-9);
}

static void the_rate_of_no_marks_is_unknown(void **state)
{
	(void)state;
	assert_true(isnan(jm_tally_rate(&(struct jm_tally){0}, 0, JM_SECOND)));
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
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
		cmocka_unit_test(without_a_receiver_nothing_is_sent),
		cmocka_unit_test(marks_arrive_in_order_with_name_and_items),
		cmocka_unit_test(a_mark_has_the_time_at_which_it_was_sent),
		cmocka_unit_test(a_time_in_the_future_is_that_of_its_arrival),
		cmocka_unit_test(a_name_is_one_word),
		cmocka_unit_test(a_marker_sends_any_number_of_marks),
		cmocka_unit_test(a_marker_writes_to_no_descriptor_that_took_its_number),
		cmocka_unit_test(a_marker_whose_receiver_was_closed_says_so),
		cmocka_unit_test(a_reader_that_never_reads_delays_once),
		cmocka_unit_test(a_timer_of_the_program_loses_no_mark),
		cmocka_unit_test(nonsense_is_counted_and_ignored),
		cmocka_unit_test(descriptors_of_senders_are_closed),
		cmocka_unit_test(a_rate_is_that_between_the_marks),
		cmocka_unit_test(the_rate_of_one_mark_is_that_since_the_start),
		cmocka_unit_test(the_rate_of_marks_that_came_late_is_that_since_the_start),
		cmocka_unit_test(the_rate_of_no_marks_is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
