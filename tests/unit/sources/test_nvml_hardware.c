/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, limits, clocks and peaks of GPUs, compared with what their data sheets say at the clocks
 * that these take. */
#include "base/ctx.h"
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

static const struct jm_hardware *hardware_of(struct fixture *f, const char *config)
{
	if (f->state)
		jm_source_find("nvml", NULL)->close(f->state);
	f->state = NULL;
	jm_meters_done(&f->set);
	f->set = (struct jm_meters){0};
	assert_int_equal(open_nvml(f, config, "", NULL), 0);
	return &f->set.meter[0].hardware;
}

static void test_what_the_driver_tells(void **state)
{
	const struct jm_hardware *h = hardware_of(*state, "gpus=1;min=200;max=700;default=650");
	static const double expected[] = {[JM_HW_CAPABILITY] = 9.0,
		[JM_HW_MEMORY] = 85520809984.0,
		[JM_HW_MEMORY_RATE] = 3.35232e12, /* "3.35 TB/s" */
		[JM_HW_POWER_DEFAULT] = 650,
		[JM_HW_POWER_MIN] = 200,
		[JM_HW_POWER_MAX] = 700,
		[JM_HW_SMS] = 132,
		[JM_HW_SM_CLOCK_MAX] = 1980e6,
		[JM_HW_MEMORY_CLOCK_MAX] = 2619e6};

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		assert_near(h->value[i], expected[i], 1e-6 * expected[i]);
}

/* f64, f32, tf32, f16, bf16, f8, int8 in 10^12 per second; 0 = the data sheet has none. */
static const struct {
	const char *config;
	double peak[7];
} sheets[] = {
	/* Tesla V100 SXM2: boost 1530 MHz */
	{"name=Tesla V100-SXM2-16GB;cc=70;cores=5120;smmax=1530", {7.8, 15.7, 0, 125, 0, 0, 0}},
	{"name=Tesla T4;cc=75;cores=2560;smmax=1590", {0.254, 8.1, 0, 65, 0, 0, 130}},
	{"name=NVIDIA A100-SXM4-80GB;cc=80;cores=6912;smmax=1410",
		{19.5, 19.5, 156, 312, 312, 0, 624}},
	{"name=NVIDIA A40;cc=86;cores=10752;smmax=1740",
		{0.585, 37.4, 74.8, 149.7, 149.7, 0, 299.3}},
	{"name=NVIDIA GeForce RTX 3090;cc=86;cores=10496;smmax=1695",
		{0.556, 35.6, 35.6, 71, 71, 0, 284}},
	{"name=NVIDIA GeForce RTX 4090;cc=89;cores=16384;smmax=2520",
		{1.29, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6}},
	/* the data sheets of H100 take 1980 MHz for f32, 1830 MHz for tensor cores in 16 and 8
	 * bits */
	{"name=NVIDIA H100 80GB HBM3;cc=90;cores=16896;smmax=1830",
		{0, 0, 494.7, 989.4, 989.4, 1978.9, 1978.9}},
	{"name=NVIDIA H100 80GB HBM3;cc=90;cores=16896;smmax=1980", {66.9, 66.9, 0, 0, 0, 0, 0}},
	{"name=NVIDIA GeForce RTX 5090;cc=120;cores=21760;smmax=2407",
		{1.64, 104.8, 104.8, 209.5, 209.5, 419, 838}},
};

static void test_peaks_are_those_of_the_data_sheets(void **state)
{
	char config[256];

	for (size_t i = 0; i < sizeof(sheets) / sizeof(sheets[0]); i++) {
		const struct jm_hardware *h;
		bool whole = !strstr(sheets[i].config, "H100");

		snprintf(config, sizeof(config), "gpus=1;%s", sheets[i].config);
		h = hardware_of(*state, config);
		for (int k = 0; k < 7; k++) {
			double told = 1e12 * sheets[i].peak[k], got = h->value[JM_HW_PEAK_F64 + k];

			if (told > 0 || whole)
				assert_near(got, told, 0.01 * told);
		}
	}
}

static void test_unknown_stays_unknown(void **state)
{
	const struct jm_hardware *h = hardware_of(*state, "gpus=1;cc=133;bus=0;bytes=0");

	assert_near(h->value[JM_HW_CAPABILITY], 13.3, 1e-9);
	for (int i = JM_HW_PEAK_F64; i < JM_HW_COUNT; i++)
		assert_near(h->value[i], 0, 0);
	assert_near(
		h->value[JM_HW_SMS] + h->value[JM_HW_MEMORY] + h->value[JM_HW_MEMORY_RATE], 0, 0);
	h = hardware_of(*state, "gpus=1;cores=0");
	assert_near(h->value[JM_HW_PEAK_F32] + h->value[JM_HW_SMS], 0, 0);
	h = hardware_of(*state, "gpus=1;smmax=0");
	assert_near(h->value[JM_HW_SMS], 132, 0);
	assert_near(h->value[JM_HW_PEAK_F32] + h->value[JM_HW_SM_CLOCK_MAX], 0, 0);
}

/* An old driver has none of these calls. */
static void test_old_driver(void **state)
{
	const struct jm_hardware *h;

	use_library("libnvidia-ml-fake-old");
	h = hardware_of(*state, "gpus=1");
	assert_near(h->value[JM_HW_MEMORY] + h->value[JM_HW_PEAK_F16] + h->value[JM_HW_CAPABILITY],
		0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_the_driver_tells),
		TEST(test_peaks_are_those_of_the_data_sheets),
		TEST(test_unknown_stays_unknown),
		TEST(test_old_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
