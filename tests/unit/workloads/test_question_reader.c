/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of clients of serve --listen become tokens: short ones at once, long ones on a thread,
 * and both as the tokenizer says. */
#include "kit/test.h"
#include "base/clock.h"
#include "data/tokenizer/tokenizer_json.h"
#include "vendor/answer_server.h"
#include "workloads/serve/question_reader.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 300000, VOCAB = 702, CONTEXT = 1000000 };

struct world {
	struct jm_answer_server *server;
	struct jm_question_reader *reader;
	struct jm_tokenizer *tokenizer;
	struct jm_prompts_source source;
	struct jm_rule rule;
	char path[512];
	int port;
};

static struct world *open_world(bool has_tokenizer, int64_t context)
{
	struct world *w = calloc(1, sizeof(*w));
	struct jm_err err = JM_ERR_INIT;
	const char *source = getenv("JM_SOURCE");

	assert_non_null(w);
	snprintf(w->path, sizeof(w->path), "%s/tests/data/tokenizers/llama3.json",
		source ? source : ".");
	w->source = (struct jm_prompts_source){.tokenizer = w->path, .vocab = VOCAB};
	w->rule.top_p = 1;
	if (has_tokenizer)
		assert_ok(jm_tokenizer_open(w->path, &w->tokenizer, &err), err);
	assert_ok(jm_question_reader_new(
			  &w->source, "m", &w->rule, w->tokenizer, context, &w->reader, &err),
		err);
	assert_ok(jm_answer_server_start("127.0.0.1", 0, &w->server, &w->port, &err), err);
	return w;
}

static void close_world(struct world *w)
{
	jm_question_reader_free(w->reader);
	jm_answer_server_stop(w->server);
	jm_tokenizer_close(w->tokenizer);
	free(w);
}

/* Sends a prompt of n bytes; returns the client. */
static int ask(const struct world *w, const char *prompt, size_t n)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)w->port),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0), used;
	char *text = malloc(n + 300);

	assert_non_null(text);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	used = snprintf(text, n + 300,
		"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n"
		"{\"prompt\": \"%s\", \"max_tokens\": 3}",
		n + 31, prompt);
	assert_int_equal(send(fd, text, (size_t)used, MSG_NOSIGNAL), used);
	free(text);
	return fd;
}

static struct jm_asked *next(const struct world *w)
{
	struct jm_asked *asked =
		jm_answer_server_next(w->server, jm_clock_now(jm_clock_real()) + 100 * JM_SECOND);

	assert_non_null(asked);
	return asked;
}

static void wait_for_long(const struct world *w, struct jm_question *ret)
{
	for (int i = 0; i < 10000 && !jm_question_reader_next(w->reader, ret); i++)
		usleep(10000);
	assert_non_null(ret->asked);
}

static void is_prompt(const struct world *w, const struct jm_question *q, const char *text)
{
	struct jm_ids ids = {0};
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(q->why.code, 0);
	assert_int_equal(q->ask.output, 3);
	assert_ok(jm_tokenizer_encode(
			  w->tokenizer, text, strlen(text), JM_TOKENIZER_TEMPLATE, &ids, &err),
		err);
	assert_int_equal(q->ask.n, ids.n);
	assert_memory_equal(q->ask.token, ids.at, ids.n * sizeof(*ids.at));
	free(ids.at);
}

static char *long_text(void)
{
	static const char words[] = "joulemark readings < ";
	char *text = malloc(MANY + 1);

	assert_non_null(text);
	for (size_t i = 0; i < MANY; i++)
		text[i] = words[i % (sizeof(words) - 1)];
	text[MANY] = '\0';
	return text;
}

static void a_short_question_does_not_wait_for_a_long_one(void **state)
{
	struct world *w = open_world(true, CONTEXT);
	struct jm_question q = {0}, later = {0};
	char *text = long_text();
	int fd[2];

	(void)state;
	fd[0] = ask(w, text, MANY);
	assert_false(jm_question_reader_read(w->reader, next(w), &q));
	assert_int_equal(jm_question_reader_left(w->reader), 1);
	fd[1] = ask(w, "the readings", 12);
	assert_true(jm_question_reader_read(w->reader, next(w), &q));
	is_prompt(w, &q, "the readings");
	wait_for_long(w, &later);
	assert_int_equal(jm_question_reader_left(w->reader), 0);
	is_prompt(w, &later, text);
	assert_true(later.asked->t_ns <= q.asked->t_ns);
	for (int i = 0; i < 2; i++) {
		jm_asked_end(i ? q.asked : later.asked);
		jm_ask_close(i ? &q.ask : &later.ask);
		close(fd[i]);
	}
	free(text);
	close_world(w);
}

