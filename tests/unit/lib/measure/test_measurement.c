/* SPDX-License-Identifier: Apache-2.0 */
/* The public measuring calls, on a simulated GPU at rest. */
#include "joulemark.h"
#include "kit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INTERVAL   10000000 /* ns */
#define IDLE_WATTS 75

struct case_state {
	struct jm_ctx *ctx;
	struct jm_measurement *m;
	int phase;
};

static int measure(void **state)
{
	struct timespec t = {.tv_nsec = 45000000};
	struct case_state *c = calloc(1, sizeof(*c));
	struct jm_err err = JM_ERR_INIT;

	*state = c;
	assert_non_null(c);
	assert_ok(jm_ctx_new(&c->ctx, &err), err);
	assert_ok(jm_measurement_start(c->ctx, "sim:h100x1", 0, &c->m, &err), err);
	c->phase = jm_measurement_begin(c->m, "work", &err);
	nanosleep(&t, NULL);
	jm_measurement_end(c->m, c->phase);
	return 0;
}

static int end(void **state)
{
	struct case_state *c = *state;

	jm_measurement_free(c->m);
	jm_ctx_free(c->ctx);
	free(c);
	return 0;
}

/* The id of the report's first meter. */
static void id_of_gpu(struct jm_measurement *m, int phase, char out[128])
{
	struct jm_err err = JM_ERR_INIT;
	char *text, *id;

	assert_ok(jm_measurement_json(m, phase, &text, &err), err);
	id = strstr(text, "\"id\": \"");
	assert_non_null(id);
	assert_int_equal(sscanf(id, "\"id\": \"%127[^\"]", out), 1);
	free(text);
}

static void power_is_rows_from_the_beginning_of_a_phase_to_its_end(void **state)
{
	struct case_state *c = *state;
	struct jm_err err = JM_ERR_INIT;
	double *watts;
	char id[128];
	int rows;

	assert_ok(jm_measurement_stop(c->m, &err), err);
	id_of_gpu(c->m, c->phase, id);
	assert_ok(jm_measurement_power(c->m, c->phase, id, INTERVAL, &watts, &rows, &err), err);
	assert_true(rows >= 6); /* 0, 10 ... 40 ms, the end */
	for (int i = 0; i < rows; i++)
		assert_true(fabs(watts[i] - IDLE_WATTS) < 0.05 * IDLE_WATTS);
	free(watts);
}

static void refuses(struct case_state *c, int phase, const char *id, int64_t interval, int code)
{
	struct jm_err err = JM_ERR_INIT;
	double *watts = NULL;
	int rows = -1;

	assert_int_equal(
		jm_measurement_power(c->m, phase, id, interval, &watts, &rows, &err), code);
	assert_int_equal(err.code, code);
	assert_null(watts);
	assert_int_equal(rows, -1);
}

static void power_that_is_not_there_is_an_error(void **state)
{
	struct case_state *c = *state;
	struct jm_err err = JM_ERR_INIT;
	char id[128];

	assert_ok(jm_measurement_stop(c->m, &err), err);
	id_of_gpu(c->m, c->phase, id);
	refuses(c, c->phase, "another", INTERVAL, JM_ENOENT);
	refuses(c, c->phase + 1, id, INTERVAL, JM_EUSAGE);
	refuses(c, -1, id, INTERVAL, JM_EUSAGE);
	refuses(c, c->phase, id, 0, JM_EUSAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			power_is_rows_from_the_beginning_of_a_phase_to_its_end, measure, end),
		cmocka_unit_test_setup_teardown(power_that_is_not_there_is_an_error, measure, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
