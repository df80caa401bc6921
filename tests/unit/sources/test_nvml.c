/* SPDX-License-Identifier: Apache-2.0 */
/* The source nvml on the fake library: its GPUs, its signals and the accuracy of their readings. */
#include "base/ctx.h"
#include "base/clock.h"
#include "kit/nvml_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TWO_GPUS "gpus=2;power=321;mem=0.25"

static void test_a_gpu_and_its_memory_are_meters_of_its_uuid(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, TWO_GPUS, "", NULL), 0);
	jm_meters_derive(&f->set);
	assert_int_equal(f->set.n, 4);
	assert_string_equal(f->set.meter[2].id, "nvml:" UUID1);
	assert_string_equal(f->set.meter[2].device, UUID1);
	assert_int_equal(f->set.meter[3].covered_by, 2);
	assert_int_equal(f->set.meter[2].covered_by, -1);
}

static void test_power_is_that_of_the_gpu_and_of_its_memory(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, TWO_GPUS, "", NULL), 0);
	read_nvml(f);
	assert_near(reading(f, 2, JM_Q_POWER).value, 321, 2e-3);
	assert_near(reading(f, 2, JM_Q_POWER_AVERAGE).value, 321, 2e-3);
	assert_near(reading(f, 3, JM_Q_POWER).value, 321 * 0.25, 1e-3);
}

/* Joules since t = 0 of the monotonic clock, at most a step old. */
static void test_energy_is_a_counter_of_joules(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, TWO_GPUS, "", NULL), 0);
	read_nvml(f);
	assert_near(reading(f, 2, JM_Q_ENERGY).value, 321e-9 * (double)jm_ctx_now(&f->ctx), 33);
}

static void test_other_signals_are_in_their_units(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, TWO_GPUS, "", NULL), 0);
	read_nvml(f);
	assert_near(reading(f, 2, JM_Q_LIMIT).value, 700, 1e-9);
	assert_near(reading(f, 2, JM_Q_LIMIT_REQUESTED).value, 700, 1e-9);
	assert_near(reading(f, 2, JM_Q_CLOCK).value, 1980e6, 1);
	assert_near(reading(f, 2, JM_Q_MEMORY_CLOCK).value, 2619e6, 1);
	assert_near(reading(f, 2, JM_Q_TEMPERATURE).value, 41, 1e-9);
	assert_near(reading(f, 2, JM_Q_UTILISATION).value, 0.98, 1e-9);
	assert_near(reading(f, 2, JM_Q_POWER_STATE).value, 0, 1e-9);
	assert_near(reading(f, 2, JM_Q_MEMORY_USED).value, 8e9, 1e-9);
	assert_near(reading(f, 2, JM_Q_THROTTLE).value, 0, 1e-9);
}

/* What the driver does not know is no signal, and no P0. */
static void test_power_state(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, "gpus=1;pstate=8", "", NULL), 0);
	read_nvml(f);
	assert_near(reading(f, 0, JM_Q_POWER_STATE).value, 8, 1e-9);
	jm_source_find("nvml", NULL)->close(f->state);
	f->state = NULL;
	jm_meters_done(&f->set);
	f->set = (struct jm_meters){0};
	assert_int_equal(open_nvml(f, "gpus=1;pstate=32", "", NULL), 0);
	assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_POWER_STATE), -1);
}

static void test_sensor_is_named(void **state)
{
	struct fixture *f = *state;
	int i;

	assert_int_equal(open_nvml(f, "gpus=1", "", NULL), 0);
	i = jm_meter_signal(&f->set, 0, JM_Q_POWER);
	assert_int_equal(f->set.signal[i].refresh_ns, 100 * JM_MILLISECOND);
	assert_int_equal(f->set.signal[i].window_ns, 25 * JM_MILLISECOND);
	i = jm_meter_signal(&f->set, 0, JM_Q_POWER_AVERAGE);
	assert_int_equal(f->set.signal[i].window_ns, JM_SECOND);
}

