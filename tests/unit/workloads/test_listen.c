/* SPDX-License-Identifier: Apache-2.0 */
/* serve --listen: what becomes of questions that a replica takes, and of those that it does not.
 * The replica is played here, the listener's thread is the real one. */
#include "kit/test.h"
#include "vendor/answer_server.h"
#include "workloads/serve/listen.h"
#include "workloads/serve/replicas.h"
#include "workloads/serve/serve_requests.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUESTIONS = 100, PLACES = 4, CONTEXT = 100000, A_LONG = 20000 };

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
	static const struct jm_scheduler_limits limits = {PLACES, 64, 100000, 16, 10000, NULL, 0};
	struct world *w = calloc(1, sizeof(*w));
	struct jm_err err = JM_ERR_INIT;

	assert_non_null(w);
	jm_sleeper_init(&w->sleeper, jm_clock_real());
	assert_ok(jm_values_init(&w->options, rows, &err), err);
	assert_ok(jm_ctx_new(&w->ctx, &err), err);
	jm_ctx_set_log(w->ctx, on_log, w);
	w->work = (struct jm_work){.ctx = w->ctx, .sleeper = &w->sleeper, .options = &w->options};
	w->s = (struct serve){.work = &w->work,
		.listen = "127.0.0.1:0",
		.vocab = 100,
		.model_name = "m",
		.limits = limits,
		.load.arrivals.kind = ARRIVE_CLIENTS,
		.load.answers = {.running = PLACES}};
	w->s.source.vocab = 100;
	assert_ok(jm_values_init(&w->s.dims, rows, &err), err);
	assert_ok(jm_queue_open(&w->s.queue, &w->work, &w->s.load, CONTEXT, &err), err);
	assert_ok(jm_scheduler_new(&limits, &w->s.scheduler, &err), err);
	assert_ok(jm_listen_open(&w->s, &err), err);
	*state = w;
	return 0;
}

static int end(void **state)
{
	struct world *w = *state;

	jm_listen_close(&w->s);
	jm_replicas_close(&w->s);
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

static int ask_for_3(const struct world *w)
{
	return ask(w, "{\"prompt\": [1, 2], \"max_tokens\": 3, \"stream\": true}");
}

/* The requests that have come are taken, as far as there is room; returns how many it has. */
static int take(struct world *w)
{
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_serve_arrivals(&w->s, &err), err);
	return w->s.load.answers.n;
}

static void take_some(struct world *w, int n)
{
	for (int i = 0; i < 1000 && take(w) < n; i++)
		usleep(10000);
	assert_int_equal(w->s.load.answers.n, n);
}

/* The tokens of a step that was computed. */
static void put_tokens(struct serve *s, const struct jm_piece *piece, int n)
{
	for (int i = 0; i < n; i++) {
		int number = piece[i].request;
		struct jm_answer *a = &s->load.answers.answer[number];

		if (!piece[i].makes || a->state != JM_ANSWER_OPEN)
			continue;
		assert_true(jm_answers_piece(&s->load.answers, number, JM_SECOND));
		jm_serve_put_token(s, number, 7);
		if (a->n_when < a->output)
			continue;
		a->state = JM_ANSWER_DONE;
		jm_queue_answered(&s->queue);
	}
	jm_desk_tell(&s->queue.desk);
}

static void play_steps(struct serve *s)
{
	const struct jm_piece *piece;
	int n;

	while ((n = jm_scheduler_step(s->scheduler, &piece)) > 0) {
		put_tokens(s, piece, n);
		jm_scheduler_complete(s->scheduler);
	}
}

static const struct jm_answers *all_of(struct world *w)
{
	struct jm_err err = JM_ERR_INIT;

	jm_listen_finish(&w->s);
	assert_ok(jm_replicas_gather(&w->s, &err), err);
	return &w->s.gathered;
}

static int count(const struct jm_answers *a, enum jm_answer_state state)
{
	int n = 0;

	for (int i = 0; i < a->n; i++)
		n += a->answer[i].state == state;
	return n;
}

static void await_cancel(const struct serve *s, int place)
{
	for (int i = 0; i < 1000 && !atomic_load(&s->queue.desk.place[place].is_cancelled); i++)
		usleep(10000);
	assert_true(atomic_load(&s->queue.desk.place[place].is_cancelled));
}

static void requests_are_taken_in_their_order_as_there_is_room(void **state)
{
	struct world *w = *state;
	const struct jm_answers *a = &w->s.load.answers;
	int fd[QUESTIONS], before = 0;

	snprintf(w->work.note, sizeof(w->work.note), "Said before.");
	for (int i = 0; i < QUESTIONS; i++)
		fd[i] = ask_for_3(w);
	for (int i = 0; i < 1000 && before < QUESTIONS; i++) {
		assert_true(take(w) - before <= PLACES);
		before = a->n;
		play_steps(&w->s);
	}
	assert_int_equal(before, QUESTIONS);
	for (int i = 0; i < QUESTIONS; i++) /* the first ones will be repeated */
		assert_true((i < JM_SERVE_VERIFIED) == (a->answer[i].token && a->answer[i].prompt));
	for (int i = 1; i < QUESTIONS; i++)
		assert_true(a->answer[i].arrived >= a->answer[i - 1].arrived);
	assert_int_equal(count(all_of(w), JM_ANSWER_DONE), QUESTIONS);
	/* as if they had been made a second after the machine had started */
	assert_non_null(strstr(w->work.note, "Said before. 300 of 300 tokens were sent more than"));
	for (int i = 0; i < QUESTIONS; i++)
		close(fd[i]);
}

