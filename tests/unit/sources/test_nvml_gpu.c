/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU through NVML calls that are faked here: its values, its probes, and its names in a device
 * list. */
#include "kit/test.h"
#include "sources/nvml/nvml_probe.h"
#include "sources/nvml/nvml_get.h"
#include "vendor/nvml_gpus.h"

#include <stdio.h>

/* ---- a library of four GPUs whose minors count down ---- */

static struct nvml_device {
	char uuid[40];
	unsigned int minor;
} devices[4] = {{"GPU-aa000000", 3}, {"GPU-aab00000", 2}, {"GPU-b0000000", 1}, {"GPU-c0000000", 0}};
static int lost = -1; /* the one whose UUID cannot be had */

static int count(unsigned int *n)
{
	*n = 4;
	return 0;
}

static int by_index(unsigned int i, jm_nvml_device *device)
{
	*device = &devices[i];
	return 0;
}

static int uuid(jm_nvml_device device, char *out, unsigned int size)
{
	snprintf(out, size, "%s", device->uuid);
	return device - devices == lost ? JM_NVML_GPU_IS_LOST : 0;
}

static int minor_of(jm_nvml_device device, unsigned int *ret)
{
	*ret = device->minor;
	return 0;
}

static void check_list(const char *variable, const char *words, const char *ours)
{
	struct jm_nvml nvml = {
		.count = count, .by_index = by_index, .uuid = uuid, .minor = minor_of};
	struct jm_err err = JM_ERR_INIT;
	struct jm_nvml_gpus gpus;
	char told[8] = "";

	setenv(variable, words, 1);
	assert_ok(jm_nvml_gpus_open(&nvml, &gpus, &err), err);
	for (int i = 0; i < gpus.n; i++)
		if (gpus.gpu[i].allocated)
			snprintf(told + strlen(told), 2, "%d", gpus.gpu[i].index);
	assert_string_equal(told, ours);
	assert_int_equal(gpus.n_allocated, strlen(ours));
	assert_true(lost < 0 || strstr(gpus.note, "is ignored"));
	jm_nvml_gpus_done(&gpus);
	unsetenv(variable);
}

static void names_of_gpus(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++)
		unsetenv((const char *[]){
			"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}[i]);
	check_list("CUDA_VISIBLE_DEVICES", "0,3", "03"); /* on the PCI bus */
	check_list("SLURM_JOB_GPUS", "0,3", "03");	 /* of /dev/nvidiaN: the same two */
	check_list("SLURM_JOB_GPUS", "0-1", "23");
	check_list("CUDA_VISIBLE_DEVICES", "GPU-aab,GPU-c", "13");
	check_list(
		"CUDA_VISIBLE_DEVICES", "GPU-b,GPU-aa,GPU-c", "2"); /* a beginning of two ends it */
	check_list("CUDA_VISIBLE_DEVICES", "GPU-b0000000x", "");
	lost = 1;
	check_list("NVIDIA_VISIBLE_DEVICES", "void", "023");
	lost = -1;
}

/* ---- values ---- */

static void numbers(void **state)
{
	static const struct {
		struct jm_nvml_value v;
		double number;
	} rows[] = {
		{{.type = JM_NVML_REAL, .as.real = 2.5}, 2.5},
		{{.type = JM_NVML_U32, .as.u32 = 4000000000}, 4e9},
		{{.type = JM_NVML_UL, .as.ul = 7}, 7},
		{{.type = JM_NVML_U64, .as.u64 = 1ULL << 40}, 1099511627776},
		{{.type = JM_NVML_S64, .as.s64 = -3}, -3},
		{{.type = JM_NVML_S32, .as.s32 = -4}, -4},
		{{.type = JM_NVML_U16, .as.u16 = 65535}, 65535},
		/* all bits set is the driver's "not available" */
		{{.type = JM_NVML_U32, .as.u32 = UINT32_MAX}, NAN},
		{{.type = JM_NVML_UL, .as.ul = ~0UL}, NAN},
		{{.type = JM_NVML_U64, .as.u64 = UINT64_MAX}, NAN},
		{{.type = 99, .as.u32 = 1}, NAN},
		{{.type = JM_NVML_U32, .rc = JM_NVML_NOT_SUPPORTED, .as.u32 = 1}, NAN},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double number = jm_nvml_number(&rows[i].v);

		assert_true(isnan(rows[i].number) ? isnan(number) : number == rows[i].number);
	}
}

/* 0 is a passing zero of a board, 65535 W is what no board draws. */
static void a_power_that_is_possible(void **state)
{
	static const double none[] = {0, -1, 65535, 4294967.295, NAN}, some[] = {0.5, 930, 2000};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		assert_true(isnan(jm_nvml_plausible(JM_Q_POWER, none[i])));
		assert_true(isnan(jm_nvml_plausible(JM_Q_POWER_AVERAGE, none[i])));
	}
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		assert_near(jm_nvml_plausible(JM_Q_POWER, some[i]), some[i], 0);
	assert_near(jm_nvml_plausible(JM_Q_ENERGY, 1e9), 1e9, 0);
}