static void test_an_h200_is_no_gh200(void **state)
{
	static const struct {
		const char *config;
		int window_ms;
	} rows[] = {
		{"gpus=1;name=NVIDIA H200", 20},
		{"gpus=1;name=NVIDIA GH200 480GB;step=0.1", 20},
		{"gpus=1;name=NVIDIA H100 80GB HBM3", 25},
	};
	struct fixture *f = *state;

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		int i;

		assert_int_equal(open_nvml(f, rows[k].config, "", NULL), 0);
		i = jm_meter_signal(&f->set, 0, JM_Q_POWER);
		assert_int_equal(f->set.signal[i].refresh_ns, 100 * JM_MILLISECOND);
		assert_int_equal(f->set.signal[i].window_ns, rows[k].window_ms * JM_MILLISECOND);
		/* only the module's counter of a GH200 is left out */
		assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_ENERGY) < 0, k == 1);
		jm_source_find("nvml", NULL)->close(f->state);
		f->state = NULL;
		jm_meters_done(&f->set);
		f->set = (struct jm_meters){0};
	}
}

static void test_unknown_sensor_says_so(void **state)
{
	struct fixture *f = *state;
	int i;

	assert_int_equal(open_nvml(f, "gpus=1;arch=42;name=NVIDIA X1", "", NULL), 0);
	i = jm_meter_signal(&f->set, 0, JM_Q_POWER);
	assert_int_equal(f->set.signal[i].refresh_ns, 0);
	assert_int_equal(f->set.signal[i].window_ns, -1);
	assert_true(isnan(f->set.signal[i].accuracy));
}

/* Integral of the square wave 600/100 W of period 0.4 s from its beginning to x. */
static double square(double x)
{
	double rest = x - 0.4 * floor(x / 0.4);

	return 0.4 * floor(x / 0.4) * 350 + (rest < 0.2 ? 600 * rest : 120 + 100 * (rest - 0.2));
}

/* The counter is the truth at the sensor's last step, in its own phase; as nvml_fake.c promises. */
static void test_counter_is_the_truth(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f,
				 "gpus=2;wave=square;low=100;high=600;period=0.4;shift=0.1;"
				 "stamp=sensor",
				 "", NULL),
		0);
	for (int n = 0; n < 25; n++) {
		struct jm_reading r;
		double t, s, phase = 0.754878 * 2 - floor(0.754878 * 2);

		read_nvml(f);
		r = reading(f, 1, JM_Q_ENERGY);
		t = (double)r.t_ns * 1e-9;
		s = 0.1 * (round(t / 0.1 - phase) + phase);
		assert_near(s, t, 1e-4);
		assert_near(r.value, square(s + 0.1) - square(0.1), 0.002);
		usleep(20000);
	}
}

/* A stamp of the sensor: the reading's time stands still until the sensor changes. */
static void test_time_of_the_sensor(void **state)
{
	struct fixture *f = *state;
	struct jm_reading first, next;
	int changes = 0;
	int64_t until;

	assert_int_equal(
		open_nvml(f, "gpus=1;wave=steps;steps=100*0.013/200*0.017;stamp=sensor", "", NULL),
		0);
	read_nvml(f);
	first = reading(f, 0, JM_Q_POWER);
	until = jm_ctx_now(&f->ctx) + 350 * JM_MILLISECOND;
	while (jm_ctx_now(&f->ctx) < until) {
		usleep(500);
		read_nvml(f);
		next = reading(f, 0, JM_Q_POWER);
		if (next.t_ns == first.t_ns) {
			assert_true(next.value == first.value);
			continue;
		}
		/* whole sensor periods, as far as microseconds and two clocks allow */
		assert_near(fmod((double)(next.t_ns - first.t_ns) / 1e6 + 50, 100), 50, 2);
		first = next;
		changes++;
	}
	assert_in_range(changes, 3, 4);
}

static bool stamped(struct fixture *f, int meter, enum jm_quantity quantity)
{
	int i = jm_meter_signal(&f->set, meter, quantity);

	assert_in_range(i, 0, MAX - 1);
	return f->set.signal[i].stamped;
}

/* The first GPU, which speaks for all, has one field less than the second: their slots differ. */
static void test_stamps_of_unlike_gpus(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, "gpus=2;lacks=0:186;stamp=sensor", "", NULL), 0);
	assert_true(jm_meter_signal(&f->set, 0, JM_Q_POWER) < 0);
	for (int meter = 0; meter < 2; meter++) {
		assert_true(stamped(f, meter, JM_Q_POWER_AVERAGE));
		assert_true(stamped(f, meter, JM_Q_ENERGY));
		assert_false(stamped(f, meter, JM_Q_LIMIT));
		assert_false(stamped(f, meter, JM_Q_LIMIT_REQUESTED));
	}
	assert_false(stamped(f, 1, JM_Q_POWER)); /* of which the first cannot speak */
}

