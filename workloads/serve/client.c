/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of a server that speaks OpenAI's /v1/completions: the requests of serve, sent to it, and
 * the same figures of the answers. A step is a part of the time in which answers are taken.
 */
#include "client_answers.h"
#include "client_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/process/marked_processes.h"
#include "base/printable.h"
#include "rate_search.h"

#define STEP_NS (JM_SECOND / 20)
#define SEND_NS JM_MILLISECOND	/* of sending what waits, before answers are read */
#define ASK_NS	(JM_SECOND / 5) /* between two questions whether the server answers */

static const struct jm_option options[] = {
	{.name = "url",
		JM_BIND(JM_TEXT, struct jm_client, url),
		.fallback = "http://127.0.0.1:8000",
		.argument = "URL",
		.help = "the server: what is before /v1/completions, which may follow"},
	{.name = "server-model",
		JM_BIND(JM_TEXT, struct jm_client, model),
		.argument = "NAME",
		.help = "the model's name at the server; without it the first of /v1/models"},
	{.name = "start",
		JM_BIND(JM_TEXT, struct jm_client, start),
		.argument = "COMMAND",
		.help = "start the server by this command of the shell and wait until /v1/models "
			"answers; all cases with the same command use it, and it ends after the "
			"last "
			"of them"},
	{.name = "ready",
		JM_BIND(JM_DURATION, struct jm_client, ready_s),
		.unit = "s",
		.min = 0.1,
		.max = 86400,
		.fallback = "600s",
		.help = "how long a server of --start may take until it answers"},
	{.name = "silence",
		JM_BIND(JM_DURATION, struct jm_client, silence_s),
		.unit = "s",
		.min = 0.01,
		.max = 86400,
		.fallback = "60s",
		.help = "a request fails if no byte of its answer comes for this long"},
	{.name = "answer-time",
		JM_BIND(JM_DURATION, struct jm_client, answer_s),
		.unit = "s",
		.min = 0.01,
		.max = 86400,
		.fallback = "3600s",
		.help = "a request fails if its answer is not complete this long after it was "
			"sent"},
	{.name = "key-file",
		JM_BIND(JM_TEXT, struct jm_client, key_file),
		.argument = "FILE",
		.help = "its first line is the key of the server; it is sent over HTTPS, or over "
			"HTTP to this machine"},
	JM_LOAD_COUNT("vocab", struct jm_client, vocab, 1e7, "32000",
		"prompts are random tokens below this number"),
	JM_LOAD_OPTIONS(struct jm_client),
	{0},
};

/* ---- setup ----------------------------------------------------------------------------------- */

/* Each request under way has a connection. */
static void allow_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* Waits until the server that was started answers; the list of its models is the caller's. */
static json_t *wait_ready(struct jm_client *c, struct jm_err *err)
{
	struct jm_clock *clock = c->work->sleeper->clock;
	int64_t until = jm_clock_now(clock) + (int64_t)(c->ready_s * 1e9);
	struct jm_err why = JM_ERR_INIT;
	json_t *models = jm_http_client_get_json(c->http, "/v1/models", &why);
	int status;

	while (!models && why.code != JM_EPERM && jm_clock_now(clock) < until) {
		if (jm_work_interrupted(c->work, err))
			return NULL;
		if (jm_server_has_ended(&c->server, c->work->ctx, &status)) {
			jm_err_set(err, JM_EIO,
				"The server of --start ended with status %d before it answered "
				"/v1/models; add '>server.log 2>&1' to the command to see why.",
				status);
			return NULL;
		}
		jm_sleep_until(c->work->sleeper, jm_clock_now(clock) + ASK_NS);
		why = (struct jm_err)JM_ERR_INIT;
		models = jm_http_client_get_json(c->http, "/v1/models", &why);
	}
	if (!models && why.code == JM_EPERM)
		jm_err_set(err, why.code, "%s", why.text);
	else if (!models)
		jm_err_set(err, why.code, "The server of --start is not ready after %g s: %s",
			c->ready_s, why.text);
	return models;
}

