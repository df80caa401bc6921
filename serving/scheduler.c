/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

struct jm_scheduler {
	struct jm_scheduler_limits limits;
	struct jm_request *request;
	int n, cap, unfinished;
	int first_waiting; /* no request before this one waits */
	int *free_page;	   /* [pages], a stack */
	int n_free;
	bool *taken;  /* [limits.running]: slots */
	int *running; /* [n_running]: the running requests in the order of their arrival */
	int n_running;
	struct jm_piece *piece; /* [limits.running] */
	int n_pieces;
};

static int pages_for(const struct jm_scheduler_limits *limits, int tokens)
{
	return (tokens + limits->page_tokens - 1) / limits->page_tokens;
}

static int pages_of(const struct jm_scheduler *s, int tokens)
{
	return pages_for(&s->limits, tokens);
}

/* Its tokens that exist: the prompt, and what was made. */
static int known(const struct jm_request *r)
{
	return r->input + r->made;
}

int jm_scheduler_new(
	const struct jm_scheduler_limits *limits, struct jm_scheduler **ret, struct jm_err *err)
{
	struct jm_scheduler *s;

	if (limits->running < 1 || limits->tokens < limits->running || limits->pages < 1 ||
		limits->page_tokens < 1 || limits->pages_each < 1)
		return jm_err_set(err, JM_ERANGE,
			"A step of %d tokens cannot serve %d requests from %d pages; give at least "
			"one "
			"of each, and as many tokens as requests.",
			limits->tokens, limits->running, limits->pages);
	s = calloc(1, sizeof(*s));
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a scheduler.");
	s->limits = *limits;
	s->free_page = calloc((size_t)limits->pages, sizeof(*s->free_page));
	s->taken = calloc((size_t)limits->running, sizeof(*s->taken));
	s->running = calloc((size_t)limits->running, sizeof(*s->running));
	s->piece = calloc((size_t)limits->running, sizeof(*s->piece));
	if (!s->free_page || !s->taken || !s->running || !s->piece) {
		jm_scheduler_free(s);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a scheduler.");
	}
	for (int i = 0; i < limits->pages; i++)
		s->free_page[s->n_free++] = limits->pages - 1 - i;
	*ret = s;
	return 0;
}

void jm_scheduler_free(struct jm_scheduler *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->n; i++)
		free(s->request[i].page);
	free(s->request);
	free(s->free_page);
	free(s->taken);
	free(s->running);
	free(s->piece);
	free(s);
}

static bool grow(struct jm_scheduler *s)
{
	struct jm_request *more = jm_grow(s->request, &s->cap, sizeof(*more));

	s->request = more ? more : s->request;
	return more;
}

int jm_scheduler_check(
	const struct jm_scheduler_limits *limits, int input, int output, struct jm_err *err)
{
	/* the last token is made, but never read */
	int most = pages_for(limits, input + output - 1);

	if (input > 0 && output > 0 && most <= limits->pages && most <= limits->pages_each)
		return 0;
	return jm_err_set(err, JM_ERANGE,
		"A request of %d input and %d output tokens needs %d pages of the cache, which "
		"has %d, at most %d for one request; give shorter requests or more pages.",
		input, output, most, limits->pages, limits->pages_each);
}

int jm_scheduler_add(
	struct jm_scheduler *s, int input, int output, int *ret_number, struct jm_err *err)
{
	struct jm_request r = {.input = input, .output = output, .slot = -1, .heir = -1};
	int most = pages_of(s, input + output - 1),
	    code = jm_scheduler_check(&s->limits, input, output, err);

	if (code)
		return code;
	r.page = calloc((size_t)most, sizeof(*r.page));
	if (!r.page || (s->n == s->cap && !grow(s))) {
		free(r.page);
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a request.");
	}
	s->request[s->n] = r;
	s->unfinished++;
	*ret_number = s->n++;
	return 0;
}

int jm_scheduler_add_after(
	struct jm_scheduler *s, int number, int output, int *ret_number, struct jm_err *err)
{
	int code = jm_scheduler_add(s, s->request[number].input, output, ret_number, err);

	if (!code)
		s->request[number].heir = *ret_number;
	return code;
}

