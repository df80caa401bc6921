/* SPDX-License-Identifier: Apache-2.0 */
/* The times at which a counter that is slow to read is read, for counters with known steps and a
 * clock that advances by each reading. */
#include "kit/test.h"
#include "base/clock.h"
#include "meter/read_budget.h"

#define MS	JM_MILLISECOND
#define REFRESH (100 * MS)
#define MAX	8

struct world {
	int n;
	int64_t now, cost, spent, poll; /* ns */
	int64_t hiccup;			/* ns more that each 50th reading takes */
	struct jm_read_budget budget;
	struct jm_read_pace pace[MAX];
	int64_t phase[MAX], period;
	long reads[MAX];
	/* the last step seen between two readings */
	int64_t last_read[MAX], low[MAX], high[MAX], step[MAX];
	double last[MAX];
};

static void build(struct world *w, int n, int64_t cost, int64_t refresh)
{
	*w = (struct world){.n = n, .now = JM_SECOND, .cost = cost, .poll = 50 * MS};
	w->period = REFRESH + REFRESH / 10000; /* as an H200's */
	for (int i = 0; i < n; i++) {
		w->phase[i] = (i + 1) * 61803399 % REFRESH;
		jm_read_pace_init(&w->pace[i], &w->budget, refresh);
	}
}

static double value_at(const struct world *w, int i, int64_t t)
{
	return (double)((t - w->phase[i]) / w->period);
}

static void read_one(struct world *w, int i)
{
	int64_t begin = w->now, cost = w->cost;
	double value;

	if (++w->reads[i] % 50 == 0)
		cost += w->hiccup;
	w->now += cost;
	w->spent += cost;
	value = value_at(w, i, w->now - cost / 2);
	if (w->reads[i] > 1 && value == w->last[i] + 1) {
		w->low[i] = w->last_read[i];
		w->high[i] = w->now;
		w->step[i] = w->phase[i] + w->period * (int64_t)value;
	}
	w->last[i] = value;
	w->last_read[i] = begin;
	jm_read_pace_told(&w->pace[i], &w->budget, begin, w->now, cost, value);
}

/* As the source nvml does: polls at w->poll or when a pace wants one, at an edge every 5 ms. */
static void run(struct world *w, int64_t until)
{
	while (w->now < until) {
		int64_t next = w->now + w->poll, round = w->now;

		for (;;) {
			int best = -1;

			for (int i = 0; i < w->n; i++)
				if (w->pace[i].last_begin < round &&
					jm_read_pace_wants(&w->pace[i], &w->budget, w->now) &&
					(best < 0 || jm_read_pace_urgency(&w->pace[i]) <
							     jm_read_pace_urgency(&w->pace[best])))
					best = i;
			if (best < 0)
				break;
			read_one(w, best);
		}
		for (int i = 0; i < w->n; i++) {
			int64_t due = jm_read_pace_due(&w->pace[i]);

			if (jm_read_pace_watches(&w->pace[i]) && w->now + 5 * MS < next)
				next = w->now + 5 * MS;
			next = due < next ? due : next;
		}
		w->now = next > w->now + MS / 5 ? next : w->now + MS / 5;
	}
}

/* An edge, watched for a refresh at most. */
static void edge(struct world *w)
{
	int64_t until = w->now + REFRESH + REFRESH / 10;

	for (int i = 0; i < w->n; i++)
		jm_read_pace_edge(&w->pace[i], true);
	for (bool watching = true; watching && w->now < until;) {
		run(w, w->now + 1);
		watching = false;
		for (int i = 0; i < w->n; i++)
			watching = watching || jm_read_pace_watches(&w->pace[i]);
	}
	for (int i = 0; i < w->n; i++)
		jm_read_pace_edge(&w->pace[i], false);
}

static void check_step(const struct world *w, int i, int64_t after, int64_t widest)
{
	assert_true(w->low[i] <= w->step[i] && w->step[i] <= w->high[i]);
	if (w->high[i] <= after || w->high[i] - w->low[i] > widest)
		fail_msg("edge %lld: step in %lld, %lld", (long long)after, (long long)w->low[i],
			(long long)w->high[i]);
}

