/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of requests whose times are chosen here. */
#include "kit/test.h"
#include "workloads/serve/answers.h"

#define MS INT64_C(1000000)

/* A request that arrives at 1 s and ends so many ms later; its first token comes at half the
 * time. */
static void add(struct jm_answers *a, int output, int ms, enum jm_answer_state state)
{
	struct jm_answer one = {.input = 1, .output = output, .arrived = JM_SECOND};
	struct jm_err err = JM_ERR_INIT;

	assert_ok(jm_answers_add(a, &one, false, &err), err);
	if (state == JM_ANSWER_DONE)
		for (int i = 0; i < output; i++)
			assert_true(jm_answers_piece(
				a, a->n - 1, JM_SECOND + (i + 1 < output ? ms / 2 : ms) * MS));
	a->answer[a->n - 1].end = JM_SECOND + ms * MS;
	a->answer[a->n - 1].state = state;
}

static struct jm_answers bounded(double ttft, double tpot)
{
	return (struct jm_answers){.running = 1000, .ttft = ttft, .tpot = tpot};
}

static const json_t *figure(const struct jm_answers *a, const char *key, json_t **all)
{
	json_decref(*all);
	*all = jm_answers_json(a);
	return json_object_get(*all, key);
}

static void keeps_each_piece_also_beyond_those_asked_for(void **state)
{
	struct jm_answers a = bounded(NAN, NAN);

	(void)state;
	add(&a, 32, 10, JM_ANSWER_OPEN);
	for (int i = 0; i < 1000; i++)
		assert_true(jm_answers_piece(&a, 0, JM_SECOND + i));
	assert_int_equal(a.answer[0].n_when, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(a.answer[0].when[i], JM_SECOND + i);
	jm_answers_close(&a);
}

/* Of 101 requests the 99th percentile is the last but one, whatever the last one is; of 100 it lies
 * between both. */
static void failed_requests_are_the_slowest(void **state)
{
	struct jm_answers a = bounded(1, NAN);
	json_t *all = NULL;

	(void)state;
	for (int i = 0; i < 100; i++)
		add(&a, 2, 100, JM_ANSWER_DONE);
	assert_true(json_is_true(figure(&a, "p99_in_bounds", &all)));
	add(&a, 2, 100, JM_ANSWER_FAILED);
	assert_true(json_is_true(figure(&a, "p99_in_bounds", &all)));
	add(&a, 2, 100, JM_ANSWER_FAILED);
	assert_true(json_is_false(figure(&a, "p99_in_bounds", &all)));
	json_decref(all);
	jm_answers_close(&a);
}

static void each_bound_is_kept_by_its_own_percentile(void **state)
{
	static const struct {
		double ttft, tpot;
		bool kept;
	} bounds[] = {
		{0.05, 0.05, true}, {0.049, NAN, false}, {NAN, 0.049, false}, {NAN, 0.05, true}};
	json_t *all = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		struct jm_answers a = bounded(bounds[i].ttft, bounds[i].tpot);

		for (int k = 0; k < 10; k++)
			add(&a, 2, 100, JM_ANSWER_DONE); /* ttft and tpot are 50 ms */
		assert_int_equal(json_is_true(figure(&a, "p99_in_bounds", &all)), bounds[i].kept);
		jm_answers_close(&a);
	}
	json_decref(all);
}

static void what_is_unknown_is_null_and_what_is_none_is_0(void **state)
{
	struct jm_answers none = bounded(1, 1), failed = bounded(1, 1), free = bounded(NAN, NAN);
	json_t *all = NULL;

	(void)state;
	add(&none, 2, 100, JM_ANSWER_OPEN);
	assert_true(json_is_null(figure(&none, "p99_in_bounds", &all)));
	assert_true(json_is_null(figure(&none, "goodput", &all)));
	add(&failed, 2, 100, JM_ANSWER_FAILED);
	assert_true(json_is_false(figure(&failed, "p99_in_bounds", &all)));
	assert_true(json_real_value(figure(&failed, "goodput", &all)) == 0);
	assert_true(json_is_real(figure(&failed, "goodput", &all)));
	add(&free, 2, 100, JM_ANSWER_DONE);
	assert_true(json_is_null(figure(&free, "p99_in_bounds", &all)));
	json_decref(all);
	jm_answers_close(&none);
	jm_answers_close(&failed);
	jm_answers_close(&free);
}

