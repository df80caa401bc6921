/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of steps: one each while there is room, then joined, with nothing lost of time and items. */
#include "kit/test.h"

#include "run/worker/step_series.h"

#include <math.h>

#define MS 1000000LL

static struct jm_step_series series;

static double at(const json_t *json, const char *key, size_t i)
{
	return json_number_value(json_array_get(json_object_get(json, key), i));
}

/* Step i takes 1 + i % 3 ms and has 10 + i % 7 items; every 100th begins a phase after a gap of one
 * second. */
static json_t *series_of(long steps, double *ret_seconds, double *ret_items)
{
	int64_t now = 5000 * MS;

	series = (struct jm_step_series){0};
	*ret_seconds = *ret_items = 0;
	for (long i = 0; i < steps; i++) {
		double items = 10 + (double)(i % 7);

		if (i % 100 == 0) {
			now += 1000 * MS;
			jm_step_series_begin(&series, now);
		}
		now += (1 + i % 3) * MS;
		jm_step_series_add(&series, now, items, (double)(i + 1));
		*ret_seconds += 1e-3 * (double)(1 + i % 3);
		*ret_items += items;
	}
	return jm_step_series_json(&series, 5000 * MS);
}

/* Steps of row i. */
static long length(const json_t *json, size_t i)
{
	long every = (long)json_integer_value(json_object_get(json, "every"));
	long steps = (long)json_integer_value(json_object_get(json, "steps"));
	long left = steps - every * (long)i;

	return left < every ? left : every;
}

static void check_rows(long steps, long every, size_t rows)
{
	double seconds, items;
	json_t *json = series_of(steps, &seconds, &items);
	long done = 0;

	assert_int_equal(json_integer_value(json_object_get(json, "every")), every);
	assert_int_equal(json_integer_value(json_object_get(json, "steps")), steps);
	assert_int_equal(json_array_size(json_object_get(json, "throughput")), rows);
	assert_int_equal(json_array_size(json_object_get(json, "end_s")), rows);
	for (size_t i = 0; i < rows; i++) {
		double t = 0, n = 0, end;

		for (long k = done; k < done + length(json, i); k++) {
			t += 1e-3 * (double)(1 + k % 3);
			n += 10 + (double)(k % 7);
		}
		done += length(json, i);
		end = 1 + (double)((done - 1) / 100);
		for (long k = 0; k < done; k++)
			end += 1e-3 * (double)(1 + k % 3);
		assert_near(at(json, "throughput", i), n / t, 1e-6 * n / t);
		assert_near(at(json, "end_s", i), end, 2e-6);
		assert_near(at(json, "loss", i), (double)done, 1e-6 * (double)done);
	}
	assert_int_equal(done, steps);
	json_decref(json);
}

static void test_up_to_the_room_each_step_has_a_row(void **state)
{
	(void)state;
	check_rows(1, 1, 1);
	check_rows(999, 1, 999);
	check_rows(JM_STEP_ROWS, 1, JM_STEP_ROWS);
}

static void test_then_rows_are_joined(void **state)
{
	(void)state;
	check_rows(JM_STEP_ROWS + 1, 2, JM_STEP_ROWS / 2 + 1);
	check_rows(2 * JM_STEP_ROWS, 2, JM_STEP_ROWS);
	check_rows(3333, 4, 834);
	check_rows(20001, 32, 626);
}

static void test_no_step_no_series_and_no_loss_no_list(void **state)
{
	json_t *json;

	(void)state;
	series = (struct jm_step_series){0};
	assert_null(jm_step_series_json(&series, 0));
	jm_step_series_begin(&series, 7 * MS);
	jm_step_series_add(&series, 7 * MS, 5, NAN); /* in no time: the speed is unknown */
	jm_step_series_add(&series, 9 * MS, 5, NAN);
	jm_step_series_add(&series, 8 * MS, 5, NAN); /* a clock that went back */
	json = jm_step_series_json(&series, 0);
	assert_null(json_object_get(json, "loss"));
	assert_true(json_is_null(json_array_get(json_object_get(json, "throughput"), 0)));
	assert_near(at(json, "throughput", 1), 2500, 1e-3);
	assert_true(json_is_null(json_array_get(json_object_get(json, "throughput"), 2)));
	assert_near(at(json, "end_s", 2), 9e-3, 1e-9);
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_up_to_the_room_each_step_has_a_row),
		cmocka_unit_test(test_then_rows_are_joined),
		cmocka_unit_test(test_no_step_no_series_and_no_loss_no_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