static void test_spends_a_fiftieth(void **state)
{
	static const int64_t costs[] = {9 * MS / 10, 3 * MS, 6 * MS, 20 * MS};

	(void)state;
	for (size_t k = 0; k < sizeof(costs) / sizeof(costs[0]); k++) {
		for (int n = 1; n <= 8; n += 7) {
			for (int64_t poll = MS; poll <= 50 * MS; poll += 49 * MS) {
				int64_t before;
				struct world w;

				build(&w, n, costs[k], REFRESH);
				w.poll = poll;
				edge(&w);
				run(&w, 5 * JM_SECOND);
				before = w.spent;
				run(&w, 305 * JM_SECOND);
				assert_true(
					w.spent - before <= 300 * JM_SECOND / JM_READ_BUDGET_SHARE);
				assert_true(
					w.spent - before >= 150 * JM_SECOND / JM_READ_BUDGET_SHARE);
				for (int i = 0; i < n; i++) /* each has its turn */
					assert_true(w.reads[i] > w.reads[0] / 3);
			}
		}
	}
}

/* The step after an edge is seen between two readings that are near, with few of them. */
static void test_edge_of_one(void **state)
{
	struct world w;

	(void)state;
	build(&w, 1, 3 * MS, REFRESH);
	edge(&w);
	check_step(&w, 0, 0, 12 * MS);
	run(&w, 10 * JM_SECOND);
	for (int k = 0; k < 200; k++) {
		int64_t began;
		long reads;

		run(&w, w.now + 1234567891 + k * 7919 * MS / 100);
		began = w.now;
		reads = w.reads[0];
		edge(&w);
		check_step(&w, 0, began, 20 * MS);
		assert_true(w.reads[0] - reads <= 6);
		/* seen before that step, and after the edge: unless it came within the reading */
		assert_true(w.low[0] >= began || w.high[0] - began < 12 * MS);
	}
}

/* Of eight counters, 2 s to 2 min after the edge before; the sensor's clock is slow. */
static void test_edge_of_eight(void **state)
{
	static const struct {
		int64_t cost, wait;
	} rows[] = {{3 * MS, 1}, {3 * MS, 60}, {5 * MS, 4}, {5 * MS, 60}};

	(void)state;
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		int told = 0;
		struct world w;

		build(&w, 8, rows[row].cost, REFRESH);
		w.period = REFRESH + 9 * REFRESH / 10000;
		edge(&w);
		run(&w, 10 * JM_SECOND);
		for (int k = 0; k < 50; k++) {
			int64_t began;

			run(&w, w.now + rows[row].wait * 1034567891 + k * 7919 * MS / 100);
			began = w.now;
			edge(&w);
			for (int i = 0; i < 8; i++)
				told += w.high[i] > began && w.high[i] - w.low[i] <= 40 * MS;
		}
		print_message("%d of 400 steps\n", told);
		assert_true(told > 0.85 * 50 * 8);
	}
}

static void test_cheap_is_read_whenever_asked(void **state)
{
	struct world w;

	(void)state;
	build(&w, 8, 2000, REFRESH);
	w.poll = MS;
	run(&w, 3 * JM_SECOND);
	for (int i = 0; i < 8; i++)
		assert_true(w.reads[i] > 1900);
}

/* A reading that takes long for another reason does not make a counter count as slow. */
static void test_hiccups(void **state)
{
	struct world w;

	(void)state;
	build(&w, 8, 10000, REFRESH);
	w.poll = MS;
	w.hiccup = 5 * MS;
	run(&w, 3 * JM_SECOND);
	for (int i = 0; i < 8; i++)
		assert_true(w.reads[i] > 250);
}

/* What is known of a step holds, with a clock of the sensor's that is slow, and seconds between
 * readings. */
static void test_steps_known_are_true(void **state)
{
	struct world w;

	(void)state;
	build(&w, 8, 6 * MS, REFRESH);
	w.period = REFRESH + 9 * REFRESH / 10000;
	for (int i = 0; i < 8; i++)
		edge(&w);
	for (int k = 0; k < 2000; k++) {
		run(&w, w.now + 100 * MS);
		for (int i = 0; i < 8; i++) {
			const struct jm_read_pace *p = &w.pace[i];

			assert_true(!p->hi || value_at(&w, i, p->hi) > value_at(&w, i, p->lo));
		}
	}
	for (int i = 0; i < 8; i++)
		assert_true(w.pace[i].hi > w.now - 30 * JM_SECOND);
}