bool jm_scheduler_has_room(const struct jm_scheduler *s, int input)
{
	int pages = pages_of(s, input);

	if (s->unfinished >= s->limits.running)
		return false;
	for (int i = s->first_waiting; i < s->n; i++)
		if (s->request[i].state == JM_REQUEST_WAITING)
			pages += pages_of(s, known(&s->request[i]));
	for (int i = 0; i < s->n_running; i++) {
		const struct jm_request *r = &s->request[s->running[i]];

		pages += pages_of(s, known(r)) - r->n_pages;
	}
	return pages <= s->n_free;
}

/* The place in `running` before which all arrived earlier. */
static int place_of(const struct jm_scheduler *s, int number)
{
	int i = s->n_running;

	while (i && s->running[i - 1] >= number)
		i--;
	return i;
}

/* The request runs in the slot. */
static void enter(struct jm_scheduler *s, int number, int slot)
{
	int i = place_of(s, number);

	memmove(s->running + i + 1, s->running + i,
		(size_t)(s->n_running++ - i) * sizeof(*s->running));
	s->running[i] = number;
	s->taken[slot] = true;
	s->request[number].slot = slot;
	s->request[number].state = JM_REQUEST_RUNNING;
}

/* It runs no longer; its slot is free. */
static void give_up_slot(struct jm_scheduler *s, struct jm_request *r)
{
	int i = place_of(s, (int)(r - s->request));

	memmove(s->running + i, s->running + i + 1,
		(size_t)(--s->n_running - i) * sizeof(*s->running));
	s->taken[r->slot] = false;
	r->slot = -1;
}

/* The request runs no longer; its pages are free. */
static void leave(struct jm_scheduler *s, struct jm_request *r, enum jm_request_state state)
{
	int number = (int)(r - s->request);

	while (r->n_pages)
		s->free_page[s->n_free++] = r->page[--r->n_pages];
	if (r->slot >= 0)
		give_up_slot(s, r);
	r->in_step = false;
	r->computed = 0;
	r->state = state;
	if (state == JM_REQUEST_WAITING && number < s->first_waiting)
		s->first_waiting = number;
}

static void end(struct jm_scheduler *s, struct jm_request *r, enum jm_request_state state)
{
	leave(s, r, state);
	free(r->page);
	r->page = NULL;
	s->unfinished--;
}

/* What the prompt needs goes to the heir, which runs from now on. */
static void hand_on(struct jm_scheduler *s, struct jm_request *r)
{
	struct jm_request *heir = &s->request[r->heir];
	int kept = pages_of(s, r->input), slot = r->slot;

	while (r->n_pages > kept)
		s->free_page[s->n_free++] = r->page[--r->n_pages];
	memcpy(heir->page, r->page, (size_t)r->n_pages * sizeof(*r->page));
	heir->n_pages = r->n_pages;
	heir->computed = r->input - 1;
	r->n_pages = 0;
	give_up_slot(s, r);
	enter(s, r->heir, slot);
}

