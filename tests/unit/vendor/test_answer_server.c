/* SPDX-License-Identifier: Apache-2.0 */
/* Clients ask at once, over sockets of their own; each gets its answer, whole, while the server's
 * thread and ours run. */
#include "kit/test.h"
#include "base/clock.h"
#include "vendor/answer_connections.h"
#include "vendor/answer_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLIENTS	  8
#define QUESTIONS 20 /* of each */

static int port;

static int dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		abort();
	return fd;
}

static void send_text(int fd, const char *text)
{
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
		abort();
}

static void ask(int fd, const char *body)
{
	char head[300];

	snprintf(head, sizeof(head),
		"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
		"Content-Length: %zu\r\n\r\n%s",
		strlen(body), body);
	send_text(fd, head);
}

static void read_all(int fd, char *out, size_t size)
{
	size_t n = 0;
	ssize_t got;

	while ((got = recv(fd, out + n, size - n - 1, 0)) > 0)
		n += (size_t)got;
	out[n] = '\0';
	close(fd);
}

/* Each answer holds the question's characters, each in a chunk of its own or with others, in
 * order. */
static bool has_in_order(const char *answer, const char *what)
{
	const char *at = strstr(answer, "\r\n\r\n");

	for (; at && *what; what++) {
		at = strchr(at, *what);
		at = at ? at + 1 : NULL;
	}
	return at != NULL;
}

static void *client(void *arg)
{
	char body[40], answer[4000];
	int number = *(const int *)arg;

	for (int i = 0; i < QUESTIONS; i++) {
		int fd = dial();

		snprintf(body, sizeof(body), "<%c-%c>", 'A' + number, 'a' + i);
		ask(fd, body);
		read_all(fd, answer, sizeof(answer));
		if (strncmp(answer, "HTTP/1.1 200", 12) != 0 || !has_in_order(answer, body))
			return (void *)1;
	}
	return NULL;
}

static struct jm_answer_server *start(void)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_answer_server *s;

	assert_ok(jm_answer_server_start("127.0.0.1", 0, &s, &port, &err), err);
	return s;
}

static struct jm_asked *next(struct jm_answer_server *s)
{
	struct jm_asked *asked = NULL;

	while (!asked)
		asked = jm_answer_server_next(s, jm_clock_now(jm_clock_real()) + JM_SECOND);
	return asked;
}

static void answers_each_question(void **state)
{
	struct jm_answer_server *s = start();
	pthread_t thread[CLIENTS];
	int number[CLIENTS];
	void *bad;

	(void)state;
	for (int i = 0; i < CLIENTS; i++) {
		number[i] = i;
		assert_int_equal(pthread_create(&thread[i], NULL, client, &number[i]), 0);
	}
	for (int i = 0; i < CLIENTS * QUESTIONS; i++) {
		struct jm_asked *asked = next(s);

		assert_string_equal(asked->path, "/echo");
		assert_string_equal(asked->method, "POST");
		jm_asked_begin(asked, 200, "text/plain");
		for (size_t k = 0; k < asked->n; k++)
			jm_asked_write(asked, asked->body + k, 1);
		jm_asked_end(asked);
	}
	for (int i = 0; i < CLIENTS; i++) {
		pthread_join(thread[i], &bad);
		assert_null(bad);
	}
	jm_answer_server_stop(s);
}

static void notices_that_a_client_is_gone(void **state)
{
	struct jm_answer_server *s = start();
	struct jm_asked *asked;
	int fd = dial();

	(void)state;
	ask(fd, "x");
	asked = next(s);
	jm_asked_begin(asked, 200, "text/plain");
	close(fd);
	while (!jm_asked_is_gone(asked)) {
		jm_asked_write(asked, "x", 1);
		usleep(1000);
	}
	assert_false(jm_asked_write(asked, "x", 1));
	jm_asked_end(asked);
	jm_answer_server_stop(s);
}

static void bounds_a_body_and_refuses_other_names(void **state)
{
	struct jm_answer_server *s = start();
	char answer[2000];
	int fd = dial();

	(void)state;
	send_text(fd, "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n");
	read_all(fd, answer, sizeof(answer));
	assert_non_null(strstr(answer, " 413 "));
	fd = dial();
	send_text(fd, "GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n");
	read_all(fd, answer, sizeof(answer));
	assert_non_null(strstr(answer, " 421 "));
	jm_answer_server_stop(s);
}