static unsigned long long reasons;
static int reasons_rc;

static int throttle(jm_nvml_device device, unsigned long long *ret)
{
	(void)device;
	*ret = reasons;
	return reasons_rc;
}

/* NVML's reference, nvmlClocksEventReasons */
enum {
	IDLE = 0x1,
	CLOCKS_SET = 0x2,
	SW_POWER_CAP = 0x4,
	HW_SLOWDOWN = 0x8,
	SYNC_BOOST = 0x10,
	SW_THERMAL = 0x20,
	HW_THERMAL = 0x40,
	HW_POWER_BRAKE = 0x80,
	DISPLAY_CLOCK = 0x100,
};

static void why_clocks_are_held_back(void **state)
{
	static const struct {
		unsigned long long reasons;
		int bits;
	} rows[] = {
		{0, 0},
		{IDLE | CLOCKS_SET | DISPLAY_CLOCK, 0},
		{SW_POWER_CAP, JM_THROTTLE_POWER_CAP},
		{SW_THERMAL, JM_THROTTLE_THERMAL},
		{HW_THERMAL | HW_SLOWDOWN, JM_THROTTLE_THERMAL},
		{HW_POWER_BRAKE | HW_SLOWDOWN, JM_THROTTLE_POWER_BRAKE},
		{HW_SLOWDOWN, JM_THROTTLE_OTHER},
		{SYNC_BOOST, JM_THROTTLE_OTHER},
		{SW_POWER_CAP | SW_THERMAL, JM_THROTTLE_POWER_CAP | JM_THROTTLE_THERMAL},
	};
	struct jm_nvml nvml = {.throttle = throttle};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		reasons = rows[i].reasons;
		assert_near(jm_nvml_get_throttle(&nvml, NULL), rows[i].bits, 0);
	}
	reasons_rc = JM_NVML_NOT_SUPPORTED;
	assert_true(isnan(jm_nvml_get_throttle(&nvml, NULL)));
	reasons_rc = 0;
	nvml.throttle = NULL;
	assert_true(isnan(jm_nvml_get_throttle(&nvml, NULL)));
}

/* ---- probes ---- */

static int usage(jm_nvml_device device, unsigned int *mw)
{
	(void)device;
	*mw = 250000;
	return 0;
}

static int zeros(jm_nvml_device device, int n, struct jm_nvml_value *values)
{
	(void)device;
	for (int i = 0; i < n; i++) {
		values[i].rc = 0;
		values[i].type = JM_NVML_U32;
		values[i].as.u64 = 0;
	}
	return 0;
}

/* Which of the two powers does nvmlDeviceGetPowerUsage of this GPU return? */
static void usage_is(unsigned int architecture, int capability, enum jm_quantity quantity)
{
	struct jm_nvml nvml = {.power = usage};
	struct jm_nvml_gpu gpu = {
		.name = "NVIDIA X", .architecture = architecture, .capability = capability};
	int answers = 0;

	for (int i = 0; i < JM_NVML_GPU_PROBES; i++) {
		if (!jm_nvml_answers(&nvml, &gpu, &jm_nvml_gpu_probes[i]))
			continue;
		answers++;
		assert_int_equal(jm_nvml_gpu_probes[i].quantity, quantity);
	}
	assert_int_equal(answers, 1);
}

static void what_answers(void **state)
{
	struct jm_nvml nvml = {.fields = zeros};
	struct jm_nvml_gpu gpu = {.name = "NVIDIA X"};

	(void)state;
	usage_is(JM_NVML_VOLTA, 70, JM_Q_POWER);
	usage_is(JM_NVML_AMPERE, 80, JM_Q_POWER); /* GA100 */
	usage_is(JM_NVML_AMPERE, 86, JM_Q_POWER_AVERAGE);
	usage_is(JM_NVML_HOPPER, 90, JM_Q_POWER_AVERAGE);
	/* a GPU may report 0 for a moment; a memory without a sensor always reports 0 */
	assert_true(jm_nvml_answers(&nvml, &gpu, &jm_nvml_gpu_probes[1]));
	for (int i = 0; i < JM_NVML_MEMORY_PROBES; i++)
		assert_false(jm_nvml_answers(&nvml, &gpu, &jm_nvml_memory_probes[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_gpus),
		cmocka_unit_test(numbers),
		cmocka_unit_test(a_power_that_is_possible),
		cmocka_unit_test(why_clocks_are_held_back),
		cmocka_unit_test(what_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
