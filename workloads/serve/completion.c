/* SPDX-License-Identifier: Apache-2.0 */
#include "completion.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/text/json.h"

#define MOST_TOKENS 1e9 /* of a prompt or of an answer, that a server may count */

/* NAN where nothing is said; false: it is no number of tokens. */
static bool take_count(const json_t *usage, const char *key, double *ret)
{
	const json_t *value = json_object_get(usage, key);

	*ret = jm_json_real(value);
	return !value || json_is_null(value) ||
	       (*ret >= 0 && *ret <= MOST_TOKENS && *ret == floor(*ret));
}

/* {"error": ...}, or as older servers of vLLM have it {"object": "error", ...}. */
static bool is_error(const json_t *event)
{
	const json_t *error = json_object_get(event, "error");

	return (error && !json_is_null(error)) || !strcmp(jm_json_text(event, "object"), "error");
}

struct jm_completion jm_completion_parse(const char *text, size_t n)
{
	struct jm_completion ret = {.input = NAN, .output = NAN};
	json_t *event;
	const json_t *choice, *usage;

	if (n == 6 && !memcmp(text, "[DONE]", 6)) {
		ret.is_done = true;
		return ret;
	}
	event = json_loadb(text, n, JSON_ALLOW_NUL, NULL); /* a token may be the character 0 */
	choice = json_array_get(json_object_get(event, "choices"), 0);
	usage = json_object_get(event, "usage");
	ret.is_error = !json_is_object(event) || is_error(event);
	ret.has_choice = choice != NULL;
	ret.is_empty = !json_string_length(json_object_get(choice, "text"));
	ret.is_last = json_is_string(json_object_get(choice, "finish_reason"));
	if (!take_count(usage, "prompt_tokens", &ret.input) ||
		!take_count(usage, "completion_tokens", &ret.output))
		ret.is_error = true;
	json_decref(event);
	return ret;
}

static json_t *prompt(const struct jm_question *q)
{
	json_t *ret = q->text ? json_string_nocheck(q->text) : json_array();

	for (int i = 0; i < q->n && !q->text; i++)
		json_array_append_new(ret, json_integer(q->token[i]));
	return ret;
}

char *jm_completion_body(const struct jm_question *q)
{
	json_t *body = json_pack("{s:s, s:o, s:i, s:f, s:b, s:{s:b}, s:b}", "model", q->model,
		"prompt", prompt(q), "max_tokens", q->output, "temperature", 0.0, "stream", 1,
		"stream_options", "include_usage", 1, "ignore_eos", 1);
	char *ret = json_dumps(body, JSON_COMPACT);

	json_decref(body);
	return ret;
}
