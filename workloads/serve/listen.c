/* SPDX-License-Identifier: Apache-2.0 */
#include "listen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "answer_text.h"
#include "base/grow.h"
#include "question_reader.h"
#include "serve_usage.h"
#include "vendor/answer_server.h"

#define WAIT_NS	       (JM_SECOND / 5)
#define STEP_QUESTIONS 32   /* that are read before a step, at most */
#define LEFT_QUESTIONS 1024 /* that were not taken when the run ends: one of each connection */
#define STEP_BYTES     ((size_t)1 << 18) /* of them, after which no other is read */
#define LOOK_NS	       (JM_SECOND / 100) /* between two looks for a long one that is read */
#define EVENTS	       "text/event-stream"
#define JSON	       "application/json"
#define BAD	       400
#define NOT_FOUND      404

/* A request and its client. */
struct heard {
	struct jm_asked *asked; /* NULL = it is answered, or the client is gone */
	struct jm_ask ask;
	struct jm_answer_text text;
};

struct jm_listener {
	struct jm_answer_server *server;
	struct jm_question_reader *reader;
	struct heard *heard; /* [answers] */
	int n, cap;
	int *open; /* [n_open]: the numbers of those that are not answered */
	int n_open, cap_open;
};

/* ---- answers --------------------------------------------------------------------------------- */

/* False: the client does not get it. */
static bool reply(struct jm_asked *asked, int status, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT);
	bool good;

	json_decref(value);
	jm_asked_begin(asked, status, JSON);
	good = text && jm_asked_write(asked, text, strlen(text));
	free(text);
	return good;
}

static void refuse(struct jm_asked *asked, int status, const char *why)
{
	reply(asked, status,
		json_pack("{s:{s:s, s:s}}", "error", "message", why, "type",
			"invalid_request_error"));
	jm_asked_end(asked);
}

static bool send_event(struct jm_asked *asked, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT);
	bool good = text && jm_asked_write(asked, "data: ", 6) &&
		    jm_asked_write(asked, text, strlen(text)) && jm_asked_write(asked, "\n\n", 2);

	json_decref(value);
	free(text);
	return good;
}

static json_t *answer_json(const struct serve *s, int number, json_t *choices)
{
	char id[32];

	snprintf(id, sizeof(id), "cmpl-%d", number);
	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", "text_completion",
		"created", (json_int_t)time(NULL), "model", s->model_name, "choices", choices);
}

/* Tokens from number `from` on, and the text that is complete with them. */
static json_t *choice(
	const struct serve *s, const struct jm_answer *a, struct jm_answer_text *text, int from)
{
	json_t *ids = json_array();
	bool is_last = a->n_when == a->output;

	for (int i = from; i < a->n_when; i++)
		json_array_append_new(ids, json_integer(a->token[i]));
	return json_pack("[{s:i, s:o, s:o, s:n, s:s?}]", "index", 0, "text",
		jm_answer_text_next(text, s->prompts.tokenizer, a->token, a->n_when, is_last),
		"token_ids", ids, "logprobs", "finish_reason", is_last ? "length" : NULL);
}

static json_t *usage(const struct jm_answer *a)
{
	return json_pack("{s:i, s:i, s:i}", "prompt_tokens", a->input, "completion_tokens",
		a->output, "total_tokens", a->input + a->output);
}

static bool tell_streamed(struct serve *s, int number, struct heard *h)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	bool good =
		send_event(h->asked, answer_json(s, number, choice(s, a, &h->text, a->n_when - 1)));

	if (a->n_when < a->output)
		return good;
	if (h->ask.usage) {
		json_t *last = answer_json(s, number, json_array());

		json_object_set_new(last, "usage", usage(a));
		good = send_event(h->asked, last) && good;
	}
	return jm_asked_write(h->asked, "data: [DONE]\n\n", 14) && good;
}

static bool tell_whole(struct serve *s, int number, struct heard *h)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	json_t *whole;

	if (a->n_when < a->output)
		return true;
	whole = answer_json(s, number, choice(s, a, &h->text, 0));
	json_object_set_new(whole, "usage", usage(a));
	return reply(h->asked, 200, whole);
}

/* What is needed only to compute an answer, or to repeat it. */
static void free_arrays(struct jm_ask *ask, struct jm_answer *a)
{
	size_t n = a->n_when ? (size_t)a->n_when : 1;
	int64_t *when = realloc(a->when, n * sizeof(*when));

	if (when) {
		a->when = when;
		a->room = (int)n;
	}
	free(a->token);
	a->token = NULL;
	free(ask->token);
	ask->token = NULL;
}