/* They count as offered. */
static void questions_that_no_replica_took_are_not_done(void **state)
{
	struct world *w = *state;
	int fd[QUESTIONS];

	for (int i = 0; i < QUESTIONS; i++)
		fd[i] = ask_for_3(w);
	usleep(500000);
	take_some(w, PLACES);
	assert_int_equal(count(all_of(w), JM_ANSWER_OPEN), QUESTIONS);
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
	int fd = ask_for_3(w);

	take_some(w, 1);
	assert_int_equal(launch_all(&w->s), 3);
	assert_int_equal(jm_scheduler_unfinished(w->s.scheduler), 0);
	assert_false(jm_serve_is_done(&w->s, 0));
	close(fd);
	await_cancel(&w->s, w->s.clients.at[0].place);
	take(w);
	assert_int_equal(w->s.load.answers.answer[0].state, JM_ANSWER_FAILED);
	assert_false(jm_serve_is_done(&w->s, 0));
}

/* The replica has made all tokens before it could know. */
static void a_request_whose_client_left_during_its_last_step_is_not_done(void **state)
{
	struct world *w = *state;
	int fd = ask_for_3(w);

	take_some(w, 1);
	close(fd);
	await_cancel(&w->s, w->s.clients.at[0].place);
	play_steps(&w->s);
	assert_true(jm_serve_is_done(&w->s, 0));
	assert_int_equal(count(all_of(w), JM_ANSWER_FAILED), 1);
	assert_int_equal(w->s.gathered.n, 1);
}

/* The next question comes when this one is on the desk, at the place of its number. */
static int ask_in_turn(struct world *w)
{
	int before = jm_queue_arrived(&w->s.queue, 0), fd = ask_for_3(w);

	for (int i = 0; i < 1000 && jm_queue_arrived(&w->s.queue, 0) == before; i++)
		usleep(10000);
	return fd;
}

/* In the middle of those that wait: the replica takes and drops it in its turn. */
static void a_client_that_leaves_while_it_waits_takes_no_place(void **state)
{
	struct world *w = *state;
	int fd[PLACES + 3];

	for (int i = 0; i < PLACES + 3; i++)
		fd[i] = ask_in_turn(w);
	take_some(w, PLACES);
	close(fd[PLACES]);
	close(fd[PLACES + 2]);
	await_cancel(&w->s, PLACES);
	await_cancel(&w->s, PLACES + 2);
	play_steps(&w->s);
	take_some(w, PLACES + 3);
	assert_int_equal(jm_scheduler_unfinished(w->s.scheduler), 1);
	play_steps(&w->s);
	assert_int_equal(count(all_of(w), JM_ANSWER_DONE), PLACES + 1);
	assert_int_equal(count(&w->s.gathered, JM_ANSWER_FAILED), 2);
	for (int i = 0; i < PLACES + 3; i++)
		if (i != PLACES && i != PLACES + 2)
			close(fd[i]);
}

/* Whether it was read or not: its client may be gone before or after that. */
static void a_long_question_whose_client_has_left_is_a_failed_request(void **state)
{
	struct world *w = *state;
	static const char begin_of_it[] = "{\"max_tokens\": 3, \"prompt\": [1";
	size_t n = sizeof(begin_of_it) - 1;
	char *body = malloc(n + 2 * A_LONG + 3);

	assert_non_null(body);
	memcpy(body, begin_of_it, n);
	for (int i = 0; i < A_LONG; i++) {
		body[n++] = ',';
		body[n++] = '1';
	}
	memcpy(body + n, "]}", 3);
	close(ask(w, body));
	free(body);
	/* for 5 s, as one that is not taken is not seen here before the end */
	for (int i = 0; i < 25; i++) {
		if (take(w) && w->s.load.answers.answer[0].state == JM_ANSWER_FAILED)
			break;
		usleep(take(w) ? 200000 : 0);
	}
	assert_int_equal(count(all_of(w), JM_ANSWER_FAILED), 1);
	assert_int_equal(w->s.gathered.n, 1);
	assert_int_equal(jm_scheduler_unfinished(w->s.scheduler), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			requests_are_taken_in_their_order_as_there_is_room, begin, end),
		cmocka_unit_test_setup_teardown(
			questions_that_no_replica_took_are_not_done, begin, end),
		cmocka_unit_test_setup_teardown(
			a_request_whose_client_left_before_its_last_token_is_not_done, begin, end),
		cmocka_unit_test_setup_teardown(
			a_request_whose_client_left_during_its_last_step_is_not_done, begin, end),
		cmocka_unit_test_setup_teardown(
			a_client_that_leaves_while_it_waits_takes_no_place, begin, end),
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
