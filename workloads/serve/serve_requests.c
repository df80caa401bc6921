/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_requests.h"

#include <string.h>

#include "base/grow.h"
#include "engine/graph/rng.h"
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
	if (a->prompt)
		return a->prompt[position];
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

/* ---- requests of clients --------------------------------------------------------------------- */

static int make_room(struct jm_client_requests *c, struct jm_err *err)
{
	struct jm_client_request *at = c->n < c->cap ? c->at : jm_grow(c->at, &c->cap, sizeof(*at));
	int *open =
		c->n_open < c->cap_open ? c->open : jm_grow(c->open, &c->cap_open, sizeof(*open));

	c->at = at ? at : c->at;
	c->open = open ? open : c->open;
	return at && open ? 0 : jm_err_set(err, JM_ENOMEM, "Out of memory for the requests.");
}

/* What it asks is copied, for when its place is free again. */
static int arrive_from_desk(struct serve *s, struct jm_answer *a, struct jm_err *err)
{
	const struct jm_desk *d = &s->queue.desk;
	const struct jm_desk_place *p = &d->place[s->queue.place];
	struct jm_client_requests *c = &s->clients;
	size_t bytes = (size_t)a->input * sizeof(*a->prompt);
	int code = make_room(c, err);

	if (code)
		return code;
	a->prompt = malloc(bytes);
	if (!a->prompt)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a prompt.");
	memcpy(a->prompt, jm_desk_prompt(d, s->queue.place), bytes);
	code = arrive(s, a, err);
	if (code) {
		free(a->prompt);
		return code;
	}
	c->open[c->n_open++] = c->n;
	c->at[c->n++] = (struct jm_client_request){s->queue.place, p->rule, p->has_seed, p->seed};
	return 0;
}

/* What is needed only to compute an answer, or to repeat it. */
static void free_arrays(struct jm_answer *a)
{
	size_t n = a->n_when ? (size_t)a->n_when : 1;
	int64_t *when = realloc(a->when, n * sizeof(*when));

	if (when) {
		a->when = when;
		a->room = (int)n;
	}
	free(a->token);
	free(a->prompt);
	a->token = a->prompt = NULL;
}

static void cancel(struct serve *s, int number)
{
	struct jm_answer *a = &s->load.answers.answer[number];

	jm_scheduler_cancel(s->scheduler, number);
	a->state = JM_ANSWER_FAILED;
	a->end = jm_clock_now(s->work->sleeper->clock);
	free_arrays(a);
	jm_queue_answered(&s->queue);
	jm_desk_drop(&s->queue.desk, s->clients.at[number].place);
	s->clients.at[number].place = -1;
	jm_desk_tell(&s->queue.desk);
}

static bool is_cancelled(const struct serve *s, int place)
{
	return atomic_load(&s->queue.desk.place[place].is_cancelled);
}

/* Requests whose client is gone end. */
static void drop_cancelled(struct serve *s)
{
	struct jm_client_requests *c = &s->clients;
	int n = 0;

	for (int i = 0; i < c->n_open; i++) {
		int number = c->open[i], place = c->at[number].place;

		if (place >= 0 && is_cancelled(s, place))
			cancel(s, number);
		else if (place >= 0)
			c->open[n++] = number;
	}
	c->n_open = n;
}

void jm_serve_put_token(struct serve *s, int number, int32_t token)
{
	struct jm_answer *a = &s->load.answers.answer[number];
	struct jm_client_requests *c = &s->clients;

	jm_desk_add_token(&s->queue.desk, c->at[number].place, token, a->end);
	if (a->n_when < a->output)
		return;
	c->at[number].place = -1;
	if (s->answers_file || c->n_kept < JM_SERVE_VERIFIED)
		c->n_kept++;
	else
		free_arrays(a);
}

/* ---- arrivals -------------------------------------------------------------------------------- */

/* A prompt of --text has its own length. */
static void measure_prompt(const struct serve *s, struct jm_answer *a)
{
	if (s->prompts.n)
		prompt(s, a->number, &a->input);
}

/* Not each replica has as many pages as the one that listens. */
static bool has_room(const struct serve *s, const struct jm_answer *a)
{
	if (s->listen && jm_scheduler_check(&s->limits, a->input, a->output, NULL))
		return false;
	return jm_scheduler_has_room(s->scheduler, a->input);
}

/* Takes a request of a client, which may have left while it waited. */
static int take_from_desk(struct serve *s, struct jm_answer *a, struct jm_err *err)
{
	int code = arrive_from_desk(s, a, err);

	if (!code && is_cancelled(s, s->queue.place))
		cancel(s, s->clients.n - 1);
	return code;
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
		if (!jm_queue_is_turn(q, jm_serve_under_way(s), has_room(s, &a)))
			break;
		if (jm_queue_take(q, a.number))
			code = q->desk.shared ? take_from_desk(s, &a, err) : arrive(s, &a, err);
	}
	return code;
}

/* A replica with nothing to do waits for a request, or for the end of the phase. */
static int queue_arrivals(struct serve *s, struct jm_err *err)
{
	uint32_t news = jm_queue_news(&s->queue);
	int64_t now, most, next;
	int code;

	if (s->queue.desk.shared)
		drop_cancelled(s);
	code = take_from_queue(s, err);
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
	return s->listen ? s->clients.at[number].rule : s->rule;
}

void jm_serve_rule(struct serve *s, int number, int position, int slot)
{
	struct jm_served_model *c = &s->served;
	const struct jm_client_request *client = s->listen ? &s->clients.at[number] : NULL;
	struct jm_rule rule = jm_serve_rule_of(s, number);
	uint64_t seed = jm_rng(s->work->seed, (uint64_t)s->load.answers.answer[number].number),
		 bits;

	if (client && client->has_seed)
		seed = client->seed;
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