static void test_only_allocated(void **state)
{
	struct fixture *f = *state;

	setenv("CUDA_VISIBLE_DEVICES", "GPU-3,1,9,0", 1); /* 9 does not exist and ends the list */
	assert_int_equal(open_nvml(f, "gpus=4", "", NULL), 0);
	assert_int_equal(f->set.n, 2);
	assert_string_equal(f->set.meter[0].device, UUID1);
	assert_int_equal(strncmp(f->set.meter[1].device, "GPU-30000003", 12), 0);
}

static void test_all_on_demand(void **state)
{
	struct fixture *f = *state;

	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	assert_int_equal(open_nvml(f, "gpus=4", "all", NULL), 0);
	assert_int_equal(f->set.n, 4);
}

static void test_none_allocated(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
	assert_int_equal(open_nvml(*state, "gpus=4", "", &err), JM_ENOENT);
	assert_non_null(strstr(err.text, "CUDA_VISIBLE_DEVICES=-1"));
}

/* The GPUs that are ours, as digits, when the variable says so; what was said where there are
 * none. */
static void check_list(struct fixture *f, const char *variable, const char *list, const char *ours)
{
	struct jm_err err = JM_ERR_INIT;
	char told[MAX] = "";

	setenv(variable, list, 1);
	if (open_nvml(f, "gpus=6", "", &err))
		assert_non_null(strstr(err.text, list));
	for (int i = 0; i < f->set.n; i++) /* "GPU-30000003-..." */
		strncat(told, f->set.meter[i].device + 4, 1);
	if (strcmp(told, ours) != 0)
		fail_msg("%s=%s: %s instead of %s", variable, list, told, ours);
	unsetenv(variable);
	if (f->state)
		jm_source_find("nvml", NULL)->close(f->state);
	f->state = NULL;
	jm_meters_done(&f->set);
}

static void test_lists(void **state)
{
	static const struct {
		const char *variable, *list, *ours;
	} rows[] = {
		{"SLURM_STEP_GPUS", "2,3", "23"}, {"SLURM_JOB_GPUS", "2,3", "23"},
		{"SLURM_JOB_GPUS", "0-1", "01"}, {"SLURM_JOB_GPUS", "0-1,4", "014"},
		{"SLURM_JOB_GPUS", "5,1-3", "1235"}, {"SLURM_JOB_GPUS", "4-4", "4"},
		{"SLURM_JOB_GPUS", "9-11", ""}, /* other GPUs than these */
		{"SLURM_JOB_GPUS", "6-11",
			"012345"}, /* as many as are seen: these, by other numbers */
		{"SLURM_JOB_GPUS", "0-1-2", ""}, {"SLURM_JOB_GPUS", "0-99999", ""},
		{"SLURM_JOB_GPUS", "3-2", ""}, {"SLURM_JOB_GPUS", "0--5", ""},
		{"NVIDIA_VISIBLE_DEVICES", "1,4", "14"},
		{"NVIDIA_VISIBLE_DEVICES", "all", "012345"},
		{"NVIDIA_VISIBLE_DEVICES", "void", "012345"},
		{"CUDA_VISIBLE_DEVICES", "0-1", ""}, /* as in CUDA, a range is none */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		check_list(*state, rows[i].variable, rows[i].list, rows[i].ours);
}

/* The cgroup shows two GPUs already: the numbers are those of the node and mean nothing here. */
static void test_slurm_list_in_cgroup(void **state)
{
	struct fixture *f = *state;

	setenv("SLURM_STEP_GPUS", "2,3", 1);
	assert_int_equal(open_nvml(f, "gpus=2", "", NULL), 0);
	assert_int_equal(f->set.n, 2);
}

static void test_order_is_said(void **state)
{
	struct fixture *f = *state;

	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	assert_int_equal(open_nvml(f, "gpus=2;mixed=1", "", NULL), 0);
	assert_non_null(strstr(f->log, "CUDA_DEVICE_ORDER"));
}

static void test_lost_gpu(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, "gpus=2;lost=1@0.15", "", NULL), 0);
	read_nvml(f);
	assert_false(isnan(reading(f, 1, JM_Q_POWER).value));
	usleep(200000);
	read_nvml(f);
	assert_true(isnan(reading(f, 1, JM_Q_POWER).value));
	assert_true(isnan(reading(f, 1, JM_Q_ENERGY).value));
	assert_true(isnan(reading(f, 1, JM_Q_TEMPERATURE).value));
	assert_false(isnan(reading(f, 0, JM_Q_POWER).value));
	assert_non_null(strstr(f->log, "GPU 1 NVIDIA H100 80GB HBM3 is lost"));
}

