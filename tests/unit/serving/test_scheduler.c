/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler under random arrivals, cancels and preemptions. The test keeps a cache of its own:
 * for each slot of each page which token of which request it holds. Whatever the scheduler decides,
 * a row must find all earlier tokens of its request there, and no other.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kit/test.h"
#include "serving/scheduler.h"

enum { PAGES = 16, SLOTS = 4, EACH = 12, RUNNING = 6, TOKENS = 16, REQUESTS = 1000000 };

struct held {
	int request, position;
};

struct world {
	struct jm_scheduler *s;
	struct held cache[PAGES][SLOTS];
	int made[REQUESTS]; /* tokens that steps made, by request */
	int first;	    /* those before it have ended */
	uint64_t seed;
	int preempted, cancelled;
	int latest;    /* request that arrived just before the step; -1 = none */
	bool has_room; /* what the scheduler said of it */
	int roomy;     /* steps for whose latest request there was room */
};

static int draw(struct world *w, int below)
{
	w->seed = w->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (int)((w->seed >> 33) % (uint64_t)below);
}

static struct held *slot_of(struct world *w, const struct jm_request *r, int position)
{
	if (position / SLOTS >= r->n_pages)
		fail_msg("position %d has no page", position);
	return &w->cache[r->page[position / SLOTS]][position % SLOTS];
}

/* Each page is free or belongs to one running request; waiting and ended ones have none. */
static void check_owners(struct world *w)
{
	int owned = 0, slots[RUNNING] = {0}, n = jm_scheduler_requests(w->s);
	bool taken[PAGES] = {false};

	while (w->first < n && jm_scheduler_request(w->s, w->first)->state >= JM_REQUEST_DONE)
		assert_int_equal(jm_scheduler_request(w->s, w->first++)->n_pages, 0);
	for (int i = w->first; i < n; i++) {
		const struct jm_request *r = jm_scheduler_request(w->s, i);

		if (r->state != JM_REQUEST_RUNNING) {
			assert_int_equal(r->n_pages, 0);
			continue;
		}
		assert_in_range(r->slot, 0, RUNNING - 1);
		assert_int_equal(slots[r->slot]++, 0);
		for (int p = 0; p < r->n_pages; p++) {
			assert_in_range(r->page[p], 0, PAGES - 1);
			assert_false(taken[r->page[p]]);
			taken[r->page[p]] = true;
			owned++;
		}
	}
	assert_int_equal(owned + jm_scheduler_free_pages(w->s), PAGES);
}

/* Stores the tokens of the piece, and reads those before them. */
static void compute(struct world *w, const struct jm_piece *p)
{
	const struct jm_request *r = jm_scheduler_request(w->s, p->request);

	assert_int_equal(r->state, JM_REQUEST_RUNNING);
	assert_true(p->n > 0 && p->from + p->n <= r->input + w->made[p->request]);
	assert_true(p->makes == (p->from + p->n == r->input + w->made[p->request]));
	for (int i = 0; i < p->n; i++)
		*slot_of(w, r, p->from + i) = (struct held){p->request, p->from + i};
	for (int i = 0; i < p->from + p->n; i++) {
		const struct held *held = slot_of(w, r, i);

		if (held->request != p->request || held->position != i)
			fail_msg("position %d of request %d is lost", i, p->request);
	}
	w->made[p->request] += p->makes;
}

static const int sizes[] = {1, 2, 4, 6, 8, 12, 16};

/* A step is padded only where the next smaller size would leave less than half of the rows of
 * prompts. */
static void check_size(const struct jm_piece *piece, int n, int rows)
{
	int smaller = 0, answers = 0;

	for (int i = 0; i < (int)(sizeof(sizes) / sizeof(*sizes)); i++) {
		if (sizes[i] == rows)
			return;
		smaller = sizes[i] < rows ? sizes[i] : smaller;
	}
	for (int i = 0; i < n; i++)
		answers += piece[i].n == 1 && piece[i].makes;
	assert_true(smaller - answers < rows - smaller);
}

/* A request begins with the next step where there was room for it, and only there. */
static void check_room(struct world *w)
{
	bool runs = w->latest >= 0 &&
		    jm_scheduler_request(w->s, w->latest)->state == JM_REQUEST_RUNNING;

	if (w->latest >= 0)
		assert_int_equal(runs, w->has_room);
	w->roomy += runs;
	w->latest = -1;
}

static void step(struct world *w)
{
	const struct jm_piece *piece;
	int n = jm_scheduler_step(w->s, &piece), rows = 0;

	check_room(w);
	assert_true(n > 0 || !jm_scheduler_unfinished(w->s));
	assert_in_range(n, 0, RUNNING);
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < i; k++)
			assert_int_not_equal(piece[k].request, piece[i].request);
		rows += piece[i].n;
		compute(w, &piece[i]);
	}
	assert_in_range(rows, 0, TOKENS);
	if (rows)
		check_size(piece, n, rows);
	if (n && draw(w, 20) == 0) { /* while the step is computed */
		jm_scheduler_cancel(w->s, piece[0].request);
		w->cancelled++;
	}
	jm_scheduler_complete(w->s);
}

