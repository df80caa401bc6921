/* SPDX-License-Identifier: Apache-2.0 */
#include "listen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask.h"
#include "base/grow.h"
#include "vendor/answer_server.h"

#define WAIT_NS	   (JM_SECOND / 5)
#define MOST	   4096 /* requests that wait or run */
#define EVENTS	   "text/event-stream"
#define JSON	   "application/json"
#define BAD	   400
#define NOT_FOUND  404
#define OVERLOADED 503

/* A request and its client. */
struct heard {
	struct jm_asked *asked; /* NULL = it is answered, or the client is gone */
	struct jm_ask ask;
	size_t told; /* bytes of the text of the answer that were sent */
};

struct jm_listener {
	struct jm_answer_server *server;
	struct heard *heard; /* [answers] */
	int n, cap;
};

/* ---- answers -------------------------------------------------------------------------------------------- */

static void reply(struct jm_asked *asked, int status, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT);

	json_decref(value);
	jm_asked_begin(asked, status, JSON);
	if (text)
		jm_asked_write(asked, text, strlen(text));
	jm_asked_end(asked);
	free(text);
}

static void refuse(struct jm_asked *asked, int status, const char *why)
{
	reply(asked, status,
		json_pack("{s:{s:s, s:s}}", "error", "message", why, "type",
			status == OVERLOADED ? "server_error" : "invalid_request_error"));
}

static void send_event(struct jm_asked *asked, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT);

	json_decref(value);
	jm_asked_write(asked, "data: ", 6);
	if (text)
		jm_asked_write(asked, text, strlen(text));
	jm_asked_write(asked, "\n\n", 2);
	free(text);
}

/* The text of the first n tokens of an answer; without a tokenizer their numbers. Of malloc. */
static char *text_of(const struct serve *s, const struct jm_answer *a, int n)
{
	json_t *text = jm_prompts_text(&s->prompts, a->token, n);
	char *ret = json_is_string(text) ? strdup(json_string_value(text)) : NULL;
	size_t used = 0, room = 12 * (size_t)n + 1;

	json_decref(text);
	if (ret || s->prompts.tokenizer)
		return ret;
	ret = calloc(1, room);
	for (int i = 0; ret && i < n; i++)
		used += (size_t)snprintf(ret + used, room - used, "%d ", a->token[i]);
	return ret;
}

static json_t *answer_json(const struct serve *s, int number, json_t *choices)
{
	char id[32];

	snprintf(id, sizeof(id), "cmpl-%d", number);
	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", "text_completion",
		"created", (json_int_t)time(NULL), "model", s->model_name, "choices", choices);
}

/* text: stolen and freed; NULL = "". Tokens from number `from` on. */
static json_t *choice(const struct jm_answer *a, char *text, size_t skip, int from)
{
	json_t *ids = json_array(), *ret;

	for (int i = from; i < a->n_when; i++)
		json_array_append_new(ids, json_integer(a->token[i]));
	ret = json_pack("[{s:i, s:s, s:o, s:n, s:s?}]", "index", 0, "text",
		text && strlen(text) > skip ? text + skip : "", "token_ids", ids, "logprobs",
		"finish_reason", a->n_when == a->output ? "length" : NULL);
	free(text);
	return ret;
}

static json_t *usage(const struct jm_answer *a)
{
	return json_pack("{s:i, s:i, s:i}", "prompt_tokens", a->input, "completion_tokens",
		a->output, "total_tokens", a->input + a->output);
}

static void tell_streamed(struct serve *s, int number, struct heard *h)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	char *text = text_of(s, a, a->n_when);
	size_t n = text ? strlen(text) : h->told;

	send_event(h->asked, answer_json(s, number, choice(a, text, h->told, a->n_when - 1)));
	h->told = n > h->told ? n : h->told;
	if (a->n_when < a->output)
		return;
	if (h->ask.usage) {
		json_t *last = answer_json(s, number, json_array());

		json_object_set_new(last, "usage", usage(a));
		send_event(h->asked, last);
	}
	jm_asked_write(h->asked, "data: [DONE]\n\n", 14);
	jm_asked_end(h->asked);
	h->asked = NULL;
}

static void tell_whole(struct serve *s, int number, struct heard *h)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	json_t *whole;

	if (a->n_when < a->output)
		return;
	whole = answer_json(s, number, choice(a, text_of(s, a, a->n_when), 0, 0));
	json_object_set_new(whole, "usage", usage(a));
	reply(h->asked, 200, whole);
	h->asked = NULL;
}

void jm_listen_tell(struct serve *s, int number)
{
	struct heard *h = &s->listener->heard[number];

	if (!h->asked)
		return;
	if (h->ask.stream)
		tell_streamed(s, number, h);
	else
		tell_whole(s, number, h);
}

/* ---- questions ------------------------------------------------------------------------------------------ */

/* A prompt that is a text becomes tokens. */
static int encode(struct serve *s, struct jm_ask *ask, struct jm_err *err)
{
	struct jm_ids ids = {0};
	int code;

	if (!ask->text)
		return 0;
	if (!s->prompts.tokenizer)
		return jm_err_set(err, JM_EUSAGE,
			"The prompt is a text, but no tokenizer is known here; ask with a list of "
			"tokens.");
	code = jm_tokenizer_encode(s->prompts.tokenizer, ask->text, strlen(ask->text),
		JM_TOKENIZER_TEMPLATE, &ids, err);
	for (size_t i = 0; i < ids.n && !code; i++)
		if (ids.at[i] >= s->vocab)
			code = jm_err_set(err, JM_EUSAGE,
				"The tokenizer has tokens that the model does not have.");
	if (!code && (!ids.n || ids.n > INT32_MAX))
		code = jm_err_set(err, JM_EUSAGE, "The prompt has no token.");
	if (code) {
		free(ids.at);
		return code;
	}
	ask->token = ids.at;
	ask->n = (int)ids.n;
	return 0;
}

