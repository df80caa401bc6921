/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_requests.h"

#include <math.h>
#include <stdlib.h>

#include "engine/graph/rng.h"

#define WAIT_NS (JM_SECOND / 5)
#define OF_REST UINT64_MAX /* a counter of a request's random numbers; see arrivals.c */

const int32_t *jm_serve_prompt(const struct serve *s, int number, int *ret_n)
{
	return jm_prompts_tokens(&s->prompts, number % s->prompts.n, ret_n);
}

int32_t jm_serve_token(const struct serve *s, int number, int position)
{
	int input = jm_scheduler_request(s->scheduler, number)->input;

	if (position >= input)
		return s->answers.answer[number].token[position - input];
	if (s->prompts.n)
		return jm_serve_prompt(s, number, &input)[position];
	return (int32_t)(jm_rng(jm_rng(s->work->seed, (uint64_t)number), 2 + (uint64_t)position) %
			 (uint64_t)s->vocab);
}

/* The first requests of closed arrivals are as if each had been under way for a while, so that answers of one length do not
 * end together. */
static bool is_under_way(const struct serve *s, int number)
{
	return s->arrivals.kind == ARRIVE_CLOSED && number < s->running && !s->prompts.n &&
	       !s->arrivals.row;
}

static int arrive(struct serve *s, int64_t at_ns, struct jm_err *err)
{
	int number = s->answers.n, code;
	struct jm_answer a = {.arrived = at_ns};

	jm_arrivals_length(&s->arrivals, number, &a.input, &a.output);
	if (is_under_way(s, number))
		a.output = 1 + (int)(jm_rng(jm_rng(s->work->seed, (uint64_t)number), OF_REST) %
				       (uint64_t)a.output);
	if (s->prompts.n)
		jm_serve_prompt(s, number, &a.input);
	code = jm_scheduler_add(s->scheduler, a.input, a.output, &number, err);
	return code ? code : jm_answers_add(&s->answers, &a, true, err);
}

/* When the next request is meant to arrive; a time that was missed stays what it was. */
static int64_t next_ns(const struct serve *s)
{
	return s->begin_ns + (int64_t)llround(s->arrivals.at_s * 1e9);
}

static int arrive_in_time(struct serve *s, struct jm_err *err)
{
	struct jm_clock *clock = s->work->sleeper->clock;
	int64_t now = jm_clock_now(clock), until;
	int code = 0;

	if (!s->begin_ns) {
		s->begin_ns = now;
		jm_arrivals_plan(&s->arrivals);
	}
	until = next_ns(s) < now + WAIT_NS ? next_ns(s) : now + WAIT_NS;
	if (!jm_scheduler_unfinished(s->scheduler))
		jm_sleep_until(s->work->sleeper, until);
	now = jm_clock_now(clock);
	while (!code && next_ns(s) <= now) {
		code = arrive(s, next_ns(s), err);
		s->arrivals.next++;
		jm_arrivals_plan(&s->arrivals);
	}
	return code;
}

int jm_serve_arrivals(struct serve *s, struct jm_err *err)
{
	int unfinished = jm_scheduler_unfinished(s->scheduler), wanted = 0, code = 0;
	int64_t now = jm_clock_now(s->work->sleeper->clock);

	if (jm_arrivals_timed(&s->arrivals))
		return arrive_in_time(s, err);
	if (s->arrivals.kind == ARRIVE_CLOSED)
		wanted = s->running - unfinished;
	else if (!unfinished)
		wanted = s->arrivals.kind == ARRIVE_ALL ? s->requests : 1;
	while (wanted-- > 0 && !code)
		code = arrive(s, now, err);
	return code;
}

bool jm_serve_is_done(const struct serve *s, int number)
{
	return jm_scheduler_request(s->scheduler, number)->state == JM_REQUEST_DONE;
}
