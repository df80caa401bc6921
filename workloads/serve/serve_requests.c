/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_requests.h"

#include "engine/graph/rng.h"
#include "listen.h"
#include "serve_usage.h"
#include "simulated_steps.h"

#define WAIT_NS (JM_SECOND / 5)
#define OF_DRAW (UINT64_MAX - 1) /* a counter of a request's random numbers; see arrivals.c */

static const int32_t *prompt(const struct serve *s, int number, int *ret_n)
{
	return jm_prompts_tokens(&s->prompts, number % s->prompts.n, ret_n);
}

const int32_t *jm_serve_prompt(const struct serve *s, const struct jm_answer *a, int *ret_n)
{
	return prompt(s, a->number - a->back, ret_n);
}

int32_t jm_serve_token(const struct serve *s, const struct jm_answer *a, int position)
{
	int n;

	if (position >= a->input)
		return a->token[position - a->input];
	if (s->listener)
		return jm_listen_ask(s, a->number)->token[position];
	if (s->prompts.n)
		return jm_serve_prompt(s, a, &n)[position];
	return jm_load_token(&s->load, a->number - a->back, position, s->vocab);
}

static int arrive(struct serve *s, struct jm_answer *a, struct jm_err *err)
{
	int number, code;

	code = jm_scheduler_add(s->scheduler, a->input, a->output, &number, err);
	return code ? code : jm_answers_add(&s->load.answers, a, true, err);
}

/* A prompt of --text has its own length. */
static void measure_prompt(const struct serve *s, struct jm_answer *a)
{
	if (s->prompts.n)
		prompt(s, a->number, &a->input);
}

/* Takes what this replica has room for and its turn to take. */
static int take_from_queue(struct serve *s, struct jm_err *err)
{
	struct jm_request_queue *q = &s->queue;
	struct jm_answer a;
	int code = 0;

	while (!code && jm_queue_peek(q, jm_clock_now(s->work->sleeper->clock),
				jm_serve_under_way(s), &a)) {
		measure_prompt(s, &a);
		if (!jm_queue_is_turn(
			    q, jm_serve_under_way(s), jm_scheduler_has_room(s->scheduler, a.input)))
			break;
		if (jm_queue_take(q, a.number))
			code = arrive(s, &a, err);
	}
	return code;
}

/* A replica with nothing to do waits for a request, or for the end of the phase. */
static int queue_arrivals(struct serve *s, struct jm_err *err)
{
	uint32_t news = jm_queue_news(&s->queue);
	int code = take_from_queue(s, err);
	int64_t now, most, next;

	if (code || jm_serve_under_way(s))
		return code;
	now = jm_clock_now(s->work->sleeper->clock);
	most = now + WAIT_NS;
	next = jm_queue_next_ns(&s->queue);
	jm_queue_wait(&s->queue, news, (next < most ? next : most) - now);
	return take_from_queue(s, err);
}

static void wait_for_next(struct serve *s)
{
	int64_t most = jm_clock_now(s->work->sleeper->clock) + WAIT_NS,
		next = jm_load_next_ns(&s->load);

	jm_sleep_until(s->work->sleeper, next < most ? next : most);
}

int jm_serve_arrivals(struct serve *s, struct jm_err *err)
{
	struct jm_answer a;
	int code = 0;
	int64_t now;

	if (!jm_serve_under_way(s))
		jm_simulated_rest(s);
	if (s->listener)
		return jm_listen_arrivals(s, err);
	if (s->queue.shared)
		return queue_arrivals(s, err);
	if (jm_arrivals_timed(&s->load.arrivals) && s->load.begin_ns && !jm_serve_under_way(s))
		wait_for_next(s);
	now = jm_clock_now(s->work->sleeper->clock);
	while (!code && jm_load_next(&s->load, now, jm_serve_under_way(s), &a)) {
		measure_prompt(s, &a);
		code = arrive(s, &a, err);
	}
	return code;
}

struct jm_rule jm_serve_rule_of(const struct serve *s, int number)
{
	return s->listener ? jm_listen_ask(s, number)->rule : s->rule;
}

void jm_serve_rule(struct serve *s, int number, int position, int slot)
{
	struct jm_served_model *c = &s->served;
	const struct jm_ask *ask = s->listener ? jm_listen_ask(s, number) : NULL;
	struct jm_rule rule = jm_serve_rule_of(s, number);
	uint64_t seed = jm_rng(s->work->seed, (uint64_t)s->load.answers.answer[number].number),
		 bits;

	if (ask && ask->has_seed)
		seed = ask->seed;
	bits = jm_rng(jm_rng(seed, OF_DRAW), (uint64_t)position);
	c->rule[3 * slot] = (float)rule.temperature;
	c->rule[3 * slot + 1] = (float)rule.top_p;
	c->rule[3 * slot + 2] = (float)rule.top_k;
	c->draw[2 * slot] = (int32_t)(uint32_t)bits;
	c->draw[2 * slot + 1] = (int32_t)(uint32_t)(bits >> 32);
}

bool jm_serve_is_done(const struct serve *s, int number)
{
	return s->load.answers.answer[number].state == JM_ANSWER_DONE;
}