/* A child of the server in a session of its own may hold its port. */
static void end_rest(void)
{
	struct jm_marked rest;
	char names[1];

	if (jm_marked_like_us(&rest))
		jm_marked_end(&rest, JM_MARK_POLITE, -1, names, sizeof(names));
}

/* The models of the server that an earlier case has started; NULL: there is none that answers, or
 * err has why it cannot be asked. */
static json_t *take_server(struct jm_client *c, struct jm_err *err)
{
	struct jm_err why = JM_ERR_INIT;
	json_t *models;

	if (!c->work->kept || !jm_server_take(&c->server, c->work->kept))
		return NULL;
	models = jm_http_client_get_json(c->http, "/v1/models", &why);
	if (!models && why.code == JM_EPERM)
		jm_err_set(err, why.code, "%s", why.text);
	if (models || err->code)
		return models;
	jm_log(c->work->ctx, JM_WARNING, "The server of --start is started again: %s", why.text);
	jm_server_stop(&c->server, c->work->ctx);
	end_rest();
	return NULL;
}

static json_t *start_server(struct jm_client *c, struct jm_err *err)
{
	struct jm_clock *clock = c->work->sleeper->clock;
	struct jm_err none = JM_ERR_INIT;
	json_t *other = jm_http_client_get_json(c->http, "/v1/models", &none), *models;
	int64_t begin = jm_clock_now(clock);

	if (other || none.code != JM_ENOENT) {
		json_decref(other);
		jm_err_set(err, JM_EUSAGE,
			"Something answers at %s already, before --start; end it, or omit --start.",
			c->url);
		return NULL;
	}
	c->server.kept = c->work->keep != NULL;
	if (jm_server_start(&c->server, c->work->ctx, c->start, err))
		return NULL;
	if (c->work->keep && c->work->keep(c->work->keep_arg, c->server.proc.pid, err))
		return NULL;
	models = wait_ready(c, err);
	c->start_s = (double)(jm_clock_now(clock) - begin) / 1e9;
	if (models)
		jm_log(c->work->ctx, JM_INFO, "The server of --start answers after %.1f s.",
			c->start_s);
	else if (!c->server.kept)
		jm_server_stop(&c->server, c->work->ctx);
	return models;
}

/* The models of the server. */
static json_t *reach_server(struct jm_client *c, struct jm_err *err)
{
	json_t *models;

	if (!c->start)
		return jm_http_client_get_json(c->http, "/v1/models", err);
	models = take_server(c, err);
	return models || err->code ? models : start_server(c, err);
}

/* The first name of the list, unless the user gives one. */
static int take_model(struct jm_client *c, const json_t *models, struct jm_err *err)
{
	const json_t *first = json_array_get(json_object_get(models, "data"), 0);
	const char *name = json_string_value(json_object_get(first, "id"));

	if (c->model)
		return 0;
	if (!name)
		return jm_err_set(err, JM_EFORMAT,
			"%s names no model at /v1/models; give --server-model.", c->url);
	c->found_model = strdup(name);
	return c->found_model ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a name.");
}

/* The name goes to the server as it gave it. */
static void show_model(struct jm_client *c)
{
	int n = snprintf(c->shown_model, sizeof(c->shown_model), "%s",
		c->found_model ? c->found_model : c->model);

	if (n >= (int)sizeof(c->shown_model))
		jm_text_shorten(c->shown_model, sizeof(c->shown_model));
	jm_text_tame(c->shown_model);
}

static bool ends_with(const char *text, size_t n, const char *end)
{
	size_t m = strlen(end);

	return n >= m && !strncmp(text + n - m, end, m);
}

/* Programs for OpenAI's API have /v1 in the URL, and a user may copy all of it. */
static int cut_url(struct jm_client *c, struct jm_err *err)
{
	size_t n = strlen(c->url);

	n -= n && c->url[n - 1] == '/';
	n -= ends_with(c->url, n, "/v1/completions") ? strlen("/completions") : 0;
	if (!ends_with(c->url, n, "/v1"))
		return 0;
	c->base = strndup(c->url, n - strlen("/v1"));
	if (!c->base)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a URL.");
	c->url = c->base;
	return 0;
}

