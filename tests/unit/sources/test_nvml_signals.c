/* SPDX-License-Identifier: Apache-2.0 */
/* The signals of the source nvml other than power and energy: times of throttling, activity, the
 * module. */
#include "base/clock.h"
#include "kit/nvml_case.h"

#include <unistd.h>

static double counted(struct fixture *f, int meter, enum jm_quantity quantity)
{
	return reading(f, meter, quantity).value;
}

/* Seconds since t = 0 of the monotonic clock in which each reason held: 500 W is over the limit of
 * 400. */
static void test_times_of_throttling(void **state)
{
	static const struct {
		const char *config;
		bool in_hardware;
	} rows[] = {
		{"driver=580.1;times=252", true},
		{"driver=590.1;times=270", true},
		/* the ids of another driver, or none: what answers there is no time */
		{"driver=580.1;times=270", true}, /* as on an H200 */
		{"driver=575.1;times=252", true},
		{"driver=575.1;times=270", false},
		{"driver=570.1;times=252", false},
		{"driver=590.1;times=252", false},
		{"driver=595.1;times=0", false},
	};
	struct fixture *f = *state;

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char config[160];
		double now;

		snprintf(config, sizeof(config),
			"gpus=1;default=400;wave=square;low=100;high=500;period=0.2;duty=0.75;"
			"heat=0.25;brake=0.125;%s",
			rows[k].config);
		assert_int_equal(open_nvml(f, config, "", NULL), 0);
		read_nvml(f);
		now = (double)jm_ctx_now(&f->ctx) * 1e-9;
		/* within a turn of the wave, and the call */
		assert_near(counted(f, 0, JM_Q_POWER_CAP_TIME), 0.75 * now, 0.3);
		assert_near(counted(f, 0, JM_Q_THERMAL_TIME), 0.25 * now, 0.1);
		assert_near(counted(f, 0, JM_Q_RELIABILITY_TIME), 0, 0);
		assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_HW_THERMAL_TIME) >= 0,
			rows[k].in_hardware);
		assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_POWER_BRAKE_TIME) >= 0,
			rows[k].in_hardware);
		if (rows[k].in_hardware) {
			assert_near(counted(f, 0, JM_Q_HW_THERMAL_TIME), 0.125 * now, 0.1);
			assert_near(counted(f, 0, JM_Q_POWER_BRAKE_TIME), 0.125 * now, 0.1);
		}
		close_nvml(f);
	}
}

/* Activity between two samples is known from the wave: 350 of 700 W. */
static void test_activity(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		open_nvml(f, "gpus=2;activity=1;power=350;nvlink=4096;mem=0.2", "activity", NULL),
		0);
	read_nvml(f);
	assert_true(isnan(counted(f, 2, JM_Q_SM_ACTIVITY)));
	for (int i = 0; i < 200 && isnan(counted(f, 2, JM_Q_SM_ACTIVITY)); i++) {
		usleep(20000);
		read_nvml(f);
	}
	assert_near(counted(f, 2, JM_Q_SM_ACTIVITY), 0.5, 1e-6);
	assert_near(counted(f, 2, JM_Q_TENSOR_ACTIVITY), 0.25, 1e-6);
	assert_near(counted(f, 2, JM_Q_DRAM_ACTIVITY), 0.5 / 3, 1e-6);
	assert_near(counted(f, 2, JM_Q_NVLINK_RECEIVED), 4096.0 * 1048576, 1);
	assert_near(counted(f, 2, JM_Q_NVLINK_SENT), 2048.0 * 1048576, 1);
	assert_true(reading(f, 2, JM_Q_SM_ACTIVITY).t_ns <= jm_ctx_now(&f->ctx));
}

/* A GPU without such samples, or without NVLink, has what it has. */
static void test_without_activity(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, "gpus=1;power=350", "activity", NULL), 0);
	assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_SM_ACTIVITY), -1);
	assert_non_null(strstr(f->log, "no samples of its activity"));
	close_nvml(f);
	assert_int_equal(open_nvml(f, "gpus=1;power=350;activity=1", "activity", NULL), 0);
	read_nvml(f);
	usleep(210000);
	read_nvml(f);
	assert_near(counted(f, 0, JM_Q_SM_ACTIVITY), 0.5, 1e-6);
	assert_true(isnan(counted(f, 0, JM_Q_NVLINK_SENT)));
}

/* The module of a GH200 includes its GPU; a board of which nothing is known has no module. */
static void test_module(void **state)
{
	struct fixture *f = *state;
	int module;

	assert_int_equal(open_nvml(f, "gpus=1;power=400;mem=0.2;module=1.5;name=NVIDIA GH200 480GB",
				 "", NULL),
		0);
	read_nvml(f);
	jm_meters_derive(&f->set);
	module = f->set.n - 1;
	assert_int_equal(module, 2);
	assert_int_equal(f->set.meter[module].scope, JM_SCOPE_MODULE);
	assert_near(reading(f, module, JM_Q_POWER).value, 600, 2e-3);
	assert_int_equal(f->set.meter[0].covered_by, module);
	assert_int_equal(f->set.meter[1].covered_by, 0);
	close_nvml(f);
	assert_int_equal(open_nvml(f, "gpus=1;power=400;module=1.5", "", NULL), 0);
	assert_int_equal(f->set.n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_times_of_throttling),
		TEST(test_activity),
		TEST(test_without_activity),
		TEST(test_module),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
