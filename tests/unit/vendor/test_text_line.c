/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of an instrument over TCP, in a program whose timers end its system calls. */
#include "kit/test.h"
#include "base/clock.h"
#include "base/net/tcp.h"
#include "vendor/text_line.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void on_alarm(int number)
{
	(void)number;
}

/* Other threads block its signal. */
static void set_timer(long us)
{
	const struct itimerval each = {{0, us}, {0, us}};
	const struct sigaction act = {.sa_handler = on_alarm};

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
}

/* An instrument that answers one question after 300 ms. */
static void *answer(void *arg)
{
	int listener = *(int *)arg, fd = -1;
	int64_t until = jm_clock_now(jm_clock_real()) + 10 * JM_SECOND;
	char question[3];

	if (jm_tcp_wait(listener, POLLIN, until))
		fd = accept(listener, NULL, NULL);
	if (fd >= 0 && jm_tcp_receive(fd, question, sizeof(question), until)) {
		usleep(300000);
		jm_tcp_send(fd, "42\r\n", 4, until);
	}
	close(fd);
	return NULL;
}

static void a_signal_ends_no_wait_for_an_answer(void **state)
{
	struct jm_text_line line = {
		.host = "127.0.0.1", .ending = "\r\n", .timeout_ns = 10 * JM_SECOND, .fd = -1};
	struct jm_err err = JM_ERR_INIT;
	char host[JM_HOST_SIZE], text[16];
	sigset_t alarm, before;
	pthread_t instrument;
	int listener;
	bool got;

	(void)state;
	assert_ok(jm_tcp_listen(line.host, 0, &listener, &err), err);
	line.port = jm_tcp_own_end(listener, host);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, &before);
	pthread_create(&instrument, NULL, answer, &listener);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	set_timer(10000);
	jm_text_line_limit(&line);
	got = jm_text_line_open(&line) && jm_text_line_ask(&line, "?", text, sizeof(text));
	set_timer(0);
	pthread_join(instrument, NULL);
	assert_true(got);
	assert_string_equal(text, "42");
	jm_text_line_close(&line);
	close(listener);
}

static void a_silent_instrument_is_given_up_in_time(void **state)
{
	struct jm_text_line line = {
		.host = "127.0.0.1", .ending = "\n", .timeout_ns = JM_SECOND / 5, .fd = -1};
	struct jm_err err = JM_ERR_INIT;
	char host[JM_HOST_SIZE], text[16];
	int64_t begin = jm_clock_now(jm_clock_real());
	int listener;

	(void)state;
	assert_ok(jm_tcp_listen(line.host, 0, &listener, &err), err);
	line.port = jm_tcp_own_end(listener, host);
	jm_text_line_limit(&line);
	assert_true(jm_text_line_open(&line));
	assert_false(jm_text_line_ask(&line, "?", text, sizeof(text)));
	assert_int_equal(line.fd, -1);
	assert_true(jm_clock_now(jm_clock_real()) - begin >= JM_SECOND / 5);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_ends_no_wait_for_an_answer),
		cmocka_unit_test(a_silent_instrument_is_given_up_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
