/* SPDX-License-Identifier: Apache-2.0 */
/* serve --listen: how many questions hold up one step. */
#include "kit/test.h"
#include "vendor/answer_server.h"
#include "workloads/serve/listen.h"
#include "workloads/serve/serve_requests.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUESTIONS = 100, A_STEP = 32, A_LONG = 20000 };

static const struct jm_option rows[] = {
	{.name = "arrival", .type = JM_TEXT, .fallback = "all"},
	{.name = "rate", .type = JM_REAL, .unit = ""},
	{.name = "lengths", .type = JM_TEXT},
	{.name = "requests", .type = JM_INT, .fallback = "64"},
	{.name = "input-tokens", .type = JM_TEXT, .fallback = "128"},
	{.name = "output-tokens", .type = JM_TEXT, .fallback = "32"},
	{.name = "phase", .type = JM_TEXT, .fallback = "both"},
	{.name = "context", .type = JM_INT, .fallback = "100000"},
	{0},
};

struct world {
	struct serve s;
	struct jm_work work;
	struct jm_sleeper sleeper;
	struct jm_values options;
	struct jm_ctx *ctx;
	int port;
};

/* The sentence that names the address ends in :PORT/v1/completions. */
static void on_log(void *arg, enum jm_level level, const char *text)
{
	struct world *w = arg;

	(void)level;
	sscanf(text, "Requests are taken at http://127.0.0.1:%d/", &w->port);
}

static int begin(void **state)
{
	static const struct jm_scheduler_limits limits = {4, 64, 100000, 16, 10000, NULL, 0};
	struct world *w = calloc(1, sizeof(*w));
	struct jm_err err = JM_ERR_INIT;

	assert_non_null(w);
	jm_sleeper_init(&w->sleeper, jm_clock_real());
	assert_ok(jm_values_init(&w->options, rows, &err), err);
	assert_ok(jm_ctx_new(&w->ctx, &err), err);
	jm_ctx_set_log(w->ctx, on_log, w);
	w->work = (struct jm_work){.ctx = w->ctx, .sleeper = &w->sleeper, .options = &w->options};
	w->s = (struct serve){
		.work = &w->work, .listen = "127.0.0.1:0", .vocab = 100, .model_name = "m"};
	w->s.source.vocab = 100;
	assert_ok(jm_values_init(&w->s.dims, rows, &err), err);
	assert_ok(jm_scheduler_new(&limits, &w->s.scheduler, &err), err);
	assert_ok(jm_listen_open(&w->s, &err), err);
	*state = w;
	return 0;
}

static int end(void **state)
{
	struct world *w = *state;

	jm_listen_close(&w->s);
	jm_answers_close(&w->s.load.answers);
	jm_scheduler_free(w->s.scheduler);
	jm_values_done(&w->s.dims);
	jm_values_done(&w->options);
	jm_sleeper_done(&w->sleeper);
	jm_ctx_free(w->ctx);
	free(w);
	return 0;
}

static int ask(const struct world *w, const char *body)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)w->port),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t room = strlen(body) + 200;
	char *text = malloc(room);

	assert_non_null(text);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	snprintf(text, room,
		"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(body), body);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	free(text);
	return fd;
}

/* All have come before the first step; each is taken, in the order of its arrival. */
static void a_step_waits_for_few_questions(void **state)
{
	struct world *w = *state;
	struct jm_err err = JM_ERR_INIT;
	int fd[QUESTIONS], before = 0, steps = 0;

	for (int i = 0; i < QUESTIONS; i++)
		fd[i] = ask(w, "{\"prompt\": [1, 2], \"max_tokens\": 3, \"stream\": true}");
	usleep(500000);
	for (; before < QUESTIONS && steps < 1000; steps++) {
		assert_ok(jm_listen_arrivals(&w->s, &err), err);
		assert_true(w->s.load.answers.n - before <= A_STEP);
		before = w->s.load.answers.n;
	}
	assert_int_equal(before, QUESTIONS);
	assert_true(steps >= QUESTIONS / A_STEP);
	for (int i = 1; i < QUESTIONS; i++)
		assert_true(w->s.load.answers.answer[i].arrived >=
			    w->s.load.answers.answer[i - 1].arrived);
	for (int i = 0; i < QUESTIONS; i++)
		close(fd[i]);
}

