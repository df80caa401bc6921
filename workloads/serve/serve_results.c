/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_results.h"

#include <jansson.h>
#include <stdio.h>

#include "base/files/output.h"
#include "replicas.h"
#include "serve_requests.h"
#include "serve_split.h"
#include "serve_usage.h"
#include "workloads/parts/work_output.h"

static double seconds(int64_t from, int64_t to)
{
	return (double)(to - from) / 1e9;
}

void jm_serve_record(struct serve *s)
{
	json_t *serving = jm_answers_json(s->all);

	jm_serve_add_usage(s, serving);
	json_object_set_new(serving, "ranks", jm_replicas_json(s));
	json_object_set_new(serving, "split", jm_serve_split_json(s));
	json_object_set_new(serving, "rate_search", jm_load_search_json(&s->load));
	json_object_set_new(s->work->more, "serving", serving);
}

static json_t *tokens_of(const struct serve *s, const struct jm_answer *a, int from, int n)
{
	json_t *ret = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(ret, json_integer(jm_serve_token(s, a, from + i)));
	return ret;
}

/* Seconds from its arrival to each token. */
static json_t *token_times(const struct jm_answer *a)
{
	json_t *ret = json_array();

	for (int i = 0; i < a->output; i++)
		json_array_append_new(ret, json_real(seconds(a->arrived, a->when[i])));
	return ret;
}

static json_t *answer_json(const struct serve *s, const struct jm_answer *a)
{
	json_t *ret = json_pack("{s:i, s:o, s:o, s:o}", "request", a->number, "prompt_tokens",
		tokens_of(s, a, 0, a->input), "tokens", tokens_of(s, a, a->input, a->output),
		"token_s", token_times(a));
	int n;

	if (s->prompts.n) {
		const int32_t *prompt = jm_serve_prompt(s, a, &n);

		json_object_set_new(ret, "prompt", jm_prompts_text(&s->prompts, prompt, n));
		json_object_set_new(ret, "text", jm_prompts_text(&s->prompts, a->token, a->output));
	}
	return ret;
}

int jm_serve_open_answers(struct serve *s, struct jm_err *err)
{
	const char *csv = s->load.csv ? s->load.csv_name : NULL, *name = s->answers_name;
	int code = jm_work_output(s->work, s->answers_file, s->answers_name, err);

	if (!code)
		code = jm_work_output_apart(name, "answers", csv, "requests-csv", err);
	if (!code)
		code = jm_work_output_apart(name, "answers", s->source.text, "text", err);
	return code ? code : jm_work_output_apart(name, "answers", s->load.lengths, "lengths", err);
}

static bool put_answers(const void *what, FILE *f)
{
	const struct serve *s = what;

	for (int i = 0; i < s->all->n && !ferror(f); i++) {
		const struct jm_answer *a = &s->all->answer[i];
		json_t *line = a->state == JM_ANSWER_DONE ? answer_json(s, a) : NULL;

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