static int make_room(struct jm_listener *l, struct jm_err *err)
{
	struct heard *more = l->n < l->cap ? l->heard : jm_grow(l->heard, &l->cap, sizeof(*more));

	if (!more)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	l->heard = more;
	return 0;
}

/* The request joins the others. JM_EUSAGE, JM_ERANGE: it cannot be served, which its client is told. */
static int add(struct serve *s, struct jm_ask *ask, struct jm_err *err)
{
	struct jm_answer a = {.input = ask->n,
		.output = ask->output,
		.arrived = jm_clock_now(s->work->sleeper->clock)};
	int64_t context = jm_dim(&s->dims, "context");
	int number, code;

	if ((int64_t)a.input + a.output > context)
		return jm_err_set(err, JM_EUSAGE,
			"Prompt and answer have %lld tokens, the context of the model has %lld.",
			(long long)a.input + a.output, (long long)context);
	code = make_room(s->listener, err);
	if (!code)
		code = jm_scheduler_add(s->scheduler, a.input, a.output, &number, err);
	return code ? code : jm_answers_add(&s->load.answers, &a, true, err);
}

static int take_completion(struct serve *s, struct jm_asked *asked, struct jm_err *err)
{
	struct jm_listener *l = s->listener;
	struct jm_err why = JM_ERR_INIT;
	struct jm_ask ask = {.rule = s->rule};
	int code = jm_ask_parse(asked->body, asked->n, s->vocab, &ask, &why);

	if (!code && ask.rule.temperature > 0 && !s->cache.shape.samples)
		code = jm_err_set(&why, JM_EUSAGE,
			"This device takes the likeliest token; ask with temperature 0.");
	if (!code)
		code = encode(s, &ask, &why);
	if (!code && jm_scheduler_unfinished(s->scheduler) >= MOST) {
		refuse(asked, OVERLOADED, "Too many requests wait.");
		jm_ask_close(&ask);
		return 0;
	}
	if (!code)
		code = add(s, &ask, &why);
	if (code) {
		refuse(asked, BAD, why.text);
		jm_ask_close(&ask);
		return code == JM_ENOMEM ? jm_err_set(err, code, "%s", why.text) : 0;
	}
	if (ask.stream)
		jm_asked_begin(asked, 200, EVENTS);
	l->heard[l->n++] = (struct heard){.asked = asked, .ask = ask};
	return 0;
}

static int take(struct serve *s, struct jm_asked *asked, struct jm_err *err)
{
	bool get = !strcmp(asked->method, "GET"), post = !strcmp(asked->method, "POST");

	if (post && !strcmp(asked->path, "/v1/completions"))
		return take_completion(s, asked, err);
	if (get && !strcmp(asked->path, "/v1/models"))
		reply(asked, 200,
			json_pack("{s:s, s:[{s:s, s:s, s:s}]}", "object", "list", "data", "id",
				s->model_name, "object", "model", "owned_by", "joulemark"));
	else
		refuse(asked, NOT_FOUND, "There are POST /v1/completions and GET /v1/models.");
	return 0;
}

/* Requests whose client is gone end. */
static void drop_gone(struct serve *s)
{
	struct jm_listener *l = s->listener;

	for (int i = 0; i < l->n; i++) {
		struct heard *h = &l->heard[i];
		struct jm_answer *a = &s->load.answers.answer[i];

		if (!h->asked || !jm_asked_is_gone(h->asked))
			continue;
		jm_asked_end(h->asked);
		h->asked = NULL;
		jm_scheduler_cancel(s->scheduler, i);
		a->state = JM_ANSWER_FAILED;
		a->end = jm_clock_now(s->work->sleeper->clock);
	}
}

int jm_listen_arrivals(struct serve *s, struct jm_err *err)
{
	int64_t wait = jm_scheduler_unfinished(s->scheduler) ? 0 : WAIT_NS;
	int64_t until = jm_clock_now(s->work->sleeper->clock) + wait;
	struct jm_asked *asked;
	int code = 0;

	while (!code && (asked = jm_answer_server_next(s->listener->server, until))) {
		code = take(s, asked, err);
		until = 0; /* those that are there already */
	}
	drop_gone(s);
	return code;
}

const struct jm_ask *jm_listen_ask(const struct serve *s, int number)
{
	return &s->listener->heard[number].ask;
}

/* ---- open and close ------------------------------------------------------------------------------------- */

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

int jm_listen_open(struct serve *s, struct jm_err *err)
{
	char address[64];
	int port, code = split(s->listen, address, sizeof(address), &port, err);

	if (code)
		return code;
	s->listener = calloc(1, sizeof(*s->listener));
	if (!s->listener)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	s->load.answers.timed = true; /* the window is that of their arrivals */
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
	for (int i = 0; i < l->n; i++) {
		if (l->heard[i].asked)
			jm_asked_end(l->heard[i].asked);
		jm_ask_close(&l->heard[i].ask);
	}
	jm_answer_server_stop(l->server);
	free(l->heard);
	free(l);
	s->listener = NULL;
}