/* 100 arrive from 1 s to 1.99 s and are answered 5 s later, so none is done from the 10th to the
 * 90th percentile of arrivals. */
static void a_window_without_a_request_has_no_percentiles(void **state)
{
	struct jm_answers a = bounded(10, NAN);
	json_t *all = NULL;

	(void)state;
	a.timed = true;
	for (int i = 0; i < 100; i++) {
		add(&a, 2, 5000, JM_ANSWER_DONE);
		a.answer[i].arrived += i * 10 * MS;
	}
	jm_answers_find_window(&a, 0);
	assert_true(a.window.t1_ns > a.window.t0_ns);
	assert_true(json_is_null(figure(&a, "p99_in_bounds", &all)));
	/* 79 arrive in the 0.79 s between the two percentiles, 1.1 s and 1.89 s */
	assert_near(json_real_value(figure(&a, "goodput", &all)), 79 / 0.79, 1e-9);
	json_decref(all);
	jm_answers_close(&a);
}

/* 100 arrive within a second; what came before them, 50 at once, is answered meanwhile. */
static void goodput_is_not_above_the_rate_of_arrivals(void **state)
{
	struct jm_answers a = bounded(10, NAN);
	json_t *all = NULL;

	(void)state;
	a.timed = true;
	for (int i = 0; i < 150; i++) {
		add(&a, 2, i < 50 ? 500 : 100, JM_ANSWER_DONE);
		a.answer[i].arrived += i < 50 ? 0 : (i - 49) * 10 * MS;
		a.answer[i].end = i < 50 ? a.answer[i].end : a.answer[i].arrived + 100 * MS;
	}
	jm_answers_find_window(&a, JM_SECOND + 100 * MS);
	assert_near(json_real_value(figure(&a, "goodput", &all)), 100, 1.5);
	/* one of them is still open, and keeps its bound so far: those before it count */
	a.answer[100].state = JM_ANSWER_OPEN;
	assert_near(json_real_value(figure(&a, "goodput", &all)), 100, 3);
	/* its first token came too late: it is judged, and the whole window counts without it */
	a.answer[100].first = a.answer[100].arrived + 11 * JM_SECOND;
	assert_near(json_real_value(figure(&a, "goodput", &all)), 98, 1.5);
	json_decref(all);
	jm_answers_close(&a);
}

/* 1000 arrive within a second, and one of them is answered each 10 ms. */
static void goodput_without_a_bound_of_ttft_is_not_above_the_rate_of_answers(void **state)
{
	struct jm_answers a = bounded(NAN, 1), late = bounded(10, 1);
	json_t *all = NULL;

	(void)state;
	a.timed = late.timed = true;
	for (int i = 0; i < 1000; i++) {
		bool done = i < 100;

		add(&a, 1, (i + 1) * 10, done ? JM_ANSWER_DONE : JM_ANSWER_OPEN);
		a.answer[i].arrived += i * MS;
		add(&late, 1, (i + 1) * 10, i < 50 ? JM_ANSWER_DONE : JM_ANSWER_OPEN);
		late.answer[i].arrived += i * MS;
	}
	jm_answers_find_window(&a, 0);
	assert_near(json_real_value(figure(&a, "goodput", &all)), 100, 1.5);
	/* of those that arrive in the window none was judged when the run ended */
	jm_answers_find_window(&late, 0);
	assert_true(json_is_null(figure(&late, "goodput", &all)));
	json_decref(all);
	jm_answers_close(&a);
	jm_answers_close(&late);
}

/* Counted anew: a request is late from its bound on, also while it waits, and if it failed. */
static struct jm_late late_of_all(const struct jm_answers *a, int64_t now)
{
	struct jm_late late = {0};