/* Returns 1. */
static int arrive(struct world *w)
{
	struct jm_err err = JM_ERR_INIT;
	int input = 1 + draw(w, 30), output = 1 + draw(w, 18), number, before;

	before = jm_scheduler_requests(w->s);
	w->has_room = jm_scheduler_has_room(w->s, input);
	assert_ok(jm_scheduler_add(w->s, input, output, &number, &err), err);
	assert_int_equal(number, before);
	w->latest = number;
	return 1;
}

static void check_ends(struct world *w)
{
	for (int i = 0; i < jm_scheduler_requests(w->s); i++) {
		const struct jm_request *r = jm_scheduler_request(w->s, i);

		w->preempted += r->preempted;
		if (r->state == JM_REQUEST_CANCELLED)
			continue;
		assert_int_equal(r->state, JM_REQUEST_DONE);
		assert_int_equal(w->made[i], r->output);
	}
}

static const struct jm_scheduler_limits limits = {.running = RUNNING,
	.tokens = TOKENS,
	.pages = PAGES,
	.page_tokens = SLOTS,
	.pages_each = EACH,
	.sizes = sizes,
	.n_sizes = sizeof(sizes) / sizeof(*sizes)};

static void no_page_leaks_or_has_two_owners(void **unused)
{
	struct world *w = calloc(1, sizeof(*w));
	struct jm_err err = JM_ERR_INIT;

	(void)unused;
	w->seed = 3;
	w->latest = -1;
	assert_ok(jm_scheduler_new(&limits, &w->s, &err), err);
	for (int round = 0, n = 0; n < REQUESTS || jm_scheduler_unfinished(w->s); round++) {
		int most = round / 1000 % 2 ? 5 : 20; /* with 5 there may be room */

		n = jm_scheduler_requests(w->s);
		while (n < REQUESTS && jm_scheduler_unfinished(w->s) < most && draw(w, 2))
			n += arrive(w);
		if (n && draw(w, 50) == 0) {
			jm_scheduler_cancel(w->s, n - 1 - draw(w, n < 20 ? n : 20));
			w->latest = -1;
		}
		step(w);
		if (round % 16 == 0)
			check_owners(w);
	}
	assert_int_equal(jm_scheduler_unfinished(w->s), 0);
	assert_int_equal(jm_scheduler_free_pages(w->s), PAGES);
	check_ends(w);
	assert_true(w->preempted > 10000); /* else the test tests little */
	assert_true(w->cancelled > 10000);
	assert_true(w->roomy > 10000);
	jm_scheduler_free(w->s);
	free(w);
}

static void what_never_fits_is_refused_at_once(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_scheduler *s;
	int number;

	(void)unused;
	assert_ok(jm_scheduler_new(&limits, &s, &err), err);
	assert_int_equal(jm_scheduler_add(s, EACH * SLOTS, 2, &number, &err), JM_ERANGE);
	assert_non_null(strstr(err.text, "13 pages"));
	err = (struct jm_err)JM_ERR_INIT;
	assert_ok(jm_scheduler_add(s, EACH * SLOTS, 1, &number, &err), err);
	assert_int_equal(jm_scheduler_unfinished(s), 1);
	jm_scheduler_free(s);
}

/* Runs steps until the request has ended. */
static void finish(struct jm_scheduler *s, int number)
{
	const struct jm_piece *piece;

	while (jm_scheduler_request(s, number)->state < JM_REQUEST_DONE) {
		assert_int_equal(jm_scheduler_step(s, &piece), 1);
		jm_scheduler_complete(s);
	}
}

/* A prompt of two pages and a half, whose answer fills five. */
static void an_heir_has_the_pages_of_the_prompt(void **unused)
{
	enum { INPUT = 2 * SLOTS + SLOTS / 2, OUTPUT = 2 * SLOTS };
	struct jm_err err = JM_ERR_INIT;
	const struct jm_piece *piece;
	struct jm_scheduler *s;
	int first, heir, page[3];

	(void)unused;
	assert_ok(jm_scheduler_new(&limits, &s, &err), err);
	assert_ok(jm_scheduler_add(s, INPUT, OUTPUT, &first, &err), err);
	while (jm_scheduler_request(s, first)->made + 1 < OUTPUT) {
		jm_scheduler_step(s, &piece);
		jm_scheduler_complete(s);
	}
	assert_int_equal(jm_scheduler_step(s, &piece), 1);
	for (int i = 0; i < 3; i++)
		page[i] = jm_scheduler_request(s, first)->page[i];
	assert_ok(jm_scheduler_add_after(s, first, 2, &heir, &err), err);
	jm_scheduler_complete(s);
	assert_int_equal(jm_scheduler_request(s, first)->state, JM_REQUEST_DONE);
	assert_int_equal(jm_scheduler_free_pages(s), PAGES - 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(jm_scheduler_request(s, heir)->page[i], page[i]);
	assert_int_equal(jm_scheduler_step(s, &piece), 1);
	assert_int_equal(piece[0].request, heir);
	assert_int_equal(piece[0].from, INPUT - 1); /* one row, which makes the first token */
	assert_true(piece[0].n == 1 && piece[0].makes);
	finish(s, heir);
	assert_int_equal(jm_scheduler_free_pages(s), PAGES);
	assert_int_equal(jm_scheduler_unfinished(s), 0);
	jm_scheduler_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_heir_has_the_pages_of_the_prompt),
		cmocka_unit_test(no_page_leaks_or_has_two_owners),
		cmocka_unit_test(what_never_fits_is_refused_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
