/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml_get.h"
#include "meter/meter.h"

#include <math.h>
#include <stdint.h>

/* A number of a call whose result is an unsigned int, or NAN. */
#define CALL_U32(name, symbol, scale)                                                              \
	double name(const struct jm_nvml *nvml, jm_nvml_device device)                             \
	{                                                                                          \
		unsigned int value = 0;                                                            \
                                                                                                   \
		if (!nvml->symbol || nvml->symbol(device, &value) || value == UINT32_MAX)          \
			return NAN;                                                                \
		return value * (scale);                                                            \
	}

CALL_U32(jm_nvml_get_power, power, 1e-3)
CALL_U32(jm_nvml_get_limit, limit, 1e-3)
CALL_U32(jm_nvml_get_limit_enforced, limit_enforced, 1e-3)

double jm_nvml_get_energy(const struct jm_nvml *nvml, jm_nvml_device device)
{
	unsigned long long mj = 0;

	if (!nvml->energy || nvml->energy(device, &mj))
		return NAN;
	return (double)mj * 1e-3;
}

static double clock_of(const struct jm_nvml *nvml, jm_nvml_device device, int type)
{
	unsigned int mhz = 0;

	if (!nvml->clock || nvml->clock(device, type, &mhz) || mhz == UINT32_MAX)
		return NAN;
	return mhz * 1e6;
}

double jm_nvml_get_clock(const struct jm_nvml *nvml, jm_nvml_device device)
{
	return clock_of(nvml, device, JM_NVML_CLOCK_SM);
}

double jm_nvml_get_memory_clock(const struct jm_nvml *nvml, jm_nvml_device device)
{
	return clock_of(nvml, device, JM_NVML_CLOCK_MEMORY);
}

double jm_nvml_get_temperature(const struct jm_nvml *nvml, jm_nvml_device device)
{
	unsigned int celsius = 0;

	if (!nvml->temperature || nvml->temperature(device, 0, &celsius))
		return NAN;
	return celsius;
}

double jm_nvml_get_utilisation(const struct jm_nvml *nvml, jm_nvml_device device)
{
	struct jm_nvml_utilisation u = {0, 0};

	if (!nvml->utilisation || nvml->utilisation(device, &u) || u.gpu > 100)
		return NAN;
	return u.gpu / 100.0;
}

double jm_nvml_get_memory_used(const struct jm_nvml *nvml, jm_nvml_device device)
{
	struct jm_nvml_memory memory = {0};

	if (!nvml->memory || nvml->memory(device, &memory) || memory.used > memory.total)
		return NAN;
	return (double)memory.used;
}

/* P0 to P15; the library answers 32 where it does not know. */
double jm_nvml_get_power_state(const struct jm_nvml *nvml, jm_nvml_device device)
{
	unsigned int state = 0;

	if (!nvml->power_state || nvml->power_state(device, &state) || state > 15)
		return NAN;
	return state;
}

/* NVML's reasons as enum jm_throttle: 4 software power cap; 0x20, 0x40 heat; 0x80 brake; 0x10 sync
 * boost; 8 a hardware slowdown, which is of its own kind only when neither heat nor brake is
 * named. */
double jm_nvml_get_throttle(const struct jm_nvml *nvml, jm_nvml_device device)
{
	unsigned long long reasons = 0;
	int bits = 0;

	if (!nvml->throttle || nvml->throttle(device, &reasons))
		return NAN;
	if (reasons & 0x4)
		bits |= JM_THROTTLE_POWER_CAP;
	if (reasons & 0x60)
		bits |= JM_THROTTLE_THERMAL;
	if (reasons & 0x80)
		bits |= JM_THROTTLE_POWER_BRAKE;
	if ((reasons & 0x10) || ((reasons & 0x8) && !(reasons & 0xc0)))
		bits |= JM_THROTTLE_OTHER;
	return bits;
}