/* Its client does not get the answer, or not all of it. */
static void cancel(struct serve *s, int number)
{
	struct heard *h = &s->listener->heard[number];
	struct jm_answer *a = &s->load.answers.answer[number];

	jm_asked_end(h->asked);
	h->asked = NULL;
	jm_scheduler_cancel(s->scheduler, number);
	a->state = JM_ANSWER_FAILED;
	a->end = jm_clock_now(s->work->sleeper->clock);
	free_arrays(&h->ask, a);
}

void jm_listen_tell(struct serve *s, int number)
{
	struct heard *h = &s->listener->heard[number];
	const struct jm_answer *a = &s->load.answers.answer[number];

	if (!h->asked)
		return;
	if (!(h->ask.stream ? tell_streamed : tell_whole)(s, number, h)) {
		cancel(s, number);
	} else if (a->n_when == a->output) {
		jm_asked_end(h->asked);
		h->asked = NULL;
	}
}

/* ---- questions ------------------------------------------------------------------------------- */

static int make_room(struct jm_listener *l, struct jm_err *err)
{
	struct heard *more = l->n < l->cap ? l->heard : jm_grow(l->heard, &l->cap, sizeof(*more));
	int *open =
		l->n_open < l->cap_open ? l->open : jm_grow(l->open, &l->cap_open, sizeof(*open));

	l->heard = more ? more : l->heard;
	l->open = open ? open : l->open;
	return more && open ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
}

/* The request joins the others. JM_EUSAGE, JM_ERANGE: it cannot be served, which its client is
 * told. */
static int add(struct serve *s, const struct jm_ask *ask, int64_t arrived, struct jm_err *err)
{
	struct jm_answer a = {.number = s->load.answers.n,
		.input = ask->n,
		.output = ask->output,
		.arrived = arrived};
	int number, code = make_room(s->listener, err);

	if (!code)
		code = jm_scheduler_add(s->scheduler, a.input, a.output, &number, err);
	return code ? code : jm_answers_add(&s->load.answers, &a, true, err);
}

static int add_question(struct serve *s, struct jm_question *q, struct jm_err *err)
{
	struct jm_listener *l = s->listener;
	int code = q->why.code ? q->why.code : add(s, &q->ask, q->asked->t_ns, &q->why);

	if (code) {
		refuse(q->asked, BAD, q->why.text);
		jm_ask_close(&q->ask);
		return code == JM_ENOMEM ? jm_err_set(err, code, "%s", q->why.text) : 0;
	}
	if (q->ask.stream)
		jm_asked_begin(q->asked, 200, EVENTS);
	l->open[l->n_open++] = l->n;
	l->heard[l->n++] = (struct heard){.asked = q->asked, .ask = q->ask};
	return 0;
}

/* Adds to *bytes what it reads of the question. */
static int take_completion(
	struct serve *s, struct jm_asked *asked, size_t *bytes, struct jm_err *err)
{
	struct jm_question q;
	size_t n = asked->n;

	if (!jm_question_reader_read(s->listener->reader, asked, &q))
		return 0;
	*bytes += n;
	return add_question(s, &q, err);
}

/* Takes long questions from the reader. One that was not read, because its client has left, becomes
 * a request that drop_gone ends as failed before a step looks at its tokens. */
static int take_long(struct serve *s, struct jm_err *err)
{
	struct jm_question q;
	int code = 0;

	while (!code && jm_question_reader_next(s->listener->reader, &q))
		code = add_question(s, &q, err);
	return code;
}

static int take(struct serve *s, struct jm_asked *asked, size_t *bytes, struct jm_err *err)
{
	bool get = !strcmp(asked->method, "GET"), post = !strcmp(asked->method, "POST");

	if (post && !strcmp(asked->path, "/v1/completions"))
		return take_completion(s, asked, bytes, err);
	if (get && !strcmp(asked->path, "/v1/models")) {
		reply(asked, 200,
			json_pack("{s:s, s:[{s:s, s:s, s:s}]}", "object", "list", "data", "id",
				s->model_name, "object", "model", "owned_by", "joulemark"));
		jm_asked_end(asked);
	} else
		refuse(asked, NOT_FOUND, "There are POST /v1/completions and GET /v1/models.");
	return 0;
}

/* Requests whose client is gone end. */
static void drop_gone(struct serve *s)
{
	struct jm_listener *l = s->listener;
	int n = 0;

	for (int i = 0; i < l->n_open; i++) {
		int number = l->open[i];

		if (l->heard[number].asked && jm_asked_is_gone(l->heard[number].asked))
			cancel(s, number);
		if (l->heard[number].asked)
			l->open[n++] = number;
	}
	l->n_open = n;
}