/* Opens the connection, starts the server if asked, waits until it answers, and learns the name of
 * the model. */
static int connect_to(struct jm_client *c, struct jm_err *err)
{
	int code = cut_url(c, err);
	const struct jm_http_client_options o = {.url = c->url,
		.key_file = c->key_file,
		.silence_s = c->silence_s,
		.answer_s = c->answer_s,
		.bytes = jm_client_bytes,
		.end = jm_client_end,
		.arg = c};
	json_t *models;

	if (!code)
		code = jm_http_client_new(&o, &c->http, err);
	if (code)
		return code;
	models = reach_server(c, err);
	if (!models)
		return err->code;
	code = take_model(c, models, err);
	json_decref(models);
	return code;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Until the end of the step or the next arrival, whichever is first. */
static int take_answers(struct jm_client *c, int64_t end, struct jm_err *err)
{
	struct jm_clock *clock = c->work->sleeper->clock;
	int64_t begin = jm_clock_now(clock), next = jm_load_next_ns(&c->load);
	int running = c->under_way;
	int code = jm_http_client_poll(c->http, (next < end ? next : end) - begin, err);
	double seconds = (double)(jm_clock_now(clock) - begin) / 1e9;

	c->seconds += seconds;
	c->running += seconds * running;
	return code;
}

/* Without it the case has no result, whatever was answered before. */
static int check_server(struct jm_client *c, struct jm_err *err)
{
	char status[32] = "";
	int n;

	if (!c->start || !jm_server_has_ended(&c->server, c->work->ctx, &n))
		return 0;
	if (n >= 0)
		snprintf(status, sizeof(status), " with status %d", n);
	return jm_err_set(err, JM_EIO,
		"The server of --start ended%s while it was measured; add '>server.log 2>&1' to "
		"the "
		"command to see why.",
		status);
}

static int step(struct jm_client *c, struct jm_step *ret, struct jm_err *err)
{
	struct jm_clock *clock = c->work->sleeper->clock;
	int64_t end = jm_clock_now(clock) + STEP_NS;
	int code = check_server(c, err);

	while (!code && jm_clock_now(clock) < end) {
		code = jm_client_send(c, jm_earlier(end, jm_clock_now(clock) + SEND_NS), err);
		if (!code)
			code = take_answers(c, end, err);
	}
	*ret = (struct jm_step){.items = fmax(c->made, 0), /* usage may say fewer than events */
		.flops_model = NAN,
		.flops_executed = NAN,
		.bytes = NAN,
		.loss = NAN};
	c->made -= ret->items;
	return code;
}

/* Figures of what was done, the list of requests, and what there is to say of them. */
static int conclude(struct jm_client *c, struct jm_err *err)
{
	int code = jm_load_finish(&c->load, &c->load.answers, c->work, err);

	if (c->work->more)
		json_object_set_new(c->work->more, "serving", jm_client_json(c));
	jm_load_note(&c->load, c->work);
	jm_client_note(c, c->work->note, sizeof(c->work->note));
	return code;
}

/* A run that fails keeps the figures of what was done before. */
static int client_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct jm_err also = JM_ERR_INIT;
	int code = step(state, ret, err);

	if (code)
		conclude(state, &also);
	return code;
}

/* Requests that are under way end first, so that the server begins the next trial without them. */
static int restart(void *state, struct jm_err *err)
{
	struct jm_client *c = state;
	int code = 0;

	while (!code && c->under_way) {
		code = jm_work_interrupted(c->work, err);
		if (code)
			return code;
		code = jm_http_client_poll(c->http, STEP_NS, err);
	}
	for (int i = 0; i < c->load.answers.n; i++)
		jm_event_stream_close(&c->flow[i].stream);
	memset(c->failed, 0, sizeof(c->failed));
	c->failed_together = c->no_usage = c->no_done = 0;
	c->other_prompt = c->other_length = c->more_events = 0;
	c->made = c->merged = c->seconds = c->running = 0;
	return code;
}