/* Nothing was written, so libmicrohttpd has not looked at the connection. */
static void notices_a_client_that_left_before_its_answer(void **state)
{
	struct jm_answer_server *s = start();
	struct jm_asked *asked;
	int64_t until;
	int fd = dial();

	(void)state;
	ask(fd, "x");
	asked = next(s);
	assert_false(jm_asked_is_gone(asked));
	close(fd);
	until = jm_clock_now(jm_clock_real()) + 20 * JM_SECOND;
	while (!jm_asked_is_gone(asked) && jm_clock_now(jm_clock_real()) < until)
		jm_answer_server_next(s, jm_clock_now(jm_clock_real()) + JM_SECOND / 100);
	assert_true(jm_asked_is_gone(asked));
	jm_asked_end(asked);
	jm_answer_server_stop(s);
}

static void says_when_a_question_came(void **state)
{
	struct jm_answer_server *s = start();
	int64_t before = jm_clock_now(jm_clock_real()), asked_ns;
	struct jm_asked *asked;
	int fd = dial();

	(void)state;
	ask(fd, "x");
	usleep(200000); /* the question waits */
	asked_ns = jm_clock_now(jm_clock_real());
	asked = next(s);
	assert_in_range(asked->t_ns, before, asked_ns);
	jm_asked_drop_body(asked);
	assert_string_equal(asked->body, "");
	jm_asked_end(asked);
	close(fd);
	jm_answer_server_stop(s);
}

static void an_answer_without_room_is_not_ended_as_if_it_were_whole(void **state)
{
	enum { TOO_MUCH = 17 << 20 };
	struct jm_answer_server *s = start();
	char *much = calloc(1, TOO_MUCH), answer[2000] = "";
	struct jm_asked *asked;
	int fd = dial();
	ssize_t n, used = 0;

	(void)state;
	ask(fd, "x");
	asked = next(s);
	jm_asked_begin(asked, 200, "text/plain");
	assert_true(jm_asked_write(asked, "begin", 5));
	assert_false(jm_asked_write(asked, much, TOO_MUCH));
	assert_false(jm_asked_write(asked, "end", 3));
	jm_asked_end(asked);
	while ((n = recv(fd, answer + used, sizeof(answer) - 1 - (size_t)used, 0)) > 0)
		used += n;
	assert_non_null(strstr(answer, "begin"));
	assert_null(strstr(answer, "end\r\n"));
	assert_null(strstr(answer, "\r\n0\r\n")); /* the last chunk */
	free(much);
	close(fd);
	jm_answer_server_stop(s);
}

static void clients_get_what_was_written_before_the_end(void **state)
{
	char answer[2000];

	(void)state;
	for (int i = 0; i < 50; i++) {
		struct jm_answer_server *s = start();
		struct jm_asked *asked;
		int fd = dial();

		ask(fd, "x");
		asked = next(s);
		jm_asked_begin(asked, 503, "text/plain");
		assert_true(jm_asked_write(asked, "why", 3));
		jm_asked_end(asked);
		jm_answer_server_stop(s);
		read_all(fd, answer, sizeof(answer));
		assert_non_null(strstr(answer, " 503 "));
		assert_non_null(strstr(answer, "why"));
	}
}

static void an_answer_that_is_broken_off_does_not_look_whole(void **state)
{
	struct jm_answer_server *s = start();
	char answer[2000];
	struct jm_asked *asked;
	int fd = dial();

	(void)state;
	ask(fd, "x");
	asked = next(s);
	jm_asked_begin(asked, 200, "text/plain");
	assert_true(jm_asked_write(asked, "part", 4));
	jm_asked_break(asked);
	assert_false(jm_asked_write(asked, "more", 4));
	jm_asked_end(asked);
	read_all(fd, answer, sizeof(answer));
	assert_non_null(strstr(answer, "part"));
	assert_null(strstr(answer, "more"));
	assert_null(strstr(answer, "\r\n0\r\n")); /* the last chunk */
	jm_answer_server_stop(s);
}

/* As if a minute had passed since it was complete. */
static void a_client_that_does_not_read_a_complete_answer_loses_its_connection(void **state)
{
	enum { MUCH = 15 << 20 };
	struct jm_answer_server *s = start();
	char *much = calloc(1, MUCH), part[4096];
	struct jm_asked *asked;
	int fd = dial(), shut = 0;
	size_t got = 0;
	ssize_t n;

	(void)state;
	ask(fd, "x");
	asked = next(s);
	jm_asked_begin(asked, 200, "text/plain");
	assert_true(jm_asked_write(asked, much, MUCH));
	usleep(100000);
	assert_null(jm_answer_server_next(s, 0));
	jm_asked_end(asked);
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < JM_ANSWER_CLIENTS; i++)
		if (s->client[i].fd >= 0 && s->client[i].since_ns) {
			s->client[i].since_ns -= (JM_ANSWER_SECONDS + 1) * JM_SECOND;
			shut++;
		}
	pthread_mutex_unlock(&s->lock);
	assert_int_equal(shut, 1);
	assert_null(jm_answer_server_next(s, 0));
	while ((n = recv(fd, part, sizeof(part), 0)) > 0)
		got += (size_t)n;
	assert_true(got < MUCH);
	free(much);
	close(fd);
	jm_answer_server_stop(s);
}

