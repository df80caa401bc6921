/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve_phase.h"
#include "serve_requests.h"
#include "serve_split.h"
#include "serve_usage.h"
#include "simulated_steps.h"

int jm_serve_steps_open(struct serve *s, struct jm_err *err)
{
	for (int i = 0; i < s->served.n_programs; i++)
		s->row_flops[i] = jm_serve_row_flops(s->served.program[i]->graph);
	s->ahead = isnan(s->ahead_wanted) ? s->simulated || jm_device_is_async(&s->device)
					  : (int)s->ahead_wanted;
	for (int i = 0; i < JM_SERVE_FLIGHTS; i++) {
		s->flight[i].made = calloc((size_t)s->running, sizeof(*s->flight[i].made));
		if (!s->flight[i].made)
			return jm_err_set(
				err, JM_ENOMEM, "Out of memory for the tokens of a step.");
	}
	return jm_serve_split_open(s, err);
}

void jm_serve_steps_close(struct serve *s)
{
	for (int i = 0; i < JM_SERVE_FLIGHTS; i++)
		free(s->flight[i].made);
	jm_serve_split_close(s);
}

/* ---- launch ---------------------------------------------------------------------------------- */

/* For input "ids" of a step: a token that is known, or where the step before makes it. A request
 * that gave up its pages has no rows in the next step, so that its slot is the same there. */
static int32_t id_of(const struct serve *s, int number, int position)
{
	const struct jm_request *r = jm_scheduler_request(s->scheduler, number);
	bool known = position - r->input < s->load.answers.answer[number].n_when;

	return known ? jm_serve_token(s, &s->load.answers.answer[number], position) : -1 - r->slot;
}

/* Writes the rows of a step; returns their number. */
static int64_t lay_out(struct serve *s, const struct jm_piece *piece, int n)
{
	struct jm_served_model *c = &s->served;
	int64_t rows = 0;

	memset(c->last, 0, (size_t)c->shape.requests * sizeof(*c->last));
	memset(c->used_pages, 0, (size_t)c->shape.requests * sizeof(*c->used_pages));
	for (int i = 0; i < n; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, piece[i].request);
		int32_t *page = c->page + r->slot * c->shape.pages_each;

		memcpy(page, r->page, (size_t)r->n_pages * sizeof(*page));
		c->used_pages[r->slot] = r->n_pages;
		for (int k = 0; k < piece[i].n; k++, rows++) {
			c->ids[rows] = id_of(s, piece[i].request, piece[i].from + k);
			c->position[rows] = piece[i].from + k;
			c->request[rows] = r->slot;
		}
		c->last[r->slot] = (int32_t)(rows - 1);
		jm_serve_rule(s, piece[i].request, piece[i].from + piece[i].n, r->slot);
	}
	return rows;
}

/* Notes which tokens the step makes. */
static int note_made(struct serve *s, const struct jm_piece *piece, int n,
	struct jm_serve_flight *f, struct jm_err *err)
{
	int code = 0;

	f->ends = 0;
	for (int i = 0; i < s->running; i++)
		f->made[i].request = -1;
	for (int i = 0; i < n && !code; i++) {
		const struct jm_request *r = jm_scheduler_request(s->scheduler, piece[i].request);

		if (!piece[i].makes)
			continue;
		f->made[r->slot] = (struct jm_serve_made){piece[i].request, r->made};
		if (r->made + 1 < r->output)
			continue;
		f->ends++;
		if (s->phase == JM_SERVE_DECODE)
			code = jm_serve_phase_follow(
				s, piece[i].request, jm_clock_now(s->work->sleeper->clock), err);
	}
	return code;
}