/* Steps that have moved by a little are found again without a search, which takes many readings. */
static void test_steps_that_move_are_followed(void **state)
{
	struct jm_read_pace *p;
	struct world w;
	int64_t moved;

	(void)state;
	build(&w, 1, 3 * MS, REFRESH);
	p = &w.pace[0];
	edge(&w);
	run(&w, 10 * JM_SECOND);
	while (p->state != JM_READ_PACE_REST)
		run(&w, w.now + 1);
	w.phase[0] += 3 * MS + (p->hi - p->lo);
	moved = w.now;
	while (w.now < moved + 2 * JM_SECOND) {
		run(&w, w.now + 1);
		assert_true(p->state != JM_READ_PACE_SEARCH);
	}
	assert_true(p->hi > moved && value_at(&w, 0, p->hi) > value_at(&w, 0, p->lo));
}

static void test_unknown_refresh(void **state)
{
	int64_t before;
	struct world w;

	(void)state;
	build(&w, 1, 3 * MS, 0);
	edge(&w);
	assert_true(w.reads[0] >= 5);
	run(&w, 5 * JM_SECOND);
	before = w.spent;
	run(&w, 65 * JM_SECOND);
	assert_true(w.spent - before <= 60 * JM_SECOND / JM_READ_BUDGET_SHARE);
	assert_true(w.spent - before >= 25 * JM_SECOND / JM_READ_BUDGET_SHARE);
}

static void test_the_dead_lose_their_turn(void **state)
{
	long reads;
	struct world w;

	(void)state;
	build(&w, 3, 3 * MS, REFRESH);
	edge(&w);
	run(&w, 3 * JM_SECOND);
	reads = w.reads[2];
	for (int k = 0; k < 500; k++) {
		jm_read_pace_drop(&w.pace[1], &w.budget);
		run(&w, w.now + 10 * MS);
	}
	assert_true(w.reads[2] > reads + 3);
	jm_read_pace_edge(&w.pace[1], true);
	jm_read_pace_drop(&w.pace[1], &w.budget);
	assert_false(jm_read_pace_watches(&w.pace[1]));
}

/* It was left during an edge, whose end it was not told: it saves again when it returns. */
static void test_one_that_returns_is_at_no_edge(void **state)
{
	struct world w;

	(void)state;
	build(&w, 1, MS / 10, REFRESH);
	run(&w, 3 * JM_SECOND);
	jm_read_pace_edge(&w.pace[0], true);
	jm_read_pace_drop(&w.pace[0], &w.budget);
	read_one(&w, 0);
	assert_false(jm_read_pace_wants(&w.pace[0], &w.budget, w.now));
}

/* An edge at which the poll comes too late for the reading before the step. */
static void late_edge(struct world *w)
{
	jm_read_pace_edge(&w->pace[0], true);
	run(w, w->now + 1);
	assert_int_equal(w->pace[0].state, JM_READ_PACE_BEFORE);
	w->now = w->pace[0].from + MS;
	run(w, w->now + REFRESH / 4);
	jm_read_pace_edge(&w->pace[0], false);
}

/* Without it no step was seen, wherever one was expected: the next one is looked at. */
static void test_a_missed_reading(void **state)
{
	struct world w;

	(void)state;
	for (int k = 0; k < 40; k++) {
		int64_t shift = k % 4 * (REFRESH / 4);
		struct jm_read_pace *p = &w.pace[0];
		int64_t began;

		build(&w, 1, 12 * MS, REFRESH);
		edge(&w);
		run(&w, 10 * JM_SECOND + k * 77777 * MS / 1000);
		while (p->state != JM_READ_PACE_REST)
			run(&w, w.now + 1);
		p->lo = w.step[0] - MS; /* well known */
		p->hi = w.step[0] + MS;
		w.phase[0] -= shift; /* what is known of its steps is wrong then */
		began = w.now;
		late_edge(&w);
		run(&w, began + 4 * REFRESH); /* no other reason to read it so soon */
		if (!shift)
			check_step(&w, 0, began, REFRESH / 6 + 2 * w.cost);
		if (p->hi > began)
			assert_true(value_at(&w, 0, p->hi) > value_at(&w, 0, p->lo));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spends_a_fiftieth),
		cmocka_unit_test(test_edge_of_one),
		cmocka_unit_test(test_edge_of_eight),
		cmocka_unit_test(test_one_that_returns_is_at_no_edge),
		cmocka_unit_test(test_a_missed_reading),
		cmocka_unit_test(test_cheap_is_read_whenever_asked),
		cmocka_unit_test(test_hiccups),
		cmocka_unit_test(test_steps_known_are_true),
		cmocka_unit_test(test_steps_that_move_are_followed),
		cmocka_unit_test(test_unknown_refresh),
		cmocka_unit_test(test_the_dead_lose_their_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
