/* SPDX-License-Identifier: Apache-2.0 */
#include "listen.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "answer_text.h"
#include "base/grow.h"
#include "base/process/quiet_thread.h"
#include "question_reader.h"
#include "vendor/answer_server.h"

#define LOOK_NS		(JM_SECOND / 10)  /* between two looks for clients that have left */
#define LONG_NS		(JM_SECOND / 100) /* and for a long question that is read */
#define ROUND_QUESTIONS 32   /* that are read before the next tokens are sent, at most */
#define LEFT_QUESTIONS	1024 /* that were not taken when the run ends: one of each connection */
#define ROUND_BYTES	((size_t)1 << 18) /* of them, after which no other is read */
#define LATE_NS		(JM_SECOND / 50)
#define MAY_BE_LATE	0.01 /* of all tokens */
#define END_MS		500  /* in which a replica ends that was killed */
#define EVENTS		"text/event-stream"
#define JSON		"application/json"
#define BAD		400
#define NOT_FOUND	404
#define UNAVAILABLE	503

/* A client, by the place of its request. */
struct heard {
	struct jm_asked *asked; /* NULL = it is gone */
	struct jm_answer_text text;
	bool stream, usage;
	int number, input, output;
	int told; /* tokens */
};

struct jm_listener {
	const struct serve *serve; /* of which nothing changes meanwhile */
	struct jm_request_queue *queue;
	struct jm_desk *desk;
	struct jm_answer_server *server;
	struct jm_question_reader *reader;
	pthread_t thread;
	bool is_started;
	_Atomic bool is_ending;
	/* of the thread: */
	bool is_closed; /* no request is handed out any more */
	struct heard heard[JM_DESK_PLACES];
	int open[JM_DESK_PLACES], n_open; /* places that are not free */
	int free[JM_DESK_PLACES], n_free;
	struct jm_answers unserved;	   /* requests that were offered, but to no replica */
	double sent, sent_late;		   /* tokens; late: LATE_NS after they were made */
	int64_t latest_ns;		   /* so long after that the last of them was sent */
	int *failed, n_failed, cap_failed; /* that a replica has answered, but their client left */
};

/* SIGTERM, by which a parent ends the listening rank, also because another one has failed. */
static _Atomic bool must_end;

static void on_end(int number)
{
	(void)number;
	must_end = true;
}

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

static json_t *error_json(int status, const char *why)
{
	const char *type = status == NOT_FOUND ? "not_found_error"
			   : status < 500      ? "invalid_request_error"
					       : "server_error";

	return json_pack(
		"{s:{s:s, s:s, s:i}}", "error", "message", why, "type", type, "code", status);
}

static void refuse(struct jm_asked *asked, int status, const char *why)
{
	reply(asked, status, error_json(status, why));
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

static json_t *answer_json(const struct jm_listener *l, const struct heard *h, json_t *choices)
{
	char id[32];

	snprintf(id, sizeof(id), "cmpl-%d", h->number);
	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", "text_completion",
		"created", (json_int_t)time(NULL), "model", l->serve->model_name, "choices",
		choices);
}

/* Tokens from those that were told to number n, and the text that is complete with them. */
static json_t *choice(const struct jm_listener *l, struct heard *h, const int32_t *token, int n)
{
	json_t *ids = json_array();
	bool is_last = n == h->output;

	for (; h->told < n; h->told++)
		json_array_append_new(ids, json_integer(token[h->told]));
	return json_pack("[{s:i, s:o, s:o, s:n, s:s?}]", "index", 0, "text",
		jm_answer_text_next(&h->text, l->serve->prompts.tokenizer, token, n, is_last),
		"token_ids", ids, "logprobs", "finish_reason", is_last ? "length" : NULL);
}

static json_t *usage(const struct heard *h)
{
	return json_pack("{s:i, s:i, s:i}", "prompt_tokens", h->input, "completion_tokens",
		h->output, "total_tokens", h->input + h->output);
}

static bool tell_streamed(const struct jm_listener *l, struct heard *h, const int32_t *token, int n)
{
	bool is_last = h->told < n && n == h->output, good = true;

	while (good && h->told < n)
		good = send_event(h->asked, answer_json(l, h, choice(l, h, token, h->told + 1)));
	if (!is_last)
		return good;
	if (h->usage) {
		json_t *last = answer_json(l, h, json_array());

		json_object_set_new(last, "usage", usage(h));
		good = send_event(h->asked, last) && good;
	}
	return jm_asked_write(h->asked, "data: [DONE]\n\n", 14) && good;
}

