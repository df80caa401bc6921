/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_results.h"

#include <jansson.h>
#include <stdio.h>

#include "base/files/output.h"
#include "serve_requests.h"
#include "serve_usage.h"

static double seconds(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e9;
}

void jm_serve_record(struct serve *s)
{
	json_t *serving;

	for (int i = 0; i < s->load.answers.n; i++)
		s->load.answers.answer[i].preempted =
			jm_scheduler_request(s->scheduler, i)->preempted;
	serving = jm_answers_json(&s->load.answers);
	jm_serve_add_usage(s, serving);
	json_object_set_new(serving, "rate_search", jm_load_search_json(&s->load));
	json_object_set_new(s->work->more, "serving", serving);
}

static json_t *tokens_of(const struct serve *s, int number, int from, int n)
{
	json_t *ret = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(ret, json_integer(jm_serve_token(s, number, from + i)));
	return ret;
}

/* Seconds from its arrival to each token. */
static json_t *token_times(const struct serve *s, int number)
{
	const struct jm_answer *a = &s->load.answers.answer[number];
	json_t *ret = json_array();

	for (int i = 0; i < a->output; i++)
		json_array_append_new(ret, json_real(seconds(a->arrived, a->when[i])));
	return ret;
}

static json_t *answer_json(const struct serve *s, int number)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	json_t *ret = json_pack("{s:i, s:o, s:o, s:o}", "request", number, "prompt_tokens",
		tokens_of(s, number, 0, r->input), "tokens",
		tokens_of(s, number, r->input, r->output), "token_s", token_times(s, number));
	int n;

	if (s->prompts.n) {
		const int32_t *prompt = jm_serve_prompt(s, number, &n);

		json_object_set_new(ret, "prompt", jm_prompts_text(&s->prompts, prompt, n));
		json_object_set_new(ret, "text",
			jm_prompts_text(
				&s->prompts, s->load.answers.answer[number].token, r->output));
	}
	return ret;
}

static bool put_answers(const void *what, FILE *f)
{
	const struct serve *s = what;

	for (int i = 0; i < jm_scheduler_requests(s->scheduler) && !ferror(f); i++) {
		json_t *line = jm_serve_is_done(s, i) ? answer_json(s, i) : NULL;

		if (line && !json_dumpf(line, f, JSON_COMPACT))
			fputc('\n', f);
		json_decref(line);
	}
	return !ferror(f);
}

int jm_serve_write_answers(const struct serve *s, struct jm_err *err)
{
	return jm_output_by(s->answers_name, put_answers, s, err);
}
