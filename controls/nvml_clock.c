/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml_clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST 512 /* clocks of a GPU; an H100 has 110 */
#define MHZ  1e6

/* The supported clocks in MHz, as the driver lists them: of memory, and of the cores at the highest
 * memory clock. */
static unsigned int list_clocks(const struct jm_nvml *nvml, jm_nvml_device gpu,
	enum jm_nvml_clock clock, unsigned int mhz[MOST])
{
	unsigned int n = MOST, highest = 0;

	if (!nvml->memory_clocks || nvml->memory_clocks(gpu, &n, mhz))
		return 0;
	if (clock == JM_NVML_CLOCK_MEMORY)
		return n;
	for (unsigned int i = 0; i < n; i++)
		highest = mhz[i] > highest ? mhz[i] : highest;
	n = MOST;
	if (!nvml->graphics_clocks || nvml->graphics_clocks(gpu, highest, &n, mhz))
		return 0;
	return n;
}

static bool can_lock(const struct jm_nvml *nvml, enum jm_nvml_clock clock)
{
	return clock == JM_NVML_CLOCK_MEMORY ? nvml->lock_memory_clock && nvml->unlock_memory_clock
					     : nvml->lock_clock && nvml->unlock_clock;
}

bool jm_nvml_clock_describe(const struct jm_nvml *nvml, jm_nvml_device gpu,
	enum jm_nvml_clock clock, struct jm_knob *ret)
{
	unsigned int mhz[MOST], n = can_lock(nvml, clock) ? list_clocks(nvml, gpu, clock, mhz) : 0;
	struct jm_knob knob = {.name = "gpu.clock",
		.unit = "Hz",
		.kind = JM_KNOB_RANGE,
		.ends = JM_ENDS_DRIVER,
		.min = INFINITY,
		.max = -INFINITY,
		.fallback = jm_knob_value_word(JM_UNLOCKED),
		.unlockable = true,
		.unreadable = true};

	for (unsigned int i = 0; i < n; i++) {
		knob.min = fmin(knob.min, mhz[i] * MHZ);
		knob.max = fmax(knob.max, mhz[i] * MHZ);
	}
	if (!(knob.min < knob.max))
		return false;
	if (clock == JM_NVML_CLOCK_MEMORY)
		memcpy(knob.name, "gpu.memory_clock", sizeof("gpu.memory_clock"));
	*ret = knob;
	return true;
}

int jm_nvml_clock_set(const struct jm_nvml *nvml, jm_nvml_device gpu, enum jm_nvml_clock clock,
	const struct jm_knob_value *value)
{
	bool memory = clock == JM_NVML_CLOCK_MEMORY;
	unsigned int low, high;

	if (jm_knob_value_is(value, JM_UNLOCKED))
		return memory ? nvml->unlock_memory_clock(gpu) : nvml->unlock_clock(gpu);
	low = (unsigned int)lround(value->low / MHZ);
	high = (unsigned int)lround(value->high / MHZ);
	return memory ? nvml->lock_memory_clock(gpu, low, high) : nvml->lock_clock(gpu, low, high);
}

void jm_nvml_clock_text(enum jm_nvml_clock clock, const char *device,
	const struct jm_knob_value *value, char *out, size_t size)
{
	const char *what = clock == JM_NVML_CLOCK_MEMORY ? "Memory" : "Gpu";

	if (jm_knob_value_is(value, JM_UNLOCKED))
		snprintf(out, size, "nvmlDeviceReset%sLockedClocks(%s)", what, device);
	else
		snprintf(out, size, "nvmlDeviceSet%sLockedClocks(%s, %ld, %ld)", what, device,
			lround(value->low / MHZ), lround(value->high / MHZ));
}