static bool tell_whole(const struct jm_listener *l, struct heard *h, const int32_t *token, int n)
{
	json_t *whole;

	if (n < h->output)
		return true;
	whole = answer_json(l, h, choice(l, h, token, n));
	json_object_set_new(whole, "usage", usage(h));
	return reply(h->asked, 200, whole);
}

/* Clients see the times of the record only if tokens go on at once. */
static void note_lag(struct jm_listener *l, int place, int n)
{
	int64_t made_ns = atomic_load(&l->desk->place[place].made_ns);
	int64_t lag = jm_clock_now(jm_clock_real()) - made_ns;

	l->sent += n;
	l->sent_late += lag > LATE_NS ? n : 0;
	l->latest_ns = n && lag > l->latest_ns ? lag : l->latest_ns;
}

/* Its client does not get the answer, or not all of it. */
static void give_up(struct jm_listener *l, int place)
{
	jm_asked_break(l->heard[place].asked);
	jm_asked_end(l->heard[place].asked);
	l->heard[place].asked = NULL;
	jm_desk_cancel(l->desk, place);
}

/* The replica has answered it: it counts as failed nevertheless. Without memory it counts as
 * done. */
static void note_failed(struct jm_listener *l, int number)
{
	int *more = l->n_failed < l->cap_failed ? l->failed
						: jm_grow(l->failed, &l->cap_failed, sizeof(*more));

	if (!more)
		return;
	l->failed = more;
	l->failed[l->n_failed++] = number;
}

/* Sends what there is of the answer; false: the place is free now. */
static bool attend(struct jm_listener *l, int place)
{
	struct heard *h = &l->heard[place];
	bool is_over;
	int n;
	const int32_t *token = jm_desk_answer(l->desk, place, &n, &is_over);

	if (h->asked && jm_asked_is_gone(h->asked))
		give_up(l, place);
	if (h->asked && (h->stream || n == h->output))
		note_lag(l, place, n - h->told);
	if (h->asked && !(h->stream ? tell_streamed : tell_whole)(l, h, token, n))
		give_up(l, place);
	if (!is_over)
		return true;
	if (h->asked)
		jm_asked_end(h->asked);
	else if (n == h->output)
		note_failed(l, h->number);
	h->asked = NULL;
	jm_desk_free(l->desk, place);
	l->free[l->n_free++] = place;
	return false;
}

static void attend_all(struct jm_listener *l)
{
	int n = 0;

	for (int i = 0; i < l->n_open; i++)
		if (attend(l, l->open[i]))
			l->open[n++] = l->open[i];
	l->n_open = n;
}

/* ---- answers that end early ------------------------------------------------------------------ */

/* A process that is killed ends some time after its files are closed, which its parent sees. */
static void await_ended(const struct jm_listener *l)
{
	const struct timespec nap = {.tv_nsec = JM_MILLISECOND};
	int rank;

	for (int i = 0; i < END_MS && l->queue->world > 1 && !jm_queue_stopped(l->queue) &&
			!jm_queue_ended(l->queue, &rank);
		i++)
		nanosleep(&nap, NULL);
}

/* rank: that computed it; -1 = none did. When one fails, the parent kills the others at once. */
static void explain(const struct jm_listener *l, int rank, char *out, size_t size)
{
	int one, n = jm_queue_ended(l->queue, &one);

	if (n == 1)
		snprintf(out, size,
			"Replica %d%s has ended, and so does the server, before this answer was "
			"complete.",
			one, rank == one ? ", which computed this answer," : " of this server");
	else if (n)
		snprintf(out, size,
			"Replicas of this server have ended, and so does the server, before this "
			"answer was complete; the server's log says why.");
	else
		snprintf(out, size, "The server ends before this answer is complete.");
}

static void end_early(const struct jm_listener *l, struct jm_asked *asked, bool streams, int rank)
{
	char why[160];

	explain(l, rank, why, sizeof(why));
	if (!streams) {
		refuse(asked, UNAVAILABLE, why);
		return;
	}
	send_event(asked, error_json(UNAVAILABLE, why));
	jm_asked_break(asked);
	jm_asked_end(asked);
}