/* They count as offered. */
static void questions_that_no_step_took_are_taken_at_the_end(void **state)
{
	struct world *w = *state;
	struct jm_err err = JM_ERR_INIT;
	int fd[QUESTIONS];

	for (int i = 0; i < QUESTIONS; i++)
		fd[i] = ask(w, "{\"prompt\": [1, 2], \"max_tokens\": 3, \"stream\": true}");
	usleep(500000);
	assert_ok(jm_listen_arrivals(&w->s, &err), err);
	assert_true(w->s.load.answers.n <= A_STEP);
	assert_ok(jm_listen_finish(&w->s, &err), err);
	assert_int_equal(w->s.load.answers.n, QUESTIONS);
	for (int i = 0; i < QUESTIONS; i++)
		close(fd[i]);
}

/* The steps that the scheduler has are launched, and their tokens not taken: --steps-ahead. */
static int launch_all(struct serve *s)
{
	const struct jm_piece *piece;
	int n = 0;

	while (jm_scheduler_step(s->scheduler, &piece) > 0) {
		jm_scheduler_complete(s->scheduler);
		n++;
	}
	return n;
}

static void a_request_whose_client_left_before_its_last_token_is_not_done(void **state)
{
	struct world *w = *state;
	struct jm_err err = JM_ERR_INIT;
	int fd = ask(w, "{\"prompt\": [1, 2], \"max_tokens\": 3, \"stream\": true}");
	const struct jm_answer *a;

	for (int i = 0; i < 100 && !w->s.load.answers.n; i++)
		assert_ok(jm_listen_arrivals(&w->s, &err), err);
	assert_int_equal(w->s.load.answers.n, 1);
	assert_int_equal(launch_all(&w->s), 3);
	assert_int_equal(jm_scheduler_unfinished(w->s.scheduler), 0);
	assert_false(jm_serve_is_done(&w->s, 0));
	close(fd);
	a = w->s.load.answers.answer;
	for (int i = 0; i < 100 && a->state == JM_ANSWER_OPEN; i++)
		assert_ok(jm_listen_arrivals(&w->s, &err), err);
	assert_int_equal(a->state, JM_ANSWER_FAILED);
	assert_false(jm_serve_is_done(&w->s, 0));
}

/* Whether it was read or not: its client may be gone before or after that. */
static void a_long_question_whose_client_has_left_is_a_failed_request(void **state)
{
	struct world *w = *state;
	struct jm_err err = JM_ERR_INIT;
	static const char begin_of_it[] = "{\"max_tokens\": 3, \"prompt\": [1";
	size_t n = sizeof(begin_of_it) - 1;
	char *body = malloc(n + 2 * A_LONG + 3);
	const struct jm_answer *a;

	assert_non_null(body);
	memcpy(body, begin_of_it, n);
	for (int i = 0; i < A_LONG; i++) {
		body[n++] = ',';
		body[n++] = '1';
	}
	memcpy(body + n, "]}", 3);
	close(ask(w, body));
	free(body);
	for (int i = 0; i < 1000 && !w->s.load.answers.n; i++)
		assert_ok(jm_listen_arrivals(&w->s, &err), err);
	assert_int_equal(w->s.load.answers.n, 1);
	a = w->s.load.answers.answer;
	for (int i = 0; i < 1000 && a->state == JM_ANSWER_OPEN; i++) {
		usleep(10000);
		assert_ok(jm_listen_arrivals(&w->s, &err), err);
	}
	assert_int_equal(a->state, JM_ANSWER_FAILED);
	assert_int_equal(jm_scheduler_unfinished(w->s.scheduler), 0);
	assert_ok(jm_listen_finish(&w->s, &err), err);
	assert_int_equal(w->s.load.answers.n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_step_waits_for_few_questions, begin, end),
		cmocka_unit_test_setup_teardown(
			questions_that_no_step_took_are_taken_at_the_end, begin, end),
		cmocka_unit_test_setup_teardown(
			a_request_whose_client_left_before_its_last_token_is_not_done, begin, end),
		cmocka_unit_test_setup_teardown(
			a_long_question_whose_client_has_left_is_a_failed_request, begin, end),
	};
	struct jm_answer_server *s;
	struct jm_err err = JM_ERR_INIT;
	int port;

	if (jm_answer_server_start("127.0.0.1", 0, &s, &port, &err) == JM_ENOSUP)
		return 77; /* built without libmicrohttpd */
	if (!err.code)
		jm_answer_server_stop(s);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
