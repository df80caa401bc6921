/* SPDX-License-Identifier: Apache-2.0 */
/* Waits and steps are means over the same steps: the last one, whose end is unknown, is left out of
 * both. In host memory, where the test says how long each wait took. */
#include <math.h>

#include "engine/run/account.h"
#include "kit/test.h"

static struct jm_waits *new_waits(void)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_waits *w = NULL;

	assert_ok(jm_waits_new(NULL, JM_QUEUE_COMM, 0, &w, &err), err);
	return w;
}

static void a_long_wait_in_the_last_step_is_in_no_mean(void **unused)
{
	struct jm_waits *clock = new_waits(), *more = new_waits();
	struct jm_account account = {.beside = more};
	double waited, step;

	(void)unused;
	jm_account_count_by(&account, clock);
	jm_waits_add(clock, 100); /* before the first step begins */
	for (int i = 0; i < 3; i++) {
		jm_waits_step(clock);
		jm_waits_add(clock, i < 2 ? 2 : 100);
		jm_waits_add(more, i < 2 ? 3 : 100);
		jm_waits_add(more, i < 2 ? 1 : 100);
	}
	jm_waits_means(clock, &waited, &step);
	assert_float_equal(waited, 2, 1e-12);
	assert_true(step >= 0 && step < 60);
	assert_int_equal(jm_waits_steps(clock), 2);
	assert_float_equal(jm_account_time(&account, jm_waits_steps(clock)).busy, 4, 1e-12);
	jm_waits_free(clock);
	jm_account_free(&account);
}

/* Nothing else is known of it; and a reset forgets all. */
static void an_only_step_counts(void **unused)
{
	struct jm_waits *clock = new_waits();
	double waited, step;

	(void)unused;
	for (int round = 0; round < 2; round++) {
		jm_waits_step(clock);
		jm_waits_add(clock, 5);
		jm_waits_means(clock, &waited, &step);
		assert_float_equal(waited, 5, 1e-12);
		assert_true(isnan(step));
		jm_waits_reset(clock);
	}
	jm_waits_free(clock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_wait_in_the_last_step_is_in_no_mean),
		cmocka_unit_test(an_only_step_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
