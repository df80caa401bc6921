/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fake libamd_smi.so and, with -DROCM, librocm_smi64.so, with the interfaces that AMD publishes.
 * JM_FAKE_AMD is "VERSION GPUS": the first part of the version (24, 26, ...) and one letter a GPU:
 * x = MI300X (its present power is 500 W), a = MI210 (mean power 250 W), d and s = the first and
 * the second die of an MI250X (both: 400 W), v = guest of a virtual machine (no energy), b = as x,
 * but the counter steps back after half a second, l = as x, lost after half a second, A = socket of
 * an MI300A (600 W), y = as x, but 200 W, t = as a, at its limit and hot after half a second. The
 * energy is watts times the time since the library was loaded. With -DHALF one function is missing.
 * JM_FAKE_AMD_STEP="T FACTOR": from T seconds of CLOCK_MONOTONIC on, y draws FACTOR times as much
 * (its energy then contradicts its power). What can be set is in amd_fake_knobs.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API	      __attribute__((visibility("default")))
#define NOT_SUPPORTED 2
#define MICROJOULES   15.259F

static int version;
static char gpus[64];
static double begin, step_at, step_factor = 1;

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double age(void)
{
	return now(CLOCK_MONOTONIC) - begin;
}

static int start(void)
{
	const char *text = getenv("JM_FAKE_AMD");

	begin = now(CLOCK_MONOTONIC);
	if (getenv("JM_FAKE_AMD_STEP"))
		sscanf(getenv("JM_FAKE_AMD_STEP"), "%lf %lf", &step_at, &step_factor);
	return !text || sscanf(text, "%d %63s", &version, gpus) != 2;
}

static char kind(unsigned int i)
{
	return i < strlen(gpus) ? gpus[i] : 'v';
}

static double watts(unsigned int i)
{
	switch (kind(i)) {
	case 'y':
		return 200 * (now(CLOCK_MONOTONIC) < step_at ? 1 : step_factor);
	case 'x':
	case 'b':
	case 'l':
		return 500;
	case 'A':
		return 600;
	case 'a':
	case 't':
		return 250;
	case 'd':
		return 400;
	}
	return 0;
}

static bool lost(unsigned int i)
{
	return kind(i) == 'l' && age() > 0.5;
}

__attribute__((unused)) /* by the half library */
static int
energy(unsigned int i, uint64_t *count, float *micro, uint64_t *stamp)
{
	double joules = 1e5 + watts(i) * age();

	if (kind(i) == 'v' || lost(i))
		return NOT_SUPPORTED;
	if (kind(i) == 'b' && age() > 0.5)
		joules -= 1000;
	*count = kind(i) == 's' ? 0 : (uint64_t)(joules / (double)MICROJOULES * 1e6);
	*micro = MICROJOULES;
	*stamp = (uint64_t)(now(CLOCK_BOOTTIME) * 1e9);
	return 0;
}

#ifndef ROCM

/* For amd_fake_knobs.c. */
char amd_fake_kind(unsigned int i);
bool amd_fake_lost(unsigned int i);

char amd_fake_kind(unsigned int i)
{
	return kind(i);
}

bool amd_fake_lost(unsigned int i)
{
	return lost(i);
}

static unsigned int index_of(void *handle)
{
	return (unsigned int)((uintptr_t)handle - 100);
}

API int amdsmi_init(uint64_t flags)
{
	return flags == 2 ? start() : 1;
}

API int amdsmi_shut_down(void)
{
	return 0;
}

API int amdsmi_get_lib_version(uint32_t *ret)
{
	ret[0] = (uint32_t)version;
	ret[1] = 3;
	return 0;
}

/* A socket a GPU. */
API int amdsmi_get_socket_handles(uint32_t *n, void **ret)
{
	uint32_t all = (uint32_t)strlen(gpus);

	for (uint32_t i = 0; ret && i < *n && i < all; i++)
		ret[i] = (void *)(uintptr_t)(100 + i);
	*n = all;
	return 0;
}

API int amdsmi_get_processor_handles(void *socket, uint32_t *n, void **ret)
{
	if (ret)
		ret[0] = socket;
	*n = 1;
	return 0;
}

API int amdsmi_get_gpu_device_bdf(void *gpu, uint64_t *ret)
{
	*ret = (uint64_t)0 << 16 | (uint64_t)(0x10 + index_of(gpu))
					   << 8; /* function 3, device 5, bus 8, domain 48 bits */
	return 0;
}

API int amdsmi_get_gpu_device_uuid(void *gpu, unsigned int *size, char *ret)
{
	snprintf(ret, *size, "%02xff74a1-0000-1000-80ff-ffffffffffff", index_of(gpu));
	return 0;
}

#ifndef HALF
API int amdsmi_get_energy_count(void *gpu, uint64_t *count, float *micro, uint64_t *stamp)
{
	return energy(index_of(gpu), count, micro, stamp);
}
#endif