/* Of two long ones the first may be under way at the end, the second is not. */
static void clients_of_questions_that_are_left_lose_their_connection(void **state)
{
	struct world *w = open_world(true, CONTEXT);
	struct jm_question q;
	char *text = long_text(), got;
	int fd[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		fd[i] = ask(w, text, MANY);
	for (int i = 0; i < 2; i++)
		assert_false(jm_question_reader_read(w->reader, next(w), &q));
	free(text);
	close_world(w);
	for (int i = 0; i < 2; i++) {
		assert_true(recv(fd[i], &got, 1, 0) <= 0);
		close(fd[i]);
	}
}

static void is_unread(const struct jm_question *q)
{
	assert_int_equal(q->why.code, 0);
	assert_null(q->ask.token);
	assert_int_equal(q->ask.n, 1);
	assert_int_equal(q->ask.output, 1);
	assert_int_equal(q->asked->n, 0); /* the body is freed */
}

static void a_question_whose_client_has_left_is_not_read(void **state)
{
	struct world *w = open_world(true, CONTEXT);
	struct jm_question q = {0};
	struct jm_asked *asked;
	char *text = long_text();
	int fd = ask(w, text, MANY);

	(void)state;
	asked = next(w);
	close(fd);
	for (int i = 0; i < 1000 && !jm_asked_is_gone(asked); i++)
		assert_null(jm_answer_server_next(
			w->server, jm_clock_now(jm_clock_real()) + JM_SECOND / 20));
	assert_false(jm_question_reader_read(w->reader, asked, &q));
	wait_for_long(w, &q);
	is_unread(&q);
	jm_asked_end(q.asked);
	free(text);
	close_world(w);
}

/* The first may be read, or under way; the second is neither. */
static void a_reader_that_is_stopped_returns_what_it_has_not_read(void **state)
{
	struct world *w = open_world(true, CONTEXT);
	struct jm_asked *asked[2];
	struct jm_question q;
	char *text = long_text();
	int fd[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		fd[i] = ask(w, text, MANY);
		asked[i] = next(w);
	}
	for (int i = 0; i < 2; i++)
		assert_false(jm_question_reader_read(w->reader, asked[i], &q));
	jm_question_reader_stop(w->reader);
	for (int i = 0; i < 2; i++) {
		assert_true(jm_question_reader_next(w->reader, &q));
		assert_ptr_equal(q.asked, asked[i]);
		if (q.ask.token)
			is_prompt(w, &q, text);
		else
			is_unread(&q);
		jm_asked_end(q.asked);
		jm_ask_close(&q.ask);
		close(fd[i]);
	}
	assert_int_equal(jm_question_reader_left(w->reader), 0);
	free(text);
	close_world(w);
}

static void what_exceeds_the_context_holds_no_tokens(void **state)
{
	struct world *w = open_world(true, 10);
	struct jm_question q = {0};
	char *text = long_text();
	int fd[2];

	(void)state;
	fd[0] = ask(w, text, MANY);
	assert_false(jm_question_reader_read(w->reader, next(w), &q));
	wait_for_long(w, &q);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(q.why.code, JM_EUSAGE);
		assert_non_null(strstr(q.why.text, "the context of the model has 10"));
		assert_null(q.ask.token);
		jm_asked_end(q.asked);
		if (i)
			break;
		fd[1] = ask(w, "<<<<<<<<<<", 10);
		assert_true(jm_question_reader_read(w->reader, next(w), &q));
	}
	close(fd[0]);
	close(fd[1]);
	free(text);
	close_world(w);
}

static void a_tokenizer_that_is_gone_is_said_at_once(void **state)
{
	struct world *w = open_world(true, CONTEXT);
	struct jm_prompts_source file = {.tokenizer = "/absent/tokenizer.json", .vocab = VOCAB};
	struct jm_prompts_source folder = {.from = "/absent", .vocab = VOCAB};
	struct jm_question_reader *reader = NULL;
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	assert_int_equal(
		jm_question_reader_new(&file, "m", &w->rule, w->tokenizer, CONTEXT, &reader, &err),
		JM_ENOENT);
	assert_non_null(strstr(err.text, "/absent/tokenizer.json"));
	err = (struct jm_err)JM_ERR_INIT;
	assert_int_equal(jm_question_reader_new(
				 &folder, "m", &w->rule, w->tokenizer, CONTEXT, &reader, &err),
		JM_ENOENT);
	assert_non_null(strstr(err.text, "/absent"));
	assert_null(reader);
	close_world(w);
}

static void what_cannot_be_served_is_said(void **state)
{
	struct world *w = open_world(false, CONTEXT);
	struct jm_question q = {0};
	char *text = long_text();
	int fd[2];

	(void)state;
	fd[0] = ask(w, text, MANY);
	assert_false(jm_question_reader_read(w->reader, next(w), &q));
	wait_for_long(w, &q);
	assert_int_equal(q.why.code, JM_EUSAGE);
	assert_non_null(strstr(q.why.text, "no tokenizer is known"));
	jm_asked_end(q.asked);
	fd[1] = ask(w, "\"", 1);
	assert_true(jm_question_reader_read(w->reader, next(w), &q));
	assert_int_equal(q.why.code, JM_EUSAGE);
	assert_non_null(strstr(q.why.text, "no JSON"));
	jm_asked_end(q.asked);
	for (int i = 0; i < 2; i++)
		close(fd[i]);
	free(text);
	close_world(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_short_question_does_not_wait_for_a_long_one),
		cmocka_unit_test(clients_of_questions_that_are_left_lose_their_connection),
		cmocka_unit_test(a_question_whose_client_has_left_is_not_read),
		cmocka_unit_test(a_reader_that_is_stopped_returns_what_it_has_not_read),
		cmocka_unit_test(what_exceeds_the_context_holds_no_tokens),
		cmocka_unit_test(a_tokenizer_that_is_gone_is_said_at_once),
		cmocka_unit_test(what_cannot_be_served_is_said),
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
