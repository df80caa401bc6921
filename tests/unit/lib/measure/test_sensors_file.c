/* SPDX-License-Identifier: Apache-2.0 */
/* Later sessions use the findings of a calibration: a sensor with a delay, and one whose refresh is
 * not declared. */
#include "kit/test.h"
#include "base/ctx.h"
#include "kit/wave.h"

#include "measure/session/sensors_file.h"

#include <stdio.h>
#include <unistd.h>

#define LATE 0.08 /* s */

static char state[] = "/tmp/jm-sensors-XXXXXX";

static json_t *observed(const char *driver, double refresh_s, double window_s, double delay_s)
{
	static const char *const quantities[] = {"energy", "power"};
	json_t *signals = json_array();

	for (int i = 0; i < 2; i++)
		json_array_append_new(
			signals, json_pack("{s:s, s:s, s:s, s:s, s:{s:f, s:o, s:f, s:i}, s:n}",
					 "meter", "wave:0", "label", "GPU 0", "driver", driver,
					 "quantity", quantities[i], "fit", "refresh_s", refresh_s,
					 "window_s", i ? json_real(window_s) : json_null(),
					 "delay_s", delay_s, "changes", 600, "why"));
	return json_pack("{s:i, s:s, s:s, s:o}", "version", 1, "at", "2026-01-01T00:00:00Z",
		"device", "cuda:0", "signals", signals);
}

static void keep(const char *driver, double refresh_s, double delay_s)
{
	struct jm_ctx ctx = {0};
	struct jm_err err = JM_ERR_INIT;
	json_t *what = observed(driver, refresh_s, 0.025, delay_s);

	assert_int_equal(jm_sensors_keep(&ctx, what, &err), 2);
	json_decref(what);
}

/* 600 W from 2 to 4 s, 100 W before and after. */
static void one_block(void)
{
	wave_reset();
	wave_setup.gpus = 1;
	wave_setup.late = LATE;
	wave_add(&wave_setup.wave[0], -10, 100, 0);
	wave_add(&wave_setup.wave[0], 2, 600, 0);
	wave_add(&wave_setup.wave[0], 4, 100, 0);
}

static struct jm_energy measured(double t0, double t1, int64_t *ret_refresh_ns)
{
	struct jm_err err = JM_ERR_INIT;
	struct wave_run run;
	struct jm_energy e;

	assert_ok(wave_measure(&run, t0, t1, 0, &err), err);
	assert_ok(jm_session_energy(run.session, 0, run.phase, &e, &err), err);
	*ret_refresh_ns = jm_session_meters(run.session)->signal[0].refresh_ns;
	wave_close(&run);
	return e;
}

static void lateness_is_taken_off(void **unused)
{
	const double truth = 1200;
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = {0};
	struct jm_energy e;
	int64_t refresh;

	(void)unused;
	one_block();
	e = measured(2, 4, &refresh);
	assert_near(e.joules, truth - LATE * 500, 1); /* as declared, it misses the end */
	keep("", 0.1, LATE);
	e = measured(2, 4, &refresh);
	assert_near(e.joules, truth, 1);
	assert_ok(jm_sensors_forget(&ctx, &err), err);
	e = measured(2, 4, &refresh);
	assert_near(e.joules, truth - LATE * 500, 1);
}

/* A delay that could as well be none is not taken off. */
static void what_is_not_certain_is_not_used(void **unused)
{
	json_t *what = observed("", 0.1, 0.025, LATE);
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = {0};
	const json_t *signal;
	int64_t refresh;
	size_t i;

	(void)unused;
	one_block();
	json_array_foreach(json_object_get(what, "signals"), i, signal)
	{
		json_object_set_new(
			json_object_get(signal, "fit"), "delay_error_s", json_real(1.1 * LATE));
	}
	assert_int_equal(jm_sensors_keep(&ctx, what, &err), 2);
	json_decref(what);
	assert_near(measured(2, 4, &refresh).joules, 1200 - LATE * 500, 1);
	assert_ok(jm_sensors_forget(&ctx, &err), err);
}

static void another_driver_does_not_count(void **unused)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = {0};
	int64_t refresh;

	(void)unused;
	one_block();
	keep("580.1", 0.05, LATE);
	assert_near(measured(2, 4, &refresh).joules, 1200 - LATE * 500, 1);
	assert_int_equal(refresh, 100 * JM_MILLISECOND);
	keep("", 0.05, 0);
	measured(2, 4, &refresh);
	assert_int_equal(refresh, 50 * JM_MILLISECOND);
	assert_ok(jm_sensors_forget(&ctx, &err), err);
}

static void damage_is_reported_and_not_used(void **unused)
{
	char path[64];
	struct jm_err err = JM_ERR_INIT;
	struct jm_ctx ctx = {0};
	int64_t refresh;
	json_t *what = observed("", 0.05, 0.025, LATE);
	FILE *f;

	(void)unused;
	one_block();
	keep("", 0.05, LATE);
	snprintf(path, sizeof(path), "%s/sensors.json", state);
	assert_int_equal(truncate(path, 100), 0);
	measured(2, 4, &refresh);
	assert_int_equal(refresh, 100 * JM_MILLISECOND);
	assert_int_equal(jm_sensors_keep(&ctx, what, &err), JM_EFORMAT);
	assert_sentence(&err, JM_EFORMAT);
	assert_ok(jm_sensors_forget(&ctx, &err), err);
	json_decref(what);
	/* absurd figures are no figures */
	keep("", 1e9, -1e9);
	assert_near(measured(2, 4, &refresh).joules, 1200 - LATE * 500, 1);
	assert_int_equal(refresh, 100 * JM_MILLISECOND);
	f = fopen(path, "r");
	assert_non_null(f);
	fclose(f);
}

static int set_up(void **unused)
{
	(void)unused;
	return !mkdtemp(state) || setenv("JM_STATE", state, 1);
}

static int tear_down(void **unused)
{
	char path[64];

	(void)unused;
	wave_reset();
	snprintf(path, sizeof(path), "%s/sensors.json", state);
	unlink(path);
	return rmdir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lateness_is_taken_off),
		cmocka_unit_test(what_is_not_certain_is_not_used),
		cmocka_unit_test(another_driver_does_not_count),
		cmocka_unit_test(damage_is_reported_and_not_used),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
