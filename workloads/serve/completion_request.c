/* SPDX-License-Identifier: Apache-2.0 */
#include "completion_request.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS    1000000
#define DEFAULT_OUTPUT 16 /* as OpenAI's interface has it */

static int take_tokens(const json_t *list, int64_t vocab, struct jm_ask *ret, struct jm_err *err)
{
	size_t n = json_array_size(list);
	const json_t *value;
	size_t i;

	if (!n || n > MOST_TOKENS)
		return jm_err_set(err, JM_EUSAGE, "A prompt has 1 to %d tokens.", MOST_TOKENS);
	ret->token = calloc(n, sizeof(*ret->token));
	if (!ret->token)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a prompt.");
	json_array_foreach(list, i, value)
	{
		json_int_t token = json_is_integer(value) ? json_integer_value(value) : -1;

		if (token < 0 || token >= vocab)
			return jm_err_set(err, JM_EUSAGE,
				"A token of a prompt is a whole number from 0 to %lld.",
				(long long)vocab - 1);
		ret->token[i] = (int32_t)token;
	}
	ret->n = (int)n;
	return 0;
}

static int take_prompt(const json_t *prompt, int64_t vocab, struct jm_ask *ret, struct jm_err *err)
{
	const json_t *first = json_array_get(prompt, 0);
	bool of_prompts = json_is_array(first) || json_is_string(first);

	if (of_prompts && json_array_size(prompt) == 1)
		prompt = first;
	else if (of_prompts)
		return jm_err_set(err, JM_EUSAGE,
			"'prompt' is a list of %zu prompts; ask for one with each request.",
			json_array_size(prompt));
	if (json_is_array(prompt))
		return take_tokens(prompt, vocab, ret, err);
	if (!json_is_string(prompt) || !json_string_length(prompt))
		return jm_err_set(err, JM_EUSAGE,
			"'prompt' is a text that is not empty, or a list of tokens.");
	ret->text = strdup(json_string_value(prompt));
	return ret->text ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for a prompt.");
}

/* Fields that would change the answer and are not served, with the number that changes nothing; NAN
 * = each does. */
static const struct {
	const char *name;
	double idle;
} unserved[] = {
	{"n", 1},
	{"best_of", 1},
	{"presence_penalty", 0},
	{"frequency_penalty", 0},
	{"repetition_penalty", 1},
	{"length_penalty", 1},
	{"min_p", 0},
	{"typical_p", 1},
	{"logit_bias", NAN},
	{"logprobs", NAN},
	{"prompt_logprobs", NAN},
	{"echo", NAN},
	{"suffix", NAN},
	{"stop", NAN},
	{"stop_token_ids", NAN},
	{"use_beam_search", NAN},
	{"response_format", NAN},
	{"structured_outputs", NAN},
	{"guided_json", NAN},
	{"guided_regex", NAN},
	{"guided_choice", NAN},
	{"guided_grammar", NAN},
	{"grammar", NAN},
	{"json_schema", NAN},
	{"regex", NAN},
	{"bad_words", NAN},
	{"allowed_token_ids", NAN},
	{"truncate_prompt_tokens", NAN},
	{"prompt_embeds", NAN},
};

/* null, false, and what is empty ask for nothing. */
static bool asks(const json_t *value, double idle)
{
	if (json_is_number(value))
		return json_number_value(value) != idle;
	if (json_is_string(value))
		return json_string_length(value) > 0;
	return json_is_true(value) || json_array_size(value) || json_object_size(value);
}

static int refuse_unserved(const json_t *o, struct jm_err *err)
{
	for (size_t i = 0; i < sizeof(unserved) / sizeof(unserved[0]); i++)
		if (asks(json_object_get(o, unserved[i].name), unserved[i].idle))
			return jm_err_set(err, JM_EUSAGE,
				"This server does not serve '%s' with that value; omit it.",
				unserved[i].name);
	return 0;
}

/* A number, if it is there: *ret, unless it is not from least to most. */
static bool take_number(const json_t *o, const char *name, double least, double most, double *ret)
{
	const json_t *value = json_object_get(o, name);
	double x = json_number_value(value);

	if (!value || json_is_null(value))
		return true;
	if (!json_is_number(value) || !(x >= least && x <= most))
		return false;
	*ret = x;
	return true;
}