/* What the server answers; a minute of silence fails. */
static void is_refused(int fd)
{
	char answer[2000] = "";
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&ready, 1, 60000), 1);
	assert_true(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
	assert_non_null(strstr(answer, " 503 "));
	close(fd);
}

/* As many clients as fill what all may hold: less than another body is left. */
static void bounds_the_bodies_of_all_clients_together(void **state)
{
	static char most[7900000];
	enum { MOST = JM_ANSWER_HELD / JM_ANSWER_BODY };
	struct jm_answer_server *s = start();
	struct jm_asked *asked[MOST];
	int fd[MOST], announced, chunked;

	(void)state;
	memset(most, 'x', sizeof(most) - 1);
	for (int i = 0; i < MOST; i++) {
		fd[i] = dial();
		send_text(fd[i],
			"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 7899999\r\n\r\n");
		send_text(fd[i], most);
		asked[i] = next(s);
	}
	announced = dial();
	send_text(announced,
		"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8000000\r\n\r\n");
	is_refused(announced);
	chunked = dial();
	send_text(chunked,
		"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n");
	send_text(chunked, "788b5f\r\n"); /* 7,899,999 */
	send_text(chunked, most);
	send_text(chunked, "\r\n0\r\n\r\n");
	is_refused(chunked);
	for (int i = 0; i < MOST; i++) {
		jm_asked_end(asked[i]);
		close(fd[i]);
	}
	jm_answer_server_stop(s);
}

/* Another process has more connections than this one may have files. */
static void leaves_half_of_the_files_to_this_process(void **state)
{
	struct rlimit files, few;
	struct jm_answer_server *s;
	int left[10], n = 0, gate[2];
	pid_t child;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	assert_int_equal(pipe(gate), 0);
	few = (struct rlimit){64, files.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	s = start();
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		setrlimit(RLIMIT_NOFILE, &files);
		for (int i = 0; i < 100; i++)
			dial();
		_exit(write(gate[1], "x", 1) != 1 || pause());
	}
	assert_int_equal(read(gate[0], &n, 1), 1);
	usleep(300000);
	for (n = 0; n < 10 && (left[n] = open("/dev/null", O_RDONLY)) >= 0; n++)
		;
	for (int i = 0; i < n; i++)
		close(left[i]);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	jm_answer_server_stop(s);
	setrlimit(RLIMIT_NOFILE, &files);
	close(gate[0]);
	close(gate[1]);
	assert_int_equal(n, 10);
}

/* One question that nobody takes, one that is taken and not answered, one that is half answered,
 * one not complete. */
static void stops_with_questions_under_way(void **state)
{
	struct jm_answer_server *s = start();
	struct jm_asked *half;
	int fd[4];

	(void)state;
	for (int i = 0; i < 3; i++) {
		fd[i] = dial();
		ask(fd[i], "x");
	}
	fd[3] = dial();
	send_text(fd[3], "POST /x HTTP/1.1\r\nContent-Le");
	half = next(s);
	jm_asked_begin(half, 200, "text/plain");
	jm_asked_write(half, "x", 1);
	next(s);
	jm_answer_server_stop(s);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
}

int main(void)
{
	struct jm_answer_server *s;
	struct jm_err err = JM_ERR_INIT;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_each_question),
		cmocka_unit_test(notices_that_a_client_is_gone),
		cmocka_unit_test(bounds_a_body_and_refuses_other_names),
		cmocka_unit_test(notices_a_client_that_left_before_its_answer),
		cmocka_unit_test(says_when_a_question_came),
		cmocka_unit_test(an_answer_without_room_is_not_ended_as_if_it_were_whole),
		cmocka_unit_test(clients_get_what_was_written_before_the_end),
		cmocka_unit_test(an_answer_that_is_broken_off_does_not_look_whole),
		cmocka_unit_test(
			a_client_that_does_not_read_a_complete_answer_loses_its_connection),
		cmocka_unit_test(bounds_the_bodies_of_all_clients_together),
		cmocka_unit_test(leaves_half_of_the_files_to_this_process),
		cmocka_unit_test(stops_with_questions_under_way),
	};

	if (jm_answer_server_start("127.0.0.1", 0, &s, &port, &err) == JM_ENOSUP)
		return 77; /* built without libmicrohttpd */
	if (!err.code)
		jm_answer_server_stop(s);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