/* Each field reports the loss, instead of the call. */
static void test_lost_by_field(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, "gpus=1;lost=0@0.1;lostfield=1", "", NULL), 0);
	read_nvml(f);
	assert_false(isnan(reading(f, 0, JM_Q_POWER).value));
	usleep(120000);
	read_nvml(f);
	assert_true(isnan(reading(f, 0, JM_Q_POWER).value));
	assert_true(isnan(reading(f, 0, JM_Q_TEMPERATURE).value));
	assert_non_null(strstr(f->log, "is lost"));
}

/* Reads until the power is reported (told), or no longer is. */
static void await_power(struct fixture *f, bool told)
{
	int64_t until = jm_ctx_now(&f->ctx) + 5 * JM_SECOND;

	do {
		usleep(5000);
		read_nvml(f);
	} while (isnan(reading(f, 0, JM_Q_POWER).value) == told && jm_ctx_now(&f->ctx) < until);
}

/* A call that fails: nothing is known meanwhile, and afterwards it goes on. */
static void test_fields_that_fail(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f, "gpus=1;power=250;fails=0@0.1", "", NULL), 0);
	await_power(f, true);
	await_power(f, false);
	assert_true(isnan(reading(f, 0, JM_Q_POWER).value));
	assert_true(isnan(reading(f, 0, JM_Q_POWER_AVERAGE).value));
	await_power(f, true);
	assert_near(reading(f, 0, JM_Q_POWER).value, 250, 2e-3);
	assert_null(strstr(f->log, "is lost"));
}

/* What changes slowly is asked for ten times a second, and keeps its time in between. */
static void test_slow_ones_rest(void **state)
{
	static const enum jm_quantity slow[] = {JM_Q_LIMIT, JM_Q_CLOCK, JM_Q_UTILISATION};
	struct fixture *f = *state;
	int64_t before[3];

	assert_int_equal(open_nvml(f, "gpus=1", "", NULL), 0);
	read_nvml(f);
	for (int i = 0; i < 3; i++)
		before[i] = reading(f, 0, slow[i]).t_ns;
	usleep(5000);
	read_nvml(f);
	for (int i = 0; i < 3; i++)
		if (jm_ctx_now(&f->ctx) < before[0] + 90 * JM_MILLISECOND)
			assert_int_equal(reading(f, 0, slow[i]).t_ns, before[i]);
	for (int k = 1; k <= 2; k++) {
		usleep(105000);
		read_nvml(f);
		for (int i = 0; i < 3; i++)
			assert_true(
				reading(f, 0, slow[i]).t_ns > before[i] + k * 90 * JM_MILLISECOND);
	}
}

/* A stamp that cannot be is not believed. */
static void test_stamps_of_another_clock(void **state)
{
	struct fixture *f = *state;
	const char *const configs[] = {"gpus=1;ahead=3600", "gpus=1;ahead=-3600"};

	for (int i = 0; i < 2; i++) {
		int64_t before;

		assert_int_equal(open_nvml(f, configs[i], "", NULL), 0);
		before = jm_ctx_now(&f->ctx);
		read_nvml(f);
		assert_in_range(reading(f, 0, JM_Q_POWER).t_ns, before, jm_ctx_now(&f->ctx));
		jm_source_find("nvml", NULL)->close(f->state);
		f->state = NULL;
		jm_meters_done(&f->set);
	}
}

/* The wall clock is set back: time goes on. */
static void test_a_clock_set_back(void **state)
{
	struct fixture *f = *state;
	int64_t last = 0;

	assert_int_equal(open_nvml(f, "gpus=1;ahead=-0.1;aheadat=0.06", "", NULL), 0);
	for (int i = 0; i < 60; i++) {
		read_nvml(f);
		assert_true(reading(f, 0, JM_Q_POWER).t_ns > last);
		last = reading(f, 0, JM_Q_POWER).t_ns;
		usleep(2000);
	}
}

