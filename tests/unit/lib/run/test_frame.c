/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between processes arrive whole, in whatever pieces they come; who does not answer loses
 * its connection. */
#include "kit/test.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/gang/frame.h"
#include "run/gang/agent_links.h"

#define LARGE (3u << 20) /* bytes of a message, more than a connection holds */

static void make_connection(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

/* The bytes of a message of this size. */
static void fill(unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(i * 31 + i / 251);
}

/* ---- in pieces ------------------------------------------------------------------------------- */

/* Each size around those of the buffers, twice in a row. */
static void messages_of_all_sizes_arrive(void **unused)
{
	static const size_t sizes[] = {
		0, 1, 65527, 65528, 65529, 65535, 65536, 65537, 131072, 200000};
	static unsigned char bytes[200000];

	(void)unused;
	fill(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct jm_frame_reader reader = {0};
		struct jm_err err = JM_ERR_INIT;
		struct jm_frame f;
		bool end = false;
		int fd[2], n = 0;

		make_connection(fd);
		for (int k = 0; k < 2; k++) {
			assert_ok(jm_frame_write(fd[0], JM_FRAME_STDERR, bytes, sizes[i] / 2,
					  bytes + sizes[i] / 2, sizes[i] - sizes[i] / 2, &err),
				err);
			for (int got = 0; n <= k; n += got) {
				assert_ok(jm_frame_fill(&reader, fd[1], &end, &err), err);
				got = jm_frame_next(&reader, &f, &err);
				assert_true(got >= 0);
			}
			assert_int_equal(f.size, sizes[i]);
			assert_memory_equal(f.data, bytes, sizes[i]);
		}
		jm_frame_reader_done(&reader);
		close(fd[0]);
		close(fd[1]);
	}
}

static void *read_slowly(void *arg)
{
	static unsigned char bytes[65536];
	size_t *left = arg;
	ssize_t n = 1;

	usleep(400000);
	while (*left && n) {
		n = read((int)left[1], bytes, sizeof(bytes));
		if (n > 0)
			*left -= (size_t)n;
		else
			usleep(1000);
	}
	return NULL;
}

static void on_alarm(int number)
{
	(void)number;
}

/* Signals come while the buffer is full. */
static void a_signal_breaks_no_message(void **unused)
{
	const struct itimerval often = {{0, 20000}, {0, 20000}}, never = {0};
	unsigned char *bytes = calloc(1, LARGE);
	struct jm_err err = JM_ERR_INIT;
	size_t left[2] = {LARGE + 8};
	pthread_t thread;
	sigset_t alarm;
	int fd[2];

	(void)unused;
	make_connection(fd);
	left[1] = (size_t)fd[1];
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigaction(
		SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, NULL);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* for this thread alone */
	assert_int_equal(pthread_create(&thread, NULL, read_slowly, left), 0);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_ok(jm_frame_write(fd[0], JM_FRAME_STDERR, bytes, LARGE, NULL, 0, &err), err);
	setitimer(ITIMER_REAL, &never, NULL);
	pthread_join(thread, NULL);
	assert_int_equal(left[0], 0);
	free(bytes);
	close(fd[0]);
	close(fd[1]);
}

static void other_data_is_refused(void **unused)
{
	static const uint32_t wrong[][2] = {{0, 4}, {JM_FRAME_END, 4}, {JM_FRAME_LOG, UINT32_MAX}};

	(void)unused;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct jm_frame_reader reader = {0};
		struct jm_err err = JM_ERR_INIT;
		struct jm_frame f;
		bool end;
		int fd[2];

		make_connection(fd);
		assert_int_equal(write(fd[0], wrong[i], sizeof(wrong[i])), sizeof(wrong[i]));
		assert_ok(jm_frame_fill(&reader, fd[1], &end, &err), err);
		assert_int_equal(jm_frame_next(&reader, &f, &err), JM_EFORMAT);
		assert_sentence(&err, JM_EFORMAT);
		jm_frame_reader_done(&reader);
		close(fd[0]);
		close(fd[1]);
	}
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* What it would say later is no answer any more, and would be taken for the next message. */
static void who_does_not_tell_its_clock_is_disconnected(void **unused)
{
	struct jm_agent_links *h = calloc(1, sizeof(*h));
	char bytes[64];
	int fd[2];

	(void)unused;
	make_connection(fd);
	h->place.world = 3;
	h->link[1] = (struct jm_agent_link){.fd = fd[0], .first = 1};
	h->link[2] = (struct jm_agent_link){.fd = -1, .first = 1}; /* it measures nothing */
	jm_agent_links_compare_clocks(h, false);
	assert_true(h->link[1].before.doubt_ns == INT64_MAX);
	assert_true(!h->link[2].before.doubt_ns);
	assert_true(read(fd[1], bytes, sizeof(bytes)) > 0); /* the question */
	assert_int_equal(read(fd[1], bytes, sizeof(bytes)), 0);
	close(fd[0]);
	close(fd[1]);
	free(h);
}

struct slow_peer {
	int fd, asked;
};

/* Over a slow network, and each time 0.01 ms later. */
static void *answer_slowly(void *arg)
{
	struct slow_peer *peer = arg;
	struct pollfd p = {.fd = peer->fd, .events = POLLIN};
	char bytes[64];

	while (poll(&p, 1, -1) == 1 && read(peer->fd, bytes, sizeof(bytes)) > 0) {
		int64_t now = jm_clock_now(jm_clock_real());

		peer->asked++;
		usleep(250 + 10 * (useconds_t)peer->asked);
		if (write(peer->fd, &now, sizeof(now)) != sizeof(now))
			break;
	}
	return NULL;
}

/* The limit of time would allow about 70 exchanges. */
static void clocks_over_a_slow_network_are_compared_until_it_is_in_vain(void **unused)
{
	struct jm_agent_links *h = calloc(1, sizeof(*h));
	struct slow_peer peer = {0};
	pthread_t thread;
	int fd[2];

	(void)unused;
	make_connection(fd);
	peer.fd = fd[1];
	h->place.world = 2;
	h->link[1] = (struct jm_agent_link){.fd = fd[0], .first = 1};
	assert_int_equal(pthread_create(&thread, NULL, answer_slowly, &peer), 0);
	jm_agent_links_compare_clocks(h, false);
	close(fd[0]);
	pthread_join(thread, NULL);
	assert_true(h->link[1].before.doubt_ns >= 125000 && h->link[1].before.doubt_ns < INT64_MAX);
	assert_in_range(peer.asked, 5, 55);
	close(fd[1]);
	free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_all_sizes_arrive),
		cmocka_unit_test(a_signal_breaks_no_message),
		cmocka_unit_test(other_data_is_refused),
		cmocka_unit_test(who_does_not_tell_its_clock_is_disconnected),
		cmocka_unit_test(clocks_over_a_slow_network_are_compared_until_it_is_in_vain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
