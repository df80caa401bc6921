/* SPDX-License-Identifier: Apache-2.0 */
#include "client_answers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/printable.h"
#include "completion.h"

#define MOST_FAILURES 100 /* one after the other */

static int64_t now(const struct jm_client *c)
{
	return jm_clock_now(c->work->sleeper->clock);
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool grow(struct jm_client *c)
{
	struct jm_flow *more = jm_grow(c->flow, &c->cap, sizeof(*more));

	c->flow = more ? more : c->flow;
	return more;
}

/* Random tokens of the request; of malloc. */
static char *body_of(const struct jm_client *c, int number, const struct jm_answer *a)
{
	int32_t *token = calloc((size_t)a->input, sizeof(*token));
	struct jm_question q = {.model = c->found_model ? c->found_model : c->model,
		.token = token,
		.n = a->input,
		.output = a->output};
	char *body = NULL;

	for (int i = 0; token && i < a->input; i++)
		token[i] = jm_load_token(&c->load, number, i, c->vocab);
	if (token)
		body = jm_completion_body(&q);
	free(token);
	return body;
}

static int send_one(struct jm_client *c, const struct jm_answer *a, struct jm_err *err)
{
	int number = c->load.answers.n;
	char *body = body_of(c, number, a);
	int code = body && (number < c->cap || grow(c))
			   ? jm_answers_add(&c->load.answers, a, false, err)
			   : jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");

	if (!code) {
		c->flow[number] = (struct jm_flow){.input = NAN, .output = NAN, .sent_ns = now(c)};
		c->under_way++;
		code = jm_http_client_post(c->http, "/v1/completions", body, number, err);
	}
	free(body);
	return code;
}

int jm_client_send(struct jm_client *c, int64_t end, struct jm_err *err)
{
	struct jm_answer a;
	int64_t until = now(c); /* what arrives while these are sent waits for the next call */
	int code = 0;

	if (c->failed_together >= MOST_FAILURES)
		return jm_err_set(err, JM_EIO,
			"%d requests failed one after the other; the last one: %s.",
			c->failed_together, c->failure);
	while (!code && now(c) < end && jm_load_next(&c->load, until, c->under_way, &a))
		code = send_one(c, &a, err);
	return code;
}

/* Text of the server, without what a terminal would obey. */
__attribute__((format(printf, 2, 3))) static void keep_reason(
	struct jm_client *c, const char *format, ...)
{
	va_list rest;
	size_t n;

	va_start(rest, format);
	vsnprintf(c->failure, sizeof(c->failure), format, rest);
	va_end(rest);
	jm_text_tame(c->failure);
	for (n = strlen(c->failure); n && strchr(" .,", c->failure[n - 1]);) /* words follow */
		c->failure[--n] = '\0';
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_piece(struct jm_client *c, int number, int64_t now_ns)
{
	struct jm_flow *flow = &c->flow[number];

	if (jm_answers_piece(&c->load.answers, number, now_ns)) {
		c->made++;
		return;
	}
	flow->is_malformed = true;
	keep_reason(c, "the answer is so long that memory ran out");
}

struct taker {
	struct jm_client *client;
	int number;
};

static void on_event(void *arg, const char *text, size_t n)
{
	const struct taker *t = arg;
	struct jm_client *c = t->client;
	struct jm_flow *flow = &c->flow[t->number];
	struct jm_completion event;

	flow->has_event = true;
	if (flow->is_done) /* nothing of the answer comes behind [DONE] */
		return;
	event = jm_completion_parse(text, n);
	if (event.is_error && !flow->is_malformed) {
		flow->is_malformed = true;
		keep_reason(c, "%s", text);
	}
	flow->is_done = event.is_done;
	flow->is_last = flow->is_last || event.is_last;
	flow->input = isnan(event.input) ? flow->input : event.input;
	flow->output = isnan(event.output) ? flow->output : event.output;
	if (!event.has_choice)
		return;
	if (event.is_last && event.is_empty) {
		flow->tail_ns = now(c);
		return;
	}
	take_piece(c, t->number, now(c));
}

bool jm_client_bytes(void *arg, int number, const char *bytes, size_t n)
{
	struct jm_client *c = arg;
	struct jm_flow *flow = &c->flow[number];
	struct taker taker = {c, number};
	struct jm_err err = JM_ERR_INIT;

	if (jm_event_stream_take(&flow->stream, bytes, n, on_event, &taker, &err)) {
		flow->is_malformed = true;
		keep_reason(c, "%s", err.text);
	}
	return !flow->is_malformed;
}

static void fail(struct jm_client *c, int number, enum jm_client_failure why)
{
	struct jm_answer *a = &c->load.answers.answer[number];

	a->state = JM_ANSWER_FAILED;
	a->end = now(c);
	c->failed[why]++;
	c->failed_together++;
}

/* Whether and how the answer, whose end has come, has failed; JM_CLIENT_FAILURE_KINDS: it has
 * not. */
static enum jm_client_failure failure_of(
	const struct jm_client *c, int number, enum jm_http_end end, long status)
{
	const struct jm_flow *flow = &c->flow[number];
	bool some = c->load.answers.answer[number].n_when || flow->tail_ns;

	if (flow->is_malformed)
		return JM_CLIENT_MALFORMED;
	if (end == JM_HTTP_REFUSED)
		return JM_CLIENT_CONNECT;
	if (status && status != 200)
		return status >= 500 && status < 600   ? JM_CLIENT_STATUS_5XX
		       : status >= 400 && status < 500 ? JM_CLIENT_STATUS_4XX
						       : JM_CLIENT_STATUS_OTHER;
	if (end != JM_HTTP_WHOLE && !flow->is_done)
		return end == JM_HTTP_STALLED ? JM_CLIENT_STALLED : JM_CLIENT_BROKEN;
	if (!some || flow->output < 1)
		return JM_CLIENT_MALFORMED;
	return flow->is_last || flow->is_done ? JM_CLIENT_FAILURE_KINDS : JM_CLIENT_CUT;
}

static const char *reason_of(const struct jm_flow *flow, const char *text)
{
	if (*text)
		return text;
	return flow->has_event ? "the answer has no token or no end"
			       : "the answer is no stream of events, which was asked for";
}

/* The server counts tokens; where it does not, each piece is one. */
static void complete(struct jm_client *c, int number)
{
	struct jm_flow *flow = &c->flow[number];
	struct jm_answer *a = &c->load.answers.answer[number];
	bool counted = flow->output >= 1;

	if (flow->tail_ns && (!a->n_when || flow->output > a->n_when))
		take_piece(c, number, flow->tail_ns);
	c->no_usage += !counted;
	c->no_done += !flow->is_done;
	c->other_prompt += flow->input >= 0 && (int)flow->input != a->input;
	c->other_length += counted ? (int)flow->output != a->output : a->n_when > a->output;
	c->more_events += counted && flow->output < a->n_when;
	if (counted && flow->output > a->n_when)
		c->merged += flow->output - a->n_when;
	if (counted)
		c->made += flow->output - a->n_when;
	a->input = flow->input >= 0 ? (int)flow->input : a->input;
	a->output = counted ? (int)flow->output : a->n_when;
	a->state = JM_ANSWER_DONE;
	c->failed_together = 0;
}

void jm_client_end(void *arg, int number, enum jm_http_end end, long status, const char *text)
{
	struct jm_client *c = arg;
	enum jm_client_failure why = failure_of(c, number, end, status);

	c->under_way--;
	if (why == JM_CLIENT_FAILURE_KINDS) {
		complete(c, number);
	} else {
		if (!c->flow[number].is_malformed && status && status != 200)
			keep_reason(c, "status %ld, %.120s", status, text);
		else if (!c->flow[number].is_malformed)
			keep_reason(c, "%s", reason_of(&c->flow[number], text));
		fail(c, number, why);
	}
	jm_event_stream_close(&c->flow[number].stream);
}