static int search_step(void *state, struct jm_err *err)
{
	struct jm_client *c = state;
	struct jm_step taken;
	int code = jm_work_interrupted(c->work, err);

	return code ? code : step(c, &taken, err);
}

static int unfinished(const void *state)
{
	return ((const struct jm_client *)state)->under_way;
}

static int find_rate(struct jm_client *c, struct jm_err *err)
{
	const struct jm_rate_server server = {.arg = c,
		.load = &c->load,
		.clock = c->work->sleeper->clock,
		.restart = restart,
		.step = search_step,
		.unfinished = unfinished,
		.warm_s = c->work->warm_s,
		.steady_s = c->work->steady_s,
		.failure = c->failure};

	return jm_rate_search(&server, err);
}

static int check_clock(const struct jm_work *work, struct jm_err *err)
{
	if (!jm_clock_simulated(work->sleeper->clock))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"A server answers in real time, and %s would take simulated time; give "
		"--real-time.",
		work->device);
}

static int client_setup(struct jm_work *work, void **ret_state, struct jm_err *err)
{
	struct jm_client *c = calloc(1, sizeof(*c));
	int code;

	if (!c)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	JM_FILL(work->options, c);
	c->work = work;
	c->start_s = NAN;
	*ret_state = c;
	allow_connections();
	code = check_clock(work, err);
	if (!code)
		code = jm_load_open(&c->load, work, false, err);
	if (!code)
		code = connect_to(c, err);
	if (!code && c->load.finds_rate)
		code = find_rate(c, err);
	if (code)
		return code;
	jm_load_note_unused(&c->load, work);
	show_model(c);
	snprintf(work->detail, sizeof(work->detail), "%s at %s", c->shown_model, c->url);
	work->n_devices = 1;
	return 0;
}

/* Of all that ended. */
static int judge(const struct jm_client *c, struct jm_err *err)
{
	const struct jm_work *work = c->work;
	bool stopped = work->stopped && work->stopped(work->stopped_arg);
	int done = 0, failed = 0;

	for (int i = 0; i < c->load.answers.n; i++) {
		done += c->load.answers.answer[i].state == JM_ANSWER_DONE;
		failed += c->load.answers.answer[i].state == JM_ANSWER_FAILED;
	}
	if (!done && failed)
		return jm_err_set(err, JM_EIO, "All %d requests failed; the last one: %s.", failed,
			c->failure);
	if (!done && !stopped)
		return jm_err_set(err, JM_EIO,
			"No request was done (sent: %d); measure longer (--seconds), or ask for "
			"shorter answers.",
			c->load.answers.n);
	jm_err_set(err, JM_EUSAGE,
		done ? "The answers of a server are not computed again."
		     : "No request was done; measure longer.");
	return 1;
}

static int client_verify(void *state, struct jm_err *err)
{
	int code = conclude(state, err);

	return code ? code : judge(state, err);
}

static void client_teardown(void *state)
{
	struct jm_client *c = state;

	if (!c)
		return;
	jm_http_client_free(c->http);
	if (c->server.kept)
		jm_server_leave(&c->server);
	else
		jm_server_stop(&c->server, c->work->ctx);
	for (int i = 0; i < c->load.answers.n; i++)
		jm_event_stream_close(&c->flow[i].stream);
	free(c->flow);
	free(c->found_model);
	free(c->base);
	jm_load_close(&c->load);
	free(c);
}

const struct jm_workload jm_workload_serve_client = {
	.name = "serve-client",
	.summary = "requests to a server that speaks OpenAI's /v1/completions",
	.unit = "token",
	.options = options,
	.keeps = "start",
	.no_precision = true,
	.setup = client_setup,
	.step = client_step,
	.verify = client_verify,
	.teardown = client_teardown,
};