/* Raw: every counter each time, whatever that costs. Else: seldom, when the source says so. */
static void test_dear_counters(void **state)
{
	const struct jm_source *nvml = jm_source_find("nvml", NULL);
	struct fixture *f = *state;

	for (int raw = 0; raw < 2; raw++) {
		int news[2] = {0};
		int64_t last[2] = {0};

		assert_int_equal(
			open_nvml(f, "gpus=2;mem=0.2;energycost=3000", raw ? "raw" : "", NULL), 0);
		for (int n = 0; n < 25; n++) {
			read_nvml(f);
			for (int i = 0; i < 2; i++) {
				int64_t t = reading(f, 2 * i, JM_Q_ENERGY).t_ns;

				news[i] += t != last[i];
				last[i] = t;
			}
		}
		for (int i = 0; i < 2; i++)
			assert_true(raw ? news[i] == 25 : news[i] < 8);
		nvml->edge(f->state, JM_EDGE_BEGINS);
		read_nvml(f);
		assert_true(nvml->edge(f->state, JM_EDGE_ON));
		if (!raw)
			assert_true(
				nvml->due(f->state) < jm_ctx_now(&f->ctx) + 150 * JM_MILLISECOND);
		nvml->close(f->state);
		f->state = NULL;
		jm_meters_done(&f->set);
	}
}

/* Without field values: the calls of old; on Hopper the usage is the average of a second. */
static void test_no_fields(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		open_nvml(f, "gpus=1;power=250;nosupport=83,185,186,190,192", "", NULL), 0);
	read_nvml(f);
	assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_POWER), -1);
	assert_near(reading(f, 0, JM_Q_POWER_AVERAGE).value, 250, 2e-3);
	assert_near(reading(f, 0, JM_Q_LIMIT).value, 700, 1e-9);
	assert_false(isnan(reading(f, 0, JM_Q_ENERGY).value));
}

/* A library without the newer symbols: what is left goes on. */
static void test_old_library(void **state)
{
	struct fixture *f = *state;

	use_library("libnvidia-ml-fake-old");
	assert_int_equal(open_nvml(f, "gpus=1;power=250;arch=5", "", NULL), 0);
	read_nvml(f);
	assert_near(reading(f, 0, JM_Q_POWER).value, 250, 2e-3);
	assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_ENERGY), -1);
	assert_int_equal(jm_meter_signal(&f->set, 0, JM_Q_THROTTLE), -1);
}

/* A board that says 0 W says nothing. */
static void test_zero_is_unknown(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_nvml(f,
				 "gpus=1;wave=square;low=0;high=300;period=1;average=0.001;window="
				 "0.001;refresh=0.01",
				 "", NULL),
		0);
	for (int i = 0; i < 60; i++) {
		read_nvml(f);
		assert_false(reading(f, 0, JM_Q_POWER).value == 0);
		usleep(20000);
	}
}

static void test_no_library(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	setenv("JM_NVML_LIB", "/nowhere/libnvidia-ml.so.1", 1);
	assert_int_equal(open_nvml(*state, "", "", &err), JM_ENOENT);
	assert_non_null(strstr(err.text, "/nowhere/libnvidia-ml.so.1"));
}

static void test_no_driver(void **state)
{
	struct jm_err err = JM_ERR_INIT;

	assert_int_equal(open_nvml(*state, "init=9", "", &err), JM_ENOENT);
	assert_non_null(strstr(err.text, "modprobe nvidia"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_gpu_and_its_memory_are_meters_of_its_uuid),
		TEST(test_power_is_that_of_the_gpu_and_of_its_memory),
		TEST(test_energy_is_a_counter_of_joules),
		TEST(test_other_signals_are_in_their_units),
		TEST(test_power_state),
		TEST(test_sensor_is_named),
		TEST(test_counter_is_the_truth),
		TEST(test_an_h200_is_no_gh200),
		TEST(test_unknown_sensor_says_so),
		TEST(test_time_of_the_sensor),
		TEST(test_stamps_of_unlike_gpus),
		TEST(test_only_allocated),
		TEST(test_all_on_demand),
		TEST(test_none_allocated),
		TEST(test_lists),
		TEST(test_slurm_list_in_cgroup),
		TEST(test_order_is_said),
		TEST(test_lost_gpu),
		TEST(test_lost_by_field),
		TEST(test_fields_that_fail),
		TEST(test_slow_ones_rest),
		TEST(test_stamps_of_another_clock),
		TEST(test_a_clock_set_back),
		TEST(test_dear_counters),
		TEST(test_no_fields),
		TEST(test_old_library),
		TEST(test_zero_is_unknown),
		TEST(test_no_library),
		TEST(test_no_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