static int take_rule(const json_t *o, struct jm_ask *ret, struct jm_err *err)
{
	double k = ret->rule.top_k;

	if (!take_number(o, "temperature", 0, 1000, &ret->rule.temperature) ||
		!take_number(o, "top_p", 0, 1, &ret->rule.top_p) ||
		!take_number(o, "top_k", -1, 1e9, &k) || k != floor(k))
		return jm_err_set(err, JM_EUSAGE,
			"'temperature' is a number from 0, 'top_p' one from 0 to 1, 'top_k' a "
			"whole number.");
	ret->rule.top_k = k > 0 ? (int)k : 0;
	return 0;
}

static int take_seed(const json_t *o, struct jm_ask *ret, struct jm_err *err)
{
	const json_t *seed = json_object_get(o, "seed");

	ret->has_seed = json_is_integer(seed);
	ret->seed = (uint64_t)json_integer_value(seed);
	if (seed && !json_is_null(seed) && !ret->has_seed)
		return jm_err_set(err, JM_EUSAGE, "'seed' is a whole number.");
	return 0;
}

/* A flag, if it is there. */
static bool take_flag(const json_t *o, const char *name, bool *ret)
{
	const json_t *value = json_object_get(o, name);

	*ret = json_is_true(value);
	return !value || json_is_null(value) || json_is_boolean(value);
}

static int take_stream(const json_t *o, struct jm_ask *ret, struct jm_err *err)
{
	const json_t *more = json_object_get(o, "stream_options");

	if (take_flag(o, "stream", &ret->stream) && take_flag(more, "include_usage", &ret->usage))
		return 0;
	return jm_err_set(err, JM_EUSAGE, "'stream' and 'include_usage' are true or false.");
}

/* Without a name it is the one that is served. */
static int check_model(const json_t *o, const struct jm_answering *model, struct jm_err *err)
{
	const json_t *value = json_object_get(o, "model");
	const char *name = json_string_value(value);

	if (!value || json_is_null(value) || (name && !*name))
		return 0;
	if (!name)
		return jm_err_set(err, JM_EUSAGE, "'model' is a text.");
	if (!strcmp(name, model->name) || (model->from && !strcmp(name, model->from)))
		return 0;
	return jm_err_set(err, JM_ENOENT,
		"This server has model '%s', which is not the one that the request names; ask for "
		"it, or omit 'model'.",
		model->name);
}

static int take_object(
	const json_t *o, const struct jm_answering *model, struct jm_ask *ret, struct jm_err *err)
{
	const json_t *output = json_object_get(o, "max_tokens");

	if (!json_is_object(o))
		return jm_err_set(err, JM_EUSAGE, "The body is no JSON object.");
	if (check_model(o, model, err) || refuse_unserved(o, err))
		return err->code;
	if (output && !json_is_null(output) &&
		(!json_is_integer(output) || json_integer_value(output) < 1 ||
			json_integer_value(output) > MOST_TOKENS))
		return jm_err_set(err, JM_EUSAGE, "'max_tokens' is a whole number from 1 to %d.",
			MOST_TOKENS);
	ret->output = json_is_integer(output) ? (int)json_integer_value(output) : DEFAULT_OUTPUT;
	if (take_stream(o, ret, err) || take_rule(o, ret, err) || take_seed(o, ret, err))
		return err->code;
	return take_prompt(json_object_get(o, "prompt"), model->vocab, ret, err);
}

int jm_ask_parse(const char *body, size_t n, const struct jm_answering *model, struct jm_ask *ret,
	struct jm_err *err)
{
	json_error_t why;
	json_t *o = json_loadb(body, n, 0, &why);
	int code;

	*ret = (struct jm_ask){.rule = ret->rule};
	code = o ? take_object(o, model, ret, err)
		 : jm_err_set(
			   err, JM_EUSAGE, "The body is no JSON that can be taken: %s.", why.text);
	json_decref(o);
	if (code)
		jm_ask_close(ret);
	return code;
}

void jm_ask_close(struct jm_ask *ask)
{
	free(ask->token);
	free(ask->text);
	*ask = (struct jm_ask){0};
}