struct power_24 {
	uint32_t current, average, gfx, soc, memory, limit, reserved[11];
};
struct power_25 {
	uint64_t socket; /* of a host of virtual machines only */
	uint32_t current, average, gfx, soc, memory, limit, reserved[2];
};
struct power_26 {
	uint64_t socket;
	uint32_t current, average;
	uint64_t gfx, soc, memory;
	uint32_t limit;
	uint64_t reserved[18];
};

API int amdsmi_get_power_info(void *gpu, void *ret)
{
	unsigned int i = index_of(gpu);
	bool mean = strchr("adt", kind(i)), none = strchr("sv", kind(i));
	uint32_t w = none ? UINT32_MAX : (uint32_t)watts(i);
	struct power_24 old = {.current = mean ? UINT32_MAX : w, .average = mean ? w : UINT32_MAX};
	struct power_26 new = {.socket = w, .current = old.current, .average = old.average};

	if (lost(i))
		return NOT_SUPPORTED;
	if (version == 25)
		memcpy(ret,
			&(struct power_25){.socket = UINT64_MAX,
				.current = old.current,
				.average = old.average},
			sizeof(struct power_25));
	else if (version > 25)
		memcpy(ret, &new, sizeof(new));
	else
		memcpy(ret, &old, sizeof(old));
	return 0;
}

API int amdsmi_get_clock_info(void *gpu, int type, uint32_t *ret)
{
	ret[0] = type == 0 ? 2100 : type == 4 ? 1300 : UINT32_MAX;
	return lost(index_of(gpu)) ? NOT_SUPPORTED : 0;
}

API int amdsmi_get_temp_metric(void *gpu, int place, int metric, int64_t *ret)
{
	*ret = 61;
	return lost(index_of(gpu)) || place != 1 || metric ? NOT_SUPPORTED : 0;
}

/* The beginning of amdsmi_gpu_metrics_t; what a GPU does not have is all ones. */
struct metrics {
	uint16_t size;
	uint8_t format, content;
	uint16_t temperature[6], activity[3], average_power;
	uint64_t energy, clock_counter;
	uint16_t average_clock[7], current_clock[7];
	uint32_t throttle;
	uint16_t fan, link_width, link_speed;
	uint32_t gfx_activity, memory_activity;
	uint16_t hbm_temperature[4];
	uint64_t firmware_time;
	uint16_t voltage[3];
	uint64_t throttle_by_any_gpu;
	uint16_t current_power, later[600];
};
_Static_assert(
	offsetof(struct metrics, throttle_by_any_gpu) == 112, "as the compiler lays out amdsmi.h");

API int amdsmi_get_gpu_metrics_info(void *gpu, void *ret)
{
	unsigned int i = index_of(gpu);
	struct metrics m;

	memset(&m, 0xff, sizeof(m));
	m.size = sizeof(m);
	m.format = 1;
	m.content = strchr("adst", kind(i)) ? 3 : 5;
	if (m.content == 3) /* a limit of power (bit 0) and the hottest place (bit 36) */
		m.throttle_by_any_gpu = kind(i) == 't' && age() > 0.5 ? 1ULL | 1ULL << 36 : 0;
	memcpy(ret, &m, sizeof(m));
	return lost(i) ? NOT_SUPPORTED : 0;
}

API int amdsmi_get_gpu_activity(void *gpu, uint32_t *ret)
{
	ret[0] = 97;
	return lost(index_of(gpu)) ? NOT_SUPPORTED : 0;
}

#else

API int rsmi_init(uint64_t flags)
{
	return flags ? 1 : start();
}

API int rsmi_shut_down(void)
{
	return 0;
}

API int rsmi_num_monitor_devices(uint32_t *n)
{
	*n = (uint32_t)strlen(gpus);
	return 0;
}

API int rsmi_dev_pci_id_get(uint32_t i, uint64_t *ret)
{
	*ret = (uint64_t)0 << 32 | (uint64_t)(0x10 + i) << 8;
	return 0;
}

API int rsmi_dev_unique_id_get(uint32_t i, uint64_t *ret)
{
	*ret = 0xabc0 + i;
	return 0;
}

API int rsmi_dev_energy_count_get(uint32_t i, uint64_t *count, float *micro, uint64_t *stamp)
{
	return energy(i, count, micro, stamp);
}

API int rsmi_dev_power_ave_get(uint32_t i, uint32_t sensor, uint64_t *ret)
{
	*ret = (uint64_t)(watts(i) * 1e6);
	return sensor || lost(i) ? NOT_SUPPORTED : 0;
}

API int rsmi_dev_power_cap_get(uint32_t i, uint32_t sensor, uint64_t *ret)
{
	*ret = 560000000;
	return sensor || lost(i) ? NOT_SUPPORTED : 0;
}

API int rsmi_dev_temp_metric_get(uint32_t i, uint32_t place, int metric, int64_t *ret)
{
	*ret = 55000;
	return place != 1 || metric || lost(i) ? NOT_SUPPORTED : 0;
}

API int rsmi_dev_busy_percent_get(uint32_t i, uint32_t *ret)
{
	*ret = 97;
	return lost(i) ? NOT_SUPPORTED : 0;
}

#endif