/* For the first question. */
static int64_t wait_ns(const struct serve *s)
{
	if (jm_serve_under_way(s))
		return 0;
	return jm_question_reader_left(s->listener->reader) ? LOOK_NS : WAIT_NS;
}

int jm_listen_arrivals(struct serve *s, struct jm_err *err)
{
	int64_t until = jm_clock_now(s->work->sleeper->clock) + wait_ns(s);
	struct jm_asked *asked;
	size_t bytes = 0;
	int code = 0;

	for (int i = 0; i < STEP_QUESTIONS && bytes < STEP_BYTES && !code; i++) {
		asked = jm_answer_server_next(s->listener->server, until);
		if (!asked)
			break;
		code = take(s, asked, &bytes, err);
		until = 0; /* those that are there already */
	}
	if (!code)
		code = take_long(s, err);
	drop_gone(s);
	return code;
}

int jm_listen_finish(struct serve *s, struct jm_err *err)
{
	struct jm_asked *asked;
	size_t bytes = 0;
	int code = 0;

	/* a client whose question was answered with a refusal may ask again */
	for (int i = 0; i < LEFT_QUESTIONS && !code; i++) {
		asked = jm_answer_server_next(s->listener->server, 0);
		if (!asked)
			break;
		code = take(s, asked, &bytes, err);
	}
	jm_question_reader_stop(s->listener->reader);
	if (!code)
		code = take_long(s, err);
	drop_gone(s);
	return code;
}

const struct jm_ask *jm_listen_ask(const struct serve *s, int number)
{
	return &s->listener->heard[number].ask;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* "127.0.0.1:8000", "[::1]:8000" */
static int split(const char *text, char *address, size_t size, int *ret_port, struct jm_err *err)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool braced = n > 2 && text[0] == '[' && text[n - 1] == ']';
	char *end = NULL;
	long port = colon ? strtol(colon + 1, &end, 10) : -1;

	if (n < 1 || n >= size || !end || *end || end == colon + 1 || port < 0 || port > 65535)
		return jm_err_set(err, JM_EUSAGE,
			"--listen is '%s'; give an address and a port: 127.0.0.1:8000.", text);
	snprintf(address, size, "%.*s", (int)n - 2 * braced, text + braced);
	*ret_port = (int)port;
	return 0;
}

int jm_listen_check(const char *text, struct jm_err *err)
{
	char address[64];
	int port;

	return split(text, address, sizeof(address), &port, err);
}

/* Clients say what they ask for, and ask when they like. */
static int refuse_own_requests(const struct jm_values *options, struct jm_err *err)
{
	static const char *const names[] = {
		"arrival", "rate", "lengths", "requests", "input-tokens", "output-tokens", "phase"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!jm_values_is_default(options, names[i]))
			return jm_err_set(err, JM_EUSAGE,
				"--%s says what this program asks for, but with --listen clients "
				"ask; omit one of them.",
				names[i]);
	return 0;
}

int jm_listen_open(struct serve *s, struct jm_err *err)
{
	char address[64];
	int port, code = split(s->listen, address, sizeof(address), &port, err);

	if (!code)
		code = refuse_own_requests(s->work->options, err);
	if (code)
		return code;
	s->listener = calloc(1, sizeof(*s->listener));
	if (!s->listener)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	s->load.answers.timed = true; /* the window is that of their arrivals */
	code = jm_question_reader_new(&s->source, &s->rule, s->prompts.tokenizer,
		jm_dim(&s->dims, "context"), &s->listener->reader, err);
	if (!code)
		code = jm_answer_server_start(address, port, &s->listener->server, &port, err);
	if (!code)
		jm_log(s->work->ctx, JM_INFO,
			"Requests are taken at http://%.*s:%d/v1/completions.",
			(int)(strrchr(s->listen, ':') - s->listen), s->listen, port);
	return code;
}

void jm_listen_close(struct serve *s)
{
	struct jm_listener *l = s->listener;

	if (!l)
		return;
	jm_question_reader_free(l->reader);
	for (int i = 0; i < l->n; i++) {
		if (l->heard[i].asked)
			jm_asked_end(l->heard[i].asked);
		jm_ask_close(&l->heard[i].ask);
	}
	jm_answer_server_stop(l->server);
	free(l->heard);
	free(l->open);
	free(l);
	s->listener = NULL;
}