	for (int i = 0; i < a->n; i++) {
		const struct jm_answer *one = &a->answer[i];
		int64_t ttft = (one->first ? one->first : now) - one->arrived;
		bool failed = one->state == JM_ANSWER_FAILED;
		double tpot = one->state == JM_ANSWER_DONE ? (double)(one->end - one->first) : 0;

		late.ttft += failed || (double)ttft > a->ttft * 1e9;
		late.tpot += failed || tpot > a->tpot * 1e9 * (one->output - 1);
	}
	return late;
}

/* While requests arrive, and end in another order: at each time those of all requests. */
static void late_requests_are_counted_as_they_end(void **state)
{
	struct jm_answers a = bounded(0.02, 0.004);
	struct jm_late found = {0};
	unsigned int random = 1;

	(void)state;
	for (int now = 0; now < 2000; now++) {
		int64_t t = JM_SECOND + now * MS;

		if (now < 1000) {
			add(&a, 5, 0, JM_ANSWER_OPEN);
			a.answer[now].arrived = t;
		}
		for (int k = 0; k < 4; k++) {
			struct jm_answer *one;

			random = random * 1664525 + 1013904223;
			one = &a.answer[a.n - 1 - (int)(random >> 8) % (a.n < 40 ? a.n : 40)];
			if (one->state == JM_ANSWER_OPEN && one->n_when < 5)
				assert_true(jm_answers_piece(&a, (int)(one - a.answer), t));
			if (one->n_when == 5)
				one->state = JM_ANSWER_DONE;
			else if (random % 97 == 0 && one->state == JM_ANSWER_OPEN)
				one->state = JM_ANSWER_FAILED;
		}
		found = jm_answers_late(&a, t);
		assert_int_equal(found.ttft, late_of_all(&a, t).ttft);
		assert_int_equal(found.tpot, late_of_all(&a, t).tpot);
	}
	assert_in_range(found.ttft, 10, 990);
	assert_in_range(found.tpot, 10, 990);
	assert_true(a.n_ended > 0);
	jm_answers_close(&a);
}

/* All tokens of an answer come in one event: nothing is known of the time from one to the next. */
static void tokens_in_one_piece_keep_no_bound_of_tpot(void **state)
{
	struct jm_answers a = bounded(NAN, 10), free = bounded(NAN, NAN);
	json_t *all = NULL;

	(void)state;
	add(&a, 1, 100, JM_ANSWER_DONE);
	assert_true(json_is_true(figure(&a, "p99_in_bounds", &all))); /* it has no further token */
	a.answer[0].output = 10;
	assert_true(json_is_null(figure(&a, "tpot", &all)));
	assert_true(json_is_false(figure(&a, "p99_in_bounds", &all)));
	assert_true(json_real_value(figure(&a, "goodput", &all)) == 0);
	assert_int_equal(jm_answers_late(&a, 2 * JM_SECOND).tpot, 1);
	add(&free, 1, 100, JM_ANSWER_DONE);
	free.answer[0].output = 10;
	assert_true(json_is_null(figure(&free, "p99_in_bounds", &all)));
	json_decref(all);
	jm_answers_close(&a);
	jm_answers_close(&free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_each_piece_also_beyond_those_asked_for),
		cmocka_unit_test(failed_requests_are_the_slowest),
		cmocka_unit_test(each_bound_is_kept_by_its_own_percentile),
		cmocka_unit_test(what_is_unknown_is_null_and_what_is_none_is_0),
		cmocka_unit_test(a_window_without_a_request_has_no_percentiles),
		cmocka_unit_test(late_requests_are_counted_as_they_end),
		cmocka_unit_test(tokens_in_one_piece_keep_no_bound_of_tpot),
		cmocka_unit_test(goodput_is_not_above_the_rate_of_arrivals),
		cmocka_unit_test(goodput_without_a_bound_of_ttft_is_not_above_the_rate_of_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
