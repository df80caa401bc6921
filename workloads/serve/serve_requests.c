/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_requests.h"

#include <stdlib.h>

#include "engine/graph/rng.h"

static int draw(const struct serve *s, const struct range *r, int number, uint64_t what)
{
	uint64_t bits = jm_rng(jm_rng(s->work->seed, (uint64_t)number), what);

	return r->from + (int)(bits % (uint64_t)(r->to - r->from + 1));
}

const int32_t *jm_serve_prompt(const struct serve *s, int number, int *ret_n)
{
	return jm_prompts_tokens(&s->prompts, number % s->prompts.n, ret_n);
}

int32_t jm_serve_token(const struct serve *s, int number, int position)
{
	int input = jm_scheduler_request(s->scheduler, number)->input;

	if (position >= input)
		return s->answer[number].token[position - input];
	if (s->prompts.n)
		return jm_serve_prompt(s, number, &input)[position];
	return (int32_t)(jm_rng(jm_rng(s->work->seed, (uint64_t)number), 2 + (uint64_t)position) %
			 (uint64_t)s->vocab);
}

static bool grow(struct serve *s)
{
	int cap = s->cap ? 2 * s->cap : 256;
	struct answer *more = realloc(s->answer, (size_t)cap * sizeof(*more));

	if (!more)
		return false;
	s->answer = more;
	s->cap = cap;
	return true;
}

int jm_serve_arrive(struct serve *s, struct jm_err *err)
{
	int number = jm_scheduler_requests(s->scheduler);
	int input = draw(s, &s->input, number, 0), output = draw(s, &s->output, number, 1);
	int32_t *token = calloc((size_t)output, sizeof(*token));

	if (!token || (number == s->cap && !grow(s))) {
		free(token);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
	}
	if (s->prompts.n)
		jm_serve_prompt(s, number, &input);
	s->answer[number] =
		(struct answer){.arrived = jm_clock_now(s->work->sleeper->clock), .token = token};
	return jm_scheduler_add(s->scheduler, input, output, &number, err);
}

bool jm_serve_is_done(const struct serve *s, int number)
{
	return jm_scheduler_request(s->scheduler, number)->state == JM_REQUEST_DONE;
}
