/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step went, of each rank: computation is what waits leave, or unknown. */
#include "kit/test.h"
#include "workloads/parts/rank_times.h"

#include <jansson.h>
#include <math.h>

static void times_are(const struct jm_rank_time *time, int ranks, const double *computed)
{
	json_t *list = jm_rank_times_json(time, ranks, ranks);

	assert_int_equal(json_array_size(list), ranks);
	for (int r = 0; r < ranks; r++) {
		const json_t *given = json_object_get(json_array_get(list, (size_t)r), "compute_s");

		assert_non_null(given);
		if (isnan(computed[r]))
			assert_true(json_is_null(given));
		else
			assert_near(json_number_value(given), computed[r], 1e-12);
	}
	json_decref(list);
}

static struct jm_rank_time rank_of(double step, double exposed, double exposed_tp, double stage)
{
	struct jm_rank_time t = {step, exposed, exposed_tp, stage, {{NAN, NAN}}};

	for (int k = 0; k < JM_ACCOUNT_KINDS_N; k++)
		t.kind[k] = (struct jm_account_time){NAN, NAN};
	return t;
}

static void computation_is_what_waits_leave(void **state)
{
	const struct jm_rank_time time[] = {rank_of(0.5, 0.125, NAN, NAN),
		rank_of(0.5, NAN, 0.25, 0.125), rank_of(0.5, 0.5, NAN, NAN),
		rank_of(NAN, NAN, NAN, NAN)};

	(void)state;
	times_are(time, 4, (double[]){0.375, 0.125, 0, NAN});
}

/* A rank that was stopped in the last step keeps the other one waiting. */
static void a_long_wait_in_the_last_step_is_no_negative_computation(void **state)
{
	const struct jm_rank_time time[] = {
		rank_of(0.01, NAN, 0.002, NAN), rank_of(0.01, NAN, 0.026, NAN)};

	(void)state;
	times_are(time, 2, (double[]){0.008, NAN});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(computation_is_what_waits_leave),
		cmocka_unit_test(a_long_wait_in_the_last_step_is_no_negative_computation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