/* ---- questions ------------------------------------------------------------------------------- */

/* No replica sees it, but it was offered. Without memory it is not counted. */
static void note_unserved(struct jm_listener *l, const struct jm_question *q)
{
	bool is_gone = jm_asked_is_gone(q->asked);
	const struct jm_answer a = {.input = q->ask.n,
		.output = q->ask.output,
		.arrived = q->asked->t_ns,
		.state = is_gone ? JM_ANSWER_FAILED : JM_ANSWER_OPEN,
		.end = is_gone ? jm_clock_now(jm_clock_real()) : 0};

	jm_answers_append(&l->unserved, &a);
}

static void hand_out(struct jm_listener *l, const struct jm_question *q)
{
	int place = l->free[--l->n_free];

	if (q->ask.stream)
		jm_asked_begin(q->asked, 200, EVENTS);
	l->open[l->n_open++] = place;
	jm_desk_put(l->desk, place, &q->ask, q->asked->t_ns);
	l->heard[place] = (struct heard){.asked = q->asked,
		.stream = q->ask.stream,
		.usage = q->ask.usage,
		.input = q->ask.n,
		.output = q->ask.output,
		.number = jm_queue_add(l->queue, place)};
}

/* One that was not read is taken without its tokens: its client has left, or the run has ended. */
static void add_question(struct jm_listener *l, struct jm_question *q)
{
	int code = q->why.code;

	if (!code && q->ask.token)
		code = jm_scheduler_check(&l->serve->limits, q->ask.n, q->ask.output, &q->why);
	if (code) {
		refuse(q->asked,
			code == JM_ENOMEM   ? UNAVAILABLE
			: code == JM_ENOENT ? NOT_FOUND
					    : BAD,
			q->why.text);
	} else if (l->is_closed || !q->ask.token) {
		note_unserved(l, q);
		end_early(l, q->asked, false, -1);
	} else if (!l->n_free) {
		refuse(q->asked, UNAVAILABLE, "Too many requests are under way; ask again later.");
	} else {
		hand_out(l, q);
	}
	jm_ask_close(&q->ask);
}

static void take_long(struct jm_listener *l)
{
	struct jm_question q;

	while (jm_question_reader_next(l->reader, &q))
		add_question(l, &q);
}

/* Returns the bytes that it has read. */
static size_t take(struct jm_listener *l, struct jm_asked *asked)
{
	bool get = !strcmp(asked->method, "GET"), post = !strcmp(asked->method, "POST");
	struct jm_question q;
	size_t n = asked->n;

	if (post && !strcmp(asked->path, "/v1/completions")) {
		if (!jm_question_reader_read(l->reader, asked, &q))
			return 0;
		add_question(l, &q);
		return n;
	}
	if (get && !strcmp(asked->path, "/v1/models")) {
		reply(asked, 200,
			json_pack("{s:s, s:[{s:s, s:s, s:s}]}", "object", "list", "data", "id",
				l->serve->model_name, "object", "model", "owned_by", "joulemark"));
		jm_asked_end(asked);
	} else
		refuse(asked, NOT_FOUND, "There are POST /v1/completions and GET /v1/models.");
	return 0;
}