static int launch(struct serve *s, const struct jm_piece *piece, int n, struct jm_err *err)
{
	struct jm_serve_flight *f = &s->flight[s->n_flights];
	int code;

	f->begin_ns = jm_clock_now(s->work->sleeper->clock);
	f->pieces = n;
	f->flops_prompts = f->flops_answers = f->answers = 0;
	f->cached = 0;
	f->rows = lay_out(s, piece, n);
	f->size = jm_served_program(&s->served, f->rows);
	for (int i = 0; i < n; i++) {
		jm_serve_split_piece(s, &piece[i], f);
		f->cached += piece[i].from + 2 * piece[i].n;
	}
	f->pages = s->pages - jm_scheduler_free_pages(s->scheduler);
	code = s->simulated ? 0 : jm_served_launch(&s->served, f->rows, err);
	if (!code)
		code = note_made(s, piece, n, f, err);
	if (code)
		return code;
	jm_scheduler_complete(s->scheduler);
	f->more = jm_scheduler_unfinished(s->scheduler);
	s->n_flights++;
	return 0;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A request that was cancelled since gets none. */
static int give_tokens(struct serve *s, const struct jm_serve_flight *f, int64_t now)
{
	int n = 0;

	for (int i = 0; i < s->running; i++) {
		int number = f->made[i].request;
		struct jm_answer *a = number < 0 ? NULL : &s->load.answers.answer[number];

		if (!a || a->state != JM_ANSWER_OPEN)
			continue;
		a->token[f->made[i].token] = s->served.token[i];
		jm_answers_piece(&s->load.answers, number, now);
		if (s->listen)
			jm_serve_put_token(s, number, a->token[f->made[i].token]);
		n++;
		if (f->made[i].token + 1 < a->output)
			continue;
		a->state = JM_ANSWER_DONE;
		if (s->queue.shared)
			jm_queue_answered(&s->queue);
	}
	if (s->queue.shared)
		jm_queue_add_tokens(&s->queue, n);
	if (s->listen && n)
		jm_desk_tell(&s->queue.desk);
	return n;
}

/* The first of the steps under way is one no longer. */
static void drop_first(struct serve *s)
{
	struct jm_serve_flight first = s->flight[0];

	memmove(s->flight, s->flight + 1, (JM_SERVE_FLIGHTS - 1) * sizeof(first));
	s->flight[JM_SERVE_FLIGHTS - 1] = first;
	s->n_flights--;
}

static int await_first(struct serve *s, struct jm_err *err)
{
	return s->simulated ? jm_simulated_await(s, err) : jm_served_await(&s->served, err);
}

static int take_tokens(struct serve *s, double *ret_made, struct jm_err *err)
{
	int code = await_first(s, err);
	int64_t now = jm_clock_now(s->work->sleeper->clock);

	if (code)
		return code;
	*ret_made = give_tokens(s, &s->flight[0], now);
	jm_serve_note_step(s, &s->flight[0], now);
	drop_first(s);
	return 0;
}

static struct jm_step empty_step(void)
{
	return (struct jm_step){
		.flops_model = NAN, .flops_executed = NAN, .bytes = NAN, .loss = NAN};
}

int jm_serve_step(void *state, struct jm_step *ret, struct jm_err *err)
{
	struct serve *s = state;
	const struct jm_piece *piece;
	int code = jm_serve_arrivals(s, err), n = 0;

	*ret = empty_step();
	if (!code) {
		n = jm_scheduler_step(s->scheduler, &piece);
		if (n)
			code = launch(s, piece, n, err);
	}
	if (!code && s->n_flights > (n ? s->ahead : 0))
		code = take_tokens(s, &ret->items, err);
	return code;
}

int jm_serve_finish(struct serve *s, struct jm_step *ret, struct jm_err *err)
{
	double made;
	int code = 0;

	*ret = empty_step();
	while (s->n_flights && !code) {
		code = take_tokens(s, &made, err);
		ret->items += code ? 0 : made;
	}
	return code;
}

int jm_serve_give_up(struct serve *s, struct jm_err *err)
{
	int code = 0;

	for (; s->n_flights && !code; drop_first(s))
		code = await_first(s, err);
	return code;
}
