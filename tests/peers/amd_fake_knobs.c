/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake libamd_smi.so (amd_fake.c) sets: power cap, performance level and range of the
 * core clock of each GPU, in the file named by JM_FAKE_AMD_STATE, which all processes share;
 * without it, in the process. As AMD publishes it: microwatts, megahertz and hertz of include/
 * amd_smi/amdsmi.h; rocm_smi/src/rocm_smi.cc refuses a cap outside its range, setting a cap by
 * anyone but root, and sets the level to manual before it writes an end of the clock's range. As
 * Linux does it for MI300 (drivers/gpu/drm/amd/pm/swsmu/smu13/smu_v13_0_6_ppt.c): levels auto and
 * manual alone; under auto the range is the whole one; its lower end is below the upper one, and
 * both are within the limits. JM_FAKE_AMD_DENY=N: GPU N permits nothing. JM_FAKE_AMD_ROUND=W: caps
 * are rounded down to multiples of W.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API	      __attribute__((visibility("default")))
#define INVALID	      1
#define NOT_SUPPORTED 2
#define NO_PERMISSION 10
#define MANUAL	      3
#define MOST_WATTS    750
#define LEAST_MHZ     132
#define MOST_MHZ      2100
#define MEGA	      1000000u
#define MAX_GPUS      16

struct gpu {
	uint64_t cap, level, low, high; /* uW, as in amdsmi.h, MHz */
};

static struct gpu *gpus;

char amd_fake_kind(unsigned int i);
bool amd_fake_lost(unsigned int i);

static struct gpu *in_file(const char *path)
{
	size_t size = MAX_GPUS * sizeof(struct gpu);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	void *map;

	if (fd < 0 || ftruncate(fd, (off_t)size))
		abort();
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

static struct gpu *gpu_of(void *handle)
{
	static struct gpu own[MAX_GPUS];
	unsigned int i = (unsigned int)((uintptr_t)handle - 100);

	if (!gpus)
		gpus = getenv("JM_FAKE_AMD_STATE") ? in_file(getenv("JM_FAKE_AMD_STATE")) : own;
	if (!gpus || i >= MAX_GPUS)
		abort();
	if (!gpus[i].cap)
		gpus[i] = (struct gpu){(uint64_t)MOST_WATTS * MEGA, 0, LEAST_MHZ, MOST_MHZ};
	return &gpus[i];
}

/* 0, or why the GPU takes no setting now. */
static int denied(void *handle)
{
	unsigned int i = (unsigned int)((uintptr_t)handle - 100);
	const char *deny = getenv("JM_FAKE_AMD_DENY");

	if (amd_fake_lost(i) || amd_fake_kind(i) == 'v')
		return NOT_SUPPORTED;
	return geteuid() || (deny && strtoul(deny, NULL, 10) == i) ? NO_PERMISSION : 0;
}

static bool is_out(void *handle)
{
	return amd_fake_lost((unsigned int)((uintptr_t)handle - 100));
}

/* The cap, its default, a clock, the least and the most. */
API int amdsmi_get_power_cap_info(void *handle, uint32_t sensor, uint64_t *ret)
{
	if (sensor || is_out(handle))
		return NOT_SUPPORTED;
	ret[0] = gpu_of(handle)->cap;
	ret[1] = ret[4] = (uint64_t)MOST_WATTS * MEGA;
	ret[2] = MOST_MHZ;
	ret[3] = 0;
	return 0;
}

API int amdsmi_set_power_cap(void *handle, uint32_t sensor, uint64_t cap)
{
	const char *text = getenv("JM_FAKE_AMD_ROUND");
	uint64_t step = text ? strtoull(text, NULL, 10) * MEGA : 1;
	int rc = denied(handle);

	if (rc || sensor)
		return rc ? rc : NOT_SUPPORTED;
	if (!cap || cap > (uint64_t)MOST_WATTS * MEGA)
		return INVALID;
	gpu_of(handle)->cap = cap / step * step;
	return 0;
}

API int amdsmi_get_gpu_perf_level(void *handle, int *ret)
{
	*ret = (int)gpu_of(handle)->level;
	return is_out(handle) ? NOT_SUPPORTED : 0;
}

API int amdsmi_set_gpu_perf_level(void *handle, int level)
{
	struct gpu *g = gpu_of(handle);
	int rc = denied(handle);

	if (rc || (level && level != MANUAL))
		return rc ? rc : NOT_SUPPORTED;
	if (!level) {
		g->low = LEAST_MHZ;
		g->high = MOST_MHZ;
	}
	g->level = (uint64_t)level;
	return 0;
}

/* Ranges in Hz: the cores now, the memory now, the limits of both. */
API int amdsmi_get_gpu_od_volt_info(void *handle, uint64_t *ret)
{
	const struct gpu *g = gpu_of(handle);
	const uint64_t ends[] = {g->low, g->high, 900, 1300, LEAST_MHZ, MOST_MHZ, 900, 1300};

	for (size_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++)
		ret[k] = ends[k] * MEGA;
	return is_out(handle) ? NOT_SUPPORTED : 0;
}

API int amdsmi_set_gpu_clk_limit(void *handle, int type, int is_high, uint64_t mhz)
{
	struct gpu *g = gpu_of(handle);
	int rc = denied(handle);

	if (rc || type)
		return rc ? rc : INVALID;
	g->level = MANUAL;
	if (mhz < LEAST_MHZ || mhz > MOST_MHZ || (is_high ? mhz <= g->low : mhz >= g->high))
		return INVALID;
	*(is_high ? &g->high : &g->low) = mhz;
	return 0;
}