static void take_questions(struct jm_listener *l, int most, size_t most_bytes)
{
	struct jm_asked *asked;
	size_t bytes = 0;

	for (int i = 0; i < most && bytes < most_bytes; i++) {
		asked = jm_answer_server_next(l->server, 0);
		if (!asked)
			break;
		bytes += take(l, asked);
	}
	take_long(l);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A client whose question was answered with a refusal may ask again, so their number is bounded. */
static void end(struct jm_listener *l)
{
	l->is_closed = true;
	take_questions(l, LEFT_QUESTIONS, SIZE_MAX);
	jm_question_reader_stop(l->reader);
	take_long(l);
	attend_all(l);
	for (int i = 0; i < l->n_open; i++) {
		struct heard *h = &l->heard[l->open[i]];

		if (h->asked)
			end_early(l, h->asked, h->stream,
				atomic_load(&l->desk->place[l->open[i]].rank));
		h->asked = NULL;
	}
}

/* With that signal's own effect, after clients were told. */
static void end_process(struct jm_listener *l)
{
	jm_answer_server_stop(l->server);
	signal(SIGTERM, SIG_DFL);
	kill(getpid(), SIGTERM);
	for (;;)
		pause();
}

static void *listen_to_clients(void *arg)
{
	struct jm_listener *l = arg;

	while (!l->is_ending && !must_end) {
		uint32_t news = jm_desk_news(l->desk);
		bool more;

		take_questions(l, ROUND_QUESTIONS, ROUND_BYTES);
		attend_all(l);
		more = jm_question_reader_left(l->reader) > 0;
		jm_desk_wait(l->desk, news, more ? LONG_NS : LOOK_NS);
	}
	if (must_end)
		await_ended(l);
	end(l);
	if (must_end)
		end_process(l);
	return NULL;
}

static void on_question(void *arg)
{
	struct jm_listener *l = arg;

	jm_desk_tell(l->desk);
}

void jm_listen_finish(struct serve *s)
{
	struct jm_listener *l = s->listener;

	if (!l || !l->is_started)
		return;
	l->is_ending = true;
	jm_desk_tell(l->desk);
	pthread_join(l->thread, NULL);
	l->is_started = false;
	signal(SIGTERM, SIG_DFL);
	if (must_end) /* it came when the thread looked no more */
		raise(SIGTERM);
}

static void note_late_tokens(const struct jm_listener *l, struct jm_work *work)
{
	if (l->sent_late > MAY_BE_LATE * l->sent)
		jm_work_note(work,
			"%.0f of %.0f tokens were sent more than %d ms after they were made, up "
			"to %.0f ms, which clients see beside the times of this record; the server "
			"needs more time of the host's processors.",
			l->sent_late, l->sent, (int)(LATE_NS / JM_MILLISECOND),
			(double)l->latest_ns / 1e6);
}

int jm_listen_gather(struct serve *s, struct jm_err *err)
{
	const struct jm_listener *l = s->listener;
	struct jm_answers *all = &s->gathered;

	if (l)
		note_late_tokens(l, s->work);
	for (int i = 0; l && i < l->unserved.n; i++) {
		struct jm_answer a = l->unserved.answer[i];

		a.number = all->n;
		if (!jm_answers_append(all, &a))
			return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	}
	for (int i = 0; l && i < l->n_failed; i++)
		all->answer[l->failed[i]].state = JM_ANSWER_FAILED;
	return 0;
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
int jm_listen_check_others(const struct jm_values *options, struct jm_err *err)
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

static int start(struct jm_listener *l, const struct serve *s, int *port, struct jm_err *err)
{
	struct sigaction ends = {.sa_handler = on_end, .sa_flags = SA_RESTART};
	char address[64];
	int code = split(s->listen, address, sizeof(address), port, err);

	if (!code)
		code = jm_question_reader_new(&s->source, s->model_name, &s->rule,
			s->prompts.tokenizer, jm_dim(&s->dims, "context"), &l->reader, err);
	if (!code)
		code = jm_answer_server_start(address, *port, &l->server, port, err);
	if (code)
		return code;
	jm_answer_server_notify(l->server, on_question, l);
	must_end = false;
	l->is_started = !jm_quiet_thread(&l->thread, listen_to_clients, l);
	if (!l->is_started)
		return jm_err_set(err, JM_ENOMEM, "Cannot start a thread.");
	sigaction(SIGTERM, &ends, NULL);
	return 0;
}

int jm_listen_open(struct serve *s, struct jm_err *err)
{
	struct jm_listener *l = calloc(1, sizeof(*l));
	int port, code;

	if (!l)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a server.");
	s->listener = l;
	l->serve = s;
	l->queue = &s->queue;
	l->desk = &s->queue.desk;
	for (int i = 0; i < JM_DESK_PLACES; i++)
		l->free[l->n_free++] = JM_DESK_PLACES - 1 - i;
	code = start(l, s, &port, err);
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
	jm_listen_finish(s);
	jm_question_reader_free(l->reader);
	jm_answer_server_stop(l->server);
	jm_answers_close(&l->unserved);
	free(l->failed);
	free(l);
	s->listener = NULL;
}
