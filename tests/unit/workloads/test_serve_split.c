/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a run's steps, divided between prompts and answers, compared with sums over all of
 * them. */
#include "kit/test.h"
#include "workloads/serve/serve_split.h"

#include <jansson.h>

#define STEPS 300000
#define STEP  JM_MILLISECOND

static struct jm_work work = {.world = 1, .seed = 3};

/* Every second step is one of prompts, which takes three times as long. */
static struct jm_work_window play(struct serve *s, int steps)
{
	const struct jm_serve_flight prompts = {.flops_prompts = 1},
				     answers = {.flops_answers = 1, .answers = 4};
	int64_t now = JM_SECOND;

	for (int i = 0; i < steps; i++) {
		int64_t takes = i % 2 ? 3 * STEP : STEP;

		now += takes;
		jm_serve_split_step(s, i % 2 ? &prompts : &answers, now, (double)takes / 1e9);
	}
	return (struct jm_work_window){.t0_ns = JM_SECOND, .t1_ns = now};
}

static double prefill_of(int steps, int *ret_kept)
{
	struct jm_err err = JM_ERR_INIT;
	struct serve s = {.work = &work};
	json_t *json;
	double ret;

	s.all = &s.load.answers;
	assert_ok(jm_serve_split_open(&s, &err), err);
	s.all->window = play(&s, steps);
	json = jm_serve_split_json(&s);
	ret = json_real_value(json_object_get(json, "prefill"));
	*ret_kept = s.n_timed;
	json_decref(json);
	jm_serve_split_close(&s);
	return ret;
}

static void a_long_run_keeps_a_fair_sample_of_its_steps(void **state)
{
	int kept;

	(void)state;
	assert_near(prefill_of(1000, &kept), 0.75, 1e-12);
	assert_int_equal(kept, 1000);
	assert_near(prefill_of(STEPS, &kept), 0.75, 0.01);
	assert_in_range(kept, JM_SERVE_TIMED_MOST / 3, JM_SERVE_TIMED_MOST);
}

static void steps_are_kept_only_where_they_can_be_divided(void **state)
{
	struct jm_work ranks = {.world = 2};
	struct serve one = {.work = &work, .phase = JM_SERVE_PREFILL}, two = {.work = &ranks};
	struct serve *all[] = {&one, &two};
	struct jm_err err = JM_ERR_INIT;

	(void)state;
	for (int i = 0; i < 2; i++) {
		all[i]->all = &all[i]->load.answers;
		assert_ok(jm_serve_split_open(all[i], &err), err);
		all[i]->all->window = play(all[i], 100);
		assert_int_equal(all[i]->n_timed, 0);
		assert_true(json_is_null(jm_serve_split_json(all[i])));
		jm_serve_split_close(all[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_run_keeps_a_fair_sample_of_its_steps),
		cmocka_unit_test(steps_are_kept_only_where_they_can_be_divided),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
