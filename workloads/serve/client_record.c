/* SPDX-License-Identifier: Apache-2.0 */
#include "client_record.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"

static const char *const keys[] = {
#define X(name, key, words) key,
	JM_CLIENT_FAILURES(X)
#undef X
};
static const char *const words[] = {
#define X(name, key, words) words,
	JM_CLIENT_FAILURES(X)
#undef X
};

/* How long after its arrival each request was sent. */
static json_t *late(const struct jm_client *c)
{
	int n = c->load.answers.n;
	double *x = calloc((size_t)n + 1, sizeof(*x));
	json_t *ret;

	for (int i = 0; x && i < n; i++)
		x[i] = (double)(c->flow[i].sent_ns - c->load.answers.answer[i].arrived) / 1e9;
	ret = jm_answers_spread(x, x ? n : 0);
	free(x);
	return ret;
}

static json_t *server_json(const struct jm_client *c)
{
	json_t *json = json_object();

	jm_json_set_text(&json, "url", c->url);
	jm_json_set_text(&json, "model", c->shown_model);
	jm_json_set_number(&json, "start_s", c->start_s);
	jm_json_set_int(&json, "no_usage", c->no_usage);
	jm_json_set_int(&json, "no_done", c->no_done);
	jm_json_set_int(&json, "other_prompt", c->other_prompt);
	jm_json_set_int(&json, "other_length", c->other_length);
	jm_json_set_int(&json, "more_events", c->more_events);
	jm_json_set_number(&json, "tokens_merged", c->merged);
	jm_json_set(&json, "late", late(c));
	return json;
}

json_t *jm_client_json(const struct jm_client *c)
{
	json_t *ret = jm_answers_json(&c->load.answers), *failures = json_object();

	for (int i = 0; i < JM_CLIENT_FAILURE_KINDS; i++)
		json_object_set_new(failures, keys[i], json_integer(c->failed[i]));
	json_object_set_new(ret, "mean_running", jm_json_number(c->running / c->seconds));
	json_object_set_new(ret, "padding", json_null());
	json_object_set_new(ret, "cache_use", json_null());
	json_object_set_new(ret, "device_idle", json_null());
	json_object_set_new(ret, "rate_search", jm_load_search_json(&c->load));
	json_object_set_new(ret, "failures", failures);
	json_object_set_new(ret, "server", server_json(c));
	return ret;
}

/* A whole text or nothing of it. */
__attribute__((format(printf, 3, 4))) static void add(
	char *out, size_t size, const char *format, ...)
{
	size_t used = strlen(out);
	va_list rest;

	va_start(rest, format);
	if (vsnprintf(out + used, size - used, format, rest) >= (int)(size - used))
		out[used] = '\0';
	va_end(rest);
}

static void add_failures(const struct jm_client *c, char *out, size_t size)
{
	const char *between = *out ? " Requests failed: " : "Requests failed: ";
	bool some = false;

	for (int i = 0; i < JM_CLIENT_FAILURE_KINDS; i++) {
		if (!c->failed[i])
			continue;
		add(out, size, "%s%d %s", between, c->failed[i], words[i]);
		between = ", ";
		some = true;
	}
	if (some)
		add(out, size, ".");
}

void jm_client_note(const struct jm_client *c, char *out, size_t size)
{
	if (!c->start && !jm_http_client_is_local(c->url))
		add(out, size,
			"%sThe URL does not name this machine (localhost, 127.0.0.1): joules are "
			"those of the meters of this record, whether or not they see the server.",
			*out ? " " : "");
	add_failures(c, out, size);
	if (c->no_usage)
		add(out, size, "%s%d answers have no usage: each event counts as a token.",
			*out ? " " : "", c->no_usage);
	if (c->no_done)
		add(out, size, "%s%d answers end without [DONE].", *out ? " " : "", c->no_done);
	if (c->more_events)
		add(out, size,
			"%s%d answers have more events than tokens: their first event may be no "
			"token, and then their TTFT is too early.",
			*out ? " " : "", c->more_events);
	if (c->merged > 0)
		add(out, size,
			"%s%.0f tokens came in one event with others: an answer in one event has "
			"no time per token.",
			*out ? " " : "", c->merged);
	if (c->other_length)
		add(out, size, "%s%d answers have another length than was asked for.",
			*out ? " " : "", c->other_length);
}