void jm_scheduler_cancel(struct jm_scheduler *s, int number)
{
	struct jm_request *r = &s->request[number];

	if (r->state == JM_REQUEST_WAITING || r->state == JM_REQUEST_RUNNING)
		end(s, r, JM_REQUEST_CANCELLED);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Pages for the first `tokens` tokens, which younger requests give up if there is no other way.
 * False: the request itself was the youngest and waits again. */
static bool reserve(struct jm_scheduler *s, struct jm_request *r, int tokens)
{
	while (r->n_pages < pages_of(s, tokens)) {
		if (s->n_free) {
			r->page[r->n_pages++] = s->free_page[--s->n_free];
			continue;
		}
		struct jm_request *victim = &s->request[s->running[s->n_running - 1]];

		victim->preempted++;
		leave(s, victim, JM_REQUEST_WAITING);
		if (victim == r)
			return false;
	}
	return true;
}

static int free_slot(const struct jm_scheduler *s)
{
	for (int i = 0; i < s->limits.running; i++)
		if (!s->taken[i])
			return i;
	return -1;
}

/* Requests start in the order of their arrival; none overtakes one that does not fit yet. */
static void admit(struct jm_scheduler *s)
{
	for (; s->first_waiting < s->n; s->first_waiting++) {
		struct jm_request *r = &s->request[s->first_waiting];
		int slot;

		if (r->state != JM_REQUEST_WAITING)
			continue;
		slot = free_slot(s);
		if (slot < 0 || s->n_free < pages_of(s, known(r)))
			return;
		enter(s, s->first_waiting, slot);
		reserve(s, r, known(r));
	}
}

/* Adds rows of the request, at most `budget`; returns how many. */
static int add_piece(struct jm_scheduler *s, int number, int budget)
{
	struct jm_request *r = &s->request[number];
	int rest = known(r) - r->computed, n = rest < budget ? rest : budget;

	if (n < 1 || !reserve(s, r, r->computed + n))
		return 0;
	r->in_step = true;
	s->piece[s->n_pieces++] = (struct jm_piece){number, r->computed, n, n == rest};
	return n;
}

/* Requests that arrived first come first. Those that give up their pages meanwhile are the last. */
static int add_pieces(struct jm_scheduler *s, bool prompts, int budget)
{
	int used = 0;

	for (int i = 0; i < s->n_running; i++) {
		const struct jm_request *r = &s->request[s->running[i]];

		if (!r->in_step && (prompts || known(r) - r->computed == 1))
			used += add_piece(s, s->running[i], budget - used);
	}
	return used;
}

/* Removes pieces of requests that were preempted after they got one. */
static void drop_preempted(struct jm_scheduler *s)
{
	int kept = 0;

	for (int i = 0; i < s->n_pieces; i++)
		if (s->request[s->piece[i].request].in_step)
			s->piece[kept++] = s->piece[i];
	s->n_pieces = kept;
}

/* Takes rows away from the end of the pieces. */
static void shorten(struct jm_scheduler *s, int rows)
{
	while (rows) {
		struct jm_piece *p = &s->piece[s->n_pieces - 1];
		int less = rows < p->n ? rows : p->n;

		p->n -= less;
		p->makes = false;
		rows -= less;
		if (p->n)
			continue;
		s->request[p->request].in_step = false;
		s->n_pieces--;
	}
}

/* Rows of prompts stand last. Shortens them to the size of a step, if that leaves at least half of
 * them. */
static void avoid_padding(struct jm_scheduler *s)
{
	int rows = 0, answers = 0, size = 0;

	for (int i = 0; i < s->n_pieces; i++) {
		rows += s->piece[i].n;
		answers += s->piece[i].n == 1 && s->piece[i].makes;
	}
	for (int i = 0; i < s->limits.n_sizes && s->limits.sizes[i] <= rows; i++)
		size = s->limits.sizes[i];
	if (size && 2 * (size - answers) >= rows - answers)
		shorten(s, rows - size);
}

int jm_scheduler_step(struct jm_scheduler *s, const struct jm_piece **ret)
{
	int used;

	for (int i = 0; i < s->n_running; i++)
		s->request[s->running[i]].in_step = false;
	s->n_pieces = 0;
	used = add_pieces(s, false, s->limits.tokens);
	admit(s);
	add_pieces(s, true, s->limits.tokens - used);
	drop_preempted(s);
	avoid_padding(s);
	*ret = s->piece;
	return s->n_pieces;
}

void jm_scheduler_complete(struct jm_scheduler *s)
{
	for (int i = 0; i < s->n_pieces; i++) {
		const struct jm_piece *p = &s->piece[i];
		struct jm_request *r = &s->request[p->request];

		if (!r->in_step) /* cancelled meanwhile */
			continue;
		r->computed += p->n;
		r->made += p->makes;
		if (r->made < r->output)
			continue;
		if (r->heir >= 0)
			hand_on(s, r);
		end(s, r, JM_REQUEST_DONE);
	}
	s->n_pieces = 0;
}

const struct jm_request *jm_scheduler_request(const struct jm_scheduler *s, int number)
{
	return &s->request[number];
}

int jm_scheduler_requests(const struct jm_scheduler *s)
{
	return s->n;
}

int jm_scheduler_unfinished(const struct jm_scheduler *s)
{
	return s->unfinished;
}

int jm_scheduler_free_pages(const struct jm_scheduler *s)
{
	return s->n_free;
}
